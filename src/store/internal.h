/* Shared only by the files of src/store. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/quota.h"
#include "store/crypt/crypt.h"
#include "store/store.h"

/* --- database (db.c) ----------------------------------------------------------------------- */

/* The statements of sql.h, prepared when first used. */
enum db_sql {
#define SQL(name, text) SQL_##name,
#include "store/sql.h"
#undef SQL
	SQL_COUNT_
};

struct db {
	struct store *store;
	sqlite3 *handle;
	sqlite3_stmt *statements[SQL_COUNT_];
	struct db *next; /* next in the pool of idle readers */
};

int db_open(struct store *store, bool writer, struct db **out, struct penstock_error *err);
void db_close(struct db *db);
/* Returns a statement ready to be bound, or NULL on an error, which db_failed() reports. */
sqlite3_stmt *db_statement(struct db *db, enum db_sql sql);
/*
 * Returns a statement with its parameters bound, one for each letter: 'i' an int64_t, 't' a text or
 * NULL, 'k' a text as a blob, 'b' a const void * and a size_t. Nothing is copied: values must live
 * until the statement is reset. A blob of 0 bytes is empty, not NULL.
 */
sqlite3_stmt *db_bound(struct db *db, enum db_sql sql, const char *types, ...);
/* Steps a statement. Returns the code of the failure if db_bound() returned NULL. */
int db_step(struct db *db, sqlite3_stmt *st);
/* Runs a statement without results and resets it. Returns 0 or an SQLite error code. */
int db_run(sqlite3_stmt *st);
/* Binds and runs a statement. */
int db_exec(struct db *db, enum db_sql sql, const char *types, ...);
/* Returns STORE_NO_SPACE or STORE_FAILED and sets the message. `rc` is the code from SQLite or an
 * apply function. */
enum store_status db_error(struct db *db, int rc, const char *what, struct penstock_error *err);
/* Like db_error() for a statement that could not be prepared or stepped. */
enum store_status db_failed(struct db *db, const char *what, struct penstock_error *err);
void db_column_text(sqlite3_stmt *st, int i, char *out, size_t size);
/* Appends the blob in column `i` to `out`. Returns 0 or SQLITE_NOMEM. */
int db_column_add(sqlite3_stmt *st, int i, struct buf *out);
/* Steps to the only row. Returns STORE_OK, `missing` if there is no row, or the error, whose
 * message contains `what`. */
enum store_status db_look_up(struct db *db, sqlite3_stmt *st, enum store_status missing,
	const char *what, struct penstock_error *err);

/* Takes an idle connection for reading, or opens a new connection; returns NULL on failure. Use:
 * _cleanup_reader_ struct db *db = db_reader(store, err); */
struct db *db_reader(struct store *store, struct penstock_error *err);
void db_reader_donep(struct db **db);
#define _cleanup_reader_ __attribute__((cleanup(db_reader_donep)))

static inline void db_resetp(sqlite3_stmt **st)
{
	if (*st) {
		sqlite3_reset(*st);
		sqlite3_clear_bindings(*st);
	}
}
/* Resets a statement at the end of the scope. */
#define _cleanup_reset_ __attribute__((cleanup(db_resetp)))

/* For apply functions: adds the row of a data file with one reference; `seal_len` is 0 without
 * encryption. */
int db_add_blob(
	struct store *store, const struct store_piece *file, const void *seal, size_t seal_len);
/* Returns the id of a new data file or a new row of `bodies`. No id is returned twice, not even
 * after a restart: a backup may have the earlier file, and an object of a damaged database may
 * still have the id of the earlier body. */
uint64_t db_next_id(struct store *store);
/* For apply functions: makes the row `next-blob` of the table `meta` larger than the id that the
 * change uses, unless the row is larger already. Returns 0 or an SQLite error code. */
int db_reserve_id(struct store *store, uint64_t id);

/* --- the committer (commit.c) -------------------------------------------------------------- */

/*
 * A change that passes through the committer. `apply` runs inside a transaction that may contain
 * other changes. `apply` checks first and then writes only final data, so that a rejected change
 * does not affect other changes. `apply` returns 0 (even if it sets a status other than STORE_OK)
 * or an SQLite error code. After an error code the whole batch is rolled back, and each of its
 * changes is retried alone if there are several; if the disk is full, the whole batch is retried
 * first.
 */
