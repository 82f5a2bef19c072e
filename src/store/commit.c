#include "store/internal.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/must.h"
#include "base/thread.h"

/* A change of many items continues in another transaction after this many rows. */
#define TXN_ROWS 5000

int64_t time_after(int64_t last_ns)
{
	int64_t now_ns = clock_wall_ns();

	return now_ns > last_ns ? now_ns : last_ns + 1;
}

/* --- helpers of apply functions ------------------------------------------------------------- */

int txn_touch(struct store *store, const char *bucket, const char *key)
{
	size_t bucket_len = strlen(bucket) + 1, key_len = strlen(key) + 1;
	struct touched *list = array_grow(store->touched, store->n_touched, sizeof(*list));
	char *names = list ? malloc(bucket_len + key_len) : NULL;

	if (list)
		store->touched = list;
	if (!names)
		return SQLITE_NOMEM;
	memcpy(names, bucket, bucket_len);
	memcpy(names + bucket_len, key, key_len);
	store->touched[store->n_touched++] = (struct touched){
		.bucket = names, .key = names + bucket_len};
	cache_touch(store->cache, bucket, key);
	return 0;
}

void txn_take_room(struct store *store, uint64_t bytes)
{
	store->room -= store->room < bytes ? store->room : bytes;
}

void txn_touch_all(struct store *store, const char *bucket)
{
	cache_touch_all(store->cache, bucket);
	store->touched_all++;
}

/* Returns a count of changed rows that only grows; callers subtract an earlier count. */
static unsigned changed_rows(const struct store *store)
{
	/* The removal of many pieces in few files changes few rows, but takes time, too. */
	return (unsigned)sqlite3_total_changes(store->writer->handle) + store->n_unreferenced;
}

bool txn_has_room(const struct store *store, const struct txn *txn)
{
	return changed_rows(store) - txn->rows_before < TXN_ROWS;
}

static int by_blob(const void *a, const void *b)
{
	uint64_t x = ((const struct store_piece *)a)->blob;
	uint64_t y = ((const struct store_piece *)b)->blob;

	return (x > y) - (x < y);
}

/* Returns the number of leading pieces that are in the same file as the first piece. */
static size_t count_same(const struct store_piece *pieces, size_t n)
{
	size_t same = 1;

	while (same < n && pieces[same].blob == pieces->blob)
		same++;
	return same;
}

/* Changes the row of each file only once: an object may have thousands of pieces in a few files. */
int txn_ref_pieces(struct store *store, struct txn *txn, const struct store_piece *pieces, size_t n)
{
	_cleanup_free_ struct store_piece *sorted = calloc(n + 1, sizeof(*sorted));

	if (!sorted)
		return SQLITE_NOMEM;
	if (n)
		memcpy(sorted, pieces, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_blob);
	for (size_t i = 0; i < n; i += count_same(&sorted[i], n - i)) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			store->writer, SQL_BLOB_HAS, "i", (int64_t)sorted[i].blob);
		int rc = db_step(store->writer, st);

		if (rc == SQLITE_DONE) {
			txn->status = STORE_CHANGED;
			return 0;
		}
		if (rc != SQLITE_ROW)
			return rc;
	}
	for (size_t i = 0, same; i < n; i += same) {
		int rc;

		same = count_same(&sorted[i], n - i);
		rc = db_exec(
			store->writer, SQL_BLOB_REF, "ii", (int64_t)sorted[i].blob, (int64_t)same);
		if (rc)
			return rc;
	}
	return 0;
}

/* Removes `n` references. */
static int unref_blob(struct store *store, uint64_t id, size_t n)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_BLOB_UNREF, "ii", (int64_t)id, (int64_t)n);
	int64_t refs = -1;
	uint64_t *dead;
	int rc;

	while ((rc = db_step(store->writer, st)) == SQLITE_ROW)
		refs = sqlite3_column_int64(st, 0);
	if (rc != SQLITE_DONE || refs != 0)
		return rc == SQLITE_DONE ? 0 : rc;
	rc = db_exec(store->writer, SQL_BLOB_DELETE, "i", (int64_t)id);
	if (rc)
		return rc;
	dead = array_grow(store->dead, store->n_dead, sizeof(*dead));
	if (!dead)
		return SQLITE_NOMEM;
	store->dead = dead;
	store->dead[store->n_dead++] = id;
	return 0;
}

