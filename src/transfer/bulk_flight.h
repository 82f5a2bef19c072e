/*
 * A small item on its way without a thread of its own: one request that the engine carries out. It is
 * prepared on the thread that pushes, and ends on the engine's:
 *
 *	bulk_flight_prepare() -> waits for its turn -> submitted -> done: verified, written -> the task ends
 *
 * What the straight way does not cover (a store that refuses checksums, an expired token, damaged bytes, a
 * condition) is left to a worker and the blocking calls, which know all of it.
 */
#ifndef TRANSFER_BULK_FLIGHT_H
#define TRANSFER_BULK_FLIGHT_H

#include "transfer/bulk_internal.h"
#include "transfer/put_internal.h"

struct bulk_flight {
	struct put_request put; /* first: it is the cookie of its request's hooks */
	struct put_body body;
	struct bulk_task *task;
	bool on_twin; /* which engine has its request */
	bool plain;   /* a resource of a web server, not an object */

	/* The client's, behind ours. */
	enum http_verdict (*judge)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);

	char *data; /* all of a body that is small, both ways */
	size_t size, got;
	int fd;		      /* of the file, both ways */
	struct bulk_dir *dir; /* of a file that is made */
	char *part;	      /* the name under which it is written; NULL: it has none yet */
	struct stat st;	      /* of what is sent */
	struct checksum sum;
	enum checksum_kind kind;
	uint8_t wanted[CHECKSUM_MAX_SIZE];
	bool one_part; /* `wanted` is the MD5 of the body's MD5 */
};

/* Bytes that the texts of a request take: headers, URL, name. */
#define FLIGHT_TEXTS (4 * KIB)

enum bulk_way { BULK_STRAIGHT, BULK_ASIDE };

/* Decides, and makes `task->flight` ready. Negative: the item failed. */
int bulk_flight_prepare(struct bulk_task *task, enum bulk_way *way, struct penstock_error *err);
void bulk_flight_free(struct bulk_flight *flight);
/* Submits it, or puts it in line. Any thread. */
void bulk_flight_start(struct bulk_task *task);

/* By kind: bulk_upload.c, bulk_download.c, bulk_copy.c. */
int bulk_upload_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_download_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_copy_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
/* After the request succeeded. BULK_ASIDE: to be done once more by a worker. */
int bulk_upload_land(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_download_land(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
int bulk_copy_land(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);

#endif
