#include "run/workdir/context_commit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"

#define TIMEOUT_MS 10000 /* for all git commands together */
#define COMMIT_MAX 64 /* hexadecimal digits of SHA-256 */

struct repository {
	const struct context_commit_spec *spec;
	char *program;
	char *dir; /* directory of penstock's own repository */
	struct strlist env; /* environment of git, with penstock's repository once it exists */
	int64_t began_ms;
	char top[4096]; /* reported by git, as are the next three; the index may be missing */
	char objects[4096];
	char index[4096];
	char commit[COMMIT_MAX + 1];
};

static void repository_release(struct repository *r)
{
	if (r->dir)
		fs_remove_tree(r->dir, NULL);
	free(r->program);
	free(r->dir);
	strlist_release(&r->env);
}

/* ---- running git ---- */

/* Runs git in the context; its output goes to `out`. */
static int git(const struct repository *r, const char *const *args, struct process_sink out,
	struct penstock_error *err)
{
	const char *argv[24] = {r->program};
	int status = 0;
	size_t n = 1;
	int rc;

	for (; *args && n + 1 < ARRAY_SIZE(argv); args++)
		argv[n++] = *args;
	rc = process_run(
		&(struct process_spec){
			.argv = argv,
			.envp = (const char *const *)r->env.items,
			.cwd = r->spec->context,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = -1,
			.new_session = true,
			.die_with_parent = true,
		},
		&(struct process_run_options){.name = "git",
			.timeout_ms = TIMEOUT_MS,
			.began_ms = r->began_ms,
			.cancel = r->spec->cancel,
			.out = out},
		&status, err);
	if (rc == 0 && status != 0)
		rc = error_set(err, PENSTOCK_E_UNAVAILABLE, "git %s failed", argv[1]);
	return rc;
}

static int see_any(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	(void)data;
	(void)err;
	*(bool *)cookie |= len > 0;
	return 0;
}

/* ---- the user's repository ---- */

static int write_file(
	const struct repository *r, const char *name, const char *text, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(r->dir, name);

	return path ? fs_write_atomic(path, text, strlen(text), 0600, err) : error_memory(err);
}

/* Prepares git's settings. safe.directory allows repositories of other users, which git rejects by
 * default because their configuration could run programs; finding HEAD runs none. */
static int prepare(struct repository *r, struct penstock_error *err)
{
	static const char *const settings[] = {"LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_ATTR_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", NULL};
	const char *path = str_env("PATH");
	int rc;

	r->dir = path_join(r->spec->tmp, "git");
	if (!r->dir)
		return error_memory(err);
	rc = fs_remove_tree(r->dir, err);
	if (rc == 0)
		rc = fs_mkdirs(r->dir, 0700, err);
	if (rc == 0)
		rc = write_file(r, "gitconfig", "[safe]\n\tdirectory = *\n", err);
	if (rc < 0)
		return rc;
	if (strlist_add_all(&r->env, settings) < 0 ||
		strlist_addf(&r->env, "PATH=%s", path ? path : "/usr/bin:/bin") < 0 ||
		strlist_addf(&r->env, "HOME=%s", r->dir) < 0 ||
		strlist_addf(&r->env, "GIT_CONFIG_GLOBAL=%s/gitconfig", r->dir) < 0)
		return error_memory(err);
	return 0;
}

static bool take_line(char **text, char *out, size_t size)
{
	size_t len = strcspn(*text, "\n");

	if (len == 0 || len >= size || (*text)[len] != '\n')
		return false;
	memcpy(out, *text, len);
	out[len] = '\0';
	*text += len + 1;
	return true;
}

/* Returns true if `path` is `top` or below it; *rest is then the relative path. */
static bool is_below(const char *path, const char *top, const char **rest)
{
	size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);

	if (strncmp(path, top, len) != 0 || (path[len] != '/' && path[len] != '\0'))
		return false;
	*rest = path + len + (path[len] == '/');
	return true;
}

/* Finds the user's repository. Returns false if the directory is not in a work tree, or if there is
 * no commit. */
