#include "checkpoint/read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

/* ---- one checkpoint ---- */

int commit_check_place(
	const struct commit *c, const char *name, bool single, struct penstock_error *err)
{
	if (c->n_files == 0)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"'%s' is not a checkpoint: its commit names no file", name);
	if (single && (c->n_files != 1 || strcmp(c->files[0].name, path_last(name)) != 0))
		return error_set(err, PENSTOCK_E_CORRUPT,
			"%s" COMMIT_SUFFIX
			" is not a valid commit of a checkpoint: it is for another file",
			name);
	return 0;
}

static int read_commit(struct commit **out, const char *file, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_close_ int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", file);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > LIMIT_COMMIT)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"'%s' is not a valid commit of a checkpoint: %s", file,
			S_ISREG(st.st_mode) ? "too large" : "not a regular file");
	if (!buf_reserve(&text, (size_t)st.st_size + 1))
		return error_memory(err);
	n = fs_pread_all(fd, text.data, (size_t)st.st_size, 0);
	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", file);
	buf_grown(&text, (size_t)n);
	return commit_parse(out, text.data, text.len, file, err);
}

int commit_open(struct commit **out, const char *path, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_free_ char *clean = strdup(path), *file = NULL;
	struct stat st;
	bool dir;
	int r;

	for (size_t n = clean ? strlen(clean) : 0; n > 1 && clean[n - 1] == '/'; n--)
		clean[n - 1] = '\0';
	dir = clean && lstat(clean, &st) == 0 && S_ISDIR(st.st_mode);
	file = clean ? str_printf(dir ? "%s/" COMMIT_NAME : "%s" COMMIT_SUFFIX, clean) : NULL;
	if (!file)
		return error_memory(err);
	r = read_commit(&c, file, err);
	if (r < 0)
		return r;
	c->single = !dir;
	r = commit_check_place(c, clean, c->single, err);
	if (r < 0)
		return r;
	c->path = take_pointer(clean);
	*out = take_pointer(c);
	return 0;
}

int commit_checksum(int fd, uint64_t size, const volatile int *cancel, uint64_t *crc,
	struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE] = {0};
	int r = checksum_of_file(fd, CHECKSUM_CRC64NVME, 0, size,
		(const atomic_int *)(uintptr_t)cancel, digest, err);

	*crc = commit_crc(digest);
	return r == -(int)PENSTOCK_E_CHANGED
		       ? error_set(err, PENSTOCK_E_CORRUPT, "the file became shorter")
		       : r;
}

