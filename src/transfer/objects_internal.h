/*
 * What the files behind objects.h share: the client, and one S3 request on its way (`struct s3_op`).
 *
 *	_cleanup_(s3_op_release) struct s3_op op;
 *
 *	r = s3_op_init(&op, client, "GET", bucket, key, err);
 *	if (r == 0)
 *		r = s3_op_query(&op, "uploads", NULL, err);
 *	if (r == 0)
 *		r = s3_op_perform(&op, err);
 *
 * Errors of the store come back with its Code and message, the object's name and a hint.
 */
#ifndef TRANSFER_OBJECTS_INTERNAL_H
#define TRANSFER_OBJECTS_INTERNAL_H

#include <pthread.h>

#include "net/credentials.h"
#include "net/http.h"
#include "s3/checksum.h"
#include "s3/errors.h"
#include "s3/sigv4.h"
#include "transfer/objects.h"

/* How the bytes of an upload are guarded on their way. */
enum guard {
	GUARD_HEADER,  /* x-amz-checksum-…, known before the body is sent */
	GUARD_TRAILER, /* the same behind the body, in one pass */
	GUARD_MD5      /* nothing is sent; the ETag is compared */
};

/* One for each engine that has requests of the client: nobody waits. */
#define CLIENT_SIGNERS 2
struct client_signer {
	pthread_mutex_t lock;
	struct sigv4 sigv4; /* under the lock */
};

struct object_client {
	struct http_engine *engine;
	struct credentials_provider *credentials;
	bool https;
	bool aws;
	bool google; /* transfer/google.h */
	bool virtual_host;
	const struct google_key *google_key;
	char *project;	 /* NULL: none */
	char *authority; /* "host:port"; the port only where it is not the scheme's */
	char *base_path; /* "" or "/prefix" */
	char *region;
	struct client_signer signers[CLIENT_SIGNERS];
	/* Of the first two: CRC64NVME, for Google CRC32C. */
	enum checksum_kind guard_kind;
	atomic_int guard;    /* enum guard; follows from what the store does */
	atomic_llong skew_s; /* the store's clock less ours, where it complained */
	atomic_llong patience_ms;
	const atomic_int *_Atomic patient_cancel; /* while there is patience */
	const struct http_gate *_Atomic gate;	  /* NULL: none */

	atomic_bool bare_etags;	  /* If-Match wants its ETag without quotes: Ceph before 18 */
	atomic_bool own_kind;	  /* it says that it is a penstock */
	atomic_bool swept;	  /* journals of uploads were looked at for old ones */
	atomic_bool swept_sent;	  /* and records of what was sent */
	atomic_bool no_part_copy; /* it has no UploadPartCopy */
	atomic_bool md5_etags;	  /* ETags of objects in parts were seen to be made of MD5s */
	atomic_bool odd_etags;	  /* those of objects in parts are not made of MD5s */

	pthread_mutex_t probe_lock;
	bool probed;
	struct object_conditions conditions;
};

struct s3_op {
	struct object_client *client;
	const char *bucket; /* borrowed; NULL: the service */
	const char *key;    /* borrowed; NULL: the bucket */
	struct http_request request;
	struct http_reply reply;
	struct sigv4_header *headers; /* owned strings; all are signed */
	size_t n_headers;
	struct buf path;
	struct buf query;
	struct buf url;
	struct buf host;
	const char *payload_hash;
	char sha256[65];
	struct buf document; /* of the reply, where it is XML */
	bool may_be_error;   /* a good status may carry an Error document */
	bool skew_adjusted;
	unsigned refusals; /* attempts with credentials that the store takes for expired */
	struct credentials keys;
	char *what;
	enum s3_error error; /* of the last failed attempt */
};

int s3_op_init(struct s3_op *op, struct object_client *client, const char *method,
	const char *bucket, const char *key, struct penstock_error *err);
void s3_op_release(struct s3_op *op);
/* `value` NULL: only the name. */
int s3_op_query(struct s3_op *op, const char *name, const char *value, struct penstock_error *err);
/* NULL values are left out. */
int s3_op_header(struct s3_op *op, const char *name, const char *value, struct penstock_error *err);
/* x-amz-copy-source. */
int s3_op_copy_source(
	struct s3_op *op, const char *bucket, const char *key, struct penstock_error *err);
