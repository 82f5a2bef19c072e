#include "copy/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "transfer/compare/content.h"
#include "transfer/output_keys.h"

/* Maximum difference between the clocks of a store and of this machine. */
#define CLOCKS_APART (INT64_C(300) * NS_PER_S)

/* ---- entries ---- */

/* Returns true if a pattern excludes the directory with everything below it: a pattern that matches
 * the directory and ends in an asterisk. */
static bool leaves_out_all(const struct path_filter *filter, const char *directory)
{
	for (size_t i = 0; i < filter->exclude->n; i++) {
		const char *pattern = filter->exclude->items[i];

		if (str_ends(pattern, "*") && wildcard_match(pattern, directory))
			return true;
	}
	return false;
}

/* Applies the filter to a path; a directory is matched without its slash. A directory is excluded
 * if everything in the directory is excluded. */
static bool filter_takes(struct copy *c, const char *path)
{
	_cleanup_free_ char *name = NULL;

	if (!str_ends(path, "/"))
		return path_filter_takes(&c->o.filter, path);
	name = strndup(path, strlen(path) - 1);
	if (!name) {
		c->no_memory = true;
		return false;
	}
	return !leaves_out_all(&c->o.filter, path) && path_filter_takes(&c->o.filter, name);
}

static bool takes(void *cookie, const char *path, bool directory)
{
	const struct source_tree *tree = cookie;
	int matches;

	(void)directory;
	if (!filter_takes(tree->copy, path))
		return false;
	if (!tree->source->wildcard)
		return true;
	matches = place_matches(tree->source, path);
	tree->copy->no_memory |= matches < 0;
	return matches > 0;
}

/* Files in a local directory may match although the directory itself does not. */
static bool takes_file(void *cookie, const char *path, bool directory)
{
	const struct source_tree *tree = cookie;

	return directory ? !leaves_out_all(&tree->copy->o.filter, path)
			 : takes(cookie, path, false);
}

static int on_problem(void *cookie, const char *path, const struct penstock_error *problem)
{
	const struct source_tree *tree = cookie;

	copy_report_failed(
		tree->copy, &(struct copy_item){.action = "skip", .from = path}, problem);
	return tree->copy->first.code ? -1 : 0;
}

int source_tree_open(struct source_tree *tree, const struct place *place, struct entry_source **out,
	struct penstock_error *err)
{
	const struct copy_options *o = &tree->copy->o;
	bool is_source = place == tree->source;
	enum walk_links links = WALK_LINKS_KEEP;

	if (place_is_object(place))
		return entry_source_objects(out,
			object_at(is_source ? o->from : o->to, place->bucket, place->base),
			&(struct object_source_options){
				.takes = takes, .cookie = tree, .cancel = o->cancel},
			err);
	/* Follow links only at the source, and not in a move: a move must not remove the file that
	 * a link leads to, so source_tree_push() checks each link. */
	if (is_source && o->skip_links)
		links = WALK_LINKS_SKIP;
	else if (is_source && !o->preserve && !o->move)
		links = WALK_LINKS_FOLLOW;
	return entry_source_files(out, *place->base ? place->base : "/",
		&(struct walk_options){.links = links,
			.directories = true,
			.takes = takes_file,
			.on_problem = on_problem,
			.cookie = tree,
			.cancel = o->cancel},
		err);
}

/* ---- names that exclude each other ---- */

/* Refuses a name below a file. Names come in byte order, so a file whose name is a parent directory
 * of `name` came before, and is among the earlier names that are prefixes of `name`. */
static int check_clash(struct source_tree *tree, const char *name, struct penstock_error *err)
{
	struct strlist *shorter = &tree->shorter;
	size_t taken = tree->taken ? strlen(tree->taken) : 0;
	const char *clash = NULL;

	while (shorter->n && !str_starts(name, shorter->items[shorter->n - 1])) {
		free(shorter->items[--shorter->n]);
		shorter->items[shorter->n] = NULL;
	}
	for (size_t i = 0; i < shorter->n; i++) {
		if (name[strlen(shorter->items[i])] == '/')
			clash = shorter->items[i];
	}
	if (taken && str_starts(name, tree->taken) && (!name[taken] || name[taken] == '/'))
		clash = tree->taken;
	if (clash)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot create a file and a directory with the same name: '%s' is an "
			"object, too; rename one or leave it out",
			clash);
	return strlist_add(shorter, name) < 0 ? error_memory(err) : 0;
}

int source_tree_keep(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	if (tree->source->kind == LOCATION_LOCAL)
		return directory_enter(tree, entry->path, false, err);
	if (tree->target->kind == LOCATION_LOCAL &&
		check_clash(tree, entry->path, NULL) == -(int)PENSTOCK_E_MEMORY)
		return error_memory(err);
	return 0;
}