static int open_file(int root, const char *name)
{
	const char *slash = strrchr(name, '/');
	size_t at;
	_cleanup_close_ int dir = slash ? fs_open_below(
						  root, name, (size_t)(slash - name), false, &at)
					: dup(root);

	return dir < 0 ? -1
		       : openat(dir, slash ? slash + 1 : name,
				 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static int verify_file(int root, const struct commit_file *f, bool whole,
	const volatile int *cancel, struct penstock_error *err)
{
	_cleanup_close_ int fd = open_file(root, f->name);
	struct stat st;
	uint64_t crc;
	int r;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return error_set(err, PENSTOCK_E_CORRUPT, "'%s' is missing", f->name);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", f->name);
	if (!S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_CORRUPT, "'%s' is not a regular file", f->name);
	if ((uint64_t)st.st_size != f->size)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"'%s' has %llu bytes, but its commit has %llu", f->name,
			(unsigned long long)st.st_size, (unsigned long long)f->size);
	if (!whole)
		return 0;
	r = commit_checksum(fd, f->size, cancel, &crc, err);
	if (r < 0)
		return error_prefix(err, "%s", f->name);
	return crc == f->crc ? 0
			     : error_set(err, PENSTOCK_E_CORRUPT,
				       "'%s' does not match the checksum of its commit (CRC-64)",
				       f->name);
}

int commit_verify(
	const struct commit *c, bool whole, const volatile int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *dir = strdup(c->path);
	_cleanup_close_ int root = -1;
	char *slash = dir && c->single ? strrchr(dir, '/') : NULL;
	int r = 0;

	if (!dir)
		return error_memory(err);
	if (slash)
		slash[slash == dir] = '\0';
	root = open(c->single && !slash ? "." : dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return error_errno(err, errno, "cannot read '%s'", c->path);
	for (size_t i = 0; r == 0 && i < c->n_files; i++)
		r = verify_file(root, &c->files[i], whole, cancel, err);
	return r < 0 ? error_prefix(err, "checkpoint '%s'", c->path) : 0;
}

/* ---- all checkpoints of a directory ---- */

bool commit_name_parse(const char *name, uint64_t *step, unsigned *attempt)
{
	char text[24];
	uint64_t number;
	size_t n;

	if (!str_starts(name, "step-"))
		return false;
	name += strlen("step-");
	n = strspn(name, "0123456789");
	if (n == 0 || n >= sizeof(text) || name[n] != '-' ||
		!str_to_u64(name + n + 1, 0, INT32_MAX, &number))
		return false;
	memcpy(text, name, n);
	text[n] = '\0';
	*attempt = (unsigned)number;
	return str_to_u64(text, 0, INT64_MAX, step);
}

static void release_entry(struct commit_entry *e)
{
	free(e->path);
	free(e->why);
	commit_free(e->commit);
}

void commit_list_release(struct commit_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		release_entry(&list->items[i]);
	free(list->items);
	*list = (struct commit_list){0};
}

/* Returns the path of a checkpoint if the entry `name` of `dir` is the directory of the checkpoint,
 * or the commit of a file. Returns NULL for other entries, and NULL with errno ENOMEM if out of
 * memory. Ignores a name that no save creates, because such a name could contain a line break,
 * which would break a printed list. */
static char *path_of(const char *dir, const char *name)
{
	_cleanup_free_ char *path = NULL, *file = NULL;
	struct stat st;

	errno = 0;
	if (!commit_name_is_good(name))
		return NULL;
	path = path_join(dir, name);
	if (!path)
		goto memory;
	if (strcmp(name, COMMIT_NAME) != 0 && commit_is_name(name)) {
		path[strlen(path) - strlen(COMMIT_SUFFIX)] = '\0';
		return take_pointer(path);
	}
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return NULL;
	file = path_join(path, COMMIT_NAME);
	if (!file)
		goto memory;
	return lstat(file, &st) == 0 ? take_pointer(path) : NULL;
memory:
	errno = ENOMEM;
	return NULL;
}

static int fill_entry(struct commit_entry *e, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	struct stat st;
	int r = commit_open(&e->commit, e->path, &why);

	e->single = lstat(e->path, &st) < 0 || !S_ISDIR(st.st_mode);
	if (r == 0 && e->commit) {
		e->step = e->commit->step;
		e->attempt = e->commit->attempt;
		return 0;
	}
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 1; /* the commit was just removed */
	if (r == -(int)PENSTOCK_E_MEMORY)
		return error_move(err, &why);
	e->attempt = UINT_MAX;
	commit_name_parse(path_last(e->path), &e->step, &e->attempt);
	e->why = why.message ? strdup(why.message) : NULL;
	return e->why ? 0 : error_memory(err);
}

static int add_entry(
	struct commit_list *list, const char *dir, const char *name, struct penstock_error *err)
{
	struct commit_entry e = {.path = path_of(dir, name)};
	struct commit_entry *items;
	int r;

	if (!e.path)
		return errno == ENOMEM ? error_memory(err) : 0;
	r = fill_entry(&e, err);
	if (r == 0 && list->n == LIMIT_CHECKPOINTS)
		r = error_set(err, PENSTOCK_E_LIMIT, "'%s' has more than %d checkpoints", dir,
			LIMIT_CHECKPOINTS);
	if (r == 0) {
		items = reallocarray(list->items, list->n + 1, sizeof(e));
		if (items) {
			list->items = items;
			items[list->n++] = e;
			return 0;
		}
		r = error_memory(err);
	}
	release_entry(&e);
	return r < 0 ? r : 0;
}

static int newest_first(const void *a, const void *b)
{
	const struct commit_entry *x = a, *y = b;

	if (x->attempt != y->attempt)
		return x->attempt > y->attempt ? -1 : 1;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	if (x->commit && y->commit && commit_compare(x->commit, y->commit) != 0)
		return -commit_compare(x->commit, y->commit);
	return strcmp(y->path, x->path);
}

void commit_list_sort(struct commit_list *list)
{
	if (list->n)
		qsort(list->items, list->n, sizeof(*list->items), newest_first);
}

int commit_list_read(struct commit_list *list, const char *dir, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *stream = opendir(dir);
	struct dirent *d;
	int r = 0;

	*list = (struct commit_list){0};
	if (!stream)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot read '%s'", dir);
	while (r == 0 && (d = fs_next_entry(stream)))
		r = add_entry(list, dir, d->d_name, err);
	if (r == 0 && errno)
		r = error_errno(err, errno, "cannot read '%s'", dir);
	if (r < 0) {
		commit_list_release(list);
		return r;
	}
	commit_list_sort(list);
	return 0;
}

int commit_latest(struct commit **out, const char *dir, commit_passed_fn passed, void *cookie,
	const volatile int *cancel, struct penstock_error *err)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	int r = commit_list_read(&list, dir, err);

	for (size_t i = 0; r == 0 && i < list.n; i++) {
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		struct commit_entry *e = &list.items[i];

		if (e->commit && commit_verify(e->commit, true, cancel, &why) == 0) {
			*out = take_pointer(e->commit);
			return 0;
		}
		if (why.code == PENSTOCK_E_CANCELLED || why.code == PENSTOCK_E_MEMORY)
			return error_move(err, &why);
		if (passed)
			passed(cookie, e->path, e->why ? e->why : why.message);
	}
	return r < 0 ? r
		     : error_set(err, PENSTOCK_E_NOT_FOUND,
			       list.n ? "cannot find a valid checkpoint in '%s'"
				      : "cannot find a checkpoint in '%s'",
			       dir);
}
