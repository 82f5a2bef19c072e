/* Options, words and the help text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdio.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cli/frame/options.h"
#include "cli/frame/words.h"

static const struct command verb = {.name = "verb",
	.summary = "do it",
	.operands = "FILE [MORE]",
	.min_operands = 1,
	.max_operands = 2,
	.description = "Does it.",
	.options = OPTIONS({'a', "all", NULL, "Everything"}, {'n', "number", "N", "How many"},
		{0, "time", "TIME", "How long"}),
	.examples = EXAMPLES({"penstock verb x", "Do it"}),
	.exits = EXITS({"66", "No such file"})};
static const struct command runner = {.name = "runner",
	.operands = "RUN COMMAND...",
	.max_operands = UINT32_MAX,
	.own_operands = 1,
	.options = OPTIONS({0, "rank", "N", "Task"})};
static const struct command taker = {.name = "taker",
	.max_operands = UINT32_MAX,
	.variables = true,
	.options = OPTIONS({'s', "set", "P", "Set"})};

#define PARSE(cli, ...)                                                                            \
	parse(cli, (const char *const[]){"penstock", __VA_ARGS__},                                 \
		sizeof((const char *const[]){"penstock", __VA_ARGS__}) / sizeof(char *))

/* The messages of the parser, which are captured during one call. */
static char said[1024];

static int parse(struct cli *cli, const char *const *words, size_t n)
{
	char *argv[16] = {NULL};
	FILE *to = fmemopen(said, sizeof(said), "w");
	int code;

	for (size_t i = 0; i < n; i++)
		argv[i] = (char *)(uintptr_t)words[i];
	memset(said, 0, sizeof(said));
	log_set_stream(to);
	code = cli_parse(cli, (int)n, argv);
	log_set_stream(NULL);
	fclose(to);
	return code;
}

static void test_options_and_operands_in_any_order(void **state)
{
	_cleanup_(cli_release) struct cli cli = {.command = &verb};
	int64_t number;

	(void)state;
	assert_int_equal(PARSE(&cli, "one", "-an3", "--number=4", "--", "-n"), 0);
	assert_true(cli_has(&cli, "all"));
	assert_int_equal(cli_values(&cli, "number")->n, 2);
	assert_true(cli_number(&cli, "number", 1, 9, 0, &number));
	assert_int_equal(number, 4);
	assert_false(cli_has(&cli, "time"));
	assert_null(cli_value(&cli, "time"));
	assert_int_equal(cli_n_operands(&cli), 2);
	assert_string_equal(cli_operand(&cli, 1), "-n");
	assert_null(cli_operand(&cli, 2));
}

static void test_mistakes_name_the_word(void **state)
{
	static const struct {
		const char *words[4];
		const char *says;
	} cases[] = {{{NULL}, "FILE"}, {{"a", "b", "c"}, "'c'"},
		{{"a", "--nubmer", "3"}, "--number"}, {{"a", "-x"}, "-x"},
		{{"a", "--all=yes"}, "--all"}, {{"a", "-n"}, "--number"},
		{{"a", "--log-level", "loud"}, "loud"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_(cli_release) struct cli cli = {.command = &verb};
		const char *words[5] = {"penstock"};
		size_t n = 1;

		for (; n < 5 && cases[i].words[n - 1]; n++)
			words[n] = cases[i].words[n - 1];
		assert_int_equal(parse(&cli, words, n), CLI_EXIT_USAGE);
		assert_non_null(strstr(said, cases[i].says));
	}
}

static void test_words_after_the_command_belong_to_it(void **state)
{
	_cleanup_(cli_release) struct cli cli = {.command = &runner};

	(void)state;
	assert_int_equal(PARSE(&cli, "run", "--rank", "1", "ls", "-l", "--rank"), 0);
	assert_string_equal(cli_value(&cli, "rank"), "1");
	assert_int_equal(cli_n_operands(&cli), 4);
	assert_string_equal(cli_operand(&cli, 3), "--rank");
}

static void test_unknown_options_are_variables_of_the_workflow(void **state)
{
	_cleanup_(cli_release) struct cli cli = {.command = &taker};

	(void)state;
	assert_int_equal(PARSE(&cli, "wf", "--epochs", "3", "--lr=0.1", "-s", "a=b"), 0);
	assert_int_equal(cli_variables(&cli)->n, 2);
	assert_string_equal(cli_variables(&cli)->items[0], "epochs=3");
	assert_string_equal(cli_variables(&cli)->items[1], "lr=0.1");
	assert_int_equal(cli_n_operands(&cli), 1);
}

/* The mistyped option takes the operand as its value; the message must name the option. */
static void test_a_mistyped_option_is_reported_before_a_missing_operand(void **state)
{
	struct command command = taker;
	_cleanup_(cli_release) struct cli mistyped = {.command = &command};
	_cleanup_(cli_release) struct cli missing = {.command = &command};

	(void)state;
	command.min_operands = 1;
	command.operands = "WORKFLOW";
	assert_int_equal(PARSE(&mistyped, "--quite", "wf"), CLI_EXIT_USAGE);
	assert_non_null(strstr(said, "--quite"));
	assert_non_null(strstr(said, "--quiet"));
	assert_int_equal(PARSE(&missing, "--epochs", "3"), CLI_EXIT_USAGE);
	assert_non_null(strstr(said, "WORKFLOW"));
}

static void test_durations_have_units(void **state)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1 if invalid */
	} cases[] = {{"0", 0}, {"30", 30000}, {"1.5s", 1500}, {"500ms", 500}, {"5m", 300000},
		{"2h", 7200000}, {"1d", 86400000}, {"", -1}, {"s", -1}, {"-1s", -1}, {"1 s", -1},
		{"1w", -1}, {"1e10", -1}, {"inf", -1}, {"0x", -1}, {"1e9", INT64_C(1000000000000)},
		{"11575d", -1}, {"1e9d", -1}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_(cli_release) struct cli cli = {.command = &verb};
		int64_t ms = 0;
		FILE *to = fmemopen(said, sizeof(said), "w");

		assert_int_equal(PARSE(&cli, "file", "--time", cases[i].text), 0);
		log_set_stream(to);
		assert_int_equal(cli_duration_ms(&cli, "time", 7, &ms), cases[i].ms >= 0);
		log_set_stream(NULL);
		fclose(to);
		assert_int_equal(ms, cases[i].ms >= 0 ? cases[i].ms : 7);
	}
}