static bool find(struct repository *r)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *rest;
	char *at;

	if (git(r,
		    (const char *const[]){"-c", "core.fsmonitor=", "rev-parse",
			    "--path-format=absolute", "--show-toplevel", "--git-path", "objects",
			    "--git-path", "index", "HEAD", NULL},
		    (struct process_sink){.text = &text}, NULL) < 0 ||
		!text.data)
		return false;
	at = text.data;
	/* A name with a newline changes the number of lines. */
	return take_line(&at, r->top, sizeof(r->top)) &&
	       take_line(&at, r->objects, sizeof(r->objects)) &&
	       take_line(&at, r->index, sizeof(r->index)) &&
	       take_line(&at, r->commit, sizeof(r->commit)) && *at == '\0' &&
	       r->commit[strspn(r->commit, "0123456789abcdef")] == '\0' &&
	       is_below(r->spec->context, r->top, &rest);
}

/* ---- our repository ---- */

static int copy_index(const struct repository *r, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(r->dir, "index");
	_cleanup_close_ int from = open(r->index, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_close_ int to = -1;
	struct stat st;
	off_t at = 0;

	if (!path)
		return error_memory(err);
	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot read '%s'", r->index);
	to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	while (to >= 0 && at < st.st_size) {
		if (sendfile(to, from, &at, (size_t)(st.st_size - at)) <= 0)
			break;
	}
	/* git compares the times of files with the time of the index to find files that may have
	 * changed within the same clock tick. */
	if (to < 0 || at < st.st_size ||
		futimens(to, (const struct timespec[]){st.st_atim, st.st_mtim}) < 0)
		return error_errno(err, errno, "cannot copy the index");
	return 0;
}

static int read_tree(const struct repository *r, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(r->dir, "index");

	if (!path)
		return error_memory(err);
	unlink(path);
	return git(r, (const char *const[]){"read-tree", r->commit, NULL}, (struct process_sink){0},
		err);
}

static int make_own(struct repository *r, struct penstock_error *err)
{
	static const char *const dirs[] = {"refs", "objects/info"};
	_cleanup_free_ char *alternates = str_printf("%s\n", r->objects);
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(dirs); i++) {
		_cleanup_free_ char *dir = path_join(r->dir, dirs[i]);

		rc = dir ? fs_mkdirs(dir, 0700, err) : error_memory(err);
	}
	if (rc == 0 && !alternates)
		rc = error_memory(err);
	if (rc == 0)
		rc = write_file(r, "HEAD", "ref: refs/heads/none\n", err);
	if (rc == 0)
		rc = write_file(r, "objects/info/alternates", alternates, err);
	if (rc == 0)
		rc = write_file(r, "config",
			strlen(r->commit) == COMMIT_MAX
				? "[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n"
				  "[extensions]\n\tobjectFormat = sha256\n"
				: "[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n",
			err);
	if (rc < 0)
		return rc;
	if (strlist_addf(&r->env, "GIT_DIR=%s", r->dir) < 0 ||
		strlist_addf(&r->env, "GIT_WORK_TREE=%s", r->top) < 0)
		return error_memory(err);
	return copy_index(r, NULL) < 0 ? read_tree(r, err) : 0;
}

/* Returns true if the commit contains files of the context. If a user's home directory is a
 * repository, for example, its commit may have no file of a directory below it. */
static bool is_in_commit(const struct repository *r)
{
	bool any = false;

	return git(r, (const char *const[]){"ls-tree", "--name-only", r->commit, NULL},
		       (struct process_sink){.take = see_any, .cookie = &any}, NULL) == 0 &&
	       any;
}

/* ---- differences ---- */

struct diff {
	int fd;
	size_t len;
	struct buf pending; /* may be the beginning of a secret */
	bool cut;
};

static int put_diff(struct diff *diff, bool last, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(2 * LIMIT_SECRETS);
	size_t taken = log_redact_stream(&masked, buf_str(&diff->pending), diff->pending.len, last);

	if (buf_failed(&masked))
		return buf_error(&masked, "the differences", err);
	if (fs_write_all(diff->fd, buf_str(&masked), masked.len) < 0)
		return error_errno(err, errno, "cannot write the differences");
	diff->len += taken;
	buf_consume(&diff->pending, taken);
	return 0;
}

