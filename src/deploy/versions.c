/* The versions of a model below a prefix, and the choice of the version to serve. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "deploy/internal.h"
#include "s3/sum/checksum.h"

#define NAME_LETTERS	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=+-"
#define STATE_DIRECTORY ".penstock/" /* state of penstock */

struct seen_commit {
	char *path; /* path of the object, below the prefix */
	char etag[OBJECT_ETAG_SIZE];
	struct commit *commit; /* NULL if it is invalid, or was not read */
	bool unread; /* the next look tries again */
	bool warned;
	bool used; /* used by this look */
};

struct seen_content {
	char content[MODEL_CONTENT_SIZE];
	int64_t since_ms;
	bool used;
};

void model_release(struct model *model)
{
	for (size_t i = 0; i < model->n; i++)
		free(model->files[i].path);
	free(model->files);
	free(model->name);
	free(model->directory);
	*model = (struct model){0};
}

bool model_set(struct model *to, const char *name, const char *content)
{
	model_release(to);
	snprintf(to->content, sizeof(to->content), "%s", content);
	return str_copy(&to->name, name);
}

bool model_copy_name(struct model *to, const struct model *from)
{
	return !from->name || model_set(to, from->name, from->content);
}

void versions_release(struct versions *v)
{
	for (size_t i = 0; i < v->n_commits; i++) {
		free(v->commits[i].path);
		commit_free(v->commits[i].commit);
	}
	free(v->commits);
	free(v->contents);
	*v = (struct versions){0};
}

bool refused_has(const struct refused *refused, const char *content)
{
	for (size_t i = 0; i < refused->n; i++) {
		const struct refused_content *c = &refused->contents[i];

		if (strcmp(c->content, content) == 0 &&
			(!c->until_ms || clock_monotonic_ms() < c->until_ms))
			return true;
	}
	return false;
}

/* ---- one listing ---- */

struct look {
	struct versions *v;
	size_t cut; /* length of the prefix, which is cut off the paths of `files` */
	struct model_file *files;
	size_t n;
	/* indexes of the files next to the directories; each version includes these files */
	size_t *loose;
	size_t n_loose;
	bool too_many, no_memory;
	bool unfinished; /* a checkpoint has no commit yet */
};

static int on_object(void *cookie, const struct object_info *info)
{
	struct look *look = cookie;
	const char *path = info->key + look->cut;
	struct model_file *files;

	if (!*path || str_ends(path, "/") || str_starts(path, STATE_DIRECTORY))
		return 0;
	look->too_many = look->n == LIMIT_MODEL_FILES;
	if (look->too_many)
		return 1;
	files = array_grow(look->files, look->n, sizeof(*files));
	if (files)
		look->files = files;
	look->no_memory = !files || !(files[look->n].path = strdup(path));
	if (look->no_memory)
		return 1;
	snprintf(files[look->n].etag, OBJECT_ETAG_SIZE, "%s", info->etag);
	files[look->n].size = info->size;
	look->n++;
	return 0;
}

static void look_release(struct look *look)
{
	for (size_t i = 0; i < look->n; i++)
		free(look->files[i].path);
	free(look->files);
	free(look->loose);
}

static int list(struct look *look, struct penstock_error *err)
{
	const struct deploy_options *o = look->v->o;
	int r = object_list(
		object_at(o->client, o->bucket, o->prefix), NULL, on_object, look, o->cancel, err);

	if (r == 0 && look->no_memory)
		return error_memory(err);
	if (r == 0 && look->too_many)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot serve '%s://%s/%s': the prefix has more than %d objects; name the prefix "
			"of one model",
			object_client_scheme(o->client), o->bucket, o->prefix, LIMIT_MODEL_FILES);
	return r;
}

/* ---- directories with a number or a commit ---- */

struct candidate {
	const char *name; /* not NUL-terminated */
	size_t len; /* 0 for the whole prefix */
	size_t first, n; /* the files are look.files[first..first+n) and the loose files */
	bool numbered;
	uint64_t number;
	const struct commit *commit; /* NULL if the version has no commit */
	double metric;
};

/* Compares a path with DIR/NAME, or with NAME if `len` is 0. */
static int compare_path(const char *path, const char *dir, size_t len, const char *name)
{
	int d = strncmp(path, dir, len);

	if (len == 0)
		return strcmp(path, name);
	if (d == 0)
		d = (unsigned char)path[len] - '/';
	return d ? d : strcmp(path + len + 1, name);
}

