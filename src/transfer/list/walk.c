/*
 * The files below a directory in byte order of their paths. The walk sorts the names in a
 * directory, with a "/" at the end of each name of a subdirectory, and visits them one by one.
 * Therefore the walk holds the names not yet visited in all directories above the current one; if
 * these become too many, the walk moves some of the names to files (sort.h).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/list/sort.h"
#include "transfer/list/listing_internal.h"
#include "transfer/state/part_file.h"

#define DIRENT_BUFFER ((size_t)64 * KIB)
/* directories kept open on the way down, in addition to the first */
#define OPEN_LEVELS    ((size_t)64)
#define CANCEL_ENTRIES 256 /* names between two checks of the cancel flag */

struct level {
	int fd; /* -1 if closed to save descriptors; opened again when the walk returns */
	dev_t dev;
	ino_t ino;
	size_t path_len; /* length of the directory's path, with the "/" */
	struct list_sorter *names;
	size_t memory; /* bytes of memory of `names` */
};

struct walk {
	struct entry_source source;
	struct walk_options options;
	char *root; /* for messages */
	struct level *levels;
	size_t n_levels;
	size_t memory; /* bytes of memory of the names of all levels */
	struct buf path;
	char *dirents;
	unsigned since_cancel;
};

static int problem(struct walk *w, struct penstock_error *problem, struct penstock_error *err)
{
	int r;

	if (!w->options.on_problem || problem->code == PENSTOCK_E_MEMORY)
		return error_move(err, problem);
	r = w->options.on_problem(w->options.cookie, buf_str(&w->path), problem);
	if (r)
		return error_move(err, problem);
	penstock_error_release(problem);
	return 0;
}

static int problem_errno(struct walk *w, int errnum, const char *what, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;

	error_errno(&own, errnum, "cannot %s '%s/%s'", what, w->root, buf_str(&w->path));
	/* These errors are not caused by the file, so the file must not be left out. */
	if (errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM)
		return error_move(err, &own);
	return problem(w, &own, err);
}

static int problem_say(
	struct walk *w, enum penstock_code code, const char *why, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;

	error_set(&own, code, "'%s/%s' %s", w->root, buf_str(&w->path), why);
	return problem(w, &own, err);
}

/* Returns true if the entry, or a directory above it, was deleted. ESTALE does not count: a
 * restarted file server returns ESTALE for existing files, and a sync would delete these files at
 * the target. */
static bool vanished(int errnum)
{
	return errnum == ENOENT;
}

static bool cancelled(struct walk *w)
{
	if (++w->since_cancel < CANCEL_ENTRIES)
		return false;
	w->since_cancel = 0;
	return w->options.cancel && atomic_load(w->options.cancel);
}

/* Appends `name` to the directory in the first `len` bytes of the path. Returns 1, 0 if the path is
 * too long and was reported, or a negative error. */
static int path_set(
	struct walk *w, size_t len, const char *name, size_t name_len, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;

	buf_truncate(&w->path, len);
	if (len + name_len <= LIMIT_WALK_PATH)
		return buf_add(&w->path, name, name_len) < 0 ? error_memory(err) : 1;
	error_set(&own, PENSTOCK_E_LIMIT, "'%s/%s%s' has a path of more than %zu bytes", w->root,
		buf_str(&w->path), name, LIMIT_WALK_PATH);
	return problem(w, &own, err);
}

/* ---- the names of one directory ---- */

/* Returns true if the filter leaves out the entry: problems of such an entry are not reported. */
static bool left_out(const struct walk *w)
{
	return w->options.takes && !w->options.takes(w->options.cookie, buf_str(&w->path), false);
}

/* Returns the type of a name as a d_type, 0 to leave it out, or a negative error. */
static int resolve_type(
	struct walk *w, int fd, const char *name, int type, struct penstock_error *err)
{
	struct stat st;

	if (type == DT_UNKNOWN) {
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return vanished(errno) ? 0 : problem_errno(w, errno, "stat", err);
		type = IFTODT(st.st_mode);
	}
	if (type == DT_LNK && w->options.links == WALK_LINKS_SKIP)
		return 0;
	if (type == DT_LNK && w->options.links == WALK_LINKS_FOLLOW) {
		if (fstatat(fd, name, &st, 0) < 0)
			return left_out(w) ? 0 : problem_errno(w, errno, "follow link", err);
		type = IFTODT(st.st_mode);
	}
	if (type == DT_REG || type == DT_DIR || type == DT_LNK)
		return type;
	if (left_out(w))
		return 0;
	return problem_say(w, PENSTOCK_E_UNSUPPORTED, "is neither a file nor a directory", err);
}

static int add_name(struct walk *w, int fd, struct level *level, const struct dirent64 *d,
	struct penstock_error *err)
{
	char name[NAME_MAX + 2];
	size_t len = strlen(d->d_name);
	unsigned char type;
	int r;