struct txn {
	struct txn *next;
	int (*apply)(struct store *store, struct txn *txn);
	void (*done)(struct store *store, struct txn *txn);
	void *cookie; /* for `done` */
	enum store_versioning versioning; /* versioning of the bucket; set by txn_bucket() */
	enum store_status status;
	bool more; /* set by `apply` if txn_run() has to submit the change again */
	bool frees; /* a deletion, which may use the last LIMIT_STORE_RESERVE bytes of the disk */
	/* For a change of many items: `apply` begins at `next_item` and increments it. A retry
	 * begins at `first_item`, because the items before it are already committed. */
	size_t first_item, next_item;
	unsigned rows_before; /* for txn_has_room() */
	struct penstock_error err;
};
int committer_start(struct store *store, struct penstock_error *err);
/* Completes all submitted changes, then returns. */
void committer_stop(struct store *store);
/* Submits a change; the committer calls `done` on its thread. */
void txn_submit(struct store *store, struct txn *txn);
/* Submits a change, repeatedly if it needs several transactions, and waits; moves the error of the
 * change to `err`. */
enum store_status txn_run(struct store *store, struct txn *txn, struct penstock_error *err);

/* For apply functions: marks the key as changed in this batch. */
int txn_touch(struct store *store, const char *bucket, const char *key);
/* Returns false if a change of many rows has to continue in another transaction, so that other
 * changes get their turn. */
bool txn_has_room(const struct store *store, const struct txn *txn);
/* Size of a page of the database and its log: SQLite's default. */
#define STORE_PAGE UINT64_C(4096)
/* Size of the write-ahead log in pages at which the committer copies it into the database, unless
 * durability is relaxed. */
#define CHECKPOINT_PAGES 4000
/* Counts bytes that a change takes on the disk. */
void txn_take_room(struct store *store, uint64_t bytes);
/* Marks all keys of a bucket as changed in this batch; `bucket` is NULL for all buckets. */
void txn_touch_all(struct store *store, const char *bucket);
/* txn_ref_pieces() adds a reference to the blob of each piece; if a blob is gone, it adds no
 * reference and sets STORE_CHANGED. txn_unref_layout() removes a reference for each piece of the
 * layout. */
int txn_ref_pieces(
	struct store *store, struct txn *txn, const struct store_piece *pieces, size_t n);
int txn_unref_layout(struct store *store, const void *layout, size_t len);
/* Returns the row id of a bucket. Returns 0 with STORE_NO_SUCH_BUCKET in txn->status if the bucket
 * does not exist, or if `id` is neither 0 nor its row id; a negative SQLite code on error. */
int64_t txn_bucket(struct store *store, struct txn *txn, const char *name, int64_t id);
/* Removes an unfinished upload with its parts. */
int txn_drop_upload(
	struct store *store, int64_t bucket, const char *key, size_t key_len, const char *id);
/* Removes only the rows of an upload; the blobs of its parts keep their references. */
int txn_delete_upload(
	struct store *store, int64_t bucket, const char *key, size_t key_len, const char *id);

/* --- blobs (blob.c) ------------------------------------------------------------------------ */

/* A data file in use by a reader or writer. Pinned files are not unlinked. */
struct store_blob {
	uint64_t id;
	unsigned pins; /* under blobs_lock */
	bool doomed; /* under blobs_lock: unlink at the last unpin */
	struct store_blob *next;
	pthread_mutex_t lock; /* protects the mapping */
	const void *map;
	size_t map_len;
};

/* This file is in the root of a backup until a process owns the directory. */
#define STORE_BACKUP_MARK "backup"

#define BLOB_TABLE 4096

/* Returns NULL if out of memory. */
struct store_blob *blob_pin(struct store *store, uint64_t id);
void blob_unpin(struct store *store, struct store_blob *blob);
/* Unlinks the file, as blob_unlink() does, once the file has no pin. */
void blob_doom(struct store *store, uint64_t id);
/* Clears store->in_doubt, and passes the files that were kept while it was set to the thread that
 * unlinks files; with relaxed durability the next sync point (relaxed.c) passes these files. */
void blob_doubt_over(struct store *store);
/* Passes the files that were kept to the thread that unlinks files. */
void blob_unlink_kept(struct store *store);
/* Passes the files that were kept for a guest (store_hold()) to the thread that unlinks files, if
 * no guest holds files any more. Has no effect with relaxed durability or while a commit is in
 * doubt. */
