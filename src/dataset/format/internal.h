/* Shared by the formats: errors, numbers, reading a shard in pieces, adding fields. */
#ifndef DATASET_FORMAT_INTERNAL_H
#define DATASET_FORMAT_INTERNAL_H

#include <endian.h>
#include <string.h>

#include <penstock/error.h>

#include "dataset/format/format.h"

/* Raises "cannot read 'train-0.tar' at byte 512: REASON". Returns -code. */
int shard_error(struct penstock_error *err, enum penstock_code code, const char *shard,
	uint64_t offset, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static inline uint16_t get_le16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t get_le32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get_le64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline uint32_t get_be32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

/*
 * The bytes of a shard around a position, or the bytes of one sample. The offsets of a scan ascend.
 * Each read gets a larger piece than the previous read, up to LIMIT_SCAN_PIECE, as long as the scan
 * skips at most LIMIT_SCAN_SKIP bytes between two pieces.
 *
 *	_cleanup_(window_release) struct window w = {.shard = shard};
 *
 *	if (window_get(&w, offset, 512, &header, err) < 0)	// valid until the next call
 */
struct window {
	const struct shard_reader *shard; /* NULL for a sample, whose bytes are in `data` */
	const char *name; /* name of the shard, if `shard` is NULL */
	unsigned char *data;
	uint64_t offset;
	size_t len, cap;
	size_t piece; /* bytes of the last read */
};

void window_of_piece(struct window *w, const struct format_piece *piece);
void window_release(struct window *w);
const char *window_name(const struct window *w);
/* Returns the offset of the end of the shard or of the sample. */
uint64_t window_end(const struct window *w);
/* Gets `len` bytes at `offset`, at most LIMIT_SCAN_PIECE. Fails with PENSTOCK_E_CORRUPT if the
 * shard or the sample is shorter. */
int window_get(struct window *w, uint64_t offset, size_t len, const unsigned char **out,
	struct penstock_error *err);

/* Removes all fields from `out`, and marks its scratch memory as unused. */
void fields_begin(struct format_fields *out);
/* Adds a field with a name and `size` bytes at `data`. Fails with PENSTOCK_E_LIMIT if there are too
 * many fields. */
int fields_add(struct format_fields *out, const struct format_piece *piece,
	const struct format_field *field, struct penstock_error *err);
/* Returns memory for `size` bytes, aligned for any number; NULL if the scratch memory is too small,
 * which fields_end() reports. */
void *fields_scratch(struct format_fields *out, size_t size);
int fields_end(const struct format_fields *out, const struct format_piece *piece,
	struct penstock_error *err);

/* Returns true for a valid shard name in an index: a relative path without "..". */
bool shard_name_is_good(const char *name);

/* Turns a field with an image of Pillow (width, height, length of the mode, mode, pixels) into an
 * array. Returns NULL, or the reason why the image is invalid. */
const char *pil_field(struct format_field *field);
/* Adds the values of the list in `whole`: after `skip` bytes come the number of values, their sizes
 * and their bytes. If `pil` is set, each value is an image of Pillow. Returns NULL, or the reason
 * why the list is invalid. */
const char *images_list(
	const struct format_field *whole, size_t skip, bool pil, struct format_fields *out);

/* Scans a shard of MDS or litData, which begins with a u32 count and `count` + 1 u32 offsets:
 * samples are contiguous, and the last sample ends with the shard. `samples` is the number of
 * samples that the index.json declares for the shard. */
int scan_offsets(const struct shard_reader *shard, uint64_t samples, format_sample_fn sample,
	void *cookie, struct penstock_error *err);

#endif