int txn_unref_layout(struct store *store, const void *layout, size_t len)
{
	_cleanup_free_ struct store_piece *pieces = NULL;
	size_t n_parts = 0, n = 0;

	if (layout_decode(layout, len, NULL, &n_parts, NULL, &n) < 0)
		return SQLITE_CORRUPT;
	if (n == 0)
		return 0;
	store->n_unreferenced += (unsigned)n;
	pieces = calloc(n, sizeof(*pieces));
	if (!pieces)
		return SQLITE_NOMEM;
	layout_decode(layout, len, NULL, &n_parts, pieces, &n);
	qsort(pieces, n, sizeof(*pieces), by_blob);
	for (size_t i = 0, same; i < n; i += same) {
		int rc;

		same = count_same(&pieces[i], n - i);
		rc = unref_blob(store, pieces[i].blob, same);
		if (rc)
			return rc;
	}
	return 0;
}

int txn_drop_bytes(struct store *store, const struct old_object *old)
{
	int rc = old->body ? db_exec(store->writer, SQL_BODY_DELETE, "i", old->body) : 0;

	return rc || !old->layout.len ? rc
				      : txn_unref_layout(store, old->layout.data, old->layout.len);
}

int64_t txn_bucket(struct store *store, struct txn *txn, const char *name, int64_t id)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(store->writer, SQL_BUCKET_ID, "t", name);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return -(rc & 0xff);
	if (rc == SQLITE_DONE || (id && id != sqlite3_column_int64(st, 0))) {
		txn->status = STORE_NO_SUCH_BUCKET;
		return 0;
	}
	txn->versioning = (enum store_versioning)sqlite3_column_int(st, 1);
	return sqlite3_column_int64(st, 0);
}

int txn_delete_upload(
	struct store *store, int64_t bucket, const char *key, size_t key_len, const char *id)
{
	int rc = db_exec(store->writer, SQL_PART_DELETE_ALL, "t", id);

	return rc ? rc : db_exec(store->writer, SQL_UPLOAD_DELETE, "ibt", bucket, key, key_len, id);
}

int txn_drop_upload(
	struct store *store, int64_t bucket, const char *key, size_t key_len, const char *id)
{
	/* The caller's strings may be columns of a row that is being deleted. */
	_cleanup_free_ char *key_copy = strndup(key, key_len);
	_cleanup_free_ char *id_copy = strdup(id);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	if (!key_copy || !id_copy)
		return SQLITE_NOMEM;
	st = db_bound(store->writer, SQL_PART_ALL, "t", id_copy);
	while ((rc = db_step(store->writer, st)) == SQLITE_ROW) {
		rc = txn_unref_layout(
			store, sqlite3_column_blob(st, 4), (size_t)sqlite3_column_bytes(st, 4));
		if (rc)
			return rc;
	}
	return rc == SQLITE_DONE ? txn_delete_upload(store, bucket, key_copy, key_len, id_copy)
				 : rc;
}

/* --- observers ------------------------------------------------------------------------------ */

void store_observe(struct store *store, const struct store_observer *observer)
{
	MUST(store->n_observers < STORE_OBSERVERS);
	store->observers[store->n_observers++] = *observer;
}

int event_notify(struct store *store, const struct store_change *change)
{
	int rc = 0;

	for (size_t i = 0; change->origin && rc == 0 && i < store->n_observers; i++)
		if (store->observers[i].change)
			rc = store->observers[i].change(store->observers[i].cookie, store, change);
	return rc;
}

int event_notify_version(struct store *store, const struct store_new_version *version)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < store->n_observers; i++)
		if (store->observers[i].version)
			rc = store->observers[i].version(
				store->observers[i].cookie, store, version);
	return rc;
}

