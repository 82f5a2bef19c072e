/* Every allocation fails once while a workflow is read and written: the result is an error, or
 * complete. */
#include "alloc_fail.h"

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

static const char yaml[] =
	"name: &name train\n"
	"resources: {tasks: 1, cpusPerTask: 2, memPerCpu: 800}\n"
	"enableLogging: true\n"
	"env: [{key: A, value: \"${{ env.B }}\"}, {key: C, value: *name}]\n"
	"input: {http: {url: \"http://user:pw@h/a.tar.gz?sig=x\"}}\n"
	"output:\n"
	"  s3: {region: us-east-1, bucketUrl: 's3://bucket', path: /out, endpointUrl: "
	"'http://h:9000',\n"
	"       accessKeyId: AKIDEXAMPLE, secretAccessKey: '${{ secrets.KEY }}'}\n"
	"continuousOutputSync: true\n"
	"steps:\n"
	"- name: one\n"
	"  run:\n"
	"    command: |\n"
	"      echo one\n"
	"      echo two\n"
	"    shell: /bin/bash\n"
	"- {name: two, run: {command: 'python3 train.py', workDir: /x, env: [{key: D, value: "
	"d}]}}\n";

static const char mistakes[] =
	"{\"stepz\": [], \"resources\": {\"tasks\": \"two\", \"cpusPerTaks\": 1},\n"
	" \"steps\": [{\"run\": {\"cmd\": 1}}], \"input\": {\"s4\": {}}}";

struct outcome {
	int rc;
	struct buf json;
	struct buf record;
	struct buf said;
};

static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	(void)cookie;
	(void)source;
	return buf_printf(value, "value-of-%s", name) == 0;
}

/* Reads `text` while the n-th allocation fails; if `n` is 0, no allocation fails. Returns false if
 * there are fewer allocations. */
static bool read_once(const char *text, size_t n, struct outcome *o, struct penstock_error *err)
{
	char *sets_items[] = {(char[]){"steps.one.run.workDir=/y"}, (char[]){"env[0].value=x"}};
	const struct strlist sets = {sets_items, 2};
	const struct workflow_options options = {.resolve = resolve, .sets = &sets};
	struct diagnostics found = {0};
	struct workflow *wf = NULL;
	bool fired;

	*o = (struct outcome){
		.json = BUF_INIT(MIB), .record = BUF_INIT(MIB), .said = BUF_INIT(MIB)};
	alloc_fail_arm(n ? n : SIZE_MAX);
	o->rc = workflow_read(&wf, "wf", text, strlen(text), &options, &found, err);
	if (o->rc == 0 && workflow_print_json(wf, &o->json) < 0)
		o->rc = buf_error(&o->json, "the model", err);
	if (o->rc == 0 && workflow_write_record(wf, &o->record) < 0)
		o->rc = buf_error(&o->record, "the record", err);
	fired = alloc_fail_disarm();
	for (size_t i = 0; i < found.n; i++) {
		diagnostic_format(&found.items[i], &o->said);
		buf_add_char(&o->said, '\n');
	}
	assert_true(o->rc < 0 || wf);
	workflow_free(wf);
	diagnostics_release(&found);
	log_redact_clear();
	return fired;
}

static void outcome_release(struct outcome *o)
{
	buf_release(&o->json);
	buf_release(&o->record);
	buf_release(&o->said);
}

static void every_allocation_fails_once(const char *text)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct outcome whole;
	size_t memory = 0;
	bool fired = true;

	assert_false(read_once(text, 0, &whole, &err));
	assert_int_not_equal(whole.rc, -(int)PENSTOCK_E_MEMORY);
	penstock_error_release(&err);
	for (size_t n = 1; fired; n++) {
		struct outcome o;

		fired = read_once(text, n, &o, &err);
		if (o.rc == -(int)PENSTOCK_E_MEMORY) {
			assert_true(fired);
			assert_int_equal(err.code, PENSTOCK_E_MEMORY);
			assert_non_null(err.message);
			memory++;
		} else {
			assert_int_equal(o.rc, whole.rc);
			assert_string_equal(buf_str(&o.json), buf_str(&whole.json));
			assert_string_equal(buf_str(&o.record), buf_str(&whole.record));
			assert_string_equal(buf_str(&o.said), buf_str(&whole.said));
		}
		outcome_release(&o);
		penstock_error_release(&err);
	}
	assert_true(memory > 20);
	outcome_release(&whole);
}

static void a_workflow_is_read_whole_or_memory_is_said_to_be_short(void **state)
{
	(void)state;
	every_allocation_fails_once(yaml);
}

static void a_json_workflow_is_read_whole_or_memory_is_said_to_be_short(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	const char *data = getenv("TEST_DATA");
	_cleanup_free_ char *path = path_join(data ? data : ".", "seed-train.json");

	(void)state;
	assert_int_equal(fs_read(path, &text, NULL), 0);
	every_allocation_fails_once(buf_str(&text));
}

/* If memory runs out, the list of mistakes is still complete, or the error says so. */
static void mistakes_are_all_reported_or_memory_is_said_to_be_short(void **state)
{
	(void)state;
	every_allocation_fails_once(mistakes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_workflow_is_read_whole_or_memory_is_said_to_be_short),
		cmocka_unit_test(a_json_workflow_is_read_whole_or_memory_is_said_to_be_short),
		cmocka_unit_test(mistakes_are_all_reported_or_memory_is_said_to_be_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
