#include "run/workdir/code.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/workdir/context.h"
#include "run/workdir/context_commit.h"
#include "run/workdir/project.h"

/* File below the run's state: the files that the working directory got. */
#define CODE_LIST "context"

/* The paths and the lists of one copy. */
struct code {
	const struct attempt *attempt;
	const atomic_int *cancel;
	char *mark; /* PROJECT_COMMIT: the copy is complete */
	char *list;
	struct context_files before, now;
};

static void code_release(struct code *code)
{
	context_files_release(&code->before);
	context_files_release(&code->now);
	free(code->mark);
	free(code->list);
}

/* Returns the context's Git commit as JSON, or NULL if there is no commit, or it cannot be
 * determined; that does not prevent the run. */
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
	rmdir(dir); /* fails if it contains a diff */
	return json;
}

/* The list comes last: an update that was interrupted is repeated. */
static int copy_files(struct code *code, const char *dir, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const struct context_source source = {
		.context = &attempt->workflow->context,
		.dir = dir,
		.home = attempt->home,
		.cancel = code->cancel,
	};
	_cleanup_free_ char *commit = NULL;
	int r = context_copy(&source, &code->before, &code->now, attempt->layout.work, err);

	if (r < 0)
		return r;
	commit = describe_context(attempt, code->cancel);
	r = fs_write_atomic(
		code->mark, commit ? commit : "", commit ? strlen(commit) : 0, 0600, err);
	return r < 0 ? r : context_files_write(&code->now, code->list, err);
}

static int scan(struct code *code, const char *dir, struct penstock_error *err)
{
	return context_scan(
		&(struct context_source){
			.context = &code->attempt->workflow->context,
			.dir = dir,
			.home = code->attempt->home,
			.cancel = code->cancel,
		},
		&code->before, &code->now, err);
}

/* The first copy. One that is incomplete is made again. */
static int copy_all(struct code *code, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const char *dir = attempt->workflow->context.path.value;
	int r = fs_remove_tree(attempt->layout.work, err);

	if (r == 0)
		r = fs_mkdirs(attempt->layout.work, 0700, err);
	if (r == 0 && !dir)
		return fs_write_atomic(code->mark, "", 0, 0600, err);
	if (r == 0)
		r = scan(code, dir, err);
	return r < 0 ? r : copy_files(code, dir, err);
}

/* Takes what has changed since the last attempt. */
static int update(struct code *code, struct penstock_error *err)
{
	const struct attempt *attempt = code->attempt;
	const char *dir = attempt->workflow->context.path.value;
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_STRING);
	int r;

	if (!dir)
		return 0;
	if (access(dir, F_OK) < 0 && !attempt->keep_context) {
		run_say(&attempt->voice, RUN_EVENT_WARNING,
			"the context %s is missing: the code is that of the last attempt",
			workflow_shown(&attempt->workflow->context.path));
		return 0;
	}
	if (attempt->keep_context)
		return 0;
	r = context_files_read(&code->before, code->list, err);
	if (r == 0)
		r = scan(code, dir, err);
	if (r < 0 || !context_files_changes(&code->before, &code->now, &names))
		return r;
	run_say(&attempt->voice, RUN_EVENT_MESSAGE,
		"the code has changed: %s; --keep-context keeps the old copy", buf_str(&names));
	return copy_files(code, dir, err);
}

int code_lay_out(
	const struct attempt *attempt, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(code_release) struct code code = {
		.attempt = attempt,
		.cancel = cancel,
		.mark = path_join(attempt->layout.state, PROJECT_COMMIT),
		.list = path_join(attempt->layout.state, CODE_LIST),
	};

	if (!code.mark || !code.list)
		return error_memory(err);
	if (access(code.mark, F_OK) == 0 && access(attempt->layout.work, F_OK) == 0)
		return update(&code, err);
	return copy_all(&code, err);
}
