/* Properties that the text cases cannot express: bytes, limits, identity, references and
 * records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

#define MINIMAL "steps: [{run: {command: x}}]\n"
#define DSTACK                                                                                     \
	"workflows:\n"                                                                             \
	"  - {name: train, provider: bash, commands: [x], environment: {A_TOKEN: '${{ one }}', "   \
	"B_TOKEN: '${{inner}}!', C_TOKEN: '${{ gone }}', D_TOKEN: '${{ secrets.GONE }}'}}\n"       \
	"  - {name: train, provider: bash, commands: [x], environment: [A=b, 'D_TOKEN=${{ two "    \
	"}}']}\n"

struct reading {
	struct workflow *wf;
	struct diagnostics found;
	struct buf lines; /* reported lines */
	int r;
};

static void reading_release(struct reading *reading)
{
	workflow_free(reading->wf);
	diagnostics_release(&reading->found);
	buf_release(&reading->lines);
	log_redact_clear();
}

static void read_with(
	struct reading *out, const void *data, size_t len, const struct workflow_options *options)
{
	*out = (struct reading){.lines = BUF_INIT(MIB)};
	out->r = workflow_read(&out->wf, "wf", data, len, options, &out->found, NULL);
	for (size_t i = 0; i < out->found.n; i++) {
		diagnostic_format(&out->found.items[i], &out->lines);
		buf_add_char(&out->lines, '\n');
	}
}

static void read_text(struct reading *out, const char *text)
{
	read_with(out, text, strlen(text), NULL);
}

/* Both workflows of the test data are valid, except for their containers, which overrides
 * remove. */
static void the_seed_workflows_are_understood(void **state)
{
	static const char *const names[] = {"seed-train.json", "seed-resume.json"};
	const char *data = getenv("TEST_DATA");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *path = path_join(data ? data : ".", names[i]);
		_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
		_cleanup_(reading_release) struct reading reading = {0};
		_cleanup_(strlist_release) struct strlist sets = {0};
		const struct workflow_step *train;

		assert_int_equal(fs_read(path, &text, NULL), 0);
		strlist_add(&sets, "steps[0].run.container=null");
		if (i == 1)
			strlist_add(&sets, "steps.train.run.container=null");

		read_with(&reading, text.data, text.len, &(struct workflow_options){.sets = &sets});

		assert_int_equal(reading.r, 0);
		assert_int_equal(reading.wf->steps.n, i + 1);
		train = &reading.wf->steps.items[i];
		assert_string_equal(train->name.value, "train");
		assert_string_equal(train->run.work_dir.value, "/app");
		assert_int_equal(train->run.resources.gpus_per_task.value, 2);
		assert_int_equal(train->run.resources.cpus_per_task.value, 8);
		assert_int_equal(reading.wf->resources.gpus.value, 2);
		assert_true(reading.wf->enable_logging.value);
		assert_true(reading.wf->continuous_output_sync.value);
		assert_string_equal(reading.wf->output.s3.bucket, "cifar10");
		assert_string_equal(reading.wf->output.s3.prefix, "");
		assert_int_equal(reading.wf->inputs[0].kind, i == 0 ? WORKFLOW_HTTP : WORKFLOW_S3);
		assert_int_equal(reading.wf->inputs[0].unpack.value, i == 0);
	}
}

/* A later message can name the position of a value, for example if a request exceeds the
 * machine. */
