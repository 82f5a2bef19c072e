#include "run/workdir/project.h"

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
#include "base/str.h"
#include "run/workdir/code.h"
#include "run/report/output.h"
#include "run/stage/stage.h"
#include "run/determined_py.h"
#include "run/workdir/venv.h"
#include "workflow/model.h"

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

/* Returns the path of `target` relative to the link at `path`, both below `top`: a container sees
 * `top` at another place, but with the same relative paths. */
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

/* Returns true if the link at `path`, whose target has `n` bytes, leads to an input that is gone:
 * an earlier version of the workflow had another input there. */
static bool leads_to_old_input(
	const struct attempt *attempt, const char *path, const char *target, size_t n)
{
	_cleanup_free_ char *input = relative(attempt->layout.storage, path, attempt->layout.input);
	size_t len = input ? strlen(input) : 0;

	return len && n > len && memcmp(target, input, len) == 0 && target[len] == '/' &&
	       access(path, F_OK) < 0;
}

static int link_one(const struct attempt *attempt, const char *place, const char *path,
	struct penstock_error *err)
{
	_cleanup_free_ char *target = relative(attempt->layout.storage, path, place);
	char there[PATH_MAX];
	ssize_t n = readlink(path, there, sizeof(there) - 1);
	int r;

	if (!target)
		return error_memory(err);
	if (n > 0 && (size_t)n == strlen(target) && memcmp(there, target, (size_t)n) == 0)
		return 0;
	if (n > 0 && leads_to_old_input(attempt, path, there, (size_t)n) && unlink(path) < 0)
		return error_errno(err, errno, "cannot replace the link '%s'", path);
	r = make_parents(path, err);
	if (r < 0)
		return r;
	if (symlink(target, path) == 0)
		return 0;
	if (errno == EEXIST)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot place an input at '%s': the context has another file there", path);
	return error_errno(err, errno, "cannot link '%s'", path);
}

/* Links each entry of `from` to its name in `to`; directories that exist in both are merged. */
static int link_entries(
	const struct attempt *attempt, const char *from, const char *to, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = opendir(from);
	const struct dirent *e;
	int r = 0;

	if (!list)
		return error_errno(err, errno, "cannot list '%s'", from);
	while (r == 0 && (e = fs_next_entry(list))) {
		_cleanup_free_ char *source = path_join(from, e->d_name);
		_cleanup_free_ char *path = path_join(to, e->d_name);
		struct stat a, b;

		if (!source || !path)
			return error_memory(err);
		if (lstat(source, &a) == 0 && S_ISDIR(a.st_mode) && lstat(path, &b) == 0 &&
			S_ISDIR(b.st_mode))
			r = link_entries(attempt, source, path, err);
		else
			r = link_one(attempt, source, path, err);
	}
	if (r == 0 && errno)
		r = error_errno(err, errno, "cannot list '%s'", from);
	return r;
}

/* Returns the path of the file if the input's path in the store is the name of a single object;
 * NULL if there are more or other objects. */
static char *object_of(const char *dir, const struct workflow_input *input)
{
	size_t len = strlen(input->s3.prefix);
	const char *name = len ? memrchr(input->s3.prefix, '/', len - 1) : NULL;
	_cleanup_free_ char *path = NULL;
	_cleanup_closedir_ DIR *list = opendir(dir);
	const struct dirent *e;
	struct stat st;

	name = name ? name + 1 : input->s3.prefix;
	if (!len || !list)
		return NULL;
	path = str_printf("%s/%.*s", dir, (int)strcspn(name, "/"), name);
	while (path && (e = fs_next_entry(list))) {
		if (strcmp(e->d_name, strrchr(path, '/') + 1) != 0)
			return NULL;
	}
	return path && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? take_pointer(path) : NULL;
}

