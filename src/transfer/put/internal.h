/* Shared by single and multipart uploads: a body and its checksum. */
#ifndef TRANSFER_PUT_INTERNAL_H
#define TRANSFER_PUT_INTERNAL_H

#include "s3/sign/chunked.h"
#include "transfer/client/internal.h"

/* `length` bytes of memory, or of a file from `offset`. The engine's thread reads the bytes as it
 * sends them. */
struct put_body {
	const char *data; /* NULL if the bytes are in the file `fd` */
	int fd;
	uint64_t offset;
	uint64_t length;
	bool last; /* the object becomes visible with the last byte */
	bool (*still_valid)(void *cookie);
	object_progress_fn progress;
	void *cookie; /* cookie of both callbacks */

	/* Set by put_body_attach(). */
	enum guard guard;
	enum checksum_kind kind; /* kind of the guard's checksum */
	bool inline_body; /* small: sent from memory with the headers */
	bool chunked;
	char *small; /* owned */
	struct checksum sum; /* checksum of the sent bytes: trailer or MD5 */
	uint8_t digest[CHECKSUM_MAX_SIZE];
	/* Progress of the sending. */
	uint64_t sent;
	uint64_t chunk_left;
	bool in_chunk;
	bool ended;
	char frame[CHUNKED_TAIL_SIZE];
	size_t frame_at;
	size_t frame_len;
};
void put_body_release(struct put_body *body);
/* Starts again with the first byte; reports the bytes sent so far as negative progress. */
int put_body_rewind(void *cookie);
/* Makes `body` the body of `op`, and adds the headers of its guard. */
int put_body_attach(
	struct s3_op *op, struct put_body *body, enum guard guard, struct penstock_error *err);
/* Reads the whole body for its checksum. */
int put_body_sum(const struct put_body *body, enum checksum_kind kind,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err);
/* Compares a digest of the guard's kind with the checksum in a reply (NULL if there is none). */
enum put_sum { PUT_SUM_UNKNOWN, PUT_SUM_SAME, PUT_SUM_DIFFERS };
enum put_sum put_compare_sum(
	const struct object_client *client, const char *checksum, const uint8_t *digest);
/* Returns true if the ETag is the MD5 of the body, which is read for this. */
bool put_body_has_md5(const struct put_body *body, const char *etag);
/* Called after a success: fails with PENSTOCK_E_CORRUPT if the checksum in the reply, else the MD5
 * in its ETag, shows that the store has other bytes than the body. */
int put_body_verify(struct s3_op *op, struct put_body *body, struct penstock_error *err);

/* An operation with a body, whose hooks also call `still_valid`. */
struct put_request {
	struct s3_op op;
	struct put_body *body;
	bool needs_etag;
	int (*sign)(void *cookie, struct http_request *request, unsigned attempt,
		struct penstock_error *err);
	enum http_verdict (*classify)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);
};
/* Limit of the time without a byte: the store copies or assembles the bytes before it replies. */
#define PUT_STALL_MS (10 * 60 * 1000)
void put_request_hook(struct put_request *put, struct put_body *body);
void put_request_release(struct put_request *put);

/* Collects an object's headers other than type and metadata, for `properties` of another object. */
int put_properties(const struct object_client *client, const struct http_reply *reply,
	struct strlist *out, struct penstock_error *err);
/* Adds a header for each "name=value"; `prefix` precedes the names. `pairs` may be NULL. */
void put_pairs(struct s3_op *op, const char *prefix, const struct strlist *pairs);
void put_headers(struct s3_op *op, const struct object_put_options *options);
/* Makes `op` observe the cancel flag in `options`. Removes its gate if the upload is ungated. */
void put_control(struct s3_op *op, const struct object_put_options *options);
void put_conditions(struct s3_op *op, const struct object_put_options *options);
bool put_needs_one_request(
	const struct object_client *client, const struct object_put_options *options);
void put_nothing_to_match(const struct s3_op *op, const struct object_put_options *options,
	struct penstock_error *err);
/* For an If-Match that the store has refused: returns true if the object has the expected ETag. */
bool put_finds_expected(struct object_ref at, const struct object_put_options *options);
/* Like put_finds_expected(), for an ETag that was sent with quotes. Returns true if the request
 * should be retried; If-Match has no quotes from now on. */
bool put_wants_bare_etag(struct object_ref at, const struct object_put_options *options);
bool put_guard_refused(const struct s3_op *op, const struct penstock_error *err);

int put_in_parts(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

/* Does the work of object_put_file() without `delta_dir`: one PUT, or parts. `options` is not
 * NULL. */
int put_file(struct object_ref at, int fd, uint64_t size, const struct object_put_options *options,
	struct object_info *info, struct penstock_error *err);

#endif
