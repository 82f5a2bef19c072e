/* `context`, `python` and `artifacts`: files and packages that are not inputs. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/native/native.h"

bool check_below(
	struct reader *rd, const char *key, const char *where, const struct workflow_text *path)
{
	if (!reader_knows(rd, path) ||
		(*path->value && *path->value != '/' && !reader_has_dots(path->value)))
		return true;
	reader_refuse(rd, path, key,
		"be a path below %s, without `/` in front and without `.` or `..`", where);
	return false;
}

/* ---- artifacts of another run ---- */

static void check_artifacts_of(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_artifacts *from = out;

	if (node_get(map, "run") && node_get(map, "tag"))
		reader_error_of(rd, &from->tag.at, NULL, "has both `run` and `tag`; keep one");
	else if (!node_get(map, "run") && !node_get(map, "tag"))
		reader_missing(rd, map, &schema_artifacts_of, "run");
}

static const struct schema_key artifacts_of_keys[] = {
	{"run", TEXT(workflow_artifacts, run),
		.says = "the name of a run whose newest attempt succeeded; give `run` or `tag`"},
	{"tag", TEXT(workflow_artifacts, tag), .says = "a tag that `penstock tag` made"},
};
const struct schema schema_artifacts_of = {
	SCHEMA("artifacts", "`artifacts` of an input", artifacts_of_keys),
	AT(workflow_artifacts, at), .check = check_artifacts_of};

/* ---- context ---- */

static void check_context(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_context *context = out;

	rd->workflow->has_work_dir = true;
	if (context->path.value && !*context->path.value)
		reader_error_of(
			rd, &context->path.at, "path", "is empty; the folder of this file is `.`");
	else if (context->path.value)
		reader_anchor(rd, node_get(map, "path"), &context->path);
}

static const char *const ignore_words[] = {
	[WORKFLOW_IGNORE_NONE] = "none",
	[WORKFLOW_IGNORE_GIT] = "gitignore",
	[WORKFLOW_IGNORE_DET] = "detignore",
	NULL,
};

static const struct schema_key context_keys[] = {
	{"path", TEXT(workflow_context, path), .flags = KEY_SHOWN, .value = "directory",
		.otherwise = "an empty directory",
		.says = "a directory, relative to the folder of the workflow file; it is copied to "
			"`$STORAGE_PATH/work`, where every step without `workDir` starts"},
	{"ignore", WORD(workflow_context, ignore, ignore_words), .flags = KEY_SHOWN,
		.says = "`gitignore` leaves out `.git` and the matches of `.gitignore`; "
			"`detignore` leaves out the matches of `.detignore` and what Determined "
			"leaves out"},
	{"maxBytes", NUMBER(workflow_context, max_bytes, 1, INT64_MAX), .value = "bytes",
		.says = "a larger context is an error, before anything runs"},
};
const struct schema schema_context = {SCHEMA("context", "`context`", context_keys),
	AT(workflow_context, at), .check = check_context};

/* ---- python ---- */

static bool is_version(const char *text)
{
	size_t major = strspn(text, "0123456789");
	size_t minor = text[major] == '.' ? strspn(text + major + 1, "0123456789") : 0;

	return major && minor && !text[major + 1 + minor];
}

static void check_python(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_python *python = out;

	(void)map;
	rd->workflow->has_work_dir = true;
	check_below(rd, "requirements", "the working directory", &python->requirements);
	if (reader_knows(rd, &python->version) && !is_version(python->version.value))
		reader_refuse(rd, &python->version, "version", "be a version such as 3.11");
}

static const struct schema_key python_keys[] = {
	{"requirements", TEXT(workflow_python, requirements), .flags = KEY_SHOWN,
		.value = "path in the working directory",
		.says = "a requirements file; pip installs its packages once, into an "
			"environment that all runs with the same requirements share"},
	{"version", TEXT(workflow_python, version), .flags = KEY_SHOWN, .value = "such as `3.11`",
		.otherwise = "the version of `python3`",
		.says = "the version of Python; it must be installed on this machine"},
	{"systemPackages", FLAG(workflow_python, system_packages), .flags = KEY_SHOWN, .preset = 1,
		.says = "the packages of the machine are visible, and those that meet the "
			"requirements are not installed again"},
	{"determined", FLAG(workflow_python, determined), .flags = KEY_SHOWN,
		.says = "the `determined` package works without its master: checkpoints and "
			"metrics go to the output"},
};
const struct schema schema_python = {SCHEMA("python", "`python`", python_keys),
	.given = offsetof(struct workflow_python, given) + 1, AT(workflow_python, at),
	.check = check_python};

/* ---- artifacts ---- */

static bool read_artifact(struct reader *rd, struct node *item, void *path)
{
	return reader_text_of(rd, item, buf_str(&rd->path), path) &&
	       check_below(rd, NULL, "the working directory", path);
}

void read_artifacts(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;

	wf->artifacts = reader_each(
		rd, job, "artifacts", sizeof(*wf->artifacts), &wf->n_artifacts, read_artifact);
	if (wf->n_artifacts)
		wf->has_work_dir = true;
}
