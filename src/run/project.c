#include "run/project.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/context.h"
#include "run/context_commit.h"
#include "run/output.h"
#include "run/provenance.h"
#include "run/venv.h"
#include "base/banned.h"

/* ---- the copy ---- */

/* Its Git commit, as JSON; NULL: there is none, or it cannot be told, which is no reason not to run. */
static char *describe_context(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *context = realpath(run->workflow->context.path.value, NULL);
	_cleanup_free_ char *dir = path_join(run->layout.dir, "context");
	_cleanup_free_ char *diff = NULL;
	char *json = NULL;
	int r;

	if (!context || !dir || asprintf(&diff, "%s/%d.diff", dir, run->attempt) < 0) {
		diff = NULL;
		return NULL;
	}
	r = fs_mkdirs(dir, 0700, &err);
	if (r == 0)
		r = context_commit_describe(
			&(struct context_commit_spec){
				.context = context,
				.home = run->options->home,
				.tmp = run->layout.tmp,
				.diff = diff,
				.cancel = &run->interrupts.cancel,
			},
			&json, &err);
	if (r < 0)
		run_say(run, RUN_EVENT_WARNING, "the Git commit of the context is not recorded: %s",
			err.message);
	rmdir(dir); /* unless something differs */
	return json;
}

/* What is only half there is made anew. */
static int copy_context(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *mark = path_join(run->layout.state, PROVENANCE_CONTEXT);
	_cleanup_free_ char *commit = NULL;
	int r;

	if (!mark)
		return error_memory(err);
	if (access(mark, F_OK) == 0 && access(run->layout.work, F_OK) == 0)
		return 0;
	r = fs_remove_tree(run->layout.work, err);
	if (r == 0)
		r = fs_mkdirs(run->layout.work, 0700, err);
	if (r == 0 && run->workflow->context.path.value)
		r = context_copy(run->workflow, run->layout.work, run->options->home,
			&run->interrupts.cancel, err);
	if (r == 0 && run->workflow->context.path.value)
		commit = describe_context(run);
	if (r == 0)
		r = fs_write_atomic(
			mark, commit ? commit : "", commit ? strlen(commit) : 0, 0600, err);
	return r < 0 || !commit ? r : provenance_record(run, err);
}

/* ---- inputs ---- */

static int make_parents(const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *parent = strdup(path);
	char *slash = parent ? strrchr(parent, '/') : NULL;

	if (!slash)
		return error_memory(err);
	*slash = '\0';
	return fs_mkdirs(parent, 0700, err);
}

/*
 * From the place of a link to `target`, both below `top`: a container sees them elsewhere, but in the same
 * places of each other.
 */
static char *relative(const char *top, const char *path, const char *target)
{
	struct buf out = BUF_INIT(PATH_MAX);
	const char *rest = path + strlen(top) + 1;

	for (const char *p = rest; (p = strchr(p, '/')); p++) {
		if (p[1] != '/')
			buf_add_str(&out, "../");
	}
	buf_add_str(&out, target + strlen(top) + 1);
	return buf_take(&out);
}

static int link_one(
	const struct run *run, const char *place, const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *target = relative(run->layout.storage, path, place);
	char there[PATH_MAX];
	ssize_t n = readlink(path, there, sizeof(there) - 1);
	int r;

	if (!target)
		return error_memory(err);
	if (n > 0 && (size_t)n == strlen(target) && memcmp(there, target, (size_t)n) == 0)
		return 0;
	r = make_parents(path, err);
	if (r < 0)
		return r;
	if (symlink(target, path) == 0)
		return 0;
	if (errno == EEXIST)
		return error_set(err, PENSTOCK_E_INVALID,
			"an input is to be at %s, where the context has something else", path);
	return error_errno(err, errno, "cannot link %s", path);
}

