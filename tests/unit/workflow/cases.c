/*
 * Runs the cases of cases/[name].txt, each of which is a document and the expected messages:
 *
 *	=== a sentence that names the case
 *	--- document            (the workflow; its display name is "wf")
 *	--- options             (--set PATH=VALUE, --env KEY=VALUE, --machine CPUS GPUS,
 *	                         --store URL and --pick NAME, one per line)
 *	--- module              (module.yaml of every `use.source`; without it, no module is loaded)
 *	--- diagnostics         (every line that is reported, in order, as POSITION | FACT...)
 *	--- model               (the whole model as JSON)
 *	--- shows               (lines that the model as JSON must contain)
 *	--- record              (lines that the recorded copy must contain)
 *
 * A FACT is a name, a value or a number in the message; the words between the facts are not tested.
 * The facts may be in any order, and with or without quotes. The fact `note` is the severity of a
 * note. Without `diagnostics`, a case must report no line. With `shows`, `record` or `model`,
 * reading must succeed.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/workflow.h"

enum section { DOCUMENT, OPTIONS, MODULE, DIAGNOSTICS, MODEL, SHOWS, RECORD, SECTIONS };

static const char *const section_names[SECTIONS] = {
	"document", "options", "module", "diagnostics", "model", "shows", "record"};

struct test_case {
	char *name;
	struct buf sections[SECTIONS];
	bool given[SECTIONS];
};

static struct test_case *cases;
static struct CMUnitTest *tests;
static size_t n_cases;

static bool test_resolve(
	void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	(void)cookie;
	if (source == WORKFLOW_FROM_ENV && strcmp(name, "HOST") == 0)
		return buf_add_str(value, "store.example") == 0;
	if (source == WORKFLOW_FROM_SECRET && strcmp(name, "KEY") == 0)
		return buf_add_str(value, "the-secret-value") == 0;
	return false;
}

static int test_module(
	void *cookie, const char *source, struct buf *text, struct penstock_error *err)
{
	const struct test_case *c = cookie;

	if (strcmp(source, "./missing") == 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find the module '%s'", source);
	if (strcmp(source, "./later") == 0)
		return 1;
	return buf_add(text, buf_str(&c->sections[MODULE]), c->sections[MODULE].len);
}

/* Every directory exists on this machine, except those below /not-here. */
static bool test_is_here(const char *path)
{
	return !str_starts(path, "/not-here");
}

static int test_site(void *cookie, struct workflow_site *out, struct penstock_error *err)
{
	(void)err;
	*out = *(const struct workflow_site *)cookie;
	return 0;
}

/* Parses lines such as "--set X" and "--env X" into the lists and options. */
static void parse_options(struct buf *text, struct strlist *sets, struct strlist *env,
	struct workflow_options *options, struct workflow_site *site)
{
	char *rest = text->len ? text->data : NULL, *line;

	while ((line = strsep(&rest, "\n"))) {
		if (str_starts(line, "--set "))
			assert_int_equal(strlist_add(sets, line + strlen("--set ")), 0);
		else if (str_starts(line, "--env "))
			assert_int_equal(strlist_add(env, line + strlen("--env ")), 0);
		else if (sscanf(line, "--machine %d %d", &site->cpus, &site->gpus) == 2)
			continue;
		else if (str_starts(line, "--pick "))
			options->pick = line + strlen("--pick ");
		else if (str_starts(line, "--store "))
			site->endpoint_url = line + strlen("--store ");
		else if (*line)
			fail_msg("invalid option '%s'", line);
	}
}

static void assert_lines_within(const struct buf *wanted, const struct buf *actual)
{
	_cleanup_free_ char *copy = strdup(buf_str(wanted));
	char *rest = copy, *line;

	assert_non_null(copy);
	while ((line = strsep(&rest, "\n"))) {
		if (*line && !strstr(buf_str(actual), line))
			fail_msg("no line \"%s\" in:\n%s", line, buf_str(actual));
	}
}

