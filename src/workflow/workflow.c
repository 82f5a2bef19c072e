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

static const struct workflow_options no_options;

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

int workflow_error_at(const struct workflow *workflow, const struct workflow_place *at,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);

	workflow_place_format(workflow, at, &place);
	return error_prefix(err, "%s", buf_str(&place));
}

/* Returns the dialect with the most keys in `root`; NULL if `root` is a native workflow. */
static const struct dialect *dialect_of(const struct node *root, const char *file)
{
	static const struct dialect *const all[] = {
		&dialect_dstack, &dialect_determined, &dialect_skypilot};
	const struct dialect *best = NULL;
	int most = 0;

	if (root->kind != NODE_MAP || node_find(root, "steps") || node_find(root, "job"))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int keys = all[i]->recognise ? all[i]->recognise(root, file) : 0;

		for (const char *const *key = all[i]->keys; key && *key; key++)
			keys += node_find(root, *key) != NULL;
		if (keys > most) {
			most = keys;
			best = all[i];
		}
	}
	return best;
}

/* Returns the workflow inside the optional `job:` wrapper, without legacy forms; NULL if it is
 * invalid, which is reported. */
static struct node *unwrap(struct reader *rd, struct node *root)
{
	struct node *job;

	if (root->kind != NODE_MAP) {
		reader_error(rd, &root->at, "a workflow is a map with `steps`, not %s",
			node_kind_name(root));
		return NULL;
	}
	job = node_get(root, "job");
	for (size_t i = 0; job && i < root->n; i++) {
		if (strcmp(root->entries[i].key, "job") != 0)
			reader_error(rd, &root->entries[i].key_at,
				"%s is next to `job`, which contains the whole workflow; move "
				"it into `job`",
				quote(root->entries[i].key));
	}
	job = job ? job : root;
	if (job->kind != NODE_MAP) {
		reader_error(rd, &job->at, "`job` must be a map, not %s", node_kind_name(job));
		return NULL;
	}
	legacy_forms_normalize(rd, job);
	return job;
}

static bool ask_for_site(struct reader *rd)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct workflow_options *o = rd->options;

	if (!o->site || o->site(o->site_cookie, &rd->site, &err) == 0)
		return true;
	diagnostics_add(rd->found, DIAGNOSTIC_ERROR, rd->workflow->file, NULL, "%s", err.message);
	return false;
}

/* Sets the digest, which is the identity of a workflow without a name. The digest covers the
 * document and not its translation, which also contains facts about this machine. Returns NULL
 * after an error. */
static struct node *digested(struct reader *rd, struct node *node)
{
	int r = node ? canonical_digest(node, rd->workflow->digest) : 0;

	if (r == -PENSTOCK_E_MEMORY)
		rd->arena->no_memory = true;
	if (r == -PENSTOCK_E_LIMIT)
		diagnostics_add(rd->found, DIAGNOSTIC_ERROR, rd->workflow->file, NULL,
			"with its aliases expanded the workflow is too large");
	return r < 0 ? NULL : node;
}

/* Returns the native tree of the document, with its secrets marked; NULL after an error, which is
 * reported. */
static struct node *job_of(struct reader *rd, struct node *root)
{
	const struct dialect *dialect = dialect_of(root, rd->workflow->file);
	struct node *job;

	if (foreign_map(rd, root))
		return NULL;
	rd->workflow->dialect = dialect ? dialect->name : "penstock";
	if (dialect && !ask_for_site(rd))
		return NULL;
	if (dialect) {
		secrets_mark(rd->arena, root);
		if (!digested(rd, root))
			return NULL;
		job = dialect->translate(rd, root);
		if (job)
			native_default_cpus(rd, job);
		rd->partial = rd->found->errors > 0;
		return job;
	}
	if (rd->options->image)
		reader_error(rd, &(struct workflow_place){.option = "--image"},
			"is for files of other runners; a penstock workflow names the image of "
			"each step in its `container`");
	job = unwrap(rd, root);
	if (job)
		secrets_mark(rd->arena, job);
	return digested(rd, job);
}

