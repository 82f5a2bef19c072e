/* What the files of src/server share: one request from its first line to its reply. */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/limits.h"
#include "s3/arena.h"
#include "s3/checksum.h"
#include "s3/chunked.h"
#include "s3/errors.h"
#include "s3/sigv4.h"
#include "store/store.h"

struct worker_pool;
struct hasher;

struct server {
	/* constant while it runs */
	struct store *store;
	struct MHD_Daemon *daemon;
	struct MHD_Daemon *near; /* for those on this machine; NULL: none */
	struct sockaddr_un near_name;
	struct worker_pool *workers;
	struct hasher *hasher;
	char *access_key_id;
	char *secret_access_key;
	char *url;
	pthread_key_t signer; /* a struct sigv4 per thread */

	atomic_uint active;
	atomic_uint waiting; /* suspended connections */
	atomic_bool stopping;
	atomic_llong last_activity;
	atomic_ullong next_id;
};

/* --- the body of a request (body.c) --------------------------------------------------------- */

enum body_kind { BODY_NONE, BODY_DOCUMENT, BODY_OBJECT };

struct request_body {
	enum body_kind kind;
	enum chunked_mode mode;
	struct chunked_decoder decoder;
	bool decoding;
	uint64_t declared; /* decoded bytes, or STORE_SIZE_UNKNOWN */
	uint64_t received;
	uint64_t limit;
	struct buf document;
	struct store_body *object;
	struct checksum md5, sha256, extra;
	bool has_md5, has_sha256, has_extra;
	bool hash_late; /* the MD5 is left to the hasher, which expects it */
	enum checksum_kind extra_kind;
	char extra_wanted[CHECKSUM_TEXT_SIZE]; /* "": none came */
	bool extra_in_trailer;
	/* Results of body_finish(). */
	/* Hexadecimal MD5, BODY_OBJECT only; with `hash_late` there when the hasher was through. */
	char etag[33];
	char extra_value[CHECKSUM_TEXT_SIZE]; /* base64 */
};

/* --- requests ------------------------------------------------------------------------------ */

#define REQUEST_HEADERS_MAX 128 /* header lines; S3's clients send about 20 */
#define REQUEST_ID_SIZE	    17

enum request_phase { REQUEST_NEW, REQUEST_BODY, REQUEST_DISCARD, REQUEST_WAITING, REQUEST_READY };

struct request;
/* Sets a reply or an error. */
typedef void (*request_fn)(struct request *req);

struct request {
	struct server *server;
	struct MHD_Connection *connection;
	enum request_phase phase;
	char id[REQUEST_ID_SIZE];
	int64_t begun_ns;

	/* As it came. `path` and `query` are one owned text, still encoded; `query` may be NULL. */
	char *path;
	const char *query;
	const char *method;
	bool head;
	bool seen;	/* counted in server->active */
	bool no_memory; /* something of it could not be copied: the reply is 503 */
	struct sigv4_header headers[REQUEST_HEADERS_MAX];
	size_t n_headers;

	/* Decoded. */
	char bucket[64]; /* "": the service itself */
	char *key;	 /* NULL: the bucket itself */
	size_t key_len;

	struct sigv4_auth auth;
	struct sigv4_chain chain;
	struct request_body body;

	request_fn finish; /* on the event loop, when the body is complete */
	request_fn after;  /* on the event loop, after having waited; NULL: the reply is there */
	uint64_t discard_limit; /* bytes of a refused body that are still read */

	request_fn job;		  /* what a worker does with it; owned by the pool while it waits */
	struct request *next_job; /* likewise: a request is in the queue once */

	/* What operations keep between their steps. */
	struct store_put put;
	struct store_part_put part;
	struct buf stored_headers;
	const char *upload_id; /* in the arena */
	struct arena arena;    /* small strings that live as long as the request */

	/* The reply. */
	unsigned status;
	struct MHD_Response *response;
};

/* A copy that lives as long as the request; NULL: out of memory. */
char *request_strdup(struct request *req, const char *s);
/* The value of a header, joined by nothing: the first one. NULL: absent. */
const char *request_header(const struct request *req, const char *name);
/* The decoded value of a query parameter, living as long as the request; NULL: absent. */
const char *request_query(struct request *req, const char *name);
bool request_has_query(const struct request *req, const char *name);
/* A number in a query parameter; false (with a reply set) if it is there and malformed. */
bool request_query_number(
	struct request *req, const char *name, uint64_t min, uint64_t max, uint64_t *value);

/*
 * Continue elsewhere. `fn` runs on a worker thread while the connection is suspended, sets the reply
 * and ends with request_wake(). To be the last thing that a step does.
 */
void request_work(struct request *req, request_fn fn);
/* Suspends; whoever was given the request ends the wait with request_wake(), and then `after` (may
 * be NULL) sets the reply. False with a reply set: the server is stopping. */
bool request_suspend(struct request *req, request_fn after);
void request_wake(struct request *req);

