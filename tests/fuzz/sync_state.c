/*
 * The first byte: odd, a manifest; even, a line of the journal (its checksum is put before it: torn
 * lines alone would be dull). Both are read after a crash, the manifest also from S3.
 */
#include "fuzz.h"

#include <isa-l/crc.h>

#include "sync/journal.h"
#include "sync/manifest.h"

static void journal(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *line = malloc(size + 9);
	_cleanup_(buf_release) struct buf strings = BUF_INIT(1 * MIB), again = BUF_INIT(4 * MIB);
	struct journal_record record = {0};

	require(line);
	snprintf(line, 9, "%08x", crc32_gzip_refl(0, data, size));
	memcpy(line + 8, data, size);
	line[size + 8] = '\0';
	if (!journal_parse(line, &record, &strings))
		return;
	require(record.path);
	journal_format(&again, &record);
	require(!buf_failed(&again) && again.data[again.len - 1] == '\n');
	again.data[again.len - 1] = '\0';
	require(journal_parse(again.data, &record, &strings));
}

static int on_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	unsigned *n = cookie;

	require(list < MANIFEST_LISTS_);
	require(item->path && *item->path && item->etag);
	(*n)++;
	return 0;
}

static void manifest(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_fclose_ FILE *f = fmemopen(NULL, size + 1, "w+");
	struct manifest_head head = {.attempt = 0};
	unsigned n = 0;

	require(f);
	require(fwrite(data, 1, size, f) == size);
	rewind(f);
	require_error(manifest_read(f, "manifest.json", &head, on_item, &n, &err), &err);
	require(memchr(head.run, '\0', sizeof(head.run)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1)
		manifest(data + 1, size - 1);
	else
		journal(data + 1, size - 1);
	return 0;
}
