#include "cli/workflow/modules.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "cli/workflow/git_login.h"
#include "records/records.h"
#include "workflow/document/secrets.h"

enum { GIT_PATIENCE_MS = 120000, MESSAGE_BYTES = 400, MAX_REF_DEPTH = 16 };

#define MODULE_FILE "module.yaml"

/* ---- parsing a Git source ---- */

struct repository {
	char *url; /* without a user, except for ssh:// */
	struct git_login login;
	char *folder; /* "" or "a/b" */
	char *ref; /* NULL for HEAD */
	bool is_commit;
};

static void repository_release(struct repository *r)
{
	free(r->url);
	free(r->folder);
	free(r->ref);
	git_login_release(&r->login);
}

static int repository_parse(const char *source, struct repository *r, struct penstock_error *err)
{
	static const char *const schemes[] = {"https://", "http://", "ssh://", "file://"};
	const char *scheme = strstr(source, "://");
	const char *path = scheme ? strchr(scheme + 3, '/') : source;
	const char *at = path ? strrchr(path, '@') : NULL; /* an earlier '@' may end a user name */
	bool is_url = scheme != NULL, known = !is_url;
	_cleanup_free_ char *place = NULL;
	size_t len;

	place = strndup(source, at ? (size_t)(at - source) : strlen(source));
	if (!place)
		return error_memory(err);
	if (is_url) { /* "SCHEME://…[//FOLDER]" */
		path = strstr(place, "://") + 3;
		path = strstr(*path == '/' ? path + 1 : path, "//");
		r->folder = strdup(path ? path + 2 : "");
		r->url = strndup(place, path ? (size_t)(path - place) : strlen(place));
	} else { /* "HOST/OWNER/NAME[/FOLDER]" */
		int slashes = 0;

		for (path = place; *path && (*path != '/' || ++slashes < 3);)
			path++;
		r->folder = strdup(*path ? path + 1 : "");
		r->url = str_printf("https://%.*s", (int)(path - place), place);
	}
	if (!r->folder || !r->url)
		return error_memory(err);
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		known |= str_starts(source, schemes[i]);
	if (!known)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid module '%s': only https://, http://, ssh:// and file:// are supported",
			source);
	if (strstr(r->folder, ".."))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid module '%s': its folder contains '..'; name a folder within the repository",
			source);
	if (!at)
		return 0;
	len = strlen(at + 1);
	r->is_commit = len >= 7 && len <= 40 && strspn(at + 1, "0123456789abcdef") == len;
	if (!is_url && !r->is_commit && *r->folder && !strchr(at + 1, '/'))
		r->ref = str_printf("%s/%s", r->folder, at + 1);
	else
		r->ref = strdup(at + 1);
	if (!r->ref)
		return error_memory(err);
	if (*r->ref == '-' || strpbrk(r->ref, " \t\n:^~?*[\\") || strstr(r->ref, ".."))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid module '%s': the part after '@' is neither a tag nor a commit",
			source);
	return 0;
}

/* ---- git ---- */

/* Returns the line of git's output that has the reason for the failure: the line with "fatal: " or,
 * if there is none, the last line. */
static char *last_words(struct buf *said)
{
	const char *line;

	while (said->len && isspace((unsigned char)said->data[said->len - 1]))
		buf_truncate(said, said->len - 1);
	line = strstr(buf_str(said), "fatal: ");
	if (!line)
		line = strrchr(buf_str(said), '\n');
	if (!line)
		line = buf_str(said);
	line += *line == '\n';
	return strndup(line, strcspn(line, "\n"));
}

/* Runs `git --git-dir DIR …`. Appends the output to `out`, unless `out` is NULL. `way` may be
 * NULL. */
static int git(const struct git_login_way *way, const char *dir, const char *const *args,
	struct buf *out, struct penstock_error *err)
{
	const char *argv[28] = {"/usr/bin/env", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "git", "-c",
		"protocol.ext.allow=never", "--git-dir", dir};
	_cleanup_(buf_release) struct buf said = BUF_INIT(MESSAGE_BYTES);
	_cleanup_free_ char *words = NULL;
	size_t n = 8;
	int status = 0, r;

	for (size_t i = 0; way && i < way->options.n; i++)
		argv[n++] = way->options.items[i];
	for (; *args && n + 1 < ARRAY_SIZE(argv); args++)
		argv[n++] = *args;
	r = process_run(
		&(struct process_spec){
			.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.handed_fd = way ? way->fd : 0,
			.die_with_parent = true, /* no new session: ssh may have to prompt */
		},
		&(struct process_run_options){.name = "git",
			.timeout_ms = GIT_PATIENCE_MS,
			.out.text = out,
			.err.text = &said},
		&status, err);
	if (r < 0 || status == 0)
		return r;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "git is not installed");
	words = last_words(&said);
	if (!words || !*words)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			WIFSIGNALED(status) ? "git was killed by signal %d"
					    : "git failed with exit code %d",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return error_set(err, PENSTOCK_E_UNAVAILABLE, "git failed: %s", words);
}

