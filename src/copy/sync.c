/* Makes one tree equal to another. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "copy/tree.h"
#include "s3/sum/checksum.h"
#include "transfer/compare.h"
#include "transfer/output_keys.h"

struct syncing {
	struct copy *copy;
	const struct copy_sync *sync;
	struct source_tree tree;
	struct compare_rules rules;
	/* Names that are only at the target, each with a NUL after it; in a file, because there may
	 * be many. */
	FILE *gone;
	uint64_t n_gone;
	int root; /* descriptor of the local target; -1 until opened */
	uint64_t found; /* entries at the source */
};

static void syncing_release(struct syncing *s)
{
	if (s->gone)
		fclose(s->gone);
	cleanup_closep(&s->root);
	source_tree_release(&s->tree);
}

/* ---- checks ---- */

int copy_sync_check(const struct copy_sync *sync, struct penstock_error *err)
{
	const struct place *source = sync->source, *target = sync->target;
	struct stat st;

	for (int i = 0; i < 2; i++) {
		const struct place *place = i ? target : source;

		if (place->kind != LOCATION_OBJECT && place->kind != LOCATION_LOCAL)
			return copy_refuse(
				err, place, "cannot sync: expected a directory or an s3:// prefix");
	}
	if (!place_is_object(source) && !place_is_object(target))
		return copy_refuse(err, source,
			"neither the source nor the target is s3://; use rsync instead");
	if (!place_is_object(source) && !source->directory)
		return stat(source->path, &st) < 0
			       ? error_errno(err, errno, "%s", source->path)
			       : copy_refuse(err, source,
					 "the source is not a directory; 'penstock cp' copies "
					 "single files");
	if (target->kind == LOCATION_LOCAL && !target->directory && stat(target->base, &st) == 0)
		return copy_refuse(err, target, "the target exists and is not a directory");
	return 0;
}

int copy_sync_check_overlap(
	const struct copy *c, const struct copy_sync *sync, struct penstock_error *err)
{
	const char *from = sync->source->base, *to = sync->target->base;

	if (!c->o.same_store || strcmp(sync->source->bucket, sync->target->bucket) != 0)
		return 0;
	if (str_starts(to, from) || str_starts(from, to))
		return copy_refuse(err, sync->target,
			"source and target are the same, or one contains the other");
	return 0;
}

/* ---- the comparison ---- */

/* Returns the path of a local place. The base of "/" is "". */
static const char *directory_of(const struct place *place)
{
	return *place->base ? place->base : "/";
}

static struct compare_side compare_side_of(const struct place *place, struct object_client *client)
{
	if (place_is_object(place))
		return (struct compare_side){.client = client, .bucket = place->bucket};
	return (struct compare_side){.directory = place->base};
}

static int note_gone(struct syncing *s, const struct entry *entry, struct penstock_error *err)
{
	int fd;

	if (!s->sync->remove)
		return 0;
	/* A sync does not delete local directories. */
	if (entry->kind == ENTRY_DIRECTORY && !entry->key)
		return 0;
	if (!s->copy->o.force && output_key_is_state(entry->path)) {
		s->copy->spared++;
		return 0;
	}
	if (!s->gone) {
		fd = fs_open_unnamed("the names to delete", err);
		if (fd < 0)
			return fd;
		s->gone = fdopen(fd, "w+");
		if (!s->gone) {
			close(fd);
			return error_memory(err);
		}
	}
	if (fwrite(entry->path, entry->path_len + 1, 1, s->gone) != 1)
		return error_errno(err, errno, "cannot write the names to delete");
	s->n_gone++;
	return 0;
}

/* Returns true if the object holds the target of the local link. */
static bool same_link(const struct syncing *s, const struct entry *from, const struct entry *to)
{
	_cleanup_free_ char *path = NULL;
	char target[PATH_MAX], hex[2 * CHECKSUM_MAX_SIZE + 1];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	ssize_t n;

	path = s->copy->o.preserve && from->etag ? path_join(s->sync->target->base, to->path)
						 : NULL;
	if (!path)
		return false;
	n = readlink(path, target, sizeof(target));
	if (n < 0 || checksum_of(CHECKSUM_MD5, target, (size_t)n, digest, NULL) < 0)
		return false;
	str_hex(digest, 16, hex);
	return strncmp(from->etag + (*from->etag == '"'), hex, 32) == 0;
}

static int on_verdict(void *cookie, enum compare_verdict verdict, const struct entry *from,
	const struct entry *to, struct penstock_error *err)
{
	struct syncing *s = cookie;
	/* A link at the target is replaced unless the object holds the same link. */
	bool link = to && to->kind == ENTRY_LINK;

	s->found += from != NULL;
	if (verdict == COMPARE_GONE)
		return note_gone(s, to, err);
	if (verdict == COMPARE_NEW || !(link ? same_link(s, from, to) : verdict == COMPARE_SAME))
		return source_tree_push(&s->tree, from, err);
	if (from->kind != ENTRY_DIRECTORY)
		copy_report(s->copy, s->copy->o.report.same,
			&(struct copy_item){
				.name = from->path, .size = from->size, .etag = from->etag});
	return source_tree_keep(&s->tree, from, err);
}