int event_notify_removed(struct store *store, const char *bucket, const struct store_delete *item,
	int64_t deleted_ns)
{
	char event[STORE_EVENT_SIZE];
	int64_t made_ns = version_modified(item->made);

	if (!item->origin)
		return 0;
	snprintf(event, sizeof(event), "%s:%s", item->origin->event,
		*item->made ? "DeleteMarkerCreated" : "Delete");
	return event_notify(store,
		&(struct store_change){.bucket = bucket,
			.key = item->key,
			.event = event,
			.version = *item->made	   ? item->made
				   : item->version ? item->version
						   : "",
			.modified_ns = time_after(made_ns > deleted_ns ? made_ns : deleted_ns),
			.origin = item->origin});
}

/* --- counts of events ------------------------------------------------------------------------ */

struct event_queue *event_queue_find(const struct store *store, const char *target)
{
	struct event_queue *queue = atomic_load(&store->queues);

	while (queue && strcmp(queue->target, target) != 0)
		queue = queue->next;
	return queue;
}

void event_queues_free(struct store *store)
{
	struct event_queue *queue = atomic_load(&store->queues), *next;

	for (; queue; queue = next) {
		next = queue->next;
		free(queue->target);
		free(queue);
	}
}

/* Counts the events of a batch, and notifies the observers if there are new events. */
static void event_queues_settle(struct store *store, bool committed)
{
	bool added = false;

	for (struct event_queue *q = atomic_load(&store->queues); q; q = q->next) {
		if (committed) {
			added = added || q->added;
			atomic_fetch_add(&q->n, (size_t)q->changed);
			atomic_fetch_add(&q->bytes, (uint64_t)q->changed_bytes);
			atomic_fetch_add(&q->dropped, q->changed_dropped);
		}
		q->changed = q->changed_bytes = 0;
		q->changed_dropped = 0;
		q->added = false;
	}
	for (size_t i = 0; added && i < store->n_observers; i++)
		store->observers[i].added(store->observers[i].cookie);
}

/* --- batches ------------------------------------------------------------------------------- */

/* Allows the changed keys in the cache again, and unlinks blobs without references. */
static void batch_settle(struct store *store, bool committed)
{
	for (size_t i = 0; i < store->n_touched; i++) {
		cache_settle(store->cache, store->touched[i].bucket, store->touched[i].key);
		free(store->touched[i].bucket);
	}
	store->n_touched = 0;
	for (; store->touched_all; store->touched_all--)
		cache_settle_all(store->cache);
	if (committed && store->configs_changed)
		atomic_fetch_add(&store->config_generation, 1);
	store->configs_changed = false;
	if (!committed)
		store->reserved_ids = 0;
	event_queues_settle(store, committed);
	if (committed && store->n_dead) {
		/* Waits until all readers that read a row before the commit have pinned the blobs
		 * of that row. */
		pthread_rwlock_wrlock(&store->pinning);
		pthread_rwlock_unlock(&store->pinning);
		for (size_t i = 0; i < store->n_dead; i++)
			blob_doom(store, store->dead[i]);
	}
	store->n_dead = 0;
	blob_hold_over(store);
}

/* Commits the transaction. If the write or the sync of the log fails, the log may contain the
 * changes of the transaction, and a start after a crash may replay them, until the next change
 * overwrites them. */
static int batch_commit(struct store *store, int changes_before)
{
	bool writes = sqlite3_total_changes(store->writer->handle) != changes_before;
	int rc = db_run(db_statement(store->writer, SQL_COMMIT));

	if ((rc & 0xff) == SQLITE_IOERR)
		atomic_store(&store->in_doubt, true);
	else if (!rc && writes && atomic_load(&store->in_doubt))
		blob_doubt_over(store);
	return rc;
}

/* Free bytes of a disk above which the room is not computed. */
#define PLENTY (128 * MIB)
/* Size at which the log is copied into the database and restarted, with full durability. */
#define LOG_BYTES (CHECKPOINT_PAGES * (STORE_PAGE + 24))

static uint64_t file_bytes(const struct store *store, const char *name)
{
	struct stat st;

	return fstatat(store->root_fd, name, &st, 0) == 0 ? (uint64_t)st.st_size : 0;
}