static void assert_text(const char *what, const struct buf *wanted, const struct buf *actual)
{
	if (strcmp(buf_str(wanted), buf_str(actual)) != 0)
		fail_msg("%s, wanted:\n%s\ngot:\n%s", what, buf_str(wanted), buf_str(actual));
}

/* Checks that `line` has the position and all facts: "wf:3:16 | steps | -1" matches a line that
 * begins with "wf:3:16: " and contains "steps" and "-1". */
static void assert_diagnostic(char *facts, const char *line)
{
	const char *position = strsep(&facts, "|");
	const size_t len = strlen(position) - (facts ? 1 : 0);
	char *fact;

	if (strncmp(line, position, len) != 0 || line[len] != ':')
		fail_msg("position \"%.*s\", not: %s", (int)len, position, line);
	while ((fact = strsep(&facts, "|"))) {
		size_t end = strlen(fact);

		/* A fact has one space before it and, unless it is the last one, one after it. */
		if (facts)
			fact[end - 1] = '\0';
		if (!strstr(line + len, fact + 1))
			fail_msg("no \"%s\" in: %s", fact + 1, line);
	}
}

static void assert_diagnostics(const struct buf *wanted, const struct buf *actual)
{
	_cleanup_free_ char *expected = strdup(buf_str(wanted));
	_cleanup_free_ char *reported = strdup(buf_str(actual));
	char *facts, *line, *rest = expected, *lines = reported;

	assert_true(expected && reported);
	while ((facts = strsep(&rest, "\n")) && *facts) {
		line = strsep(&lines, "\n");
		if (line && *line)
			assert_diagnostic(facts, line);
		else
			fail_msg("not reported: %s\ngot:\n%s", facts, buf_str(actual));
	}
	if (lines && *lines)
		fail_msg("not expected: %s", lines);
}

static void check_model(const struct test_case *c, const struct workflow *wf)
{
	_cleanup_(buf_release) struct buf model = BUF_INIT(MIB);
	_cleanup_(buf_release) struct buf record = BUF_INIT(MIB);

	assert_int_equal(workflow_print_json(wf, &model), 0);
	assert_int_equal(workflow_write_record(wf, &record), 0);
	if (c->given[MODEL])
		assert_text("model", &c->sections[MODEL], &model);
	if (c->given[SHOWS])
		assert_lines_within(&c->sections[SHOWS], &model);
	if (c->given[RECORD])
		assert_lines_within(&c->sections[RECORD], &record);
	assert_null(strstr(buf_str(&model), "the-secret-value"));
	assert_null(strstr(buf_str(&record), "the-secret-value"));
}

static void a_document_reads_as_its_case_says(void **state)
{
	const struct test_case *c = *state;
	_cleanup_(strlist_release) struct strlist sets = {0};
	_cleanup_(strlist_release) struct strlist env = {0};
	_cleanup_(diagnostics_release) struct diagnostics found = {0};
	_cleanup_(workflow_freep) struct workflow *wf = NULL;
	_cleanup_(buf_release) struct buf lines = BUF_INIT(MIB);
	struct workflow_site site = {0};
	struct workflow_options options = {.sets = &sets,
		.env = &env,
		.resolve = test_resolve,
		.is_here = test_is_here,
		.site = test_site,
		.site_cookie = &site};
	struct test_case copy = *c;
	int r;

	parse_options(&copy.sections[OPTIONS], &sets, &env, &options, &site);
	if (c->given[MODULE]) {
		options.module = test_module;
		options.module_cookie = &copy;
	}

	r = workflow_read(&wf, "wf", c->sections[DOCUMENT].data, c->sections[DOCUMENT].len,
		&options, &found, NULL);

	for (size_t i = 0; i < found.n; i++) {
		diagnostic_format(&found.items[i], &lines);
		buf_add_char(&lines, '\n');
	}
	assert_diagnostics(&c->sections[DIAGNOSTICS], &lines);
	assert_null(strstr(buf_str(&lines), "the-secret-value"));
	assert_int_equal(r, found.errors ? -PENSTOCK_E_INVALID : 0);
	if (c->given[MODEL] || c->given[SHOWS] || c->given[RECORD])
		assert_int_equal(r, 0);
	if (r == 0)
		check_model(c, wf);
	log_redact_clear();
}

