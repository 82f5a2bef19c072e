#include "workflow/workflow.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "workflow/document/canonical.h"
#include "workflow/dialects/dialect.h"
#include "workflow/native/native.h"
#include "workflow/document/reference.h"
#include "workflow/document/secrets.h"
#include "base/banned.h"

struct workflow_own {
	struct workflow_arena arena;
	struct node *job; /* overrides applied, legacy forms normalized */
};

void workflow_free(struct workflow *workflow)
{
	if (!workflow)
		return;
	if (workflow->own)
		workflow_arena_release(&workflow->own->arena);
	free(workflow->own);
	free(workflow);
}

int workflow_place_format(
	const struct workflow *workflow, const struct workflow_place *at, struct buf *out)
{
	if (at->option)
		return buf_add_str(out, at->option);
	if (at->line)
		return buf_printf(out, "%s:%d:%d", at->file ? at->file : workflow->file, at->line,
			at->column);
	return buf_add_str(out, workflow->file);
}

/* The dialect that most keys of `root` belong to; NULL if it is a native workflow. */
static const struct dialect *dialect_of(const struct node *root, const char *file)
{
	static const struct dialect *const all[] = {
		&dialect_dstack, &dialect_determined, &dialect_skypilot};
	const struct dialect *best = NULL;
	int most = 0;

	if (root->kind != NODE_MAP || node_find(root, "steps") || node_find(root, "job"))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int keys = all[i]->recognise(root, file);

		if (keys > most) {
			most = keys;
			best = all[i];
		}
	}
	return best;
}

/* The workflow inside the optional `job:` wrapper. NULL if it is invalid, which is reported. */
static struct node *unwrap(const char *file, struct node *root, struct diagnostics *found)
{
	struct node *job;

	if (root->kind != NODE_MAP) {
		diagnostics_add(found, DIAGNOSTIC_ERROR, file, &root->at,
			"a workflow is a map with `steps`, not %s", node_kind_name(root));
		return NULL;
	}
	job = node_get(root, "job");
	if (!job)
		return root;
	for (size_t i = 0; i < root->n; i++) {
		if (strcmp(root->entries[i].key, "job") != 0)
			diagnostics_add(found, DIAGNOSTIC_ERROR, file, &root->entries[i].key_at,
				"%s is next to `job`, which contains the whole workflow; move "
				"it into `job`",
				quote(root->entries[i].key));
	}
	if (job->kind == NODE_MAP)
		return job;
	diagnostics_add(found, DIAGNOSTIC_ERROR, file, &job->at, "`job` must be a map, not %s",
		node_kind_name(job));
	return NULL;
}

/* The native tree of the document, with its secrets marked. NULL if there is none; reported. */
static struct node *job_of(struct reader *rd, struct node *root)
{
	const struct dialect *dialect = dialect_of(root, rd->workflow->file);
	struct node *job;

	rd->workflow->dialect = dialect ? dialect->name : "penstock";
	if (dialect) {
		secrets_mark(rd->arena, root);
		job = dialect->translate(rd, root);
		rd->partial = rd->found->errors > 0;
		return job;
	}
	job = unwrap(rd->workflow->file, root, rd->found);
	if (!job)
		return NULL;
	legacy_forms_normalize(rd->arena, rd->workflow->file, job, rd->found);
	secrets_mark(rd->arena, job);
	return job;
}

static void read_document(struct reader *rd, const char *data, size_t len)
{
	struct workflow *wf = rd->workflow;
	struct node *root = document_read(rd->arena, wf->file, data, len, rd->found);
	struct node *job = root ? job_of(rd, root) : NULL;
	struct overrides o = {{.arena = rd->arena, .file = wf->file, .found = rd->found}, job};
	const struct strlist *sets = rd->options->sets;
	const struct strlist *env = rd->options->env;
	int r;

	if (!job)
		return;
	r = canonical_digest(job, wf->digest);
	if (r == -PENSTOCK_E_MEMORY)
		rd->arena->no_memory = true;
	if (r == -PENSTOCK_E_LIMIT)
		diagnostics_add(rd->found, DIAGNOSTIC_ERROR, wf->file, NULL,
			"with its aliases expanded the workflow is too large");
	if (r < 0)
		return;
	/* An override may refer to a part that was left out as invalid. */
	for (size_t i = 0; !rd->partial && sets && i < sets->n; i++)
		overrides_set(&o, sets->items[i]);
	for (size_t i = 0; !rd->partial && env && i < env->n; i++)
		overrides_env(&o, env->items[i]);
	/* Again, for legacy forms in overrides. */
	legacy_forms_normalize(rd->arena, wf->file, job, rd->found);
	wf->own->job = job;
	read_native(rd, job);
}

