/*
 * If the first byte is odd, the rest is a manifest, else a journal or one of its lines. The target
 * adds the checksums of the lines, because few inputs have valid ones. All of these are read after
 * a crash; the manifest may also come from S3.
 */
#include <isa-l/crc.h>
#include <sys/stat.h>

#include "sync/record/journal.h"
#include "sync/record/manifest.h"
#include "yard.h"

static int on_record(void *cookie, const struct journal_record *record)
{
	require(record->path && record->etag && record->key);
	(*(unsigned *)cookie)++;
	return 0;
}

static void journal(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *line = malloc(size + 9);
	_cleanup_(buf_release) struct buf again = BUF_INIT(4 * MIB);
	struct journal_record record = {0};

	require(line);
	snprintf(line, 9, "%08x", crc32_gzip_refl(0, data, size));
	memcpy(line + 8, data, size);
	line[size + 8] = '\0';
	if (!journal_parse(line, &record))
		return;
	require(record.path);
	journal_format(&again, &record);
	require(!buf_failed(&again) && again.data[again.len - 1] == '\n');
	again.data[again.len - 1] = '\0';
	require(journal_parse(again.data, &record));
}

struct copy {
	FILE *out;
	enum manifest_list list;
	unsigned n; /* items in all lists */
	unsigned n_here; /* in the current list */
};

/* Returns true if `path` is relative and has no empty, "." or ".." component. */
static bool stays_below(const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == 0 || (n == 1 && path[0] == '.') ||
			(n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += n;
		if (!*path++)
			return true;
	}
}

static void go_on_to(struct copy *copy, enum manifest_list list)
{
	require(list >= copy->list && list < MANIFEST_LISTS_);
	while (copy->list < list) {
		manifest_list(copy->out, ++copy->list);
		copy->n_here = 0;
	}
}

static int on_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	struct copy *copy = cookie;

	require(item->etag && stays_below(item->path));
	require(!S_ISLNK(item->mode) || (item->link && *item->link));
	go_on_to(copy, list);
	manifest_item(copy->out, list, item, copy->n_here++ == 0);
	copy->n++;
	return 0;
}

static int count_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	(void)list;
	(void)item;
	(*(unsigned *)cookie)++;
	return 0;
}

/* Every manifest that was read can be written, and then read again. */
static void manifest(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *text = NULL;
	size_t text_len = 0;
	_cleanup_fclose_ FILE *f = fmemopen(NULL, size + 1, "w+");
	struct copy copy = {.out = open_memstream(&text, &text_len)};
	struct manifest_head head = {.attempt = 0};
	unsigned n = 0;

	require(f && copy.out);
	require(fwrite(data, 1, size, f) == size);
	rewind(f);
	manifest_begin(copy.out, &(struct manifest_head){.run = "ID", .attempt = 1});
	int rc = manifest_read(f, "manifest.json", &head, on_item, &copy, &err);

	require_error(rc, &err);
	require(memchr(head.run, '\0', sizeof(head.run)));
	go_on_to(&copy, MANIFEST_LISTS_ - 1);
	manifest_end(copy.out);
	require(fclose(copy.out) == 0);
	if (rc == 0) {
		_cleanup_fclose_ FILE *again = fmemopen(text, text_len, "r");

		require(again);
		require(manifest_read(again, "copy", &head, count_item, &n, NULL) == 0);
		require(n == copy.n);
	}
}

/* Each line gets its checksum, except lines that begin with '!'; the last line may lack its end. */
static void journal_file(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	_cleanup_(buf_release) struct buf file = BUF_INIT(16 * MIB);
	unsigned skipped = 0;
	char *at = text;

	yard_open();
	for (char *line; (line = fuzz_line(&at));) {
		if (*line != '!')
			buf_printf(&file, "%08x",
				crc32_gzip_refl(0, (const uint8_t *)line, strlen(line)));
		buf_add_str(&file, line);
		if (at)
			buf_add_char(&file, '\n');
	}
	require(!buf_failed(&file));
	yard_write("journal", file.data, file.len);
	require(journal_replay(yard_path("journal"), on_record, &(unsigned){0}, &skipped, NULL) ==
		0);
	require(skipped <= size + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1)
		manifest(data + 1, size - 1);
	else if (data[0] & 2)
		journal_file(data + 1, size - 1);
	else
		journal(data + 1, size - 1);
	return 0;
}