static void every_value_knows_its_place(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	_cleanup_(strlist_release) struct strlist sets = {0};
	_cleanup_(buf_release) struct buf place = BUF_INIT(KIB);
	const char *text = "resources:\n  cpusPerTask: 8\n" MINIMAL;

	(void)state;
	strlist_add(&sets, "resources.tasks=2");
	read_with(&reading, text, strlen(text), &(struct workflow_options){.sets = &sets});

	assert_int_equal(reading.r, 0);
	workflow_place_format(reading.wf, &reading.wf->resources.cpus_per_task.at, &place);
	assert_string_equal(buf_str(&place), "wf:2:16");
	buf_clear(&place);
	workflow_place_format(reading.wf, &reading.wf->resources.tasks.at, &place);
	assert_string_equal(buf_str(&place), "--set resources.tasks");
	buf_clear(&place);
	workflow_place_format(reading.wf, &reading.wf->steps.items[0].run.command.at, &place);
	assert_string_equal(buf_str(&place), "wf:3:25");
	buf_clear(&place);
	workflow_place_format(reading.wf, &(struct workflow_place){0}, &place);
	assert_string_equal(buf_str(&place), "wf");
}

/* A workflow has the same identity in any layout, and with any access keys of the store. */
static void the_digest_is_of_what_is_written_and_not_of_how(void **state)
{
	static const char *const same[] = {
		"{\"output\": {\"s3\": {\"region\": \"r\", \"bucketUrl\": \"s3://abc\", \"path\": "
		"\"/\", \"endpointUrl\": \"http://h\", \"accessKeyId\": \"one\", "
		"\"secretAccessKey\": \"two\"}}, \"env\": [{\"key\": \"API_KEY\", \"value\": "
		"\"0123456789a\"}], \"steps\": [{\"run\": {\"command\": \"x\"}}], \"name\": null}",
		"# a comment\njob:\n  steps: [{run: {command: x}}]\n  output:\n    s3:\n"
		"      path: /\n      region: \"r\"\n      bucketUrl: s3://abc\n"
		"      endpointUrl: http://h\n"
		"  env:\n    - {value: 9876543210b, key: API_KEY}\n",
		"env:\n  - {value: \"${{ secrets.KEY }}\", key: API_KEY}\n" MINIMAL
		"output: {s3: {path: /, region: r, bucketUrl: s3://abc, endpointUrl: http://h,\n"
		"  accessKeyId: three, secretAccessKey: \"${{ secrets.KEY }}\"}}\n",
	};
	char first[65] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		_cleanup_(reading_release) struct reading reading = {0};

		read_with(&reading, same[i], strlen(same[i]),
			&(struct workflow_options){.keep_references = true});

		assert_int_equal(reading.r, 0);
		assert_int_equal(strlen(reading.wf->digest), 64);
		if (i > 0)
			assert_string_equal(reading.wf->digest, first);
		memcpy(first, reading.wf->digest, sizeof(first));
	}
}

/* Signatures in URLs expire and passwords change; neither changes the identity of the workflow. */
static void the_digest_is_without_signatures_of_urls(void **state)
{
	static const char *const urls[] = {
		"http://me:one@h/x?X-Amz-Signature=1", "http://you:two@h/x?X-Amz-Signature=2"};
	char first[65] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		_cleanup_(reading_release) struct reading reading = {0};
		_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);

		buf_printf(&text, MINIMAL "output: {http: {url: \"%s\"}}\n", urls[i]);
		read_text(&reading, buf_str(&text));

		assert_int_equal(reading.r, 0);
		assert_string_equal(
			workflow_shown(&reading.wf->output.http_url), "http://***@h/x?***");
		if (i > 0)
			assert_string_equal(reading.wf->digest, first);
		memcpy(first, reading.wf->digest, sizeof(first));
	}
}

/* Every change of what is executed changes the identity; overrides do not change it. */
static void the_digest_changes_with_the_workflow_and_not_with_overrides(void **state)
{
	_cleanup_(reading_release) struct reading plain = {0};
	_cleanup_(reading_release) struct reading overridden = {0};
	_cleanup_(reading_release) struct reading other = {0};
	_cleanup_(reading_release) struct reading text = {0};
	_cleanup_(strlist_release) struct strlist sets = {0};

	(void)state;
	strlist_add(&sets, "steps[0].run.command=y");
	read_text(&plain, MINIMAL);
	read_with(&overridden, MINIMAL, strlen(MINIMAL), &(struct workflow_options){.sets = &sets});
	read_text(&other, "steps: [{run: {command: y}}]\n");
	read_text(&text, MINIMAL "env: [{key: A, value: \"1\"}]\n");

	assert_string_equal(plain.wf->digest, overridden.wf->digest);
	assert_string_not_equal(plain.wf->digest, other.wf->digest);
	assert_string_not_equal(plain.wf->digest, text.wf->digest);
	assert_string_equal(overridden.wf->steps.items[0].run.command.value, "y");
}