/* Finds the operation, checks its headers, prepares the body; sets `finish` or a reply. */
void request_route(struct request *req);
/* Verifies who sent it; false with a reply set. */
bool request_authenticate(struct request *req);
/* The same for presigned URLs of Signature Version 2 (auth_v2.c). */
bool request_is_v2(const struct request *req);
enum s3_error request_verify_v2(struct request *req);
/* This thread's. NULL: out of memory. */
struct sigv4 *server_signer(struct server *server);

/* --- body.c -------------------------------------------------------------------------------- */

/* Reads the headers that describe the body. False with a reply set. */
bool body_begin(struct request *req, enum body_kind kind, uint64_t limit);
/* False with a reply set. */
bool body_feed(struct request *req, const void *data, size_t len);
/* Nothing more of it is to come. */
bool body_is_whole(const struct request *req);
/* Checks lengths, signatures and checksums; false with a reply set. */
bool body_finish(struct request *req);
void body_release(struct request *req);

/* --- reply.c ------------------------------------------------------------------------------- */

static inline bool request_replied(const struct request *req)
{
	return req->response != NULL;
}
void reply_error(struct request *req, enum s3_error error);
void reply_errorf(struct request *req, enum s3_error error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* An error that is not in the table of s3/errors.h. */
void reply_code(struct request *req, unsigned status, const char *code, const char *message);
/* What a failed call of the store means; releases err. */
void reply_store_error(struct request *req, enum store_status status, struct penstock_error *err);
/* An XML document that was not understood, and how far that is known; releases err. */
void reply_document_error(struct request *req, enum s3_error problem, struct penstock_error *err);
/* A failure of our own; releases err. */
void reply_failure(struct request *req, struct penstock_error *err);
void reply_empty(struct request *req, unsigned status);
/* Takes the contents over. */
void reply_xml(struct request *req, unsigned status, struct buf *xml);
void reply_response(struct request *req, unsigned status, struct MHD_Response *response);
/* To the reply that was set; name and value are copied. */
void reply_header(struct request *req, const char *name, const char *value);
void reply_headerf(struct request *req, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void reply_etag(struct request *req, const char *etag);

/* --- headers.c: what is stored with an object ------------------------------------------------ */

/* Appends the pairs to be stored from the request's headers. False with a reply set. */
bool headers_collect(struct request *req, struct buf *out);
/* If-Match and If-None-Match of a write; the strings live in the request. False with a reply set. */
bool headers_condition(struct request *req, struct store_condition *out);
/* Removes quotes in place, if there are. */
char *etag_unquote(char *etag);
/* x-amz-checksum-… of a reply. */
void reply_checksum(struct request *req, const struct store_checksum *checksum);

/* --- operations, each set as `finish` by route.c or called by it ----------------------------- */

void op_list_buckets(struct request *req);
void op_create_bucket(struct request *req);
void op_head_bucket(struct request *req);
void op_delete_bucket(struct request *req);
void op_bucket_location(struct request *req);
void op_bucket_versioning(struct request *req);
void op_list_objects(struct request *req);
void op_list_objects_v2(struct request *req);
void op_list_versions(struct request *req);
void op_list_uploads(struct request *req);
void op_delete_objects(struct request *req);
void op_acl(struct request *req);
void op_put_acl(struct request *req);
void op_tagging_object(struct request *req);

void op_get_object(struct request *req);
void op_object_attributes(struct request *req);
void op_put_object(struct request *req);
void op_put_object_begin(struct request *req);
void op_copy_object(struct request *req);
void op_delete_object(struct request *req);

void op_create_upload(struct request *req);
void op_upload_part_begin(struct request *req);
void op_upload_part(struct request *req);
void op_upload_part_copy(struct request *req);
void op_list_parts(struct request *req);
void op_complete_upload(struct request *req);
void op_abort_upload(struct request *req);

/* --- workers.c ----------------------------------------------------------------------------- */

int workers_start(struct worker_pool **out, struct penstock_error *err);
/* Finishes what was queued. */
void workers_stop(struct worker_pool *pool);
void workers_submit(struct worker_pool *pool, request_fn fn, struct request *req);

/* --- hash.c -------------------------------------------------------------------------------- */

/*
 * The MD5 of parts and of objects of middling size, taken when they are complete and of several at once (s3/md5_lanes.h):
 * for each of its own it would be what an upload costs most.
 */
int hasher_start(struct hasher **out, struct penstock_error *err);
/* Finishes what was queued. */
void hasher_stop(struct hasher *hasher);
/* A body begins that wants to be hashed when it is complete. False: hash it yourself. */
bool hasher_expect(struct hasher *hasher);
/* It was expected, and will not be submitted. */
void hasher_forget(struct hasher *hasher);
/* The expected body of a suspended request is complete: sets its ETag, then calls `next` on another thread. */
void hasher_submit(struct hasher *hasher, request_fn next, struct request *req);

#endif
