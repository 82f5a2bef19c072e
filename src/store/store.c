#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/thread.h"
#include "store/internal.h"

#define LOCK_ATTEMPTS 100
#define LOCK_PAUSE_MS 10

static int open_root(struct store *store, struct penstock_error *err)
{
	store->root_fd = open(store->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->root_fd < 0)
		return error_errno(err, errno, "cannot open '%s'", store->root);
	/* A guest (a process that only reads the store) may find the store on a read-only file
	 * system. */
	store->hold_fd = openat(store->root_fd, "hold",
		(store->guest ? O_RDONLY : O_RDWR) | O_CREAT | O_CLOEXEC, 0600);
	return store->hold_fd < 0 ? error_errno(err, errno, "cannot open '%s/hold'", store->root)
				  : 0;
}

/* Locks the root for an owner. A guest that checks if the store has an owner holds a shared lock
 * for a moment, so the lock is tried again, but only LOCK_ATTEMPTS times: a guest that a signal has
 * stopped may hold the lock for longer. Fails at once if another owner has its exclusive lock. */
static int lock_root(int fd)
{
	for (unsigned attempts = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; attempts++) {
		if (errno != EWOULDBLOCK || attempts == LOCK_ATTEMPTS ||
			flock(fd, LOCK_SH | LOCK_NB) < 0)
			return -1;
		flock(fd, LOCK_UN);
		clock_sleep_ms(LOCK_PAUSE_MS);
	}
	return 0;
}

static int prepare_root(struct store *store, struct penstock_error *err)
{
	_cleanup_free_ char *data = path_join(store->root, "data");
	int rc;

	if (!data)
		return error_memory(err);
	rc = fs_mkdirs(store->root, 0700, err);
	if (rc == 0)
		rc = open_root(store, err);
	if (rc < 0)
		return rc;
	store->lock_fd = openat(store->root_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->lock_fd < 0)
		return error_errno(err, errno, "cannot open '%s/lock'", store->root);
	if (lock_root(store->lock_fd) < 0)
		return errno != EWOULDBLOCK
			       ? error_errno(err, errno, "cannot lock '%s/lock'", store->root)
			       : error_set(err, PENSTOCK_E_EXISTS,
					 "cannot open the store at '%s': another process uses it; "
					 "use that server, or another --root",
					 store->root);
	return fs_mkdirs(data, 0700, err);
}

/*
 * Syncs the root and its parents: the names of the database, of the data directory, of the root,
 * and of the directories created above the root must be durable, too. Any parent may have been
 * created, so all parents are synced, except directories without write permission, which existed
 * before.
 */
static int sync_root(struct store *store, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	int rc;

	if (store->relaxed)
		return 0;
	path = realpath(store->root, NULL);
	if (!path)
		return error_errno(err, errno, "cannot resolve '%s'", store->root);
	rc = fs_fsync_dir(path, err);
	for (char *slash; rc == 0 && path[1] && (slash = strrchr(path, '/')) != NULL;) {
		slash[slash == path] = '\0';
		if (access(path, W_OK) == 0)
			rc = fs_fsync_dir(path, err);
	}
	return rc;
}

static int meta_get(
	struct store *store, const char *name, int64_t *value, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_META_GET, "t", name);
	int rc = db_step(store->writer, st);

	if (rc == SQLITE_ROW)
		*value = sqlite3_column_int64(st, 0);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return 0;
	db_error(store->writer, rc, "read the store's state", err);
	return -PENSTOCK_E_IO;
}

static int meta_set(
	struct store *store, const char *name, int64_t value, struct penstock_error *err)
{
	int rc = db_exec(store->writer, SQL_META_SET, "ti", name, value);

	if (rc == 0)
		return 0;
	db_error(store->writer, rc, "write the store's state", err);
	return rc == SQLITE_FULL ? -PENSTOCK_E_NO_SPACE : -PENSTOCK_E_IO;
}

static int find_next_id(struct store *store, struct penstock_error *err)
{
	int rc;

	{
		_cleanup_reset_ sqlite3_stmt *st = db_statement(store->writer, SQL_NEXT_ID);

		rc = db_step(store->writer, st);
		if (rc == SQLITE_ROW)
			store->next_id = (uint64_t)sqlite3_column_int64(st, 0);
	}
	if (rc == SQLITE_ROW)
		rc = db_reserve_id(store, store->next_id);
	if (rc == 0)
		return 0;
	db_error(store->writer, rc, "read the store's state", err);
	return rc == SQLITE_FULL ? -PENSTOCK_E_NO_SPACE : -PENSTOCK_E_IO;
}