static bool is_local_directory(const struct attempt *attempt, const struct workflow_input *input)
{
	_cleanup_free_ char *path = input->kind == WORKFLOW_LOCAL
					    ? stage_local_path(
						      attempt->workflow, input->local_path.value)
					    : NULL;
	struct stat st;

	return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns the path of the only file of an input, or its directory. */
static char *source_of(const struct attempt *attempt, const struct workflow_input *input)
{
	_cleanup_free_ char *dir = *input->path.value
					   ? path_join(attempt->layout.input, input->path.value)
					   : strdup(attempt->layout.input);
	_cleanup_closedir_ DIR *list = NULL;
	char *file = NULL;
	const struct dirent *e;
	size_t n = 0;

	if (!dir)
		return NULL;
	if (input->kind == WORKFLOW_S3) {
		file = object_of(dir, input);
		return file ? file : take_pointer(dir);
	}
	if (is_local_directory(attempt, input) || !(list = opendir(dir)))
		return take_pointer(dir);
	while ((e = fs_next_entry(list))) {
		free(file);
		file = path_join(dir, e->d_name);
		n++;
	}
	if (n == 1)
		return file;
	free(file);
	return take_pointer(dir);
}

static int link_input(const struct attempt *attempt, const struct workflow_input *input,
	struct penstock_error *err)
{
	_cleanup_free_ char *source = source_of(attempt, input);
	_cleanup_free_ char *path = path_join(attempt->layout.work, input->link.value);

	if (!source || !path)
		return error_memory(err);
	return strcmp(input->link.value, ".") == 0
		       ? link_entries(attempt, source, attempt->layout.work, err)
		       : link_one(attempt, source, path, err);
}

/* ---- artifacts ---- */

/* Returns true if the path names a file: "model.pth" does, because its last name has a dot after
 * the first character; "data/" and "data" name directories. */
static bool is_file_name(const char *path)
{
	const char *name = path_last(path);

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

/* Moves `from` to `to`, which may be an existing directory; with `keep` existing files are kept,
 * and their counterparts in `from` removed. */
static int move_into(const char *from, const char *to, bool keep, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = NULL;
	const struct dirent *e;
	struct stat a, b;

	if (lstat(from, &a) < 0)
		return error_errno(err, errno, "cannot get the status of '%s'", from);
	if (lstat(to, &b) < 0)
		b.st_mode = 0;
	if (keep && b.st_mode && !S_ISDIR(b.st_mode))
		return fs_remove_tree(from, err);
	if (!S_ISDIR(a.st_mode) || !S_ISDIR(b.st_mode))
		return rename(from, to) < 0
			       ? error_errno(err, errno, "cannot move '%s' to '%s'", from, to)
			       : 0;
	list = opendir(from);
	if (!list)
		return error_errno(err, errno, "cannot list '%s'", from);
	while ((e = fs_next_entry(list))) {
		_cleanup_free_ char *source = path_join(from, e->d_name);
		_cleanup_free_ char *target = path_join(to, e->d_name);
		int r;

		if (!source || !target)
			return error_memory(err);
		r = move_into(source, target, keep, err);
		if (r < 0)
			return r;
	}
	return rmdir(from) < 0 ? error_errno(err, errno, "cannot remove '%s'", from) : 0;
}

/* Returns true if no existing parent directory of `path` below `top` is a symbolic link. Such a
 * link leads to an artifact that contains this one, or was made by a step. */
static bool has_plain_path(const char *top, const char *path)
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

static int make_both_parents(const struct attempt *attempt, const char *artifact, const char *path,
	const char *place, struct penstock_error *err)
{
	int r;

	if (!has_plain_path(attempt->layout.output, artifact))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use '%s': its path in the output has a link or a file in place of a "
			"directory",
			place);
	r = make_parents(path, err);
	return r < 0 ? r : make_parents(place, err);
}

/*
 * Makes a link in the working directory to the artifact's place in the output, so that files are
 * published while the steps run. project_collect() handles steps that replace the link with a file.
 */
static int link_artifact(
	const struct attempt *attempt, const char *artifact, struct penstock_error *err)
{
	_cleanup_free_ char *path = without_slash(attempt->layout.work, artifact);
	_cleanup_free_ char *place = without_slash(attempt->layout.output, artifact);
	struct stat st;
	int r;

	if (!path || !place)
		return error_memory(err);
	/* The artifact is inside another artifact, whose link already leads to the output. */
	if (!has_plain_path(attempt->layout.work, artifact))
		return 0;
	r = make_both_parents(attempt, artifact, path, place, err);
	if (r < 0)
		return r;
	if (stat(path, &st) == 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		return 0;
	/* Make no link to a missing file, because not every program writes through such a link.
	 * project_collect() moves the file later. */
	if (is_file_name(artifact) && lstat(place, &st) < 0)
		return 0;
	if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
		r = move_into(path, place, true, err);
	else if (!is_file_name(artifact))
		r = fs_mkdirs(place, 0700, err);
	if (r < 0)
		return r;
	return lstat(path, &st) == 0 ? 0 : link_one(attempt, place, path, err);
}

int project_lay_out(const struct attempt *attempt, const struct code_store *store,
	const atomic_int *cancel, struct penstock_error *err)
{
	int r;

	if (!attempt->workflow->has_work_dir)
		return 0;
	r = code_lay_out(attempt, store, cancel, err);
	for (size_t i = 0; r == 0 && i < attempt->workflow->n_inputs; i++) {
		if (attempt->workflow->inputs[i].link.value)
			r = link_input(attempt, &attempt->workflow->inputs[i], err);
	}
	for (size_t i = 0; r == 0 && i < attempt->workflow->n_artifacts; i++)
		r = link_artifact(attempt, attempt->workflow->artifacts[i].value, err);
	return r;
}

void project_collect(const struct attempt *attempt)
{
	if (!attempt->steps_began)
		return;
	for (size_t i = 0; i < attempt->workflow->n_artifacts; i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		const char *artifact = attempt->workflow->artifacts[i].value;
		_cleanup_free_ char *path = without_slash(attempt->layout.work, artifact);
		_cleanup_free_ char *place = without_slash(attempt->layout.output, artifact);
		struct stat st;

		if (!path || !place || !has_plain_path(attempt->layout.work, artifact) ||
			lstat(path, &st) < 0 || S_ISLNK(st.st_mode))
			continue;
		if (make_both_parents(attempt, artifact, path, place, &err) < 0 ||
			move_into(path, place, false, &err) < 0 ||
			link_one(attempt, place, path, &err) < 0)
			run_say(&attempt->voice, RUN_EVENT_WARNING, "artifact '%s': %s", artifact,
				err.message);
	}
}

/* ---- packages ---- */

/* Writes a `sitecustomize`, which every Python of the steps imports. */
static int place_determined(const struct attempt *attempt, struct penstock_error *err)
{
	_cleanup_free_ char *dir = path_join(attempt->layout.storage, PROJECT_DETERMINED);
	_cleanup_free_ char *path = dir ? path_join(dir, "sitecustomize.py") : NULL;
	int r;

	if (!path)
		return error_memory(err);
	r = fs_mkdirs(dir, 0755, err);
	return r < 0 ? r
		     : fs_write_atomic(path, determined_py, sizeof(determined_py) - 1, 0644, err);
}

int project_install(const struct attempt *attempt, const atomic_int *cancel, struct venv *venv,
	struct penstock_error *err)
{
	const struct workflow_python *python = &attempt->workflow->python;
	_cleanup_free_ char *requirements = NULL;
	int r = python->determined.value ? place_determined(attempt, err) : 0;

	if (r < 0)
		return r;
	if (!python->requirements.value)
		return python->version.value ? venv_check_version(python->version.value, err) : 0;
	requirements = path_join(attempt->layout.work, python->requirements.value);
	if (!requirements)
		return error_memory(err);
	return venv_get(venv,
		&(struct venv_spec){
			.home = attempt->home,
			.requirements = requirements,
			.shown = workflow_shown(&python->requirements),
			.version = python->version.value,
			.system_packages = python->system_packages.value,
			.log_fd = output_write_fd(attempt->voice.output, 1),
			.cancel = cancel,
		},
		err);
}