void blob_hold_over(struct store *store);
#define BLOB_PATH_SIZE 32
/* Formats the path below the root: "data/3f/00000000000a3f12". */
void blob_path(uint64_t id, char out[static BLOB_PATH_SIZE]);
int blob_open(struct store *store, uint64_t id, struct penstock_error *err);
/* Notes the seal of an encrypted file in an extended attribute, where a repair finds it if the row
 * of the file is lost. Has no effect on a file system without extended attributes. */
void blob_note_seal(int fd, const uint8_t seal[static SEAL_SIZE]);
/* Returns false if the file has no seal. */
bool blob_noted_seal(int fd, uint8_t out[static SEAL_SIZE]);
/* Returns the whole file, mapped on first use, or NULL if it cannot be mapped. */
const void *blob_map(struct store *store, struct store_blob *blob);
/* Empties the body after the commit of a change that took over its bytes. */
void body_taken(struct store_body *body);
/* For apply functions: adds the row of the file of a body, and gets the file as a piece. */
int body_piece(const struct store_body *body, struct store_piece *out);
/* Before a put: encrypts a body that is kept in the database. */
int body_seal(struct store_body *body, struct penstock_error *err);
/* Gets the bytes of a body that is kept in the database. */
const void *body_data(const struct store_body *body, size_t *len);
bool body_is_encrypted(const struct store_body *body);
/* For apply functions: adds the row of the store key that the body needs, if it is missing. */
int body_keep_key(const struct store_body *body);
bool blob_is_pinned(struct store *store, uint64_t id);
/* The thread that unlinks files, so that commits need not wait for the file system.
 * blob_unlinker_stop() unlinks the remaining files, unless a guest holds them. */
int blob_unlinker_start(struct store *store, struct penstock_error *err);
void blob_unlinker_stop(struct store *store);
/* Passes the file to the thread that unlinks files: at once, or later if the file must be kept for
 * now. */
void blob_unlink(struct store *store, uint64_t id);
/* Gets the id of the data file `name` in directory number `dir`. Returns false if no data file can
 * have this name there. */
bool blob_parse(const char *name, unsigned dir, uint64_t *id);

/* --- the sweep (sweep.c) -------------------------------------------------------------------- */

/* Removes files that neither a row of `blobs` nor the layout of an object names; runs in its own
 * thread. */
void *blob_sweep(void *arg);

/* --- keys (keys.c) -------------------------------------------------------------------------- */

struct keys;
/* Reads the master key, and unwraps the keys of the store. `file` is NULL for the file in the root;
 * a missing file is created if the store has no keys. */
int keys_open(struct store *store, const char *file, struct penstock_error *err);
/* Like keys_open() for a guest, which changes nothing; without the master key a guest cannot read
 * objects that are encrypted with a key of the store. */
int keys_open_guest(
	struct store *store, struct db *db, const char *file, struct penstock_error *err);
/* Puts the keys of the file `from` in front of those of the file `to`, which may be missing. */
int keys_prepend(const char *from, const char *to, struct penstock_error *err);
/* Wipes and frees the keys. */
void keys_free(struct keys *keys);
/* For apply functions: adds the row of the key of new bodies, if it is missing. */
int keys_keep(struct store *store);
/* Creates the seal of a new body. */
int keys_new_seal(struct store *store, bool customer, struct seal *out, struct penstock_error *err);
/* Creates the cipher of a body. */
int keys_crypt(struct store *store, const struct store_key *customer, const struct seal *seal,
	bool encrypts, struct crypt *out, struct penstock_error *err);

/* --- annotations (object.c) ------------------------------------------------------------------ */

/* For apply functions: changes a header; txn->status has the outcome. */
int annotation_apply(struct store *store, struct txn *txn, const struct store_annotation *a);

/* --- layouts (layout.c) -------------------------------------------------------------------- */

/* Encodes the pieces and parts of an object as one value for the database. */
int layout_encode(struct buf *out, const struct store_part *parts, size_t n_parts,
	const struct store_piece *pieces, size_t n_pieces);
/* Counts the parts and pieces, and fills the arrays that are not NULL. Returns -1 if the data is
 * malformed. */