static int find_default_encryption(struct store *store, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_CONFIG_ANY, "t", STORE_ENCRYPTION_CONFIG);
	int rc = db_step(store->writer, st);

	atomic_store(&store->encrypts, rc == SQLITE_ROW);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return 0;
	db_error(store->writer, rc, "read the store's state", err);
	return -PENSTOCK_E_IO;
}

/* Starts the sweep, unless the store was closed cleanly and so has no files to sweep. */
static int start_sweep(struct store *store, struct penstock_error *err)
{
	int64_t clean = 0;
	int rc = meta_get(store, "clean", &clean, err);

	if (rc == 0)
		rc = meta_set(store, "clean", 0, err);
	if (rc < 0 || clean)
		return rc;
	/* Removals by the process that died may not be durable yet, so all directories have to be
	 * synced. */
	memset(store->dirs_cut, 0xff, sizeof(store->dirs_cut));
	rc = thread_start(&store->sweeper, "sweep", blob_sweep, store, err);
	store->sweeping = rc == 0;
	return rc;
}

static void store_dispose(struct store *store)
{
	struct db *db;

	while ((db = store->readers) != NULL) {
		store->readers = db->next;
		db_close(db);
	}
	cache_free(store->cache);
	quota_release(&store->snapshots);
	keys_free(store->keys);
	db_close(store->writer);
	if (store->root_fd >= 0)
		close(store->root_fd);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
	if (store->hold_fd >= 0)
		close(store->hold_fd);
	pthread_mutex_destroy(&store->queue_lock);
	pthread_cond_destroy(&store->queue_filled);
	pthread_mutex_destroy(&store->readers_lock);
	pthread_mutex_destroy(&store->blobs_lock);
	pthread_mutex_destroy(&store->unlink_lock);
	pthread_mutex_destroy(&store->dirs_lock);
	while (store->held.n_free)
		free(store->held.free[--store->held.n_free]);
	pthread_mutex_destroy(&store->held.lock);
	pthread_rwlock_destroy(&store->pinning);
	event_queues_free(store);
	pthread_cond_destroy(&store->gone_added);
	free(store->kept.ids);
	free(store->gone.ids);
	free(store->root);
	free(store);
}

