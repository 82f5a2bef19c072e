#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "store/upkeep/internal.h"

#define NEW_DATABASE "meta.db.new"

struct backup {
	struct store *store;
	const char *dir;
	int dir_fd, lock_fd;
	sqlite3 *database; /* the copy */
	const atomic_int *stop;
	struct upkeep_copied *copied;
};

static int failed(
	const struct backup *b, const char *verb, const char *name, struct penstock_error *err)
{
	return error_errno(err, errno, "cannot %s '%s/%s'", verb, b->dir, name);
}

/* Opens the target directory. The first backup marks the directory; a process that serves the
 * directory removes the mark. */
static int open_target(struct backup *b, struct penstock_error *err)
{
	int rc = fs_mkdirs(b->dir, 0700, err);

	if (rc < 0)
		return rc;
	b->dir_fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->dir_fd < 0)
		return error_errno(err, errno, "cannot open '%s'", b->dir);
	b->lock_fd = openat(b->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b->lock_fd < 0)
		return failed(b, "open", "lock", err);
	if (flock(b->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno != EWOULDBLOCK
			       ? failed(b, "lock", "lock", err)
			       : error_set(err, PENSTOCK_E_EXISTS,
					 "cannot write to '%s': another process serves it; "
					 "stop that process, or name another directory",
					 b->dir);
	if (faccessat(b->dir_fd, STORE_BACKUP_MARK, F_OK, 0) < 0) {
		_cleanup_close_ int mark = -1;

		if (faccessat(b->dir_fd, "meta.db", F_OK, 0) == 0)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot write to '%s': it is a store, not a backup; name another "
				"directory",
				b->dir);
		mark = openat(b->dir_fd, STORE_BACKUP_MARK, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (mark < 0)
			return failed(b, "create", STORE_BACKUP_MARK, err);
	}
	if (mkdirat(b->dir_fd, "data", 0700) < 0 && errno != EEXIST)
		return failed(b, "create", "data", err);
	return 0;
}

/* --- the database ---------------------------------------------------------------------------- */

static int copy_pages(struct backup *b, struct db *from, struct penstock_error *err)
{
	sqlite3_backup *copy = sqlite3_backup_init(b->database, "main", from->handle, "main");
	int rc = SQLITE_ERROR;

	if (copy) {
		rc = sqlite3_backup_step(copy, -1);
		sqlite3_backup_finish(copy);
	}
	return rc == SQLITE_DONE
		       ? 0
		       : error_set(err, PENSTOCK_E_IO, "cannot copy the database to '%s': %s",
				 b->dir, sqlite3_errstr(rc));
}

static int copy_database(struct backup *b, struct penstock_error *err)
{
	_cleanup_reader_ struct db *from = db_reader(b->store, err);
	_cleanup_free_ char *path = path_join(b->dir, NEW_DATABASE);
	int fd;

	if (!from)
		return -(int)err->code;
	if (!path)
		return error_memory(err);
	fd = openat(b->dir_fd, NEW_DATABASE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(b, "create", NEW_DATABASE, err);
	close(fd);
	if (sqlite3_open_v2(path, &b->database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
		return error_set(err, PENSTOCK_E_IO, "cannot open '%s': %s", path,
			b->database ? sqlite3_errmsg(b->database) : "out of memory");
	return copy_pages(b, from, err);
}

/* --- data files ------------------------------------------------------------------------------ */

/* Returns true if the backup has the file. Files never change, so equal times and sizes mean equal
 * bytes. */
static bool has_file(const struct backup *b, const char *path, const struct stat *from)
{
	struct stat to;

	return fstatat(b->dir_fd, path, &to, 0) == 0 && to.st_size == from->st_size &&
	       to.st_mtim.tv_sec == from->st_mtim.tv_sec &&
	       to.st_mtim.tv_nsec == from->st_mtim.tv_nsec;
}

static int copy_bytes(int from, int to, off_t size)
{
	off_t at = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	while (at < size) {
		ssize_t n = fs_copy_range(from, to, at, (size_t)(size - at));

		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return -1;
		at += n;
	}
	return 0;
}

/* Copies a file under a temporary name, so that no data file of an interrupted backup is
 * incomplete. */
static int copy_file(struct backup *b, uint64_t id, struct penstock_error *err)
{
	_cleanup_close_ int from = -1, to = -1;
	char path[BLOB_PATH_SIZE];
	char dir[sizeof("data/xx")];
	struct timespec times[2];
	uint8_t seal[SEAL_SIZE];
	struct stat st;

	blob_path(id, path);
	from = blob_open(b->store, id, err);
	if (from < 0)
		return from;
	if (fstat(from, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if (has_file(b, path, &st))
		return 0;
	snprintf(dir, sizeof(dir), "%.7s", path);
	if (mkdirat(b->dir_fd, dir, 0700) < 0 && errno != EEXIST)
		return failed(b, "create", dir, err);
	to = openat(b->dir_fd, "data/new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (to >= 0 && blob_noted_seal(from, seal))
		blob_note_seal(to, seal);
	times[0] = times[1] = st.st_mtim;
	if (to < 0 || copy_bytes(from, to, st.st_size) < 0 || futimens(to, times) < 0 ||
		renameat(b->dir_fd, "data/new", b->dir_fd, path) < 0)
		return failed(b, "write", path, err);
	b->copied->new_files++;
	b->copied->bytes += (uint64_t)st.st_size;
	return 0;
}

/* Copies the files that the copied database names; store_hold() prevents their removal. */
static int copy_files(struct backup *b, struct penstock_error *err)
{
	sqlite3_stmt *st = NULL;
	int rc = 0, step = SQLITE_ROW;

	if (sqlite3_prepare_v2(b->database, "SELECT id FROM blobs ORDER BY id", -1, &st, NULL) !=
		SQLITE_OK)
		return error_set(err, PENSTOCK_E_IO, "cannot read '%s/" NEW_DATABASE "': %s",
			b->dir, sqlite3_errmsg(b->database));
	while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
		rc = upkeep_cancelled(b->stop, err);
		if (rc == 0)
			rc = copy_file(b, (uint64_t)sqlite3_column_int64(st, 0), err);
		b->copied->files++;
	}
	sqlite3_finalize(st);
	return rc == 0 && step != SQLITE_DONE
		       ? error_set(err, PENSTOCK_E_IO, "cannot read '%s/" NEW_DATABASE "'", b->dir)
		       : rc;
}

/* --- everything else ------------------------------------------------------------------------- */

static int copy_file_to(const char *from, const char *to, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (fs_read(from, &text, err) < 0)
		return -(int)err->code;
	return fs_write_atomic(to, buf_str(&text), text.len, 0600, err);
}

/* Calls `copy` for a file of the root that belongs to the state of a store; most stores lack some
 * of these files. */
static int with_extra(struct backup *b, const char *name,
	int (*copy)(const char *from, const char *to, struct penstock_error *err),
	struct penstock_error *err)
{
	_cleanup_free_ char *from = path_join(b->store->root, name), *to = path_join(b->dir, name);

	if (!from || !to)
		return error_memory(err);
	if (faccessat(b->store->root_fd, name, F_OK, 0) < 0 && errno == ENOENT)
		return 0;
	return copy(from, to, err);
}

/* Makes all files durable before the new database replaces the old database. Until then the backup
 * also has the old master keys, which the old database needs after an interruption. */
static int publish(struct backup *b, struct penstock_error *err)
{
	if (with_extra(b, "master-key", keys_prepend, err) < 0 ||
		with_extra(b, "credentials", copy_file_to, err) < 0 ||
		with_extra(b, "webhooks", copy_file_to, err) < 0)
		return -(int)err->code;
	sqlite3_close(b->database);
	b->database = NULL;
	if (syncfs(b->dir_fd) < 0)
		return error_errno(err, errno, "cannot sync '%s'", b->dir);
	/* Both files are empty or left by a reader. */
	unlinkat(b->dir_fd, "meta.db-wal", 0);
	unlinkat(b->dir_fd, "meta.db-shm", 0);
	if (renameat(b->dir_fd, NEW_DATABASE, b->dir_fd, "meta.db") < 0)
		return failed(b, "rename", NEW_DATABASE, err);
	if (fsync(b->dir_fd) < 0)
		return error_errno(err, errno, "cannot sync '%s'", b->dir);
	return with_extra(b, "master-key", copy_file_to, err);
}

static void remove_old(struct backup *b, struct db *db)
{
	for (unsigned i = 0; i < 256; i++) {
		_cleanup_closedir_ DIR *dir = NULL;
		char path[sizeof("data/xx/.")];
		struct dirent *entry;

		snprintf(path, sizeof(path), "data/%02x/.", i);
		dir = fs_list_at(b->dir_fd, path);
		while (dir && (entry = fs_next_entry(dir))) {
			_cleanup_reset_ sqlite3_stmt *st = NULL;
			uint64_t id;

			if (!blob_parse(entry->d_name, i, &id))
				continue; /* a file of another program */
			st = db_bound(db, SQL_BLOB_HAS, "i", (int64_t)id);
			if (db_step(db, st) == SQLITE_DONE &&
				unlinkat(dirfd(dir), entry->d_name, 0) < 0)
				log_debug("cannot remove '%s': %s", entry->d_name, strerror(errno));
		}
	}
}

/* Counts the objects of the backup, and removes the files of the earlier backup that the new backup
 * does not name. */
static int finish(struct backup *b, struct penstock_error *err)
{
	struct store *copy;
	struct upkeep_stat stat = {0};
	int rc = store_open(&copy, &(struct store_options){.root = b->dir, .guest = true}, err);

	if (rc < 0)
		return rc;
	rc = upkeep_stat(copy, &stat, err);
	b->copied->buckets = stat.n_buckets;
	b->copied->objects = stat.total.objects + stat.total.versions;
	free(stat.buckets);
	free(stat.lags);
	if (rc == 0) {
		_cleanup_reader_ struct db *db = db_reader(copy, err);

		if (db)
			remove_old(b, db);
		rc = db ? 0 : -PENSTOCK_E_IO;
	}
	store_close(copy);
	/* SQLite leaves these files, because a reader cannot copy the log into the database. */
	unlinkat(b->dir_fd, "meta.db-wal", 0);
	unlinkat(b->dir_fd, "meta.db-shm", 0);
	return rc;
}

int upkeep_backup(struct store *store, const char *dir, const atomic_int *stop,
	struct upkeep_copied *copied, struct penstock_error *err)
{
	struct backup b = {.store = store,
		.dir = dir,
		.dir_fd = -1,
		.lock_fd = -1,
		.stop = stop,
		.copied = copied};
	int rc;

	*copied = (struct upkeep_copied){0};
	rc = open_target(&b, err);
	/* Hold the files before the database is copied, so that the files that the copy names exist
	 * until `store` is closed. */
	if (rc == 0)
		rc = store_hold(store, err);
	if (rc == 0)
		rc = copy_database(&b, err);
	if (rc == 0)
		rc = copy_files(&b, err);
	if (rc == 0)
		rc = publish(&b, err);
	if (rc == 0)
		rc = finish(&b, err);
	sqlite3_close(b.database);
	if (b.dir_fd >= 0)
		close(b.dir_fd);
	if (b.lock_fd >= 0)
		close(b.lock_fd);
	return rc;
}
