/*
 * Operations on objects and buckets of one S3-compatible endpoint.
 *
 *	struct object_client *s3 = NULL;
 *
 *	object_client_new(&s3, &(struct object_client_options){ .engine = engine,
 *		.endpoint_url = "http://127.0.0.1:9000", .region = "us-east-1",
 *		.credentials = provider }, err);
 *	object_put_file(s3, "bucket", "ckpt.pth", fd, size, &(struct object_put_options){ 0 },
 *&info, err); object_info_release(&info); object_client_free(s3);
 *
 * Every call blocks until its end, may be made from any thread, and shares the connections, retries
 * and limits of the engine. Retryable failures were retried already when an error comes back.
 * An interrupted or failed call leaves no local file under its final name and no half object.
 * `cancel`, where given, is polled at least every 100 ms; once non-zero the call ends with
 * PENSTOCK_E_CANCELLED. Options may be NULL or zeroed: zero means the default.
 */
#ifndef TRANSFER_OBJECTS_H
#define TRANSFER_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

struct penstock_error;
struct http_engine;
struct http_gate;
struct credentials_provider;
struct google_key;
struct s3_settings;
struct object_client;

/* ETags are kept as they stand in the header, quotes included. */
#define OBJECT_ETAG_SIZE 136

struct object_info {
	char *key; /* owned; set by listings */
	uint64_t size;
	char etag[OBJECT_ETAG_SIZE];
	int64_t modified_ns;	 /* wall clock of the store; seconds resolution in HEAD replies */
	char *version_id;	 /* owned; NULL where the store has no versions */
	struct strlist metadata; /* "name=value" of x-amz-meta-, names in lower case; not set by
				    listings */
	bool is_prefix;		 /* a listing's common prefix, in `key` */
};
void object_info_release(struct object_info *info);

/* Called now and then from any thread with the bytes moved since the last call; may be negative
 * after a retry. */
typedef void (*object_progress_fn)(void *cookie, int64_t bytes);

struct object_client_options {
	struct http_engine *engine; /* borrowed; outlives the client */
	const char *endpoint_url;   /* NULL: AWS's of the region */
	const char *region; /* NULL: from the environment or the configuration, else us-east-1 */
	struct credentials_provider *credentials; /* borrowed; NULL: unsigned requests */
	bool virtual_host; /* bucket in the host name; default: only on amazonaws.com */
	/*
	 * It is Google Cloud Storage (so is, in any case, storage.googleapis.com): an object's `etag` is its
	 * generation in quotes, and conditions are generation-match headers. Where a call here asks for what
	 * the XML API lacks, it does without: copies of any size go in one request, uploads with a condition
	 * too, and many deletes are many requests.
	 */
	bool google;
	const struct google_key *google_key; /* borrowed; signs URLs; NULL: HMAC keys do, if any */
	const char *project; /* of new buckets and their list; NULL: the account's own */
};
int object_client_new(struct object_client **out, const struct object_client_options *options,
	struct penstock_error *err);
/* One for what was resolved (net/credentials.h), which outlives it. */
int object_client_open(struct object_client **out, struct http_engine *engine,
	const struct s3_settings *settings, struct penstock_error *err);
void object_client_free(struct object_client *client);
/* "s3" or "gs": what its objects are called by. */
const char *object_client_scheme(const struct object_client *client);
/*
 * From now on requests that only read wait for up to `ms` for a store that is not there or not ready
 * (`patience_ms` of net/http.h), and those of calls that have no `cancel` obey this one. 0 ends it. Any thread.
 */
void object_client_patience(struct object_client *client, int64_t ms, const atomic_int *cancel);
/*
 * From now on everything that changes something there is asked for at the gate (net/http.h), but what `ungated`
 * says, and the abort of an upload. NULL: nothing any more. Borrowed. Any thread.
 */
void object_client_gate(struct object_client *client, const struct http_gate *gate);

/* 0 also where the bucket is there already and ours. */
int bucket_create(struct object_client *client, const char *bucket, struct penstock_error *err);
/* PENSTOCK_E_EXISTS: it is not empty. */
int bucket_delete(struct object_client *client, const char *bucket, struct penstock_error *err);
/* Those of the account, by name; `fn` as in object_list(), with the name in `key` and the date of
 * creation in `modified_ns`. */
int bucket_list(struct object_client *client,
	int (*fn)(void *cookie, const struct object_info *info), void *cookie,
	struct penstock_error *err);
/* PENSTOCK_E_NOT_FOUND: no such bucket. */
int bucket_head(struct object_client *client, const char *bucket, struct penstock_error *err);

