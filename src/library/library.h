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

	/* Protected by the lock; NULL until first used, then kept until the handle is freed. */
	pthread_mutex_t lock;
	struct object_client *clients[2];
	struct file_pool *files;
};

/* Copies the members that the caller's header knows of a struct that starts with its size; members
 * that only a newer library knows must be zero. `size` is that of `own`; `given` may be NULL. */
int library_adopt(
	void *own, size_t size, const void *given, const char *what, struct penstock_error *err);

/* Copies the members that the caller's header knows to the caller's struct. The first member of
 * both structs is the size. */
void library_give(void *to, const void *own, size_t size);

/* The client for s3:// or gs://, opened at its first use. */
int library_client(struct penstock_transfer *t, bool google, const atomic_int *cancel,
	struct object_client **out, struct penstock_error *err);
/* Another handle with the same options, for a child after fork(). */
int library_transfer_again(struct penstock_transfer **out, const struct penstock_transfer *of,
	struct penstock_error *err);
/* A library prints nothing by itself: the log of this process is silent until
 * penstock_set_log(). */
void library_log_begin(void);

#endif
