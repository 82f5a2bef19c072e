#ifndef SERVER_REQUEST_HASH_H
#define SERVER_REQUEST_HASH_H

#include <stdbool.h>

#include "server/request/request.h"

struct penstock_error;
struct hasher;

/* Starts the thread that computes the MD5 of complete bodies of up to LIMIT_SERVER_LATE_HASH bytes.
 * The thread hashes several bodies at a time (s3/sum/md5_lanes.h), because hashing each body alone
 * would be the largest cost of an upload. */
int hasher_start(struct hasher **out, struct penstock_error *err);
/* Finishes the queued bodies. */
void hasher_stop(struct hasher *hasher);
/* Announces a body that is to be hashed once it is complete. Returns false if the caller must hash
 * the body itself. */
bool hasher_expect(struct hasher *hasher);
/* Withdraws an announced body. */
void hasher_forget(struct hasher *hasher);
/* Takes the complete, announced body of a suspended request: sets its ETag, then calls `next` on
 * the hasher's thread. If the body cannot be read, sets the reply and wakes the request. */
void hasher_submit(struct hasher *hasher, request_fn next, struct request *req);

#endif
