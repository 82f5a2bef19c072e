/*
 * Operations on objects and buckets of one S3-compatible endpoint.
 *
 *	#include "net/credentials/credentials.h"
 *
 *	struct object_client *s3 = NULL;
 *
 *	object_client_open(&s3, engine, &(struct store_place){
 *		.endpoint_url = "http://127.0.0.1:9000", .profile = "lab" }, err);
 *	object_put_file(object_at(s3, "bucket", "ckpt.pth"), fd, size,
 *		&(struct object_put_options){ 0 }, &info, err);
 *	object_info_release(&info);
 *	object_client_free(s3);
 *
 * Every call blocks until its end, may be made from any thread, and shares the connections, retries
 * and limits of the engine. Retryable failures have been retried when an error comes back. An
 * interrupted or failed call leaves no local file under its final name and no incomplete object.
 * `cancel`, if given, is polled at least every 100 ms; once non-zero the call ends with
 * PENSTOCK_E_CANCELLED. Options may be NULL or zeroed: zero means the default.
 */
#ifndef TRANSFER_OBJECTS_H
#define TRANSFER_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include "base/buf.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

struct penstock_error;
struct http_engine;
struct http_gate;
struct s3_settings;
struct store_place;
struct object_client;

/* An object of a store, or the objects below a prefix. All members are borrowed for the duration of
 * the call. */
struct object_ref {
	struct object_client *client;
	const char *bucket;
	const char *key; /* or a prefix, if the function's comment says so */
	/* Id of a version, for calls that describe, read or delete one object, and for the source
	 * of a copy; NULL for the current version. Google's generations are not supported. */
	const char *version;
};

static inline struct object_ref object_at(
	struct object_client *client, const char *bucket, const char *key)
{
	return (struct object_ref){.client = client, .bucket = bucket, .key = key};
}

/* ETags are kept as in the header, including the quotes. */
#define OBJECT_ETAG_SIZE 136

struct object_info {
	char *key; /* owned; set by listings */
	uint64_t size;
	char etag[OBJECT_ETAG_SIZE];
	int64_t modified_ns; /* the store's clock; whole seconds in replies to HEAD */
	int64_t served_ns; /* time of the reply by the same clock; 0 if unknown, or in a listing */
	char *version_id; /* owned; NULL if the store has no versions */
	/* "name=value" of x-amz-meta-, names in lower case; not set by listings */
	struct strlist metadata;
	/* owned; set only by object_head(); NULL if the reply has no type */
	char *content_type;
	char *storage_class;
	char *retention; /* "GOVERNANCE" or "COMPLIANCE" */
	int64_t retained_until_ns; /* with `retention`; 0 if invalid, INT64_MAX after 2262 */
	bool legal_hold; /* set only by object_head() */
	bool is_prefix; /* a listing's common prefix, in `key` */
};
void object_info_release(struct object_info *info);

/* Called from any thread with the bytes moved since the last call; negative after a retry. */
typedef void (*object_progress_fn)(void *cookie, int64_t bytes);
/* Called on the calling thread with the bytes of a large object that need no second transfer. */
typedef void (*object_kept_fn)(void *cookie, uint64_t bytes);

/*
 * Opens the store at `place` (net/credentials/credentials.h), whose strings are borrowed only for
 * this call. The call sends requests only to a metadata service that has the keys; the cancel flags
 * of `place` and of the engine end these requests. The engine is borrowed and outlives the client.
 * The bucket is in the host name on amazonaws.com (over https:// only if it has no dot), and in the
 * path elsewhere.
 *
 * On Google Cloud Storage (`place->google`, or any endpoint at storage.googleapis.com) an object's
 * `etag` is its generation in quotes, and conditions are generation-match headers. If the XML API
 * lacks an operation, a slower one is used: copies of any size and conditional uploads go in one
 * request, and each key of a deletion takes a request of its own.
 */
int object_client_open(struct object_client **out, struct http_engine *engine,
	const struct store_place *place, struct penstock_error *err);