static struct test_case *case_new(const char *file, const char *name)
{
	struct test_case *c;

	cases = realloc(cases, (n_cases + 1) * sizeof(*cases));
	if (!cases)
		abort();
	c = &cases[n_cases++];
	*c = (struct test_case){0};
	if (asprintf(&c->name, "%s: %s", file, name) < 0)
		abort();
	for (size_t i = 0; i < SECTIONS; i++)
		buf_init(&c->sections[i], MIB);
	return c;
}

static enum section section_of(const char *file, const char *name)
{
	for (size_t i = 0; i < SECTIONS; i++) {
		if (strcmp(section_names[i], name) == 0)
			return (enum section)i;
	}
	fprintf(stderr, "%s: unknown section '%s'\n", file, name);
	exit(2);
}

static void load_file(const char *path, const char *file)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	enum section section = DOCUMENT;
	struct test_case *c = NULL;
	char *rest, *line;

	if (fs_read(path, &text, NULL) < 0) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(2);
	}
	rest = text.data;
	while ((line = strsep(&rest, "\n"))) {
		if (str_starts(line, "=== ")) {
			c = case_new(file, line + 4);
			section = DOCUMENT;
		} else if (c && str_starts(line, "--- ")) {
			section = section_of(file, line + 4);
			c->given[section] = true;
		} else if (c && rest) {
			buf_printf(&c->sections[section], "%s\n", line);
		}
	}
}

/* Blank lines between cases belong to no case. */
static void trim_sections(void)
{
	for (size_t i = 0; i < n_cases; i++) {
		for (size_t j = 0; j < SECTIONS; j++) {
			struct buf *b = &cases[i].sections[j];

			while (b->len > 1 && b->data[b->len - 1] == '\n' &&
				b->data[b->len - 2] == '\n')
				buf_truncate(b, b->len - 1);
			if (b->len == 1 && b->data[0] == '\n')
				buf_truncate(b, 0);
		}
	}
}

static int by_name(const void *left, const void *right)
{
	const char *const *a = left;
	const char *const *b = right;

	return strcmp(*a, *b);
}

static void load_all(const char *directory)
{
	_cleanup_closedir_ DIR *dir = opendir(directory);
	_cleanup_(strlist_release) struct strlist names = {0};
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (str_ends(entry->d_name, ".txt") && strlist_add(&names, entry->d_name) < 0)
			abort();
	}
	if (!names.items) {
		fprintf(stderr, "no case in %s\n", directory);
		exit(1);
	}
	qsort(names.items, names.n, sizeof(*names.items), by_name);
	for (size_t i = 0; i < names.n; i++) {
		_cleanup_free_ char *path = path_join(directory, names.items[i]);

		load_file(path, names.items[i]);
	}
	trim_sections();
}

int main(void)
{
	const char *data = getenv("TEST_DATA");
	_cleanup_free_ char *directory = path_join(data ? data : ".", "cases");
	int failed;

	load_all(directory);
	if (n_cases == 0) {
		fprintf(stderr, "no cases in %s\n", directory);
		return 2;
	}
	tests = calloc(n_cases, sizeof(*tests));
	if (!tests)
		return 2;
	for (size_t i = 0; i < n_cases; i++)
		tests[i] = (struct CMUnitTest){
			cases[i].name, a_document_reads_as_its_case_says, NULL, NULL, &cases[i]};
	failed = _cmocka_run_group_tests("cases", tests, n_cases, NULL, NULL);
	for (size_t i = 0; i < n_cases; i++) {
		free(cases[i].name);
		for (size_t j = 0; j < SECTIONS; j++)
			buf_release(&cases[i].sections[j]);
	}
	free(cases);
	free(tests);
	return failed ? 1 : 0;
}
