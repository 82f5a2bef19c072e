/* The reference pages say what the reader does: their examples read, and no key is missing. */
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
#include "workflow/schema.h"
#include "workflow/workflow.h"

static void load_page(const char *name, struct buf *out)
{
	const char *data = getenv("TEST_DATA");
	_cleanup_free_ char *docs = path_join(data ? data : ".", "../../../docs");
	_cleanup_free_ char *path = path_join(docs, name);

	assert_int_equal(fs_read(path, out, NULL), 0);
}

/* Reads one example of the page; an unfinished one would be a fault of the page, too. */
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

/* Whoever copies an example from the reference gets a workflow without mistakes or notes. */
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

/* Every key stands in the reference. */
static void every_key_stands_in_the_reference(void **state)
{
	static const struct schema *const schemas[] = {&schema_job, &schema_resources, &schema_env,
		&schema_input, &schema_output, &schema_http, &schema_s3, &schema_local,
		&schema_step, &schema_run, &schema_step_resources, &schema_for, &schema_range,
		&schema_launch, &schema_use, &schema_module, &schema_module_input,
		&schema_module_output, &schema_interface, &schema_wireguard, &schema_peer,
		&schema_bore, &schema_vnet, &schema_virtual_network};
	_cleanup_(buf_release) struct buf page = BUF_INIT(MIB);

	(void)state;
	load_page("workflow.md", &page);
	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++) {
		for (size_t j = 0; j < schemas[i]->n; j++) {
			_cleanup_(buf_release) struct buf key = BUF_INIT(KIB);

			buf_printf(&key, "`%s`", schemas[i]->fields[j].name);
			if (!strstr(buf_str(&page), buf_str(&key)))
				fail_msg("%s of %s is not in the reference", buf_str(&key),
					schemas[i]->what);
		}
	}
}

/* The man page is shorter, but has every key of these. */
static void every_key_stands_in_the_man_page(void **state)
{
	static const struct schema *const schemas[] = {&schema_job, &schema_resources,
		&schema_input, &schema_s3, &schema_step, &schema_run, &schema_step_resources,
		&schema_for, &schema_range, &schema_launch, &schema_use};
	_cleanup_(buf_release) struct buf page = BUF_INIT(MIB);

	(void)state;
	load_page("man/penstock-workflow.5.scd", &page);
	for (size_t i = 0; i < ARRAY_SIZE(schemas); i++) {
		for (size_t j = 0; j < schemas[i]->n; j++) {
			_cleanup_(buf_release) struct buf key = BUF_INIT(KIB);

			buf_printf(&key, "*%s*", schemas[i]->fields[j].name);
			if (!strstr(buf_str(&page), buf_str(&key)))
				fail_msg("%s of %s is not in the man page", buf_str(&key),
					schemas[i]->what);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples_of_the_reference_are_workflows),
		cmocka_unit_test(every_key_stands_in_the_reference),
		cmocka_unit_test(every_key_stands_in_the_man_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