/*
 * Returns the bytes that changes may take without the reserve for deletions. A deletion appends to
 * the log, and the database grows when the log is copied into it. So the reserve must allow the log
 * to grow to LOG_BYTES, and the database to grow by the pages that only the log has.
 */
static uint64_t room_of(struct store *store)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	uint64_t bytes, log, file, database, reserve;

	if (fs_free_bytes(store->root, &bytes, NULL) < 0)
		return UINT64_MAX;
	if (bytes > PLENTY)
		return bytes;
	log = file_bytes(store, "meta.db-wal");
	file = file_bytes(store, "meta.db");
	reserve = LIMIT_STORE_RESERVE - (log < LOG_BYTES ? log : LOG_BYTES);
	st = db_statement(store->writer, SQL_PAGES);
	if (db_step(store->writer, st) != SQLITE_ROW)
		return bytes;
	database = (uint64_t)sqlite3_column_int64(st, 0) * STORE_PAGE;
	bytes += (uint64_t)sqlite3_column_int64(st, 1) * STORE_PAGE;
	reserve += database > file ? database - file : 0;
	return bytes > reserve ? bytes - reserve : 0;
}

/* With relaxed durability makes a sync point if one is pending, which copies the log into the
 * database. Then unlinks the pending files. */
static void relieve_disk(struct store *store)
{
	if (store->relaxed && atomic_load(&store->unsynced_since_ms))
		relaxed_sync_or_warn(store, false);
	store_reclaim(store);
}

/* Sets store->room for the next batch. Frees room on the disk first if a change of the list needs
 * room and the disk has none. */
static void find_room(struct store *store, const struct txn *list)
{
	store->room = room_of(store);
	while (list && list->frees)
		list = list->next;
	if (!list || store->room)
		return;
	relieve_disk(store);
	store->room = room_of(store);
}

/* Applies a change. Refuses a change other than a deletion if the disk has no room. Counts a page
 * for each changed row; write_row() counts the bytes of bodies and headers. */
static int apply_with_room(struct store *store, struct txn *txn)
{
	uint64_t pages;
	int rc;

	if (!store->room && !txn->frees) {
		txn->status = STORE_NO_SPACE;
		error_set(&txn->err, PENSTOCK_E_NO_SPACE,
			"cannot change '%s': the rest of the disk is reserved for deletions",
			store->root);
		return 0;
	}
	rc = txn->apply(store, txn);
	pages = changed_rows(store) - txn->rows_before;
	txn_take_room(store, pages * STORE_PAGE);
	return rc;
}

/* Applies the list in one transaction. On failure no change of the list is applied, and `err` has
 * the reason. After a failed sync no change is applied, because the next start undoes later
 * changes. */
static enum store_status batch_try(
	struct store *store, struct txn *list, struct penstock_error *err)
{
	enum store_status status = STORE_OK;
	int before = sqlite3_total_changes(store->writer->handle);
	uint64_t room = store->room;
	int rc;

	if (store->sync_failed) {
		error_set(err, PENSTOCK_E_IO,
			"cannot change '%s': a sync failed; restart the store", store->root);
		return STORE_FAILED;
	}
	rc = db_run(db_statement(store->writer, SQL_BEGIN));
	for (struct txn *t = list; t && !rc; t = t->next) {
		t->status = STORE_OK;
		t->more = false;
		t->next_item = t->first_item;
		t->rows_before = changed_rows(store);
		rc = apply_with_room(store, t);
	}
	if (!rc)
		rc = batch_commit(store, before);
	if (rc) {
		status = db_error(store->writer, rc, "commit a change", err);
		store->room = room;
		if (!sqlite3_get_autocommit(store->writer->handle))
			db_run(db_statement(store->writer, SQL_ROLLBACK));
	}
	batch_settle(store, status == STORE_OK);
	return status;
}

