/*
 * The cache file of a shard: the bytes of its cached blocks, and a table with an entry for each
 * block. An entry is written after its block, and has the block's CRC32C.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "dataset/cache/internal.h"
#include "s3/sum/checksum.h"

#define PRESENT	   ((uint64_t)1 << 32) /* bit of an entry, above the CRC */
#define TOUCH_MS   (60 * 1000) /* interval at which the modification time of a file in use is set */
#define TABLE_DISK (4 * KIB) /* disk space of a new entry: a file system block of the table */

static uint64_t blocks_of(uint64_t size)
{
	return (size + CACHE_BLOCK - 1) / CACHE_BLOCK;
}

static off_t entry_at(uint64_t size, uint64_t block)
{
	return (off_t)(((size + 7) & ~(uint64_t)7) + 8 * block);
}

/* ---- files ---- */

/* Returns "DIR/xx/yyyy…", or NULL if out of memory. */
static char *path_of(const struct block_cache *c, const char *identity)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[2 * CACHE_NAME_BYTES + 1];

	if (checksum_of(CHECKSUM_SHA256, identity, strlen(identity), digest, NULL) < 0)
		return NULL;
	str_hex(digest, CACHE_NAME_BYTES, hex);
	return str_printf("%s/%.2s/%s", c->dir, hex, hex + 2);
}

static int open_path(const char *path, bool make)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	_cleanup_free_ char *dir = NULL;
	int fd = open(path, flags);

	if (fd >= 0 || errno != ENOENT || !make)
		return fd;
	dir = strdup(path);
	if (!dir)
		return -1;
	*strrchr(dir, '/') = '\0';
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -1;
	return open(path, flags | O_CREAT, 0600);
}

/* Opens the file and locks it against eviction. If another process removed the file before the lock
 * was taken, opens the file again. */
static int open_locked(const char *path, bool make)
{
	for (;;) {
		_cleanup_close_ int fd = open_path(path, make);

		if (fd < 0)
			return -1;
		while (flock(fd, LOCK_SH) < 0) {
			if (errno != EINTR)
				return -1;
		}
		if (fs_is_named(fd, path))
			return take_fd(fd);
	}
}

bool block_file_open(
	struct block_cache *c, struct block_file *file, const char *identity, bool make)
{
	_cleanup_free_ char *path = path_of(c, identity);
	off_t size = entry_at(file->size, blocks_of(file->size));
	struct stat st;

	if (!path || (make && atomic_load(&c->off)))
		return false;
	file->fd = open_locked(path, make);
	if (file->fd >= 0 && fstat(file->fd, &st) == 0 &&
		(st.st_size == size || ftruncate(file->fd, size) == 0)) {
		bool old = clock_wall_ns() - (st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec) >
			   TOUCH_MS * NS_PER_MS;

		file->used_ms = old ? 0 : clock_monotonic_ms();
		return true;
	}
	if (errno != ENOENT && errno != EMFILE && errno != ENFILE)
		block_cache_turn_off(c, errno, "open a file");
	block_file_close(file);
	return false;
}

