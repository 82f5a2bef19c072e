#include "run/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/banned.h"

int run_layout_init(struct run_layout *layout, const char *home, const char *id, int attempt,
	struct penstock_error *err)
{
	struct run_layout l = {0};

	if (asprintf(&l.dir, "%s/runs/%s", home, id) < 0)
		l.dir = NULL;
	if (l.dir && asprintf(&l.log, "%s/log/%d", l.dir, attempt) < 0)
		l.log = NULL;
	if (l.dir) {
		l.workflow = path_join(l.dir, "workflow");
		l.lock = path_join(l.dir, "lock");
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

/*
 * The storage is the steps', so that one may have put something else in the place of its directories; whoever then
 * looked for the output behind a link, say, would publish what is no output, or write where no step may.
 */
static int check_dirs(const struct run_layout *layout, struct penstock_error *err)
{
	const char *const dirs[] = {layout->input, layout->output, layout->work};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		struct stat st;

		if (lstat(dirs[i], &st) == 0 && !S_ISDIR(st.st_mode))
			return error_set(err, PENSTOCK_E_INVALID,
				"%s is no directory any more, a step has replaced it; move it "
				"away, "
				"or begin anew with --fresh",
				dirs[i]);
	}
	return 0;
}

/* All users write there: sticky, as /tmp. Another one may have made it already, but nothing else in its place. */
static int make_world_tmp(const char *path, struct penstock_error *err)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return chmod(path, 01777) < 0 ? error_errno(err, errno, "cannot share %s", path)
					      : 0;
	if (errno != EEXIST || lstat(path, &st) < 0)
		return error_errno(err, errno, "cannot create %s", path);
	if (!S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"%s is no directory, somebody has put something else there; remove it",
			path);
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
	return make_world_tmp(layout->world_tmp, err);
}

int run_layout_wipe(const struct run_layout *layout, struct penstock_error *err)
{
	const char *dirs[] = {layout->storage, layout->state, layout->tmp};
	_cleanup_free_ char *journal = path_join(layout->state, "sync");

	/* What was published stays known after the storage is gone. */
	if (!journal)
		return error_memory(err);
	if (rename(journal, layout->published) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot keep %s", journal);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		int r = fs_remove_tree(dirs[i], err);

		if (r < 0)
			return r;
	}
	return 0;
}