int layout_decode(const void *data, size_t len, struct store_part *parts, size_t *n_parts,
	struct store_piece *pieces, size_t *n_pieces);

/* --- cache (cache.c) ----------------------------------------------------------------------- */

/* There are so few shards that each has room for the snapshot of an object of 10,000 parts: all
 * readers of the object share the snapshot in the cache. */
#define CACHE_SHARDS 32

/* A guest has no cache (NULL), because the owner does not notify a guest of changes. cache_get()
 * and cache_put() do nothing without a cache. */
struct cache;
int cache_new(struct cache **out, struct penstock_error *err);
void cache_free(struct cache *cache);
/* Returns a reference, or NULL if the object is not cached; `*ticket` is for the cache_put() of the
 * object that the caller reads from the database. */
struct store_object *cache_get(
	struct cache *cache, const char *bucket, const char *key, uint64_t *ticket);
/* Keeps a reference, unless the key may have changed since cache_get() gave the ticket. */
void cache_put(struct cache *cache, const char *bucket, const char *key, uint64_t ticket,
	struct store_object *object);
/* Removes the key. Until the matching cache_settle(), cache_put() of this key has no effect. */
void cache_touch(struct cache *cache, const char *bucket, const char *key);
void cache_settle(struct cache *cache, const char *bucket, const char *key);
/* Like the two functions above, for all keys of a bucket; `bucket` is NULL for all buckets. Until
 * the matching cache_settle_all(), cache_put() has no effect for any key. */
void cache_touch_all(struct cache *cache, const char *bucket);
void cache_settle_all(struct cache *cache);

/* --- relaxed durability (relaxed.c) --------------------------------------------------------- */

#define RELAXED_MARK "relaxed" /* file in the root while relaxed durability is on */

/* A sync point is due when the log has this many new pages, or `relaxed_ms` after a change. */
#define RELAXED_PAGES 16000

/* Called before the database is opened, with relaxed durability or without: discards changes that a
 * crash of the machine left in doubt. */
int relaxed_recover(struct store *store, struct penstock_error *err);
/* For a guest: fails if a crash of the machine left changes in doubt. */
int relaxed_check(struct store *store, struct penstock_error *err);
/* Called when the database is open and not yet in use. */
int relaxed_start(struct store *store, struct penstock_error *err);
/* Called by the committer, or after it has ended; `last` if the store is being closed. Returns
 * false if the sync point failed. */
bool relaxed_sync_or_warn(struct store *store, bool last);
/* Returns how long the committer may wait before the next sync point is due, or -1 if there is
 * nothing to sync. */
int64_t relaxed_wait_ms(const struct store *store);

/* --- observers (commit.c) -------------------------------------------------------------------- */

/* For apply functions: notify the observers of a change. */
int event_notify(struct store *store, const struct store_change *change);
int event_notify_removed(struct store *store, const char *bucket, const struct store_delete *item,
	int64_t deleted_ns);
int event_notify_version(struct store *store, const struct store_new_version *version);

/* --- counts of events (commit.c) ------------------------------------------------------------- */

/* The numbers of events and bytes of a target that are not yet delivered. */
struct event_queue {
	/* Constant, like the next two members: other threads read the list while queues are
	 * added. */
	struct event_queue *next;
	char *target;
	size_t limit; /* 0 if unlimited */
	/* Owned by the committer, like the next three members: changes by the current batch. */
	int64_t changed; /* events added minus events removed */
	int64_t changed_bytes;
	uint64_t changed_dropped;
	bool added;
	atomic_size_t n; /* number of events; committed, like the next two members */
	atomic_ullong bytes;
	atomic_ullong dropped;
};

/* Returns NULL if there is no such target. */
struct event_queue *event_queue_find(const struct store *store, const char *target);
void event_queues_free(struct store *store);

/* --- the store ----------------------------------------------------------------------------- */

struct touched {
	char *bucket; /* one allocation for both names */
	char *key;
};

/* blob.c: blobs whose files are to be unlinked */
struct id_list {
	uint64_t *ids;
	size_t n;
};

/* blob.c: memory for bodies that are held whole until they are complete. */
struct held {
	pthread_mutex_t lock;
	void *free[LIMIT_STORE_HELD_BODIES]; /* under lock, of LIMIT_STORE_HELD bytes each */
	unsigned n_free, n; /* under lock: number of free blocks, and of all blocks */
};

