#include "run/workdir/venv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

enum { INCLUDES = 8 };

/* ---- selecting Python ---- */

static int find_python(char **out, const char *version, struct penstock_error *err)
{
	const char *given = str_env("PENSTOCK_PYTHON");
	const char *path = str_env("PATH");
	_cleanup_free_ char *name = str_printf("python%s", version ? version : "3");

	if (given && !version) {
		*out = strdup(given);
		return *out ? 0 : error_memory(err);
	}
	if (!name)
		return error_memory(err);
	*out = fs_find_program(path ? path : "/usr/bin:/bin", name);
	if (*out)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		version ? "cannot find '%s' on this machine; install it, or use --set "
			  "python.version=null for the default python3"
			: "cannot find '%s' on this machine; install it",
		name);
}

int venv_check_version(const char *version, struct penstock_error *err)
{
	_cleanup_free_ char *python = NULL;

	return find_python(&python, version, err);
}

/* ---- the id of an environment ---- */

/* Appends the text of a requirements file and of the files that it includes. */
static int add_requirements(struct buf *out, const char *path, const char *shown, unsigned depth,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *folder = strndup(path, (size_t)(strrchr(path, '/') - path));
	char *rest, *line;
	int r = fs_read(path, &text, err);

	if (!folder)
		return error_memory(err);
	if (r < 0)
		return error_prefix(err, "requirements");
	if (depth > INCLUDES)
		return error_set(
			err, PENSTOCK_E_INVALID, "cannot read '%s': it includes itself", shown);
	buf_add(out, buf_str(&text), text.len);
	buf_add_char(out, '\0');
	rest = text.len ? text.data : NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		static const char *const includes[] = {"-r", "--requirement", "-c", "--constraint"};

		line += strspn(line, " \t");
		line[strcspn(line, "\r")] = '\0';
		if (str_starts(line, "-e") || str_starts(line, "--editable") || *line == '.' ||
			*line == '/' || str_starts(line, "file:"))
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot install '%s' of '%s': it is a path, but packages are shared "
				"with other runs; name a package, or install it in a command",
				line, shown);
		for (size_t i = 0; i < ARRAY_SIZE(includes); i++) {
			size_t len = strlen(includes[i]);
			_cleanup_free_ char *below = NULL;

			/* pip also accepts `-rFILE`. */
			if (strncmp(line, includes[i], len) != 0 || !line[len] ||
				(line[1] == '-' && !strchr(" \t=", line[len])))
				continue;
			line += len + strspn(line + len, " \t=");
			line[strcspn(line, " \t#")] = '\0';
			below = path_join(folder, line);
			if (!below)
				return error_memory(err);
			r = add_requirements(out, below, shown, depth + 1, err);
			if (r < 0)
				return r;
			break;
		}
	}
	return 0;
}

/* ---- making an environment ---- */

/* Runs a program and returns its exit status, or a negative code. */
static int run_program(
	const struct venv_spec *spec, const char *const *argv, struct penstock_error *err)
{
	_cleanup_free_ char *folder = strdup(spec->requirements);
	int status = 0;
	int r;

	if (!folder)
		return error_memory(err);
	*strrchr(folder, '/') = '\0';
	r = process_run(
		&(struct process_spec){
			.argv = argv,
			.cwd = folder,
			.stdin_fd = -1,
			.stdout_fd = spec->log_fd,
			.stderr_fd = spec->log_fd,
			.new_session = true,
			.die_with_parent = true,
		},
		&(struct process_run_options){.name = "the installation", .cancel = spec->cancel},
		&status, err);
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int make(const struct venv_spec *spec, const char *python, const char *dir,
	struct penstock_error *err)
{
	_cleanup_free_ char *inner = path_join(dir, "bin/python3");
	_cleanup_free_ char *mark = path_join(dir, ".complete");
	const char *site = spec->system_packages ? "--system-site-packages" : "--clear";
	_cleanup_close_ int fd = -1;
	int r;

	if (!inner || !mark)
		return error_memory(err);
	r = fs_remove_tree(dir, err);
	if (r < 0)
		return r;
	/* Use the machine's pip: unpacking another one would take seconds. */
	r = run_program(spec,
		(const char *const[]){python, "-m", "venv", "--without-pip", site, dir, NULL}, err);
	if (r > 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot create a Python environment: '%s -m venv' exited with %d; install "
			"Python's venv module (python3-venv)",
			python, r);
	if (r < 0)
		return r;
	r = run_program(spec,
		(const char *const[]){python, "-m", "pip", "--python", inner, "install",
			"--disable-pip-version-check", "--no-input", "-r", spec->requirements,
			NULL},
		err);
	if (r > 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot install '%s': pip exited with %d; its output is in the run's log",
			spec->shown, r);
	if (r < 0)
		return r;
	/* An environment marked complete is complete after a power failure, too. */
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || syncfs(fd) < 0)
		return error_errno(err, errno, "cannot sync '%s'", dir);
	return fs_write_atomic(mark, "", 0, 0600, err);
}