static bool resolve_key(
	void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	const char *prefix = cookie;

	buf_printf(value, "%s-%d-%s", prefix, source, name);
	return true;
}

/* A credential remembers its source, so records need not contain its value. */
static void credentials_know_their_source(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	_cleanup_(strlist_release) struct strlist sets = {0};
	_cleanup_(buf_release) struct buf line = BUF_INIT(KIB);
	const char *text = MINIMAL
		"input: {s3: {path: /, bucketUrl: s3://abc, endpointUrl: embedded,\n"
		"  accessKeyId: \"${{ env.ID }}\", secretAccessKey: \"${{ secrets.KEY }}\"}}\n"
		"output: {s3: {path: /, bucketUrl: s3://abc, endpointUrl: embedded,\n"
		"  accessKeyId: written-id, secretAccessKey: written-key}}\n";

	(void)state;
	strlist_add(&sets, "output.s3.secretAccessKey=given-key");
	read_with(&reading, text, strlen(text),
		&(struct workflow_options){
			.sets = &sets, .resolve = resolve_key, .cookie = (char[]){"value"}});

	assert_int_equal(reading.r, 0);
	assert_string_equal(reading.wf->inputs[0].s3.access_key_id.reference, "env:ID");
	assert_string_equal(reading.wf->inputs[0].s3.access_key_id.value, "value-4-ID");
	assert_string_equal(reading.wf->inputs[0].s3.secret_access_key.reference, "secret:KEY");
	assert_string_equal(reading.wf->inputs[0].s3.secret_access_key.value, "value-3-KEY");
	assert_string_equal(
		reading.wf->output.s3.access_key_id.reference, "file:output.s3.accessKeyId");
	assert_string_equal(reading.wf->output.s3.secret_access_key.reference,
		"option:output.s3.secretAccessKey");
	log_redact_into(&line, "value-4-ID value-3-KEY written-id written-key given-key");
	assert_string_equal(buf_str(&line), "*** *** *** *** ***");
}

static bool resolve_from_file(
	void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	const char *text = cookie;

	return source == WORKFLOW_FROM_FILE &&
	       workflow_find_field("wf", text, strlen(text), name, NULL, value, NULL) == 0;
}

/* The recorded copy contains no secret, is a valid workflow, and refers to the secrets in the
 * original file. */
