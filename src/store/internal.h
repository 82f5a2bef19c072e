/* What the files of src/store share. Nobody else includes this. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>

#include "base/buf.h"
#include "base/limits.h"
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
	sqlite3 *handle;
	sqlite3_stmt *statements[SQL_COUNT_];
	struct db *next; /* in the pool of idle readers */
};

int db_open(struct store *store, bool writer, struct db **out, struct penstock_error *err);
void db_close(struct db *db);
/* Ready to be bound; NULL: an error, which db_error() tells. */
sqlite3_stmt *db_statement(struct db *db, enum db_sql sql);
/* Runs a statement without results and resets it. Returns SQLITE_DONE's 0 or an SQLite code. */
int db_run(sqlite3_stmt *st);
/* STORE_NO_SPACE or STORE_FAILED, with the message. `rc` is what SQLite, or an apply function,
 * said. */
enum store_status db_error(struct db *db, int rc, const char *what, struct penstock_error *err);
/* The same for a statement that could not be prepared or stepped. */
enum store_status db_failed(struct db *db, const char *what, struct penstock_error *err);
void db_bind_text(sqlite3_stmt *st, int i, const char *text);
/* Bytes without a copy; they live until the statement is reset. NULL binds an empty blob. */
void db_bind_blob(sqlite3_stmt *st, int i, const void *data, size_t len);
void db_column_text(sqlite3_stmt *st, int i, char *out, size_t size);

/* A reader for the calling thread; give it back. */
struct db *store_reader_db(struct store *store, struct penstock_error *err);
void store_reader_db_done(struct store *store, struct db *db);

static inline void db_resetp(sqlite3_stmt **st)
{
	if (*st) {
		sqlite3_reset(*st);
		sqlite3_clear_bindings(*st);
	}
}
/* Resets at the end of the scope. */
#define _cleanup_reset_ __attribute__((cleanup(db_resetp)))

/* --- the committer (commit.c) -------------------------------------------------------------- */

/*
 * A change on its way through the committer. `apply` runs inside a transaction that may hold other
 * changes too: it looks first and writes only what will stay, so that one refused change leaves the
 * others alone. It returns 0 (also with a status other than STORE_OK) or an SQLite code, after
 * which the whole batch is rolled back and each of its changes is tried again alone.
 */
struct txn {
	struct txn *next;
	int (*apply)(struct store *store, struct txn *txn);
	void (*done)(struct store *store, struct txn *txn);
	void *cookie; /* for done */
	enum store_status status;
	struct penstock_error err;
};
int committer_start(struct store *store, struct penstock_error *err);
/* Everything submitted is done when it returns. */
void committer_stop(struct store *store);
/* The committer calls `done` on its thread. */
void txn_submit(struct store *store, struct txn *txn);
/* Waits; moves the error to err. */
enum store_status txn_run(struct store *store, struct txn *txn, struct penstock_error *err);

/* For apply functions: the key changes in this batch. */
int txn_touch(struct store *store, const char *bucket, const char *key);
/* One reference to each piece's blob more (STORE_CHANGED in txn->status where one is gone), or
 * less.
 */
int txn_ref_pieces(
	struct store *store, struct txn *txn, const struct store_piece *pieces, size_t n);
int txn_unref_layout(struct store *store, const void *layout, size_t len);
int txn_new_blob(struct store *store, uint64_t id, uint64_t size);
/* The row id of a bucket; 0: none, with STORE_NO_SUCH_BUCKET in txn->status. Negative: SQLite code.
 */
int64_t txn_bucket(struct store *store, struct txn *txn, const char *name);

/* --- blobs (blob.c) ------------------------------------------------------------------------ */

/* One data file that somebody reads or writes. Pinned files are not unlinked. */
struct store_blob {
	uint64_t id;
	unsigned pins; /* under blobs_lock */
	bool doomed;   /* under blobs_lock: unlink at the last unpin */
	struct store_blob *next;
	pthread_mutex_t lock; /* of the mapping */
	const void *map;
	size_t map_len;
};
#define BLOB_TABLE 4096

/* NULL: out of memory. */
struct store_blob *blob_pin(struct store *store, uint64_t id);
void blob_unpin(struct store *store, struct store_blob *blob);
/* Unlinks the file now, or when its last reader is gone. */
void blob_doom(struct store *store, uint64_t id);
/* Ends store->in_doubt and unlinks what was kept meanwhile. */
void blob_doubt_over(struct store *store);
void blob_unlink_kept(struct store *store);
/* Unlinks the file, now or when that may be. */
void blob_unlink(struct store *store, uint64_t id);
bool blob_is_pinned(struct store *store, uint64_t id);
#define BLOB_PATH_SIZE 32
/* Below the root: "data/3f/00000000000a3f12". */
void blob_path(uint64_t id, char out[static BLOB_PATH_SIZE]);
int blob_open(struct store *store, uint64_t id, struct penstock_error *err);
/* The whole file, mapped when first asked for; NULL: cannot. */
const void *blob_map(struct store *store, struct store_blob *blob);
/* After the change that took the body over was applied. */
void body_taken(struct store_body *body);
/* The blob of a body that is a file; 0: inline. */
uint64_t body_blob(const struct store_body *body);
const void *body_data(const struct store_body *body);
/* Removes files that no row names; runs in its own thread. */
void *blob_sweep(void *arg);

/* --- layouts (layout.c) -------------------------------------------------------------------- */

/* The pieces and parts of an object as one value of the database. */
int layout_encode(struct buf *out, const struct store_part *parts, size_t n_parts,
	const struct store_piece *pieces, size_t n_pieces);
