/* What a workflow brings along beside its data: a context directory, Python packages, artifacts. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/reader.h"
#include "base/banned.h"

/* Whether `path` stays below the directory that it is relative to. */
static bool stays_below(
	struct reader *rd, const char *key, const char *where, const struct workflow_text *path)
{
	char quoted[QUOTE_SIZE];

	if (reader_is_open(rd, path))
		return true;
	if (*path->value && *path->value != '/' && !reader_has_dots(path->value))
		return true;
	reader_error(rd, &path->at, "`%s` lies below %s: no `/` in front, no `.` or `..`, not %s",
		key, where, quote(workflow_shown(path), quoted));
	return false;
}

void read_artifacts_of(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	struct workflow_artifacts *from = &input->artifacts;
	size_t saved = reader_enter(rd, "artifacts", 0);

	from->at = map->at;
	if (reader_check_map(rd, map, &schema_artifacts_of)) {
		reader_text(rd, map, "run", &from->run);
		reader_text(rd, map, "tag", &from->tag);
		if (node_get(map, "run") && node_get(map, "tag"))
			reader_error(rd, &from->tag.at, "`%s` has both `run` and `tag`; keep one",
				buf_str(&rd->path));
		else if (!node_get(map, "run") && !node_get(map, "tag"))
			reader_missing(rd, map, &schema_artifacts_of, "run",
				"the name of the run, or `tag`");
	}
	reader_leave(rd, saved);
}

void read_link(struct reader *rd, const struct node *map, struct workflow_input *input)
{
	if (!reader_text(rd, map, "link", &input->link))
		return;
	rd->workflow->has_work_dir = true;
	if (strcmp(input->link.value, ".") != 0)
		stays_below(rd, reader_field(rd, "link"), "the working directory", &input->link);
}

/* `context: DIR` is short for `context: {path: DIR}`. */
static struct node *context_map(struct reader *rd, const struct node *job)
{
	struct node_entry *entry = node_find(job, "context");
	struct node *map;

	if (!entry || node_is_null(entry->value))
		return NULL;
	if (entry->value->kind != NODE_SCALAR)
		return entry->value;
	map = node_new(rd->arena, NODE_MAP, entry->value->at);
	if (!map || node_add(rd->arena, map, "path", entry->value->at, entry->value) < 0)
		return NULL;
	entry->value = map;
	return map;
}

static void read_ignore(struct reader *rd, const struct node *map, struct workflow_context *context)
{
	static const char *const words[] = {"none", "gitignore", "detignore"};
	struct workflow_text given = {0};
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, map, "ignore", &given))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(given.value, words[i]) == 0) {
			context->ignore = (enum workflow_ignore)i;
			return;
		}
	}
	reader_error(rd, &given.at, "`%s` is none, gitignore or detignore, not %s",
		reader_field(rd, "ignore"), quote(workflow_shown(&given), quoted));
}

static void read_context(struct reader *rd, const struct node *job)
{
	struct workflow_context *context = &rd->workflow->context;
	struct node *map = context_map(rd, job);
	size_t saved;

	context->at = job->at;
	if (!map)
		return;
	context->at = map->at;
	rd->workflow->has_work_dir = true;
	saved = reader_enter(rd, "context", 0);
	if (reader_check_map(rd, map, &schema_context)) {
		if (!node_get(map, "path"))
			reader_missing(
				rd, map, &schema_context, "path", "a directory of this machine");
		else if (reader_text(rd, map, "path", &context->path) && !*context->path.value)
			reader_error(rd, &context->path.at,
				"`%s` is empty; the folder of this "
				"file is `.`",
				reader_field(rd, "path"));
		else if (context->path.value)
			reader_anchor(rd, node_get(map, "path"), &context->path);
		read_ignore(rd, map, context);
		reader_number(rd, map, "maxBytes", 1, INT64_MAX, &context->max_bytes);
	}
	reader_leave(rd, saved);
}

static bool is_version(const char *text)
{
	const char *dot = strchr(text, '.');

	return dot && dot > text && dot[1] && strspn(text, "0123456789") == (size_t)(dot - text) &&
	       dot[1 + strspn(dot + 1, "0123456789")] == '\0';
}

static void read_python(struct reader *rd, const struct node *job)
{
	struct workflow_python *python = &rd->workflow->python;
	struct node *map = reader_map(rd, job, "python");
	char quoted[QUOTE_SIZE];
	size_t saved;

	python->at = job->at;
	python->system_packages.value = true;
	if (!map)
		return;
	python->at = map->at;
	rd->workflow->has_work_dir = true;
	saved = reader_enter(rd, "python", 0);
	reader_check_map(rd, map, &schema_python);
	if (reader_text(rd, map, "requirements", &python->requirements))
		stays_below(rd, reader_field(rd, "requirements"), "the working directory",
			&python->requirements);
	if (reader_text(rd, map, "version", &python->version) &&
		!reader_is_open(rd, &python->version) && !is_version(python->version.value))
		reader_error(rd, &python->version.at, "`%s` is a version such as 3.11, not %s",
			reader_field(rd, "version"),
			quote(workflow_shown(&python->version), quoted));
	reader_flag(rd, map, "systemPackages", &python->system_packages);
	reader_leave(rd, saved);
}

static void read_artifacts(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	struct node *list = reader_list(rd, job, "artifacts");
	size_t saved;

	if (!list || !list->n)
		return;
	wf->has_work_dir = true;
	wf->artifacts = workflow_arena_array(rd->arena, list->n, sizeof(*wf->artifacts));
	if (!wf->artifacts)
		return;
	saved = reader_enter(rd, "artifacts", 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);
		struct workflow_text *path = &wf->artifacts[wf->n_artifacts];

		if (reader_text_of(rd, list->entries[i].value, buf_str(&rd->path), path) &&
			stays_below(rd, buf_str(&rd->path), "the working directory", path))
			wf->n_artifacts++;
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

void read_project(struct reader *rd, const struct node *job)
{
	read_context(rd, job);
	read_python(rd, job);
	read_artifacts(rd, job);
}
