/* Formats of metrics, read at once and in pieces. tests/system/cli reads event files of other
 * programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <endian.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "dataset/format/tfrecord.h"
#include "metrics/metrics.h"

struct result {
	struct metrics metrics;
	char problem[160];
};

/* Reads a file in pieces of `piece` bytes. */
static void read_as(
	struct result *out, const char *path, const char *data, size_t len, size_t piece)
{
	struct metrics_feed feed;

	*out = (struct result){0};
	assert_int_equal(metrics_feed_init(&feed, &out->metrics, path, NULL), 0);
	assert_non_null(feed.format);
	for (size_t at = 0; at < len; at += piece)
		assert_int_equal(metrics_feed_add(&feed, data + at,
					 len - at < piece ? len - at : piece, NULL),
			0);
	assert_int_equal(metrics_feed_end(&feed, NULL), 0);
	snprintf(out->problem, sizeof(out->problem), "%s", feed.problem);
	metrics_feed_release(&feed);
}

static void read_text(struct result *out, const char *path, const char *text)
{
	read_as(out, path, text, strlen(text), 7);
}

/* Asserts that the error is in the line that begins with `line`. */
static void assert_problem(const struct result *r, const char *text, const char *line)
{
	char at[32];

	snprintf(at, sizeof(at), "byte %td: ", strstr(text, line) - text);
	assert_memory_equal(r->problem, at, strlen(at));
}

static const struct metrics_point *point(const struct result *r, const char *name, size_t i)
{
	const struct metrics_series *s = metrics_find(&r->metrics, name);

	assert_non_null(s);
	assert_in_range(i, 0, s->n - 1);
	return &s->points[i];
}

static bool has_format(const char *path)
{
	struct metrics metrics = {0};
	struct metrics_feed feed;
	bool has;

	assert_int_equal(metrics_feed_init(&feed, &metrics, path, NULL), 0);
	has = feed.format != NULL;
	metrics_feed_release(&feed);
	return has;
}

static void test_files_are_recognized_by_their_path(void **state)
{
	static const char *const with[] = {"events.out.tfevents.1.h",
		"a/b/events.out.tfevents.1.h.v2", "metrics.jsonl", "x/metrics-train.jsonl",
		"log.jsonl", "train_history.jsonl", "v/metrics.csv", "usage/1.usage",
		"mlruns/0/abc/metrics/loss", "x/mlruns/0/abc/metrics/a/b",
		"ckpt/step-1/COMMIT.json", "m.pt.COMMIT.json", "d/mlflow.db"};
	static const char *const without[] = {"data.jsonl", "model.pt", "metrics", "x.csv",
		"mlruns/0/abc/params/lr", "mlruns/0/metrics", "mlruns/0/abc/metrics/", ""};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(with); i++)
		assert_true(has_format(with[i]));
	for (size_t i = 0; i < ARRAY_SIZE(without); i++)
		assert_false(has_format(without[i]));
}

static void test_lines(void **state)
{
	static const char text[] =
		"{\"step\": 1, \"loss\": 0.5, \"time\": 1700000000.5, \"note\": \"NaN is \\\" not\", \"opt\": {\"lr\": 1e-3}}\n"
		"{\"step\": 2, \"loss\": NaN, \"timestamp\": 1700000001000}\r\n"
		"{\"step\": 3, \"loss\": -Infinity, \"time\": \"2026-01-02T03:04:05Z\", \"ok\": true}\n"
		"{\"epoch\": 4, \"acc\": 7}\n"
		"{\"loss\": 9}\n"
		"[1]\n"
		"{\"step\": 5, \"loss\": 0.25}";
	struct result r;

	(void)state;
	read_text(&r, "d/metrics.jsonl", text);
	assert_int_equal(point(&r, "d/loss", 0)->step, 1);
	assert_int_equal(point(&r, "d/loss", 0)->time_ms, 1700000000500);
	assert_true(isnan(point(&r, "d/loss", 1)->value));
	assert_int_equal(point(&r, "d/loss", 1)->time_ms, 1700000001000);
	assert_true(isinf(point(&r, "d/loss", 2)->value));
	assert_int_equal(point(&r, "d/loss", 2)->time_ms, 1767323045000);
	assert_int_equal(point(&r, "d/loss", 3)->step, 5);
	assert_int_equal(metrics_find(&r.metrics, "d/loss")->n, 4);
	assert_int_equal(point(&r, "d/acc", 0)->step, 3); /* the step, not the epoch */
	assert_true(point(&r, "d/opt/lr", 0)->value == 1e-3);
	assert_null(metrics_find(&r.metrics, "d/ok"));
	assert_problem(&r, text, "[1]");
	metrics_release(&r.metrics);
}