struct object_put_options {
	const char *if_match;		/* ETag that must be there now */
	bool if_none_match;		/* only create */
	bool ungated;			/* object_client_gate() */
	const char *content_type;	/* NULL: application/octet-stream */
	const struct strlist *metadata; /* "name=value" */
	/* The other headers that an object has ("cache-control=no-cache"), in small letters. */
	const struct strlist *properties;
	const char *storage_class; /* NULL: the store's default */
	uint64_t part_size;	   /* 0: chosen from the size */
	unsigned parallel;	   /* parts at a time, at most; 0: as many as pay */
	object_progress_fn progress;
	void *cookie;
	const atomic_int *cancel;
	/*
	 * Asked before the object becomes visible (before the PUT's last bytes or the Complete of a
	 * multipart upload). False abandons the upload with PENSTOCK_E_CHANGED. May be NULL.
	 */
	bool (*still_valid)(void *cookie);
	/*
	 * Told of an upload in parts, from the calling thread: before it is asked for (`id` is NULL), when
	 * the store has named it, and when nothing of it is left in the store (`over`). So a caller that
	 * keeps a record can end what a kill left behind. May be NULL.
	 */
	void (*parts)(void *cookie, const char *key, const char *id, bool over);
	/*
	 * A directory (made if need be) for the journals of uploads in parts from files: one that a failure
	 * or a kill ends stays in the store, and the next call for the same file and object sends what is
	 * missing. NULL: it begins anew, and a failure leaves nothing in the store.
	 */
	const char *resume_dir;
	/*
	 * A directory (made if need be) for what is known of the large objects that were sent before:
	 * object_put_file() of one that has changed in part then sends only what differs, and the store
	 * copies the rest (UploadPartCopy, where it has that). NULL: all of it is sent.
	 */
	const char *delta_dir;
};

/* `info` (may be NULL) gets size, ETag and version of what was stored; release it on success. */
int object_put(struct object_client *client, const char *bucket, const char *key, const void *data,
	size_t len, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);
/*
 * Sends the first `size` bytes of `fd` (pread; the offset stays), in parallel parts where it is
 * large. PENSTOCK_E_CHANGED: the file got shorter or still_valid() said no. Sends an end-to-end
 * checksum and verifies what the store answers.
 */
