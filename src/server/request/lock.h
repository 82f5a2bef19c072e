/* Object Lock in the headers of requests and replies. */
#ifndef SERVER_REQUEST_LOCK_H
#define SERVER_REQUEST_LOCK_H

#include <stdbool.h>

#include "store/store.h"

struct buf;
struct request;

/* Returns NULL for STORE_NOT_LOCKED. */
const char *lock_mode_name(enum store_lock_mode mode);
/* Returns STORE_NOT_LOCKED if there is no such mode. */
enum store_lock_mode lock_mode_find(const char *name);
/* Reads the time of a retention, which has to be in the future. Sets the reply and returns false on
 * failure. */
bool lock_until(struct request *req, const char *text, int64_t *ns);
/* Returns true for "ON" and "OFF". */
bool lock_hold_is_valid(const char *status);
/* Gets the lock of a bucket. Sets the reply and returns false if the bucket has no lock. */
bool lock_of_request(struct request *req, struct store_lock *out);
/* Returns true if the request bypasses the mode GOVERNANCE. */
bool lock_is_bypassed(const struct request *req);

/* Appends the stored headers of the retention and the hold that the request asks for. Sets the
 * reply and returns false on failure. */
bool lock_add(struct request *req, struct buf *out);
/* Refuses a body without a checksum if the object is to be locked. Sets the reply and returns false
 * after a refusal. */
bool lock_has_checksum(struct request *req);
/* Add the retention, or the hold, of a version to the reply; `text` is its stored header. */
void reply_retention(struct request *req, const char *text);
void reply_hold(struct request *req, const char *text);

#endif