static void a_record_finds_its_secrets_in_the_file_again(void **state)
{
	_cleanup_(reading_release) struct reading written = {0};
	_cleanup_(reading_release) struct reading again = {0};
	_cleanup_(strlist_release) struct strlist sets = {0};
	_cleanup_(buf_release) struct buf record = BUF_INIT(MIB);
	_cleanup_(buf_release) struct buf second = BUF_INIT(MIB);
	char text[] = "job:\n"
		      "  inputs: [{http: {url: http://h/one}},\n"
		      "    {http: {url: \"http://h/two?sig=signature-1\"}}]\n"
		      "  output: {s3: {path: /, bucketUrl: s3://abc, endpointUrl: embedded,\n"
		      "    accessKeyId: written-id, secretAccessKey: written-key}}\n"
		      "  env: [{key: A, value: 007}, {key: X_TOKEN, value: token-of-mine}]\n"
		      "  steps: [{run: {command: \"a\\tb\\nc\"}}]\n";

	(void)state;
	/* The entry after the removed one has a lower index now, but its record refers to its index
	 * in the file. */
	strlist_add(&sets, "inputs[0]=null");
	read_with(&written, text, strlen(text), &(struct workflow_options){.sets = &sets});
	assert_int_equal(written.r, 0);

	assert_int_equal(workflow_write_record(written.wf, &record), 0);
	read_with(&again, record.data, record.len,
		&(struct workflow_options){.resolve = resolve_from_file, .cookie = text});

	assert_string_equal(buf_str(&again.lines), "");
	assert_null(strstr(buf_str(&record), "written-key"));
	assert_null(strstr(buf_str(&record), "written-id"));
	assert_null(strstr(buf_str(&record), "signature-1"));
	assert_null(strstr(buf_str(&record), "token-of-mine"));
	assert_string_equal(again.wf->output.s3.secret_access_key.value, "written-key");
	assert_string_equal(
		again.wf->output.s3.secret_access_key.reference, "file:output.s3.secretAccessKey");
	assert_string_equal(again.wf->inputs[0].http_url.value, "http://h/two?sig=signature-1");
	assert_string_equal(again.wf->env.items[0].value.value, "007");
	assert_string_equal(again.wf->env.items[1].value.value, "token-of-mine");
	assert_string_equal(again.wf->steps.items[0].run.command.value, "a\tb\nc");
	/* A record of the record is unchanged. */
	assert_int_equal(workflow_write_record(again.wf, &second), 0);
	assert_string_equal(buf_str(&record), buf_str(&second));
}

/* The types in a record are unambiguous, even if those in the file were not. */
static void a_record_reads_without_notes(void **state)
{
	_cleanup_(reading_release) struct reading written = {0};
	_cleanup_(reading_release) struct reading again = {0};
	_cleanup_(buf_release) struct buf record = BUF_INIT(MIB);
	const char *text =
		"name: 5\nenableLogging: yes\n"
		"resources: {tasks: \"2\", cpusPerTask: 0x10, memPerCpu: +5}\n"
		"env: [{key: A, value: true}, {key: B, value: }, {key: C, value: 8}]\n"
		"inputs: [{local: {path: data}}]\n"
		"steps: [{run: {command: \"\\x01\\u0085\\u2028\\ufeff\\n\\t\\\\\\\"\"}}]\n";

	(void)state;
	written = (struct reading){.lines = BUF_INIT(MIB)};
	written.r = workflow_read(
		&written.wf, "/dir/wf", text, strlen(text), NULL, &written.found, NULL);
	assert_int_equal(written.r, 0);
	assert_int_equal(workflow_write_record(written.wf, &record), 0);

	read_with(&again, record.data, record.len, NULL);

	assert_string_equal(buf_str(&again.lines), "");
	assert_int_equal(again.r, 0);
	assert_string_equal(again.wf->name.value, "5");
	assert_true(again.wf->enable_logging.value);
	assert_int_equal(again.wf->resources.tasks.value, 2);
	assert_int_equal(again.wf->resources.cpus_per_task.value, 16);
	assert_int_equal(again.wf->resources.mem_per_cpu.value, 5);
	assert_string_equal(again.wf->env.items[0].value.value, "true");
	assert_string_equal(again.wf->env.items[1].value.value, "");
	assert_string_equal(again.wf->env.items[2].value.value, "8");
	assert_string_equal(again.wf->inputs[0].local_path.value, "/dir/data");
	assert_string_equal(again.wf->steps.items[0].run.command.value,
		"\x01\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\n\t\\\"");
}

/* Validation needs no values, and makes no assumption about them. */
static void references_may_be_kept(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	const char *text = "name: ${{ env.A }}\n"
			   "input: {http: {url: \"${{ env.URL }}\"}}\n"
			   "steps: [{run: {command: x, workDir: \"${{ env.DIR }}\"}}]\n";

	(void)state;
	read_with(
		&reading, text, strlen(text), &(struct workflow_options){.keep_references = true});

	assert_string_equal(buf_str(&reading.lines), "");
	assert_int_equal(reading.r, 0);
}

