#include "store/internal.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"

/*
 * Relaxed durability: nothing is synced when a change is made, so after a crash of the machine the
 * log may contain rows whose bodies never reached the disk. A sync point makes all files and the
 * log durable, and then records the length of the log in ROOT/relaxed. After a crash of the machine
 * the log is cut to that length: the store is as it was at its last sync point, with each object
 * whole. The database contains only recorded changes. A file that the database or the recorded part
 * of the log may name is not unlinked before the next sync point.
 *
 * ROOT/relaxed has two slots, which are written in turn and in place: an interrupted write leaves
 * the earlier mark, and most file systems need no free space for such a write. A slot has a mark:
 *
 *	BOOT NUMBER SALT PAGES NUMBER
 *
 * BOOT is the boot id of the machine: a log written since the last boot is complete, even if the
 * process crashed. After a failed sync BOOT is overwritten by zeros: the kernel may have lost pages
 * of the log, so that the next start cuts the log as after a crash of the machine. NUMBER counts
 * the sync points; the two copies differ if the slot was written in part. SALT is the salt of the
 * log, which changes when SQLite restarts the log. PAGES is the number of pages of the log.
 */
#define MARK_SLOT 4096 /* bytes: a block, which disks write as a whole */
#define LOG	  "meta.db-wal"

/* Sizes and offsets in the log: https://www.sqlite.org/fileformat2.html#walformat */
#define LOG_HEADER	 32
#define LOG_PAGE_SIZE	 8
#define LOG_SALT	 16
#define LOG_SALT_SIZE	 8
#define LOG_FRAME_HEADER 24

struct log_header {
	char salt[2 * LOG_SALT_SIZE + 1]; /* hexadecimal; "" if there is no log */
	uint32_t page_size;
};

struct mark {
	bool exists;
	bool this_boot; /* the mark was made since the machine started */
	uint64_t number; /* 0 if no slot is valid */
	char salt[2 * LOG_SALT_SIZE + 1]; /* salt of the log that may be trusted */
	uint64_t pages;
};

static int sync_root_dir(struct store *store, struct penstock_error *err)
{
	return fsync(store->root_fd) < 0 ? error_errno(err, errno, "cannot sync '%s'", store->root)
					 : 0;
}

/* Opens the log and reads its header. Returns the descriptor, or -1 if the log cannot be opened.
 * Sets `*rc` to a negative code on error, but to 0 if there is no log. */
static int open_log(
	struct store *store, int flags, struct log_header *out, int *rc, struct penstock_error *err)
{
	int fd = openat(store->root_fd, LOG, flags | O_CLOEXEC);
	uint8_t bytes[LOG_HEADER];
	ssize_t n = fd < 0 ? -1 : fs_pread_all(fd, bytes, sizeof(bytes), 0);

	*rc = 0;
	*out = (struct log_header){0};
	if (n < 0 && (fd >= 0 || errno != ENOENT))
		*rc = error_errno(err, errno, "cannot read '%s/" LOG "'", store->root);
	if (n == LOG_HEADER) {
		str_hex(bytes + LOG_SALT, LOG_SALT_SIZE, out->salt);
		memcpy(&out->page_size, bytes + LOG_PAGE_SIZE, sizeof(out->page_size));
		out->page_size = be32toh(out->page_size);
	}
	return fd;
}

/* Records that the log may be trusted up to its last commit. The first mark creates the file. */
static int write_mark(struct store *store, struct penstock_error *err)
{
	char boot[PROCESS_BOOT_ID_SIZE], slots[2 * MARK_SLOT] = "";
	char *slot = slots + store->mark_slot * MARK_SLOT;
	uint64_t number = ++store->sync_points;
	_cleanup_free_ char *path = path_join(store->root, RELAXED_MARK);
	_cleanup_close_ int fd = -1, log_fd = -1;
	struct log_header log;
	int rc;

	if (!path)
		return error_memory(err);
	log_fd = open_log(store, O_RDONLY, &log, &rc, err);
	if (rc < 0)
		return rc;
	process_boot_id(boot);
	snprintf(slot, MARK_SLOT, "%s %016" PRIx64 " %s %08x %016" PRIx64, boot, number, log.salt,
		(unsigned)store->log_pages, number);
	if (number == 1) {
		rc = fs_write_atomic(path, slots, sizeof(slots), 0600, err);
	} else {
		fd = openat(store->root_fd, RELAXED_MARK, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || fs_pwrite_all(fd, slot, MARK_SLOT, slot - slots) < 0 ||
			fdatasync(fd) < 0)
			rc = error_errno(err, errno, "cannot write '%s'", path);
	}
	/* After a failed write the next mark goes to the same slot, so the last good mark is
	 * kept. */
	if (rc == 0)
		store->mark_slot = !store->mark_slot;
	return rc;
}