static int git_logged_in(enum git_login_ways which, const char *dir, const struct repository *r,
	const char *const *args, struct penstock_error *err)
{
	_cleanup_(git_login_way_release) struct git_login_way way = GIT_LOGIN_WAY_INIT;
	int rc = git_login_way(&way, &r->login, which, err);

	return rc < 0 ? rc : git(&way, dir, args, NULL, err);
}

/* Runs a git command that contacts the repository's server, with the login. If that fails and the
 * login has no password, runs the command again with git's own helpers. */
static int git_there(const char *dir, const struct repository *r, const char *const *args,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int rc = git_logged_in(GIT_LOGIN_FIRST, dir, r, args, &e);

	if (rc == -(int)PENSTOCK_E_UNAVAILABLE && r->login.place && !r->login.password)
		return git_logged_in(GIT_LOGIN_HELPERS, dir, r, args, err);
	return rc < 0 ? error_move(err, &e) : 0;
}

/* ---- the repository cache ---- */

struct cache {
	char *dir;
	int lock_fd;
};

static void cache_release(struct cache *cache)
{
	free(cache->dir);
	if (cache->lock_fd >= 0)
		close(cache->lock_fd);
}

static int cache_open(struct cache *cache, const struct repository *r, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL, *dir = NULL, *lock = NULL;
	unsigned char sum[32];
	char name[65];
	int rc = records_home(&home, err);

	if (rc < 0)
		return rc;
	if (EVP_Digest(r->url, strlen(r->url), sum, NULL, EVP_sha256(), NULL) != 1)
		return error_memory(err);
	str_hex(sum, sizeof(sum), name);
	name[24] = '\0';
	dir = path_join(home, "modules");
	cache->dir = str_printf("%s/modules/%s.git", home, name);
	lock = str_printf("%s/modules/%s.lock", home, name);
	if (!dir || !cache->dir || !lock)
		return error_memory(err);
	rc = fs_mkdirs(dir, 0700, err);
	if (rc == 0)
		rc = cache->lock_fd = fs_lock_file(lock, err);
	/* Set the time of the lock file, which `penstock prune` takes as the time of the last
	 * use. */
	if (rc >= 0 && futimens(cache->lock_fd, NULL) < 0)
		rc = error_errno(err, errno, "cannot write '%s'", lock);
	return rc < 0 ? rc : 0;
}

/* Sets `commit` to the commit that `name` has in the cache. Returns false if the cache lacks such a
 * commit. */
static bool find_commit(const char *dir, const char *name, struct buf *commit)
{
	_cleanup_free_ char *object = str_printf("%s^{commit}", name);

	if (access(dir, F_OK) < 0 || !object)
		return false;
	if (git(NULL, dir, (const char *const[]){"rev-parse", "--verify", "--quiet", object, NULL},
		    commit, NULL) < 0)
		return false;
	while (commit->len && commit->data[commit->len - 1] == '\n')
		buf_truncate(commit, commit->len - 1);
	return true;
}

/* Removes lock files of a git that was killed. The caller holds the lock of the cache, so no other
 * git is using the repository. */
static void remove_locks(int dir, int depth)
{
	int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *list = own < 0 ? NULL : fdopendir(own);

	if (!list && own >= 0)
		close(own);
	for (struct dirent *e; list && (e = readdir(list));) {
		_cleanup_close_ int below = -1;

		if (*e->d_name == '.' || (depth == 0 && strcmp(e->d_name, "objects") == 0))
			continue;
		if (str_ends(e->d_name, ".lock") && unlinkat(dir, e->d_name, 0) == 0)
			continue;
		if (e->d_type != DT_DIR || depth == MAX_REF_DEPTH)
			continue;
		below = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0)
			remove_locks(below, depth + 1);
	}
}

