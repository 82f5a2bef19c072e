/* What the files behind the public headers share. */
#ifndef LIBRARY_LIBRARY_H
#define LIBRARY_LIBRARY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "net/credentials.h"

struct http_engine;
struct object_client;

struct penstock_cancel {
	atomic_int flag;
};

/* A kind of store that was asked for. */
struct library_store {
	struct s3_settings settings;
	struct object_client *client; /* NULL: not yet */
};

struct penstock_transfer {
	struct http_engine *engine;

	/* What was given; never changes. */
	char *endpoint_url;
	char *region;
	char *profile;
	char *access_key_id;
	char *secret_access_key;
	char *session_token;
	char *google_endpoint_url;
	char *google_key_file;
	bool anonymous;

	/* Under lock; once made they stay until the end. */
	pthread_mutex_t lock;
	struct library_store stores[2]; /* s3://, gs:// */
};

/*
 * Takes over what the caller's header knows of a struct that begins with its size; what only a newer one knows must
 * not be asked for. `size` is that of ours; `given` may be NULL.
 */
int library_adopt(
	void *own, size_t size, const void *given, const char *what, struct penstock_error *err);

/* A library says nothing on its own: until penstock_set_log() the log of this process is silent. */
void library_log_begin(void);

#endif