/* A body from memory, which is to stay; signed with its SHA-256 where that is cheap. */
int s3_op_body(struct s3_op *op, const void *data, size_t len, struct penstock_error *err);
/* The caller's flag, where there is one. */
static inline void s3_op_cancel(struct s3_op *op, const atomic_int *cancel)
{
	if (cancel)
		op->request.cancel = cancel;
}
/* Wants the reply's XML in `op->document`; an Error document in it is an error. */
void s3_op_wants_document(struct s3_op *op);
/* documents.c: a body of XML; `what` names it where it became too large. */
int s3_op_xml(
	struct s3_op *op, const struct buf *body, const char *what, struct penstock_error *err);
/* s3_op_wants_document() and s3_op_perform(). */
int s3_op_ask(struct s3_op *op, struct penstock_error *err);
/* The same for a request that begins an upload in parts; free() its id. */
int s3_op_upload_id(struct s3_op *op, char **id, struct penstock_error *err);
/* The URL alone, in op->request.url. */
int s3_op_url(struct s3_op *op, struct penstock_error *err);
/* The URL and the keys: the last step before http_submit(). s3_op_perform() does it itself. */
int s3_op_ready(struct s3_op *op, struct penstock_error *err);
int s3_op_perform(struct s3_op *op, struct penstock_error *err);

/* Size, ETag, date, version and metadata from the reply's headers. `out` is to be zeroed. */
int object_info_from_reply(
	const struct http_reply *reply, struct object_info *out, struct penstock_error *err);
/* With quotes, as ETags are kept; empty where there is none, or one that is too long. */
void object_etag_copy(char out[static OBJECT_ETAG_SIZE], const char *etag);
/* The checksum of a reply that covers the whole object: its kind, or CHECKSUM_NONE. */
enum checksum_kind object_reply_checksum(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* That, else the MD5 that the ETag of an object in one piece is; neither where nobody wants it checked. */
enum checksum_kind object_reply_digest(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* The CRC that an object in parts has of each of them: its ETag tells of parts, a header of the kind. Or NONE. */
enum checksum_kind object_reply_part_checksum(const struct http_reply *reply, const char *etag);
/* Whether the user wants downloads checked (AWS_RESPONSE_CHECKSUM_VALIDATION). */
bool object_response_checksums(void);
/* The MD5 that an ETag of 32 hexadecimal digits in quotes is; false: it is something else. */
bool object_etag_md5(const char *etag, uint8_t md5[static 16]);
/* Whether it is kept under a key, so that its ETag is not made of its bytes. */
bool object_reply_encrypted(const struct http_reply *reply);
/* The ETag of a reply where it is the MD5 of the whole object: no parts, no encryption by keys. */
bool object_reply_md5(const struct http_reply *reply, uint8_t md5[static 16]);

/*
 * Every store gives an object's ETag when it answers for it. Without one, something else answered in its
 * place (a proxy, a login page): PENSTOCK_E_PROTOCOL.
 */
int s3_op_check_etag(
	const struct s3_op *op, const struct http_reply *reply, struct penstock_error *err);

/* Several requests of one transfer at a time, submitted by one thread. */
struct fan {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned in_flight;
	atomic_int stop; /* the `cancel` of every request */
	const atomic_int *cancel;
	struct http_engine *engine;
	struct penstock_error error; /* the first */
};
void fan_init(struct fan *fan, struct http_engine *engine, const atomic_int *cancel);
void fan_release(struct fan *fan);
/*
 * Submits a request whose `done` calls fan_ended(), last. The first failure stops the others; their
 * memory may go when fan_finish() has returned.
 */
int fan_submit(struct fan *fan, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);
/* `err` NULL: success; otherwise its contents are taken. */
void fan_ended(struct fan *fan, struct penstock_error *err);
/* A failure outside of a request: stops everything. */
void fan_fail(struct fan *fan, struct penstock_error *err);
/* Waits until fewer than `limit` are in flight; false: something failed or was cancelled. */
bool fan_wait(struct fan *fan, unsigned limit);
/* Waits for all that is in flight, and moves the first error to `err`. */
int fan_finish(struct fan *fan, struct penstock_error *err);

#endif