static const struct model_file *find_file(
	const struct look *look, const char *dir, size_t len, const char *name)
{
	size_t low = 0, high = look->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int d = compare_path(look->files[middle].path, dir, len, name);

		if (d == 0)
			return &look->files[middle];
		if (d < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* Returns true if the object has changed since the listing. */
static bool is_replaced(const struct penstock_error *err)
{
	return err->code == PENSTOCK_E_NOT_FOUND || err->code == PENSTOCK_E_PRECONDITION ||
	       err->code == PENSTOCK_E_CHANGED;
}

/* Gets the commit at `file`, or NULL if the commit is invalid or cannot be read. A commit that was
 * read is kept for the next look. Fails with PENSTOCK_E_CHANGED if the object has changed since the
 * listing, and with temporary errors. */
static int read_commit(struct versions *v, const struct model_file *file, const struct commit **out,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *key = str_printf("%s%s", v->o->prefix, file->path);
	struct seen_commit *commits, *seen = NULL;
	int r;

	if (!key)
		return error_memory(err);
	/* Each look usually reads the commits in the same order: begin after the commit that was
	 * read last. */
	for (size_t i = 0; i < v->n_commits && !seen; i++) {
		struct seen_commit *c = &v->commits[(v->next_commit + i) % v->n_commits];

		if (strcmp(c->path, file->path) == 0 && strcmp(c->etag, file->etag) == 0)
			seen = c;
	}
	if (!seen) {
		commits = array_grow(v->commits, v->n_commits, sizeof(*commits));
		if (!commits)
			return error_memory(err);
		v->commits = commits;
		seen = &commits[v->n_commits];
		*seen = (struct seen_commit){.path = strdup(file->path), .unread = true};
		if (!seen->path)
			return error_memory(err);
		snprintf(seen->etag, sizeof(seen->etag), "%s", file->etag);
		v->n_commits++;
	}
	v->next_commit = (size_t)(seen - v->commits) + 1;
	seen->used = true;
	*out = seen->commit;
	if (!seen->unread)
		return 0;
	r = object_get(object_at(v->o->client, v->o->bucket, key),
		&(struct object_get_options){
			.if_match = *file->etag ? file->etag : NULL, .cancel = v->o->cancel},
		&text, NULL, &why);
	if (r < 0 && is_replaced(&why))
		return error_set(err, PENSTOCK_E_CHANGED, "'%s' has changed", key);
	if (r == 0) {
		r = commit_parse(&seen->commit, buf_str(&text), text.len, key, &why);
		seen->unread = r == -(int)PENSTOCK_E_MEMORY;
	}
	*out = seen->commit;
	if (r < 0 && seen->unread &&
		(error_is_retryable(&why) || why.code == PENSTOCK_E_CANCELLED ||
			why.code == PENSTOCK_E_MEMORY))
		return error_move(err, &why);
	/* Not an error: without a valid and readable commit the directory is not a version. The
	 * next look tries to read an unreadable commit again. */
	if (r < 0 && !seen->warned)
		log_warn("cannot read '%s': %s", file->path, why.message);
	seen->warned = r < 0;
	return 0;
}

/* Removes from `v` the commits and contents that this look has not found. */
static void forget_unused(struct versions *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_commits; i++) {
		struct seen_commit *seen = &v->commits[i];

		if (!seen->used) {
			free(seen->path);
			commit_free(seen->commit);
			continue;
		}
		seen->used = false;
		v->commits[n++] = *seen;
	}
	v->n_commits = n;
	n = 0;
	for (size_t i = 0; i < v->n_contents; i++) {
		if (v->contents[i].used)
			v->contents[n++] = v->contents[i];
	}
	v->n_contents = n;
	for (size_t i = 0; i < n; i++)
		v->contents[i].used = false;
}

/* Adds the directory of the files look->files[first..first+n_files) if the directory is a
 * version. */
static int add_candidate(struct look *look, size_t first, size_t n_files, size_t len,
	struct candidate **candidates, size_t *n, struct penstock_error *err)
{
	const char *name = look->files[first].path;
	const struct model_file *file = find_file(look, name, len, COMMIT_NAME);
	struct candidate c = {
		.name = name, .len = len, .first = first, .n = n_files, .metric = NAN};
	_cleanup_free_ char *text = strndup(name, len);
	struct candidate *items;
	uint64_t step;
	unsigned attempt;
	int r = 0;

	if (!text)
		return error_memory(err);
	/* The name becomes an argument of a command, which may be a shell. */
	if (text[strspn(text, NAME_LETTERS)] || strchr("-.", *text))
		return 0;
	c.numbered = str_to_u64(text, 0, UINT64_MAX, &c.number);
	look->unfinished = look->unfinished || (!file && commit_name_parse(text, &step, &attempt));
	if (file)
		r = read_commit(look->v, file, &c.commit, err);
	if (r < 0 || (!c.numbered && !c.commit) || (file && !c.commit))
		return r;
	if (c.commit && look->v->o->best) {
		const struct commit_metric *m = commit_find_metric(c.commit, look->v->o->best);

		c.metric = m ? m->value : NAN;
	}
	if (look->v->o->best && !isfinite(c.metric)) {
		look->v->n_unmeasured += c.commit != NULL;
		return 0;
	}
	items = array_grow(*candidates, *n, sizeof(*items));
	if (!items)
		return error_memory(err);
	*candidates = items;
	items[(*n)++] = c;
	return 0;
}

static int add_loose(struct look *look, size_t i, struct penstock_error *err)
{
	size_t *grown;

	if (strcmp(look->files[i].path, COMMIT_NAME) == 0)
		return 0;
	grown = array_grow(look->loose, look->n_loose, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	look->loose = grown;
	grown[look->n_loose++] = i;
	return 0;
}

/* The objects are in byte order, so the objects of a directory are adjacent. */
static int find_candidates(
	struct look *look, struct candidate **candidates, size_t *n, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0, end; r == 0 && i < look->n; i = end) {
		const char *path = look->files[i].path, *slash = strchr(path, '/');
		size_t len = slash ? (size_t)(slash - path) : 0;

		end = i + 1;
		while (len && end < look->n && strncmp(look->files[end].path, path, len + 1) == 0)
			end++;
		if (len)
			r = add_candidate(look, i, end - i, len, candidates, n, err);
		else if (!slash)
			r = add_loose(look, i, err);
	}
	return r;
}

/* Sorts the better candidate first: by the metric `best` if it is set, then by number, then by
 * commit_compare(). */
static int compare(const void *a, const void *b, void *cookie)
{
	const struct candidate *x = a, *y = b;
	const struct deploy_options *o = cookie;

	if (o->best && x->metric != y->metric)
		return (x->metric > y->metric) == o->best_is_max ? -1 : 1;
	if (x->numbered != y->numbered)
		return x->numbered ? -1 : 1;
	if (x->numbered && x->number != y->number)
		return x->number > y->number ? -1 : 1;
	return x->commit && y->commit ? -commit_compare(x->commit, y->commit) : 0;
}

/* ---- one version ---- */

/* Adds the file to the version and to the checksum of its content. */
static int add_file(struct model *out, const struct model_file *f, struct checksum *sum,
	struct penstock_error *err)
{
	out->files[out->n] = *f;
	out->files[out->n].path = strdup(f->path);
	if (!out->files[out->n].path)
		return error_memory(err);
	out->n++;
	out->size += f->size;
	checksum_update(sum, f->path, strlen(f->path) + 1);
	checksum_update(sum, &f->size, sizeof(f->size));
	checksum_update(sum, f->etag, strlen(f->etag) + 1);
	return 0;
}

/* Fills in a version: the files in its directory, and the files next to that directory, such as
 * Triton's config.pbtxt, all in byte order. */
static int fill_model(const struct look *look, const struct candidate *c, struct model *out,
	struct penstock_error *err)
{
	/* A version that is the whole prefix already includes the loose files. */
	size_t n_loose = c->len ? look->n_loose : 0, before = 0;
	struct checksum sum = {0};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;

	out->directory = c->len ? str_printf("%.*s/", (int)c->len, c->name) : strdup("");
	out->files = calloc(c->n + n_loose + 1, sizeof(*out->files));
	if (!out->directory || !out->files)
		return error_memory(err);
	r = checksum_init(&sum, CHECKSUM_SHA256, err);
	if (r < 0)
		return r;
	checksum_update(&sum, out->directory, strlen(out->directory) + 1);
	while (before < n_loose && look->loose[before] < c->first)
		before++;
	for (size_t i = 0; r == 0 && i < c->n + n_loose; i++) {
		size_t at = i < before		? look->loose[i]
			    : i - before < c->n ? c->first + i - before
						: look->loose[i - c->n];

		r = add_file(out, &look->files[at], &sum, err);
	}
	checksum_final(&sum, digest);
	checksum_release(&sum);
	str_hex(digest, (MODEL_CONTENT_SIZE - 1) / 2, out->content);
	out->committed = c->commit != NULL;
	out->name = c->len ? strndup(c->name, c->len) : strndup(out->content, 12);
	return r == 0 && !out->name ? error_memory(err) : r;
}

/* Returns 1 if the content has been the same for `settle_ms`, else 0. */
static int has_settled(struct versions *v, const char *content, struct penstock_error *err)
{
	struct seen_content *contents;

	for (size_t i = 0; i < v->n_contents; i++) {
		if (strcmp(v->contents[i].content, content) == 0) {
			v->contents[i].used = true;
			return clock_monotonic_ms() - v->contents[i].since_ms >= v->o->settle_ms;
		}
	}
	contents = array_grow(v->contents, v->n_contents, sizeof(*contents));
	if (!contents)
		return error_memory(err);
	v->contents = contents;
	contents[v->n_contents] = (struct seen_content){
		.since_ms = clock_monotonic_ms(), .used = true};
	snprintf(contents[v->n_contents++].content, MODEL_CONTENT_SIZE, "%s", content);
	return v->o->settle_ms == 0;
}

/* Returns 1 if the version is complete, else 0. A version with a commit is complete if it has all
 * files of the commit. A version without a commit is complete if it has the object `ready`, or, if
 * `ready` is NULL, if it has not changed for `settle_ms`. */
static int is_complete(const struct look *look, const struct candidate *c, const char *content,
	bool *settles, struct penstock_error *err)
{
	const char *ready = look->v->o->ready;
	int r;

	for (size_t i = 0; c->commit && i < c->commit->n_files; i++) {
		const struct commit_file *f = &c->commit->files[i];
		const struct model_file *found = find_file(look, c->name, c->len, f->name);

		if (!found || found->size != f->size)
			return 0;
	}
	if (c->commit)
		return 1;
	if (ready)
		return find_file(look, c->name, c->len, ready) != NULL;
	r = has_settled(look->v, content, err);
	*settles = *settles || r == 0;
	return r;
}

int versions_look(struct versions *v, const struct refused *refused, struct model *out,
	bool *settles, struct penstock_error *err)
{
	_cleanup_(look_release) struct look look = {.v = v, .cut = strlen(v->o->prefix)};
	_cleanup_free_ struct candidate *candidates = NULL;
	struct candidate whole = {.name = ""};
	const struct model_file *commit;
	bool whole_counts;
	size_t n = 0;
	int r = list(&look, err);

	*settles = false;
	v->n_unmeasured = 0;
	if (r == 0)
		r = find_candidates(&look, &candidates, &n, err);
	/* The prefix itself may be a checkpoint. */
	commit = r < 0 || n ? NULL : find_file(&look, "", 0, COMMIT_NAME);
	if (commit)
		r = read_commit(v, commit, &whole.commit, err);
	if (r == -(int)PENSTOCK_E_CHANGED) {
		penstock_error_release(err);
		*settles = true;
		return 0;
	}
	if (r < 0)
		return r;
	if (n) {
		v->n_unmeasured = 0;
		qsort_r(candidates, n, sizeof(*candidates), compare, (void *)v->o);
	}
	whole.n = look.n;
	whole_counts = look.n && !v->o->best && !look.unfinished && (!commit || whole.commit);
	for (size_t i = 0; r == 0 && i < (n ? n : whole_counts); i++) {
		const struct candidate *c = n ? &candidates[i] : &whole;

		model_release(out);
		r = fill_model(&look, c, out, err);
		if (r == 0 && !refused_has(refused, out->content))
			r = is_complete(&look, c, out->content, settles, err);
	}
	forget_unused(v);
	if (r != 1)
		model_release(out);
	return r;
}
