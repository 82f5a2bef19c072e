/* Shared only by the files of src/store/upkeep. */
#ifndef STORE_UPKEEP_INTERNAL_H
#define STORE_UPKEEP_INTERNAL_H

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "store/internal.h"
#include "store/upkeep/upkeep.h"

/* Like db_error(), but returns a negative code. */
int upkeep_db_failed(struct db *db, int rc, const char *what, struct penstock_error *err);
/* Returns true if `store` is open as a guest (see store/store.h) and another process owns
 * it. */
bool upkeep_is_served(struct store *store);
/* Fails with PENSTOCK_E_CANCELLED if the flag, which may be NULL, is set. */
int upkeep_cancelled(const atomic_int *stop, struct penstock_error *err);

/* --- walking over all rows that have bytes (cursor.c) ---------------------------------------- */

enum cursor_stage { CURSOR_OBJECTS, CURSOR_VERSIONS, CURSOR_PARTS, CURSOR_END };

/* A position among the rows; each step begins after that position, in a new transaction unless the
 * caller has started one. */
struct cursor {
	struct db *db;
	enum cursor_stage stage;
	int64_t bucket;
	struct buf key; /* for a part: the id of its upload */
	int64_t number; /* modification time of a version, number of a part */
};

/* The row at the position of a cursor. */
struct cursor_row {
	struct store_object *object; /* the caller releases it */
	char bucket[64];
	char key[LIMIT_S3_KEY + 1];
	unsigned part; /* number of the part; 0 for an object */
};
#define CURSOR_INIT                                                                                \
	{                                                                                          \
		.key = BUF_INIT(LIMIT_STRING)                                                      \
	}
/* Returns 1 with the next row, 0 at the end, or a negative code. A row that cannot be read is an
 * error: `*row` has its key but no object, and the next call continues after that row. If the
 * database cannot be read, `*row` has no key, and the next call fails, too. */
int cursor_next(struct cursor *at, struct cursor_row *row, struct penstock_error *err);
/* Returns true if the database still has the row, unchanged. */
bool cursor_is_current(struct cursor *at, const struct cursor_row *row);
void cursor_release(struct cursor *at);
/* Copies the position. Returns -1 if out of memory. */
int cursor_copy(struct cursor *to, const struct cursor *from);
/* Formats "s3://BUCKET/KEY", with the version of an older version, or the number of a part.
 * `row->object` is NULL if the row could not be read. */
void cursor_describe(const struct cursor *at, const struct cursor_row *row, struct buf *out);

/* --- verifying (verify.c) -------------------------------------------------------------------- */

enum verify_result {
	VERIFY_GOOD,
	VERIFY_NOTHING, /* some bytes have no checksum, or the key is a customer's */
	/* the message names the checksum that differs, or the failed read or decryption */
	VERIFY_DAMAGED,
	VERIFY_FAILED, /* another failure of a read, or the sink failed */
};
struct verify_sink {
	/* Gets the bytes in order; returns a negative code to stop. May be NULL. */
	int (*write)(
		struct verify_sink *sink, const void *data, size_t len, struct penstock_error *err);
};
/* Reads a whole object, unless it is encrypted with a customer's key, and compares the bytes with
 * the checksum of the object, the checksums of its parts, or its ETag. */
enum verify_result verify_object(
	struct store_object *object, struct verify_sink *sink, struct penstock_error *err);

#endif
