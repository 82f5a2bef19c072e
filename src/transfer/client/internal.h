/*
 * Shared by the files that implement objects.h: the client, and one S3 request (`struct s3_op`).
 *
 *	_cleanup_(s3_op_release) struct s3_op op = { 0 };
 *
 *	s3_op_init(&op, "GET", at);
 *	s3_op_query(&op, "uploads", NULL);
 *	r = s3_op_perform(&op, err);
 *
 * An error of the store is returned with the store's code and message, the object's name and a
 * hint.
 */
#ifndef TRANSFER_CLIENT_INTERNAL_H
#define TRANSFER_CLIENT_INTERNAL_H

#include <pthread.h>

#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"
#include "s3/message/errors.h"
#include "s3/sign/sigv4.h"
#include "transfer/objects.h"

/* Protection of an upload's bytes. */
enum guard {
	GUARD_HEADER, /* x-amz-checksum-…, known before the body is sent */
	GUARD_TRAILER, /* the same as a trailer after the body, computed while the body is sent */
	GUARD_MD5 /* no checksum is sent; the ETag is compared */
};

/* One signer for each engine that sends requests of the client, so that no engine waits. */
#define CLIENT_SIGNERS 2
struct client_signer {
	pthread_mutex_t lock;
	struct sigv4 sigv4; /* under the lock */
};

struct object_client {
	struct http_engine *engine;
	struct s3_settings settings;
	bool https;
	bool aws;
	bool google; /* see google.h */
	char *authority; /* "host:port"; no port if it is the scheme's default */
	char *base_path; /* "" or "/prefix" */
	char *address; /* scheme, authority and base path: "https://host:port/prefix" */
	struct client_signer signers[CLIENT_SIGNERS];
	/* For GUARD_HEADER and GUARD_TRAILER: CRC64NVME, for Google CRC32C. */
	enum checksum_kind guard_kind;
	atomic_int guard; /* an enum guard, adapted to the store */
	/* the store's clock minus this machine's; 0 until the store has refused a request because
	 * of its time */
	atomic_llong skew_s;
	atomic_llong patience_ms;
	const atomic_int *_Atomic patient_cancel; /* valid while patience_ms is set */
	const struct http_gate *_Atomic gate; /* may be NULL */

	atomic_bool bare_etags; /* If-Match needs the ETag without quotes: Ceph before 18 */
	atomic_bool own_kind; /* the store identifies itself as penstock */
	atomic_bool no_read_many; /* the store refuses many reads in one request */
	atomic_bool swept; /* old upload journals were removed */
	atomic_bool swept_sent; /* old records of sent objects were removed */
	atomic_bool no_part_copy; /* the store has no UploadPartCopy */
	atomic_bool md5_etags; /* ETags of multipart objects are known to be made of MD5s */
	atomic_bool odd_etags; /* ETags of multipart objects are known not to be made of MD5s */

	pthread_mutex_t probe_lock;
	bool probed;
	struct object_conditions conditions;
};

struct s3_op {
	struct object_ref at;
	struct http_request request;
	struct http_reply reply;
	struct sigv4_header *headers; /* owned strings; all of them are signed */
	size_t n_headers;
	struct buf path;
	struct buf query;
	struct buf url;
	struct buf host;
	const char *payload_hash;
	char sha256[65];
	struct buf document; /* document of the reply, if it is XML */
	bool may_be_error; /* a 200 reply may carry an Error document */
	bool skew_adjusted;
	bool refused; /* the store reported that the credentials of an attempt have expired */
	/* attempts with refused credentials, except those while new credentials were fetched */
	unsigned refusals;
	unsigned renewals; /* sets of credentials that replaced refused ones */
	struct credentials keys;
	char *what;
	struct penstock_error failed; /* error of the setup; returned by s3_op_ready() */
	enum s3_error error; /* error of the last failed attempt */
};

/* Failures of the setup are kept in the op until s3_op_ready() returns them. */
void s3_op_init(struct s3_op *op, const char *method, struct object_ref at);
void s3_op_release(struct s3_op *op);
/* Adds a parameter; only the name if `value` is NULL. */
void s3_op_query(struct s3_op *op, const char *name, const char *value);
/* Adds a header; does nothing if `value` is NULL. */
void s3_op_header(struct s3_op *op, const char *name, const char *value);
/* Makes the request a copy of `from`, if `from` still has the ETag (NULL for any). */
void s3_op_copy_source(struct s3_op *op, struct object_ref from, const char *etag);
/* Sets a body in memory, which must outlive the request; its SHA-256 is signed if the body is
 * small. */
void s3_op_body(struct s3_op *op, const void *data, size_t len);
/* Sets the caller's cancel flag, if there is one. */
static inline void s3_op_cancel(struct s3_op *op, const atomic_int *cancel)
{
	if (cancel)
		op->request.cancel = cancel;
}
/* Keeps the reply's XML in `op->document`; an Error document in it is an error. */
void s3_op_wants_document(struct s3_op *op);
/* Sets a body of XML; `what` names the body in the error if it is too large. */
void s3_op_xml(struct s3_op *op, const struct buf *body, const char *what);
/* Calls s3_op_wants_document(), then s3_op_perform(). */
int s3_op_ask(struct s3_op *op, struct penstock_error *err);
/* Like s3_op_ask(), but also fills `out` from the document with a parser of
 * s3/message/messages.h. */
#define s3_op_read(op, parse, out, err)                                                            \
	({                                                                                         \
		int read_ = s3_op_ask(op, err);                                                    \
		if (read_ == 0 && parse((op)->document.data, (op)->document.len, out, err) < 0)    \
			read_ = error_prefix(err, "%s", (op)->what);                               \
		read_;                                                                             \
	})