int object_put_file(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

/*
 * The first `size` bytes of `fd` are those of the object with this ETag, which was just fetched: an object_put_file() with
 * that `delta_dir` then sends only what differs from them. Where that cannot be kept it sends all.
 */
void object_remember(struct object_client *client, const char *bucket, const char *key,
	const char *etag, int fd, uint64_t size, const char *delta_dir, const atomic_int *cancel);

/*
 * Sends what `fd` (a pipe, a socket, any descriptor) gives until its end, whose length nobody knows. Parts
 * are held until they are sent: up to `parallel` of 8 MiB in memory (within LIMIT_STREAM_MEMORY), and from 8 GB on, where they grow so
 * that 10,000 of them suffice for any object, in unlinked files in TMPDIR. `cancel` is looked at after each
 * read, also one that a signal ends. still_valid() is asked before the object becomes visible.
 */
int object_put_stream(struct object_client *client, const char *bucket, const char *key, int fd,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

struct object_get_options {
	const char *if_match;
	uint64_t offset; /* of a range; with `length` */
	uint64_t length; /* 0: to the end */
	/*
	 * Size and ETag as a listing or an earlier HEAD told them: saves object_get_file() a
	 * request. If the object is another one by now the call fails with PENSTOCK_E_CHANGED.
	 */
	const struct object_info *known;
	unsigned parallel;  /* ranges at a time, at most; 0: as many as pay */
	bool relaxed;	    /* object_get_file(): renamed without being synced; the caller syncs */
	bool if_none_match; /* object_get_file(): PENSTOCK_E_PRECONDITION where the file is there */
	/*
	 * object_get_file(): a call that a failure or a kill ends leaves what it has fetched of a large
	 * object, with a journal, for the next call for the same object and path, which fetches the rest.
	 */
	bool resume;
	object_progress_fn progress;
	void *cookie;
	const atomic_int *cancel;
};
/* Appends the bytes to `out`, whose limit bounds them. */
int object_get(struct object_client *client, const char *bucket, const char *key,
	const struct object_get_options *options, struct buf *out, struct object_info *info,
	struct penstock_error *err);
#define OBJECT_PART_SUFFIX ".penstock-part"
/*
 * Writes the object to `path` through "path.penstock-part" beside it (a name too long for
 * that gets a shorter one): parallel ranges under
 * If-Match where it is large, length (and checksum where the store has one) verified, then synced
 * and renamed.
 */
int object_get_file(struct object_client *client, const char *bucket, const char *key,
	const char *path, const struct object_get_options *options, struct object_info *info,
	struct penstock_error *err);

/*
 * Hands the object to `fn` in order, piece by piece, on the calling thread, while the next pieces are
 * fetched (at most `parallel` of LIMIT_STREAM_RANGE bytes are held). Non-zero from `fn` ends it with
 * its error. The checksum of the store is verified at the end: PENSTOCK_E_CORRUPT comes after the
 * bytes. PENSTOCK_E_CHANGED: the object was replaced meanwhile.
 */
typedef int (*object_stream_fn)(
	void *cookie, const void *data, size_t len, struct penstock_error *err);
int object_get_stream(struct object_client *client, const char *bucket, const char *key,
	const struct object_get_options *options, object_stream_fn fn, void *cookie,
	struct object_info *info, struct penstock_error *err);

int object_head(struct object_client *client, const char *bucket, const char *key,
	struct object_info *info, struct penstock_error *err);
/* A missing object is a success. `if_match` may be NULL. */
int object_delete(struct object_client *client, const char *bucket, const char *key,
	const char *if_match, struct penstock_error *err);

/*
 * Deletes many keys, up to 1,000 per request; missing ones are a success. `on_error` (may be NULL)
 * is told of every key that the store would not delete; then the call returns the first of these errors. A request that
 * fails as a whole ends the call with its error, and `on_error` is told nothing of its keys and of those behind them.
 */
int object_delete_many(struct object_client *client, const char *bucket, const struct strlist *keys,
	void (*on_error)(void *cookie, const char *key, const struct penstock_error *err),
	void *cookie, struct penstock_error *err);
/*
 * The same, but each only while its object has the ETag in the same place of `etags` ("": whatever is there), else
 * it stays, with PENSTOCK_E_PRECONDITION. Where the store does not compare (stores that are neither ours nor
 * Amazon's nor Google's) it is looked at just before, a few at a time, so what is replaced within that moment goes.
 * `*decided` (may be NULL): so many keys, from the first on, are deleted or were told of; of the others those that
 * `on_error` was told nothing of may be there still.
 */
int object_delete_unchanged(struct object_client *client, const char *bucket,
	const struct strlist *keys, const struct strlist *etags,
	void (*on_error)(void *cookie, const char *key, const struct penstock_error *err),
	void *cookie, size_t *decided, struct penstock_error *err);

/*
 * A URL that lets anybody do `method` ("GET", "PUT", …) on the object for `expires_s` seconds (at
 * most 604800). It is a secret: never log it.
 */
int object_presign(struct object_client *client, const char *method, const char *bucket,
	const char *key, uint32_t expires_s, struct buf *out, struct penstock_error *err);

struct object_copy_options {
	const char *if_match; /* of the source */
	bool if_none_match;   /* destination: only create */
	uint64_t part_size;   /* larger objects are copied in parts of this size; 0: those beyond
				 LIMIT_S3_PUT_MAX, in large parts */
	/* content_type, metadata and storage_class of the copy; what is NULL is as the source has it, but for the
	 * class, which is the store's default. The rest of it is not looked at. Borrowed; NULL: none. */
	const struct object_put_options *put;
	/* The store says nothing before a part is done, so that part's bytes come at once. NULL: nobody wants to know. */
	object_progress_fn progress;
	void *cookie;
	const atomic_int *cancel; /* NULL: none */
};
/* Server-side; multipart where one request cannot carry it. */
int object_copy(struct object_client *client, const char *bucket, const char *key,
	const char *to_bucket, const char *to_key, const struct object_copy_options *options,
	struct object_info *info, struct penstock_error *err);

/* Returns 0 to go on, 1 to stop the listing without an error. `info` belongs to the caller of fn.
 */
typedef int (*object_list_fn)(void *cookie, const struct object_info *info);
/*
 * In byte order of the keys. `delimiter` is NULL or a string; `cancel` may be NULL. A store that lists
 * keys that are not below `prefix`, or does not get on, is PENSTOCK_E_PROTOCOL.
 */
int object_list(struct object_client *client, const char *bucket, const char *prefix,
	const char *delimiter, object_list_fn fn, void *cookie, const atomic_int *cancel,
	struct penstock_error *err);

/* Uploads in parts that were neither completed nor ended. `fn` returns non-zero to stop. */
typedef int (*object_upload_fn)(
	void *cookie, const char *key, const char *id, int64_t initiated_ns);
int object_list_uploads(struct object_client *client, const char *bucket, const char *prefix,
	object_upload_fn fn, void *cookie, struct penstock_error *err);
/* Frees its parts. One that is not there is a success. Takes 5 s at most. */
int object_abort_upload(struct object_client *client, const char *bucket, const char *key,
	const char *id, struct penstock_error *err);

/* Where the endpoint honours If-None-Match: * and If-Match. */
struct object_conditions {
	bool put;      /* on PUT */
	bool complete; /* on the Complete of an upload in parts */
	bool remove;   /* If-Match on DELETE */
};
/* Probed once per client with a small object "<prefix>probe-<random>", which is removed; a kill leaves it. */
int object_probe_conditions(struct object_client *client, const char *bucket, const char *prefix,
	struct object_conditions *honoured, struct penstock_error *err);

#endif
