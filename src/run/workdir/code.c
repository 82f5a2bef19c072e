#include "run/workdir/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/workdir/code_store.h"
#include "run/workdir/context.h"
#include "run/workdir/context_commit.h"
#include "run/workdir/project.h"

/* File below the run's state: the list of the files that the working directory got. */
#define CODE_LIST "context"

/* File below the run's state, with two digests: of the context directory as it was last seen, and
 * of the code that this machine last published, or last took from the store. */
#define CODE_SEEN "context-seen"

/* The paths and the lists of one copy. */
struct code {
	const struct attempt *attempt;
	const struct code_store *store; /* NULL if code is not published */
	const atomic_int *cancel;
	char *mark; /* path of PROJECT_COMMIT, which exists once the copy is complete */
	char *list;
	char *seen_path;
	struct context_files before, now;
	char seen[CONTEXT_SUM_SIZE], base[CONTEXT_SUM_SIZE]; /* the two digests of CODE_SEEN */
	struct code_published published;
};

static void code_release(struct code *code)
{
	context_files_release(&code->before);
	context_files_release(&code->now);
	free(code->mark);
	free(code->list);
	free(code->seen_path);
}

/* Returns the context's Git commit as JSON, or NULL if there is no commit, or if the commit cannot
 * be determined. A missing commit does not prevent the run. */
static char *describe_context(const struct attempt *attempt, const atomic_int *cancel)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *context = realpath(attempt->workflow->context.path.value, NULL);
	_cleanup_free_ char *dir = path_join(attempt->layout.dir, "context");
	_cleanup_free_ char *diff = dir ? str_printf("%s/%d.diff", dir, attempt->number) : NULL;
	char *json = NULL;
	int r;

	if (!context || !diff)
		return NULL;
	r = fs_mkdirs(dir, 0700, &err);
	if (r == 0)
		r = context_commit_describe(
			&(struct context_commit_spec){
				.context = context,
				.home = attempt->home,
				.tmp = attempt->layout.tmp,
				.diff = diff,
				.cancel = cancel,
			},
			&json, &err);
	if (r < 0)
		run_say(&attempt->voice, RUN_EVENT_WARNING,
			"cannot record the Git commit of the context: %s", err.message);
	rmdir(dir); /* fails if `dir` contains a diff */
	return json;
}

static struct context_source source_of(const struct code *code, const char *dir, bool plain)
{
	return (struct context_source){
		.context = &code->attempt->workflow->context,
		.dir = dir,
		.plain = plain,
		.home = code->attempt->home,
		.cancel = code->cancel,
	};
}

/* Copies the files, then writes their list, so that an interrupted update is repeated. */
static int copy_files(struct code *code, const char *dir, bool plain, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const struct context_source source = source_of(code, dir, plain);
	_cleanup_free_ char *commit = NULL;
	int r = context_copy(&source, &code->before, &code->now, attempt->layout.work, err);

	if (r < 0)
		return r;
	commit = plain ? NULL : describe_context(attempt, code->cancel);
	r = fs_write_atomic(
		code->mark, commit ? commit : "", commit ? strlen(commit) : 0, 0600, err);
	return r < 0 ? r : context_files_write(&code->now, code->list, err);
}

static int scan(struct code *code, const char *dir, bool plain, struct penstock_error *err)
{
	const struct context_source source = source_of(code, dir, plain);

	return context_scan(&source, &code->before, &code->now, err);
}

/* ---- the code of other machines ---- */

static void warn(const struct code *code, const char *what, const struct penstock_error *err)
{
	run_say(&code->attempt->voice, RUN_EVENT_WARNING,
		"%s: %s; another machine that continues this run uses its own code", what,
		err->message);
}

/* Looks for published code, and reads the digests. If the store cannot be read, only warns: then
 * each machine runs its own code. */
static int look(struct code *code, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * CONTEXT_SUM_SIZE);

	if (code->store && code_store_look(code->store, &code->published, &e) < 0)
		warn(code, "cannot look for the published code", &e);
	if (fs_read(code->seen_path, &text, NULL) == 0 &&
		sscanf(buf_str(&text), "%64s %64s", code->seen, code->base) >= 1)
		return 0;
	return context_files_digest(&code->before, code->seen, err);
}

static int note_seen(
	const struct code *code, const char *seen, const char *base, struct penstock_error *err)
{
	char text[2 * CONTEXT_SUM_SIZE];
	int n;

	if (!code->store || (strcmp(seen, code->seen) == 0 && strcmp(base, code->base) == 0))
		return 0;
	n = snprintf(text, sizeof(text), "%s %s", seen, base);
	return fs_write_atomic(code->seen_path, text, (size_t)n, 0600, err);
}

/* Publishes the code in the working directory; `now` lists its files. A failure is only reported:
 * the run continues. */