static void test_tables(void **state)
{
	struct result r;

	(void)state;
	read_text(&r, "usage/1.usage",
		"time_ms,name,cpu,memory\n"
		"1700000000000,\"a \"\"b\"\", c\",1.5,100\n"
		"1700000001000,train,2.5,\n"
		"1700000002000,train\n");
	assert_true(point(&r, "usage/a \"b\", c/cpu", 0)->value == 1.5);
	assert_int_equal(point(&r, "usage/a \"b\", c/cpu", 0)->step, METRICS_NO_STEP);
	assert_int_equal(point(&r, "usage/train/cpu", 0)->time_ms, 1700000001000);
	assert_null(metrics_find(&r.metrics, "usage/train/memory"));
	assert_non_null(strstr(r.problem, "2 of 4 fields"));
	metrics_release(&r.metrics);
	read_text(
		&r, "metrics.csv", "epoch,step,train_loss,val_loss\r\n0,10,0.5,\r\n0,20,,nan\r\n");
	assert_int_equal(point(&r, "train_loss", 0)->step, 10);
	assert_true(isnan(point(&r, "val_loss", 0)->value));
	assert_int_equal(metrics_find(&r.metrics, "epoch")->n, 2);
	assert_string_equal(r.problem, "");
	metrics_release(&r.metrics);
}

static void test_mlflow(void **state)
{
	static const char text[] = "1700000000000 0.5 1\n1700000001000 inf 2\nx\n";
	struct result r;

	(void)state;
	read_text(&r, "mlruns/0/abc/metrics/val/acc", text);
	assert_int_equal(point(&r, "mlruns/0/abc/val/acc", 0)->time_ms, 1700000000000);
	assert_true(isinf(point(&r, "mlruns/0/abc/val/acc", 1)->value));
	assert_problem(&r, text, "x\n");
	metrics_release(&r.metrics);
}

/* Appends a record of an event file. */
static void add_record(struct buf *out, const void *data, size_t len)
{
	uint64_t size = htole64(len);
	uint32_t crc = htole32(tfrecord_crc(&size, 8));

	buf_add(out, &size, 8);
	buf_add(out, &crc, 4);
	buf_add(out, data, len);
	crc = htole32(tfrecord_crc(data, len));
	buf_add(out, &crc, 4);
}

/* wall_time 1700000000.0, step 300, and a value of tag "loss": 0.25. */
#define EVENT                                                                                      \
	"\x09\x00\x00\x00\x40\xfc\x54\xd9\x41\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x80\x3e"

static void test_events(void **state)
{
	static const char event[] = EVENT;
	_cleanup_(buf_release) struct buf file = BUF_INIT(8 * MIB);
	_cleanup_free_ char *large = calloc(1, 2 * MIB);
	size_t bad;
	struct result r;

	(void)state;
	assert_non_null(large);
	add_record(&file, event, sizeof(event) - 1);
	add_record(&file, large, 2 * MIB); /* skipped without reading its content */
	bad = file.len;
	add_record(&file, event, sizeof(event) - 1);
	file.data[bad + TFRECORD_HEAD + 3] ^= 1;
	add_record(&file, event, sizeof(event) - 1);
	for (size_t piece = 1; piece <= 4 * MIB; piece *= 1999) {
		read_as(&r, "logs/events.out.tfevents.1.node", file.data, file.len, piece);
		assert_int_equal(metrics_find(&r.metrics, "logs/loss")->n, 2);
		assert_int_equal(point(&r, "logs/loss", 0)->step, 300);
		assert_int_equal(point(&r, "logs/loss", 0)->time_ms, 1700000000000);
		assert_true(point(&r, "logs/loss", 0)->value == 0.25);
		assert_non_null(strstr(r.problem, "wrong checksum"));
		metrics_release(&r.metrics);
	}
	/* A file that another machine is still writing may end at any byte. */
	for (size_t len = 0; len < sizeof(event) - 1 + TFRECORD_HEAD + TFRECORD_TAIL; len++) {
		read_as(&r, "events.out.tfevents.1", file.data, len, len + 1);
		assert_int_equal(r.metrics.n, 0);
		assert_true(len == 0 || strstr(r.problem, "ends within a record"));
		metrics_release(&r.metrics);
	}
}

