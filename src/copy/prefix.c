/* Copies everything below a prefix into a directory. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "copy/tree.h"
#include "transfer/list/sort.h"
#include "transfer/objects.h"
#include "transfer/output_keys.h"

struct fetch {
	struct copy *copy;
	struct copy_prefix *prefix;
	struct place source, target; /* the objects below the prefix; the directory */
	/* The object whose key is the prefix. `exact.key` is NULL if there is none. */
	struct object_info info;
	struct entry exact;
	char *key; /* the prefix without slashes around it; "" for the bucket */
	/* All entries, listed only once: listing a distant store takes long. */
	struct list_sorter *found;
	uint64_t missing, missing_bytes; /* objects that are not at the target yet */
};

static void fetch_release(struct fetch *f)
{
	object_info_release(&f->info);
	place_release(&f->source);
	place_release(&f->target);
	free(f->key);
	list_sorter_free(f->found);
}

static int find_exact(struct fetch *f, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const char *name = path_last(f->key);
	int r;

	if (!*f->key)
		return 0;
	r = object_head(object_at(f->copy->o.from, f->prefix->bucket, f->key), &f->info, &own);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &own);
	if (!path_filter_takes(&f->copy->o.filter, name))
		return 0;
	f->exact = (struct entry){.path = name,
		.path_len = strlen(name),
		.kind = ENTRY_FILE,
		.size = f->info.size,
		.mtime_ns = f->info.modified_ns,
		.key = f->key,
		.etag = f->info.etag};
	return 0;
}

static int set_places(struct fetch *f, struct penstock_error *err)
{
	const char *prefix = f->prefix->prefix;
	size_t len;

	prefix += strspn(prefix, "/");
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		len--;
	f->key = strndup(prefix, len);
	if (!f->key)
		return error_memory(err);
	if (place_of_prefix(&f->source, object_client_scheme(f->copy->o.from), f->prefix->bucket,
		    f->key) < 0 ||
		place_of_directory(&f->target, f->prefix->dir) < 0)
		return error_memory(err);
	return 0;
}

static int take_entry(struct fetch *f, struct source_tree *tree, const struct entry *entry,
	struct penstock_error *err)
{
	int r = source_tree_check(tree, entry, err);

	if (r < 0)
		return r;
	if (entry->kind == ENTRY_DIRECTORY) {
		f->prefix->directories++;
	} else {
		bool missing = !source_tree_has_file(tree, entry);

		f->prefix->objects++;
		f->prefix->bytes += entry->size;
		f->missing += missing;
		f->missing_bytes += missing ? entry->size : 0;
	}
	return list_sorter_add_entry(f->found, entry, err);
}

/* Lists, checks and counts all objects, starting with the object whose key is the prefix. */
static int survey(struct fetch *f, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	_cleanup_(source_tree_release) struct source_tree tree = {
		.copy = f->copy, .source = &f->source, .target = &f->target, .under = ""};
	struct output_keys keys = {0};
	struct entry entry;
	int r = list_sorter_new(&f->found, LIMIT_LIST_AHEAD / 2, err);

	if (r == 0 && f->exact.key)
		r = take_entry(f, &tree, &f->exact, err);
	tree.taken = f->exact.key ? f->exact.path : NULL;
	if (r == 0)
		r = source_tree_open(&tree, &f->source, &entries, err);
	while (r == 0 && (r = entry_source_next(entries, &entry, err)) > 0) {
		bool left_out = f->prefix->one_output
					? !output_keys_take(&keys, entry.path)
					: f->prefix->without_runs &&
						  str_starts(entry.path, ".penstock/");

		r = left_out ? 0 : take_entry(f, &tree, &entry, err);
	}
	if (r == 0)
		r = source_tree_end(&tree, err);
	return r < 0 ? r : list_sorter_seal(f->found, err);
}

int copy_prefix(struct copy *c, struct copy_prefix *prefix, struct penstock_error *err)
{
	_cleanup_(fetch_release) struct fetch f = {.copy = c, .prefix = prefix};
	_cleanup_(source_tree_release) struct source_tree tree = {
		.copy = c, .source = &f.source, .target = &f.target, .under = ""};
	struct entry entry;
	int r = set_places(&f, err);

	prefix->objects = prefix->bytes = prefix->directories = 0;
	if (r == 0)
		r = find_exact(&f, err);
	if (r == 0)
		r = survey(&f, err);
	if (r == 0 && prefix->on_size)
		r = prefix->on_size(prefix->cookie, f.missing, f.missing_bytes, err);
	if (r == 0)
		r = copy_make_target(c, &f.target, true, err);
	while (r == 0 && (r = list_sorter_next_entry(f.found, &entry, err)) > 0)
		r = source_tree_push(&tree, &entry, err);
	return r < 0 ? r : source_tree_end(&tree, err);
}
