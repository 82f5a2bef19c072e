/*
 * One upload in parts. parts.c (for a file) and stream.c (for a stream) call in this order:
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
	bool recorded; /* the journal of an earlier call has the part */
	bool listed; /* the store has the part: its list has it, or its reply confirmed it */
};

/* A part in flight. */
struct part_slot {
	struct put_request put;
	struct put_body body;
	struct upload *upload;
	char *memory; /* holds a part of a stream; reused */
	int spool; /* a file in place of `memory` for large parts; -1 if there is none */
	unsigned number; /* 0 if the slot is empty */
	atomic_bool flying;
	bool failed;
	bool refused;
	bool copied; /* requested as a copy from the replaced object */
	bool uncopied; /* the copy failed */
};

struct upload {
	struct object_ref at;
	int fd; /* the file, or the input if `stream`; -1 if all parts are copied */
	bool stream; /* the length is unknown: parts grow, and are held until they are sent */
	bool ended; /* end of the stream */
	uint64_t size; /* size of the file, or bytes of the stream so far */
	uint64_t part_size; /* unused for a stream */
	unsigned parts; /* number of parts; for a stream, parts so far */
	const struct object_put_options *options;
	enum guard guard;
	char *id;
	struct part_result *results;
	struct part_slot *slots;
	unsigned n_slots;
	int64_t began_ms; /* time at which this call began to send parts */
	atomic_ullong moved; /* bytes of the parts that the store has confirmed in this call */
	struct fan fan;
	bool refused;
	struct put_resume resume;
	/* NULL if all parts have one size and all are sent or all are copied */
	struct put_delta *delta;
	/* source of the parts that the store copies; its key is NULL if there are none */
	struct object_ref from;
	const char *from_etag;
	struct buf complete; /* body of the Complete request */
	uint8_t digest[CHECKSUM_MAX_SIZE]; /* checksum of the whole object */
};

/* Like put_in_parts(), with some parts copied by the store. */
int put_parts_of(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct put_delta *delta, struct object_info *info,
	struct penstock_error *err);

/* Like put_in_parts(), with all parts copied from `from`. Fails if `from` no longer has this
 * ETag. */
int put_parts_copied(struct object_ref at, uint64_t size, const struct object_put_options *options,
	struct object_ref from, const char *etag, struct object_info *info,
	struct penstock_error *err);

int upload_init(struct upload *u, unsigned slots, struct penstock_error *err);
void upload_release(struct upload *u);
/* Starts the upload, and sets u->id to the id that the store returns. */
int upload_start(struct upload *u, struct penstock_error *err);
/* Aborts the upload. Returns true if the store has no part of the upload any more. Returns false if
 * the abort failed, or if there was no upload to abort. */
bool upload_abort(struct upload *u);
/* Verifies and records the parts that have ended, and empties their slots. `*free_slot` is NULL if
 * all slots are in flight. */
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
