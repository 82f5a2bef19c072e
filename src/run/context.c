#include "run/context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "run/ignore.h"
#include "base/banned.h"

/* What Determined never sends. */
static const char det_defaults[] =
	"__pycache__/\n*.py[co]\n*$py.class\nterraform\nterraform_data\nterraform.tfstate*\n"
	"terraform.tfvars*\n.terraform*\n.git/\n.vscode/\n.idea/\n.mypy_cache/\n/shared_fs\n"
	"/.detignore\n";

struct copy {
	const struct workflow_context *context;
	const atomic_int *cancel;
	struct ignore ignore;
	struct stat home;
	uint64_t bytes;
	char path[PATH_MAX]; /* relative to the context */
};

static int check_cancel(const struct copy *c, struct penstock_error *err)
{
	if (c->cancel && atomic_load(c->cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "copying the context was cancelled");
	return 0;
}

static int take_bytes(struct copy *c, uint64_t bytes, struct penstock_error *err)
{
	uint64_t most = (uint64_t)c->context->max_bytes.value;
	char shown[STR_SIZE_SIZE];

	c->bytes += bytes;
	if (!most || c->bytes <= most)
		return 0;
	str_format_size(most, shown);
	return error_set(err, PENSTOCK_E_LIMIT,
		"the context %s has more than %s; name what is not needed in %s, or give "
		"--set context.maxBytes=BYTES",
		workflow_shown(&c->context->path), shown,
		c->context->ignore == WORKFLOW_IGNORE_DET ? ".detignore" : ".gitignore");
}

static int copy_contents(struct copy *c, int from, int to, struct penstock_error *err)
{
	char block[64 * 1024];
	ssize_t n;

	while ((n = read(from, block, sizeof(block))) != 0) {
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read %s", c->path);
		r = take_bytes(c, (uint64_t)n, err);
		if (r == 0)
			r = check_cancel(c, err);
		if (r < 0)
			return r;
		if (fs_write_all(to, block, (size_t)n) < 0)
			return error_errno(err, errno, "cannot copy %s", c->path);
	}
	return 0;
}

static int copy_file(struct copy *c, int from_dir, int to_dir, const char *name,
	const struct stat *st, struct penstock_error *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
	_cleanup_close_ int from = openat(
		from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_close_ int to = -1;
	int r;

	if (from < 0)
		return error_errno(err, errno, "cannot open %s", c->path);
	to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		(st->st_mode & 0777) | 0600);
	if (to < 0)
		return error_errno(err, errno, "cannot create %s", c->path);
	r = copy_contents(c, from, to, err);
	if (r == 0 && futimens(to, times) < 0)
		r = error_errno(err, errno, "cannot set the time of %s", c->path);
	return r;
}

static int copy_link(
	struct copy *c, int from_dir, int to_dir, const char *name, struct penstock_error *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);

	if (n < 0)
		return error_errno(err, errno, "cannot read the link %s", c->path);
	target[n] = '\0';
	if (symlinkat(target, to_dir, name) < 0)
		return error_errno(err, errno, "cannot create the link %s", c->path);
	return 0;
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err);

static int copy_entry(struct copy *c, int from, int to, const char *name, size_t depth,
	struct penstock_error *err)
{
	_cleanup_close_ int sub_from = -1;
	_cleanup_close_ int sub_to = -1;
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "cannot look at %s", c->path);
	if (ignore_match(&c->ignore, c->path, S_ISDIR(st.st_mode)))
		return 0;
	if (S_ISREG(st.st_mode))
		return copy_file(c, from, to, name, &st, err);
	if (S_ISLNK(st.st_mode))
		return copy_link(c, from, to, name, err);
	if (!S_ISDIR(st.st_mode)) {
		log_warn("%s is a device, FIFO or socket, and stays behind", c->path);
		return 0;
	}
	if (st.st_dev == c->home.st_dev && st.st_ino == c->home.st_ino)
		return 0;
	if (mkdirat(to, name, (st.st_mode & 0777) | 0700) < 0)
		return error_errno(err, errno, "cannot create %s", c->path);
	sub_from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	sub_to = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub_from < 0 || sub_to < 0)
		return error_errno(err, errno, "cannot open %s", c->path);
	return copy_dir(c, sub_from, sub_to, depth + 1, err);
}

/* The rules of the directory's own file. */
static int add_rules(struct copy *c, int dir, size_t len, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const char *name = c->context->ignore == WORKFLOW_IGNORE_GIT ? ".gitignore" : ".detignore";
	_cleanup_close_ int fd = -1;
	char path[64];
	int r;

	if (c->context->ignore == WORKFLOW_IGNORE_NONE ||
		(c->context->ignore == WORKFLOW_IGNORE_DET && len))
		return 0;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = fs_read(path, &text, err);
	if (r < 0)
		return error_prefix(err, "%s%s%s", c->path, len ? "/" : "", name);
	return ignore_add(&c->ignore, buf_str(&text), len ? len + 1 : 0) < 0 ? error_memory(err)
									     : 0;
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = NULL;
	size_t len = strlen(c->path), rules = c->ignore.n;
	int own = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *e;
	int r = 0;

	list = own >= 0 ? fdopendir(own) : NULL;
	if (!list) {
		r = error_errno(err, errno, "cannot list %s", c->path);
		if (own >= 0)
			close(own);
		return r;
	}
	if (depth > LIMIT_ARCHIVE_DEPTH)
		return error_set(err, PENSTOCK_E_LIMIT, "%s is deeper than %d directories", c->path,
			LIMIT_ARCHIVE_DEPTH);
	r = add_rules(c, from, len, err);
	while (r == 0 && (e = readdir(list))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (len + strlen(e->d_name) + 2 > sizeof(c->path))
			return error_set(
				err, PENSTOCK_E_LIMIT, "a path in the context is too long");
		if (len)
			c->path[len] = '/';
		memcpy(c->path + len + (len ? 1 : 0), e->d_name, strlen(e->d_name) + 1);
		r = check_cancel(c, err);
		if (r == 0)
			r = copy_entry(c, from, to, e->d_name, depth, err);
		c->path[len] = '\0';
	}
	ignore_truncate(&c->ignore, rules);
	return r;
}

int context_copy(const struct workflow *workflow, const char *to, const char *home,
	const atomic_int *cancel, struct penstock_error *err)
{
	const char *path = workflow->context.path.value;
	_cleanup_close_ int from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct copy c = {.context = &workflow->context, .cancel = cancel};
	int r = 0;

	if (from < 0 && errno == ENOENT)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the context %s is not there; give --context DIR",
			workflow_shown(&workflow->context.path));
	if (from < 0 || target < 0)
		return error_errno(err, errno, "cannot open %s", from < 0 ? path : to);
	if (stat(home, &c.home) < 0)
		c.home = (struct stat){0};
	if (c.context->ignore == WORKFLOW_IGNORE_GIT)
		r = ignore_add(&c.ignore, ".git\n", 0);
	else if (c.context->ignore == WORKFLOW_IGNORE_DET)
		r = ignore_add(&c.ignore, det_defaults, 0);
	r = r < 0 ? error_memory(err) : copy_dir(&c, from, target, 0, err);
	ignore_release(&c.ignore);
	return r;
}
