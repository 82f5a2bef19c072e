/* Shared by the files of src/server: one request from its first line to its reply. */
#ifndef SERVER_REQUEST_REQUEST_H
#define SERVER_REQUEST_REQUEST_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/quota.h"
#include "s3/message/arena.h"
#include "s3/message/errors.h"
#include "s3/sign/sigv4.h"
#include "server/request/body.h"
#include "store/store.h"

struct access_log;
struct configs;
struct connections;
struct directory;
struct form;
struct hasher;
struct identity;
struct settings_cache;
struct lifecycle;
struct notifier;
struct replicator;
struct log_file;
struct metrics;
struct monitor;
struct port;
struct tls;
struct worker_pool;

struct server {
	struct port *port; /* owned by the starting thread, like the next four members */
	const char *domain; /* a comma-separated list; borrowed; NULL without domains */
	const char *tls_cert, *tls_key; /* borrowed; may be NULL */
	struct tls *tls; /* NULL for plain HTTP */

	/* The members up to `signer` are constant while the server runs. */
	struct store *store;
	struct MHD_Daemon *near; /* for clients on this machine; may be NULL */
	struct sockaddr_un near_name;
	struct connections *connections; /* connections of `port` */
	struct worker_pool *workers;
	struct hasher *hasher;
	struct settings_cache *settings;
	struct configs *expiry; /* lifecycle rules */
	struct access_log *access_log; /* borrowed; may be NULL */
	struct log_file *log_file; /* log of all requests; may be NULL, like the next two members */
	struct metrics *metrics;
	struct monitor *monitor; /* NULL without --metrics */
	int64_t started_ns;
	struct lifecycle *lifecycle; /* borrowed; may be NULL, like the next two members */
	struct notifier *notify;
	struct replicator *replicator;
	struct directory *directory;
	char *url;
	pthread_key_t signer; /* a struct sigv4 per thread */

	struct quota held; /* bytes that requests hold in memory (request_hold()) */
	atomic_uint active;
	atomic_uint open; /* connections */
	atomic_ullong damaged; /* objects that did not match their checksum when they were read */
	atomic_bool draining; /* the server accepts no more connections */
	atomic_uint waiting; /* suspended connections */
	atomic_bool stopping;
	atomic_llong last_activity;
	atomic_ullong next_id;
};

/* --- requests ------------------------------------------------------------------------------ */

#define REQUEST_HEADERS_MAX 128 /* header lines; S3 clients send about 20 */
#define REQUEST_ID_SIZE	    17

enum request_phase { REQUEST_NEW, REQUEST_BODY, REQUEST_DISCARD, REQUEST_WAITING, REQUEST_READY };

/* The encryption and the keys in the headers of a request (server/sse/sse.h). */
struct request_encryption {
	enum store_encryption mode; /* encryption of the object or upload that the request makes */
	bool has_key, has_source_key;
	struct store_key key, source_key; /* keys of customers; wiped at the end of the request */
	char key_md5[25]; /* base64 */
};

struct request;
/* A step in the handling of a request: sets the reply, or starts the next step. */
typedef void (*request_fn)(struct request *req);

struct request {
	struct server *server;
	struct MHD_Connection *connection;
	enum request_phase phase;
	char id[REQUEST_ID_SIZE];
	int64_t begun_ns;

	/* As received. `path` and `query` are one owned text, still encoded; `query` may be
	 * NULL. */
	char *path;
	const char *query;
	/* The path as in path-style: "/bucket/key", still encoded. Differs from `path` if the host
	 * names the bucket. */
	const char *resource;
	const char *target_end; /* end of path and query in libmicrohttpd's buffer */
	const char *method;
	bool head;
	bool seen; /* counted in server->active */
	bool no_memory; /* a part of the request could not be copied: the reply is 503 */
	struct sigv4_header headers[REQUEST_HEADERS_MAX];
	size_t n_headers;