/* Each entry of `from` at its name in `to`; directories that are in both are merged. */
static int link_entries(
	const struct run *run, const char *from, const char *to, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = opendir(from);
	const struct dirent *e;
	int r = 0;

	if (!list)
		return error_errno(err, errno, "cannot list %s", from);
	while (r == 0 && (e = readdir(list))) {
		_cleanup_free_ char *source = path_join(from, e->d_name);
		_cleanup_free_ char *path = path_join(to, e->d_name);
		struct stat a, b;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (!source || !path)
			return error_memory(err);
		if (lstat(source, &a) == 0 && S_ISDIR(a.st_mode) && lstat(path, &b) == 0 &&
			S_ISDIR(b.st_mode))
			r = link_entries(run, source, path, err);
		else
			r = link_one(run, source, path, err);
	}
	return r;
}

/* The one file of an input that is one; else the directory. */
static char *source_of(const struct run *run, const struct workflow_input *input)
{
	_cleanup_free_ char *dir = *input->path.value
					   ? path_join(run->layout.input, input->path.value)
					   : strdup(run->layout.input);
	_cleanup_closedir_ DIR *list = NULL;
	char *file = NULL;
	const struct dirent *e;
	struct stat st;
	size_t n = 0;

	if (!dir)
		return NULL;
	if (input->kind == WORKFLOW_LOCAL && stat(input->local_path.value, &st) == 0 &&
		S_ISDIR(st.st_mode))
		return take_pointer(dir);
	if (input->kind == WORKFLOW_S3 || !(list = opendir(dir)))
		return take_pointer(dir);
	while ((e = readdir(list))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		free(file);
		file = path_join(dir, e->d_name);
		n++;
	}
	if (n == 1)
		return file;
	free(file);
	return take_pointer(dir);
}

