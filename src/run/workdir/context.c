#include "run/workdir/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
#include "run/stage/copy_tree.h"
#include "run/workdir/ignore.h"
#include "s3/sum/checksum.h"

/* Files that Determined never sends. */
static const char det_defaults[] =
	"__pycache__/\n*.py[co]\n*$py.class\nterraform\nterraform_data\nterraform.tfstate*\n"
	"terraform.tfvars*\n.terraform*\n.git/\n.vscode/\n.idea/\n.mypy_cache/\n/shared_fs\n"
	"/.detignore\n";

/* A scan or a copy in progress. */
struct visit {
	const struct context_source *source;
	struct ignore ignore;
	size_t rules[LIMIT_ARCHIVE_DEPTH + 2]; /* number of rules before each open directory */
	size_t depth;
	struct stat home;
	/* Used by a scan. */
	const struct context_files *known;
	struct context_files *found;
	uint64_t bytes;
	/* Used by a copy. */
	const struct context_files *before, *now;
	int target;
};

static int take_bytes(struct visit *v, uint64_t bytes, struct penstock_error *err)
{
	const struct workflow_context *context = v->source->context;
	uint64_t most = (uint64_t)context->max_bytes.value;
	char shown[STR_SIZE_SIZE];

	v->bytes += bytes;
	if (!most || v->bytes <= most)
		return 0;
	str_format_size(most, shown);
	return error_set(err, PENSTOCK_E_LIMIT,
		"cannot copy the context '%s': it is larger than %s; list files to exclude in '%s', "
		"or use --set context.maxBytes=BYTES",
		workflow_shown(&context->path), shown,
		context->ignore == WORKFLOW_IGNORE_DET ? ".detignore" : ".gitignore");
}

static bool leave_out(void *cookie, const char *path, const struct stat *st)
{
	const struct visit *v = cookie;

	return ignore_match(&v->ignore, path, S_ISDIR(st->st_mode)) ||
	       (S_ISDIR(st->st_mode) && st->st_dev == v->home.st_dev &&
		       st->st_ino == v->home.st_ino);
}

static int pass_over(void *cookie, const char *path, struct penstock_error *err)
{
	const struct visit *v = cookie;

	(void)err;
	if (v->found)
		log_warn("skipping '%s': it is a device, FIFO or socket", path);
	return 0;
}

/* Adds the rules of the ignore file in a directory. */
static int add_rules(void *cookie, int dir, const char *at, struct penstock_error *err)
{
	struct visit *c = cookie;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const char *name = c->source->context->ignore == WORKFLOW_IGNORE_GIT ? ".gitignore"
									     : ".detignore";
	_cleanup_close_ int fd = -1;
	size_t len = strlen(at);
	int r;

	c->rules[c->depth++] = c->ignore.n;
	if (c->source->plain || c->source->context->ignore == WORKFLOW_IGNORE_NONE ||
		(c->source->context->ignore == WORKFLOW_IGNORE_DET && len))
		return 0;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	r = fs_read(fs_fd_path(fd).text, &text, err);
	if (r < 0)
		return error_prefix(err, "%s%s%s", at, len ? "/" : "", name);
	return ignore_add(&c->ignore, buf_str(&text), len ? len + 1 : 0) < 0 ? error_memory(err)
									     : 0;
}

static void forget_rules(void *cookie)
{
	struct visit *c = cookie;

	ignore_truncate(&c->ignore, c->rules[--c->depth]);
}

/* Calls the functions of `how` for the whole directory. */
static int visit(struct visit *v, struct copy_tree *how, struct penstock_error *err)
{
	const struct workflow_context *context = v->source->context;
	_cleanup_close_ int from = open(v->source->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (from < 0 && errno == ENOENT)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find the context '%s'; use --context DIR",
			workflow_shown(&context->path));
	if (from < 0)
		return error_errno(err, errno, "cannot open '%s'", v->source->dir);
	if (stat(v->source->home, &v->home) < 0)
		v->home = (struct stat){0};
	if (!v->source->plain && context->ignore == WORKFLOW_IGNORE_GIT)
		r = ignore_add(&v->ignore, ".git\n", 0);
	else if (!v->source->plain && context->ignore == WORKFLOW_IGNORE_DET)
		r = ignore_add(&v->ignore, det_defaults, 0);
	how->what = "copying the context";
	how->cancel = v->source->cancel;
	how->enter = add_rules;
	how->leave = forget_rules;
	how->special = pass_over;
	how->cookie = v;
	r = r < 0 ? error_memory(err) : copy_tree(how, from, v->target, err);
	ignore_release(&v->ignore);
	return r;
}

