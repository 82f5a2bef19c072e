#include "records/claims_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

enum { LOCK_WAIT_MS = 30000, LOCK_POLL_MS = 5 };

/* ---- the directories ---- */

/* Opens a claims directory. Returns 0, 1 if the directory does not exist, or a negative code. */
static int open_dir(const char *path, int *out, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return 1;
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot use '%s': it is not a directory; remove the file, or set "
			"PENSTOCK_CLAIMS_DIR",
			path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	/* In a directory that other users can write to, only the sticky bit prevents these users
	 * from removing and replacing our files. */
	if ((st.st_mode & 022) && !(st.st_mode & S_ISVTX))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot use '%s': other users can change its files; make the directory safe "
			"to share with 'chmod +t %s'",
			path, path);
	*out = take_fd(fd);
	return 0;
}

/* Creates a directory that all users can write to, regardless of the umask. */
static void make_shared(const char *path)
{
	_cleanup_close_ int fd = -1;

	if (mkdir(path, 0700) == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		fchmod(fd, 01777);
}

static int open_given(
	struct claims_dirs *dirs, const char *path, bool create, struct penstock_error *err)
{
	int r = create ? fs_mkdirs(path, 0700, err) : 0;

	dirs->paths[0] = path;
	if (r == 0)
		r = open_dir(path, &dirs->fds[0], err);
	if (r < 0)
		return error_prefix(err, "PENSTOCK_CLAIMS_DIR");
	if (dirs->fds[0] < 0)
		return 0;
	if (fs_is_network(path))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"PENSTOCK_CLAIMS_DIR: cannot use '%s': it is on a network file system, but "
			"claims belong to one machine; use a local directory",
			path);
	dirs->own = 0;
	return 0;
}

static int open_usual(struct claims_dirs *dirs, bool create, struct penstock_error *err)
{
	static const char *const paths[CLAIMS_DIRS] = {
		"/run/lock/penstock", "/tmp/penstock-claims"};

	for (int i = 0; i < CLAIMS_DIRS; i++) {
		int r;

		dirs->paths[i] = paths[i];
		if (create && dirs->own < 0)
			make_shared(paths[i]);
		r = open_dir(paths[i], &dirs->fds[i], err);
		if (r < 0)
			return r;
		/* Another user may have created the directory for private use; its claims are still
		 * read. */
		if (dirs->own < 0 && r == 0 &&
			faccessat(dirs->fds[i], ".", W_OK | X_OK, AT_EACCESS) == 0)
			dirs->own = i;
	}
	if (create && dirs->own < 0)
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot create '%s' or '%s'; set PENSTOCK_CLAIMS_DIR to a local directory "
			"that all users can write to",
			paths[0], paths[1]);
	return 0;
}

int claims_dirs_open(struct claims_dirs *dirs, bool create, struct penstock_error *err)
{
	const char *given = getenv("PENSTOCK_CLAIMS_DIR");
	int r;

	*dirs = (struct claims_dirs){.fds = {-1, -1}, .locks = {-1, -1}, .own = -1};
	r = given && *given ? open_given(dirs, given, create, err) : open_usual(dirs, create, err);
	if (r < 0)
		claims_dirs_release(dirs);
	return r;
}

void claims_dirs_release(struct claims_dirs *dirs)
{
	claims_dirs_unlock(dirs);
	for (int i = 0; i < CLAIMS_DIRS; i++) {
		if (dirs->fds[i] >= 0)
			close(dirs->fds[i]);
		dirs->fds[i] = -1;
	}
}

/* ---- the lock ---- */

/* Opens the file "lock", ours or another user's; creates it if missing. Returns -1 with errno if
 * the file cannot be opened or is not a regular file. */
static int open_lock_file(int dir)
{
	_cleanup_close_ int fd = openat(
		dir, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT) {
		fd = openat(
			dir, "lock", O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd >= 0 && fchmod(fd, 0644) < 0) /* regardless of the umask */
			return -1;
	}
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		errno = EINVAL;
		return -1;
	}
	return take_fd(fd);
}

static int lock_one(int dir, const char *path, int *out, int64_t deadline_ms,
	const atomic_int *cancel, struct penstock_error *err)
{
	for (;;) {
		_cleanup_close_ int fd = open_lock_file(dir);

		/* EEXIST and EACCES mean that another process is creating the file: try again. */
		if (fd < 0 && errno != EEXIST && errno != EACCES)
			return error_errno(err, errno, "cannot open '%s/lock'", path);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
			*out = take_fd(fd);
			return 0;
		}
		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED,
				"cancelled while waiting for the lock on the claims");
		if (clock_monotonic_ms() > deadline_ms)
			return error_set(err, PENSTOCK_E_TIMEOUT,
				"cannot lock '%s/lock': another process has held the lock for "
				"more than %d s; find the process with 'fuser -v'",
				path, LOCK_WAIT_MS / 1000);
		clock_sleep_ms(LOCK_POLL_MS);
	}
}

