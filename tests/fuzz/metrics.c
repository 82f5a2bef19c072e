/* Files of metrics. The first byte selects the format, and the size of the pieces in which the file
 * is read; the size makes no difference. The target first corrects the checksums of event files. */
#include <endian.h>

#include "dataset/format/tfrecord.h"
#include "fuzz.h"
#include "metrics/metrics.h"

static const char *const paths[] = {"logs/events.out.tfevents.1.node", "metrics.jsonl",
	"metrics.csv", "mlruns/0/r/metrics/m", "ckpt/COMMIT.json", "d/mlflow.db"};

static void put_crcs(char *data, size_t size)
{
	size_t at = 0;

	while (size - at >= TFRECORD_HEAD + TFRECORD_TAIL) {
		uint32_t crc = htole32(tfrecord_crc(data + at, 8));
		uint64_t len;

		memcpy(data + at + 8, &crc, 4);
		memcpy(&len, data + at, 8);
		len = le64toh(len);
		if (len > size - at - TFRECORD_HEAD - TFRECORD_TAIL)
			return;
		crc = htole32(tfrecord_crc(data + at + TFRECORD_HEAD, (size_t)len));
		memcpy(data + at + TFRECORD_HEAD + len, &crc, 4);
		at += TFRECORD_HEAD + TFRECORD_TAIL + (size_t)len;
	}
}

static void read_as(struct metrics *out, const char *path, const char *data, size_t len,
	size_t piece, char problem[static 160])
{
	struct metrics_feed feed;

	*out = (struct metrics){0};
	require(metrics_feed_init(&feed, out, path, NULL) == 0 && feed.format);
	for (size_t at = 0; at < len; at += piece)
		require(metrics_feed_add(
				&feed, data + at, len - at < piece ? len - at : piece, NULL) == 0);
	require(metrics_feed_end(&feed, NULL) == 0);
	require(strlen(feed.problem) < sizeof(feed.problem) && !strchr(feed.problem, '\n'));
	memcpy(problem, feed.problem, sizeof(feed.problem));
	metrics_feed_release(&feed);
}

static void require_equal(const struct metrics *a, const struct metrics *b)
{
	require(a->n == b->n && a->dropped == b->dropped);
	for (size_t i = 0; i < a->n; i++) {
		const struct metrics_series *s = &a->series[i];

		require(str_is_utf8(s->name, strlen(s->name)) && s->n);
		require(i == 0 || strcmp(a->series[i - 1].name, s->name) < 0);
		require(strcmp(s->name, b->series[i].name) == 0 && s->n == b->series[i].n);
		require(memcmp(s->points, b->series[i].points, s->n * sizeof(s->points[0])) == 0);
		for (size_t k = 1; k < s->n; k++)
			require(s->points[k].step == METRICS_NO_STEP ||
				s->points[k - 1].step <= s->points[k].step);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct metrics whole, pieces;
	char problem[160], other[160];
	_cleanup_free_ char *copy = NULL;
	const char *path;

	if (size < 1)
		return 0;
	path = paths[data[0] % (sizeof(paths) / sizeof(paths[0]))];
	copy = fuzz_bytes(data + 1, size - 1);
	if (path == paths[0])
		put_crcs(copy, size - 1);
	read_as(&whole, path, copy, size - 1, SIZE_MAX / 2, problem);
	read_as(&pieces, path, copy, size - 1, 1 + data[0] / 8, other);
	require_equal(&whole, &pieces);
	require(strcmp(problem, other) == 0);
	metrics_release(&whole);
	metrics_release(&pieces);
	return 0;
}
