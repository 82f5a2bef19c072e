/* Shared by the files of this folder. */
#ifndef TRANSFER_FILE_INTERNAL_H
#define TRANSFER_FILE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transfer/file_reader.h"
#include "transfer/location.h"
#include "transfer/reads.h"

/* ---- source.c: the bytes of a file ---- */

struct file_source {
	atomic_uint refs;
	enum { FILE_LOCAL, FILE_OBJECT, FILE_WEB } kind;
	struct object_client *client; /* client for an object */
	char bucket[sizeof(((struct location *)NULL)->bucket)];
	char *key; /* key of an object, a URL, or a path */
	char *shown; /* name for messages: a URL without its query, which may be a secret */
	int fd; /* descriptor of a local file; else -1 */
	uint64_t size;
	char version[OBJECT_ETAG_SIZE];
};

/* Parses the URL, and opens a local file. Objects and web resources need file_source_find(),
 * too. */
int file_source_new(
	struct file_source **out, const struct file_options *options, struct penstock_error *err);
struct file_source *file_source_ref(struct file_source *source);
/* Frees the source after the last reference. */
void file_source_unref(struct file_source *source);
/* Requests size and version of an object or a web resource. */
int file_source_find(struct file_source *source, struct http_engine *engine,
	const atomic_int *cancel, struct penstock_error *err);
/* Returns a read of `length` bytes from `offset` on into `data`. */
struct object_read file_source_read(
	const struct file_source *source, uint64_t offset, size_t length, void *data);
/* Reads from a local file. */
int file_source_pread(const struct file_source *source, uint64_t offset, void *data, size_t size,
	struct penstock_error *err);

/* ---- pool.c: threads, and their jobs ---- */

struct file_job {
	/* Set by the caller. */
	struct file_source *source; /* a reference, held until the end of the job */
	struct object_read *items; /* borrowed; NULL to run file_source_find() */
	size_t n;
	/* The job reads ahead, and runs after the jobs that a caller waits for. */
	bool ahead;
	void (*release)(struct file_job *job); /* frees an abandoned job */

	atomic_int cancel;
	/* Under the lock of the pool. */
	enum { JOB_NEW, JOB_WAITING, JOB_RUNNING, JOB_ENDED } state;
	bool abandoned;
	int r;
	struct penstock_error error;
	struct file_job *prev, *next;
};

int file_pool_add(struct file_pool *pool, struct file_job *job, struct penstock_error *err);
/* Waits at most `ms` and returns true if the job has ended. */
bool file_pool_wait(struct file_pool *pool, struct file_job *job, int ms);
/* Cancels a job, whether it was added or not, waits for its end, and frees its members. */
void file_pool_cancel(struct file_pool *pool, struct file_job *job);
/* Cancels the job and releases it; a running job is released when it ends. */
void file_pool_abandon(struct file_pool *pool, struct file_job *job);

#endif
