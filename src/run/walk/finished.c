#include "run/walk/finished.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Clang reports a fall-through in uthash's default hash. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

struct finished {
	/* next iteration of an unfinished loop; 0 if the path itself is finished */
	uint64_t iterations;
	UT_hash_handle hh;
	char path[];
};

struct finished_steps {
	struct finished *known; /* recorded by an earlier attempt */
	const char *boot; /* boot of this machine; set only while a file is opened */
	bool any, other_boot, synced; /* state of the lines read so far */
	bool believed;
	int fd;
};

static void forget(struct finished_steps *progress, struct finished *f)
{
	HASH_DEL(progress->known, f);
	free(f);
}

static struct finished *find(const struct finished_steps *progress, const char *path)
{
	struct finished *f;

	HASH_FIND_STR(progress->known, path, f);
	return f;
}

static int learn(struct finished_steps *progress, const char *path, uint64_t iterations)
{
	struct finished *f = find(progress, path);
	size_t len = strlen(path);

	if (!f) {
		f = malloc(sizeof(*f) + len + 1);
		if (!f)
			return -1;
		memcpy(f->path, path, len + 1);
		HASH_ADD_STR(progress->known, path, f);
	}
	f->iterations = iterations;
	return 0;
}

/* Returns true if a path above this one is finished: callers then no longer ask for this path. */
static bool is_within_finished(const struct finished_steps *progress, const char *path)
{
	_cleanup_free_ char *outer = strdup(path);
	char *dot;

	while (outer && (dot = strrchr(outer, '.'))) {
		const struct finished *f;
		uint64_t i;

		*dot = '\0';
		f = find(progress, outer);
		/* In an unfinished loop, the iterations before the next one are finished. */
		if (f && (!f->iterations ||
				 (dot[1] == 'i' && str_to_u64(dot + 2, 0, UINT64_MAX, &i) &&
					 i < f->iterations)))
			return true;
	}
	return false;
}

/* Reads one line. An invalid line, as a crash may leave it, is ignored. */
static int take_line(struct finished_steps *progress, char *line)
{
	char *space;
	uint64_t n;

	progress->any = true;
	progress->synced = strcmp(line, "s") == 0;
	if (str_starts(line, "b "))
		progress->other_boot = progress->boot && strcmp(line + 2, progress->boot) != 0;
	if (str_starts(line, "d ") && line[2])
		return learn(progress, line + 2, 0);
	if (!str_starts(line, "i ") || !(space = strrchr(line + 2, ' ')) ||
		!str_to_u64(space + 1, 0, LIMIT_WORKFLOW_ITERATIONS, &n))
		return 0;
	*space = '\0';
	return learn(progress, line + 2, n + 1);
}

static void forget_all(struct finished_steps *progress)
{
	struct finished *f, *next;

	HASH_ITER (hh, progress->known, f, next) {
		forget(progress, f);
	}
}

static int load(struct finished_steps *progress, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_RUN_PROGRESS);
	char *rest, *line;
	int r;

	if (access(path, F_OK) < 0)
		return 0;
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	rest = text.data;
	/* A line without a newline is incomplete. */
	while (rest && (line = strsep(&rest, "\n")) && rest) {
		if (take_line(progress, line) < 0)
			return error_memory(err);
	}
	struct finished *f, *next;

	HASH_ITER (hh, progress->known, f, next) {
		if (is_within_finished(progress, f->path))
			forget(progress, f);
	}
	return 0;
}

