#include "records/layout.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"

static const char *const file_names[RUN_FILE_COUNT_] = {
	[RUN_FILE_DIR] = "",
	[RUN_FILE_LOCK] = "lock",
	[RUN_FILE_WORKFLOW] = "workflow",
	[RUN_FILE_SOURCE] = "source",
	[RUN_FILE_GRACE] = "grace",
	[RUN_FILE_PORTS] = "ports",
	[RUN_FILE_NOTICE] = "notice",
	[RUN_FILE_PREEMPT] = "preempt",
	[RUN_FILE_LEFT_ALONE] = "left-alone",
	[RUN_FILE_ELSEWHERE] = "elsewhere",
	[RUN_FILE_SLURM] = "slurm",
	[RUN_FILE_SLURM_LOCK] = "slurm.lock",
	[RUN_FILE_SLURM_SCRIPT] = "slurm.sh",
	[RUN_FILE_SLURM_NOTICE] = "slurm-notice",
	[RUN_FILE_SLURM_LEFT] = "slurm-left",
	[RUN_FILE_TRACKED] = "tracked",
};

const char *run_file_name(enum run_file file)
{
	return file_names[file];
}

char *run_path(const char *home, const char *id, enum run_file file)
{
	const char *name = file_names[file];

	return str_printf("%s/runs/%s%s%s", home, id, *name ? "/" : "", name);
}

void run_state_prefix(const char *id, char out[static RUN_STATE_PREFIX_SIZE])
{
	snprintf(out, RUN_STATE_PREFIX_SIZE, RUN_STATE_ROOT "%s", id);
}

int run_layout_read_attempt(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(16);
	uint64_t attempt;

	if (fs_read(path, &text, NULL) < 0 || !str_to_u64(buf_str(&text), 1, INT_MAX, &attempt))
		return 0;
	return (int)attempt;
}

char *run_log_times(const char *log)
{
	return str_printf("%s.times", log);
}

char *run_log_usage(const char *log)
{
	return str_printf("%s.usage", log);
}

void run_log_move_rest(const char *log, const char *to)
{
	static char *(*const names[])(const char *) = {run_log_times, run_log_usage};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *from = names[i](log);
		_cleanup_free_ char *path = to ? names[i](to) : NULL;

		if (from && !to)
			unlink(from);
		else if (from && path)
			rename(from, path);
	}
}

int run_layout_init(struct run_layout *layout, const char *home, const char *id, int attempt,
	struct penstock_error *err)
{
	struct run_layout l = {0};

	l.dir = run_path(home, id, RUN_FILE_DIR);
	if (l.dir) {
		l.log = str_printf("%s/log/%d", l.dir, attempt);
		l.workflow = run_path(home, id, RUN_FILE_WORKFLOW);
		l.lock = run_path(home, id, RUN_FILE_LOCK);
		l.storage = path_join(l.dir, "storage");
		l.input = path_join(l.dir, "storage/input");
		l.output = path_join(l.dir, "storage/output");
		l.work = path_join(l.dir, "storage/work");
		l.env_file = path_join(l.dir, "storage/env");
		l.state = path_join(l.dir, "state");
		l.began = path_join(l.dir, "state/began");
		l.held = path_join(l.dir, "state/held");
		l.superseded = path_join(l.dir, "state/superseded");
		l.goes_on = path_join(l.dir, "state/goes-on");
		l.published = path_join(l.dir, "published");
		l.tmp = path_join(l.dir, "tmp");
		l.user_tmp = path_join(home, "tmp");
		l.world_tmp = path_join("/var/tmp", "penstock-world");
	}
	*layout = l;
	if (!l.dir || !l.log || !l.workflow || !l.lock || !l.storage || !l.input || !l.output ||
		!l.env_file || !l.work || !l.state || !l.began || !l.held || !l.superseded ||
		!l.goes_on || !l.published || !l.tmp || !l.user_tmp || !l.world_tmp) {
		run_layout_release(layout);
		return error_memory(err);
	}
	return 0;
}

void run_layout_release(struct run_layout *layout)
{
	char **all[] = {&layout->dir, &layout->workflow, &layout->lock, &layout->log,
		&layout->storage, &layout->input, &layout->output, &layout->env_file, &layout->work,
		&layout->state, &layout->began, &layout->held, &layout->superseded,
		&layout->goes_on, &layout->published, &layout->tmp, &layout->user_tmp,
		&layout->world_tmp};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		free(*all[i]);
		*all[i] = NULL;
	}
}

/* Refuses a file or link in place of a directory. Steps can write to the storage, and following a
 * step's link would publish the wrong files, or write to a directory that steps must not change. */
static int check_dirs(const struct run_layout *layout, struct penstock_error *err)
{
	const char *const dirs[] = {layout->input, layout->output, layout->work};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		struct stat st;

		if (lstat(dirs[i], &st) == 0 && !S_ISDIR(st.st_mode))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot use '%s': a step has replaced the directory; move the file "
				"away, or start again with --fresh",
				dirs[i]);
	}
	return 0;
}

int run_layout_create(const struct run_layout *layout, struct penstock_error *err)
{
	_cleanup_free_ char *logs = path_join(layout->dir, "log");
	const char *dirs[] = {layout->storage, layout->input, layout->output, layout->state,
		layout->tmp, layout->user_tmp, logs};

	int r = logs ? check_dirs(layout, err) : error_memory(err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		r = fs_mkdirs(dirs[i], 0700, err);
		if (r < 0)
			return r;
	}
	/* All users write to `world_tmp`: it is sticky, like /tmp. Another user may have created
	 * it, but it must be a directory. */
	struct stat st;

	if (mkdir(layout->world_tmp, 0777) == 0)
		return chmod(layout->world_tmp, 01777) < 0
			       ? error_errno(err, errno, "cannot share '%s'", layout->world_tmp)
			       : 0;
	if (errno != EEXIST || lstat(layout->world_tmp, &st) < 0)
		return error_errno(err, errno, "cannot create '%s'", layout->world_tmp);
	if (!S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot use '%s': it is not a directory; remove the file",
			layout->world_tmp);
	return 0;
}

int run_layout_wipe(const struct run_layout *layout, struct penstock_error *err)
{
	const char *dirs[] = {layout->storage, layout->state, layout->tmp};
	_cleanup_free_ char *journal = path_join(layout->state, "sync");

	/* The journal of published files must survive the removal of the storage. */
	if (!journal)
		return error_memory(err);
	if (rename(journal, layout->published) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot keep '%s'", journal);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		int r = fs_remove_tree(dirs[i], err);

		if (r < 0)
			return r;
	}
	return 0;
}
