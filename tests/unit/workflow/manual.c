/* The reference pages agree with the reader: their examples are valid, and all keys are
 * documented. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "workflow/native/schema.h"
#include "workflow/workflow.h"

static void load_page(const char *name, struct buf *out)
{
	const char *data = getenv("TEST_DATA");
	_cleanup_free_ char *docs = path_join(data ? data : ".", "../../../docs");
	_cleanup_free_ char *path = path_join(docs, name);

	assert_int_equal(fs_read(path, out, NULL), 0);
}

/* Reads one example of the page. A block without an end is an error of the page. */
static void assert_reads(const char *text, size_t len)
{
	_cleanup_(diagnostics_release) struct diagnostics found = {0};
	_cleanup_(workflow_freep) struct workflow *wf = NULL;
	_cleanup_(buf_release) struct buf lines = BUF_INIT(MIB);

	workflow_read(&wf, "example", text, len,
		&(struct workflow_options){.keep_references = true}, &found, NULL);
	for (size_t i = 0; i < found.n; i++) {
		diagnostic_format(&found.items[i], &lines);
		buf_add_char(&lines, '\n');
	}
	assert_string_equal(buf_str(&lines), "");
	assert_non_null(wf);
}

/* An example that is copied from the reference causes no errors and no notes. */
static void examples_of_the_reference_are_workflows(void **state)
{
	_cleanup_(buf_release) struct buf page = BUF_INIT(MIB);
	const char *p;
	int examples = 0;

	(void)state;
	load_page("workflow.md", &page);
	p = buf_str(&page);
	while ((p = strstr(p, "```yaml\n"))) {
		const char *end;

		p += strlen("```yaml\n");
		end = strstr(p, "```");
		assert_non_null(end);
		assert_reads(p, (size_t)(end - p));
		examples++;
		p = end;
	}
	assert_true(examples >= 2);
}

/* Checks that the page has a table for `schema` and for each map below it; tools/fill-tables fills
 * these tables. */
static void assert_tables(const struct schema *schema, const struct buf *page, const char *begin,
	const struct schema **seen, size_t *n)
{
	_cleanup_(buf_release) struct buf marker = BUF_INIT(KIB);

	for (size_t i = 0; i < *n; i++) {
		if (seen[i] == schema)
			return;
	}
	assert_true(*n < 64);
	seen[(*n)++] = schema;
	buf_printf(&marker, "%s table: %s", begin, schema->name);
	if (!strstr(buf_str(page), buf_str(&marker)))
		fail_msg("the page has no %s", buf_str(&marker));
	for (size_t i = 0; i < schema->n; i++) {
		if (schema->keys[i].below)
			assert_tables(schema->keys[i].below, page, begin, seen, n);
	}
}

static void the_reference_has_a_table_of_every_map(void **state)
{
	_cleanup_(buf_release) struct buf page = BUF_INIT(MIB);
	const struct schema *seen[64];
	size_t n = 0;

	(void)state;
	load_page("workflow.md", &page);
	assert_tables(&schema_job, &page, "<!--", seen, &n);
	assert_true(n > 20);
}

static void the_man_page_has_a_table_of_every_map(void **state)
{
	_cleanup_(buf_release) struct buf page = BUF_INIT(MIB);
	const struct schema *seen[64];
	size_t n = 0;

	(void)state;
	load_page("man/penstock-workflow.5.scd", &page);
	assert_tables(&schema_job, &page, ";", seen, &n);
}

/* Every key has a line of documentation. */
static void every_key_is_documented(void **state)
{
	const struct schema *all[64] = {&schema_job};
	size_t n = 1;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < all[i]->n; j++) {
			const struct schema_key *key = &all[i]->keys[j];
			size_t k = 0;

			if (!key->says && !(key->flags & KEY_LEGACY))
				fail_msg("%s of %s has no line of documentation", key->name,
					all[i]->what);
			while (k < n && all[k] != key->below)
				k++;
			if (key->below && k == n)
				all[n++] = key->below;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples_of_the_reference_are_workflows),
		cmocka_unit_test(the_reference_has_a_table_of_every_map),
		cmocka_unit_test(the_man_page_has_a_table_of_every_map),
		cmocka_unit_test(every_key_is_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