static struct workflow *workflow_new(const char *name)
{
	struct workflow *wf = calloc(1, sizeof(*wf));

	if (!wf)
		return NULL;
	wf->own = calloc(1, sizeof(*wf->own));
	if (wf->own)
		wf->file = workflow_arena_copy(&wf->own->arena, name, strlen(name));
	if (!wf->file) {
		workflow_free(wf);
		return NULL;
	}
	return wf;
}

int workflow_read(struct workflow **out, const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct diagnostics *found,
	struct penstock_error *err)
{
	static const struct workflow_options none = {0};
	_cleanup_(workflow_freep) struct workflow *wf = NULL;
	struct reader rd = {
		.options = options ? options : &none,
		.found = found,
		.path = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.number = BUF_INIT(LIMIT_STRING),
	};
	bool in_file = false;

	/* The caller limits files to half of this; records are larger. */
	if (len > LIMIT_WORKFLOW_RECORD)
		return error_set(err, PENSTOCK_E_INVALID,
			"%s has %zu bytes; a workflow has at most %zu", name, len,
			(size_t)LIMIT_WORKFLOW_FILE);
	wf = workflow_new(name);
	if (!wf)
		return error_memory(err);
	rd.workflow = wf;
	rd.arena = &wf->own->arena;
	read_document(&rd, data, len);
	if (buf_failed(&rd.path) || buf_failed(&rd.number))
		rd.arena->no_memory = true;
	buf_release(&rd.path);
	buf_release(&rd.number);
	diagnostics_sort(found);
	if (rd.arena->no_memory || found->no_memory || log_redact_failed())
		return error_memory(err);
	for (size_t i = 0; i < found->n; i++)
		in_file |= found->items[i].severity == DIAGNOSTIC_ERROR && !found->items[i].option;
	if (found->errors)
		return error_set(err, PENSTOCK_E_INVALID, "%s has %zu mistake%s",
			!in_file ? "the command line"
			: diagnostics_all_of(found, rd.options->defaults_name)
				? rd.options->defaults_name
				: name,
			found->errors, found->errors == 1 ? "" : "s");
	*out = take_pointer(wf);
	return 0;
}

int workflow_names(const void *data, size_t len, struct strlist *out, struct penstock_error *err)
{
	struct workflow_arena arena = {0};
	struct diagnostics found = {0};
	struct node *root = len <= LIMIT_WORKFLOW_FILE
				    ? document_read(&arena, "", data, len, &found)
				    : NULL;
	const struct node *list = root && root->kind == NODE_MAP ? node_get(root, "workflows")
								 : NULL;
	int r = arena.no_memory || found.no_memory ? error_memory(err) : 0;

	for (size_t i = 0; r == 0 && list && list->kind == NODE_LIST && list->n > 1 && i < list->n;
		i++) {
		const struct node *item = list->entries[i].value;
		const char *name = item->kind == NODE_MAP ? dialect_text(item, "name") : NULL;

		if (name && strlist_add(out, name) < 0)
			r = error_memory(err);
	}
	workflow_arena_release(&arena);
	diagnostics_release(&found);
	return r;
}

int workflow_write_record(const struct workflow *workflow, struct buf *out)
{
	return record_write(workflow->own->job, out);
}

struct finding {
	struct workflow_arena arena;
	struct diagnostics found; /* not reported to the user */
	const struct dialect *dialect;
	struct node *root;
	const char *pair; /* the value, if it is the end of its node's text */
};

/* Finds the scalar at `field`; "LIST[2].NAME" is a member of a list that is the text
 * "NAME=VALUE". */