static void init_locks(struct store *store)
{
	pthread_rwlockattr_t attr;

	pthread_mutex_init(&store->queue_lock, NULL);
	clock_cond_init(&store->queue_filled);
	pthread_mutex_init(&store->readers_lock, NULL);
	pthread_mutex_init(&store->blobs_lock, NULL);
	pthread_cond_init(&store->gone_added, NULL);
	pthread_mutex_init(&store->unlink_lock, NULL);
	pthread_mutex_init(&store->dirs_lock, NULL);
	quota_init(&store->snapshots, LIMIT_STORE_SNAPSHOTS);
	pthread_mutex_init(&store->held.lock, NULL);
	/* The committer must get the lock even if readers keep coming. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&store->pinning, &attr);
	pthread_rwlockattr_destroy(&attr);
}

/* Opens the store for a guest; db_reader() checks the format. */
static int open_guest(
	struct store *store, const struct store_options *options, struct penstock_error *err)
{
	int rc = open_root(store, err);

	if (rc == 0 && faccessat(store->root_fd, "meta.db", R_OK, 0) < 0)
		rc = error_errno(err, errno, "cannot open '%s/meta.db'", store->root);
	if (rc == 0)
		rc = relaxed_check(store, err);
	if (rc == 0) {
		_cleanup_reader_ struct db *db = db_reader(store, err);

		rc = db ? keys_open_guest(store, db, options->master_key, err) : -(int)err->code;
	}
	return rc;
}

/* Removes the mark of a backup. With the changes of an owner the directory is no longer the backup
 * of another store, so no later backup may overwrite it. */
static int remove_backup_mark(struct store *store, struct penstock_error *err)
{
	if (unlinkat(store->root_fd, STORE_BACKUP_MARK, 0) < 0 && errno != ENOENT)
		return error_errno(
			err, errno, "cannot remove '%s/" STORE_BACKUP_MARK "'", store->root);
	return 0;
}

static int open_owner(
	struct store *store, const struct store_options *options, struct penstock_error *err)
{
	int rc;

	if ((rc = cache_new(&store->cache, err)) < 0 || (rc = prepare_root(store, err)) < 0 ||
		(rc = relaxed_recover(store, err)) < 0 ||
		(rc = remove_backup_mark(store, err)) < 0 ||
		(rc = db_open(store, true, &store->writer, err)) < 0 ||
		(rc = keys_open(store, options->master_key, err)) < 0 ||
		(rc = find_default_encryption(store, err)) < 0 ||
		(rc = find_next_id(store, err)) < 0 || (rc = sync_root(store, err)) < 0 ||
		(rc = blob_unlinker_start(store, err)) < 0 ||
		(!options->keep_orphans && (rc = start_sweep(store, err)) < 0) ||
		(store->relaxed && (rc = relaxed_start(store, err)) < 0))
		return rc;
	return committer_start(store, err);
}

int store_open(struct store **out, const struct store_options *options, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error ignored = PENSTOCK_ERROR_INIT;
	struct store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return error_memory(err);
	if (!err)
		err = &ignored;
	store->root_fd = store->lock_fd = store->hold_fd = -1;
	init_locks(store);
	store->guest = options->guest;
	store->relaxed = options->relaxed;
	store->no_mapping = options->no_mapping;
	store->relaxed_ms = options->relaxed_ms ? options->relaxed_ms : STORE_RELAXED_MS;
	store->root = strdup(options->root);
	rc = store->root ? 0 : error_memory(err);
	if (rc == 0)
		rc = store->guest ? open_guest(store, options, err)
				  : open_owner(store, options, err);
	if (rc < 0)
		goto failed;
	*out = store;
	return 0;
failed:
	if (store->sweeping) {
		atomic_store(&store->stop_sweep, true);
		pthread_join(store->sweeper, NULL);
	}
	if (store->unlinker_runs)
		blob_unlinker_stop(store);
	store_dispose(store);
	return rc;
}

bool store_is_relaxed(const struct store *store)
{
	return store->relaxed;
}

/* Makes the removal of files durable: a crash of the machine must not undo a removal, because there
 * is no sweep after a clean close. Returns false on failure. */
static bool sync_removals(struct store *store)
{
	bool good = true;

	for (unsigned i = 0; good && i < 256; i++) {
		_cleanup_close_ int fd = -1;
		char path[sizeof("data/xx")];

		if (!(store->dirs_cut[i / 8] & (1u << (i % 8))))
			continue;
		snprintf(path, sizeof(path), "data/%02x", i);
		fd = openat(store->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		good = fd < 0 ? errno == ENOENT : fsync(fd) == 0;
	}
	return good;
}

void store_close(struct store *store)
{
	bool swept = true, synced;

	if (!store)
		return;
	if (store->guest) {
		store_dispose(store);
		return;
	}
	if (store->sweeping) {
		/* A sweep that was cut short must be repeated. */
		atomic_store(&store->stop_sweep, true);
		pthread_join(store->sweeper, NULL);
		swept = !store->sweep_cut;
	}
	committer_stop(store);
	cache_free(store->cache); /* unlinks deleted files that only the cache has pinned */
	store->cache = NULL;
	synced = !store->relaxed || relaxed_sync_or_warn(store, true);
	blob_hold_over(store);
	blob_unlinker_stop(store);
	if (!synced) /* the database must not get changes of the log that are not recorded */
		sqlite3_db_config(store->writer->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	else if (swept && !atomic_load(&store->in_doubt) && !store->kept.n && !store->forgot &&
		 sync_removals(store))
		meta_set(store, "clean", 1, NULL);
	store_dispose(store);
}

int store_hold(struct store *store, struct penstock_error *err)
{
	int rc;

	do
		rc = flock(store->hold_fd, LOCK_SH);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? error_errno(err, errno, "cannot lock '%s/hold'", store->root) : 0;
}

int store_lock_fd(const struct store *store)
{
	return store->lock_fd;
}

int store_free_bytes(struct store *store, uint64_t *bytes, struct penstock_error *err)
{
	return fs_free_bytes(store->root, bytes, err);
}
