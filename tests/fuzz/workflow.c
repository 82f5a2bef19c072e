/* The first byte selects the options; the rest is a workflow in JSON or YAML. */
#include "fuzz.h"

#include "base/error.h"
#include "workflow/workflow.h"

/* Resolves every reference. */
static bool resolve(void *cookie, enum workflow_source source, const char *name, struct buf *value)
{
	(void)cookie;
	(void)source;
	return buf_add_str(value, *name ? name : "x") == 0;
}

/* The text after a line "%%%" is the content of every module. */
static const char *module_text;

static int module(void *cookie, const char *source, struct buf *text, struct penstock_error *err)
{
	(void)cookie;
	(void)source;
	if (!module_text)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "there is no module");
	return buf_add_str(text, module_text) < 0 ? buf_error(text, "it", err) : 0;
}

static void read_again(const struct buf *record)
{
	struct workflow_options options = {.resolve = resolve};
	struct diagnostics found = {0};
	struct workflow *wf = NULL;

	require(workflow_read(
			&wf, "record", buf_str(record), record->len, &options, &found, NULL) == 0);
	workflow_free(wf);
	diagnostics_release(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct workflow_options options = {.resolve = resolve};
	struct strlist sets = {0};
	struct diagnostics found = {0};
	struct workflow *wf = NULL;

	if (size < 1)
		return 0;
	options.keep_references = data[0] & 1;
	if (data[0] & 2) {
		/* The first line is an override. */
		const uint8_t *newline = memchr(data + 1, '\n', size - 1);
		size_t n = newline ? (size_t)(newline - data) : size;
		_cleanup_free_ char *set = fuzz_text(data + 1, n - 1);

		require(strlist_add(&sets, set) == 0);
		options.sets = &sets;
		data += n;
		size -= n;
	} else {
		data++;
		size--;
	}
	_cleanup_free_ char *text = malloc(size ? size : 1);

	require(text);
	memcpy(text, data, size);
	module_text = NULL;
	char *mark = memmem(text, size, "\n%%%\n", 5);
	_cleanup_free_ char *rest = NULL;

	if (mark) {
		size_t at = (size_t)(mark - text) + 1;

		rest = fuzz_text((const uint8_t *)mark + 5, size - at - 4);
		module_text = rest;
		size = at;
		options.module = module;
	}
	int rc = workflow_read(&wf, "fuzz.yaml", text, size, &options, &found, &err);

	require_error(rc, &err);
	require((rc == 0) == (wf != NULL));
	if (wf)
		workflow_note_host(wf, options.keep_references, &found);
	require(found.n <= LIMIT_WORKFLOW_ERRORS + 1000);
	for (size_t i = 0; i < found.n; i++) {
		_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);

		require(diagnostic_format(&found.items[i], &line) == 0);
		require(!strchr(buf_str(&line), '\n'));
	}
	if (rc == 0) {
		_cleanup_(buf_release) struct buf json = BUF_INIT(64 * MIB),
						  record = BUF_INIT(64 * MIB);

		require(workflow_print_json(wf, &json) == 0);
		if (workflow_write_record(wf, &record) == 0 && !options.keep_references)
			read_again(&record);
	}
	workflow_free(wf);
	diagnostics_release(&found);
	strlist_release(&sets);
	return 0;
}