	/* Decoded. */
	char bucket[64]; /* "" for the service itself */
	int64_t bucket_id; /* the bucket of all decisions on `bucket`; 0 before the first one */
	char *key; /* NULL for the bucket itself */
	size_t key_len;
	const char *version; /* the version in the query; NULL if there is none */
	const char *sub; /* subresource of the request, or NULL */
	const char *action; /* action that a policy has to allow; NULL if the operation checks it */
	bool known; /* the sender was verified */
	size_t held; /* bytes that request_hold() has counted */
	struct quota_share *holder; /* the account that holds these bytes; NULL if `held` is 0 */

	bool anonymous; /* the request has no signature */
	/* The object that the access check has read, if any: further checks and the operation use
	 * the object that was allowed, not a newer object. The names are compared by address. */
	struct {
		const char *bucket, *key, *version;
		struct store_object *object;
		bool missing; /* the check has found no object */
		bool tagged; /* a decision has read the tags of the object */
	} decided;
	size_t policy_steps; /* steps that the evaluation of policies may still take */
	bool acl_required; /* only an ACL allowed the request */
	bool hides_missing; /* the sender may not learn that the object is missing */
	struct identity *identity; /* anonymous until the signature was verified */
	struct sigv4_auth auth;
	struct sigv4_chain chain;
	struct request_body body;

	request_fn finish; /* on the event loop, when the body is complete */
	request_fn work; /* on a worker, if `finish` passes the request to a worker */
	request_fn after; /* on the event loop, after the wait; NULL if the reply is already set */
	uint64_t discard_limit; /* bytes of a rejected body that may still be read and dropped */

	request_fn job; /* the job for a worker; owned by the pool while the request waits */
	struct request *next_job; /* owned by the pool, too; a request is queued at most once */
	/* `work` needs a slot for long jobs. If `work` sets this member, `work` is called again in
	 * a slot. */
	bool is_long;

	/* State of operations between their steps. */
	struct store_put put;
	struct store_part_put part;
	struct store_origin origin;
	char remote[46]; /* REMOTE_SIZE */
	struct buf stored_headers;
	struct request_encryption encryption;
	struct form *form; /* sent by a browser; NULL if there is none */
	const char *upload_id; /* in the arena */
	struct arena arena; /* small strings that live as long as the request */

	size_t operation; /* 1 + index in the table of route.c; 0 for any other operation */

	/* The reply. */
	unsigned status;
	struct MHD_Response *response;
	/* For logs. */
	const char *error_code; /* a constant; NULL if the reply is not an error */
	uint64_t sent; /* bytes of the reply's body */
	int64_t object_size; /* -1 if the request has no object */
	int64_t replied_ns;
	char made[STORE_VERSION_SIZE]; /* the version that the request made, or "" */
};

/* Returns a copy that lives as long as the request. Returns NULL if out of memory; the reply is
 * then 503. */
char *request_strdup(struct request *req, const char *s);
/* Returns a copy of the ETag in quotes; the copy lives as long as the request. Returns NULL if out
 * of memory; the reply is then 503. */
const char *request_quote(struct request *req, const char *etag);
/* Returns the value of the first header of that name, or NULL if absent. */
const char *request_header(const struct request *req, const char *name);
/* Returns the decoded value of a query parameter, or NULL if absent; the value lives as long as the
 * request. request_route() refuses a query that cannot be decoded. */
const char *request_query(struct request *req, const char *name);
bool request_has_query(const struct request *req, const char *name);
/* Reads a number from a query parameter. Sets the reply and returns false if the parameter is
 * malformed. */
bool request_query_number(
	struct request *req, const char *name, uint64_t min, uint64_t max, uint64_t *value);

/* Keeps the object that a decision has read, with its reference, in place of an earlier object.
 * `object` is NULL if the decision has found no object. */
static inline void request_keep_object(struct request *req, const char *bucket, const char *key,
	const char *version, struct store_object *object)
{
	store_object_unref(req->decided.object);
	req->decided.bucket = bucket;
	req->decided.key = key;
	req->decided.version = version;
	req->decided.object = object;
	req->decided.missing = !object;
}
/* Returns true if the last object was kept for these names. */
static inline bool request_has_decided(
	const struct request *req, const char *bucket, const char *key, const char *version)
{
	return req->decided.bucket == bucket && req->decided.key == key &&
	       req->decided.version == version;
}
/* Takes the object that was kept for these names. Returns NULL if no object was kept; the object is
 * never a delete marker. */
