/* What single and multipart uploads share: a body on its way, and its guard. */
#ifndef TRANSFER_PUT_INTERNAL_H
#define TRANSFER_PUT_INTERNAL_H

#include "s3/chunked.h"
#include "transfer/objects_internal.h"

/* `length` bytes of memory or of a file from `offset`. Read on the engine thread while it is sent. */
struct put_body {
	const char *data; /* NULL: from `fd` */
	int fd;
	uint64_t offset;
	uint64_t length;
	bool last; /* with its last byte the object becomes visible */
	bool (*still_valid)(void *cookie);
	object_progress_fn progress;
	void *cookie; /* of both */

	/* Set by put_body_attach(). */
	enum guard guard;
	enum checksum_kind kind; /* of the guard */
	bool inline_body;	 /* small: sent from memory with the headers */
	bool chunked;
	char *small;	     /* owned */
	struct checksum sum; /* of what is sent: trailer or MD5 */
	uint8_t digest[CHECKSUM_MAX_SIZE];
	/* Where the sending stands. */
	uint64_t sent;
	uint64_t chunk_left;
	bool in_chunk;
	bool ended;
	char frame[CHUNKED_TAIL_SIZE];
	size_t frame_at;
	size_t frame_len;
};
void put_body_release(struct put_body *body);
/* Makes it the body of `op`, with the headers of its guard. */
int put_body_attach(
	struct s3_op *op, struct put_body *body, enum guard guard, struct penstock_error *err);
/* "penstock/…" answered: our own store takes trailers, so files need to be read only once. */
void put_learn_store(struct object_client *client, const struct http_reply *reply);
/* The checksum (of `kind`) of the whole body into `digest`, by reading it. */
int put_body_digest(struct put_body *body, struct penstock_error *err);
int put_body_md5(struct put_body *body, uint8_t digest[static CHECKSUM_MAX_SIZE],
	struct penstock_error *err);
/* After success: does the store have what was sent? PENSTOCK_E_CORRUPT. */
int put_body_verify(struct s3_op *op, struct put_body *body, struct penstock_error *err);

/* An operation with a body whose hooks also ask `still_valid`. */
struct put_request {
	struct s3_op op;
	struct put_body *body;
	bool needs_etag;
	int (*sign)(void *cookie, struct http_request *request, unsigned attempt,
		struct penstock_error *err);
	enum http_verdict (*judge)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);
};
void put_request_hook(struct put_request *put, struct put_body *body);
void put_request_release(struct put_request *put);

/* What the headers of an object say of it beside its type and metadata, for `properties` of another one. */
int put_properties(const struct object_client *client, const struct http_reply *reply,
	struct strlist *out, struct penstock_error *err);
int put_headers(
	struct s3_op *op, const struct object_put_options *options, struct penstock_error *err);
int put_conditions(
	struct s3_op *op, const struct object_put_options *options, struct penstock_error *err);
bool put_needs_one_request(
	const struct object_client *client, const struct object_put_options *options);
void put_nothing_to_match(const struct s3_op *op, const struct object_put_options *options,
	struct penstock_error *err);
bool put_wants_bare_etag(struct object_client *client, const char *bucket, const char *key,
	const struct object_put_options *options);
bool put_guard_refused(const struct s3_op *op, const struct penstock_error *err);

int put_in_parts(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

#endif
