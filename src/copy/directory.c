/* Directories of a tree: objects "a/" in a store, empty local directories. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "copy/tree.h"

enum { OPEN_AT_A_TIME = 32 };

/* ---- downloads ---- */

/* Opens the directory at `target`, creating missing directories; returns a descriptor. Follows no
 * links below target->path_root, because a link could lead out of the tree. */
static int open_made(const struct target *target, struct penstock_error *err)
{
	_cleanup_close_ int at = bulk_open_root(target->path, target->path_root, err);

	return at < 0 ? at
		      : bulk_make_below(
				at, target->path, target->path_root, strlen(target->path), err);
}

/* Sets the mode and the time that --preserve has stored with the object of the directory. A mode
 * that allows no new files is set at the end, after the files. Returns 0, or -1 with errno. */
static int restore_attributes(
	struct copy *c, int fd, const struct target *target, const struct object_info *info)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	const struct fs_fd_path self = fs_fd_path(fd);
	mode_t mode;

	if (bulk_kept_mode(&info->metadata, &mode) && S_ISDIR(mode)) {
		mode &= 0777;
		if ((mode & 0700) != 0700 && copy_set_mode_later(c, target, mode) < 0)
			return -1;
		if (chmod(self.text, mode | 0700) < 0)
			return -1;
	}
	if (!bulk_kept_time(&info->metadata, &times[1]))
		return 0;
	return utimensat(AT_FDCWD, self.text, times, 0);
}

int directory_make(struct source_tree *tree, const struct entry *entry, const struct target *target,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	struct copy *c = tree->copy;
	_cleanup_close_ int fd = -1;
	int r = 0;

	if (c->o.dry_run)
		return 0;
	fd = open_made(target, err);
	if (fd < 0)
		return fd;
	if (c->o.preserve) {
		r = object_head(object_at(c->o.from, tree->source->bucket, entry->key), &info, err);
		if (r == 0 && restore_attributes(c, fd, target, &info) < 0)
			r = error_errno(
				err, errno, "cannot set mode and time of '%s'", target->path);
	}
	if (r == 0 && c->o.move)
		r = object_delete(
			object_at(c->o.from, tree->source->bucket, entry->key), entry->etag, err);
	return r;
}

/* ---- uploads ---- */

int directory_put_empty(struct source_tree *tree, struct penstock_error *err)
{
	_cleanup_free_ char *relative = take_pointer(tree->empty), *path = NULL, *name = NULL;
	_cleanup_(strlist_release) struct strlist metadata = {0};
	_cleanup_(target_release) struct target target = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct copy *c = tree->copy;
	struct object_put_options put = c->o.put;
	struct stat st;
	int r;

	if (!relative)
		return 0;
	path = path_join(tree->source->base, relative);
	name = str_printf("%s%s", tree->under, relative);
	if (!path || !name)
		return error_memory(err);
	if (lstat(path, &st) < 0)
		return 0; /* removed in the meantime */
	if (bulk_keep(&metadata, put.metadata, true, &st) < 0)
		return error_memory(err);
	put.metadata = &metadata;
	put.content_type = "application/x-directory";
	put.cancel = c->o.cancel;
	put.if_none_match |= c->o.no_clobber;
	r = target_resolve(&target, tree->target, name, &own);
	if (r == 0 && !c->o.dry_run)
		r = object_put(object_at(c->o.to, tree->target->bucket, target.key), "", 0, &put,
			NULL, &own);
	if (r == 0 || (r == -(int)PENSTOCK_E_PRECONDITION && c->o.no_clobber))
		return 0;
	return copy_item_failed(c, path, &own, err);
}

int directory_enter(
	struct source_tree *tree, const char *path, bool wanted, struct penstock_error *err)
{
	int r = tree->empty && !str_starts(path, tree->empty) ? directory_put_empty(tree, err) : 0;

	if (r < 0 || !tree->copy->o.preserve || !place_is_object(tree->target))
		return r;
	free(tree->empty);
	tree->empty = wanted ? strdup(path) : NULL;
	return wanted && !tree->empty ? error_memory(err) : 0;
}

/* ---- after a move ---- */

static _Thread_local const char *kept_root;

static int remove_if_empty(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	if (type == FTW_DP && (!kept_root || strcmp(path, kept_root) != 0))
		rmdir(path); /* fails if the directory is not empty */
	return 0;
}

void directory_remove_empty(const char *path, bool itself)
{
	kept_root = itself ? NULL : path;
	nftw(path, remove_if_empty, OPEN_AT_A_TIME, FTW_DEPTH | FTW_PHYS);
	kept_root = NULL;
}