static inline struct store_object *request_take_object(
	struct request *req, const char *bucket, const char *key, const char *version)
{
	return request_has_decided(req, bucket, key, version) ? take_pointer(req->decided.object)
							      : NULL;
}
/* Gets the object, or a version, as store_object_get() and store_version_get() do. Takes the object
 * that was kept for these names, if there is one. If the decision has found no object, an object
 * that was made since then counts as missing, too: its tags, list of grants and owner were not part
 * of the decision. */
enum store_status request_get_object(struct request *req, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err);

/* If a decision has read the tags of an object, makes a change of the key or the version
 * conditional on the object that was kept for these names, or on the absence of an object. The
 * request still owns the object. */
void request_bind(const struct request *req, const char *key, const char *version,
	struct store_condition *condition);
/* Like request_bind(), but `condition->decided` stays valid when a later decision replaces this
 * decision. The caller releases `condition->decided`, which may be NULL, and may be an outline of
 * the object (store_object_outline()). */
void request_bind_ref(const struct request *req, const char *key, const char *version,
	struct store_condition *condition);

/* Counts bytes of a document or a reply that the request holds in memory. Returns false if the
 * account, or all anonymous senders together, would hold more bytes than would remain free of
 * LIMIT_SERVER_HELD. */
bool request_hold(struct request *req, size_t bytes);
/* Gives back the bytes that request_hold() has counted. */
void request_let_go(struct request *req);

/* Returns the TLS version of the connection, such as "TLSv1.3", or NULL if there is no TLS. */
const char *request_tls_version(const struct request *req);
/* Returns true if the reply has to close the connection, because of a new certificate. */
bool request_is_leaving(const struct request *req);
/* Starts a new time window of the connection (connections_renew()) when the head of a request is
 * complete. */
void request_has_begun(struct request *req);
/* Records that the signature of the request was valid. The connection is then known, too, unless
 * the signature is in a URL or a form. */
void request_sender_is_known(struct request *req);
/* Returns true if the request is a browser's form, which has its signature in its body. */
bool request_is_form(const struct request *req);
/* Sets req->identity, the owner of an access key; `token` is the session token, or NULL. Sets the
 * reply and returns false on failure. */
bool request_identify(struct request *req, const char *access_key_id, const char *token);
/* Verifies the sender, who may be anonymous. Sets the reply and returns false on failure. */
bool request_authenticate(struct request *req);
/* Returns true if a browser has sent the request, so that a person reads the reply. */
bool request_is_browser(const struct request *req);
/* Finds the resource, whose bucket may be in the host name. Sets the reply and returns false on
 * failure. */
bool request_find_resource(struct request *req);
/* Returns the calling thread's signer, or NULL if out of memory. */
struct sigv4 *server_signer(struct server *server);
/* Returns the subresource that the query names, or NULL. */
const char *request_subresource(const struct request *req);
/* Refuses a parameter that has no value and an unknown name: S3 adds new operations in this form,
 * but ignores other unknown parameters. Sets the reply and returns false after a refusal. */
bool request_query_is_known(struct request *req);
/* Finds the operation, checks its headers, prepares the body; sets `finish` or a reply. */
void request_route(struct request *req);

/* Return the number of operations in the table of route.c, and the name of an operation, such as
 * "REST.GET.OBJECT.tagging". */
size_t route_count(void);
#define ROUTE_NAME_SIZE 64
void route_name(size_t operation, char out[static ROUTE_NAME_SIZE]);

/* Sets `finish`: `fn` sets the reply on a worker thread, while the connection is suspended. */
void request_finish_by_worker(struct request *req, request_fn fn);
/* Suspends the request until request_wake(); then `after` (may be NULL) sets the reply. Sets the
 * reply and returns false if the server is stopping. */
bool request_suspend(struct request *req, request_fn after);
void request_wake(struct request *req);
/* Returns true if a suspended request need not finish its work: the client has closed the
 * connection, or the server is stopping. */
bool request_is_abandoned(const struct request *req);
/* If the server is stopping, sets a reply for a request that has waited for a worker, wakes the
 * request, and returns true: to finish a long queue of requests would take too long. */
bool request_refuse_late(struct request *req);

#endif