/* Without a callback, the environment variables of the process are used. */
static void references_are_resolved_from_the_environment(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};

	(void)state;
	setenv("PENSTOCK_TEST_NAME", "from-env", 1);
	setenv("PENSTOCK_SECRET_TEST", "from-secret", 1);
	read_text(&reading, MINIMAL "name: ${{ env.PENSTOCK_TEST_NAME }}\n"
				    "env: [{key: A, value: \"${{ secrets.TEST }}\"}]\n");

	assert_int_equal(reading.r, 0);
	assert_string_equal(reading.wf->name.value, "from-env");
	assert_string_equal(reading.wf->env.items[0].value.value, "from-secret");
	assert_string_equal(workflow_shown(&reading.wf->env.items[0].value), "${{ secrets.TEST }}");
}

/* A resolved value is data: references in it are not resolved. */
static void resolved_values_are_not_resolved_again(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};

	(void)state;
	setenv("PENSTOCK_TEST_VALUE", "${{ env.PENSTOCK_TEST_VALUE }}", 1);
	read_text(&reading, MINIMAL "env: [{key: A, value: \"${{ env.PENSTOCK_TEST_VALUE }}\"}]\n");

	assert_int_equal(reading.r, 0);
	assert_string_equal(reading.wf->env.items[0].value.value, "${{ env.PENSTOCK_TEST_VALUE }}");
}

/* A missing field is an error, and so is a file that is no longer a workflow. */
static void a_field_that_is_gone_is_reported(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf value = BUF_INIT(KIB);
	static const char moved[] = "env: [{key: A_TOKEN, value: '${{ secrets.A }}'}]\n";

	(void)state;
	assert_int_equal(workflow_find_field("wf", MINIMAL, strlen(MINIMAL),
				 "output.s3.secretAccessKey", NULL, &value, &err),
		-PENSTOCK_E_NOT_FOUND);
	assert_non_null(strstr(err.message, "output.s3.secretAccessKey"));
	assert_int_equal(
		workflow_find_field("wf", "{", 1, "name", NULL, &value, &err), -PENSTOCK_E_INVALID);
	/* The field now contains a reference instead of the value. */
	assert_int_equal(
		workflow_find_field("wf", moved, strlen(moved), "env[0].value", NULL, &value, &err),
		-PENSTOCK_E_NOT_FOUND);
	assert_int_equal(value.len, 0);
}

static bool resolve_moved(
	void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	static const char variables[] = "variables: {global: {one: first-value, inner: '${{ "
					"secrets.B }}'}, train: {two: second}}";
	const struct workflow_options options = {
		.resolve = resolve_moved,
		.variables = variables,
		.variables_len = sizeof(variables) - 1,
		.variables_name = "variables.yaml",
	};

	if (source == WORKFLOW_FROM_SECRET && strcmp(name, "B") == 0)
		return buf_add_str(value, "kept ${{ secrets.B }}") == 0;
	if (source == WORKFLOW_FROM_ENV && strcmp(name, "C") == 0)
		return buf_add_str(value, "c") == 0;
	return source == WORKFLOW_FROM_FILE && cookie &&
	       workflow_find_field("wf", cookie, strlen(cookie), name, &options, value, NULL) == 0;
}

/* A key that was moved out of the file is found at its new place. The variables of dstack's
 * workflows are handled as in a run. */
