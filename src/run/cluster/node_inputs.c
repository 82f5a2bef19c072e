#include "run/cluster/node_inputs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/stage/copy_tree.h"

enum { WAIT_MS = 50 };

/* ---- the directory ---- */

/* Sets *out to the path of this user's private directory below `where`, and creates the directory
 * if it is missing. `where` may be writable for all users. The caller frees *out. */
static int find_base(const char *where, char **out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf dir = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *base = NULL;
	struct stat st;
	const char *text = where;
	int r;

	/* Expand "$NAME" and "${NAME}" from the environment; a missing variable is an error. */
	while (*text) {
		bool braced = text[0] == '$' && text[1] == '{';
		const char *name = text + 1 + braced;
		size_t len = 0;
		_cleanup_free_ char *key = NULL;
		const char *value;

		while (isalnum((unsigned char)name[len]) || name[len] == '_')
			len++;
		if (*text != '$' || len == 0 || (braced && name[len] != '}')) {
			buf_add_char(&dir, *text++);
			continue;
		}
		key = strndup(name, len);
		if (!key)
			return error_memory(err);
		value = str_env(key);
		if (!value)
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot find the node directory: $%s is not set on this node", key);
		buf_add_str(&dir, value);
		text = name + len + braced;
	}
	r = buf_failed(&dir) ? buf_error(&dir, "the directory of the node", err) : 0;
	if (r < 0)
		return r;
	if (*buf_str(&dir) != '/')
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use the node directory '%s': its path is not absolute",
			buf_str(&dir));
	base = str_printf("%s/penstock-%u", buf_str(&dir), (unsigned)geteuid());
	if (!base)
		return error_memory(err);
	if (mkdir(base, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make '%s'", base);
	if (lstat(base, &st) < 0)
		return error_errno(err, errno, "cannot get the status of '%s'", base);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot use '%s': it is not a directory that only this user can write to",
			base);
	*out = take_pointer(base);
	return 0;
}

/* ---- one copy ---- */

/* Opens the lock file of a copy. Removing a copy also removes its lock file, so the caller checks
 * that the open file still has this name. Returns -1 and sets errno on failure. */
static int open_lock(const char *path)
{
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Removes a copy unless it is in use. */
static void remove_copy(const char *base, const char *name)
{
	_cleanup_free_ char *dir = path_join(base, name);
	_cleanup_free_ char *lock = str_printf("%s/%s.lock", base, name);
	_cleanup_free_ char *part = str_printf("%s/%s.part", base, name);
	_cleanup_close_ int fd = -1;

	if (!dir || !lock || !part)
		return;
	fd = open_lock(lock);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !fs_is_named(fd, lock))
		return;
	fs_remove_tree(dir, NULL);
	fs_remove_tree(part, NULL);
	unlink(lock);
}

/* Removes all copies of the run except `but`, which may be NULL. */
static void remove_others(const char *base, const char *id, const char *but)
{
	_cleanup_closedir_ DIR *dir = opendir(base);
	size_t len = strlen(id);

	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_free_ char *name = NULL;

		if (strncmp(e->d_name, id, len) != 0 || e->d_name[len] != '-' ||
			!str_ends(e->d_name, ".lock"))
			continue;
		name = strndup(e->d_name, strlen(e->d_name) - strlen(".lock"));
		if (name && (!but || strcmp(name, but) != 0))
			remove_copy(base, name);
	}
}

static bool is_urgent(const struct node_inputs_spec *spec)
{
	return spec->hurry && spec->hurry(spec->cookie);
}

static int cancelled(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CANCELLED, "the task is being ended");
}

static int on_moved(void *cookie, size_t bytes, struct penstock_error *err)
{
	(void)bytes;
	return is_urgent(cookie) ? cancelled(err) : 0;
}

/* Tries to take the lock. Returns 1 if this process has it now, 0 if another process has it. */
static int try_lock(int fd, int kind, const char *path, struct penstock_error *err)
{
	if (flock(fd, kind | LOCK_NB) == 0)
		return 1;
	return errno == EWOULDBLOCK || errno == EINTR
		       ? 0
		       : error_errno(err, errno, "cannot lock '%s'", path);
}