static void test_a_scalar_may_be_a_tensor(void **state)
{
	/* A tensor of type double, without dimensions, with one packed value: 2.0. */
	static const unsigned char packed[] = {0x10, 0x01, 0x2a, 0x15, 0x0a, 0x13, 0x0a, 0x01, 't',
		0x42, 0x0e, 0x08, 0x02, 0x12, 0x00, 0x32, 0x08, 0, 0, 0, 0, 0, 0, 0, 0x40};
	_cleanup_(buf_release) struct buf file = BUF_INIT(MIB);
	struct result r;

	(void)state;
	add_record(&file, packed, sizeof(packed));
	read_as(&r, "events.out.tfevents.1", file.data, file.len, 10);
	assert_string_equal(r.problem, "");
	assert_true(point(&r, "t", 0)->value == 2);
	metrics_release(&r.metrics);
}

/* A row of a header creates a series for each column, and a line of JSON one for each member. */
static void test_hostile_lines(void **state)
{
	static char text[300000];
	static const char nul[] = "{\"step\": 1, \"a\": 1}\n{\"st";
	static const char *const paths[] = {"metrics.jsonl", "metrics.csv", "mlruns/0/a/metrics/b"};
	struct result r;
	size_t len;

	(void)state;
	/* A line with a NUL has more bytes than its text. */
	memset(text, 'x', sizeof(text));
	memcpy(text, nul, sizeof(nul));
	text[sizeof(text) - 2] = '\r';
	text[sizeof(text) - 1] = '\n';
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		read_as(&r, paths[i], text, sizeof(text), sizeof(text));
		assert_int_equal(r.metrics.n, i == 0);
		metrics_release(&r.metrics);
	}
	/* A long run name is not copied for each series. */
	len = (size_t)snprintf(text, sizeof(text), "name,a,b\n%0100000d,1,2\n", 0);
	read_as(&r, "metrics.csv", text, len, 1000);
	for (size_t i = 0; i < r.metrics.n; i++)
		assert_true(strlen(r.metrics.series[i].name) <= LIMIT_METRICS_NAME);
	assert_int_equal(r.metrics.n, 1);
	metrics_release(&r.metrics);
	/* Control characters are removed from the names of series, which terminals show. */
	read_text(&r, "metrics.csv", "step,\033[2Ja\xc2\x9b\n1,2\n");
	assert_string_equal(r.metrics.series[0].name, "?[2Ja?");
	metrics_release(&r.metrics);
	/* Times that do not fit into 64-bit nanoseconds. */
	read_text(&r, "metrics.jsonl",
		"{\"step\": 1, \"time\": 4e18, \"a\": 1e400}\n"
		"{\"step\": 2, \"time_ms\": 9e12, \"a\": 5e-324}\n");
	assert_int_equal(point(&r, "a", 0)->step, 2);
	assert_int_equal(point(&r, "a", 0)->time_ms, 9000000000000);
	metrics_release(&r.metrics);
	read_text(&r, "mlruns/0/a/metrics/b", "9223372036854775807 0.5 1\n");
	assert_non_null(strstr(r.problem, "MLflow"));
	metrics_release(&r.metrics);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_are_recognized_by_their_path),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_mlflow),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_a_scalar_may_be_a_tensor),
		cmocka_unit_test(test_hostile_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
