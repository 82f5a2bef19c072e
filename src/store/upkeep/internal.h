/* Shared by the files of src/store/upkeep only. */
#ifndef STORE_UPKEEP_INTERNAL_H
#define STORE_UPKEEP_INTERNAL_H

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "store/internal.h"
#include "store/upkeep/upkeep.h"

/* Sets the message of db_error() and returns its code. */
int upkeep_db_failed(struct db *db, int rc, const char *what, struct penstock_error *err);
/* Returns true if another process owns the store of a guest. */
bool upkeep_is_served(struct store *store);
int upkeep_cancelled(const atomic_int *stop, struct penstock_error *err);

/* --- going through all that has bytes (cursor.c) ---------------------------------------------- */

enum cursor_stage { CURSOR_OBJECTS, CURSOR_VERSIONS, CURSOR_PARTS, CURSOR_END };

/* A place among the rows; each step begins after it, in a new transaction unless the caller has
 * begun one. */
struct cursor {
	struct db *db;
	enum cursor_stage stage;
	int64_t bucket;
	struct buf key; /* of the part of an upload: its id */
	int64_t number; /* modification time of a version, number of a part */
};

/* The row at that place. */
struct cursor_row {
	struct store_object *object; /* the caller releases it */
	char bucket[64];
	char key[LIMIT_S3_KEY + 1];
	unsigned part; /* 0 if it is an object */
};
#define CURSOR_INIT                                                                                \
	{                                                                                          \
		.key = BUF_INIT(LIMIT_STRING)                                                      \
	}
/* Returns 1 with the next row, 0 at the end. A layout that cannot be read is an error, and the next
 * call continues behind it. */
int cursor_next(struct cursor *at, struct cursor_row *row, struct penstock_error *err);
/* Returns true if the row is still there, unchanged. */
bool cursor_is_current(struct cursor *at, const struct cursor_row *row);
void cursor_release(struct cursor *at);
/* Copies the place. Returns -1 if out of memory. */
int cursor_copy(struct cursor *to, const struct cursor *from);
/* Formats "s3://BUCKET/KEY", with its version unless it is the only one. */
void cursor_describe(const struct cursor *at, const struct cursor_row *row, struct buf *out);

/* --- verifying (verify.c) -------------------------------------------------------------------- */

enum verify_result {
	VERIFY_GOOD,
	VERIFY_NOTHING, /* there is no checksum of it, or no key */
	VERIFY_DAMAGED, /* the message names the checksum */
	VERIFY_FAILED, /* it cannot be read; or the sink failed */
};
struct verify_sink {
	/* Gets the bytes in order; negative to stop. May be NULL. */
	int (*write)(
		struct verify_sink *sink, const void *data, size_t len, struct penstock_error *err);
};
/* Reads all of an object, unless it has the key of a customer, and compares it with its checksums,
 * those of its parts, or its ETag. */
enum verify_result verify_object(
	struct store_object *object, struct verify_sink *sink, struct penstock_error *err);

#endif
