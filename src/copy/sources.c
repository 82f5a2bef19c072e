/* Copies several sources to one target, by the rules of cp and mv. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "copy/tree.h"

/* ---- checks ---- */

/* Returns true if each source gets its own name below the target; false if the only source gets the
 * name of the target. */
static bool is_into(const struct copy_request *request)
{
	return request->target->directory || request->n > 1 || request->sources[0].wildcard;
}

static int check_pair(const struct copy_request *request, const struct place *source, bool move,
	struct penstock_error *err)
{
	const struct place *target = request->target;
	enum location_kind from = source->kind, to = target->kind;
	bool several = source->wildcard || request->n > 1 ||
		       (source->directory && request->recursive);

	if (from != LOCATION_OBJECT && from != LOCATION_HTTP && to != LOCATION_OBJECT &&
		to != LOCATION_HTTP)
		return copy_refuse(err, source,
			"neither the source nor the target is s3:// or http(s)://; use 'cp' "
			"instead");
	if (from == LOCATION_STDIO && request->n > 1)
		return copy_refuse(err, source, "standard input cannot be one of several sources");
	if (from == LOCATION_STDIO && is_into(request))
		return copy_refuse(err, target,
			"standard input has no name; give the whole name of the target");
	if (to == LOCATION_STDIO && several)
		return copy_refuse(err, source,
			"cannot write several items to standard output; use 'penstock cat'");
	if (from == LOCATION_OBJECT && to == LOCATION_HTTP && several)
		return copy_refuse(err, source,
			"cannot copy several objects to a web server; copy them to a directory "
			"first");
	if (from == LOCATION_HTTP && source->directory)
		return copy_refuse(
			err, source, "cannot list the files of a web server; give a file's URL");
	if (move && (from == LOCATION_STDIO || from == LOCATION_HTTP || to == LOCATION_STDIO ||
			    to == LOCATION_HTTP))
		return copy_refuse(err, source,
			"a pipe or a web server cannot be part of a move; use 'penstock cp'");
	return 0;
}

struct named {
	char *name; /* owned */
	const struct place *place;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int refuse_same(const struct place *a, const struct place *b, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot copy '%s' together with '%s': both may get the same name at the target; copy "
		"each to a target of its own",
		a->text, b->text);
}

/* Refuses two sources that may get the same name. */
static int check_names(const struct copy_request *request, bool move, struct penstock_error *err)
{
	struct named *names = request->n > 1 ? calloc(request->n, sizeof(*names)) : NULL;
	size_t n = 0;
	int r = 0;

	if (request->n < 2)
		return 0;
	if (!names)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < request->n; i++) {
		const struct place *place = &request->sources[i];
		char *name = place_name(place);

		if (!name) {
			r = error_memory(err);
		} else if (!place->wildcard && *name) {
			names[n++] = (struct named){name, place};
		} else {
			/* The contents of several directories may be merged, but a move could lose
			 * files. */
			free(name);
			if (move)
				r = refuse_same(&request->sources[i ? 0 : 1], place, err);
		}
	}
	qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 1; r == 0 && i < n; i++) {
		if (strcmp(names[i - 1].name, names[i].name) == 0)
			r = refuse_same(names[i - 1].place, names[i].place, err);
	}
	for (size_t i = 0; i < n; i++)
		free(names[i].name);
	free(names);
	return r;
}

int copy_check(const struct copy_request *request, bool move, struct penstock_error *err)
{
	const struct place *object = NULL;
	int r = 0;

	for (size_t i = 0; r == 0 && i < request->n; i++)
		r = check_pair(request, &request->sources[i], move, err);
	if (r == 0)
		r = check_names(request, move, err);
	for (size_t i = 0; r == 0 && i < request->n; i++) {
		const struct place *source = &request->sources[i];

		if (!place_is_object(source))
			continue;
		if (object && object->google != source->google)
			r = copy_refuse(
				err, source, "sources in s3:// and gs:// need separate commands");
		object = source;
	}
	return r;
}

