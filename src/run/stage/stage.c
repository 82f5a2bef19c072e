#include "run/stage/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <penstock/error.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "run/stage/input.h"
#include "run/stage/state.h"

struct stage {
	const struct stage_options *options;
	struct stage_input *inputs;
	size_t n;
	struct stage_state state;
	bool has_state;
	atomic_llong space;
	atomic_int stop; /* set by the caller's cancel flag, or by the failure of one input */
};

/* ---- the plan ---- */

/* Refuses two single files with the same name in one directory: one would replace the other. */
static int check_names(const struct stage *s, struct penstock_error *err)
{
	for (size_t i = 0; i < s->n; i++) {
		for (size_t j = 0; j < i; j++) {
			const struct stage_input *a = &s->inputs[j], *b = &s->inputs[i];

			if (a->file_name && b->file_name && strcmp(a->dir, b->dir) == 0 &&
				strcmp(a->file_name, b->file_name) == 0)
				return error_set(err, PENSTOCK_E_INVALID,
					"cannot stage inputs '%s' and '%s': both would become the "
					"file '%s'; set another `path` for one of them",
					a->source, b->source, a->file_name);
		}
	}
	return 0;
}

static int open_state(struct stage *s, struct penstock_error *err)
{
	_cleanup_free_ const char **ids = calloc(s->n + 1, sizeof(*ids));
	_cleanup_free_ const char **sources = calloc(s->n + 1, sizeof(*sources));
	int r;

	if (!ids || !sources)
		return error_memory(err);
	for (size_t i = 0; i < s->n; i++) {
		ids[i] = s->inputs[i].id;
		sources[i] = s->inputs[i].source;
	}
	r = stage_state_open(&s->state, s->options->layout, ids, sources, s->n, err);
	s->has_state = r == 0;
	return r;
}

static int plan(struct stage *s, struct penstock_error *err)
{
	const struct workflow *w = s->options->workflow;
	int r = 0;

	s->inputs = calloc(w->n_inputs + 1, sizeof(*s->inputs));
	if (!s->inputs)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < w->n_inputs; i++) {
		r = stage_input_init(&s->inputs[i], s->options, i, err);
		if (r == 0)
			s->n++;
	}
	if (r == 0)
		r = check_names(s, err);
	if (r == 0)
		r = open_state(s, err);
	for (size_t i = 0; r == 0 && i < s->n; i++) {
		s->inputs[i].state = &s->state;
		s->inputs[i].space = &s->space;
		s->inputs[i].cancel = &s->stop;
	}
	return r;
}

/* ---- staging one input ---- */

/* Returns a hint for an error whose message has none. */
static const char *advice(enum penstock_code code)
{
	switch (code) {
	case PENSTOCK_E_NOT_FOUND:
		return "; correct the address";
	case PENSTOCK_E_PERMISSION:
		return "; check the credentials for this source, and their permissions";
	case PENSTOCK_E_UNAVAILABLE:
	case PENSTOCK_E_TIMEOUT:
	case PENSTOCK_E_PROTOCOL:
		return "; run the workflow again to resume";
	case PENSTOCK_E_CHANGED:
		return "; run the workflow again when the source no longer changes";
	case PENSTOCK_E_CORRUPT:
		return "; check the source and its sha256, then run the workflow again";
	default:
		return "";
	}
}

static int fetch_input(struct stage_input *in, struct penstock_error *err)
{
	struct stage_mark mark = {0};
	int r = fs_mkdirs(in->dir, 0755, err);

	if (r == 0)
		r = in->input->kind == WORKFLOW_S3 ? stage_download_prefix(in, &mark, err)
		    : in->file_name		   ? stage_fetch_file(in, &mark, err)
						   : stage_copy_tree(in, &mark, err);
	if (r == 0) {
		mark.fetched = mark.complete = true;
		r = stage_state_set(in->state, in->index, &mark, err);
	}
	free(mark.etag);
	if (r < 0) {
		_cleanup_(buf_release) struct buf at = BUF_INIT(LIMIT_STRING);
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		int status;

		if (!err)
			return -PENSTOCK_E_IO;
		workflow_place_format(in->options->workflow, &in->input->at, &at);
		error_move(&why, err);
		status = why.http_status;
		if (why.code == PENSTOCK_E_CANCELLED)
			return error_move(err, &why);
		if (why.message &&
			strstr(why.message, in->source)) /* the message already names the source */
			error_set(err, why.code, "%s: input: %s%s", buf_str(&at), why.message,
				advice(why.code));
		else
			error_set(err, why.code, "%s: input %s: %s%s", buf_str(&at), in->source,
				why.message, advice(why.code));
		err->http_status = status;
		return -(int)why.code;
	}
	stage_input_report(in);
	return 0;
}