static void read_document(struct reader *rd, const char *data, size_t len)
{
	struct workflow *wf = rd->workflow;
	struct node *root = foreign_text(rd, data, len)
				    ? NULL
				    : document_read(rd->arena, wf->file,
					      skypilot_pick(rd, data, len), len, rd->found);
	struct node *job = root ? job_of(rd, root) : NULL;
	struct overrides o = {{.arena = rd->arena, .file = wf->file, .found = rd->found}, job};
	const struct strlist *sets = rd->options->sets;
	const struct strlist *env = rd->options->env;

	if (!job)
		return;
	if (rd->options->as_written && !rd->found->errors)
		record_write(job, rd->options->as_written);
	/* An override may refer to a part that was left out as invalid. */
	for (size_t i = 0; !rd->partial && sets && i < sets->n; i++)
		overrides_set(&o, sets->items[i]);
	for (size_t i = 0; !rd->partial && env && i < env->n; i++)
		overrides_env(&o, env->items[i]);
	/* Overrides may have legacy forms, too. */
	legacy_forms_normalize(rd, job);
	wf->own->job = job;
	read_native(rd, job);
}

int workflow_read(struct workflow **out, const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct diagnostics *found,
	struct penstock_error *err)
{
	_cleanup_(workflow_freep) struct workflow *wf = NULL;
	struct reader rd = {
		.options = options ? options : &no_options,
		.found = found,
		.path = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.number = BUF_INIT(LIMIT_STRING),
	};
	bool in_file = false;

	/* The caller limits files to LIMIT_WORKFLOW_FILE; records are larger. */
	if (len > LIMIT_WORKFLOW_RECORD)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read '%s': it has %zu bytes, but a workflow may have at most %zu",
			name, len, (size_t)LIMIT_WORKFLOW_FILE);
	wf = calloc(1, sizeof(*wf));
	if (wf)
		wf->own = calloc(1, sizeof(*wf->own));
	if (wf && wf->own)
		wf->file = workflow_arena_copy(&wf->own->arena, name, strlen(name));
	if (!wf || !wf->file)
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
	struct node *root;
	const struct node *list;
	int r;

	if (len <= LIMIT_WORKFLOW_FILE)
		skypilot_tasks(&arena, data, len, out);
	root = out->n			    ? NULL
	       : len <= LIMIT_WORKFLOW_FILE ? document_read(&arena, "", data, len, &found)
					    : NULL;
	list = root && root->kind == NODE_MAP ? node_get(root, "workflows") : NULL;
	r = arena.no_memory || found.no_memory ? error_memory(err) : 0;

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

int workflow_defined(const void *data, size_t len, struct strlist *out)
{
	struct workflow_arena arena = {0};
	struct diagnostics ignored = {0};
	const struct node *root = document_read(&arena, "", data, len, &ignored);
	const struct node *list = root && root->kind == NODE_MAP ? node_get(root, "workflows")
								 : NULL;
	int r = arena.no_memory ? -1 : 0;

	for (size_t i = 0; r == 0 && list && list->kind == NODE_LIST && i < list->n; i++) {
		const struct node *item = list->entries[i].value;
		const char *own = item->kind == NODE_MAP ? dialect_text(item, "name") : NULL;

		if (own)
			r = strlist_add(out, own);
	}
	workflow_arena_release(&arena);
	diagnostics_release(&ignored);
	return r;
}

void workflow_pipeline(const void *data, size_t len, struct strlist *out)
{
	struct workflow_arena arena = {0};

	skypilot_tasks(&arena, data, len, out);
	workflow_arena_release(&arena);
}

int workflow_write_record(const struct workflow *workflow, struct buf *out)
{
	return record_write(workflow->own->job, out);
}

int workflow_write_file(const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct buf *out, struct diagnostics *found,
	struct penstock_error *err)
{
	struct workflow_arena arena = {0};
	struct workflow workflow = {.file = name};
	struct reader rd = {
		.workflow = &workflow,
		.arena = &arena,
		.options = options ? options : &no_options,
		.found = found,
		.path = BUF_INIT(LIMIT_WORKFLOW_FILE),
		.number = BUF_INIT(LIMIT_STRING),
	};
	struct node *root = len <= LIMIT_WORKFLOW_FILE
				    ? document_read(&arena, name, skypilot_pick(&rd, data, len),
					      len, found)
				    : NULL;
	const struct node *job = root ? job_of(&rd, root) : NULL;
	int r = 0;

	if (arena.no_memory || found->no_memory || log_redact_failed())
		r = error_memory(err);
	else if (!job || found->errors)
		r = error_set(err, PENSTOCK_E_INVALID, "'%s' has mistakes", name);
	else if (record_write(job, out) < 0)
		r = buf_error(out, "the workflow", err);
	buf_release(&rd.path);
	buf_release(&rd.number);
	workflow_arena_release(&arena);
	return r;
}