/* ---- scanning ---- */

static int sum_link(int dir, const char *name, uint8_t *sum, struct penstock_error *err)
{
	char target[4096];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	return n < 0 ? error_errno(err, errno, "cannot read the link '%s'", name)
		     : checksum_of(CHECKSUM_SHA256, target, (size_t)n, sum, err);
}

static int sum_file(const struct visit *v, int dir, const char *name, const char *path,
	uint8_t sum[static CHECKSUM_MAX_SIZE], struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	r = checksum_of_file(
		fd, CHECKSUM_SHA256, 0, (uint64_t)st.st_size, v->source->cancel, sum, err);
	if (r != -(int)PENSTOCK_E_CHANGED)
		return r;
	/* The file is being written: record zeros, so that the next scan reads the file again. */
	penstock_error_release(err);
	memset(sum, 0, CHECKSUM_MAX_SIZE);
	return 0;
}

static int take_file(void *cookie, int dir, const char *name, const char *path,
	const struct stat *st, struct penstock_error *err)
{
	struct visit *v = cookie;
	const struct context_file *known = context_files_find(v->known, path);
	struct context_file *file = context_files_add(v->found, path, st);
	uint8_t sum[CHECKSUM_MAX_SIZE];
	int r = take_bytes(v, S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0, err);

	if (r < 0)
		return r;
	if (!file)
		return error_memory(err);
	if (known && context_file_is_untouched(known, file)) {
		memcpy(file->sum, known->sum, sizeof(file->sum));
		return 0;
	}
	r = S_ISLNK(st->st_mode) ? sum_link(dir, name, sum, err)
				 : sum_file(v, dir, name, path, sum, err);
	str_hex(sum, CONTEXT_SUM_SIZE / 2, file->sum);
	return r;
}

int context_scan(const struct context_source *source, const struct context_files *known,
	struct context_files *out, struct penstock_error *err)
{
	struct context_files found = {0};
	struct visit v = {.source = source, .known = known, .found = &found, .target = -1};
	struct copy_tree how = {.leave_out = leave_out, .seen = take_file};
	int r = visit(&v, &how, err);

	if (r < 0) {
		context_files_release(&found);
		return r;
	}
	context_files_sort(&found);
	*out = found;
	return 0;
}

/* ---- copying ---- */

static bool is_unchanged(void *cookie, const char *path, const struct stat *st)
{
	const struct visit *v = cookie;
	const struct context_file *before, *now;
	struct stat there;

	if (leave_out(cookie, path, st))
		return true;
	/* A link in the place of a directory is penstock's own link to an artifact or an input. */
	if (S_ISDIR(st->st_mode))
		return fstatat(v->target, path, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		       S_ISLNK(there.st_mode);
	before = context_files_find(v->before, path);
	now = context_files_find(v->now, path);
	/* A file that appeared since the scan is left for the next scan. */
	return !now || (before && context_file_is_same(before, now));
}

/* Removes a file, and then the empty directories of its path, because a file may replace such a
 * directory. Does not follow links, because a step may have replaced a directory with a link. */
static void remove_one(int root, char *path)
{
	int flags = 0;

	for (;;) {
		char *slash = strrchr(path, '/');
		size_t at;
		_cleanup_close_ int dir = fs_open_below(
			root, path, slash ? (size_t)(slash - path) : 0, false, &at);

		if ((dir < 0 || unlinkat(dir, slash ? slash + 1 : path, flags) < 0) &&
			errno != ENOENT) {
			log_debug("cannot remove '%s': %s", path, strerror(errno));
			return;
		}
		if (!slash)
			return;
		*slash = '\0';
		flags = AT_REMOVEDIR;
	}
}

static int remove_gone(const struct visit *v, struct penstock_error *err)
{
	for (size_t i = 0; i < v->before->n; i++) {
		_cleanup_free_ char *path = strdup(v->before->items[i].path);

		if (!path)
			return error_memory(err);
		if (!context_files_find(v->now, path))
			remove_one(v->target, path);
	}
	return 0;
}

int context_copy(const struct context_source *source, const struct context_files *before,
	const struct context_files *now, const char *to, struct penstock_error *err)
{
	_cleanup_close_ int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct visit v = {.source = source, .before = before, .now = now, .target = target};
	struct copy_tree how = {.replace = true, .leave_out = is_unchanged};
	int r;

	if (target < 0)
		return error_errno(err, errno, "cannot open '%s'", to);
	r = remove_gone(&v, err);
	return r < 0 ? r : visit(&v, &how, err);
}