void block_file_close(struct block_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

/* ---- reading ---- */

/* Returns true if this process has verified the block. No verification is recorded for a shard of
 * one block: each read verifies the block again. */
static bool is_known(struct block_cache *c, const struct block_file *file, uint64_t block)
{
	_Atomic uint32_t *bits = atomic_load(&c->good[file->shard]);

	return bits && atomic_load(&bits[block / 32]) & (UINT32_C(1) << block % 32);
}

static void set_known(struct block_cache *c, const struct block_file *file, uint64_t block)
{
	uint64_t n = blocks_of(file->size);
	_Atomic uint32_t *bits = atomic_load(&c->good[file->shard]), *none = NULL;

	if (n == 1)
		return;
	if (!bits) {
		bits = calloc(n / 32 + 1, sizeof(*bits));
		if (bits && !atomic_compare_exchange_strong(&c->good[file->shard], &none, bits)) {
			free((void *)bits);
			bits = none;
		}
	}
	if (bits)
		atomic_fetch_or(&bits[block / 32], UINT32_C(1) << block % 32);
}

static void set_unknown(struct block_cache *c, const struct block_file *file, uint64_t block)
{
	_Atomic uint32_t *bits = atomic_load(&c->good[file->shard]);

	if (bits)
		atomic_fetch_and(&bits[block / 32], ~(UINT32_C(1) << block % 32));
}

static bool read_bytes(const struct block_file *file, uint64_t offset, void *data, size_t len)
{
	return fs_pread_all(file->fd, data, len, (off_t)offset) == (ssize_t)len;
}

/* Returns the entry of a block; 0 if the block is missing. */
static uint64_t entry_of(const struct block_file *file, uint64_t block)
{
	uint64_t entry;

	if (!read_bytes(file, (uint64_t)entry_at(file->size, block), &entry, sizeof(entry)))
		return 0;
	return entry & PRESENT ? entry : 0;
}

/* Reads the block into `scratch`. Returns true if its CRC matches `entry`. */
static bool verify(struct block_cache *c, const struct block_file *file, uint64_t block,
	uint64_t entry, char *scratch)
{
	size_t len = block_size(file->size, block);

	if (!read_bytes(file, block * CACHE_BLOCK, scratch, len) ||
		(PRESENT | crc32c_update(0, scratch, len)) != entry) {
		log_debug("a block in the cache '%s' is damaged; fetching the block again", c->dir);
		return false;
	}
	set_known(c, file, block);
	return true;
}

/* Sets the modification time of the file, at most once in TOUCH_MS, because the files with the
 * oldest times are removed first. */
static void touch(struct block_file *file)
{
	int64_t now = clock_monotonic_ms();

	if (file->used_ms && now - file->used_ms < TOUCH_MS)
		return;
	futimens(file->fd, NULL);
	file->used_ms = now;
}

const char *block_cache_get(
	struct block_cache *c, struct block_file *file, uint64_t offset, size_t len, char *scratch)
{
	uint64_t block = offset / CACHE_BLOCK, entry = entry_of(file, block);

	if (!entry)
		return NULL;
	touch(file);
	if (is_known(c, file, block)) {
		if (read_bytes(file, offset, scratch, len))
			return scratch;
		set_unknown(c, file, block);
		return NULL;
	}
	return verify(c, file, block, entry, scratch) ? scratch + offset % CACHE_BLOCK : NULL;
}

/* ---- writing ---- */

/* Locks the byte at offset `block` of the file, or unlocks the byte if `type` is F_UNLCK. The lock
 * also ends when `file->fd` is closed. */
static bool lock_block(const struct block_file *file, uint64_t block, short type)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)block, .l_len = 1};

	return fcntl(file->fd, F_OFD_SETLK, &lock) == 0;
}

enum block_claim block_cache_claim(
	struct block_cache *c, struct block_file *file, uint64_t block, char *scratch)
{
	uint64_t entry;

	if (!lock_block(file, block, F_WRLCK))
		return CACHE_BUSY;
	entry = entry_of(file, block);
	if (entry && (is_known(c, file, block) || verify(c, file, block, entry, scratch))) {
		block_cache_give_up(file, block);
		return CACHE_PRESENT;
	}
	if (block_cache_take_room(c, block_size(file->size, block) + TABLE_DISK))
		return CACHE_CLAIMED;
	block_cache_give_up(file, block);
	return CACHE_FULL;
}

void block_cache_give_up(struct block_file *file, uint64_t block)
{
	lock_block(file, block, F_UNLCK);
}

void block_cache_put(
	struct block_cache *c, struct block_file *file, uint64_t block, const void *data)
{
	size_t len = block_size(file->size, block);
	uint64_t entry = PRESENT | crc32c_update(0, data, len), none = 0;
	off_t at = entry_at(file->size, block);

	/* If the process is killed between these writes, the block counts as missing. */
	if ((entry_of(file, block) && fs_pwrite_all(file->fd, &none, sizeof(none), at) < 0) ||
		fs_pwrite_all(file->fd, data, len, (off_t)(block * CACHE_BLOCK)) < 0 ||
		fs_pwrite_all(file->fd, &entry, sizeof(entry), at) < 0)
		block_cache_turn_off(c, errno, "write");
	else
		set_known(c, file, block);
	block_cache_give_up(file, block);
}