	if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || len > NAME_MAX ||
		part_file_is_ours(fd, d->d_name))
		return 0;
	type = d->d_type;
	if (type != DT_REG && type != DT_DIR) {
		r = path_set(w, level->path_len, d->d_name, len, err);
		if (r > 0)
			r = resolve_type(w, fd, d->d_name, type, err);
		if (r <= 0)
			return r;
		type = (unsigned char)r;
	}
	memcpy(name, d->d_name, len);
	if (type == DT_DIR)
		name[len++] = '/';
	return list_sorter_add(level->names,
		&(struct list_record){
			.text = name, .text_len = len, .extra = &type, .extra_len = 1},
		err);
}

static int read_names(struct walk *w, int fd, struct level *level, struct penstock_error *err)
{
	int r = list_sorter_new(&level->names, LIMIT_WALK_NAMES, err);
	ssize_t n;

	while (r == 0 && (n = getdents64(fd, w->dirents, DIRENT_BUFFER)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && vanished(errno))
			break;
		if (n < 0) {
			buf_truncate(&w->path, level->path_len);
			r = problem_errno(w, errno, "list", err);
			break;
		}
		for (ssize_t at = 0; r == 0 && at < n;) {
			const struct dirent64 *d = (const void *)(w->dirents + at);

			at += d->d_reclen;
			if (cancelled(w))
				return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
			r = add_name(w, fd, level, d, err);
		}
	}
	buf_truncate(&w->path, level->path_len);
	return r == 0 ? list_sorter_seal(level->names, err) : r;
}

/* ---- the directories on the way down ---- */

static int open_flags(const struct walk *w)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;

	return w->options.links == WALK_LINKS_FOLLOW ? flags : flags | O_NOFOLLOW;
}

static struct level *deepest(const struct walk *w)
{
	return &w->levels[w->n_levels - 1];
}

static void level_close(struct level *level)
{
	cleanup_closep(&level->fd);
	level->fd = -1;
}

static void level_release(struct walk *w, struct level *level)
{
	w->memory -= level->memory;
	list_sorter_free(level->names);
	level_close(level);
}

/* Returns true if the directory is also one of the directories above. */
static bool leads_back(const struct walk *w, const struct stat *st)
{
	for (size_t i = 0; i < w->n_levels; i++) {
		if (w->levels[i].dev == st->st_dev && w->levels[i].ino == st->st_ino)
			return true;
	}
	return false;
}

/* If there are too many names on the levels above, moves the longest lists to files until the
 * others fit. */
static int make_room(struct walk *w, struct penstock_error *err)
{
	int r = 0;

	while (r == 0 && w->memory > LIMIT_WALK_MEMORY) {
		struct level *most = &w->levels[0];
		size_t before;

		for (size_t i = 1; i < w->n_levels; i++) {
			if (w->levels[i].memory > most->memory)
				most = &w->levels[i];
		}
		before = most->memory;
		r = list_sorter_spill(most->names, err);
		most->memory = list_sorter_memory(most->names);
		w->memory -= before - most->memory;
		if (most->memory == before)
			break;
	}
	return r;
}

/* Reads the names of a directory as the deepest level. Takes ownership of `fd`, even on failure. */
static int level_push(struct walk *w, int fd, const struct stat *st, struct penstock_error *err)
{
	struct level level = {
		.fd = fd, .dev = st->st_dev, .ino = st->st_ino, .path_len = w->path.len};
	struct level *grown = array_grow(w->levels, w->n_levels, sizeof(*grown));
	int r;

	if (!grown) {
		close(fd);
		return error_memory(err);
	}
	w->levels = grown;
	/* Make room for the levels above only; the new names are counted after they are read. So at
	 * most one list exceeds the limit. */
	r = make_room(w, err);
	if (r == 0)
		r = read_names(w, fd, &level, err);
	if (level.names)
		level.memory = list_sorter_memory(level.names);
	w->memory += level.memory;
	if (r < 0) {
		level_release(w, &level);
		return r;
	}
	w->levels[w->n_levels++] = level;
	if (w->n_levels > OPEN_LEVELS + 1)
		level_close(&w->levels[w->n_levels - 1 - OPEN_LEVELS]);
	return 0;
}

/* Opens the deepest directory again, from the nearest open one above. */
static int level_reopen(struct walk *w, struct penstock_error *err)
{
	size_t open = w->n_levels - 1;
	struct stat st;

	while (w->levels[open].fd < 0)
		open--;
	for (size_t i = open + 1; i < w->n_levels; i++) {
		size_t from = w->levels[i - 1].path_len;
		_cleanup_free_ char *name = strndup(
			w->path.data + from, w->levels[i].path_len - from - 1);

		if (!name)
			return error_memory(err);
		w->levels[i].fd = openat(w->levels[i - 1].fd, name, open_flags(w));
		if (i > OPEN_LEVELS)
			level_close(&w->levels[i - OPEN_LEVELS]);
		if (w->levels[i].fd >= 0 && fstat(w->levels[i].fd, &st) == 0 &&
			st.st_dev == w->levels[i].dev && st.st_ino == w->levels[i].ino)
			continue;
		return error_set(err, PENSTOCK_E_CHANGED,
			"cannot list '%s/%.*s': it was moved meanwhile; try again", w->root,
			(int)w->levels[i].path_len - 1, w->path.data);
	}
	return 0;
}

