/* Shared by the files that implement the public headers. */
#ifndef LIBRARY_LIBRARY_H
#define LIBRARY_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "net/credentials/credentials.h"

struct http_engine;
struct object_client;

struct penstock_cancel {
	atomic_int flag;
};

/* A store in use. */
struct library_store {
	struct s3_settings settings;
	struct object_client *client; /* NULL until first used */
};

struct penstock_transfer {
	struct http_engine *engine;

	/* The caller's options; constant. */
	char *endpoint_url;
	char *region;
	char *profile;
	char *access_key_id;
	char *secret_access_key;
	char *session_token;
	char *google_endpoint_url;
	char *google_key_file;
	bool anonymous;

	/* Under the lock; once created they stay until the end. */
	pthread_mutex_t lock;
	struct library_store stores[2]; /* s3://, gs:// */
};

/* Copies the members that the caller's header knows of a struct that starts with its size; members
 * that only a newer library knows must be zero. `size` is that of ours; `given` may be NULL. */
int library_adopt(
	void *own, size_t size, const void *given, const char *what, struct penstock_error *err);

/* A library prints nothing by itself: the log of this process is silent until
 * penstock_set_log(). */
/* The client for s3:// or gs://, opened at its first use. */
int library_client(struct penstock_transfer *t, bool google, const atomic_int *cancel,
	struct object_client **out, struct penstock_error *err);
void library_log_begin(void);

#endif
