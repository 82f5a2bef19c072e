/*
 * One upload in parts, as parts.c (a file) and stream.c (a stream) drive it:
 *
 *	upload_init, upload_start
 *	for each part: upload_collect, upload_part_start
 *	upload_settle, upload_complete, upload_release
 */
#ifndef TRANSFER_PUT_PARTS_H
#define TRANSFER_PUT_PARTS_H

#include "transfer/put/send_delta.h"
#include "transfer/put/internal.h"
#include "transfer/put/resume.h"

#define STREAM_PARALLEL 3 /* parts of a stream held at a time, if there is memory for them */

struct s3_part;

struct part_result {
	uint64_t length;
	char etag[OBJECT_ETAG_SIZE];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char checksum[CHECKSUM_TEXT_SIZE]; /* "" unless the store returned it */
	bool recorded; /* in the journal of an earlier call */
	bool listed; /* the store has it: by its list, or by its reply to the part */
};

/* A part in flight. */
struct part_slot {
	struct put_request put;
	struct put_body body;
	struct upload *upload;
	char *memory; /* of a part of a stream; reused */
	int spool; /* a file in place of `memory` for large parts; -1 if missing */
	unsigned number; /* 0: empty */
	atomic_bool flying;
	bool failed;
	bool refused;
	bool copied; /* requested as a copy from the replaced object */
	bool uncopied; /* the copy failed */
};

struct upload {
	struct object_ref at;
	int fd; /* a file, or the source if `stream`; -1 if all parts are copied */
	bool stream; /* of unknown length: parts grow, and are held until they are sent */
	bool ended; /* end of the stream */
	uint64_t size; /* of a stream: bytes so far */
	uint64_t part_size; /* unused for a stream */
	unsigned parts; /* of a stream: parts so far */
	const struct object_put_options *options;
	enum guard guard;
	char *id;
	struct part_result *results;
	struct part_slot *slots;
	unsigned n_slots;
	int64_t began_ms; /* of the parts of this call */
	atomic_ullong moved; /* bytes of its parts that the store has confirmed */
	struct fan fan;
	bool refused;
	struct put_resume resume;
	struct put_delta *delta; /* NULL: all parts have one size, and are sent or copied */
	struct object_ref from; /* of the parts that the store copies; key NULL if there is none */
	const char *from_etag;
	struct buf complete; /* the request's body */
	uint8_t digest[CHECKSUM_MAX_SIZE]; /* of the whole object */
};

/* put_in_parts() with parts that the store copies. */
int put_parts_of(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct put_delta *delta, struct object_info *info,
	struct penstock_error *err);

/* The same with parts of `from` only, as long as that has this ETag. */
int put_parts_copied(struct object_ref at, uint64_t size, const struct object_put_options *options,
	struct object_ref from, const char *etag, struct object_info *info,
	struct penstock_error *err);

int upload_init(struct upload *u, unsigned slots, struct penstock_error *err);
void upload_release(struct upload *u);
/* Starts the upload; u->id is its name then. */
int upload_start(struct upload *u, struct penstock_error *err);
/* Returns true if nothing of the upload is left. */
bool upload_abort(struct upload *u);
/* Verifies and records the parts that have ended, and empties their slots. `*free_slot` is NULL if
 * all are in flight. */
int upload_collect(struct upload *u, struct part_slot **free_slot, struct penstock_error *err);
/* Sends a part; for a stream, slot->body has its bytes. */
int upload_part_start(
	struct upload *u, struct part_slot *slot, unsigned number, struct penstock_error *err);
/* Waits for the parts in flight, and collects each as it ends. */
int upload_settle(struct upload *u, struct penstock_error *err);
/* Calls `each` for each part that the store has. */
int upload_list_parts(struct upload *u, void (*each)(struct upload *u, const struct s3_part *part),
	struct penstock_error *err);
/* Sends the Complete, which makes the object visible. */
int upload_complete(struct upload *u, struct object_info *info, struct penstock_error *err);

#endif
