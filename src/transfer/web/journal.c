/* The journal next to a part file, and its bitmap of chunks. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/str.h"
#include "s3/json.h"
#include "s3/sum/checksum.h"
#include "transfer/web/internal.h"

/* Identifies the resource by a digest of its URL without the query: a signature in the query may
 * change, and the URL may have a secret. */
static void url_digest(const char *url, char out[static 65])
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);
	uint8_t digest[CHECKSUM_MAX_SIZE] = {0};

	http_url_display(url, &shown);
	checksum_of(CHECKSUM_SHA256, buf_str(&shown), shown.len, digest, NULL);
	str_hex(digest, 32, out);
}

int fetch_chunks_init(struct fetch *f, struct penstock_error *err)
{
	f->n_chunks = (f->size + f->chunk - 1) / f->chunk;
	f->prefix = 0;
	f->next = 0;
	free(f->done);
	f->done = calloc(f->n_chunks / 8 + 1, 1);
	return f->done ? 0 : error_memory(err);
}

static char *copy_or_null(const char *text)
{
	return *text ? strdup(text) : NULL;
}

/* Returns true if the file is long enough for its completed chunks, which a truncated file
 * lacks. */
static bool reaches(const struct fetch *f, uint64_t size)
{
	uint64_t i = f->n_chunks;

	while (i && !fetch_done(f, i - 1))
		i--;
	return (i == f->n_chunks ? f->size : i * f->chunk) <= size;
}

static bool take_state(struct fetch *f, const json_t *json)
{
	const char *done = s3_json_text(json, "done");
	json_int_t size = json_integer_value(json_object_get(json, "size"));
	json_int_t chunk = json_integer_value(json_object_get(json, "chunk"));
	struct stat st;

	if (size <= 0 || chunk < (json_int_t)LIMIT_FETCH_CHUNK_MIN || fstat(f->fd, &st) < 0 ||
		st.st_size > size)
		return false;
	/* Check before allocating the bitmap that this size needs. */
	if (strlen(done) != 2 * (((uint64_t)(size - 1) / (uint64_t)chunk + 1) / 8 + 1))
		return false;
	f->size = (uint64_t)size;
	f->chunk = (uint64_t)chunk;
	if (fetch_chunks_init(f, NULL) < 0 ||
		str_unhex(done, f->done, (size_t)(f->n_chunks / 8 + 1)) < 0)
		return false;
	/* Bits after the last chunk would count as fetched bytes. */
	for (uint64_t i = f->n_chunks; i < (f->n_chunks / 8 + 1) * 8; i++)
		f->done[i / 8] &= (unsigned char)~(1u << (i % 8));
	if (!reaches(f, (uint64_t)st.st_size))
		return false;
	while (f->prefix < f->n_chunks && fetch_done(f, f->prefix))
		f->prefix++;
	f->etag = copy_or_null(s3_json_text(json, "etag"));
	f->last_modified = copy_or_null(s3_json_text(json, "last_modified"));
	return f->etag || f->last_modified;
}

bool fetch_journal_load(struct fetch *f)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_JSON_DOCUMENT);
	json_auto_t *json = NULL;
	char boot[PROCESS_BOOT_ID_SIZE];
	char digest[65];
	struct stat st;

	/* A journal written by another user could claim bytes that were not fetched. */
	if (lstat(f->journal_path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		fs_read(f->journal_path, &text, NULL) < 0)
		return false;
	json = json_loadb(text.data, text.len, 0, NULL);
	process_boot_id(boot);
	url_digest(f->url, digest);
	if (!json || json_integer_value(json_object_get(json, "version")) != 1 || !*boot ||
		strcmp(s3_json_text(json, "boot"), boot) != 0 ||
		strcmp(s3_json_text(json, "url"), digest) != 0)
		return false;
	return take_state(f, json);
}

int fetch_journal_save(struct fetch *f, struct penstock_error *err)
{
	size_t bytes = (size_t)(f->n_chunks / 8 + 1);
	_cleanup_free_ char *done = malloc(bytes * 2 + 1);
	_cleanup_free_ char *text = NULL;
	json_auto_t *json = NULL;
	char boot[PROCESS_BOOT_ID_SIZE];
	char digest[65];

	if (!done)
		return error_memory(err);
	process_boot_id(boot);
	url_digest(f->url, digest);
	str_hex(f->done, bytes, done);
	json = json_pack("{s:i, s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "version", 1, "boot", boot,
		"url", digest, "size", (json_int_t)f->size, "chunk", (json_int_t)f->chunk, "etag",
		f->etag ? f->etag : "", "last_modified", f->last_modified ? f->last_modified : "",
		"done", done);
	text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
	if (!text)
		return error_memory(err);
	return fs_write_atomic(f->journal_path, text, strlen(text), 0644, err);
}