/* Appends the line and frees it. `line` is NULL if the caller is out of memory. */
static bool append(const struct finished_steps *progress, char *line)
{
	_cleanup_free_ char *text = line;

	return text && write(progress->fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Writes the file again, with the entries that still count. */
static int compact(struct finished_steps *progress, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_RUN_PROGRESS);

	if (progress->boot)
		buf_printf(&text, "b %s\n", progress->boot);
	for (const struct finished *f = progress->known; f; f = f->hh.next) {
		if (f->iterations)
			buf_printf(&text, "i %s %" PRIu64 "\n", f->path, f->iterations - 1);
		else
			buf_printf(&text, "d %s\n", f->path);
	}
	if (buf_failed(&text))
		return buf_error(&text, "the list of finished steps", err);
	return fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}

/* Writes the boot to an empty file: all lines that follow belong to this boot. */
static int note_boot(struct finished_steps *progress, const char *path, struct penstock_error *err)
{
	struct stat st;

	if (!progress->boot || (fstat(progress->fd, &st) == 0 && st.st_size > 0))
		return 0;
	if (append(progress, str_printf("b %s\n", progress->boot)))
		return 0;
	if (errno != ENOSPC && errno != EDQUOT)
		return error_errno(err, errno, "cannot write '%s'", path);
	close(progress->fd); /* then every step reports that it could not be recorded */
	progress->fd = -1;
	return 0;
}

/* Reads the entries, and drops them if they do not count in this boot. */
static int load_believed(struct finished_steps *progress, const char *path, const char *boot,
	struct penstock_error *err)
{
	int r;

	progress->boot = boot && *boot ? boot : NULL;
	r = path ? load(progress, path, err) : 0;
	progress->believed = !progress->boot ||
			     (progress->any && (!progress->other_boot || progress->synced));
	if (!progress->believed)
		forget_all(progress);
	return r;
}

int finished_open(struct finished_steps **out, const char *path, bool continuing, const char *boot,
	struct penstock_error *err)
{
	struct finished_steps *progress = calloc(1, sizeof(*progress));
	int r;

	if (!progress)
		return error_memory(err);
	progress->fd = -1;
	r = load_believed(progress, continuing ? path : NULL, boot, err);
	if (r == 0 && (progress->known || access(path, F_OK) == 0))
		r = compact(progress, path, err);
	if (r == 0) {
		progress->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (progress->fd < 0)
			r = error_errno(err, errno, "cannot open '%s'", path);
	}
	if (r == 0)
		r = note_boot(progress, path, err);
	progress->boot = NULL;
	if (r < 0) {
		finished_free(progress);
		return r;
	}
	*out = progress;
	return 0;
}

int finished_read(
	struct finished_steps **out, const char *path, const char *boot, struct penstock_error *err)
{
	struct finished_steps *progress = calloc(1, sizeof(*progress));
	int r;

	if (!progress)
		return error_memory(err);
	progress->fd = -1;
	r = load_believed(progress, path, boot, err);
	progress->boot = NULL;
	if (r < 0)
		finished_free(progress);
	else
		*out = progress;
	return r;
}

void finished_free(struct finished_steps *progress)
{
	if (!progress)
		return;
	forget_all(progress);
	if (progress->fd >= 0)
		close(progress->fd);
	free(progress);
}

bool finished_is_believed(const struct finished_steps *progress)
{
	return progress->believed;
}

int finished_settle(const char *path, const char *storage, struct penstock_error *err)
{
	struct finished_steps progress = {.fd = -1};
	_cleanup_close_ int dir = open(storage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	bool any;
	int r;

	if (dir < 0 || fd < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot open '%s'", path);
	r = load(&progress, path, err);
	any = progress.known != NULL;
	forget_all(&progress);
	if (r < 0 || !any)
		return r;
	if (syncfs(dir) < 0 || fs_write_all(fd, "s\n", 2) < 0 || fdatasync(fd) < 0)
		return error_errno(err, errno, "cannot sync '%s'", storage);
	return 0;
}

/* Returns the number of the top-level step of a line; -1 if the line is not about a step. */
static long step_of(const char *line)
{
	return str_starts(line, "d ") || str_starts(line, "i ") ? strtol(line + 2, NULL, 10) : -1;
}

int finished_cut(const char *path, size_t first, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_RUN_PROGRESS),
					  kept = BUF_INIT(LIMIT_RUN_PROGRESS);
	char *rest, *line;
	int r;

	if (access(path, F_OK) < 0)
		return 0;
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n")) && rest) {
		if (step_of(line) < 0 || (size_t)step_of(line) < first)
			buf_printf(&kept, "%s\n", line);
	}
	if (buf_failed(&kept))
		return buf_error(&kept, "the list of finished steps", err);
	return fs_write_atomic(path, buf_str(&kept), kept.len, 0600, err);
}

bool finished_has(const struct finished_steps *progress, const char *path)
{
	const struct finished *f = find(progress, path);

	return f && !f->iterations;
}

uint64_t finished_iterations(const struct finished_steps *progress, const char *path)
{
	const struct finished *f = find(progress, path);

	return f ? f->iterations : 0;
}

uint64_t finished_parallel(const struct finished_steps *progress, const char *path)
{
	size_t len = strlen(path);
	uint64_t n = 0;

	for (const struct finished *f = progress->known; f; f = f->hh.next) {
		if (!f->iterations && strncmp(f->path, path, len) == 0 &&
			str_starts(f->path + len, ".i") && !strchr(f->path + len + 1, '.'))
			n++;
	}
	return n;
}

bool finished_done(struct finished_steps *progress, const char *path)
{
	return append(progress, str_printf("d %s\n", path));
}

bool finished_iteration_done(struct finished_steps *progress, const char *path, uint64_t iteration)
{
	return append(progress, str_printf("i %s %" PRIu64 "\n", path, iteration));
}