static int compare(struct syncing *s, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *from = NULL, *to = NULL;
	const struct place *target = s->sync->target;
	struct entry entry;
	int r = source_tree_open(&s->tree, s->sync->source, &from, err);

	if (r < 0)
		return r;
	if (!place_is_object(target) && access(directory_of(target), F_OK) < 0 &&
		s->copy->o.dry_run) {
		while (r >= 0 && (r = entry_source_next(from, &entry, err)) > 0)
			r = on_verdict(s, COMPARE_NEW, &entry, NULL, err);
		return r;
	}
	r = source_tree_open(&s->tree, target, &to, err);
	if (r == 0)
		r = compare_trees(from, to, &s->rules, on_verdict, s, err);
	return r == 0 ? source_tree_end(&s->tree, err) : r;
}

/* ---- deletions ---- */

/* Removes a file of the target. Opens its directory from the descriptor of the target and follows
 * no links, because a link in place of a directory would lead out of the tree. */
static int remove_file(struct syncing *s, const char *name, struct penstock_error *err)
{
	const char *slash = strrchr(name, '/'), *base = s->sync->target->base;
	const char *top = directory_of(s->sync->target);
	_cleanup_close_ int dir = -1;
	size_t at = 0;

	if (s->root < 0)
		s->root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->root < 0)
		return error_errno(err, errno, "cannot open the directory '%s'", top);
	dir = fs_open_below(s->root, name, slash ? (size_t)(slash - name) : 0, false, &at);
	if (dir < 0 && errno == ENOENT)
		return 0;
	if (dir < 0 && errno == ENOTDIR)
		return error_set(err, PENSTOCK_E_CHANGED,
			"cannot delete '%s/%s': '%.*s' is no longer a directory; try again", base,
			name, (int)at, name);
	if (dir < 0)
		return error_errno(err, errno, "cannot open the directory of '%s/%s'", base, name);
	if (unlinkat(dir, slash ? slash + 1 : name, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot delete '%s/%s'", base, name);
	return 0;
}

static int remove_one(struct syncing *s, const char *name, struct penstock_error *err)
{
	const struct place *target = s->sync->target;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct copy *c = s->copy;
	bool object = place_is_object(target);
	_cleanup_free_ char *path = str_printf("%s%s%s", target->base, object ? "" : "/", name);

	if (!path)
		return error_memory(err);
	if (object)
		return copy_push(c,
			&(struct bulk_item){.kind = BULK_DELETE,
				.from = object_at(c->o.to, target->bucket, path)},
			0, err);
	if (copy_is_cancelled(c))
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	if (!c->o.dry_run && remove_file(s, name, &own) < 0)
		return copy_item_failed(c, path, &own, err);
	copy_report(c, c->o.report.done, &(struct copy_item){.action = "delete", .from = path});
	return 0;
}

static int remove_gone(struct syncing *s, struct penstock_error *err)
{
	_cleanup_free_ char *name = NULL;
	size_t size = 0;
	int r = 0;

	if (!s->n_gone)
		return 0;
	if (s->copy->failed) {
		s->copy->undeleted = s->n_gone;
		return 0;
	}
	/* A mistyped name of the source looks like an empty source. */
	if (!s->found && !s->copy->o.force)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot delete all items of the target: the source '%s' is empty; use "
			"--force",
			s->sync->source->text);
	if (fflush(s->gone) != 0 || fseek(s->gone, 0, SEEK_SET) != 0)
		return error_errno(err, errno, "cannot read the temporary list of names to delete");
	while (r == 0 && getdelim(&name, &size, '\0', s->gone) > 0)
		r = remove_one(s, name, err);
	if (r == 0 && ferror(s->gone))
		r = error_errno(err, errno, "cannot read the temporary list of names to delete");
	return r == 0 ? copy_finish(s->copy, err) : r;
}

int copy_sync_trees(struct copy *c, const struct copy_sync *sync, struct penstock_error *err)
{
	bool down = place_is_object(sync->source) && !place_is_object(sync->target);
	_cleanup_(syncing_release) struct syncing s = {.copy = c,
		.sync = sync,
		.root = -1,
		.tree = {.copy = c, .source = sync->source, .target = sync->target, .under = ""}};
	int r = copy_make_target(c, sync->target, true, err);

	/* With --preserve, a downloaded file gets the time that it had before the upload. This time
	 * cannot be compared with the object's time. */
	s.rules = (struct compare_rules){.size_only = sync->size_only,
		.exact_times = sync->exact_times,
		.checksum = sync->checksum || (c->o.preserve && down && !sync->size_only),
		.from = compare_side_of(sync->source, c->o.from),
		.to = compare_side_of(sync->target, c->o.to),
		.cancel = c->o.cancel};
	if (r == 0)
		r = compare(&s, err);
	if (r == 0)
		r = copy_finish(c, err);
	return r == 0 ? remove_gone(&s, err) : r;
}