/* ---- files that the target has already ---- */

/* Returns the name of an entry below the target. free() it; NULL if out of memory. */
static char *target_name(const struct source_tree *tree, const struct entry *entry)
{
	return str_printf("%s%s", tree->under, entry->path);
}

/* Opens the file of an entry if the file has the size and time of its object, else returns -1. */
static int open_same(const struct source_tree *tree, const struct entry *entry, const char *name,
	struct stat *st)
{
	_cleanup_free_ char *path = path_join(tree->target->base, name);
	_cleanup_close_ int fd = -1;

	if (!path || lstat(path, st) < 0 || !S_ISREG(st->st_mode) ||
		(uint64_t)st->st_size != entry->size ||
		(int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec != entry->mtime_ns)
		return -1;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd >= 0 && fstat(fd, st) == 0 ? take_fd(fd) : -1;
}

bool source_tree_has_file(const struct source_tree *tree, const struct entry *entry)
{
	_cleanup_free_ char *name = target_name(tree, entry);
	struct stat st;
	_cleanup_close_ int fd = tree->copy->o.keep_same && name ? open_same(tree, entry, name, &st)
								 : -1;

	return fd >= 0;
}

/*
 * Returns 1 if the file equals the object. Size and time are sufficient if the object was old
 * enough when the file was written: another object of this size would have a later time. Otherwise
 * the content is compared, because some stores have times in whole seconds. The end of the copy
 * makes an equal file durable, because an earlier copy may have been killed before it was durable.
 */
static int is_same_file(
	const struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_free_ char *name = target_name(tree, entry);
	const struct entry file = {.path = name, .kind = ENTRY_FILE, .size = entry->size};
	const struct compare_rules rules = {
		.from = {.client = tree->copy->o.from, .bucket = tree->source->bucket},
		.to = {.directory = tree->target->base},
		.cancel = tree->copy->o.cancel};
	struct stat st;
	_cleanup_close_ int fd = name ? open_same(tree, entry, name, &st) : -1;
	int r = 1;

	if (!name)
		return error_memory(err);
	if (fd < 0)
		return 0;
	if ((int64_t)st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec - entry->mtime_ns <
		CLOCKS_APART)
		r = compare_content(&rules, entry, &file, err);
	if (r > 0 && bulk_note_device(tree->copy->bulk, fd, err) < 0)
		return -(int)err->code;
	return r;
}

/* ---- items ---- */

static struct object_ref entry_object(const struct source_tree *tree, const struct entry *entry)
{
	return object_at(tree->copy->o.from, tree->source->bucket, entry->key);
}

/* Returns the source for messages. free() it; NULL if out of memory. */
static char *source_text(const struct source_tree *tree, const struct entry *entry)
{
	if (entry->key)
		return copy_object_text(entry_object(tree, entry));
	return path_join(tree->source->base, entry->path);
}

static int push_item(struct source_tree *tree, const struct entry *entry,
	const struct target *target, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct object_info known = {.size = entry->size, .modified_ns = entry->mtime_ns};
	struct bulk_item item = {.kind = BULK_UPLOAD, .remove_source = tree->copy->o.move};

	if (entry->etag && strlen(entry->etag) < sizeof(known.etag))
		memcpy(known.etag, entry->etag, strlen(entry->etag) + 1);
	if (place_is_object(tree->source)) {
		item.kind = target->path ? BULK_DOWNLOAD : BULK_COPY;
		item.from = entry_object(tree, entry);
		item.known = known.etag[0] ? &known : NULL;
	} else {
		path = path_join(tree->source->base, entry->path);
		if (!path)
			return error_memory(err);
		item.path = path;
	}
	copy_item_target(tree->copy, target, tree->target, &item);
	return copy_push(tree->copy, &item, entry->size, err);
}

/* Returns true if the key is below the target although it matches the source: a wildcard also
 * matches the keys of a target that is below the base of the source. */
static bool is_below_target(const struct source_tree *tree, const char *key)
{
	return tree->source->wildcard && strlen(tree->target->base) > strlen(tree->source->base) &&
	       str_starts(key, tree->target->base);
}

/* Refuses a target key that is below the source, as may happen when a tree is moved up a level: the
 * object would be moved again, or would replace another object of the source and be removed with
 * it. */
static int check_moved_into_source(
	const struct source_tree *tree, const char *key, struct penstock_error *err)
{
	const struct place *source = tree->source, *target = tree->target;
	size_t base = strlen(source->base);
	int matches;

	if (!tree->copy->o.move || !place_is_object(source) || !tree->copy->o.same_store ||
		strcmp(source->bucket, target->bucket) != 0 || !str_starts(key, source->base) ||
		is_below_target(tree, key))
		return 0;
	matches = source->wildcard ? place_matches(source, key + base) : 1;
	if (matches < 0)
		return error_memory(err);
	if (!matches)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot move to '%s', which is another source; move this object alone", key);
}

/* Refuses a dangling link, and a link to a directory. A move removes the link and keeps the file
 * that the link leads to. */
static int check_link(
	const struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct stat st;

	if (entry->kind != ENTRY_LINK || tree->copy->o.preserve)
		return 0;
	path = source_text(tree, entry);
	if (!path)
		return error_memory(err);
	if (stat(path, &st) < 0)
		return error_errno(err, errno, "cannot follow the link '%s'", path);
	if (S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot move out of a directory behind the link '%s'; --preserve moves the "
			"link, --no-follow-symlinks leaves it",
			path);
	return 0;
}

static int resolve(struct source_tree *tree, const struct entry *entry, struct target *target,
	struct penstock_error *err)
{
	_cleanup_free_ char *name = target_name(tree, entry);
	int r = name ? check_link(tree, entry, err) : error_memory(err);