static void batch_run(struct store *store, struct txn *list)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	find_room(store, list);
	status = batch_try(store, list, &err);
	if (status == STORE_NO_SPACE) {
		penstock_error_release(&err);
		relieve_disk(store);
		store->room = room_of(store);
		status = batch_try(store, list, &err);
	}
	if (status == STORE_OK)
		return;
	if (!list->next) {
		list->status = status;
		error_move(&list->err, &err);
		return;
	}
	penstock_error_release(&err);
	for (struct txn *t = list; t; t = t->next) {
		struct txn *next = t->next;

		t->next = NULL;
		status = batch_try(store, t, &t->err);
		if (status != STORE_OK)
			t->status = status;
		t->next = next;
	}
}

/* Waits for work, but not beyond the next sync point. Returns false if a sync point is due. */
static bool queue_wait(struct store *store)
{
	int64_t ms = relaxed_wait_ms(store);

	if (ms < 0)
		return pthread_cond_wait(&store->queue_filled, &store->queue_lock) == 0;
	clock_cond_wait_ms(&store->queue_filled, &store->queue_lock, ms + 1);
	return relaxed_wait_ms(store) != 0;
}

/* Takes all pending changes, or sets *due if a sync point is due. Returns NULL without *due if the
 * store is stopping and no change is pending. */
static struct txn *queue_take(struct store *store, bool *due)
{
	struct txn *list;

	LOCK_SCOPE(&store->queue_lock);
	*due = relaxed_wait_ms(store) == 0 && !store->stopping;
	while (!*due && !store->queue_head && !store->stopping)
		*due = !queue_wait(store);
	if (*due)
		return NULL;
	list = store->queue_head;
	store->queue_head = NULL;
	store->queue_tail = &store->queue_head;
	return list;
}

static void count_commit(struct store *store, size_t changes)
{
	LOCK_SCOPE(&store->queue_lock);
	store->commits.waiting -= changes;
	store->commits.changes += changes;
	store->commits.transactions++;
}

void store_commits(struct store *store, struct store_commits *out)
{
	LOCK_SCOPE(&store->queue_lock);
	*out = store->commits;
}

static size_t length_of(const struct txn *list)
{
	size_t n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

static void *committer_main(void *arg)
{
	struct store *store = arg;
	struct txn *list;
	bool due;

	while ((list = queue_take(store, &due)) != NULL || due) {
		if (due)
			relaxed_sync_or_warn(store, false);
		else
			batch_run(store, list);
		if (list)
			count_commit(store, length_of(list));
		while (list) {
			struct txn *next = list->next; /* done() may free `list` */

			list->done(store, list);
			list = next;
		}
	}
	return NULL;
}

int committer_start(struct store *store, struct penstock_error *err)
{
	store->queue_tail = &store->queue_head;
	return thread_start(&store->committer, "commit", committer_main, store, err);
}

void committer_stop(struct store *store)
{
	pthread_mutex_lock(&store->queue_lock);
	store->stopping = true;
	pthread_cond_signal(&store->queue_filled);
	pthread_mutex_unlock(&store->queue_lock);
	pthread_join(store->committer, NULL);
	free(store->touched);
	free(store->dead);
}

void txn_submit(struct store *store, struct txn *txn)
{
	txn->next = NULL;
	LOCK_SCOPE(&store->queue_lock);
	store->commits.waiting++;
	*store->queue_tail = txn;
	store->queue_tail = &txn->next;
	pthread_cond_signal(&store->queue_filled);
}

static void wake(struct store *store, struct txn *txn)
{
	(void)store;
	sem_post(txn->cookie);
}

enum store_status txn_run(struct store *store, struct txn *txn, struct penstock_error *err)
{
	sem_t ended;

	sem_init(&ended, 0, 0);
	txn->done = wake;
	txn->cookie = &ended;
	do {
		txn_submit(store, txn);
		while (sem_wait(&ended) < 0 && errno == EINTR)
			;
		txn->first_item = txn->next_item;
	} while (txn->status == STORE_OK && txn->more);
	sem_destroy(&ended);
	if (txn->status == STORE_FAILED || txn->status == STORE_NO_SPACE)
		error_move(err, &txn->err);
	penstock_error_release(&txn->err);
	return txn->status;
}