/* Refuses a copy of a tree into itself, which would never end. */
static int check_itself(const struct copy *c, const struct copy_request *request,
	const struct place *source, struct penstock_error *err)
{
	const struct place *target = request->target;
	_cleanup_free_ char *name = place_name(source), *base = NULL;
	bool nested = is_into(request) && name && *name;

	if (!place_is_object(source) || !place_is_object(target) || !c->o.same_store ||
		strcmp(source->bucket, target->bucket) != 0)
		return 0;
	if (name)
		base = str_printf("%s%s%s", target->base, nested ? name : "", nested ? "/" : "");
	if (!base)
		return error_memory(err);
	if (source->wildcard ? strcmp(target->base, source->base) == 0
			     : request->recursive && str_starts(base, source->base))
		return copy_refuse(
			err, target, "the target is the source itself or below the source");
	return 0;
}

int copy_check_overlap(
	const struct copy *c, const struct copy_request *request, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < request->n; i++)
		r = check_itself(c, request, &request->sources[i], err);
	return r;
}

/* ---- one item ---- */

static bool same_object(const struct copy *c, const struct bulk_item *item)
{
	return item->kind == BULK_COPY && c->o.same_store &&
	       strcmp(item->from.bucket, item->to.bucket) == 0 &&
	       strcmp(item->from.key, item->to.key) == 0;
}

static void item_source(const struct copy *c, const struct copy_request *request,
	const struct place *source, const struct object_info *info, struct bulk_item *item)
{
	item->remove_source = c->o.move;
	if (place_is_object(source)) {
		item->kind = place_is_object(request->target) ? BULK_COPY : BULK_DOWNLOAD;
		item->from = place_object(source, c->o.from);
		item->known = info;
	} else if (source->kind == LOCATION_HTTP) {
		item->kind = BULK_DOWNLOAD;
		item->from_url = source->url;
	} else {
		item->kind = BULK_UPLOAD;
		item->path = source->path;
	}
}

/* Submits one source. `info` describes its object; NULL if the source is not an object, or if no
 * HEAD was sent. */
static int push_one(struct copy *c, const struct copy_request *request, const struct place *source,
	const struct object_info *info, uint64_t size, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(target_release) struct target target = {0};
	_cleanup_free_ char *name = place_name(source);
	bool into = is_into(request);
	struct bulk_item item = {0};
	int r = name ? copy_make_target(c, request->target, into, &own) : error_memory(&own);

	if (r == 0 && !path_filter_takes(&c->o.filter, name))
		return 0;
	/* The key "a/" has no last component. */
	if (r == 0 && into && place_is_object(source) && !*name)
		r = error_set(&own, PENSTOCK_E_INVALID,
			"the key has no name after its last '/'; give the whole name of the "
			"target");
	if (r == 0)
		r = target_resolve(&target, request->target, into ? name : NULL, &own);
	if (r == 0) {
		item_source(c, request, source, info, &item);
		copy_item_target(c, &target, request->target, &item);
		if (same_object(c, &item))
			r = error_set(
				&own, PENSTOCK_E_INVALID, "source and target are the same object");
	}
	return r < 0 ? copy_item_failed(c, source->text, &own, err)
		     : copy_push(c, &item, size, err);
}

/* ---- a tree ---- */

static int push_tree(struct copy *c, const struct copy_request *request, const struct place *source,
	struct penstock_error *err)
{
	_cleanup_(source_tree_release) struct source_tree tree = {
		.copy = c, .source = source, .target = request->target};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *name = place_name(source), *under = NULL;
	bool nested = is_into(request) && !source->wildcard && name && *name;
	uint64_t failed = c->failed;
	int r = copy_make_target(c, request->target, true, &own);