/* ---- the work ---- */

static int bring_one(void *cookie, size_t i, struct penstock_error *err)
{
	struct stage *s = cookie;

	return s->state.marks[i].complete ? 0 : fetch_input(&s->inputs[i], err);
}

static int prepare(struct stage *s, struct penstock_error *err)
{
	const char *input = s->options->layout->input;
	uint64_t free_bytes;
	int r;

	if (chmod(input, 0700) < 0)
		return error_errno(err, errno, "cannot set the mode of '%s'", input);
	for (size_t i = 0; i < s->n; i++) {
		if (s->state.marks[i].complete)
			continue;
		r = unpack_clean(s->inputs[i].dir, err);
		if (r < 0)
			return r;
	}
	r = fs_free_bytes(input, &free_bytes, err);
	if (r == 0)
		atomic_store(&s->space, (long long)(free_bytes - free_bytes / 20));
	return r;
}

/* ---- the end ---- */

/*
 * Like `chmod -R`, but a directory also gets the search bit for all who may read it: otherwise
 * its files would be unreachable. Symbolic links are not followed; directories are made accessible
 * first, because an interrupted call may have left them inaccessible.
 */
static int set_mode(int dir, mode_t mode, const char *path, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = fs_list_at(dir, ".");
	const struct dirent *e;

	if (!list)
		return error_errno(err, errno, "cannot list a directory below '%s'", path);
	while ((e = fs_next_entry(list))) {
		_cleanup_close_ int sub = -1;
		struct stat st;
		int r;

		if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return error_errno(err, errno, "cannot get the status of '%s'", e->d_name);
		if (S_ISLNK(st.st_mode))
			continue;
		if (!S_ISDIR(st.st_mode)) {
			if (fchmodat(dir, e->d_name, mode, 0) < 0)
				return error_errno(
					err, errno, "cannot set the mode of '%s'", e->d_name);
			continue;
		}
		if (fchmodat(dir, e->d_name, 0700, 0) < 0)
			return error_errno(err, errno, "cannot set the mode of '%s'", e->d_name);
		sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0)
			return error_errno(err, errno, "cannot open '%s'", e->d_name);
		r = set_mode(sub, mode, path, err);
		if (r < 0)
			return r;
	}
	if (errno)
		return error_errno(err, errno, "cannot list a directory below '%s'", path);
	if (fchmod(dir, mode | (mode & 0444) >> 2) < 0)
		return error_errno(
			err, errno, "cannot set the mode of a directory below '%s'", path);
	return 0;
}

static int apply_mode(struct stage *s, struct penstock_error *err)
{
	const struct workflow_number *mode = &s->options->workflow->input_mode;
	const char *input = s->options->layout->input;

	if (mode->given) {
		_cleanup_close_ int dir = open(input, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int r = dir < 0 ? error_errno(err, errno, "cannot open '%s'", input)
				: set_mode(dir, (mode_t)mode->value, input, err);

		if (r < 0)
			return r;
	}
	return stage_state_set_mode(&s->state, err);
}

int stage_inputs(
	const struct stage_options *options, struct buf *provenance, struct penstock_error *err)
{
	struct stage s = {.options = options};
	int r;

	/* Without inputs nothing is recorded: the syncs of the state would take most of the time of
	 * a short run. */
	if (options->workflow->n_inputs == 0 && !options->workflow->input_mode.given)
		return !provenance || buf_add_str(provenance, "[]") == 0 ? 0 : error_memory(err);
	r = plan(&s, err);
	if (r == 0 && !(stage_state_is_complete(&s.state) && s.state.mode_set)) {
		r = prepare(&s, err);
		if (r == 0) {
			r = thread_each(&(struct thread_work){.name = "stage",
						.n = s.n,
						.parallel = LIMIT_STAGE_PARALLEL,
						.fn = bring_one,
						.cookie = &s,
						.cancel = s.options->cancel,
						.stop = &s.stop},
				err);
			if (r == 0 && atomic_load(&s.stop))
				r = error_set(err, PENSTOCK_E_CANCELLED, "staging was cancelled");
		}
		if (r == 0)
			r = apply_mode(&s, err);
	} else if (r == 0 && s.n > 0) {
		log_debug("the inputs are complete from an earlier attempt");
	}
	if (r == 0 && provenance)
		r = stage_state_provenance(&s.state, provenance, err);
	for (size_t i = 0; i < s.n; i++)
		stage_input_release(&s.inputs[i]);
	free(s.inputs);
	if (s.has_state)
		stage_state_release(&s.state);
	return r;
}