/* Like s3_op_read(), for a request that starts a multipart upload; free() `*id`. */
int s3_op_upload_id(struct s3_op *op, char **id, struct penstock_error *err);
/* Builds only the URL, in op->request.url. */
int s3_op_url(struct s3_op *op, struct penstock_error *err);
/* Builds the URL and gets the keys: the last step before http_submit(). s3_op_perform() includes
 * this step. */
int s3_op_ready(struct s3_op *op, struct penstock_error *err);
int s3_op_perform(struct s3_op *op, struct penstock_error *err);
/* Sets up and performs the HEAD of an object; with `sums`, also requests the object's checksums.
 * `info` is NULL or zeroed; release it even after a failure. */
int s3_op_head(struct s3_op *op, struct object_ref at, const char *if_match, bool sums,
	const atomic_int *cancel, struct object_info *info, struct penstock_error *err);

/* Raises "VERB s3://BUCKET/KEY: …"; the key may be NULL. */
int object_error(struct penstock_error *err, enum penstock_code code, const char *verb,
	struct object_ref at, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Raises PENSTOCK_E_CHANGED: the object was replaced. */
int object_replaced(struct object_ref at, struct penstock_error *err);
/* Raises PENSTOCK_E_CORRUPT: the object's bytes do not have the stored checksum of this kind. */
int object_corrupt(struct object_ref at, enum checksum_kind kind, struct penstock_error *err);

/* Ends a call with the result `r`: moves `found` to `*out` after a success, unless `out` is NULL,
 * else releases it. Returns r. */
int object_info_pass(int r, struct object_info *found, struct object_info *out);
/* Takes size, ETag, date, version and metadata from the reply's headers. `out` must be zeroed. */
int object_info_from_reply(
	const struct http_reply *reply, struct object_info *out, struct penstock_error *err);
/* Copies an ETag, adding missing quotes; `out` is empty if there is no ETag or it is too long. */
void object_etag_copy(char out[static OBJECT_ETAG_SIZE], const char *etag);
/* Finds the checksum of the whole object in a reply. Returns its kind, or CHECKSUM_NONE. */
enum checksum_kind object_reply_checksum(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* Like object_reply_checksum(), else finds the MD5 as object_reply_md5() does, unless the user
 * turned verification off. */
enum checksum_kind object_reply_digest(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* Returns the kind of CRC that a multipart object has for each part: the ETag shows that there are
 * parts, and a header shows the kind. Returns CHECKSUM_NONE if there is none. */
enum checksum_kind object_reply_part_checksum(const struct http_reply *reply, const char *etag);
/* Returns true if the user has enabled the verification of downloads
 * (AWS_RESPONSE_CHECKSUM_VALIDATION). */
bool object_response_checksums(void);
/* Extracts the MD5 from an ETag of 32 hexadecimal digits in quotes; returns false for any other
 * ETag. */
bool object_etag_md5(const char *etag, uint8_t md5[static 16]);
/* Returns true if the object is encrypted under a key, so that its ETag is not made of its
 * bytes. */
bool object_reply_encrypted(const struct http_reply *reply);
/* Finds the MD5 of the whole object in a reply: in its ETag, or in Google's header. Returns false
 * if there is none, as for objects in parts or encrypted under a key. */
bool object_reply_md5(const struct http_reply *reply, uint8_t md5[static 16]);

/* Fails with PENSTOCK_E_PROTOCOL if the reply has no ETag: every store returns an object's ETag, so
 * the reply came from something else (a proxy, a login page). Serves as an `on_headers` whose
 * cookie begins with the op. */
int s3_op_check_etag(void *cookie, const struct http_reply *reply, struct penstock_error *err);
/* Like s3_op_check_etag(), but also fails with PENSTOCK_E_CHANGED unless the reply has this ETag
 * ("" for any), because stores and caches may ignore If-Match. */
int s3_op_check_same(struct s3_op *op, const struct http_reply *reply, const char *etag,
	struct penstock_error *err);

/* Several requests of one transfer in flight, submitted by one thread. */
struct fan {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned in_flight;
	atomic_int stop; /* the `cancel` of every request */
	const atomic_int *cancel;
	struct http_engine *engine;
	struct penstock_error error; /* the first error */
};
void fan_init(struct fan *fan, struct http_engine *engine, const atomic_int *cancel);
void fan_release(struct fan *fan);
/* Submits a request whose `done` calls fan_ended() last. The first failure stops the other
 * requests. The memory of all requests may be freed after fan_finish(). `*flying` (`flying` may be
 * NULL) is true until fan_ended(). */
int fan_submit(struct fan *fan, struct http_request *request, struct http_reply *reply,
	atomic_bool *flying, struct penstock_error *err);
/* Ends a request, and takes the contents of `err`; NULL after a success. */
void fan_ended(struct fan *fan, atomic_bool *flying, struct penstock_error *err);
/* Reports a failure outside of a request, and stops all requests. */
void fan_fail(struct fan *fan, struct penstock_error *err);
/* Waits until fewer than `limit` requests are in flight; returns true. If a request failed or the
 * caller cancelled, returns false: at once if `limit` is above 1, else after the last request. */
bool fan_wait(struct fan *fan, unsigned limit);
/* Returns true if a request failed or the caller cancelled. */
bool fan_failed(struct fan *fan);
/* Cancels the requests in flight, and waits for their end. */
void fan_stop(struct fan *fan);
/* Waits for all requests in flight, and moves the first error to `err`. */
int fan_finish(struct fan *fan, struct penstock_error *err);

#endif