static int link_inputs(struct run *run, struct penstock_error *err)
{
	for (size_t i = 0; i < run->workflow->n_inputs; i++) {
		const struct workflow_input *input = &run->workflow->inputs[i];
		_cleanup_free_ char *source = NULL;
		_cleanup_free_ char *path = NULL;
		int r;

		if (!input->link.value)
			continue;
		source = source_of(run, input);
		path = path_join(run->layout.work, input->link.value);
		if (!source || !path)
			return error_memory(err);
		if (strcmp(input->link.value, ".") == 0)
			r = link_entries(run, source, run->layout.work, err);
		else
			r = link_one(run, source, path, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- artifacts ---- */

/* "data/" and "data" are directories, "model.pth" is a file: its last name has a dot within. */
static bool is_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return *name && name[1] && strchr(name + 1, '.') != NULL;
}

static char *without_slash(const char *dir, const char *path)
{
	char *joined = path_join(dir, path);
	size_t len = joined ? strlen(joined) : 0;

	while (len > 1 && joined[len - 1] == '/')
		joined[--len] = '\0';
	return joined;
}

/* Moves `from` to `to`, where a directory may be already; with `keep` what is there stays. */
static int move_into(const char *from, const char *to, bool keep, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = NULL;
	const struct dirent *e;
	struct stat a, b;

	if (lstat(from, &a) < 0)
		return error_errno(err, errno, "cannot look at %s", from);
	if (lstat(to, &b) < 0)
		b.st_mode = 0;
	if (keep && b.st_mode && !S_ISDIR(b.st_mode))
		return fs_remove_tree(from, err);
	if (!S_ISDIR(a.st_mode) || !S_ISDIR(b.st_mode))
		return rename(from, to) < 0
			       ? error_errno(err, errno, "cannot move %s to %s", from, to)
			       : 0;
	list = opendir(from);
	if (!list)
		return error_errno(err, errno, "cannot list %s", from);
	while ((e = readdir(list))) {
		_cleanup_free_ char *source = path_join(from, e->d_name);
		_cleanup_free_ char *target = path_join(to, e->d_name);
		int r;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (!source || !target)
			return error_memory(err);
		r = move_into(source, target, keep, err);
		if (r < 0)
			return r;
	}
	return rmdir(from) < 0 ? error_errno(err, errno, "cannot remove %s", from) : 0;
}

/*
 * Whether no link leads to `path` below `top`, as far as that is there: it would be one of ours, to an artifact around
 * it, or lead where a step wants us to be.
 */
static bool has_way(const char *top, const char *path)
{
	_cleanup_close_ int root = open(top, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int fd = -1;
	size_t len = strlen(path), at;

	while (len && path[len - 1] == '/')
		len--;
	while (len && path[len - 1] != '/')
		len--;
	if (root < 0)
		return false;
	fd = fs_open_below(root, path, len, false, &at);
	return fd >= 0 || errno == ENOENT;
}

static int make_ways(struct run *run, const char *artifact, const char *path, const char *place,
	struct penstock_error *err)
{
	int r;

	if (!has_way(run->layout.output, artifact))
		return error_set(
			err, PENSTOCK_E_INVALID, "what leads to %s is no directory", place);
	r = make_parents(path, err);
	return r < 0 ? r : make_parents(place, err);
}

/*
 * In the working directory there is a link to the artifact's place in the output, so that what is
 * written there is published while the steps run. A step that replaces the link by a file of its own is
 * seen to by project_collect().
 */
static int link_artifact(struct run *run, const char *artifact, struct penstock_error *err)
{
	_cleanup_free_ char *path = without_slash(run->layout.work, artifact);
	_cleanup_free_ char *place = without_slash(run->layout.output, artifact);
	struct stat st;
	int r;

	if (!path || !place)
		return error_memory(err);
	/* Below another artifact, whose link leads there already. */
	if (!has_way(run->layout.work, artifact))
		return 0;
	r = make_ways(run, artifact, path, place, err);
	if (r < 0)
		return r;
	if (stat(path, &st) == 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		return 0;
	/* Not every program writes through a link to a file that is not there yet: that is collected. */
	if (is_file_name(artifact) && lstat(place, &st) < 0)
		return 0;
	if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
		r = move_into(path, place, true, err);
	else if (!is_file_name(artifact))
		r = fs_mkdirs(place, 0700, err);
	if (r < 0)
		return r;
	return lstat(path, &st) == 0 ? 0 : link_one(run, place, path, err);
}

int project_lay_out(struct run *run, struct penstock_error *err)
{
	int r;

	if (!run->workflow->has_work_dir)
		return 0;
	r = copy_context(run, err);
	if (r == 0)
		r = link_inputs(run, err);
	for (size_t i = 0; r == 0 && i < run->workflow->n_artifacts; i++)
		r = link_artifact(run, run->workflow->artifacts[i].value, err);
	return r;
}

void project_collect(struct run *run)
{
	if (!run->steps_began)
		return;
	for (size_t i = 0; i < run->workflow->n_artifacts; i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		const char *artifact = run->workflow->artifacts[i].value;
		_cleanup_free_ char *path = without_slash(run->layout.work, artifact);
		_cleanup_free_ char *place = without_slash(run->layout.output, artifact);
		struct stat st;

		if (!path || !place || !has_way(run->layout.work, artifact) ||
			lstat(path, &st) < 0 || S_ISLNK(st.st_mode))
			continue;
		if (make_ways(run, artifact, path, place, &err) < 0 ||
			move_into(path, place, false, &err) < 0 ||
			link_one(run, place, path, &err) < 0)
			run_say(run, RUN_EVENT_WARNING, "the artifact %s: %s", artifact,
				err.message);
	}
}

/* ---- packages ---- */

int project_install(struct run *run, struct penstock_error *err)
{
	const struct workflow_python *python = &run->workflow->python;
	_cleanup_free_ char *requirements = NULL;

	if (!python->requirements.value)
		return python->version.value ? venv_check_version(python->version.value, err) : 0;
	requirements = path_join(run->layout.work, python->requirements.value);
	if (!requirements)
		return error_memory(err);
	return venv_get(&run->venv,
		&(struct venv_spec){
			.home = run->options->home,
			.requirements = requirements,
			.shown = workflow_shown(&python->requirements),
			.version = python->version.value,
			.system_packages = python->system_packages.value,
			.log_fd = output_write_fd(run->output, 1),
			.cancel = &run->interrupts.cancel,
		},
		err);
}
