#include "checkpoint/save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "checkpoint/save_internal.h"

#define WRITE_STEP (1 * MIB) /* bytes written and then checksummed while they are in the cache */
#define FLUSH_STEP                                                                                 \
	(8 * MIB) /* bytes after which write-back is started, so that the commit waits less */

/* ---- files below the checkpoint ---- */

/* Opens the parent directory of `name`; `make` creates missing directories. Returns -1 with errno
 * on failure. */
static int open_parent(const struct save *s, const char *name, bool make)
{
	const char *slash = strrchr(name, '/');
	size_t at;

	return slash ? fs_open_below(s->fd, name, (size_t)(slash - name), make, &at) : dup(s->fd);
}

static int open_in(const struct save *s, const char *name, int flags)
{
	_cleanup_close_ int parent = open_parent(s, name, (flags & O_CREAT) != 0);
	const char *slash = strrchr(name, '/');

	return parent < 0 ? -1
			  : openat(parent, slash ? slash + 1 : name,
				    flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0666);
}

static int raise(const struct save *s, const char *name, struct penstock_error *err)
{
	return error_errno(err, errno, "cannot write '%s/%s'", s->path, name);
}

static int check_open(const struct save *s, struct penstock_error *err)
{
	if (s->pid != getpid())
		return error_set(err, PENSTOCK_E_INVALID,
			"checkpoint '%s' is saved by process %d, the parent of this process; start "
			"another save",
			s->path, (int)s->pid);
	if (s->failed || s->committed)
		return error_set(err, PENSTOCK_E_INVALID, "checkpoint '%s' %s; start another save",
			s->path, s->committed ? "is committed" : "has failed");
	return 0;
}

static int check_name(const struct save *s, const char *name, struct penstock_error *err)
{
	int r = check_open(s, err);

	if (r < 0)
		return r;
	if (!commit_name_is_good(name))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid file name '%s' in a checkpoint: it must be relative, without "
			"'..', not " COMMIT_NAME " and not start with " COMMIT_HIDDEN "…",
			name);
	return 0;
}

static struct save_file *find_file(const struct save *s, const char *name)
{
	struct save_file *f;

	HASH_FIND_STR(s->files, name, f);
	return f;
}

static int new_file(
	struct save_file **out, struct save *s, const char *name, struct penstock_error *err)
{
	struct save_file *f;

	if (HASH_COUNT(s->files) == LIMIT_CHECKPOINT_FILES)
		return error_set(err, PENSTOCK_E_LIMIT, "checkpoint '%s' has more than %d files",
			s->path, LIMIT_CHECKPOINT_FILES);
	f = calloc(1, sizeof(*f));
	if (f)
		f->name = strdup(name);
	if (f && f->name && checksum_init(&f->sum, CHECKSUM_CRC64NVME, err) == 0) {
		HASH_ADD_KEYPTR(hh, s->files, f->name, strlen(f->name), f);
		if (f->hh.tbl) {
			*out = f;
			return 0;
		}
		checksum_release(&f->sum);
	}
	if (f)
		free(f->name);
	free(f);
	return error_memory(err);
}

static void close_out(struct save *s)
{
	if (s->out >= 0)
		close(s->out);
	s->out = -1;
}

/* Opens the file `name` as `out`. */
static int open_out(struct save *s, const char *name, struct penstock_error *err)
{
	struct save_file *f = find_file(s, name);
	bool fresh = !f;
	int r = 0;

	if (s->out >= 0 && f == s->open)
		return 0;
	if (f && f->done)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot append to '%s/%s': the file was already added", s->path, name);
	close_out(s);
	if (fresh)
		r = new_file(&f, s, name, err);
	if (r < 0)
		return r;
	s->open = f;
	s->out = open_in(s, name, O_WRONLY | (fresh ? O_CREAT | O_TRUNC : O_APPEND));
	return s->out < 0 ? raise(s, name, err) : 0;
}

