#include "cli/workflow/load_again.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "records/layout.h"
#include "records/records.h"
#include "s3/sum/checksum.h"
#include "workflow/changes.h"
#include "workflow/workflow.h"

static int sum_of(const struct load_source *source, char out[static 65])
{
	uint8_t digest[CHECKSUM_MAX_SIZE] = {0};
	int r = checksum_of(
		CHECKSUM_SHA256, buf_str(&source->bytes), source->bytes.len, digest, NULL);

	str_hex(digest, 32, out);
	return r;
}

static json_t *list_of(const struct strlist *texts)
{
	json_t *list = texts && texts->n ? json_array() : NULL;

	for (size_t i = 0; list && i < texts->n; i++)
		json_array_append_new(list, json_string(texts->items[i]));
	return list;
}

static char *describe(const struct load_source *source, const char *text, const char *pick,
	const struct load_given *given)
{
	json_auto_t *root = NULL;
	char sum[65];

	if (sum_of(source, sum) < 0)
		return NULL;
	/* The variables are stored only if `text` is not empty: `text` is empty if a variable may
	 * be a secret. */
	root = json_pack("{s:s, s:s*, s:s*, s:s*, s:o*, s:o*}", "sum", sum, "pick", pick, "context",
		source->context, "image", given->options.image, "variables",
		*text ? list_of(given->options.arguments) : NULL, "file",
		*text ? json_loads(text, 0, NULL) : NULL);
	return root ? json_dumps(root, JSON_INDENT(1)) : NULL;
}

char *load_again_describe(const struct load_source *source, const struct load_given *given)
{
	return *source->shown == '/'
		       ? describe(source, buf_str(&source->as_written), source->pick, given)
		       : NULL;
}

static json_t *read_description(const char *home, const char *id)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_SOURCE);
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);

	return path && access(path, F_OK) == 0 && fs_read(path, &text, NULL) == 0
		       ? json_loadb(buf_str(&text), text.len, 0, NULL)
		       : NULL;
}

char *load_again_pick(const char *home, const char *id)
{
	json_auto_t *description = read_description(home, id);
	const char *pick = json_string_value(json_object_get(description, "pick"));

	return pick ? strdup(pick) : NULL;
}

static int merge(const json_t *before, struct load_source *source, const struct load_given *given,
	struct buf *record, char **description, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf now = BUF_INIT(2 * LIMIT_WORKFLOW_FILE),
					  merged = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	const struct workflow_options options = load_source_options(source, given);
	_cleanup_(diagnostics_release) struct diagnostics found = {0};
	_cleanup_free_ char *old = json_dumps(before, 0);
	int r = old ? workflow_write_file(source->shown, buf_str(&source->bytes), source->bytes.len,
			      &options, &now, &found, err)
		    : error_memory(err);

	if (r < 0)
		load_print_found(&found, source->shown, &source->bytes);
	if (r == 0)
		r = workflow_merge(old, buf_str(&now), buf_str(record), &merged, err);
	if (r < 0)
		return r;
	buf_clear(record);
	buf_add(record, buf_str(&merged), merged.len);
	*description = describe(source, buf_str(&now), given->workflow, given);
	return buf_failed(record) ? buf_error(record, "the workflow", err) : 0;
}

int load_again(const char *home, const struct records_run *run, struct buf *record, char **source,
	struct penstock_error *err)
{
	json_auto_t *description = read_description(home, run->id);
	const json_t *before = json_object_get(description, "file");
	const char *sum = json_string_value(json_object_get(description, "sum"));
	_cleanup_(strlist_release) struct strlist variables = {0};
	const struct load_given given = {
		.operand = run->workflow,
		.workflow = json_string_value(json_object_get(description, "pick")),
		.context = json_string_value(json_object_get(description, "context")),
		.options = {.image = json_string_value(json_object_get(description, "image")),
			.arguments = &variables},
	};
	_cleanup_(load_source_release) struct load_source file = {0};
	const json_t *list = json_object_get(description, "variables");
	char now[65];
	int r;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));

		if (text && strlist_add(&variables, text) < 0)
			return error_memory(err);
	}
	*source = NULL;
	if (!sum || *run->workflow != '/' || access(run->workflow, R_OK) < 0 ||
		(given.context && access(given.context, F_OK) < 0))
		return 0;
	r = load_source_find(&file, &given, err);
	if (r < 0)
		return r;
	if (sum_of(&file, now) < 0 || (strcmp(now, sum) == 0 && !file.variables_name))
		return 0;
	if (before)
		return merge(before, &file, &given, record, source, err);
	if (strcmp(now, sum) != 0)
		log_warn(
			"ignoring the changes to '%s': a variable of the run may be a secret; only "
			"'penstock run' applies the changes",
			run->workflow);
	return 0;
}