void object_client_free(struct object_client *client);
/* Returns the endpoint, region and credentials in use; valid as long as the client. */
const struct s3_settings *object_client_settings(const struct object_client *client);
struct http_engine *object_client_engine(const struct object_client *client);
/* Returns true once a reply has shown that the store is penstock. */
bool object_client_is_penstock(const struct object_client *client);
/* Returns "s3" or "gs", the scheme of URLs of the client's objects. */
const char *object_client_scheme(const struct object_client *client);
/*
 * From now on, requests that only read wait up to `ms` for a store that is unreachable or not ready
 * (`patience_ms` of net/http/http.h), and calls without a `cancel` of their own obey `cancel`. 0 ms
 * ends both. May be called from any thread.
 */
void object_client_patience(struct object_client *client, int64_t ms, const atomic_int *cancel);
/*
 * From now on, every request that changes the store asks the gate first (net/http/http.h), except
 * `ungated` ones and the abort of an upload. NULL removes the gate. The gate is borrowed. May be
 * called from any thread.
 */
void object_client_gate(struct object_client *client, const struct http_gate *gate);

/* Returns 0 even if the bucket exists and belongs to the caller. */
int bucket_create(struct object_client *client, const char *bucket, struct penstock_error *err);
/* Fails with PENSTOCK_E_EXISTS if the bucket is not empty. */
int bucket_delete(struct object_client *client, const char *bucket, struct penstock_error *err);
/* Lists the account's buckets by name; `fn` as in object_list(), with the name in `key` and the
 * creation date in `modified_ns`. */
int bucket_list(struct object_client *client,
	int (*fn)(void *cookie, const struct object_info *info), void *cookie,
	struct penstock_error *err);
/* Fails with PENSTOCK_E_NOT_FOUND if the bucket does not exist. */
int bucket_head(struct object_client *client, const char *bucket, struct penstock_error *err);
enum bucket_versioning { BUCKET_UNVERSIONED, BUCKET_VERSIONED, BUCKET_SUSPENDED };
int bucket_versioning(struct object_client *client, const char *bucket, enum bucket_versioning *out,
	struct penstock_error *err);

struct object_put_options {
	const char *if_match; /* ETag of the object to replace */
	bool if_none_match; /* fails if the object exists */
	bool ungated; /* does not ask object_client_gate() */
	const char *content_type; /* NULL for application/octet-stream */
	const struct strlist *metadata; /* "name=value" */
	/* Other headers of the object ("cache-control=no-cache"), names in lower case. */
	const struct strlist *properties;
	const char *storage_class; /* NULL for the store's default */
	uint64_t part_size; /* 0 to choose the part size by the object's size */
	unsigned parallel; /* limit of parts in flight; 0 to adapt it to the store */
	object_progress_fn progress;
	void *cookie;
	/* Incremented by the bytes that were sent, without the bytes of parts that the store copied
	 * or had from an earlier call. May be NULL. */
	atomic_ullong *sent;
	const atomic_int *cancel;
	/*
	 * Called, on any thread, before the object becomes visible (before the last bytes of a PUT
	 * or the Complete of a multipart upload). Returning false abandons the upload with
	 * PENSTOCK_E_CHANGED. May be NULL.
	 */
	bool (*still_valid)(void *cookie);
	/*
	 * Reports an upload in parts, on the calling thread: before the upload is requested (`id`
	 * is NULL), when the store has given it an id, and when the store has no part of it any
	 * more (`over`). A caller that records the upload can abort it after a kill. Not called for
	 * a stream. May be NULL.
	 */
	void (*parts)(void *cookie, const char *key, const char *id, bool over);
	/*
	 * A directory (created if missing) for the journals of uploads in parts from files. An
	 * upload that is interrupted by a failure or a kill stays in the store, and the next call
	 * for the same file and object sends the missing parts. If `resume_dir` is NULL, an upload
	 * starts from the beginning, and a failure leaves nothing in the store.
	 */
	const char *resume_dir;
	object_kept_fn kept; /* bytes that a failed call leaves for the next call; may be NULL */
	object_kept_fn resumed; /* bytes from an earlier call, after `progress`; may be NULL */
	/*
	 * A directory (created if missing) for block checksums of large objects that were sent:
	 * object_put_file() of a file that changed in part then sends only the difference, and the
	 * store copies the rest (UploadPartCopy, if supported). If `delta_dir` is NULL, everything
	 * is sent.
	 */
	const char *delta_dir;
};

