/* Shared by the files that implement the public headers. */
#ifndef LIBRARY_LIBRARY_H
#define LIBRARY_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/str.h"
#include "net/credentials/credentials.h"

struct file_pool;
struct http_engine;
struct object_client;

struct penstock_cancel {
	atomic_int flag;
};

struct penstock_transfer {
	struct http_engine *engine;

	/* The caller's options; constant. */
	unsigned max_connections;
	struct store_place places[2]; /* s3://, gs:// */
	struct strlist texts; /* the strings of `places` */

	/* The lock protects `clients` and `files`, which are NULL until first used and are then
	 * kept until the handle is freed. */
	pthread_mutex_t lock;
	struct object_client *clients[2];
	struct file_pool *files;
};

/* Copies the caller's struct `given`, which may be NULL, to `own`. Both structs begin with their
 * size; `size` is the size of `own`. `what` names the struct in the error. Fails with
 * PENSTOCK_E_INVALID if the size of `given` is invalid, and with PENSTOCK_E_UNSUPPORTED if a member
 * of `given` that `own` lacks is not zero. */
int library_adopt(
	void *own, size_t size, const void *given, const char *what, struct penstock_error *err);

/* Copies `own`, which has `size` bytes, to the caller's struct `to`, except the members that `to`
 * lacks. Both structs begin with their size; the size in `to` stays. */
void library_give(void *to, const void *own, size_t size);

/* Sets `*out` to the client for s3:// or gs://, which is opened at its first use and owned by
 * `t`. */
int library_client(struct penstock_transfer *t, bool google, const atomic_int *cancel,
	struct object_client **out, struct penstock_error *err);
/* Creates another handle with the same options, except `cancel`, for a child after fork(). */
int library_transfer_again(struct penstock_transfer **out, const struct penstock_transfer *of,
	struct penstock_error *err);
/* Passes the log of this process to the callback of penstock_set_log(). Without a callback the log
 * is silent. */
void library_log_begin(void);

#endif