/* Descends into the directory `name`, whose path with the "/" is in w->path. Returns 0 even if the
 * directory vanished or was left out. */
static int descend(struct walk *w, const char *name, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(deepest(w)->fd, name, open_flags(w));
	struct stat st;

	if (fd < 0 && vanished(errno))
		return 0;
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return problem_say(
			w, PENSTOCK_E_CHANGED, "was replaced while it was listed; try again", err);
	if (fd < 0 || fstat(fd, &st) < 0)
		return problem_errno(w, errno, "open", err);
	if (leads_back(w, &st))
		return problem_say(w, PENSTOCK_E_INVALID,
			"is a link to one of its own parent directories; exclude it", err);
	return level_push(w, take_fd(fd), &st, err);
}

/* ---- the stream ---- */

/* Returns 1 with `entry` filled, 0 if the file vanished or a problem was reported. */
static int look_at(struct walk *w, const char *name, unsigned char type, struct entry *entry,
	struct penstock_error *err)
{
	struct stat st;
	bool keep = w->options.links != WALK_LINKS_FOLLOW;

	if (fstatat(deepest(w)->fd, name, &st, keep ? AT_SYMLINK_NOFOLLOW : 0) < 0)
		return vanished(errno) ? 0 : problem_errno(w, errno, "stat", err);
	if (IFTODT(st.st_mode) != type)
		return problem_say(
			w, PENSTOCK_E_CHANGED, "was replaced while it was listed; try again", err);
	*entry = (struct entry){.path = buf_str(&w->path),
		.path_len = w->path.len,
		.kind = type == DT_LNK	 ? ENTRY_LINK
			: type == DT_DIR ? ENTRY_DIRECTORY
					 : ENTRY_FILE,
		.size = type == DT_DIR ? 0 : (uint64_t)st.st_size,
		.mtime_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec,
		.mode = st.st_mode & 07777};
	return 1;
}

/* Descends into a directory. Returns 1 with `entry` filled if directories are listed, 0 if not or
 * if the directory vanished or a problem was reported, or a negative error. */
static int enter(struct walk *w, const struct list_record *record, struct entry *entry,
	struct penstock_error *err)
{
	/* Use the name without its "/", because the kernel follows a link before a "/". */
	_cleanup_free_ char *name = strndup(record->text, record->text_len - 1);
	int r = name ? 1 : error_memory(err);

	if (r > 0 && w->options.directories)
		r = look_at(w, name, DT_DIR, entry, err);
	if (r <= 0)
		return r;
	r = descend(w, name, err);
	entry->path = buf_str(&w->path);
	return r < 0 ? r : w->options.directories;
}

/* Takes the next name of the deepest directory, or returns to the directory above at its end.
 * Returns 1 with `entry` filled, 0 to be called again, or a negative error. */
static int step(struct walk *w, struct entry *entry, struct penstock_error *err)
{
	struct level *level = deepest(w);
	struct list_record record;
	unsigned char type;
	int r = list_sorter_next(level->names, &record, err);

	if (r < 0)
		return r;
	if (r == 0) {
		level_release(w, level);
		w->n_levels--;
		return w->n_levels && deepest(w)->fd < 0 ? level_reopen(w, err) : 0;
	}
	memcpy(&type, record.extra, 1);
	r = path_set(w, level->path_len, record.text, record.text_len, err);
	if (r <= 0)
		return r;
	if (w->options.takes &&
		!w->options.takes(w->options.cookie, buf_str(&w->path), type == DT_DIR))
		return 0;
	return type == DT_DIR ? enter(w, &record, entry, err)
			      : look_at(w, record.text, type, entry, err);
}

static int walk_next(struct entry_source *source, struct entry *entry, struct penstock_error *err)
{
	struct walk *w = (struct walk *)source;
	int r = 0;

	while (r == 0 && w->n_levels) {
		if (cancelled(w))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		r = step(w, entry, err);
	}
	return r;
}

static void walk_free(struct entry_source *source)
{
	struct walk *w = (struct walk *)source;

	while (w->n_levels)
		level_release(w, &w->levels[--w->n_levels]);
	free(w->levels);
	free(w->dirents);
	free(w->root);
	buf_release(&w->path);
	free(w);
}

int entry_source_files(struct entry_source **out, const char *path,
	const struct walk_options *options, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	struct walk *w;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open directory '%s'", path);
	w = calloc(1, sizeof(*w));
	if (!w)
		return error_memory(err);
	w->source = (struct entry_source){walk_next, walk_free, 1};
	if (options)
		w->options = *options;
	buf_init(&w->path, LIMIT_WALK_PATH);
	w->root = strdup(path);
	w->dirents = malloc(DIRENT_BUFFER);
	/* w->path is empty here: paths are relative to this directory. */
	r = w->root && w->dirents ? level_push(w, take_fd(fd), &st, err) : error_memory(err);
	if (r < 0) {
		walk_free(&w->source);
		return r;
	}
	*out = &w->source;
	return 0;
}
