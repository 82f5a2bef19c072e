#include "dataset/format/tfrecord.h"

#include <inttypes.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "dataset/format/internal.h"
#include "s3/sum/checksum.h"

uint32_t tfrecord_crc(const void *data, size_t len)
{
	uint32_t crc = crc32c_update(0, data, len);

	return (crc >> 15 | crc << 17) + 0xa282ead8;
}

bool tfrecord_is_head(const unsigned char *head)
{
	return get_le32(head + 8) == tfrecord_crc(head, 8);
}

uint64_t tfrecord_size(const unsigned char *head)
{
	return get_le64(head);
}

bool tfrecord_is_content(const unsigned char *content, uint64_t size)
{
	return get_le32(content + size) == tfrecord_crc(content, size);
}

static int wrong_head(const struct shard_reader *shard, uint64_t at, const unsigned char *head,
	struct penstock_error *err)
{
	if (at == 0 && head[0] == 0x1f && head[1] == 0x8b)
		return shard_error(err, PENSTOCK_E_UNSUPPORTED, shard->name, at,
			"it is compressed with gzip, so that no record can be read alone; decompress "
			"the file first");
	if (at == 0 && head[0] == 0x78 && (head[0] << 8 | head[1]) % 31 == 0)
		return shard_error(err, PENSTOCK_E_UNSUPPORTED, shard->name, at,
			"it is compressed with zlib, so that no record can be read alone; decompress "
			"the file first");
	return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, at,
		"the length of a record has a wrong checksum");
}

static int scan(const struct format *f, const struct shard_reader *shard, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	_cleanup_(window_release) struct window w = {.shard = shard};
	struct format_sample s = {0};
	int r = 0;

	(void)f;
	while (r == 0 && s.offset < shard->size) {
		const unsigned char *head;
		uint64_t len, space;

		r = window_get(&w, s.offset, TFRECORD_HEAD, &head, err);
		if (r < 0)
			return r;
		if (!tfrecord_is_head(head))
			return wrong_head(shard, s.offset, head, err);
		len = tfrecord_size(head);
		space = shard->size - s.offset - TFRECORD_HEAD;
		if (space < TFRECORD_TAIL || len > space - TFRECORD_TAIL)
			return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, s.offset,
				"the file ends within a record of %" PRIu64 " bytes", len);
		s.size = TFRECORD_HEAD + len + TFRECORD_TAIL;
		r = sample(cookie, &s, err);
		s.offset += s.size;
	}
	return r;
}

/* Verifies a record and returns its content. */
static int content(const struct format_piece *piece, const unsigned char **data, size_t *len,
	struct penstock_error *err)
{
	const unsigned char *p = piece->data;

	if (piece->size < TFRECORD_HEAD + TFRECORD_TAIL || !tfrecord_is_head(p) ||
		tfrecord_size(p) != piece->size - TFRECORD_HEAD - TFRECORD_TAIL)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"the length in the record is damaged, or differs from the expected length");
	*data = p + TFRECORD_HEAD;
	*len = piece->size - TFRECORD_HEAD - TFRECORD_TAIL;
	if (!tfrecord_is_content(*data, *len))
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"a record has a wrong checksum");
	return 0;
}

static int split(const struct format *f, const struct format_piece *piece,
	struct format_fields *out, struct penstock_error *err)
{
	const unsigned char *data = NULL;
	size_t len = 0;
	int r = content(piece, &data, &len, err);

	fields_begin(out);
	if (r < 0)
		return r;
	if (f == &format_tfrecord_raw) {
		struct format_field field = {
			.name = "data", .name_len = 4, .data = data, .size = len};

		return fields_add(out, piece, &field, err);
	}
	r = example_split(piece, data, len, out, err);
	return r < 0 ? r : fields_end(out, piece, err);
}

const struct format format_tfrecord = {.name = "tfrecord", .scan = scan, .split = split};
const struct format format_tfrecord_raw = {.name = "tfrecord-raw", .scan = scan, .split = split};