static int remove_mark(struct store *store, struct penstock_error *err)
{
	if (unlinkat(store->root_fd, RELAXED_MARK, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove '%s/" RELAXED_MARK "'", store->root);
	return sync_root_dir(store, err);
}

/* Reads a slot into the mark if the slot is valid and its number is higher than the number of the
 * mark. */
static void read_slot(const char *text, const char *boot, struct mark *mark)
{
	char copy[MARK_SLOT + 1] = "", *rest = copy;
	const char *words[5] = {NULL};
	uint64_t number;

	memcpy(copy, text, MARK_SLOT);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = strsep(&rest, " ");
	/* The mark of an older penstock has only the boot id. */
	mark->this_boot = mark->this_boot || (*boot && strcmp(boot, words[0]) == 0);
	if (!words[4] || rest || strcmp(words[1], words[4]) != 0)
		return;
	number = strtoull(words[1], NULL, 16);
	if (number <= mark->number)
		return;
	mark->number = number;
	mark->pages = strtoull(words[3], NULL, 16);
	snprintf(mark->salt, sizeof(mark->salt), "%s", words[2]);
}

static int read_mark(struct store *store, struct mark *mark, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(store->root_fd, RELAXED_MARK, O_RDONLY | O_CLOEXEC);
	char boot[PROCESS_BOOT_ID_SIZE], slots[2 * MARK_SLOT] = "";

	*mark = (struct mark){.exists = fd >= 0};
	if (fd < 0)
		return errno == ENOENT ? 0
				       : error_errno(err, errno,
						 "cannot open '%s/" RELAXED_MARK "'", store->root);
	if (fs_pread_all(fd, slots, sizeof(slots), 0) < 0)
		return error_errno(err, errno, "cannot read '%s/" RELAXED_MARK "'", store->root);
	process_boot_id(boot);
	for (size_t i = 0; i < 2; i++)
		read_slot(slots + i * MARK_SLOT, boot, mark);
	return 0;
}

/* Overwrites the boot ids, because a sync failed: Linux reports the loss of a page only once, so a
 * sync by the next process would succeed. */
static void distrust_log(struct store *store)
{
	_cleanup_close_ int fd = openat(store->root_fd, RELAXED_MARK, O_RDWR | O_CLOEXEC);
	char slots[2 * MARK_SLOT + 1] = "";
	ssize_t n = -1;

	if (fd < 0 && errno == ENOENT)
		return;
	if (fd >= 0)
		n = fs_pread_all(fd, slots, sizeof(slots) - 1, 0);
	for (size_t i = 0; i < 2; i++) {
		size_t len = strcspn(slots + i * MARK_SLOT, " ");

		if (len < MARK_SLOT)
			memset(slots + i * MARK_SLOT, '0', len);
	}
	/* A single write, so that a kill cannot leave one of the two boot ids. */
	if (n < 0 || fs_pwrite_all(fd, slots, (size_t)n, 0) < 0 || fdatasync(fd) < 0)
		log_warn("cannot write '%s/" RELAXED_MARK "': %s", store->root, strerror(errno));
}

/* Syncs the file system of the store. After a failure the next start does not trust the log. */
static int sync_all(struct store *store, struct penstock_error *err)
{
	int rc;

	if (syncfs(store->root_fd) == 0)
		return 0;
	rc = error_errno(err, errno, "cannot sync '%s'", store->root);
	distrust_log(store);
	return rc;
}

/* Cuts the log to the part that may be trusted. If SQLite has restarted the log since the mark,
 * that part is already in the database. */
static int cut_log(struct store *store, const struct mark *mark, struct penstock_error *err)
{
	struct log_header log;
	int rc;
	_cleanup_close_ int fd = open_log(store, O_RDWR, &log, &rc, err);
	off_t size = 0;
	struct stat st;

	if (fd < 0 || rc < 0)
		return rc;
	if (mark->number && log.salt[0] && strcmp(log.salt, mark->salt) == 0)
		size = LOG_HEADER + (off_t)mark->pages * (LOG_FRAME_HEADER + log.page_size);
	if (fstat(fd, &st) < 0 || (st.st_size > size && ftruncate(fd, size) < 0) || fsync(fd) < 0)
		return error_errno(err, errno, "cannot cut '%s/" LOG "'", store->root);
	return 0;
}

int relaxed_recover(struct store *store, struct penstock_error *err)
{
	struct mark mark;
	int rc = read_mark(store, &mark, err);

	if (rc < 0 || !mark.exists)
		return rc;
	if (mark.this_boot) { /* the files are as written; make them durable now */
		rc = sync_all(store, err);
		return rc < 0 ? rc : remove_mark(store, err);
	}
	log_warn("store '%s': the machine crashed, or a sync failed, while durability was relaxed; "
		 "the last changes were undone",
		store->root);
	rc = cut_log(store, &mark, err);
	if (rc == 0 && unlinkat(store->root_fd, "meta.db-shm", 0) < 0 && errno != ENOENT)
		rc = error_errno(err, errno, "cannot remove '%s/meta.db-shm'", store->root);
	return rc < 0 ? rc : remove_mark(store, err);
}

int relaxed_check(struct store *store, struct penstock_error *err)
{
	struct mark mark;
	int rc = read_mark(store, &mark, err);

	if (rc < 0 || !mark.exists || mark.this_boot)
		return rc;
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"cannot read '%s': the machine crashed, or a sync failed, while durability was "
		"relaxed; start 'penstock serve' again to undo the last changes",
		store->root);
}

/* Copies the recorded changes into the database, as far as readers allow. SQLite syncs the log
 * first, then the database. */
static int copy_log(struct store *store, struct penstock_error *err)
{
	int pages = -1;
	int rc = sqlite3_wal_checkpoint_v2(
		store->writer->handle, "main", SQLITE_CHECKPOINT_PASSIVE, &pages, NULL);

	if (pages >= 0)
		store->log_pages = pages;
	if (rc == SQLITE_OK || rc == SQLITE_BUSY)
		return 0;
	db_error(store->writer, rc, "copy the log into the database", err);
	return -PENSTOCK_E_IO;
}

/* Syncs the store, and records the length of the log; if `last`, removes the mark instead. A sync
 * that failed is not repeated: see distrust_log(). */
static int sync_and_mark(struct store *store, bool last, struct penstock_error *err)
{
	int rc;

	if (store->sync_failed)
		return error_set(err, PENSTOCK_E_IO,
			"cannot sync '%s': an earlier sync failed; restart the store", store->root);
	rc = sync_all(store, err);
	store->sync_failed = rc < 0;
	if (rc == 0)
		rc = last ? remove_mark(store, err) : write_mark(store, err);
	return rc;
}

/* `last` is true if the store is being closed. */
static int relaxed_sync_point(struct store *store, bool last, struct penstock_error *err)
{
	int rc;

	store->synced_pages = store->log_pages;
	/* The order matters. `first_unsynced` is set first, because a mark whose write fails may be
	 * valid. Everything is synced before the mark is written, because a recorded log is
	 * trusted. Only a recorded part of the log is copied into the database. */
	pthread_mutex_lock(&store->blobs_lock);
	store->first_unsynced = store->next_id;
	pthread_mutex_unlock(&store->blobs_lock);
	rc = sync_and_mark(store, last, err);
	atomic_store(&store->unsynced_since_ms, rc < 0 ? clock_monotonic_ms() : 0);
	if (rc < 0)
		return rc;
	/* A change whose commit failed is in the log after the recorded part, and may come back if
	 * the process crashes. */
	if (!atomic_load(&store->in_doubt))
		blob_unlink_kept(store);
	return copy_log(store, err);
}

bool relaxed_sync_or_warn(struct store *store, bool last)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (relaxed_sync_point(store, last, &err) == 0)
		return true;
	log_warn("store '%s': %s", store->root, err.message ? err.message : "out of memory");
	return false;
}

/* Called by SQLite after each commit. */
static int count_pages(void *arg, sqlite3 *handle, const char *name, int pages)
{
	struct store *store = arg;

	(void)handle;
	(void)name;
	if (pages < store->log_pages) /* the log was restarted */
		store->synced_pages = 0;
	store->log_pages = pages;
	relaxed_begin_wait(store, clock_monotonic_ms());
	return SQLITE_OK;
}

int relaxed_start(struct store *store, struct penstock_error *err)
{
	int rc;

	store->log_pages = -1;
	rc = copy_log(store, err); /* counts the pages of the log */
	if (rc == 0 && store->log_pages < 0)
		rc = error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot open '%s/meta.db': another process copies its log; try again",
			store->root);
	sqlite3_wal_hook(store->writer->handle, count_pages, store);
	return rc < 0 ? rc : relaxed_sync_point(store, false, err);
}

int64_t relaxed_wait_ms(const struct store *store)
{
	int64_t since = atomic_load(&store->unsynced_since_ms), left;

	if (!store->relaxed || !since)
		return -1;
	if (store->log_pages - store->synced_pages >= RELAXED_PAGES)
		return 0;
	left = since + store->relaxed_ms - clock_monotonic_ms();
	return left < 0 ? 0 : left;
}