static const struct node *find_node(struct finding *f, const char *field)
{
	const struct node *node = overrides_find(&f->arena, f->root, field);
	const char *dot = strrchr(field, '.');
	const char *parent;
	size_t len;

	f->pair = NULL;
	if (!node && dot) {
		len = strlen(dot + 1);
		parent = workflow_arena_copy(&f->arena, field, (size_t)(dot - field));
		node = parent ? overrides_find(&f->arena, f->root, parent) : NULL;
		if (!node || node->kind != NODE_SCALAR || strncmp(node->text, dot + 1, len) != 0 ||
			node->text[len] != '=')
			return NULL;
		f->pair = node->text + len + 1;
	}
	return node && node->kind == NODE_SCALAR && !node_is_null(node) ? node : NULL;
}

/* Puts the values of dstack's variables into the workflow that contains `field`. A text with an
 * unknown variable is removed. */
static void expand_variables(
	struct finding *f, const char *name, const char *field, const struct workflow_options *o)
{
	struct reader rd = {
		.workflow = &(struct workflow){.file = name},
		.arena = &f->arena,
		.options = o,
		.found = &f->found,
		.path = BUF_INIT(LIMIT_WORKFLOW_FILE),
	};
	const struct node *list = node_get(f->root, "workflows");
	size_t i;

	if (f->dialect != &dialect_dstack || !str_starts(field, "workflows["))
		return;
	i = strtoul(field + strlen("workflows["), NULL, 10);
	if (list && list->kind == NODE_LIST && i < list->n)
		dstack_expand(&rd, list->entries[i].value);
	buf_release(&rd.path);
}

/* Appends `text` with its references resolved. Returns false if one has no value. */
static bool add_resolved(struct workflow_arena *arena, const char *text,
	const struct workflow_options *o, struct buf *value)
{
	struct reference ref;
	int found;

	while ((found = reference_find(text, &ref)) == 1) {
		const char *name = workflow_arena_copy(arena, ref.name, ref.name_len);

		if (ref.source != WORKFLOW_FROM_ENV && ref.source != WORKFLOW_FROM_SECRET)
			return false;
		buf_add(value, text, (size_t)(ref.start - text));
		if (!name || !o || !o->resolve || !o->resolve(o->cookie, ref.source, name, value))
			return false;
		text = ref.end;
	}
	buf_add_str(value, text);
	return found == 0;
}

static int find_value(struct finding *f, const char *name, const char *field,
	const struct workflow_options *options, struct buf *value, struct penstock_error *err)
{
	const struct node *node = find_node(f, field);
	size_t saved = value->len;
	bool good;

	if (node && options && strstr(node->text, "${{")) {
		expand_variables(f, name, field, options);
		node = find_node(f, field);
	}
	good = node && add_resolved(&f->arena, f->pair ? f->pair : node->text, options, value);
	if (f->arena.no_memory || f->found.no_memory)
		return error_memory(err);
	if (buf_failed(value))
		return buf_error(value, field, err);
	if (good)
		return 0;
	buf_truncate(value, saved);
	return error_set(err, PENSTOCK_E_NOT_FOUND, "%s no longer contains %s", name, field);
}

int workflow_find_field(const char *name, const void *data, size_t len, const char *field,
	const struct workflow_options *options, struct buf *value, struct penstock_error *err)
{
	struct finding f = {0};
	int r;

	if (len <= LIMIT_WORKFLOW_RECORD)
		f.root = document_read(&f.arena, name, data, len, &f.found);
	f.dialect = f.root ? dialect_of(f.root, name) : NULL;
	if (f.root && !f.dialect) {
		f.root = unwrap(name, f.root, &f.found);
		if (f.root)
			legacy_forms_normalize(&f.arena, name, f.root, &f.found);
	}
	if (f.arena.no_memory || f.found.no_memory)
		r = error_memory(err);
	else if (!f.root)
		r = error_set(err, PENSTOCK_E_INVALID, "%s cannot be read as a workflow", name);
	else
		r = find_value(&f, name, field, options, value, err);
	workflow_arena_release(&f.arena);
	diagnostics_release(&f.found);
	return r;
}

bool workflow_retry_has_code(const struct workflow_retry *retry, int code)
{
	for (size_t i = 0; i < retry->n_codes; i++) {
		if (retry->codes[i] == code)
			return true;
	}
	return false;
}
