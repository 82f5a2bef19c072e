/* TFRecord files, and tf.train.Example. If the first byte is odd, the rest is one Example, else a
 * file of records. The target first corrects the checksums, because few inputs have valid ones. */
#include <endian.h>

#include "dataset.h"
#include "dataset/format/tfrecord.h"
#include "s3/sum/checksum.h"

static void put_crc(char *at, const void *data, size_t len)
{
	uint32_t crc = crc32c_update(0, data, len);

	crc = htole32((crc >> 15 | crc << 17) + 0xa282ead8);
	memcpy(at, &crc, 4);
}

/* Corrects the checksums of all records whose length fits. */
static void put_crcs(char *data, size_t size)
{
	size_t at = 0;
	uint64_t len;

	while (size - at >= 16) {
		memcpy(&len, data + at, 8);
		put_crc(data + at + 8, data + at, 8);
		len = le64toh(len);
		if (len > size - at - 16)
			return;
		put_crc(data + at + 12 + len, data + at + 12, (size_t)len);
		at += 16 + (size_t)len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *copy = NULL;
	struct fuzz_scan scan;
	uint64_t len;
	int r;

	if (size < 1)
		return 0;
	if (data[0] & 1) {
		copy = calloc(1, size + 16);
		require(copy);
		len = htole64(size - 1);
		memcpy(copy, &len, 8);
		memcpy(copy + 12, data + 1, size - 1);
		put_crcs(copy, size + 15);
		r = fuzz_format(&format_tfrecord, (uint8_t *)copy, size + 15, &scan);
		require(r == 0 && scan.n == 1);
		return 0;
	}
	copy = fuzz_bytes(data + 1, size - 1);
	put_crcs(copy, size - 1);
	fuzz_format(&format_tfrecord, (uint8_t *)copy, size - 1, &scan);
	if (fuzz_format(&format_tfrecord_raw, (uint8_t *)copy, size - 1, &scan) == 0)
		require(scan.split == scan.n || scan.n > 64);
	return 0;
}