/* Waits while another task copies. Returns 1 with a shared lock if the copy exists now, 0 with the
 * exclusive lock if this task must copy. */
static int wait_for_copy(
	int fd, const char *path, const struct node_inputs_spec *spec, struct penstock_error *err)
{
	for (;;) {
		int r = try_lock(fd, LOCK_SH, path, err);

		if (r < 0 || (r > 0 && access(path, F_OK) == 0))
			return r;
		r = try_lock(fd, LOCK_EX, path, err);
		if (r < 0)
			return r;
		if (r > 0 && access(path, F_OK) < 0)
			return 0;
		/* Drop the lock while waiting: two waiters that keep the shared lock would wait for
		 * each other forever. */
		flock(fd, LOCK_UN);
		if (is_urgent(spec))
			return cancelled(err);
		clock_sleep_ms(WAIT_MS);
	}
}

static int take(struct node_inputs *out, const struct node_inputs_spec *spec, const char *base,
	const char *lock, struct penstock_error *err)
{
	for (;;) {
		int r;

		if (out->lock >= 0)
			close(out->lock);
		out->lock = open_lock(lock);
		if (out->lock < 0)
			return error_errno(err, errno, "cannot open '%s'", lock);
		r = wait_for_copy(out->lock, out->path, spec, err);
		if (r < 0)
			return r;
		if (!fs_is_named(out->lock, lock))
			continue;
		if (r == 0) {
			remove_others(base, spec->id, strrchr(out->path, '/') + 1);
			/* Copy to PATH.part, which is then renamed: a copy with the final
			 * name is complete. */
			_cleanup_free_ char *part = str_printf("%s.part", out->path);
			_cleanup_close_ int from = open(
						    spec->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
					    to = -1;

			if (!part)
				return error_memory(err);
			if (from < 0)
				return error_errno(err, errno, "cannot open '%s'", spec->from);
			fs_remove_tree(part, NULL);
			r = fs_mkdirs(part, 0700, err);
			to = r == 0 ? open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
			if (r == 0 && to < 0)
				r = error_errno(err, errno, "cannot open '%s'", part);
			if (r == 0)
				r = copy_tree(
					&(struct copy_tree){
						.what = "copying the inputs to this node",
						.moved = on_moved,
						.cookie = (void *)(uintptr_t)spec},
					from, to, err);
			if (r == 0 && rename(part, out->path) < 0)
				r = error_errno(err, errno, "cannot rename '%s'", part);
			if (r < 0)
				fs_remove_tree(part, NULL);
			if (r < 0)
				return r;
			if (flock(out->lock, LOCK_SH) < 0)
				return error_errno(err, errno, "cannot lock '%s'", lock);
		}
		if (access(out->path, F_OK) == 0 && fs_is_named(out->lock, lock))
			return 0;
	}
}

int node_inputs_take(
	struct node_inputs *out, const struct node_inputs_spec *spec, struct penstock_error *err)
{
	_cleanup_(node_inputs_release) struct node_inputs mine = {.lock = -1};
	_cleanup_free_ char *base = NULL, *lock = NULL;
	int r = find_base(spec->where, &base, err);

	if (r < 0)
		return r;
	mine.path = str_printf("%s/%s-%d", base, spec->id, spec->attempt);
	lock = str_printf("%s/%s-%d.lock", base, spec->id, spec->attempt);
	if (!mine.path || !lock)
		return error_memory(err);
	r = take(&mine, spec, base, lock, err);
	if (r < 0)
		return r;
	*out = mine;
	mine = (struct node_inputs){.lock = -1};
	return 0;
}

void node_inputs_release(struct node_inputs *inputs)
{
	if (inputs->lock >= 0)
		close(inputs->lock);
	free(inputs->path);
	*inputs = (struct node_inputs){.lock = -1};
}

int node_inputs_sweep(const char *where, const char *id)
{
	_cleanup_free_ char *base = NULL;

	if (find_base(where, &base, NULL) == 0) {
		remove_others(base, id, NULL);
		rmdir(base);
	}
	return 0;
}