struct store {
	/* constant after store_open() */
	char *root;
	int root_fd;
	int lock_fd;
	int hold_fd; /* ROOT/hold, which a guest locks while no file may be removed */
	bool guest; /* as in struct store_options: this process only reads the store */
	bool relaxed;
	int64_t relaxed_ms;
	bool no_mapping;
	struct cache *cache;
	struct keys *keys;

	/* owned by the committer thread */
	struct db *writer;
	struct touched *touched;
	size_t n_touched;
	unsigned touched_all; /* number of calls to txn_touch_all() in the current batch */
	uint64_t *dead; /* blobs without references after the current batch */
	size_t n_dead;
	uint64_t reserved_ids; /* value of the row `next-blob`, or 0 if that is unknown */
	bool configs_changed; /* the current batch changes configurations or buckets */
	struct store_observer observers[STORE_OBSERVERS];
	size_t n_observers;
	unsigned n_unreferenced; /* pieces that lost their references, for txn_has_room() */
	uint64_t room; /* bytes on the disk that the changes of the current batch may take */
	int log_pages; /* pages of the log; relaxed only, like the next four members */
	/* value of `log_pages` at the last sync point, or 0 if the log was restarted since then */
	int synced_pages;
	/* number of marks written to ROOT/relaxed since the store was opened, including failed
	 * writes */
	uint64_t sync_points;
	unsigned mark_slot; /* slot of the next mark: 0 or 1 */
	bool sync_failed; /* no mark is written any more, and changes are refused */
	/* any thread: time of the first change, or of the first file that was kept, since the last
	 * sync point; 0 if there was neither */
	atomic_llong unsynced_since_ms;

	/*
	 * A commit failed in the middle of its write or sync. The failed changes may reappear when
	 * the log is replayed after a crash, so files are kept until a later change has overwritten
	 * these changes in the log; files left by a crash are swept at the next start.
	 */
	atomic_bool in_doubt;

	atomic_ullong config_generation; /* set by the committer after a commit */
	struct event_queue *_Atomic queues; /* queues of events; see store_event_targets() */

	pthread_t committer;
	pthread_mutex_t queue_lock;
	pthread_cond_t queue_filled;
	struct txn *queue_head, **queue_tail; /* under queue_lock */
	struct store_commits commits; /* under queue_lock */
	bool stopping; /* under queue_lock */

	pthread_mutex_t readers_lock;
	struct db *readers; /* idle; under readers_lock */

	pthread_mutex_t blobs_lock;
	struct store_blob *blobs[BLOB_TABLE]; /* under blobs_lock */
	uint64_t next_id; /* under blobs_lock */
	/* Under blobs_lock, relaxed only: value of `next_id` at the last sync point. No sync point
	 * has rows of blobs with this id or a higher id. */
	uint64_t first_unsynced;
	/* under blobs_lock: to be unlinked once no commit is in doubt and no guest holds files */
	struct id_list kept;
	struct id_list gone; /* under blobs_lock: to be unlinked by the unlinker */
	pthread_cond_t gone_added; /* with blobs_lock */
	bool unlinker_runs; /* under blobs_lock */
	pthread_t unlinker;
	bool held_back; /* under blobs_lock: some files are kept because of a guest */
	/* under blobs_lock: a list had no memory for a file, so the next start must sweep */
	bool forgot;
	pthread_mutex_t unlink_lock; /* held while ROOT/hold is locked to remove files */
	uint8_t dirs_cut[256 / 8]; /* data/xx that lost files since the start; under unlink_lock */
	/* Read-locked from looking up a row until its blobs are pinned; write-locked before blobs
	 * are unlinked, to wait for such readers. */
	pthread_rwlock_t pinning;
	uint8_t dirs_made[256 / 8]; /* data/xx known to be durable; under dirs_lock */
	pthread_mutex_t dirs_lock;

	struct quota snapshots; /* bytes of large snapshots */

	struct held held;
	atomic_bool encrypts; /* a bucket has, or had, a default encryption */

	pthread_t sweeper;
	bool sweeping;
	bool sweep_cut; /* the sweep is incomplete; written by the sweeper, read after the join */
	atomic_bool stop_sweep;
};

/* Returns the time of a change: the wall clock, but later than `last_ns`, the time of the previous
 * change, because the clock may have been set back. */