int claims_dirs_lock(struct claims_dirs *dirs, const atomic_int *cancel, struct penstock_error *err)
{
	int64_t deadline_ms = clock_monotonic_ms() + LOCK_WAIT_MS;

	for (int i = 0; i < CLAIMS_DIRS; i++) {
		int r;

		/* Skip a directory that we do not write to if it has no lock file: it has no
		 * claims. */
		if (dirs->fds[i] < 0 ||
			(i != dirs->own && faccessat(dirs->fds[i], "lock", F_OK, 0) < 0))
			continue;
		r = lock_one(
			dirs->fds[i], dirs->paths[i], &dirs->locks[i], deadline_ms, cancel, err);
		if (r < 0) {
			claims_dirs_unlock(dirs);
			return r;
		}
	}
	return 0;
}

void claims_dirs_unlock(struct claims_dirs *dirs)
{
	for (int i = 0; i < CLAIMS_DIRS; i++) {
		if (dirs->locks[i] >= 0)
			close(dirs->locks[i]);
		dirs->locks[i] = -1;
	}
}

/* ---- reading files ---- */

static void release_file(struct claims_file *file)
{
	free((char *)(uintptr_t)file->who.run_id);
	free((char *)(uintptr_t)file->who.name);
	free(file->cpu_list);
	free(file->gpu_list);
	*file = (struct claims_file){0};
}

/* Reads a list of `n` numbers below `bound`. Returns NULL if `array` is anything else, or if out of
 * memory. */
static int *read_numbers(const json_t *array, int n, int bound)
{
	_cleanup_free_ int *list = calloc((size_t)n + 1, sizeof(*list));

	if (!list || !json_is_array(array) || json_array_size(array) != (size_t)n)
		return NULL;
	for (int i = 0; i < n; i++) {
		const json_t *item = json_array_get(array, (size_t)i);
		json_int_t value = json_is_integer(item) ? json_integer_value(item) : -1;

		if (value < 0 || value >= bound)
			return NULL;
		list[i] = (int)value;
	}
	return take_pointer(list);
}

/* Copies a name for display. Another user wrote the name, so control characters are replaced and
 * the length is limited. */
static char *shown_name(const char *text)
{
	char *copy = strndup(text, LIMIT_CLAIM_NAME);

	for (char *p = copy; p && *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	}
	return copy;
}

static bool parse_json(struct claims_file *file, const json_t *root)
{
	struct claim_holder *who = &file->who;
	const char *run;
	const char *run_name;
	json_int_t pid;
	json_int_t memory;

	if (json_unpack((json_t *)(uintptr_t)root, "{s:s, s:s, s:I, s:i, s:I, s:i}", "run", &run,
		    "name", &run_name, "pid", &pid, "cpus", &who->cpus, "memory", &memory, "gpus",
		    &who->gpus) < 0)
		return false;
	if (pid < 1 || pid > INT32_MAX || memory < 0 || who->cpus < 0 ||
		who->cpus > CLAIMS_MAX_CPUS || who->gpus < 0 || who->gpus > CLAIMS_MAX_GPUS)
		return false;
	who->pid = (pid_t)pid;
	who->memory = (uint64_t)memory;
	who->run_id = shown_name(run);
	who->name = shown_name(run_name);
	if (!who->waiting) {
		file->cpu_list = read_numbers(
			json_object_get(root, "cpu_list"), who->cpus, CLAIMS_MAX_CPUS);
		file->gpu_list = read_numbers(
			json_object_get(root, "gpu_list"), who->gpus, INT32_MAX);
		if (!file->cpu_list || !file->gpu_list)
			return false;
	}
	return who->run_id && who->name;
}

static bool parse_name(struct claims_file *file, const char *name)
{
	unsigned long long sequence;

	if (strlen(name) >= sizeof(file->name))
		return false;
	snprintf(file->name, sizeof(file->name), "%s", name);
	if (str_starts(name, "claim-"))
		return true;
	file->held = sscanf(name, "limit-%16llu-", &sequence) == 1;
	if (!file->held && sscanf(name, "ticket-%16llu-", &sequence) != 1)
		return false;
	file->who.waiting = true;
	file->sequence = sequence;
	return true;
}

