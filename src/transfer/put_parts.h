/*
 * One upload in parts under way, as put_parts.c (a file) and put_stream.c (a stream) drive it:
 *
 *	upload_init(), upload_start(); for each part upload_free_slot(), upload_part_collect() of what it
 *	held, upload_part_start(); upload_settle(), upload_complete(); upload_release().
 */
#ifndef TRANSFER_PUT_PARTS_H
#define TRANSFER_PUT_PARTS_H

#include "transfer/put_delta.h"
#include "transfer/put_internal.h"
#include "transfer/put_resume.h"

#define STREAM_PARALLEL                                                                            \
	3 /* parts of a stream that are held at a time, where there is memory for them */

struct s3_part;

struct part_result {
	uint64_t length;
	char etag[OBJECT_ETAG_SIZE];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char checksum[CHECKSUM_TEXT_SIZE]; /* "" unless the store told it back */
	bool told;			   /* by the journal of an earlier call */
	bool listed;			   /* and so by the store */
};

/* A part on its way. */
struct part_slot {
	struct put_request put;
	struct put_body body;
	struct upload *upload;
	char *memory;	 /* of a part of a stream; kept for the next */
	int spool;	 /* -1: none; the same for what is too large */
	unsigned number; /* 0: empty */
	atomic_bool flying;
	bool failed;
	bool refused;
	bool copied;   /* by the store, from what is replaced */
	bool uncopied; /* but it did not */
};

struct upload {
	struct object_client *client;
	const char *bucket;
	const char *key;
	int fd;		    /* a file; or what is read from, where `stream` */
	bool stream;	    /* of unknown length: parts grow, and are held until they are sent */
	bool ended;	    /* the stream */
	uint64_t size;	    /* of a stream: so far */
	uint64_t part_size; /* not of a stream */
	unsigned parts;	    /* of a stream: so far */
	unsigned room;	    /* in `results` */
	const struct object_put_options *options;
	enum guard guard;
	char *id;
	struct part_result *results;
	struct part_slot *slots;
	unsigned n_slots;
	struct fan fan;
	bool refused;
	struct put_resume resume;
	struct put_delta *delta;	   /* NULL: all parts are sent, and of one size */
	struct buf complete;		   /* the request's body */
	uint8_t digest[CHECKSUM_MAX_SIZE]; /* of the whole object */
};

/* put_in_parts(), with parts that the store copies. */
int put_parts_of(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct put_delta *delta,
	struct object_info *info, struct penstock_error *err);

int upload_init(struct upload *u, unsigned slots, struct penstock_error *err);
void upload_release(struct upload *u);
/* Asks for the upload; u->id is then its name. */
int upload_start(struct upload *u, struct penstock_error *err);
/* Whether nothing of it is left. */
bool upload_abort(struct upload *u);
/* One with nothing on its way; NULL: none. */
struct part_slot *upload_free_slot(struct upload *u);
/* Of a stream, slot->body is what is sent. */
int upload_part_start(
	struct upload *u, struct part_slot *slot, unsigned number, struct penstock_error *err);
/* Checks and records a part that came back, and empties its slot. */
int upload_part_collect(struct upload *u, struct part_slot *slot, struct penstock_error *err);
/* Waits for what is on its way, and takes it in. */
int upload_settle(struct upload *u, struct penstock_error *err);
/* Gives each part that the store has to `each`. */
int upload_list_parts(struct upload *u, void (*each)(struct upload *u, const struct s3_part *part),
	struct penstock_error *err);
/* Whether the object is what all parts together make, whatever became of the request that made it. */
bool upload_is_there(struct upload *u, struct object_info *info);
/* The request that makes it visible. */
int upload_complete(struct upload *u, struct object_info *info, struct penstock_error *err);

#endif