int64_t time_after(int64_t last_ns);

/* Gets the object of a row, which has the columns of SQL_OBJECT_GET. The caller holds
 * store->pinning. */
enum store_status object_look_up(struct db *db, sqlite3_stmt *st, enum store_status missing,
	struct store_object **out, struct penstock_error *err);

/* Creates the object of the current row. */
int object_from_row(
	struct db *db, sqlite3_stmt *st, struct store_object **out, struct penstock_error *err);

/* Counts the memory of a new snapshot, if it is large, for the owner of its bucket. If the account
 * has no room for it, sets PENSTOCK_E_MEMORY, and releases the snapshot. */
enum store_status snapshot_count(struct store *store, const char *bucket,
	struct store_object **object, struct penstock_error *err);

/* The object of a key, or a version of the key, before a change. */
struct old_object {
	bool exists;
	bool is_null; /* the version "null" */
	bool marker;
	bool older; /* a row of the table `versions` */
	bool has_object; /* the key has an object, which may be another version */
	char etag[STORE_ETAG_SIZE];
	uint64_t size;
	int64_t modified_ns;
	/* The bytes that the change removes: references to files, and the id of a row of `bodies`,
	 * or 0 if there is no such row. */
	struct buf layout;
	int64_t body;
};
#define OLD_OBJECT_INIT                                                                            \
	{                                                                                          \
		.layout = BUF_INIT(LIMIT_STORE_LAYOUT)                                             \
	}
static inline void old_object_release(struct old_object *old)
{
	buf_release(&old->layout);
}
/* The bytes stay: another row has them now, or the change keeps the object. */
static inline void old_object_keep_bytes(struct old_object *old)
{
	buf_release(&old->layout);
	old->body = 0;
}
/* Removes the bytes of a row that the change has removed. */
int txn_drop_bytes(struct store *store, const struct old_object *old);

/* For apply functions: gets the object of a key, and sets txn->status if the condition does not
 * hold for it. */
int object_old(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const struct store_condition *condition, struct old_object *old);
/* The version that a change makes, if it is a replica of a version of another store. */
struct replica {
	int64_t modified_ns; /* 0 for a new version */
	bool exists; /* the key has a version of that name already */
	bool differs; /* that version has another ETag; a marker has the ETag "" */
	bool older; /* the key has a newer version */
};
/* For apply functions: finds the place of the version that a put or a CompleteMultipartUpload
 * makes; `name` is the value of STORE_REPLICA_HEADER, or NULL. Sets txn->status to
 * STORE_PRECONDITION if the key has that version already, or to STORE_VERSION_TAKEN if that version
 * has another ETag. */
int object_place(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const char *name, const char *etag, struct replica *out);
/* For apply functions: gets a version of a key, or its object if `version` is NULL. */
int object_find(struct store *store, int64_t bucket, const char *key, const char *version,
	struct old_object *old);
struct object_row {
	const char *key;
	uint64_t size;
	const char *etag;
	const struct store_checksum *checksum;
	const char *headers;
	size_t headers_len;
	const char *upload; /* NULL if not from a multipart upload */
	const struct buf *layout;
	const void *body; /* NULL if the bytes are in data files */
	size_t body_len;
	int64_t body_row; /* the row of `bodies` that the body replaces; 0 for a new row */
	struct replica replica;
	/* Results. */
	int64_t modified_ns;
	char version[STORE_VERSION_SIZE]; /* "" in a bucket without versioning */
};
/* Binds the body to parameter `i` of the statement that writes the row of the object. A body with
 * bytes is written to a row of `bodies` first. */
int object_bind_body(struct store *store, sqlite3_stmt *st, int i, const struct object_row *row);
/* Writes the row, in place of an earlier row of the key. */
int object_write(struct store *store, int64_t bucket, const struct object_row *row);
/* Creates the object of a key, in place of `old` or as its next version; a replica that is not the
 * newest becomes an older version. */
int object_set(struct store *store, const struct txn *txn, const char *bucket_name, int64_t bucket,
	struct object_row *row, struct old_object *old);

/* Deletes an object or a version; item->status has the outcome. */
int object_remove(struct store *store, const struct txn *txn, int64_t bucket,
	const char *bucket_name, struct store_delete *item);

/* The first stored header of an object that is not the version "null". */
#define HEADER_VERSION ":version"