/* Returns true if the file belongs to a living process and is valid. */
static bool read_file(struct claims_file *file, int dir, const char *name, bool sweep)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	ssize_t n;
	json_t *root;
	bool good;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1 ||
		(size_t)st.st_size > LIMIT_CLAIM_FILE)
		return false;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		/* The file is not locked: its process has ended. Another user's file may not be
		 * ours to remove. */
		if (sweep && unlinkat(dir, name, 0) < 0 && errno != EPERM && errno != EACCES)
			log_debug("cannot remove the claim '%s': %s", name, strerror(errno));
		return false;
	}
	text = malloc((size_t)st.st_size + 1);
	n = text ? fs_pread_all(fd, text, (size_t)st.st_size, 0) : -1;
	root = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
	file->who.uid = st.st_uid;
	good = root && parse_json(file, root);
	json_decref(root);
	return good;
}

static int compare_files(const void *a, const void *b)
{
	const struct claims_file *x = a;
	const struct claims_file *y = b;

	if (x->who.waiting != y->who.waiting)
		return x->who.waiting ? 1 : -1;
	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int scan_dir(
	struct claims_scan *scan, int dir, const char *path, bool sweep, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *entries = fs_list_at(dir, ".");

	if (!entries)
		return error_errno(err, errno, "cannot read '%s'", path);
	for (struct dirent *e; (e = fs_next_entry(entries));) {
		struct claims_file file = {0};
		struct claims_file *grown;

		if (!parse_name(&file, e->d_name) || !read_file(&file, dir, e->d_name, sweep)) {
			release_file(&file);
			continue;
		}
		if (scan->n == LIMIT_CLAIM_FILES) {
			release_file(&file);
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot read the claims: more than %d files in '%s'",
				LIMIT_CLAIM_FILES, path);
		}
		grown = array_grow(scan->files, scan->n, sizeof(*grown));
		if (!grown) {
			release_file(&file);
			return error_memory(err);
		}
		scan->files = grown;
		scan->files[scan->n++] = file;
	}
	return errno ? error_errno(err, errno, "cannot read '%s'", path) : 0;
}

int claims_scan_read(struct claims_scan *scan, const struct claims_dirs *dirs, bool sweep,
	struct penstock_error *err)
{
	*scan = (struct claims_scan){0};
	for (int i = 0; i < CLAIMS_DIRS; i++) {
		int r = dirs->fds[i] < 0 ? 0
					 : scan_dir(scan, dirs->fds[i], dirs->paths[i], sweep, err);

		if (r < 0) {
			claims_scan_release(scan);
			return r;
		}
	}
	if (scan->n)
		qsort(scan->files, scan->n, sizeof(*scan->files), compare_files);
	return 0;
}

void claims_scan_release(struct claims_scan *scan)
{
	for (size_t i = 0; i < scan->n; i++)
		release_file(&scan->files[i]);
	free(scan->files);
	*scan = (struct claims_scan){0};
}

/* ---- writing files ---- */

static json_t *numbers(const int *list, int n)
{
	json_t *array = json_array();

	for (int i = 0; list && i < n; i++)
		json_array_append_new(array, json_integer(list[i]));
	return array;
}

static char *file_text(const struct claims_file *file)
{
	const struct claim_holder *who = &file->who;
	json_t *root = json_pack("{s:s, s:s, s:I, s:i, s:o, s:I, s:i, s:o}", "run", who->run_id,
		"name", who->name, "pid", (json_int_t)who->pid, "cpus", who->cpus, "cpu_list",
		numbers(file->cpu_list, who->cpus), "memory", (json_int_t)who->memory, "gpus",
		who->gpus, "gpu_list", numbers(file->gpu_list, who->gpus));
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	return text;
}

int claims_file_write(const struct claims_dirs *dirs, const struct claims_file *file, int *out,
	struct penstock_error *err)
{
	int dir = dirs->fds[dirs->own];
	const char *path = dirs->paths[dirs->own];
	_cleanup_free_ char *text = file_text(file);
	_cleanup_close_ int fd = -1;

	if (!text)
		return error_memory(err);
	fd = openat(dir, file->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return error_errno(err, errno, "cannot create '%s/%s'", path, file->name);
	/* A process that lists the claims may lock the file for a moment: wait for the lock. */
	if (flock(fd, LOCK_EX) < 0 || fchmod(fd, 0644) < 0 ||
		fs_write_all(fd, text, strlen(text)) < 0) {
		int saved = errno;

		unlinkat(dir, file->name, 0);
		return error_errno(err, saved, "cannot write '%s/%s'", path, file->name);
	}
	*out = take_fd(fd);
	return 0;
}