	if (r == 0)
		r = target_resolve(target, tree->target, name, err);
	if (r == 0 && target->path)
		r = check_clash(tree, entry->path, err);
	if (r == 0 && target->path && entry->kind == ENTRY_DIRECTORY && entry->size)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot create a directory for an object with %" PRIu64
			" bytes; fetch the object under another name, or leave it out",
			entry->size);
	if (r == 0 && target->key)
		r = check_moved_into_source(tree, target->key, err);
	return r;
}

int source_tree_check(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_(target_release) struct target target = {0};
	_cleanup_free_ char *from = NULL;
	int r = resolve(tree, entry, &target, err);

	if (r < 0)
		from = source_text(tree, entry);
	return from ? error_prefix(err, "%s", from) : r;
}

static int take(struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(target_release) struct target target = {0};
	_cleanup_free_ char *from = NULL;
	bool directory = entry->kind == ENTRY_DIRECTORY;
	int same = 0, r = resolve(tree, entry, &target, &own);

	if (r == 0 && target.path && tree->copy->o.keep_same && entry->key && !directory)
		r = same = is_same_file(tree, entry, &own);
	if (same > 0) {
		copy_report(tree->copy, tree->copy->o.report.same,
			&(struct copy_item){.action = "download",
				.name = entry->path,
				.size = entry->size,
				.etag = entry->etag});
		return 0;
	}
	if (r == 0 && target.path && directory)
		r = directory_make(tree, entry, &target, &own);
	else if (r == 0)
		return push_item(tree, entry, &target, err);
	if (r == 0)
		return 0;
	from = source_text(tree, entry);
	return from ? copy_item_failed(tree->copy, from, &own, err) : error_memory(err);
}

int source_tree_push(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err)
{
	bool local = tree->source->kind == LOCATION_LOCAL;
	struct copy *c = tree->copy;
	int r = 0;

	if (local) {
		bool wanted = str_ends(entry->path, "/") && takes(tree, entry->path, true);

		r = directory_enter(tree, entry->path, wanted, err);
	}
	if (r < 0)
		return r;
	if (entry->kind == ENTRY_DIRECTORY && (local || tree->target->kind == LOCATION_HTTP))
		return 0;
	/* Skip the object: within one bucket, this copy itself may have created it below the
	 * target. */
	if (entry->key && c->o.from && c->o.from == c->o.to &&
		strcmp(tree->source->bucket, tree->target->bucket) == 0 &&
		is_below_target(tree, entry->key))
		return 0;
	if (c->o.move && !c->o.force && output_key_is_state(entry->path)) {
		c->spared++;
		return 0;
	}
	tree->entries++;
	return take(tree, entry, err);
}

int source_tree_end(struct source_tree *tree, struct penstock_error *err)
{
	int r = directory_put_empty(tree, err);

	return r == 0 && tree->copy->no_memory ? error_memory(err) : r;
}

void source_tree_release(struct source_tree *tree)
{
	strlist_release(&tree->shorter);
	free(tree->empty);
	tree->empty = NULL;
}

int source_tree_push_all(struct source_tree *tree, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	struct entry entry;
	int r = source_tree_open(tree, tree->source, &entries, err);

	while (r == 0 && (r = entry_source_next(entries, &entry, err)) > 0)
		r = source_tree_push(tree, &entry, err);
	return r < 0 ? r : source_tree_end(tree, err);
}
