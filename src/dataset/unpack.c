/* Finds the compressed shards, and the sizes of their contents. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/mds/mds.h"
#include "dataset/internal.h"

#define GZIP_MIN  20 /* bytes of the smallest gzip file */
#define GZIP_MOST 1032 /* bytes that one byte of a gzip file can expand to */
#define ZSTD_HEAD 18 /* bytes of the longest header of a zstd frame */

/* ---- MosaicML: the index has the sizes, and hashes ---- */

const struct mds_file *dataset_mds_file(const struct dataset *set, const struct mds_shard *shard)
{
	bool zip = shard->zip.basename && source_find(set->source, shard->raw.basename) == SIZE_MAX;

	return zip ? &shard->zip : &shard->raw;
}

/* Gets the first hash whose kind is known. */
static void get_sum(const struct mds_file *file, struct source_sum *out)
{
	static const struct {
		const char *name;
		enum checksum_kind kind;
	} known[] = {{"sha1", CHECKSUM_SHA1}, {"sha256", CHECKSUM_SHA256}, {"md5", CHECKSUM_MD5}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		const char *hex = strlist_get(&file->hashes, known[i].name);

		if (!hex || str_unhex(hex, out->digest, checksum_size(known[i].kind)) < 0)
			continue;
		out->kind = known[i].kind;
		return;
	}
}

static int unpack_mds(
	struct dataset *set, const struct mds_shard *shard, struct penstock_error *err)
{
	const struct mds_file *file = dataset_mds_file(set, shard);
	const char *method = shard->compression ? shard->compression : "an unknown method";
	struct source_content content = {.packing = SOURCE_ZSTD, .size = shard->raw.bytes};
	size_t i = source_find(set->source, file->basename);

	if (file == &shard->raw)
		return 0;
	if (strcmp(method, "zstd") != 0 && !str_starts(method, "zstd:"))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot open '%s': its shard '%s' is compressed with '%s'; only zstd is "
			"supported",
			source_url(set->source), file->basename, method);
	if (source_size(set->source, i) != file->bytes)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot open '%s': its shard '%s' has %" PRIu64
			" bytes, but its index.json declares %" PRIu64,
			source_url(set->source), file->basename, source_size(set->source, i),
			file->bytes);
	get_sum(&shard->zip, &content.stored);
	/* If the hash of the compressed shard is known, the hash of its content is not needed. */
	if (content.stored.kind == CHECKSUM_NONE)
		get_sum(&shard->raw, &content.unpacked);
	return source_unpack(set->source, i, &content, err);
}

/* ---- other formats: the first or last bytes of a shard have the size of its content ---- */

struct ends {
	struct source_read *reads;
	unsigned char (*bytes)[ZSTD_HEAD]; /* one for each read */
	size_t n;
};

static void ends_release(struct ends *ends)
{
	for (size_t i = 0; i < ends->n; i++)
		penstock_error_release(&ends->reads[i].error);
	free(ends->reads);
	free(ends->bytes);
}

static int ends_init(struct ends *ends, size_t n, struct penstock_error *err)
{
	ends->reads = calloc(n + 1, sizeof(*ends->reads));
	ends->bytes = calloc(n + 1, sizeof(*ends->bytes));
	return ends->reads && ends->bytes ? 0 : error_memory(err);
}

static void ends_add(struct ends *ends, size_t shard, uint64_t offset, size_t len)
{
	ends->reads[ends->n] = (struct source_read){
		.shard = shard, .offset = offset, .length = len, .data = ends->bytes[ends->n]};
	ends->n++;
}

static int read_ends(struct dataset *set, struct ends *ends, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct source_reader *reader;
	int r = dataset_take_reader(set, &reader, err);

	if (r < 0)
		return r;
	r = source_read(reader, ends->reads, ends->n, cancel, err);
	dataset_give_reader(set, reader);
	for (size_t i = 0; r > 0 && i < ends->n; i++) {
		if (!ends->reads[i].error.code)
			continue;
		error_prefix(&ends->reads[i].error, "cannot read '%s' of '%s'",
			source_name(set->source, ends->reads[i].shard), source_url(set->source));
		return error_move(err, &ends->reads[i].error);
	}
	return r;
}

static int no_size(
	const struct dataset *set, size_t shard, const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT, "cannot open '%s': its shard '%s' %s",
		source_url(set->source), source_name(set->source, shard), reason);
}

static int unpack_litdata(struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(ends_release) struct ends ends = {0};
	int r = ends_init(&ends, set->litdata->n, err);

	for (size_t i = 0; r == 0 && i < set->litdata->n; i++) {
		size_t shard = source_find(set->source, set->litdata->chunks[i].filename);
		uint64_t size = source_size(set->source, shard);

		if (size == 0)
			return no_size(set, shard, "is empty", err);
		ends_add(&ends, shard, 0, size < ZSTD_HEAD ? (size_t)size : ZSTD_HEAD);
	}
	if (r == 0)
		r = read_ends(set, &ends, cancel, err);
	for (size_t i = 0; r == 0 && i < ends.n; i++) {
		const struct source_read *read = &ends.reads[i];
		unsigned long long size = ZSTD_getFrameContentSize(read->data, read->length);

		if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
			return no_size(set, read->shard,
				"has no zstd header with the size of its content", err);
		r = source_unpack(set->source, read->shard,
			&(struct source_content){.packing = SOURCE_ZSTD, .size = size}, err);
	}
	return r;
}

/* The last four bytes of a gzip file are the size of its content, modulo 2^32. */
static int unpack_arrays(struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(ends_release) struct ends ends = {0};
	size_t n = source_count(set->source);
	int r = ends_init(&ends, n, err);

	for (size_t i = 0; r == 0 && i < n; i++) {
		uint64_t size = source_size(set->source, i);

		if (!str_ends(source_name(set->source, i), ".gz") ||
			dataset_is_aside(set->source, source_name(set->source, i)))
			continue;
		if (size < GZIP_MIN)
			return no_size(set, i, "is too short for a gzip file", err);
		ends_add(&ends, i, size - 4, 4);
	}
	if (r == 0)
		r = read_ends(set, &ends, cancel, err);
	for (size_t i = 0; r == 0 && i < ends.n; i++) {
		const unsigned char *p = ends.bytes[i];
		uint32_t size = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
				(uint32_t)p[3] << 24;

		if (size / GZIP_MOST > source_size(set->source, ends.reads[i].shard))
			return no_size(set, ends.reads[i].shard,
				"is truncated or damaged: its end is not that of a gzip file", err);
		r = source_unpack(set->source, ends.reads[i].shard,
			&(struct source_content){.packing = SOURCE_GZIP, .size = size}, err);
	}
	return r;
}

int dataset_unpack(struct dataset *set, const atomic_int *cancel, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && set->mds && i < set->mds->n; i++)
		r = unpack_mds(set, &set->mds->shards[i], err);
	if (set->litdata && set->litdata->zstd)
		r = unpack_litdata(set, cancel, err);
	if (strcmp(set->name, "idx") == 0)
		r = unpack_arrays(set, cancel, err);
	return r;
}