static int take_diff(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	struct diff *diff = cookie;

	if (diff->len + diff->pending.len + len > LIMIT_CONTEXT_DIFF) {
		diff->cut = true;
		return error_set(err, PENSTOCK_E_LIMIT, "the diff is too large");
	}
	if (buf_add(&diff->pending, data, len) < 0)
		return buf_error(&diff->pending, "the differences", err);
	return put_diff(diff, false, err);
}

/* Returns a pathspec that excludes penstock's home, or NULL if the home is not in the context. The
 * caller frees the result. */
static char *exclusion(const struct repository *r)
{
	_cleanup_free_ char *home = realpath(r->spec->home, NULL);
	const char *rest;

	if (!home || !is_below(home, r->spec->context, &rest) || !*rest)
		return NULL;
	return str_printf(":(exclude,literal)%s", rest);
}

static int run_diff(const struct repository *r, struct diff *diff, struct penstock_error *err)
{
	_cleanup_free_ char *excluded = exclusion(r);
	int rc;

	/* Show new files like changed files. Unreadable files are not in the copy of the context
	 * either. */
	rc = git(r,
		(const char *const[]){
			"add", "--intent-to-add", "--ignore-errors", "--", ".", excluded, NULL},
		(struct process_sink){0}, err);
	if (rc < 0 && rc != -(int)PENSTOCK_E_UNAVAILABLE)
		return rc;
	return git(r,
		(const char *const[]){"-c", "core.bigFileThreshold=1m", "diff", "--no-color",
			"--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=all",
			r->commit, "--", ".", excluded, NULL},
		(struct process_sink){.take = take_diff, .cookie = diff}, err);
}

/* Writes the differences. Returns 1 if differences were written, else 0. */
static int write_diff(const struct repository *r, struct diff *diff, struct penstock_error *err)
{
	_cleanup_free_ char *part = str_printf("%s.part", r->spec->diff);
	_cleanup_close_ int fd = -1;
	int rc;

	if (!part)
		return error_memory(err);
	fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot write '%s'", part);
	diff->fd = fd;
	rc = run_diff(r, diff, err);
	/* A split index, or one in a newer format, cannot be read from another repository. */
	if (rc == -(int)PENSTOCK_E_UNAVAILABLE && diff->len == 0 && diff->pending.len == 0) {
		rc = read_tree(r, err);
		if (rc == 0)
			rc = run_diff(r, diff, err);
	}
	if (diff->cut)
		rc = 0;
	if (rc == 0)
		rc = put_diff(diff, true, err);
	if (rc == 0 && diff->len && (fdatasync(fd) < 0 || rename(part, r->spec->diff) < 0))
		rc = error_errno(err, errno, "cannot write '%s'", r->spec->diff);
	if (rc < 0 || !diff->len)
		unlink(part);
	return rc < 0 ? rc : diff->len > 0;
}

/* ---- result ---- */

int context_commit_describe(
	const struct context_commit_spec *spec, char **json, struct penstock_error *err)
{
	_cleanup_(repository_release) struct repository r = {
		.spec = spec, .began_ms = clock_monotonic_ms()};
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	struct diff diff = {.fd = -1, .pending = BUF_INIT(LIMIT_CONTEXT_DIFF)};
	json_auto_t *root = NULL;
	int rc;

	*json = NULL;
	r.program = fs_find_program(str_env("PATH"), "git");
	if (!r.program)
		return 0;
	rc = prepare(&r, err);
	if (rc < 0 || !find(&r))
		return rc;
	rc = make_own(&r, err);
	if (rc < 0 || !is_in_commit(&r))
		return rc;
	rc = write_diff(&r, &diff, &why);
	buf_release(&diff.pending);
	root = json_pack("{s:s, s:s*, s:o*, s:s*}", "commit", r.commit, "diff",
		rc > 0 ? spec->diff : NULL, "cut", diff.cut ? json_true() : NULL, "unknown",
		rc < 0 ? why.message : NULL);
	*json = json_dumps(root, JSON_COMPACT);
	return *json ? 0 : error_memory(err);
}