static void a_field_is_found_where_it_was_moved_to(void **state)
{
	static const struct {
		const char *text, *field, *value; /* NULL if the value is missing */
	} cases[] = {
		{"env: [{key: A_TOKEN, value: ' ${{ secrets.B }}'}]", "env[0].value",
			" kept ${{ secrets.B }}"},
		{"env: [{key: A_TOKEN, value: 'x${{ env.C }}y${{env.C}}'}]", "env[0].value",
			"xcyc"},
		{"env: [{key: A_TOKEN, value: '${{ secrets.GONE }}'}]", "env[0].value", NULL},
		/* Circular references are detected. */
		{"env: [{key: A_TOKEN, value: '${{ file.env[0].value }}'}]", "env[0].value", NULL},
		{"env: [{key: A_TOKEN, value: '${{ one }}'}]", "env[0].value", NULL},
		{DSTACK, "workflows[0].environment.A_TOKEN", "first-value"},
		{DSTACK, "workflows[0].environment.B_TOKEN", "kept ${{ secrets.B }}!"},
		{DSTACK, "workflows[0].environment.C_TOKEN", NULL},
		{DSTACK, "workflows[0].environment.D_TOKEN", NULL},
		{DSTACK, "workflows[1].environment[1].D_TOKEN", "second"},
		{DSTACK, "workflows[2].environment.A_TOKEN", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf value = BUF_INIT(KIB);

		assert_int_equal(resolve_moved((char *)(uintptr_t)cases[i].text, WORKFLOW_FROM_FILE,
					 cases[i].field, &value),
			cases[i].value != NULL);
		assert_string_equal(buf_str(&value), cases[i].value ? cases[i].value : "");
	}
	log_redact_clear();
}

/* A command that starts no steps needs only the access keys of the output. */
static void values_of_variables_may_be_gone_where_nothing_starts(void **state)
{
	static const char text[] = MINIMAL
		"env: [{key: A_TOKEN, value: \"${{ file.env[0].value }}\"}, {key: B, value: "
		"\"${{ option.env[1].value }}\"}]\nnotify: {url: \"${{ secrets.NO }}\"}\n"
		"output: {s3: {region: r, path: /, bucketUrl: s3://abc, endpointUrl: http://h,\n"
		"  accessKeyId: id, secretAccessKey: \"${{ %s }}\"}}\n";
	const struct workflow_options options = {.resolve = resolve_moved, .places_only = true};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		_cleanup_(reading_release) struct reading reading = {0};
		_cleanup_(buf_release) struct buf whole = BUF_INIT(KIB);

		buf_printf(&whole, text, i ? "secrets.GONE" : "env.C");
		read_with(&reading, buf_str(&whole), whole.len, &options);

		assert_int_equal(reading.found.errors, i);
		if (i)
			assert_non_null(strstr(buf_str(&reading.lines), "GONE"));
		else
			assert_string_equal(reading.wf->output.s3.secret_access_key.value, "c");
	}
}

/* A byte order mark and CR LF line ends are accepted, and do not change positions. */
static void marks_and_carriage_returns_are_fine(void **state)
{
	_cleanup_(reading_release) struct reading yaml = {0};
	_cleanup_(reading_release) struct reading json = {0};

	(void)state;
	read_text(&yaml, "\xef\xbb\xbfname: a\r\nresum: x\r\nsteps:\r\n  - run: {command: x}\r\n");
	read_text(&json, "\xef\xbb\xbf{\"name\": \"a\",\r\n \"resum\": 1,\r\n"
			 " \"steps\": [{\"run\": {\"command\": \"x\"}}]}\r\n");

	assert_string_equal(buf_str(&yaml.lines),
		"wf:2:1: unknown key `resum` in a workflow, did you mean `resume`?\n");
	assert_string_equal(buf_str(&json.lines),
		"wf:2:2: unknown key `resum` in a workflow, did you mean `resume`?\n");
}

