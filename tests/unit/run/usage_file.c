/* The usage of an attempt: intervals, and the lines of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/limits.h"
#include "run/report/usage_file.h"

static void test_samples_get_rarer_with_the_age(void **state)
{
	struct usage_file file = {0};
	const int64_t begin = 5000000, week = (int64_t)7 * 24 * 3600 * 1000;
	int64_t now = begin;
	size_t n = 0;

	(void)state;
	assert_int_equal(usage_file_interval_ms(&file, begin), 1000);
	assert_int_equal(usage_file_interval_ms(&file, begin + 600000), 1000);
	assert_int_equal(usage_file_interval_ms(&file, begin + 6000000), 10000);
	for (; now < begin + week; n++)
		now += usage_file_interval_ms(&file, now);
	assert_in_range(n, 3000, 6000);
}

static void test_samples_take_at_most_their_share(void **state)
{
	struct usage_file file = {0};
	const int64_t begin = 5000000;
	int64_t now = begin + usage_file_interval_ms(&file, begin);

	(void)state;
	/* A hundred steps whose samples take 1 ms each. */
	for (int i = 0; i < 100; i++)
		file.spent_ns += NS_PER_MS;
	assert_int_equal(now + usage_file_interval_ms(&file, now), begin + 50000);
	assert_int_equal(usage_file_interval_ms(&file, begin + 50000), 1000);
	assert_true(usage_file_clock_ns() > 0);
}

static void test_lines_are_a_table(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	char folder[] = "/tmp/penstock-usage-XXXXXX", log[64], path[64];
	struct usage_file file = {0};

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(log, sizeof(log), "%s/1", folder);
	snprintf(path, sizeof(path), "%s/1.usage", folder);
	usage_file_add(&file, log,
		&(struct usage_sample){
			.time_ms = 1, .name = "a, \"b\"\n", .cpu = 1.5, .memory = 7});
	usage_file_close(&file);
	file = (struct usage_file){0}; /* another process continues the attempt */
	usage_file_add(&file, log,
		&(struct usage_sample){
			.time_ms = 2, .name = "c", .has_gpus = true, .gpu = 0.5, .gpu_memory = 9});
	usage_file_close(&file);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "time_ms,name,cpu,memory,received,sent,gpu,gpu_memory\n"
					    "1,\"a, \"\"b\"\" \",1.500,7,0,0,,\n"
					    "2,\"c\",0.000,0,0,0,0.50,9\n");
	unlink(path);
	rmdir(folder);
	/* If the directory is missing, no file is written. */
	file = (struct usage_file){0};
	usage_file_add(&file, log, &(struct usage_sample){.time_ms = 3, .name = "d"});
	usage_file_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_samples_get_rarer_with_the_age),
		cmocka_unit_test(test_samples_take_at_most_their_share),
		cmocka_unit_test(test_lines_are_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
