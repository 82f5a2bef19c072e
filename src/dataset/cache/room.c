/*
 * Limits the size of the cache. The file "lock" has the number of bytes that processes have taken.
 * A process increases the number in large steps, while it holds a lock on the file. At the limit, a
 * process counts the files, and removes the least recently used files. After a process was killed
 * the number may be too large, until the next count corrects it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "dataset/cache/internal.h"

#define LOCK_NAME     "lock"
#define FULL_MS	      10000 /* ms between counts while all files are in use */
#define STEPS	      256 /* a step is 1/256 of the limit */
#define STEP_MAX      (64 * MIB)
#define FREED_SHARE   8 /* 1/8 of the limit is freed at a time */
#define SPARE_SHARE   16 /* 1/16 of the limit is for blocks that are claimed and not written yet */
#define BLOCK_ON_DISK 512 /* bytes of a unit of st_blocks */

/* ---- files ---- */

struct aged {
	int64_t used_ns;
	uint64_t bytes;
	uint8_t name[CACHE_NAME_BYTES];
};

struct aged_files {
	struct aged *items;
	size_t n;
	uint64_t bytes; /* bytes of all files, including those that are not in the list */
};

/* Counts the file "xx/yyyy…"; ignores other names. */
static void count_file(struct aged_files *files, int dir, const char *first, const char *rest)
{
	char hex[2 * CACHE_NAME_BYTES + 1];
	struct aged file, *grown;
	struct stat st;

	if (strlen(rest) != 2 * CACHE_NAME_BYTES - 2)
		return;
	memcpy(hex, first, 2);
	memcpy(hex + 2, rest, sizeof(hex) - 2);
	if (str_unhex(hex, file.name, CACHE_NAME_BYTES) < 0 ||
		fstatat(dir, rest, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	file.bytes = (uint64_t)st.st_blocks * BLOCK_ON_DISK;
	file.used_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
	files->bytes += file.bytes;
	if (files->n == LIMIT_DATASET_CACHE_FILES)
		return;
	grown = array_grow(files->items, files->n, sizeof(*grown));
	if (!grown)
		return;
	files->items = grown;
	files->items[files->n++] = file;
}

static void count_files(const struct block_cache *c, struct aged_files *files)
{
	_cleanup_closedir_ DIR *top = opendir(c->dir);
	struct dirent *e, *f;

	while (top && (e = fs_next_entry(top))) {
		_cleanup_closedir_ DIR *dir = NULL;

		if (strlen(e->d_name) != 2)
			continue;
		dir = fs_list_at(dirfd(top), e->d_name);
		while (dir && (f = fs_next_entry(dir)))
			count_file(files, dirfd(dir), e->d_name, f->d_name);
	}
}

static int by_age(const void *x, const void *y)
{
	const struct aged *a = x, *b = y;

	return (a->used_ns > b->used_ns) - (a->used_ns < b->used_ns);
}

/* Removes the file unless a reader has it open. */
static bool remove_file(const struct block_cache *c, const struct aged *file)
{
	char hex[2 * CACHE_NAME_BYTES + 1];
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;

	str_hex(file->name, CACHE_NAME_BYTES, hex);
	path = str_printf("%s/%.2s/%s", c->dir, hex, hex + 2);
	if (!path)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0;
}

/* Removes files until at most `target` bytes are left. Returns the bytes that are left. */
static uint64_t evict(const struct block_cache *c, uint64_t target)
{
	struct aged_files files = {0};
	size_t removed = 0;

	count_files(c, &files);
	if (files.bytes > target && files.n)
		qsort(files.items, files.n, sizeof(*files.items), by_age);
	for (size_t i = 0; i < files.n && files.bytes > target; i++) {
		if (!remove_file(c, &files.items[i]))
			continue;
		files.bytes -= files.items[i].bytes;
		removed++;
	}
	log_debug("removed %zu of %zu files from the cache '%s'", removed, files.n, c->dir);
	free(files.items);
	return files.bytes;
}

/* ---- the number of bytes in the file "lock" ---- */

/* The content of the file "lock". */
struct used {
	/* boot in which `bytes` was written; a number of an earlier boot is not used, because a
	 * crash of the machine may have lost newer numbers */
	char boot[PROCESS_BOOT_ID_SIZE];
	uint64_t bytes;
};

static bool read_used(int fd, struct used *used)
{
	char boot[PROCESS_BOOT_ID_SIZE] = {0};
	bool good = fs_pread_all(fd, used, sizeof(*used), 0) == (ssize_t)sizeof(*used);

	process_boot_id(boot);
	if (good && memcmp(used->boot, boot, sizeof(boot)) == 0)
		return true;
	*used = (struct used){0};
	memcpy(used->boot, boot, sizeof(boot));
	return false;
}

/* Under the lock: adds another step of at least `bytes` to `c->room`. Returns false if there is no
 * space, or if the file "lock" cannot be used. */
static bool take_step(struct block_cache *c, uint64_t bytes)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = path_join(c->dir, LOCK_NAME);
	uint64_t limit = c->limit - c->limit / SPARE_SHARE;
	uint64_t step = limit / STEPS < STEP_MAX ? limit / STEPS : STEP_MAX;
	_cleanup_close_ int fd = -1;
	struct used used;
	bool good;

	if (step < bytes)
		step = bytes;
	fd = path ? fs_lock_file(path, &err) : -1;
	if (fd < 0) {
		block_cache_turn_off(c, path ? errno : ENOMEM, "take room");
		return false;
	}
	good = read_used(fd, &used);
	if (!good || used.bytes + step > limit)
		used.bytes = evict(c, limit - limit / FREED_SHARE);
	good = used.bytes + step <= limit;
	used.bytes += good ? step : 0;
	if (fs_pwrite_all(fd, &used, sizeof(used), 0) < 0) {
		block_cache_turn_off(c, errno, "take room");
		return false;
	}
	c->room += good ? step : 0;
	return good;
}

bool block_cache_take_room(struct block_cache *c, uint64_t bytes)
{
	LOCK_SCOPE(&c->lock);
	if (atomic_load(&c->off))
		return false;
	if (c->room < bytes) {
		if (clock_monotonic_ms() < c->full_until_ms)
			return false;
		if (!take_step(c, bytes)) {
			c->full_until_ms = clock_monotonic_ms() + FULL_MS;
			return false;
		}
	}
	c->room -= bytes;
	return true;
}