/* Counts, then fills; -1: malformed. Arrays may be NULL to only count. */
int layout_decode(const void *data, size_t len, struct store_part *parts, size_t *n_parts,
	struct store_piece *pieces, size_t *n_pieces);

/* --- cache (cache.c) ----------------------------------------------------------------------- */

#define CACHE_SHARDS 64

struct cache;
int cache_new(struct cache **out, struct penstock_error *err);
void cache_free(struct cache *cache);
/* A reference, or NULL; then `*ticket` is for a later put. */
struct store_object *cache_get(
	struct cache *cache, const char *bucket, const char *key, uint64_t *ticket);
/* Keeps a reference, unless the key may have changed since the ticket was drawn. */
void cache_put(struct cache *cache, const char *bucket, const char *key, uint64_t ticket,
	struct store_object *object);
/* Forgets the key and refuses puts until the matching settle. */
void cache_touch(struct cache *cache, const char *bucket, const char *key);
void cache_settle(struct cache *cache, const char *bucket, const char *key);

/* --- relaxed durability (relaxed.c) --------------------------------------------------------- */

/* A sync point is due when the log has so many pages, or some time after a change. */
#define RELAXED_PAGES 16000

/* Before the database is opened, in either mode: drops what a crash of the machine left in doubt. */
int relaxed_recover(struct store *store, struct penstock_error *err);
/* When the database is open and nobody else uses it. */
int relaxed_start(struct store *store, struct penstock_error *err);
/* By the committer, or when it has ended; `last`: the store is being closed. */
int relaxed_sync_point(struct store *store, bool last, struct penstock_error *err);
/* Makes the mark without which nothing may be changed; store->mark_missing says whether it is due. */
int relaxed_mark(struct store *store, struct penstock_error *err);
/* How long the committer may wait before the next sync point is due; -1: none is. */
int64_t relaxed_wait_ms(const struct store *store);

/* --- the store ----------------------------------------------------------------------------- */

struct touched {
	char *bucket; /* one allocation with key */
	char *key;
};

/* held.c */
struct held {
	pthread_mutex_t lock;
	void *free[LIMIT_STORE_HELD_BODIES]; /* under lock, of LIMIT_STORE_HELD bytes each */
	unsigned n_free, n;		     /* under lock: those, and all there are */
};
void held_init(struct held *held);
/* When nobody has any. */
void held_release(struct held *held);
/* LIMIT_STORE_HELD bytes; NULL: none to be had now. */
void *held_take(struct store *store);
/* NULL is fine. */
void held_give(struct store *store, void *room);

struct store {
	/* constant after store_open() */
	char *root;
	int root_fd;
	int lock_fd;
	bool relaxed;
	int64_t relaxed_ms;
	struct cache *cache;

	/* owned by the committer thread */
	struct db *writer;
	struct touched *touched;
	size_t n_touched, cap_touched;
	uint64_t *dead; /* blobs without references after the current batch */
	size_t n_dead, cap_dead;
	int64_t last_ns; /* modification times never go back */
	int log_pages;	 /* relaxed only, like the next */
	bool mark_missing;
	int64_t unsynced_since_ms; /* 0: nothing changed since the last sync point */

	/*
	 * A commit failed in the middle of its write or sync. What it wrote may turn up when the log is
	 * replayed after a crash, so files are kept until a later change has taken its place in the log;
	 * those that a crash leaves over are swept at the next start.
	 */
	atomic_bool in_doubt;

	pthread_t committer;
	pthread_mutex_t queue_lock;
	pthread_cond_t queue_filled;
	struct txn *queue_head, **queue_tail; /* under queue_lock */
	bool stopping;			      /* under queue_lock */

	pthread_mutex_t readers_lock;
	struct db *readers; /* idle; under readers_lock */

	pthread_mutex_t blobs_lock;
	struct store_blob *blobs[BLOB_TABLE]; /* under blobs_lock */
	uint64_t next_blob;		      /* under blobs_lock */
	uint64_t *kept;		 /* under blobs_lock: to be unlinked when there is no doubt */
	size_t n_kept, cap_kept; /* under blobs_lock */
	/* Read: from looking a row up until its blobs are pinned. Write: deciding what to unlink.
	 */
	pthread_rwlock_t pinning;
	uint8_t dirs_made[256 / 8]; /* data/xx known to be durable; under dirs_lock */
	pthread_mutex_t dirs_lock;

	struct held held;

	pthread_t sweeper;
	bool sweeping;
	bool sweep_cut; /* by the sweeper; read after the join */
	atomic_bool stop_sweep;
};

/* The next modification time: the wall clock, but never backwards. Committer only. */
int64_t store_tick(struct store *store);

/* Builds a snapshot from a row whose columns begin with those of SQL_OBJECT_GET. */
int object_from_row(struct store *store, sqlite3_stmt *st, struct store_object **out,
	struct penstock_error *err);

/* What a key has now, for apply functions: its ETag ("": nothing), its layout appended to `old`. */
int object_old(struct store *store, int64_t bucket, const char *key,
	char etag[static STORE_ETAG_SIZE], struct buf *old);
struct object_row {
	const char *key;
	uint64_t size;
	int64_t modified_ns;
	const char *etag;
	const struct store_checksum *checksum;
	const char *headers;
	size_t headers_len;
	const char *upload; /* NULL: not from a multipart upload */
	const struct buf *layout;
	const void *body; /* `size` bytes; NULL: in the pieces */
};
int object_set(struct store *store, int64_t bucket, const struct object_row *row);
/* Removes an unfinished upload with its parts. */
int upload_drop(
	struct store *store, int64_t bucket, const char *key, size_t key_len, const char *id);

/* Conditions against what is there; `etag` NULL: nothing. */
bool condition_holds(const struct store_condition *condition, const char *etag);

#endif