/* Bytes that are not text are reported with their position, before any other mistake. */
static void bytes_that_are_no_text_are_reported(void **state)
{
	static const struct {
		const char *data;
		size_t len;
		const char *wanted;
	} cases[] = {
		{"a: \xff", 4, "wf:1:4: the byte 0xff is not UTF-8; save the file as UTF-8\n"},
		{"a\nb: \xc3", 6, "wf:2:4: the byte 0xc3 is not UTF-8; save the file as UTF-8\n"},
		{"\xc0\x80", 2, "wf:1:1: the byte 0xc0 is not UTF-8; save the file as UTF-8\n"},
		{"\xed\xa0\x80", 3, "wf:1:1: the byte 0xed is not UTF-8; save the file as UTF-8\n"},
		{"\xff\xfe{", 3, "wf:1:1: the byte 0xff is not UTF-8; save the file as UTF-8\n"},
		{"{\"a\0\"}", 6,
			"wf:1:4: the control character U+0000 is not allowed here; remove it\n"},
		{"a: \x1b", 4,
			"wf:1:4: the control character U+001B is not allowed here; remove it\n"},
		{"", 0, "wf: the workflow is empty\n"},
		{"\xef\xbb\xbf", 3, "wf: the workflow is empty\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(reading_release) struct reading reading = {0};

		read_with(&reading, cases[i].data, cases[i].len, NULL);

		assert_int_equal(reading.r, -PENSTOCK_E_INVALID);
		assert_string_equal(buf_str(&reading.lines), cases[i].wanted);
	}
}

/* At most a hundred mistakes are shown, all are counted, and notes do not use up this limit. */
static void mistakes_are_bounded(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	buf_add_str(&text, MINIMAL "env:\n");
	for (int i = 0; i < 250; i++)
		buf_printf(&text, "  - A%d=x\n", i);
	for (int i = 0; i < 150; i++)
		buf_printf(&text, "  - {kee: %d}\n", i);

	reading = (struct reading){.lines = BUF_INIT(MIB)};
	reading.r = workflow_read(
		&reading.wf, "wf", text.data, text.len, NULL, &reading.found, &err);

	assert_int_equal(reading.r, -PENSTOCK_E_INVALID);
	assert_int_equal(reading.found.n, 2 * LIMIT_WORKFLOW_ERRORS);
	assert_int_equal(reading.found.errors, 300);
	assert_non_null(strstr(err.message, "300"));
}

/* Nested aliases grow exponentially; the limit on values stops them. */
static void an_alias_bomb_is_defused(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB);

	(void)state;
	buf_add_str(&text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
	for (int i = 1; i < 9; i++)
		buf_printf(&text, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i,
			i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);

	read_with(&reading, text.data, text.len, NULL);

	assert_int_equal(reading.r, -PENSTOCK_E_INVALID);
	assert_non_null(strstr(
		buf_str(&reading.lines), "with its aliases the workflow has too many values"));
}

/* Too many values, anchors or bytes are refused, not truncated. */
static void sizes_are_bounded(void **state)
{
	_cleanup_(reading_release) struct reading json = {0};
	_cleanup_(reading_release) struct reading yaml = {0};
	_cleanup_(reading_release) struct reading anchors = {0};
	_cleanup_(reading_release) struct reading bytes = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_RECORD + 1);

	(void)state;
	buf_add_str(&text, "[0");
	for (size_t i = 0; i < LIMIT_WORKFLOW_NODES; i++)
		buf_add_str(&text, ",0");
	buf_add_str(&text, "]");
	read_with(&yaml, text.data, text.len, NULL);
	buf_clear(&text);
	buf_add_str(&text, "{\"a\":[0");
	for (size_t i = 0; i < LIMIT_WORKFLOW_NODES; i++)
		buf_add_str(&text, ",0");
	buf_add_str(&text, "]}");
	read_with(&json, text.data, text.len, NULL);
	buf_clear(&text);
	for (size_t i = 0; i <= LIMIT_WORKFLOW_ANCHORS; i++)
		buf_printf(&text, "- &a%zu x\n", i);
	read_with(&anchors, text.data, text.len, NULL);
	buf_clear(&text);
	while (!buf_failed(&text))
		buf_add_char(&text, ' ');
	read_with(&bytes, text.data, text.len, NULL);

	assert_int_equal(yaml.r, -PENSTOCK_E_INVALID);
	assert_non_null(strstr(buf_str(&json.lines), "200000"));
	assert_non_null(strstr(buf_str(&anchors.lines), "anchor"));
	assert_int_equal(bytes.r, -PENSTOCK_E_INVALID);
	assert_null(bytes.wf);
}

