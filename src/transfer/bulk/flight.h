/*
 * A small item in flight: one request of the engine, without a thread of its own. A flight is
 * prepared on the thread that pushes, and ends on the engine's thread:
 *
 *	bulk_flight_prepare() -> queued -> submitted -> done: verified, written -> the task ends
 *
 * Special cases (a store that refuses checksums, an expired token, damaged bytes, a condition) are
 * left to a worker and the blocking calls.
 */
#ifndef TRANSFER_BULK_FLIGHT_H
#define TRANSFER_BULK_FLIGHT_H

#include "transfer/bulk/internal.h"
#include "transfer/put/internal.h"

struct bulk_flight {
	struct put_request put; /* first: it is the cookie of the request's hooks */
	struct put_body body;
	struct bulk_task *task;
	bool on_twin; /* the request belongs to the second engine */
	bool plain; /* a resource of a web server, not an object */

	/* The client's hook, which flight_classify() calls. */
	enum http_verdict (*classify)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);

	char *data; /* the whole body of a small upload or download */
	size_t size, got;
	struct upload_source source;
	int fd; /* descriptor of a new file */
	struct bulk_dir *dir; /* directory of a new file */
	char *part; /* the temporary name; NULL for an unnamed file */
	struct checksum sum;
	enum checksum_kind kind;
	uint8_t wanted[CHECKSUM_MAX_SIZE];
	bool one_part; /* `wanted` is the MD5 of the body's MD5 */
};

/* Bytes of a request's strings: headers, URL, name. */
#define FLIGHT_TEXTS (4 * KIB)

enum bulk_way { BULK_STRAIGHT, BULK_TO_WORKER };

/* Sets `*way`, and `task->flight` if `*way` is BULK_STRAIGHT. Fails if the item cannot be
 * transferred at all. */
int bulk_flight_prepare(struct bulk_task *task, enum bulk_way *way, struct penstock_error *err);
void bulk_flight_free(struct bulk_flight *flight);
/* Submits or queues the task's flight. May be called from any thread. */
void bulk_flight_start(struct bulk_task *task);

/* Prepare a flight, by kind: upload.c, download.c, copy.c. Called by bulk_flight_prepare(). */
int bulk_upload_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_download_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_copy_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
/* Called after the request succeeded. BULK_TO_WORKER in `*way` means that a worker must repeat the
 * item. */
int bulk_upload_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_download_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_copy_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);

#endif