/* `info` (may be NULL) gets size, ETag and version of the stored object; release it on success. */
int object_put(struct object_ref at, const void *data, size_t len,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);
/*
 * Sends the first `size` bytes of `fd` (pread; the offset is unchanged), in parallel parts if the
 * file is large. Fails with PENSTOCK_E_CHANGED if the file became shorter or still_valid() returned
 * false. Sends an end-to-end checksum and verifies the store's reply.
 */
int object_put_file(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

/*
 * Records that the first `size` bytes of `fd` are the object with this ETag, which was just
 * fetched: a later object_put_file() with the same `delta_dir` sends only the difference. If the
 * record cannot be kept, everything is sent.
 */
void object_remember(struct object_ref at, const char *etag, int fd, uint64_t size,
	const char *delta_dir, const atomic_int *cancel);

/*
 * Sends the bytes of `fd` (a pipe, a socket, any descriptor) until end of file; their number is
 * unknown. Up to `parallel` parts of 8 MiB are held in memory until they are sent (within
 * LIMIT_STREAM_MEMORY). After the first 8 GB of the stream the parts are larger, so that 10,000
 * parts suffice for any object, and are held in unlinked files in TMPDIR. `cancel` is also checked
 * every 50 ms while no input arrives. still_valid() is called before the object becomes visible.
 */
int object_put_stream(struct object_ref at, int fd, const struct object_put_options *options,
	struct object_info *info, struct penstock_error *err);

struct object_get_options {
	const char *if_match;
	uint64_t offset; /* start of a range; used with `length` */
	uint64_t length; /* 0 for the rest of the object */
	/* Size and ETag from a listing or an earlier HEAD: saves object_get_file() a request for a
	 * small object. If the object was replaced meanwhile, the call fails with
	 * PENSTOCK_E_CHANGED. */
	const struct object_info *known;
	unsigned parallel; /* limit of ranges in flight; 0 to adapt it to the store */
	bool relaxed; /* object_get_file(): renames without a sync; the caller syncs */
	/* object_get_file(): fails with PENSTOCK_E_PRECONDITION if the file exists */
	bool if_none_match;
	/* object_get_file(): a call that fails or is killed leaves the fetched part of a large
	 * object with a journal; the next call for the same object and path fetches the rest. */
	bool resume;
	object_kept_fn kept, resumed; /* as in object_put_options */
	object_progress_fn progress;
	void *cookie;
	const atomic_int *cancel;
};
/* Appends the bytes to `out`. Fails with PENSTOCK_E_LIMIT if the bytes exceed the limit of
 * `out`. */
int object_get(struct object_ref at, const struct object_get_options *options, struct buf *out,
	struct object_info *info, struct penstock_error *err);
#define OBJECT_PART_SUFFIX ".penstock-part"
/*
 * Writes the object to a temporary file next to `path` (its name ends in OBJECT_PART_SUFFIX), in
 * parallel ranges under If-Match if the object is large. Verifies the length, and the store's
 * checksum if there is one, then syncs the file and renames it to `path`.
 */
int object_get_file(struct object_ref at, const char *path,
	const struct object_get_options *options, struct object_info *info,
	struct penstock_error *err);

/*
 * Passes the object to `fn` in order, piece by piece, on the calling thread, while the next
 * pieces are fetched (at most `parallel` pieces of LIMIT_STREAM_RANGE bytes are held). A negative
 * code from `fn` ends the call with that error. The store's checksum of the whole object is
 * verified at the end. Without it, the checksum of each part is verified before the last piece of
 * the part is passed on. So `fn` may get damaged bytes before the call fails with
 * PENSTOCK_E_CORRUPT. Fails with PENSTOCK_E_CHANGED if the object was replaced meanwhile.
 */
typedef int (*object_stream_fn)(
	void *cookie, const void *data, size_t len, struct penstock_error *err);
int object_get_stream(struct object_ref at, const struct object_get_options *options,
	object_stream_fn fn, void *cookie, struct object_info *info, struct penstock_error *err);

/* Gets the description of an object; `info` may be NULL. Fails with PENSTOCK_E_NOT_FOUND if the
 * object does not exist. */
int object_head(struct object_ref at, struct object_info *info, struct penstock_error *err);
/* Deletes an object or a version; a missing one is a success. Fails with PENSTOCK_E_PRECONDITION if
 * the object has another ETag than `if_match`, which may be NULL. */
int object_delete(struct object_ref at, const char *if_match, struct penstock_error *err);
/* Deletes the version even if a retention in the mode GOVERNANCE protects it. The store requires
 * the permission s3:BypassGovernanceRetention. */
int object_delete_retained(struct object_ref at, struct penstock_error *err);

/* Keys to delete from one bucket; all members are borrowed for the duration of the call. */
struct object_deletion {
	struct object_client *client;
	const char *bucket;
	const struct strlist *keys;
	/* Deletes each key only while its object has the ETag at the same index ("" for any ETag);
	 * otherwise the key fails with PENSTOCK_E_PRECONDITION. NULL to delete unconditionally. */
	const struct strlist *etags;
	/* Called for every key that the store refused to delete. May be NULL. */
	void (*on_error)(void *cookie, const char *key, const struct penstock_error *err);
	void *cookie;
	/* Cleans up after a cancelled call: the engine's cancel flag does not end the deletion, but
	 * LIMIT_TIDY_MS does. */
	bool tidies_up;
};
/*
 * Deletes many keys, up to 1,000 per request; missing ones are a success. Returns the first error
 * that was passed to `on_error`. A request that fails as a whole ends the call with its error,
 * without `on_error` for its keys and the following ones. If the store does not compare ETags (all
 * but penstock's, Amazon's and Google's), each object is checked just before its deletion, a few at
 * a time; an object replaced within that moment is deleted. `*decided` (may be NULL) is the number
 * of keys from the first on that were deleted or reported; later keys that were not reported may
 * still exist.
 */
int object_delete_many(
	const struct object_deletion *deletion, size_t *decided, struct penstock_error *err);

/* Appends a URL whose holder may use `method` ("GET", "PUT", …) on the object for `expires_s`
 * seconds (at most 604800). The URL is a secret: never log it. */
int object_presign(struct object_ref at, const char *method, uint32_t expires_s, struct buf *out,
	struct penstock_error *err);

/* An object as another store has it. All members are borrowed for the duration of the call. */
struct object_exact_part {
	unsigned number;
	uint64_t size;
	const char *etag; /* without quotes; has 32 digits if it is an MD5 */
	const char *checksum; /* base64, of the object's `kind`; "" if there is none */
};
struct object_exact {
	uint64_t size;
	const char *etag; /* as in struct object_exact_part */
	const struct strlist *headers; /* "name=value", names in lower case */
	enum checksum_kind kind; /* CHECKSUM_NONE if there is no checksum */
	const char *checksum;
	bool composite; /* `checksum` is made of the parts' checksums */
	const struct object_exact_part *parts;
	size_t n_parts; /* 0 to send the object in one PUT */
	/* Reads at least one byte, at any offset. Called by one thread at a time, which may be the
	 * engine's. */
	ssize_t (*read)(
		void *cookie, uint64_t offset, void *data, size_t size, struct penstock_error *err);
	void *cookie;
};
/* Sends an object with exactly these headers, parts and checksums. The store verifies the
 * checksums, or MD5s if it supports no checksums. A failure leaves nothing in the store. */
int object_put_exact(
	struct object_ref at, const struct object_exact *object, struct penstock_error *err);
/* Sets a document of an object, such as its tags, or deletes the document if `xml` is NULL. `sub`
 * is the subresource ("tagging"). */
int object_put_document(
	struct object_ref at, const char *sub, const struct buf *xml, struct penstock_error *err);
/* Deletes an object, with `headers` in the form of struct object_exact. */
int object_delete_exact(
	struct object_ref at, const struct strlist *headers, struct penstock_error *err);

struct object_copy_options {
	const char *if_match; /* ETag of the source */
	bool if_none_match; /* fails if the destination exists */
	/* larger objects are copied in parts of this size; if 0, objects beyond LIMIT_S3_PUT_MAX
	 * are copied in large parts */
	uint64_t part_size;
	/*
	 * content_type, metadata and storage_class of the copy. A member that is NULL is taken from
	 * the source, except the storage class: NULL is the store's default. Other members are
	 * ignored. Borrowed; may be NULL.
	 */
	const struct object_put_options *put;
	/* A store reports nothing until a part is done, so each part's bytes are reported at once.
	 * May be NULL. */
	object_progress_fn progress;
	void *cookie;
	const atomic_int *cancel; /* may be NULL */
};
/* Copies within one store: both objects have the same client. Uses parts if the object is too large
 * for one request. */
int object_copy(struct object_ref from, struct object_ref to,
	const struct object_copy_options *options, struct object_info *info,
	struct penstock_error *err);

/* Returns 0 to continue, 1 to stop the listing without an error. `info` is valid only during the
 * call. */
typedef int (*object_list_fn)(void *cookie, const struct object_info *info);
/*
 * Lists the objects below the prefix `at.key` in the store's order, normally the byte order of the
 * keys. `delimiter` and `cancel` may be NULL. Fails with PENSTOCK_E_PROTOCOL if the store lists
 * keys outside the prefix or makes no progress.
 */
int object_list(struct object_ref at, const char *delimiter, object_list_fn fn, void *cookie,
	const atomic_int *cancel, struct penstock_error *err);

/* A version of an object; its strings are valid during the callback. */
struct object_version {
	const char *key, *id, *etag;
	uint64_t size;
	int64_t modified_ns;
	bool latest;
	bool marker; /* marks a deletion, and has no contents */
	bool is_prefix; /* a common prefix, in `key`; the other members are zero */
};
struct object_versions_options {
	const char *delimiter; /* may be NULL */
	/* The list begins after all versions of this key, or after the version `after_version` of
	 * the key. May be NULL. */
	const char *after, *after_version;
	bool newest; /* only the newest version of each key, which may mark a deletion */
	const atomic_int *cancel; /* may be NULL */
};
/* Lists the versions of the objects whose key begins with `at.key`, by key, the newest first. `fn`
 * returns non-zero to stop. */
int object_list_versions(struct object_ref at, const struct object_versions_options *options,
	int (*fn)(void *cookie, const struct object_version *version), void *cookie,
	struct penstock_error *err);
/* Adds "name=value" for each tag of the object. */
int object_tags(struct object_ref at, struct strlist *out, struct penstock_error *err);

/* Lists the uploads in parts, of keys that begin with `at.key`, that were neither completed nor
 * aborted. `initiated_ns` is in nanoseconds since 1970. `fn` returns non-zero to stop. */
typedef int (*object_upload_fn)(
	void *cookie, const char *key, const char *id, int64_t initiated_ns);
int object_list_uploads(
	struct object_ref at, object_upload_fn fn, void *cookie, struct penstock_error *err);
/* Frees the upload's parts. A missing upload is a success. Takes at most 5 s. */
int object_abort_upload(struct object_ref at, const char *id, struct penstock_error *err);

/* Operations for which the endpoint honours If-None-Match: * and If-Match. */
struct object_conditions {
	bool put; /* on PUT */
	bool complete; /* on the Complete of a multipart upload */
	bool remove; /* If-Match on DELETE */
};
/* Probes once per client with a small object, whose key is `at.key` followed by "probe-<random>",
 * and removes the object; a kill leaves the object. */
int object_probe_conditions(
	struct object_ref at, struct object_conditions *honoured, struct penstock_error *err);

#endif