/* A script that is too long is a mistake, at any place in the file. */
static void long_scripts_are_refused(void **state)
{
	static const char *const files[] = {
		"provider: bash\ncommands: [x]\nbefore_run: ", "provider: bash\ncommands: "};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_RECORD);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_(reading_release) struct reading read = {0};

		buf_clear(&text);
		buf_add_str(&text, files[i]);
		for (size_t n = 0; n <= LIMIT_STRING; n++)
			buf_add_char(&text, 'x');
		read_with(&read, text.data, text.len, NULL);

		assert_int_equal(read.r, -PENSTOCK_E_INVALID);
		assert_non_null(strstr(buf_str(&read.lines), "1048576"));
	}
}

/* A long line with many values is read in linear time; otherwise the test would exceed the time
 * limit of the suite. */
static void long_lines_stay_linear(void **state)
{
	_cleanup_(reading_release) struct reading reading = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);

	(void)state;
	buf_add_str(&text, "{\"steps\":[{\"run\":{\"command\":\"x\"}}],\"env\":[");
	for (int i = 0; i < 60000; i++)
		buf_printf(&text, "%s{\"key\":\"A%d\",\"value\":\"x\"}", i ? "," : "", i);
	buf_add_str(&text, "],\"nname\":1}");

	read_with(&reading, text.data, text.len, NULL);

	assert_int_equal(reading.found.errors, 1);
	assert_int_equal(reading.found.items[0].column, (int)text.len - 9);
}

/* The prefix of keys follows from bucket URL and path, with slashes where they belong. */
static void prefixes_end_in_one_slash(void **state)
{
	static const struct {
		const char *bucket, *path, *wanted;
	} cases[] = {
		{"s3://abc", "/", ""},
		{"s3://abc", "/foo", "foo/"},
		{"s3://abc", "/foo/bar/", "foo/bar/"},
		{"s3://abc", "/foo//bar//", "foo//bar/"},
		{"s3://abc/runs", "/7", "runs/7/"},
		{"s3://abc/runs/", "7", "runs//7/"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(reading_release) struct reading reading = {0};
		_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);

		buf_printf(&text,
			MINIMAL "output: {s3: {bucketUrl: \"%s\", path: \"%s\", endpointUrl: "
				"embedded}}\n",
			cases[i].bucket, cases[i].path);
		read_text(&reading, buf_str(&text));

		assert_int_equal(reading.r, 0);
		assert_string_equal(reading.wf->output.s3.bucket, "abc");
		assert_string_equal(reading.wf->output.s3.prefix, cases[i].wanted);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_seed_workflows_are_understood),
		cmocka_unit_test(every_value_knows_its_place),
		cmocka_unit_test(the_digest_is_of_what_is_written_and_not_of_how),
		cmocka_unit_test(the_digest_is_without_signatures_of_urls),
		cmocka_unit_test(the_digest_changes_with_the_workflow_and_not_with_overrides),
		cmocka_unit_test(credentials_know_their_source),
		cmocka_unit_test(a_record_finds_its_secrets_in_the_file_again),
		cmocka_unit_test(a_record_reads_without_notes),
		cmocka_unit_test(references_may_be_kept),
		cmocka_unit_test(references_are_resolved_from_the_environment),
		cmocka_unit_test(resolved_values_are_not_resolved_again),
		cmocka_unit_test(a_field_that_is_gone_is_reported),
		cmocka_unit_test(a_field_is_found_where_it_was_moved_to),
		cmocka_unit_test(values_of_variables_may_be_gone_where_nothing_starts),
		cmocka_unit_test(marks_and_carriage_returns_are_fine),
		cmocka_unit_test(bytes_that_are_no_text_are_reported),
		cmocka_unit_test(mistakes_are_bounded),
		cmocka_unit_test(an_alias_bomb_is_defused),
		cmocka_unit_test(sizes_are_bounded),
		cmocka_unit_test(long_scripts_are_refused),
		cmocka_unit_test(long_lines_stay_linear),
		cmocka_unit_test(prefixes_end_in_one_slash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
