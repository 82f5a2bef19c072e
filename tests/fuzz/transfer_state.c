/*
 * The record of a file that an interrupted download leaves (JSON). The target inserts the boot and
 * the URL, because a record with another boot or URL is ignored.
 */
#include <fcntl.h>
#include <jansson.h>

#include "base/process/process.h"
#include "transfer/web/internal.h"
#include "yard.h"

#define URL	"http://h/file?signed=anew"
#define JOURNAL "file.json"

static void release(struct fetch *f)
{
	free(f->done);
	free(f->etag);
	free(f->last_modified);
}

/* Checks the properties of a record on which the resumed fetch relies. */
static void check(const struct fetch *f)
{
	require(f->etag || f->last_modified);
	require(f->size > 0 && f->chunk >= LIMIT_FETCH_CHUNK_MIN);
	require(f->n_chunks > 0 && f->n_chunks - 1 == (f->size - 1) / f->chunk);
	require(f->prefix <= f->n_chunks);
	for (uint64_t i = 0; i < f->prefix; i++)
		require(fetch_done(f, i));
	require(f->prefix == f->n_chunks || !fetch_done(f, f->prefix));
}

static void fetch_record(const uint8_t *data, size_t size)
{
	char path[256];
	struct fetch f = {.url = URL, .journal_path = path};
	struct fetch again = f;
	json_t *given = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
	_cleanup_fclose_ FILE *part = fopen(yard_path("file"), "w+e");
	_cleanup_free_ char *text = NULL;

	require(part);
	f.fd = again.fd = fileno(part);
	snprintf(path, sizeof(path), "%s", yard_path(JOURNAL));
	if (json_is_object(given)) {
		/* Save a valid record, and copy the values that depend on this machine from it. */
		f.size = 1;
		f.chunk = LIMIT_FETCH_CHUNK_MIN;
		require(fetch_chunks_init(&f, NULL) == 0 && fetch_journal_save(&f, NULL) == 0);
		release(&f);
		f = again;
		json_t *own = json_load_file(path, 0, NULL);

		require(own);
		json_object_set(given, "boot", json_object_get(own, "boot"));
		json_object_set(given, "url", json_object_get(own, "url"));
		json_decref(own);
		text = json_dumps(given, 0);
	}
	json_decref(given);
	if (text)
		yard_write(JOURNAL, text, strlen(text));
	else
		yard_write(JOURNAL, data, size);
	if (fetch_journal_load(&f)) {
		check(&f);
		require(fetch_journal_save(&f, NULL) == 0);
		require(fetch_journal_load(&again));
		require(again.size == f.size && again.chunk == f.chunk && again.prefix == f.prefix);
		require(memcmp(again.done, f.done, f.n_chunks / 8 + 1) == 0);
	}
	release(&f);
	release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char boot[PROCESS_BOOT_ID_SIZE];

	process_boot_id(boot);
	if (!*boot)
		return 0;
	yard_open();
	fetch_record(data, size);
	return 0;
}