	if (r < 0)
		return copy_item_failed(c, source->text, &own, err);
	if (name)
		under = str_printf("%s%s", nested ? name : "", nested ? "/" : "");
	if (!under)
		return error_memory(err);
	tree.under = under;
	r = source_tree_push_all(&tree, &own);
	if (r < 0)
		return copy_item_failed(c, source->text, &own, err);
	/* Finish this source first: of several files with the same name, the file of the last
	 * source must stay. A move must also remove the files before their empty directories. */
	if (request->n > 1 || c->o.move)
		r = copy_finish(c, err);
	if (r == 0 && c->o.move && !c->o.dry_run && source->kind == LOCATION_LOCAL &&
		!source->wildcard && failed == c->failed)
		directory_remove_empty(source->base, *name != '\0');
	if (r == 0 && !tree.entries && source->wildcard) {
		error_set(&own, PENSTOCK_E_NOT_FOUND, "nothing matches");
		return copy_item_failed(c, source->text, &own, err);
	}
	return r;
}

/* ---- sources ---- */

/* Copies the object with the source's key, and with `recursive` also the objects below it. */
static int push_key(struct copy *c, const struct copy_request *request, const struct place *source,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	bool tree = source->directory && (request->recursive || !source->literal || !*source->key);
	uint64_t found = c->found;
	int r = 0;

	if (tree && !request->recursive)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot copy a prefix as one object; use --recursive for all objects "
			"below the prefix");
	/* If there are several sources, the transfer of each object sends its HEAD, in parallel
	 * with the other transfers. */
	if (!tree && request->n > 1 && !request->recursive && !c->o.dry_run)
		return push_one(c, request, source, NULL, 0, err);
	if (!tree) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

		r = object_head(place_object(source, c->o.from), &info, &own);
		if (r == 0)
			r = push_one(c, request, source, &info, info.size, err);
		else if (request->recursive && own.code == PENSTOCK_E_NOT_FOUND)
			r = 0;
		else {
			copy_explain_missing(place_object(source, c->o.from), source->text, &own);
			r = error_move(err, &own);
		}
	}
	if (r < 0 || !request->recursive)
		return r;
	r = push_tree(c, request, source, err);
	if (r == 0 && c->found == found && !c->spared && !c->failed && !source->directory)
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find the object, or an object below its name");
	return r;
}

static int push_path(struct copy *c, const struct copy_request *request, const struct place *source,
	struct penstock_error *err)
{
	struct stat st;

	if (lstat(source->path, &st) < 0)
		return error_errno(err, errno, "%s", source->path);
	if (!source->directory ||
		(S_ISLNK(st.st_mode) && c->o.preserve && !str_ends(source->path, "/")))
		return push_one(c, request, source, NULL, (uint64_t)st.st_size, err);
	if (request->recursive)
		return push_tree(c, request, source, err);
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot copy a directory as one file; use --recursive to copy its content");
}

static int push_source(struct copy *c, const struct copy_request *request,
	const struct place *source, struct penstock_error *err)
{
	_cleanup_free_ char *name = NULL;

	if (copy_is_pipe(source, request->target)) {
		name = is_into(request) ? place_name(source) : NULL;
		return copy_pipe(c, source, request->target, name, err);
	}
	if (source->wildcard)
		return push_tree(c, request, source, err);
	if (place_is_object(source))
		return push_key(c, request, source, err);
	if (source->kind == LOCATION_HTTP)
		return push_one(c, request, source, NULL, 0, err);
	return push_path(c, request, source, err);
}

int copy_sources(struct copy *c, const struct copy_request *request, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < request->n; i++) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		const struct place *source = &request->sources[i];

		/* Wait for the items in flight, which must be reported: copy_pipe() suppresses the
		 * reports of all items that end while a pipe is copied. */
		if (i > 0 && copy_is_pipe(source, request->target))
			r = copy_finish(c, err);
		/* A failed source does not stop the other sources. */
		if (r == 0 && push_source(c, request, source, &own) < 0)
			r = copy_item_failed(c, source->text, &own, err);
	}
	return r;
}