/* --- versions (version.c, version_name.c) ---------------------------------------------------- */

#define VERSION_NULL "null"
void version_name(char out[static STORE_VERSION_SIZE], int64_t modified_ns, bool is_null);
bool version_is_null(const char *version);
/* Returns the modification time in the name of a version, or -1 for "null" and for names that no
 * version can have. */
int64_t version_modified(const char *version);
/* Gets an older version, or a delete marker. */
int version_old(struct store *store, int64_t bucket, const char *key, const char *version,
	struct old_object *old);
/* Appends the headers of a version that exists. */
int version_headers(struct store *store, int64_t bucket, const char *key,
	const struct old_object *old, struct buf *out);
/* Deletes an older version, or a delete marker. */
int version_delete(
	struct store *store, int64_t bucket, const char *key, const struct old_object *old);
/* Before a new version or a marker: keeps the object of the key among the older versions, unless
 * the object is the version "null" that the new version replaces; deletes an older version "null"
 * that the new version replaces. Makes `*modified_ns` later than the times of all versions. */
int version_make_room(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	struct old_object *old, int64_t *modified_ns);
/* Adds an older version. */
int version_add(struct store *store, int64_t bucket, const struct object_row *row);
/* For apply functions: finds the place of a replica; `name` is NULL for a new version. */
int version_place(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	const char *name, const char *etag, struct replica *out);
/* Adds a delete marker. */
int version_mark(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	int64_t modified_ns, const struct buf *headers);
/* Makes the newest of the older versions the object of the key, unless it is a marker. */
int version_restore(struct store *store, int64_t bucket, const char *key);
/* Gets the time of a version: a list that continues after the version has only versions before that
 * time. Returns -1 on failure; db_failed() has the reason. */
int version_limit(
	struct db *db, int64_t bucket, const char *key, const char *version, int64_t *modified_ns);
/* Sets *newer to true if the key has a version, or a marker, of that time or later, else to false.
 * Returns -1 on failure; db_failed() has the reason. */
int version_is_newer(
	struct db *db, int64_t bucket, const char *key, int64_t modified_ns, bool *newer);

/* --- Object Lock (lock.c) --------------------------------------------------------------------- */

/* The name of the configuration of a bucket that has Object Lock. */
#define LOCK_CONFIG	 "object-lock"
#define LOCK_CONFIG_SIZE 32
struct store_lock lock_parse(const char *text);
/* For apply functions: get, or set, the lock of a bucket. */
int lock_of_bucket(struct store *store, int64_t bucket, bool *has, struct store_lock *out);
int lock_set(struct store *store, int64_t bucket, const struct store_lock *lock);
/* Appends the default retention of the bucket to the headers of a new version that has no
 * retention. */
int lock_new_version(struct store *store, int64_t bucket, int64_t created_ns, struct buf *headers);
/* Sets *locked to true if the version may not be deleted now, else to false. */
int lock_protects(struct store *store, int64_t bucket, const struct store_delete *item,
	const struct old_object *old, bool *locked);

/* A put of an object or of a part. For a part, `put` is the first member of a struct
 * store_part_put. */
struct put_txn {
	struct txn txn;
	struct store_put *put;
};
typedef int (*put_apply)(struct store *store, struct txn *txn);
void put_submit(struct store *store, struct store_put *put, put_apply apply);
enum store_status put_run(
	struct store *store, struct store_put *put, put_apply apply, struct penstock_error *err);

/* --- sync points for files that are kept ---------------------------------------------------- */

/* Starts the wait for the next sync point. Returns false if the wait has already started. */
static inline bool relaxed_begin_wait(struct store *store, int64_t since_ms)
{
	long long none = 0;

	return atomic_compare_exchange_strong(&store->unsynced_since_ms, &none, since_ms);
}

/* Makes a sync point due, at once if `now` is set, else within `relaxed_ms`, and wakes the
 * committer. The sync point releases the files that are kept. */
static inline void relaxed_wake(struct store *store, bool now)
{
	if (now)
		atomic_store(&store->unsynced_since_ms, 1);
	else if (!relaxed_begin_wait(store, clock_monotonic_ms()))
		return;
	pthread_mutex_lock(&store->queue_lock);
	pthread_cond_signal(&store->queue_filled);
	pthread_mutex_unlock(&store->queue_lock);
}

#endif
