#include "store/internal.h"

#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process.h"

/*
 * Relaxed durability: nothing is synced when a change is made, so after a crash of the machine the
 * log may contain rows whose bodies never reached the disk. The log is therefore discarded after
 * such a crash: the database itself is written only at sync points, after all earlier changes have
 * reached the disk, and files that it names are not unlinked before the next sync point. A crash
 * leaves the store as it was at its last sync point, with each object whole.
 *
 * The file ROOT/relaxed marks a log that must not be trusted after a crash, and contains the boot
 * id of the machine: a log written since the last boot is complete, even if the process crashed.
 */
#define MARK "relaxed"

static int sync_root_dir(struct store *store, struct penstock_error *err)
{
	return fsync(store->root_fd) < 0 ? error_errno(err, errno, "cannot sync '%s'", store->root)
					 : 0;
}

int relaxed_mark(struct store *store, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(store->root, MARK);
	char boot[PROCESS_BOOT_ID_SIZE];
	int rc;

	if (!path)
		return error_memory(err);
	process_boot_id(boot);
	rc = fs_write_atomic(path, boot, strlen(boot), 0600, err);
	store->mark_missing = rc < 0;
	return rc;
}

static int remove_mark(struct store *store, struct penstock_error *err)
{
	if (unlinkat(store->root_fd, MARK, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove '%s/" MARK "'", store->root);
	return sync_root_dir(store, err);
}

static int sync_all(struct store *store, struct penstock_error *err)
{
	return syncfs(store->root_fd) < 0 ? error_errno(err, errno, "cannot sync '%s'", store->root)
					  : 0;
}

/* Checks if the mark exists, and if it was made since the machine started. */
static int read_mark(struct store *store, bool *marked, bool *this_boot, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(store->root_fd, MARK, O_RDONLY | O_CLOEXEC);
	char boot[PROCESS_BOOT_ID_SIZE], found[PROCESS_BOOT_ID_SIZE] = "";

	*marked = fd >= 0;
	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : error_errno(err, errno, "cannot open '%s/" MARK "'", store->root);
	if (fs_pread_all(fd, found, sizeof(found) - 1, 0) < 0)
		return error_errno(err, errno, "cannot read '%s/" MARK "'", store->root);
	process_boot_id(boot);
	*this_boot = boot[0] && strcmp(boot, found) == 0;
	return 0;
}

int relaxed_recover(struct store *store, struct penstock_error *err)
{
	static const char *const log[] = {"meta.db-wal", "meta.db-shm"};
	bool marked = false, this_boot = false;
	int rc = read_mark(store, &marked, &this_boot, err);

	if (rc < 0 || !marked)
		return rc;
	if (this_boot) /* the files are as written; make them durable now */
		return (rc = sync_all(store, err)) < 0 ? rc : remove_mark(store, err);
	log_warn("store %s: the machine crashed while durability was relaxed; the last changes "
		 "were undone",
		store->root);
	for (size_t i = 0; i < ARRAY_SIZE(log); i++)
		if (unlinkat(store->root_fd, log[i], 0) < 0 && errno != ENOENT)
			return error_errno(
				err, errno, "cannot remove '%s/%s'", store->root, log[i]);
	rc = sync_root_dir(store, err);
	return rc < 0 ? rc : remove_mark(store, err);
}

int relaxed_check(struct store *store, struct penstock_error *err)
{
	bool marked = false, this_boot = false;
	int rc = read_mark(store, &marked, &this_boot, err);

	if (rc < 0 || !marked || this_boot)
		return rc;
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"cannot read '%s': the machine crashed while durability was relaxed; run "
		"'penstock serve' once to undo the last changes",
		store->root);
}

/* Copies the whole log into the database. `*whole` is false if a reader prevented it. */
static int copy_log(struct store *store, bool *whole, struct penstock_error *err)
{
	int in_log = -1, copied = -1;
	int rc = sqlite3_wal_checkpoint_v2(
		store->writer->handle, "main", SQLITE_CHECKPOINT_TRUNCATE, &in_log, &copied);

	*whole = rc == SQLITE_OK && in_log == copied;
	if (rc == SQLITE_OK || rc == SQLITE_BUSY)
		return 0;
	db_error(store->writer, rc, "copy the log into the database", err);
	return -PENSTOCK_E_IO;
}

/* `last` is true if the store is being closed. */
static int relaxed_sync_point(struct store *store, bool last, struct penstock_error *err)
{
	bool whole = false;
	int rc;

	store->log_pages = 0;
	store->unsynced_since_ms = 0;
	/* In this order: the log may be trusted only while everything that it names is on the
	 * disk. */
	rc = sync_all(store, err);
	if (rc == 0)
		rc = remove_mark(store, err);
	if (rc == 0)
		rc = copy_log(store, &whole, err);
	if (!last) {
		int marked = relaxed_mark(store, rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : marked;
	}
	if (rc == 0 && whole)
		blob_unlink_kept(store);
	return rc;
}

void relaxed_sync_or_warn(struct store *store, bool last)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (relaxed_sync_point(store, last, &err) < 0)
		log_warn("store %s: %s", store->root, err.message ? err.message : "out of memory");
}

/* Called by SQLite after each commit. */
static int count_pages(void *arg, sqlite3 *handle, const char *name, int pages)
{
	struct store *store = arg;

	(void)handle;
	(void)name;
	store->log_pages = pages;
	if (!store->unsynced_since_ms)
		store->unsynced_since_ms = clock_monotonic_ms();
	return SQLITE_OK;
}

int relaxed_start(struct store *store, struct penstock_error *err)
{
	sqlite3_wal_hook(store->writer->handle, count_pages, store);
	return relaxed_sync_point(store, false, err);
}

int64_t relaxed_wait_ms(const struct store *store)
{
	int64_t left;

	if (!store->relaxed || !store->unsynced_since_ms)
		return -1;
	if (store->log_pages >= RELAXED_PAGES)
		return 0;
	left = store->unsynced_since_ms + store->relaxed_ms - clock_monotonic_ms();
	return left < 0 ? 0 : left;
}
