/* Reading and writing valid and invalid commits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "checkpoint/commit.h"

static struct commit *example(void)
{
	struct commit *c = commit_new();

	assert_non_null(c);
	c->step = 1000;
	c->attempt = 2;
	c->world_size = 4;
	c->time_ns = INT64_C(1795251900123000000);
	c->run = strdup("cifar10");
	assert_int_equal(commit_set_metric(c, "loss", 0.25), 0);
	assert_int_equal(commit_set_metric(c, "accuracy \"top 1\"", 0.9), 0);
	assert_int_equal(commit_add_file(c, "optimizer/é.bin", 0, 0), 0);
	assert_int_equal(commit_add_file(c, "model.bin", UINT64_C(5) << 40, UINT64_MAX), 0);
	assert_int_equal(commit_sort_files(c, NULL), 0);
	return c;
}

static void format(const struct commit *c, struct buf *text)
{
	assert_int_equal(commit_format(c, text, NULL), 0);
}

/* A commit that was written can be read back. */
static void test_reads_what_it_wrote(void **state)
{
	_cleanup_(commit_freep) struct commit *c = example(), *again = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);

	(void)state;
	format(c, &text);

	assert_int_equal(commit_parse(&again, text.data, text.len, "x", NULL), 0);

	assert_int_equal(again->step, 1000);
	assert_int_equal(again->attempt, 2);
	assert_int_equal(again->world_size, 4);
	assert_int_equal(again->time_ns, c->time_ns);
	assert_string_equal(again->run, "cifar10");
	assert_true(commit_find_metric(again, "accuracy \"top 1\"")->value == 0.9);
	assert_null(commit_find_metric(again, "top 1"));
	assert_int_equal(again->n_files, 2);
	assert_string_equal(again->files[0].name, "model.bin");
	assert_true(again->files[0].size == UINT64_C(5) << 40 && again->files[0].crc == UINT64_MAX);
	assert_non_null(commit_find_file(again, "optimizer/é.bin"));
}

/* A commit that is truncated at any byte is invalid. */
static void test_a_cut_document_is_none(void **state)
{
	_cleanup_(commit_freep) struct commit *c = example();
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);

	(void)state;
	format(c, &text);

	for (size_t len = 0; len + 2 < text.len; len++) {
		_cleanup_(commit_freep) struct commit *cut = NULL;

		assert_int_equal(
			commit_parse(&cut, text.data, len, "x", NULL), -(int)PENSTOCK_E_CORRUPT);
	}
}

/* With any flipped bit, the commit is invalid or has the same content. */
static void test_a_flipped_bit_is_noticed(void **state)
{
	_cleanup_(commit_freep) struct commit *c = example();
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	unsigned refused = 0;

	(void)state;
	format(c, &text);

	for (size_t bit = 0; bit < 8 * text.len; bit++) {
		_cleanup_(commit_freep) struct commit *flipped = NULL;
		_cleanup_(buf_release) struct buf again = BUF_INIT(LIMIT_COMMIT);

		text.data[bit / 8] ^= (char)(1 << bit % 8);
		if (commit_parse(&flipped, text.data, text.len, "x", NULL) < 0) {
			refused++;
			text.data[bit / 8] ^= (char)(1 << bit % 8);
			continue;
		}
		text.data[bit / 8] ^= (char)(1 << bit % 8);
		format(flipped, &again);
		assert_string_equal(again.data, text.data);
	}
	assert_true(refused > 7 * text.len);
}

static void test_names_that_leave_the_checkpoint_are_refused(void **state)
{
	static const char *const bad[] = {"", "/a", "a/", "a//b", ".", "..", "a/../b", "../a",
		"COMMIT.json", ".penstock-rank-1.json", "a/.penstock-x", "a\nb"};
	static const char *const good[] = {"a", "a/b", ".a", "..a", "a..", "x.COMMIT.json", "é"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(commit_name_is_good(bad[i]));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(commit_name_is_good(good[i]));
}

/* Documents that another program may have written, and some that are not commits. */
static void test_what_is_a_commit(void **state)
{
	static const struct {
		const char *text;
		int code;
	} table[] = {
#define HEAD                                                                                       \
	"{\"format\":\"penstock.checkpoint/"                                                       \
	"1\",\"step\":1,\"attempt\":1,\"time\":\"2026-11-21T09:05:00Z\",\"world_size\":1"
#define CRC "\"crc64nvme\":\"0123456789abcdef\""
		{HEAD ",\"files\":[{\"path\":\"a\",\"size\":1," CRC "}]}", 0},
		{HEAD ",\"files\":[],\"more\":[1]}", 0},
		{HEAD ",\"files\":[],\"crc64nvme\":\"0123456789abcdef\"}", PENSTOCK_E_CORRUPT},
		{HEAD "}", PENSTOCK_E_CORRUPT},
		{HEAD ",\"files\":[{\"path\":\"../a\",\"size\":1," CRC "}]}", PENSTOCK_E_CORRUPT},
		{HEAD ",\"files\":[{\"path\":\"a\",\"size\":-1," CRC "}]}", PENSTOCK_E_CORRUPT},
		{HEAD ",\"files\":[{\"path\":\"a\",\"size\":1}]}", PENSTOCK_E_CORRUPT},
		{HEAD ",\"files\":[{\"path\":\"a\",\"size\":1," CRC
		      "},{\"path\":\"a\",\"size\":1," CRC "}]}",
			PENSTOCK_E_CORRUPT},
		{HEAD ",\"files\":[],\"metrics\":{\"a\":\"b\"}}", PENSTOCK_E_CORRUPT},
		{"{\"format\":\"penstock.checkpoint/2\"}", PENSTOCK_E_UNSUPPORTED},
		{"{\"format\":\"other\"}", PENSTOCK_E_CORRUPT},
		{"[]", PENSTOCK_E_CORRUPT},
		{"", PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(commit_freep) struct commit *c = NULL;

		assert_int_equal(commit_parse(&c, table[i].text, strlen(table[i].text), "x", NULL),
			-table[i].code);
	}
}

/* A later attempt may have resumed from an earlier step than the previous attempt's last one. */
static void test_the_newest_is_of_the_last_attempt(void **state)
{
	struct commit a = {.attempt = 1, .step = 30, .time_ns = 9};
	struct commit b = {.attempt = 2, .step = 20, .time_ns = 1};
	struct commit c = {.attempt = 2, .step = 21, .time_ns = 0};

	(void)state;
	assert_true(commit_compare(&a, &b) < 0 && commit_compare(&b, &c) < 0);
	assert_true(commit_compare(&c, &a) > 0 && commit_compare(&a, &a) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_what_it_wrote),
		cmocka_unit_test(test_a_cut_document_is_none),
		cmocka_unit_test(test_a_flipped_bit_is_noticed),
		cmocka_unit_test(test_names_that_leave_the_checkpoint_are_refused),
		cmocka_unit_test(test_what_is_a_commit),
		cmocka_unit_test(test_the_newest_is_of_the_last_attempt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