/* Finds the scalar at `field`. "LIST[2].NAME" is a member of a list that is the text "NAME=VALUE";
 * `*value` is then its VALUE. Returns NULL if there is no such scalar. */
static const struct node *find_scalar(
	struct reader *rd, const struct node *root, const char *field, const char **value)
{
	const struct node *node = overrides_find(rd->arena, root, field);
	const char *dot = strrchr(field, '.');
	const char *parent;
	size_t len;

	if (!node && dot) {
		len = strlen(dot + 1);
		parent = workflow_arena_copy(rd->arena, field, (size_t)(dot - field));
		node = parent ? overrides_find(rd->arena, root, parent) : NULL;
		if (!node || node->kind != NODE_SCALAR || strncmp(node->text, dot + 1, len) != 0 ||
			node->text[len] != '=')
			return NULL;
		*value = node->text + len + 1;
		return node;
	}
	if (!node || node->kind != NODE_SCALAR || node_is_null(node))
		return NULL;
	*value = node->text;
	return node;
}

/* Puts the values of dstack's variables into the workflow that contains `field`. A text with an
 * unknown variable is removed. */
static void expand_variables(struct reader *rd, const struct node *root, const char *field)
{
	const struct node *list = node_get(root, "workflows");
	size_t i;

	if (!str_starts(field, "workflows["))
		return;
	i = strtoul(field + strlen("workflows["), NULL, 10);
	if (list && list->kind == NODE_LIST && i < list->n)
		dstack_expand(rd, list->entries[i].value);
}

/* Appends `text` with its references resolved. Returns false if a reference is invalid or has no
 * value. */
static bool add_resolved(struct reader *rd, const char *text, struct buf *value)
{
	const struct workflow_options *o = rd->options;
	struct reference ref;
	int found;

	while ((found = reference_find(text, &ref)) == 1) {
		const char *name = workflow_arena_copy(rd->arena, ref.name, ref.name_len);

		if (ref.source != WORKFLOW_FROM_ENV && ref.source != WORKFLOW_FROM_SECRET)
			return false;
		buf_add(value, text, (size_t)(ref.start - text));
		if (!name || !o->resolve || !o->resolve(o->cookie, ref.source, name, value))
			return false;
		text = ref.end;
	}
	buf_add_str(value, text);
	return found == 0;
}

int workflow_find_field(const char *name, const void *data, size_t len, const char *field,
	const struct workflow_options *options, struct buf *value, struct penstock_error *err)
{
	struct workflow_arena arena = {0};
	struct diagnostics mistakes = {0}; /* not reported to the user */
	struct reader rd = {
		.workflow = &(struct workflow){.file = name},
		.arena = &arena,
		.options = options ? options : &no_options,
		.found = &mistakes,
		.path = BUF_INIT(LIMIT_WORKFLOW_FILE),
	};
	struct node *root = len <= LIMIT_WORKFLOW_RECORD
				    ? document_read(&arena, name, skypilot_pick(&rd, data, len),
					      len, &mistakes)
				    : NULL;
	const struct dialect *dialect = root ? dialect_of(root, name) : NULL;
	const struct node *node = NULL;
	const char *text = NULL;
	size_t saved = value->len;
	bool good;
	int r = 0;

	if (root && !dialect)
		root = unwrap(&rd, root);
	if (root)
		node = find_scalar(&rd, root, field, &text);
	if (node && options && dialect == &dialect_dstack && strstr(node->text, "${{")) {
		expand_variables(&rd, root, field);
		node = find_scalar(&rd, root, field, &text);
	}
	good = node && add_resolved(&rd, text, value);
	if (arena.no_memory || mistakes.no_memory) {
		r = error_memory(err);
	} else if (!root) {
		r = error_set(err, PENSTOCK_E_INVALID, "cannot read '%s' as a workflow", name);
	} else if (buf_failed(value)) {
		r = buf_error(value, field, err);
	} else if (!good) {
		buf_truncate(value, saved);
		r = error_set(
			err, PENSTOCK_E_NOT_FOUND, "'%s' no longer contains '%s'", name, field);
	}
	buf_release(&rd.path);
	workflow_arena_release(&arena);
	diagnostics_release(&mistakes);
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