int save_write(
	struct save *s, const char *name, const void *data, size_t size, struct penstock_error *err)
{
	const char *at = data;
	struct save_file *f;
	int r = check_name(s, name, err);

	if (r == 0)
		r = open_out(s, name, err);
	if (r < 0) {
		s->failed = true;
		return r;
	}
	f = s->open;
	while (size) {
		size_t n = size < WRITE_STEP ? size : WRITE_STEP;

		if (fs_write_all(s->out, at, n) < 0) {
			s->failed = true;
			return raise(s, name, err);
		}
		checksum_update(&f->sum, at, n);
		if ((f->size + n) / FLUSH_STEP != f->size / FLUSH_STEP)
			sync_file_range(s->out, 0, 0, SYNC_FILE_RANGE_WRITE);
		f->size += n;
		at += n;
		size -= n;
	}
	return 0;
}

int save_add(struct save *s, const char *name, struct penstock_error *err)
{
	_cleanup_close_ int fd = -1;
	struct save_file *f;
	struct stat st;
	int r = check_name(s, name, err);

	if (r < 0)
		return r;
	if (find_file(s, name))
		return error_set(
			err, PENSTOCK_E_EXISTS, "'%s/%s' was already added", s->path, name);
	fd = open_in(s, name, O_RDONLY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s/%s'", s->path, name);
	if (!S_ISREG(st.st_mode))
		return error_set(
			err, PENSTOCK_E_INVALID, "'%s/%s' is not a regular file", s->path, name);
	r = new_file(&f, s, name, err);
	if (r < 0)
		return r;
	f->done = true;
	f->size = (uint64_t)st.st_size;
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	r = commit_checksum(fd, f->size, s->o.cancel, &f->crc, err);
	s->failed |= r < 0;
	return r < 0 ? error_prefix(err, "%s/%s", s->path, name) : 0;
}

int save_metric(struct save *s, const char *name, double value, struct penstock_error *err)
{
	if (!isfinite(value) || !*name)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid metric '%s': a metric needs a name and a finite value", name);
	if (s->metrics->n_metrics == LIMIT_CHECKPOINT_METRICS &&
		!commit_find_metric(s->metrics, name))
		return error_set(err, PENSTOCK_E_LIMIT, "a checkpoint has at most %d metrics",
			LIMIT_CHECKPOINT_METRICS);
	return commit_set_metric(s->metrics, name, value) < 0 ? error_memory(err) : 0;
}

/* ---- starting ---- */

/* Removes uncommitted checkpoints of earlier attempts, which no process will complete. */
static int remove_leftovers(const struct save *s, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *stream = opendir(s->dir);
	struct dirent *d;

	if (!stream)
		return error_errno(err, errno, "cannot read '%s'", s->dir);
	while ((d = readdir(stream))) {
		_cleanup_free_ char *path = NULL, *commit = NULL;
		unsigned attempt;
		uint64_t step;
		int r;

		if (!commit_name_parse(d->d_name, &step, &attempt) || attempt >= s->o.attempt)
			continue;
		path = path_join(s->dir, d->d_name);
		commit = path ? path_join(path, COMMIT_NAME) : NULL;
		if (!commit)
			return error_memory(err);
		if (access(commit, F_OK) == 0 || errno != ENOENT)
			continue;
		r = fs_remove_tree(path, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_place(struct save *s, struct penstock_error *err)
{
	_cleanup_free_ char *commit = path_join(s->path, COMMIT_NAME);
	int r;

	if (!commit)
		return error_memory(err);
	r = fs_mkdirs(s->dir, 0777, err);
	if (r < 0)
		return r;
	if (access(commit, F_OK) == 0)
		return error_set(err, PENSTOCK_E_EXISTS, "'%s' is already committed", s->path);
	if (errno != ENOENT && errno != ENOTDIR)
		return error_errno(err, errno, "cannot read '%s'", commit);
	if (s->o.rank == 0)
		r = remove_leftovers(s, err);
	/* With several ranks the directory is kept, because other ranks may have started to
	 * write. */
	if (r == 0 && s->o.world_size == 1)
		r = fs_remove_tree(s->path, err);
	if (r == 0)
		r = fs_mkdirs(s->path, 0777, err);
	if (r < 0)
		return r;
	s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->fd < 0)
		return error_errno(err, errno, "cannot open '%s'", s->path);
	if (s->o.rank > 0) {
		ranks_join(s);
		return 0;
	}
	return s->o.world_size > 1 ? ranks_open(s, err) : 0;
}

int save_begin(struct save **out, const char *dir, uint64_t step, const struct save_options *o,
	struct penstock_error *err)
{
	struct save *s;
	int r;

	if (o->world_size == 0 || o->world_size > LIMIT_CHECKPOINT_RANKS ||
		o->rank >= o->world_size)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid rank %u of %u processes; use a rank below their number, "
			"which is at most %d",
			o->rank, o->world_size, LIMIT_CHECKPOINT_RANKS);
	if (step > INT64_MAX || !*dir)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot save a checkpoint: it needs a directory and a step below 2^63");
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_memory(err);
	s->fd = s->out = -1;
	s->pid = getpid();
	s->o = *o;
	s->step = step;
	s->run = strdup(o->run_id ? o->run_id : "");
	s->dir = strdup(dir);
	s->metrics = commit_new();
	s->path = str_printf(
		"%s%sstep-%012" PRIu64 "-%u", dir, str_ends(dir, "/") ? "" : "/", step, o->attempt);
	if (!s->run || !s->dir || !s->metrics || !s->path) {
		save_free(s);
		return error_memory(err);
	}
	r = make_place(s, err);
	if (r < 0) {
		s->failed = true;
		save_free(s);
		return r;
	}
	*out = s;
	return 0;
}

const char *save_path(const struct save *s)
{
	return s->path;
}

/* ---- committing ---- */

/* Adds the files below the directory `dir` of the open directory `at`, except files that
 * save_write() or save_add() has added. `path` is the path of `dir` in the checkpoint. */
static int add_tree(struct save *s, int at, const char *dir, const char *path, unsigned depth,
	struct penstock_error *err)
{
	_cleanup_closedir_ DIR *stream = fs_list_at(at, dir);
	struct dirent *d;
	int r = 0;

	if (!stream)
		return error_errno(
			err, errno, "cannot read '%s%s%s'", s->path, *path ? "/" : "", path);
	while (r == 0 && (d = fs_next_entry(stream))) {
		_cleanup_free_ char *name = NULL;
		struct stat st;

		if (str_starts(d->d_name, COMMIT_HIDDEN))
			continue;
		name = str_printf("%s%s%s", path, *path ? "/" : "", d->d_name);
		if (!name)
			return error_memory(err);
		if (fstatat(dirfd(stream), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return error_errno(err, errno, "cannot read '%s/%s'", s->path, name);
		if (S_ISREG(st.st_mode)) {
			if (!find_file(s, name))
				r = save_add(s, name, err);
		} else if (S_ISDIR(st.st_mode) && depth < 64) {
			r = add_tree(s, dirfd(stream), d->d_name, name, depth + 1, err);
		} else {
			r = error_set(err, PENSTOCK_E_UNSUPPORTED,
				"'%s/%s' is neither a file nor a directory; remove it from "
				"the checkpoint",
				s->path, name);
		}
	}
	if (r == 0 && errno)
		r = error_errno(
			err, errno, "cannot read '%s%s%s'", s->path, *path ? "/" : "", path);
	return r;
}

/* Syncs a file, verifies its size and completes its checksum. */
static int seal_file(struct save *s, struct save_file *f, struct penstock_error *err)
{
	_cleanup_close_ int fd = open_in(s, f->name, O_RDONLY | O_NONBLOCK);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || fsync(fd) < 0)
		return raise(s, f->name, err);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size)
		return error_set(err, PENSTOCK_E_CHANGED, "'%s/%s' has %llu bytes, expected %llu",
			s->path, f->name, (unsigned long long)st.st_size,
			(unsigned long long)f->size);
	if (f->done)
		return 0;
	checksum_final(&f->sum, digest);
	f->crc = commit_crc(digest);
	f->done = true;
	return 0;
}

/* Syncs the directories between the checkpoint and the file, the innermost first. */
static int seal_parents(const struct save *s, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = strdup(name);

	if (!path)
		return error_memory(err);
	for (char *slash; (slash = strrchr(path, '/'));) {
		_cleanup_close_ int fd = -1;

		*slash = '\0';
		fd = open_in(s, path, O_RDONLY | O_DIRECTORY);
		if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
			return raise(s, path, err);
	}
	return 0;
}

static bool same_parent(const char *a, const char *b)
{
	const char *x = strrchr(a, '/'), *y = strrchr(b, '/');
	size_t n = x ? (size_t)(x - a) : 0;

	return n == (y ? (size_t)(y - b) : 0) && memcmp(a, b, n) == 0;
}

static int seal(struct save *s, struct penstock_error *err)
{
	int r = 0;

	close_out(s);
	if (s->o.world_size == 1)
		r = add_tree(s, s->fd, ".", "", 0, err);
	for (struct save_file *f = s->files; r == 0 && f; f = f->hh.next)
		r = seal_file(s, f, err);
	for (struct save_file *f = s->files, *before = NULL; r == 0 && f; f = f->hh.next) {
		if (!before || !same_parent(before->name, f->name))
			r = seal_parents(s, f->name, err);
		before = f;
	}
	return r == 0 ? save_sync_dir(s->fd, s->path, err) : r;
}

/* Syncs the directory of all checkpoints, and also its parent directory, because a rank may have
 * created the directory of all checkpoints. Skips the parent directory if it is on another file
 * system, or if it cannot be opened. */
static int sync_above(const struct save *s, struct penstock_error *err)
{
	_cleanup_close_ int above = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), parent = -1;
	struct stat st, its;
	int r;

	if (above < 0)
		return error_errno(err, errno, "cannot open '%s'", s->dir);
	r = save_sync_dir(above, s->dir, err);
	parent = r == 0 ? openat(above, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (parent < 0 || fstat(above, &st) < 0 || fstat(parent, &its) < 0 ||
		st.st_dev != its.st_dev)
		return r;
	return save_sync_dir(parent, s->dir, err);
}

/* Writes the commit, which makes the checkpoint valid. */
static int place_commit(struct save *s, struct commit *whole, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	int r = 0;

	if (whole->n_files == 0)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot save checkpoint '%s': it has no files; add at least one", s->path);
	for (size_t i = 0; r == 0 && i < s->metrics->n_metrics; i++) {
		if (commit_set_metric(
			    whole, s->metrics->metrics[i].name, s->metrics->metrics[i].value) < 0)
			r = error_memory(err);
	}
	if (r == 0)
		r = commit_sort_files(whole, err);
	if (r == 0)
		r = commit_format(whole, &text, err);
	if (r < 0)
		return r;
	/* The directory of the checkpoint must survive a power loss before a caller relies on the
	 * commit. */
	r = sync_above(s, err);
	return r == 0 ? save_place(s, COMMIT_NAME, &text, err) : r;
}

static int commit_all(struct save *s, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *whole = NULL;
	int r = seal(s, err);

	if (r < 0)
		return r;
	if (s->o.rank > 0)
		return ranks_answer(s, err);
	whole = save_describe(s, s->run);
	if (!whole)
		return error_memory(err);
	if (s->o.world_size > 1)
		r = ranks_gather(s, whole, err);
	if (r == 0)
		r = place_commit(s, whole, err);
	if (r == 0 && s->o.world_size > 1)
		ranks_close(s);
	return r;
}

int save_commit(struct save *s, struct penstock_error *err)
{
	int r = check_open(s, err);

	if (r == 0)
		r = commit_all(s, err);
	if (r < 0)
		s->failed = true;
	else
		s->committed = true;
	return r;
}

/* Rank 0 removes the whole checkpoint. Another rank removes only its own files, because other ranks
 * may still be writing. Once its part is written, the rank keeps its files, because rank 0 may be
 * about to commit them. */
static void remove_own(struct save *s)
{
	if (s->o.rank == 0) {
		unlinkat(s->fd, SAVE_WORD_NAME, 0);
		fs_remove_tree(s->path, NULL);
		return;
	}
	ranks_give_up(s);
	for (const struct save_file *f = s->word[0] ? NULL : s->files; f; f = f->hh.next) {
		_cleanup_close_ int parent = open_parent(s, f->name, false);
		const char *slash = strrchr(f->name, '/');

		if (parent >= 0)
			unlinkat(parent, slash ? slash + 1 : f->name, 0);
	}
}

void save_free(struct save *s)
{
	_cleanup_free_ char *commit = NULL;
	struct save_file *f, *next;

	if (!s)
		return;
	close_out(s);
	commit = s->path ? path_join(s->path, COMMIT_NAME) : NULL;
	/* A commit that has its name but could not be synced is kept, because readers may have seen
	 * the commit. */
	if (s->pid == getpid() && s->fd >= 0 && !s->committed && commit &&
		access(commit, F_OK) < 0 && errno == ENOENT)
		remove_own(s);
	HASH_ITER (hh, s->files, f, next) {
		HASH_DEL(s->files, f);
		free(f->name);
		checksum_release(&f->sum);
		free(f);
	}
	if (s->fd >= 0)
		close(s->fd);
	commit_free(s->metrics);
	free(s->path);
	free(s->dir);
	free(s->run);
	free(s);
}

/* ---- a file of another program ---- */

int save_single(const char *dir, const char *name, uint64_t step, const struct save_options *o,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_(commit_freep) struct commit *c = commit_new();
	_cleanup_free_ char *hidden = NULL, *commit = NULL;
	_cleanup_close_ int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct stat before, after;
	uint64_t crc;
	int r;

	if (root < 0)
		return error_errno(err, errno, "cannot open '%s'", dir);
	fd = openat(root, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &before) < 0 || fsync(fd) < 0)
		return error_errno(err, errno, "cannot read '%s/%s'", dir, name);
	if (!S_ISREG(before.st_mode))
		return error_set(
			err, PENSTOCK_E_INVALID, "'%s/%s' is not a regular file", dir, name);
	r = commit_checksum(fd, (uint64_t)before.st_size, o->cancel, &crc, err);
	if (r < 0)
		return error_prefix(err, "%s/%s", dir, name);
	if (fstatat(root, name, &after, AT_SYMLINK_NOFOLLOW) < 0 || after.st_ino != before.st_ino ||
		after.st_size != before.st_size || after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
		after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
		return error_set(err, PENSTOCK_E_CHANGED, "'%s/%s' is changing", dir, name);
	if (!c || !(c->run = strdup(o->run_id ? o->run_id : "")) ||
		!(commit = str_printf("%s" COMMIT_SUFFIX, name)) ||
		!(hidden = str_printf(COMMIT_HIDDEN "new-%s", name)) ||
		commit_add_file(c, name, (uint64_t)before.st_size, crc) < 0)
		return error_memory(err);
	c->step = step;
	c->attempt = o->attempt;
	c->world_size = 1;
	c->time_ns = clock_wall_ns();
	r = commit_format(c, &text, err);
	return r == 0 ? save_place_at(root, dir, hidden, commit, &text, err) : r;
}