/* Waits for another process that makes the same environment. */
static int take_lock(const char *path, const struct venv_spec *spec, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	r = fs_lock_wait(fd, spec->cancel);
	if (r > 0)
		return error_set(err, PENSTOCK_E_CANCELLED, "waiting for packages was cancelled");
	return r < 0 ? error_errno(err, errno, "cannot lock '%s'", path) : take_fd(fd);
}

void venv_release(struct venv *venv)
{
	if (!venv->dir)
		return;
	free(venv->dir);
	close(venv->use_fd);
	*venv = (struct venv){0};
}

/* Locks the environment as used. Call it with the lock DIR.lock held. */
static int mark_used(const char *dir, struct penstock_error *err)
{
	_cleanup_free_ char *path = str_printf("%s.use", dir);
	_cleanup_close_ int fd = -1;

	if (!path)
		return error_memory(err);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fs_lock_shared(fd) < 0 || futimens(fd, NULL) < 0)
		return error_errno(err, errno, "cannot lock '%s'", path);
	return take_fd(fd);
}

bool venv_in_use(const char *dir, int64_t *used_ns)
{
	_cleanup_free_ char *use = str_printf("%s.use", dir), *lock = str_printf("%s.lock", dir);
	_cleanup_close_ int use_fd = use ? open(use, O_RDWR | O_CLOEXEC) : -1;
	_cleanup_close_ int lock_fd = lock ? open(lock, O_RDWR | O_CLOEXEC) : -1;
	struct stat st;

	/* An environment that an earlier version of penstock made has no file DIR.use. */
	*used_ns = (use_fd >= 0 && fstat(use_fd, &st) == 0) || stat(dir, &st) == 0
			   ? st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec
			   : 0;
	return (use_fd >= 0 && fs_lock_in_use(use_fd)) || (lock_fd >= 0 && fs_lock_in_use(lock_fd));
}

int venv_remove(const char *dir, struct penstock_error *err)
{
	_cleanup_free_ char *use = str_printf("%s.use", dir), *lock = str_printf("%s.lock", dir);
	_cleanup_free_ char *mark = path_join(dir, ".complete");
	_cleanup_close_ int lock_fd = -1, use_fd = -1;
	int r;

	if (!use || !lock || !mark)
		return error_memory(err);
	lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	use_fd = open(use, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = lock_fd < 0 || use_fd < 0 ? -1 : fs_lock(lock_fd);
	if (r == 0)
		r = fs_lock(use_fd);
	if (r)
		return r > 0 ? 1 : error_errno(err, errno, "cannot lock '%s'", lock);
	/* Remove the mark first, so that a half removed environment does not count as complete. The
	 * lock files stay, because a run may wait for them. */
	if (unlink(mark) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove '%s'", mark);
	return fs_remove_tree(dir, err);
}

int venv_get(struct venv *out, const struct venv_spec *spec, struct penstock_error *err)
{
	_cleanup_free_ char *python = NULL;
	_cleanup_free_ char *dir = NULL;
	_cleanup_free_ char *lock = NULL;
	_cleanup_free_ char *mark = NULL;
	_cleanup_free_ char *all = path_join(spec->home, "venvs");
	_cleanup_close_ int fd = -1;
	char id[65];
	int r = find_python(&python, spec->version, err);

	if (r < 0)
		return r;
	/* The id is the digest of everything that distinguishes environments. */
	_cleanup_(buf_release) struct buf text = BUF_INIT(16 * LIMIT_STRING);
	_cleanup_free_ char *real = realpath(python, NULL);
	uint8_t digest[CHECKSUM_MAX_SIZE];

	buf_printf(&text, "1 %s %d\n", real ? real : python, spec->system_packages);
	r = add_requirements(&text, spec->requirements, spec->shown, 0, err);
	if (r < 0)
		return r;
	if (buf_failed(&text))
		return buf_error(&text, "the requirements", err);
	r = checksum_of(CHECKSUM_SHA256, text.data, text.len, digest, err);
	if (r < 0)
		return r;
	str_hex(digest, 32, id);
	if (!all || !(dir = path_join(all, id)) || !(lock = str_printf("%s.lock", dir)) ||
		!(mark = path_join(dir, ".complete")))
		return error_memory(err);
	r = fs_mkdirs(all, 0700, err);
	if (r < 0)
		return r;
	fd = take_lock(lock, spec, err);
	if (fd < 0)
		return fd;
	if (access(mark, F_OK) != 0) {
		r = make(spec, python, dir, err);
		if (r < 0) {
			fs_remove_tree(dir, NULL);
			return r;
		}
	}
	r = mark_used(dir, err);
	if (r < 0)
		return r;
	*out = (struct venv){.dir = take_pointer(dir), .use_fd = r};
	return 0;
}