/* Fetches HEAD or the tag of `r` as `ref`; for a commit, fetches all branches and tags. */
static int fetch(
	const char *dir, const struct repository *r, const char *ref, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *spec = NULL;
	int rc;

	/* Create the repository, or complete a repository whose creation was interrupted. */
	if (fd >= 0)
		remove_locks(fd, 0);
	rc = git(NULL, dir, (const char *const[]){"init", "--quiet", "--bare", NULL}, NULL, err);
	if (rc < 0)
		return rc;
	if (r->is_commit) /* servers serve a commit only by its full id, if at all */
		return git_there(dir, r,
			(const char *const[]){"fetch", "--quiet", "--no-tags", "--", r->url,
				"+refs/heads/*:refs/penstock/heads/*",
				"+refs/tags/*:refs/penstock/tags/*", NULL},
			err);
	spec = str_printf("+%s%s:%s", r->ref ? "refs/tags/" : "HEAD", r->ref ? r->ref : "", ref);
	if (!spec)
		return error_memory(err);
	rc = git_there(dir, r,
		(const char *const[]){
			"fetch", "--quiet", "--no-tags", "--depth", "1", "--", r->url, spec, NULL},
		&e);
	if (rc == 0)
		return 0;
	if (r->ref && e.message && strstr(e.message, "find remote ref"))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find tag '%s'; 'git ls-remote --tags %s' lists the tags", r->ref,
			r->url);
	return error_move(err, &e);
}

/* Reads the module's file at the commit that the source names. Returns 1 if the cache lacks the
 * commit and `online` is false. */
static int read_repository(
	const struct repository *r, bool online, struct buf *text, struct penstock_error *err)
{
	_cleanup_(cache_release) struct cache cache = {.lock_fd = -1};
	_cleanup_(buf_release) struct buf commit = BUF_INIT(128);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *ref = NULL, *object = NULL;
	bool fetched = false;
	int rc = cache_open(&cache, r, err);

	if (rc < 0)
		return rc;
	ref = r->is_commit ? strdup(r->ref)
			   : str_printf("refs/penstock/%s%s", r->ref ? "tags/" : "head",
				     r->ref ? r->ref : "");
	if (!ref)
		return error_memory(err);
	/* A commit in the cache is current, because commits never change; tags and HEAD may have
	 * been moved. */
	if (online && !(r->is_commit && find_commit(cache.dir, ref, &commit)))
		fetched = fetch(cache.dir, r, ref, &e) == 0;
	buf_clear(&commit);
	if (!find_commit(cache.dir, ref, &commit)) {
		if (!online)
			return 1;
		if (e.code)
			return error_move(err, &e);
		return error_set(
			err, PENSTOCK_E_NOT_FOUND, "'%s' has no commit '%s'", r->url, r->ref);
	}
	if (online && e.code)
		log_warn("%s: %s; using the commit that was fetched before (%s)", r->url, e.message,
			buf_str(&commit));
	else if (fetched)
		log_debug("%s: fetched %s", r->url, buf_str(&commit));
	object = str_printf(
		"%s:%s%s" MODULE_FILE, buf_str(&commit), r->folder, *r->folder ? "/" : "");
	if (!object)
		return error_memory(err);
	rc = git(
		NULL, cache.dir, (const char *const[]){"cat-file", "blob", object, NULL}, text, &e);
	if (rc == -PENSTOCK_E_LIMIT)
		return error_set(err, PENSTOCK_E_LIMIT,
			"'" MODULE_FILE "' is longer than the limit of %zu bytes", text->limit);
	if (rc < 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot read '%s%s" MODULE_FILE "' of commit '%s' of '%s': %s", r->folder,
			*r->folder ? "/" : "", buf_str(&commit), r->url, e.message);
	return 0;
}

static int find(const char *file, const char *source, bool online, struct buf *text,
	struct penstock_error *err)
{
	_cleanup_(repository_release) struct repository r = {0};
	_cleanup_free_ char *path = NULL;
	int rc;

	if (*source == '/' || *source == '.') {
		int folder = *source == '/' ? 0
			     : *file == '/' ? (int)(strrchr(file, '/') - file) + 1
					    : 0;

		path = str_printf("%.*s%s/" MODULE_FILE, folder, file, source);
		if (!path)
			return error_memory(err);
		rc = fs_read(path, text, err);
		return rc < 0 ? error_prefix(err, "cannot read module '%s'", source) : rc;
	}
	if (!str_starts(source, "ssh://"))
		secret_redact_url(source);
	rc = repository_parse(source, &r, err);
	if (rc == 0)
		rc = git_login_take(&r.login, r.url, err);
	if (rc == 0)
		rc = read_repository(&r, online, text, err);
	return rc < 0 ? error_prefix(err, "cannot read module '%s'", source) : rc;
}

int modules_fetch(void *file, const char *source, struct buf *text, struct penstock_error *err)
{
	return find(file, source, true, text, err);
}

int modules_find(void *file, const char *source, struct buf *text, struct penstock_error *err)
{
	return find(file, source, false, text, err);
}
