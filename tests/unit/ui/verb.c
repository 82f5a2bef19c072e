/* A verb that this program runs for a request: its output, its message, its exit. */
#include "page_fixture.h"

#include "base/clock.h"
#include "base/error.h"
#include "ui/verb.h"

static atomic_int cancel;

static int run(const char *last, int timeout_ms, struct verb_result *result)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(0, verb_add(&words, "show", "--json", last, NULL));
	return verb_run(&words, timeout_ms, &cancel, result, &err);
}

static void the_output_and_the_last_line_of_stderr_are_kept(void **state)
{
	struct verb_result result = VERB_RESULT_INIT;

	(void)state;
	assert_int_equal(0, run("a b\n", 0, &result));
	assert_int_equal(0, result.code);
	assert_string_equal("[\"show\",\"--json\",\"a b\\n\"]\n", buf_str(&result.out));
	verb_result_release(&result);

	result = (struct verb_result)VERB_RESULT_INIT;
	assert_int_equal(0, run("missing", 0, &result));
	assert_int_equal(66, result.code);
	assert_string_equal("cannot find the run 'missing'", buf_str(&result.message));
	verb_result_release(&result);

	result = (struct verb_result)VERB_RESULT_INIT;
	assert_int_equal(0, run("killed", 0, &result));
	assert_int_equal(128 + SIGKILL, result.code);
	assert_non_null(strstr(buf_str(&result.message), "signal 9"));
	verb_result_release(&result);
}

static void a_verb_ends_with_its_time_or_its_request(void **state)
{
	struct verb_result result = VERB_RESULT_INIT;
	int64_t begin = clock_monotonic_ms();

	(void)state;
	assert_true(run("endless", 50, &result) < 0 || result.code);
	atomic_store(&cancel, 1);
	assert_true(run("endless", 0, &result) < 0 || result.code);
	atomic_store(&cancel, 0);
	assert_true(clock_monotonic_ms() - begin < 60000);
	verb_result_release(&result);
}

static void contents_are_passed_on(void **state)
{
	_cleanup_(strlist_release) struct strlist words = {0}, endless = {0};
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_STRING);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct verb *verb = NULL;
	char data[100];
	size_t len = 0;
	ssize_t n;

	(void)state;
	assert_int_equal(0, verb_add(&words, "cat", "s3://b/half", NULL));
	assert_int_equal(0, verb_open(&verb, &words, &cancel, &err));
	while ((n = verb_read(verb, data + len, sizeof(data) - len)) > 0)
		len += (size_t)n;
	assert_int_equal(0, n);
	assert_int_equal(69, verb_wait(verb, &message));
	assert_int_equal(strlen("the first half"), len);
	assert_memory_equal("the first half", data, len);
	verb_close(verb);

	/* If the browser closes its connection, the verb is stopped. */
	assert_int_equal(0, verb_add(&endless, "cat", "endless", NULL));
	assert_int_equal(0, verb_open(&verb, &endless, &cancel, &err));
	verb_close(verb);
	verb_close(NULL);
}

static void a_store_becomes_its_option(void **state)
{
	static const char *const given[][2] = {{NULL, NULL}, {"", NULL}, {"default", NULL},
		{"embedded", "--endpoint-url=embedded"}, {"prod", "--profile=prod"},
		{"--all", "--profile=--all"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		_cleanup_(strlist_release) struct strlist words = {0};

		assert_int_equal(0, verb_add_store(&words, given[i][0]));
		assert_int_equal(given[i][1] != NULL, words.n);
		if (words.n)
			assert_string_equal(given[i][1], words.items[0]);
	}
	assert_true(verb_is_object("s3://bucket/key"));
	assert_true(verb_is_object("gs://bucket"));
	assert_false(verb_is_object("/etc/passwd"));
	assert_false(verb_is_object("--recursive"));
	assert_false(verb_is_object(NULL));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_output_and_the_last_line_of_stderr_are_kept),
		cmocka_unit_test(a_verb_ends_with_its_time_or_its_request),
		cmocka_unit_test(contents_are_passed_on),
		cmocka_unit_test(a_store_becomes_its_option),
	};

	if (argc > 1)
		return play_verb(argc - 1, argv + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