static int publish(struct code *code, const char *digest, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct code_published about = {.attempt = code->attempt->number};
	bool there = strcmp(digest, code->published.digest) == 0;

	if (!code->store)
		return 0;
	snprintf(about.digest, sizeof(about.digest), "%s", digest);
	gethostname(about.host, sizeof(about.host) - 1);
	if (!there && code_store_put(code->store, &code->now, code->attempt->layout.work, &about,
			      &e) < 0) {
		warn(code, "cannot publish the code", &e);
		digest = code->published.digest;
	}
	return note_seen(code, about.digest, digest, err);
}

/* Replaces the code in the working directory with the published code. */
static int take_published(struct code *code, const char *seen, struct penstock_error *err)
{
	const struct code_published *from = &code->published;
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *dir = NULL;
	int r = code_store_get(code->store, &dir, err);

	if (r < 0)
		return error_prefix(err, "cannot fetch the code of attempt %d on %s", from->attempt,
			from->host);
	context_files_release(&code->now);
	r = scan(code, dir, true, err);
	if (r == 0)
		context_files_changes(&code->before, &code->now, &names);
	if (r == 0)
		run_say(&code->attempt->voice, RUN_EVENT_MESSAGE,
			"the run uses the code of attempt %d on %s: %s", from->attempt, from->host,
			buf_str(&names));
	if (r == 0)
		r = copy_files(code, dir, true, err);
	fs_remove_tree(dir, NULL);
	return r < 0 ? r : note_seen(code, seen, from->digest, err);
}

/* ---- laying out ---- */

static bool is_here(const struct attempt *attempt)
{
	return access(attempt->workflow->context.path.value, F_OK) == 0;
}

/* Creates the first copy. An incomplete copy is created again. */
static int copy_all(struct code *code, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const char *dir = attempt->workflow->context.path.value;
	char digest[CONTEXT_SUM_SIZE];
	int r = fs_remove_tree(attempt->layout.work, err);

	if (r == 0)
		r = fs_mkdirs(attempt->layout.work, 0700, err);
	if (r == 0 && !dir)
		return fs_write_atomic(code->mark, "", 0, 0600, err);
	if (r == 0)
		r = look(code, err);
	if (r == 0 && attempt->continuing && *code->published.digest &&
		(attempt->keep_context || !is_here(attempt)))
		return take_published(code, "", err);
	if (r == 0)
		r = scan(code, dir, false, err);
	if (r == 0)
		r = copy_files(code, dir, false, err);
	if (r == 0)
		r = context_files_digest(&code->now, digest, err);
	return r < 0 ? r : publish(code, digest, err);
}

/* Takes the local code if it has changed, else the code of another machine if that code has
 * changed. */
static int update(struct code *code, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const char *dir = attempt->workflow->context.path.value;
	bool here = dir && !attempt->keep_context && is_here(attempt);
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_STRING);
	char digest[CONTEXT_SUM_SIZE], had[CONTEXT_SUM_SIZE];
	int r;

	if (!dir)
		return 0;
	r = context_files_read(&code->before, code->list, err);
	if (r == 0)
		r = look(code, err);
	if (r == 0)
		r = context_files_digest(&code->before, had, err);
	if (r == 0 && here)
		r = scan(code, dir, false, err);
	if (r == 0 && here)
		r = context_files_digest(&code->now, digest, err);
	if (r < 0)
		return r;
	if (here && strcmp(digest, code->seen) != 0) {
		context_files_changes(&code->before, &code->now, &names);
		run_say(&attempt->voice, RUN_EVENT_MESSAGE,
			"the code has changed: %s; --keep-context keeps the old copy",
			buf_str(&names));
		r = copy_files(code, dir, false, err);
		return r < 0 ? r : publish(code, digest, err);
	}
	if (*code->published.digest && strcmp(code->published.digest, code->base) != 0 &&
		strcmp(code->published.digest, had) != 0)
		return take_published(code, code->seen, err);
	if (here && strcmp(digest, had) == 0)
		return publish(code, digest, err);
	if (!here && !attempt->keep_context)
		run_say(&attempt->voice, RUN_EVENT_WARNING,
			"the context '%s' is missing; the run uses the code of the last attempt",
			workflow_shown(&attempt->workflow->context.path));
	return 0;
}

int code_lay_out(const struct attempt *attempt, const struct code_store *store,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(code_release) struct code code = {
		.attempt = attempt,
		.store = store,
		.cancel = cancel,
		.mark = path_join(attempt->layout.state, PROJECT_COMMIT),
		.list = path_join(attempt->layout.state, CODE_LIST),
		.seen_path = path_join(attempt->layout.state, CODE_SEEN),
	};

	if (!code.mark || !code.list || !code.seen_path)
		return error_memory(err);
	if (access(code.mark, F_OK) == 0 && access(attempt->layout.work, F_OK) == 0)
		return update(&code, err);
	return copy_all(&code, err);
}