static void test_words_are_split_like_in_a_shell(void **state)
{
	static const struct {
		const char *line, *words; /* joined by '|'; NULL if invalid */
	} cases[] = {{"cp a  b\t\n", "cp|a|b"}, {"", ""}, {"  # all", ""}, {"a#b # c", "a#b"},
		{"'a b' \"c d\"", "a b|c d"}, {"a'b'\"c\"", "abc"},
		{"'\\' \"\\\"\\\\\\n\"", "\\|\"\\\\n"}, {"a\\ b", "a b"}, {"''", ""}, {"'a", NULL},
		{"\"a", NULL}, {"a\\", NULL}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_(strlist_release) struct strlist words = {0};
		_cleanup_(buf_release) struct buf joined = BUF_INIT(256);
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r = words_split(&words, cases[i].line, &err);

		assert_int_equal(r, cases[i].words ? 0 : -(int)PENSTOCK_E_INVALID);
		penstock_error_release(&err);
		for (size_t k = 0; k < words.n; k++)
			buf_printf(&joined, "%s%s", k ? "|" : "", words.items[k]);
		if (cases[i].words)
			assert_string_equal(buf_str(&joined), cases[i].words);
	}
}

static void test_text_is_wrapped_and_indented(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(256);

	(void)state;
	wrap_text(&out, "one two three\n\nfour", 2, 9, 0);
	assert_string_equal(buf_str(&out), "  one two\n  three\n\n  four\n");
}

static void test_the_help_has_options_examples_and_sorted_exit_codes(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(8192);

	(void)state;
	help_command(&out, &verb);
	assert_non_null(strstr(buf_str(&out), "usage: penstock verb [OPTION]... FILE [MORE]\n"));
	assert_non_null(strstr(buf_str(&out), "  -n, --number N"));
	assert_non_null(strstr(buf_str(&out), "  penstock verb x\n      Do it\n"));
	assert_true(strstr(buf_str(&out), "\n  64 ") < strstr(buf_str(&out), "\n  66 "));
	assert_true(strstr(buf_str(&out), "\n  66 ") < strstr(buf_str(&out), "\n  70 "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_and_operands_in_any_order),
		cmocka_unit_test(test_mistakes_name_the_word),
		cmocka_unit_test(test_words_after_the_command_belong_to_it),
		cmocka_unit_test(test_unknown_options_are_variables_of_the_workflow),
		cmocka_unit_test(test_a_mistyped_option_is_reported_before_a_missing_operand),
		cmocka_unit_test(test_durations_have_units),
		cmocka_unit_test(test_words_are_split_like_in_a_shell),
		cmocka_unit_test(test_text_is_wrapped_and_indented),
		cmocka_unit_test(test_the_help_has_options_examples_and_sorted_exit_codes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
