#include "run/workdir/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* Files that Determined never sends. */
static const char det_defaults[] =
	"__pycache__/\n*.py[co]\n*$py.class\nterraform\nterraform_data\nterraform.tfstate*\n"
	"terraform.tfvars*\n.terraform*\n.git/\n.vscode/\n.idea/\n.mypy_cache/\n/shared_fs\n"
	"/.detignore\n";

/* A copy in progress. */
struct context_copy {
	const struct workflow_context *context;
	struct ignore ignore;
	size_t before[LIMIT_ARCHIVE_DEPTH + 2]; /* number of rules before each open directory */
	size_t depth;
	struct stat home;
	uint64_t bytes;
};

static int take_bytes(void *cookie, size_t bytes, struct penstock_error *err)
{
	struct context_copy *c = cookie;
	uint64_t most = (uint64_t)c->context->max_bytes.value;
	char shown[STR_SIZE_SIZE];

	c->bytes += bytes;
	if (!most || c->bytes <= most)
		return 0;
	str_format_size(most, shown);
	return error_set(err, PENSTOCK_E_LIMIT,
		"the context %s is larger than %s; list files to exclude in %s, or use --set "
		"context.maxBytes=BYTES",
		workflow_shown(&c->context->path), shown,
		c->context->ignore == WORKFLOW_IGNORE_DET ? ".detignore" : ".gitignore");
}

static bool leave_out(void *cookie, const char *path, const struct stat *st)
{
	const struct context_copy *c = cookie;

	return ignore_match(&c->ignore, path, S_ISDIR(st->st_mode)) ||
	       (S_ISDIR(st->st_mode) && st->st_dev == c->home.st_dev &&
		       st->st_ino == c->home.st_ino);
}

static int pass_over(void *cookie, const char *path, struct penstock_error *err)
{
	(void)cookie;
	(void)err;
	log_warn("skipping %s: it is a device, FIFO or socket", path);
	return 0;
}

/* Adds the rules of a directory's own file. */
static int add_rules(void *cookie, int dir, const char *at, struct penstock_error *err)
{
	struct context_copy *c = cookie;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const char *name = c->context->ignore == WORKFLOW_IGNORE_GIT ? ".gitignore" : ".detignore";
	_cleanup_close_ int fd = -1;
	size_t len = strlen(at);
	char path[64];
	int r;

	c->before[c->depth++] = c->ignore.n;
	if (c->context->ignore == WORKFLOW_IGNORE_NONE ||
		(c->context->ignore == WORKFLOW_IGNORE_DET && len))
		return 0;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = fs_read(path, &text, err);
	if (r < 0)
		return error_prefix(err, "%s%s%s", at, len ? "/" : "", name);
	return ignore_add(&c->ignore, buf_str(&text), len ? len + 1 : 0) < 0 ? error_memory(err)
									     : 0;
}

static void forget_rules(void *cookie)
{
	struct context_copy *c = cookie;

	ignore_truncate(&c->ignore, c->before[--c->depth]);
}

int context_copy(const struct workflow *workflow, const char *to, const char *home,
	const atomic_int *cancel, struct penstock_error *err)
{
	const char *path = workflow->context.path.value;
	_cleanup_close_ int from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct context_copy c = {.context = &workflow->context};
	const struct copy_tree how = {.what = "copying the context",
		.cancel = cancel,
		.leave_out = leave_out,
		.enter = add_rules,
		.leave = forget_rules,
		.moved = take_bytes,
		.special = pass_over,
		.cookie = &c};
	int r = 0;

	if (from < 0 && errno == ENOENT)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the context %s does not exist; use --context DIR",
			workflow_shown(&workflow->context.path));
	if (from < 0 || target < 0)
		return error_errno(err, errno, "cannot open %s", from < 0 ? path : to);
	if (stat(home, &c.home) < 0)
		c.home = (struct stat){0};
	if (c.context->ignore == WORKFLOW_IGNORE_GIT)
		r = ignore_add(&c.ignore, ".git\n", 0);
	else if (c.context->ignore == WORKFLOW_IGNORE_DET)
		r = ignore_add(&c.ignore, det_defaults, 0);
	r = r < 0 ? error_memory(err) : copy_tree(&how, from, target, err);
	ignore_release(&c.ignore);
	return r;
}
