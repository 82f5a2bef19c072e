/*
 * The object store on disk: buckets, objects and multipart uploads below one root directory. There
 * is no HTTP and no authentication here. One process owns a root; other processes may open the same
 * root as guests, which only read.
 *
 *	struct store *store;
 *	struct store_body *body;
 *
 *	r = store_open(&store, &(struct store_options){ .root = root }, err);
 *	if (r == 0)
 *		r = store_body_new(store, size, true, &body, err);
 *	if (r == 0)
 *		r = store_body_write(body, data, len, err);
 *	if (r == 0)
 *		r = store_body_sync(body, err);
 *	if (r == 0)
 *		status = store_put(store, &(struct store_put){ .bucket = "b", .key = "k",
 *			.body = body, .etag = md5_hex }, err);
 *	store_body_free(body);
 *
 * A change is acknowledged (the call returns, or its `done` is called) when data, directory entry
 * and metadata are on stable storage. With `relaxed` the syncs are left out: a crash of the
 * machine, but not of the process, then undoes all changes of about the last half minute together.
 * At any instant a key has its old object or its new object. Readers hold a struct store_object, an
 * immutable snapshot whose bytes stay readable until the snapshot is released, even if the key
 * changes in the meantime.
 *
 * All changes pass through one committer thread, which groups pending changes into one transaction.
 * Every function may be called from any thread.
 *
 * Keys are NUL-terminated UTF-8, ordered by their bytes. ETags have no quotes.
 *
 * A bucket with versioning keeps what a put or a delete replaces. The current version of a key is
 * its object; a key has no object if a delete marker is newer. The name of a version is a text;
 * "null" is the name of a version that was made without versioning; a key has at most one such
 * version. docs/decisions/store-layout.md describes the files and the reasons.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <penstock/error.h>

#include "base/limits.h"

struct buf;
struct store;
struct store_body;

/* The result of a call. `err` is set only for STORE_FAILED and STORE_NO_SPACE. */
enum store_status {
	STORE_OK = 0,
	STORE_NO_SUCH_BUCKET,
	STORE_NO_SUCH_KEY,
	STORE_NO_SUCH_UPLOAD,
	STORE_NO_SUCH_VERSION,
	STORE_BUCKET_EXISTS,
	STORE_BUCKET_NOT_EMPTY,
	STORE_TOO_MANY_BUCKETS,
	STORE_PRECONDITION, /* a condition failed, or the key already has the replica */
	STORE_VERSION_TAKEN, /* the key has another version with the name of the replica */
	STORE_INVALID_PART, /* a part is missing, or its ETag or checksum is not the caller's */
	STORE_PART_TOO_SMALL, /* a part other than the last has less than LIMIT_S3_PART_MIN */
	STORE_TOO_LARGE, /* the total of the parts exceeds LIMIT_S3_OBJECT_MAX */
	STORE_TOO_MANY_PIECES, /* the list of the object's pieces exceeds LIMIT_STORE_LAYOUT */
	STORE_LOCKED, /* Object Lock protects the version */
	STORE_BUCKET_STATE, /* the versioning of the bucket does not allow the change */
	/* a source piece is gone, or a header is not as expected: read the object again and
	 * retry */
	STORE_CHANGED,
	STORE_NO_SPACE,
	STORE_FAILED,
};

struct store_options {
	const char *root; /* created (0700) if missing */
	const char *master_key; /* path of the file of the master key; NULL for ROOT/master-key */
	bool relaxed;
	/* Relaxed only: time within which a change is synced. STORE_RELAXED_MS if 0. */
	int64_t relaxed_ms;
	/* Reads an existing store, even while another process owns it; any change is forbidden. A
	 * file may vanish while it is read, unless store_hold() keeps the files. */
	bool guest;
	bool keep_orphans; /* no sweep of files that no row names */
	/* store_object_map() maps no file: with TLS this process would read the mapped bytes */
	bool no_mapping;
};
#define STORE_RELAXED_MS 30000

/* Opens the store. Fails with PENSTOCK_E_EXISTS if another process owns the root, except for a
 * guest. A background thread of the owner sweeps files left by a crash. */
int store_open(struct store **out, const struct store_options *options, struct penstock_error *err);
/* Closes the store. All objects must be released, and all bodies freed, before. `store` may be
 * NULL. */
void store_close(struct store *store);
/* Returns true if changes are not synced when they are made. */
bool store_is_relaxed(const struct store *store);
/* Returns the open, locked ROOT/lock, or -1 for a guest. */
int store_lock_fd(const struct store *store);
/* For a guest: prevents the owner from removing data files until the guest is closed, so that every
 * file that a later read of the database names exists. Waits while the owner removes files. */
int store_hold(struct store *store, struct penstock_error *err);
/* Unlinks the files of deleted and replaced objects, except files that must be kept for now. Called
 * if the disk is full, because the thread that unlinks such files may not have done so yet. */
void store_reclaim(struct store *store);
/* Gets the number of bytes that are free for bodies. */
int store_free_bytes(struct store *store, uint64_t *bytes, struct penstock_error *err);

/* Counts of the committer. */
struct store_commits {
	uint64_t waiting; /* changes in the queue, or in the transaction that is being committed */
	/* since the store was opened, including failed transactions and changes */
	uint64_t transactions, changes;
};
void store_commits(struct store *store, struct store_commits *out);

/* --- buckets ------------------------------------------------------------------------------- */

#define STORE_REGION_SIZE 64
#define STORE_OWNER_SIZE  13 /* the number of an account and NUL */
/* The stored header with the owner of an object. */
#define STORE_OWNER_HEADER ":owner"
/* The stored header with the storage class of an object; missing if the class is STANDARD. */
#define STORE_CLASS_HEADER "x-amz-storage-class"
#define STORE_CLASS_SIZE   24 /* the longest class is INTELLIGENT_TIERING */

enum store_versioning {
	STORE_UNVERSIONED, /* the bucket never had versioning */
	STORE_VERSIONED,
	STORE_SUSPENDED, /* changes make and replace the version "null"; other versions are kept */
};

/* A call that changes a bucket gets its name, and `id` of the bucket that the caller has checked or
 * 0 for any bucket of the name. The result is STORE_NO_SUCH_BUCKET if the name now belongs to
 * another bucket. */
struct store_bucket {
	int64_t id; /* not in lists; no other bucket gets the id later */
	char name[64];
	char region[STORE_REGION_SIZE]; /* as passed when the bucket was created, or "" */
	char owner[STORE_OWNER_SIZE]; /* as passed when the bucket was created, or "" */
	int64_t created_ns;
	enum store_versioning versioning; /* not set in lists */
};
enum store_status store_bucket_create(
	struct store *store, const char *name, const char *region, struct penstock_error *err);
#define STORE_NEW_CONFIGS 3
struct store_new_bucket {
	const char *name;
	const char *region; /* "" if the bucket has no region */
	const char *owner; /* NULL if the bucket has no owner */
	uint64_t max; /* maximum number of buckets of the owner; 0 if there is no limit */
	struct {
		const char *name, *text;
	} configs[STORE_NEW_CONFIGS];
	size_t n_configs;
	bool lock; /* enable versioning and Object Lock, without a default retention */
};
/* Creates a bucket with its configurations and its lock. Returns STORE_TOO_MANY_BUCKETS if its
 * owner has `max` buckets. */
enum store_status store_bucket_add(
	struct store *store, const struct store_new_bucket *bucket, struct penstock_error *err);
enum store_status store_bucket_delete(
	struct store *store, const char *name, int64_t id, struct penstock_error *err);
enum store_status store_bucket_get(struct store *store, const char *name, struct store_bucket *out,
	struct penstock_error *err);
/* `versioning` is not STORE_UNVERSIONED. Returns STORE_BUCKET_STATE for STORE_SUSPENDED if the
 * bucket has Object Lock. */
enum store_status store_bucket_set_versioning(struct store *store, const char *name, int64_t id,
	enum store_versioning versioning, struct penstock_error *err);
/* Appends a configuration of a bucket, which is any document of the caller, to `out`. Returns
 * STORE_NO_SUCH_KEY if the bucket has no configuration of that name. */
enum store_status store_config_get(struct store *store, const char *bucket, const char *name,
	struct buf *out, struct penstock_error *err);
/* Adds or replaces a configuration, or removes it if `data` is NULL. */
enum store_status store_config_set(struct store *store, const char *bucket, int64_t id,
	const char *name, const void *data, size_t len, struct penstock_error *err);
struct store_config {
	char bucket[64];
	char *value; /* NUL-terminated */
	size_t len;
};
/* Gets the configurations of that name of all buckets; store_config_list_free() frees the list. */
enum store_status store_config_list(struct store *store, const char *name,
	struct store_config **out, size_t *n, struct penstock_error *err);
void store_config_list_free(struct store_config *list, size_t n);
/* Sums of the sizes of configurations of one name: for a bucket, for all buckets of its owner, and
 * for all buckets. */
struct store_config_sizes {
	uint64_t bucket, owner, all;
};
/* The size of a configuration is its length and `extra` bytes. */
enum store_status store_config_sizes(struct store *store, const char *bucket, const char *name,
	size_t extra, struct store_config_sizes *out, struct penstock_error *err);
/* Returns a number that changes when a configuration or the set of buckets changes. */
uint64_t store_config_generation(const struct store *store);
struct store_bucket_query {
	const char *owner; /* NULL for buckets without an owner */
	const char *after, *prefix; /* limits of the name; NULL for no limit */
	const char *region; /* may be ""; NULL for all regions */
	uint64_t max;
};
/* Lists buckets in the order of their names; the caller frees *out. */
enum store_status store_bucket_list(struct store *store, const struct store_bucket_query *query,
	struct store_bucket **out, size_t *n, struct penstock_error *err);

/* --- records -------------------------------------------------------------------------------- */

/* Named texts of the caller, such as accounts and users. */
struct store_record {
	const char *name;
	const char *value; /* NULL removes the record */
};
/* Changes all records, or none. */
enum store_status store_record_set(struct store *store, const struct store_record *records,
	size_t n, struct penstock_error *err);
/* Calls `each` for all records. Stops with STORE_FAILED if a call does not return 0. */
enum store_status store_record_list(struct store *store,
	int (*each)(void *cookie, const char *name, const char *value, size_t len,
		struct penstock_error *err),
	void *cookie, struct penstock_error *err);

/* --- events ---------------------------------------------------------------------------------- */

/* The request that makes a change; the texts may be NULL. */
struct store_origin {
	const char *event; /* "ObjectCreated:Put"; for a delete only the part before ':' */
	const char *request_id, *remote, *requester, *owner;
};
#define STORE_EVENT_SIZE 64
struct store_change {
	const char *bucket, *key;
	const char *event; /* "ObjectRemoved:DeleteMarkerCreated" */
	uint64_t size;
	const char *etag; /* NULL if no object was made */
	const char *version; /* "" in a bucket without versioning */
	int64_t modified_ns;
	const struct store_origin *origin;
};
/* A new version, or a delete marker, in a bucket that is STORE_VERSIONED, or a version in which one
 * of the store's own headers has changed. */
struct store_new_version {
	const char *bucket, *key, *version;
	uint64_t size;
	bool marker;
	const char *note; /* the name of the header that has changed; NULL for a new version */
	const char *before; /* the value of that header before the change; NULL if it was missing */
	/* As in struct store_object; NULL and 0 for a marker. An observer may append headers of a
	 * new version to `more`, which is NULL for a changed header. */
	const char *headers;
	size_t headers_len;
	struct buf *more;
};
struct store_observer {
	/* `change` and `version` are called in the transaction of a change, and return 0,
	 * STORE_EVENT_NO_MEMORY, or the code of store_event_add(). If one of these functions fails,
	 * the change fails, too. Either may be NULL. */
	int (*change)(void *cookie, struct store *store, const struct store_change *change);
	/* Not called when a replica, or a marker of store_expire(), is made. */
	int (*version)(void *cookie, struct store *store, const struct store_new_version *version);
	void (*added)(void *cookie); /* called after a commit that added events; must not block */
	void *cookie;
};
#define STORE_EVENT_NO_MEMORY 7
#define STORE_OBSERVERS	      2
/* Adds an observer; must be called before any change. The callback `change` gets the changes that
 * have an origin. */
void store_observe(struct store *store, const struct store_observer *observer);
/* For an observer: adds an event, a text for delivery to a target. Has no effect if
 * store_event_targets() has not added the target. Beyond the limit of the target the event is
 * dropped and counted. `bytes` are counted while the event is pending; if `bytes` is not 0, the
 * text begins with this number. Returns 0 or an SQLite error code. */
int store_event_add(
	struct store *store, const char *target, uint64_t bytes, const char *text, size_t len);
/* Adds an event in a transaction of its own. */
enum store_status store_event_put(
	struct store *store, const char *target, const char *text, struct penstock_error *err);
struct store_event {
	int64_t id;
	int64_t added_ns;
	char *text; /* NUL-terminated */
	size_t len;
};
/* Gets the oldest events of a target, at most `max`; store_event_list_free() frees the list. */
enum store_status store_event_list(struct store *store, const char *target, size_t max,
	struct store_event **out, size_t *n, struct penstock_error *err);
void store_event_list_free(struct store_event *list, size_t n);
/* An event of a target to remove, because it needs no delivery any more. */
struct store_event_end {
	int64_t id;
	uint64_t bytes; /* as passed to store_event_add() */
	/* a header to change in the same transaction; NULL if there is none */
	const struct store_annotation *note;
};
/* Removes events in one transaction. A `note` for a version that is gone has no effect. */
enum store_status store_event_remove(struct store *store, const char *target,
	const struct store_event_end *ends, size_t n, struct penstock_error *err);
/* Targets of one kind: their names begin with `kind`, and have no '/' after `kind`. */
struct store_targets {
	const char *kind;
	const char *const *names;
	size_t n;
	size_t limit; /* maximum number of pending events of a target; 0 if unlimited */
	bool keep_strays;
};
/* Adds targets. Must be called before the first event. Other targets of the kind are strays, whose
 * events are removed unless `keep_strays` is set; `*strays` gets the number of these events. */
enum store_status store_event_targets(struct store *store, const struct store_targets *targets,
	size_t *strays, struct penstock_error *err);
struct store_event_count {
	size_t waiting;
	uint64_t bytes;
	uint64_t dropped; /* since the store was opened */
};
/* Returns zeros for an unknown target. */
struct store_event_count store_event_count(const struct store *store, const char *target);
/* Returns the age of the oldest pending event, or 0 if there is no event, if the event cannot be
 * read, or if the clock was set back. */
int64_t store_event_lag_ns(struct store *store, const char *target);

/* --- encryption ----------------------------------------------------------------------------- */

/* The encryption of the bytes of an object. The names, headers, sizes, ETags and checksums of
 * objects are not encrypted. */
enum store_encryption {
	STORE_PLAIN,
	STORE_OWN_KEY, /* with a key of the store */
	STORE_CUSTOMER_KEY, /* with a key that each request contains and the store does not keep */
};
#define STORE_KEY_SIZE 32
struct store_key {
	uint8_t bytes[STORE_KEY_SIZE];
};

/* An object or an upload whose bytes are encrypted has this header of the store. The caller adds
 * this header, and calls store_body_encrypt() with the same key. */
#define STORE_ENCRYPTION_HEADER ":encryption"
#define STORE_ENCRYPTION_SIZE	112
/* Formats the text of the header; `customer` is NULL for a key of the store. */
int store_encryption_format(const struct store_key *customer,
	char out[static STORE_ENCRYPTION_SIZE], struct penstock_error *err);
/* `text` is NULL for an object without the header. */
enum store_encryption store_encryption_of(const char *text);
/* Sets *same to true if `text`, of a STORE_CUSTOMER_KEY, was made with `key`, else to false. */
int store_encryption_check(
	const char *text, const struct store_key *key, bool *same, struct penstock_error *err);

/* Computes an ETag from the MD5 of bytes that are encrypted with a customer's key: the same bytes
 * and the same key have the same ETag, which does not reveal the MD5 of the bytes. */
int store_customer_etag(const struct store_key *key, const uint8_t md5[static 16],
	char out[static 33], struct penstock_error *err);

/* Gets the default encryption of a bucket, for requests that name no encryption: STORE_PLAIN or
 * STORE_OWN_KEY. Reads nothing if no bucket has, or had, a default encryption. */
enum store_status store_default_encryption(struct store *store, const char *bucket,
	enum store_encryption *out, struct penstock_error *err);
/* The name of the configuration of a bucket that has a default encryption; any text means
 * STORE_OWN_KEY. */
#define STORE_ENCRYPTION_CONFIG "encryption"

/* --- incoming bodies ------------------------------------------------------------------------ */

#define STORE_SIZE_UNKNOWN UINT64_MAX

/* Bodies up to this size are inline (kept in the database), if the caller allows it. */
#define STORE_INLINE_MAX 16384

/* `size` is the expected size, or STORE_SIZE_UNKNOWN; the body may get another size. If
 * `may_inline` is false, the body is a file regardless of its size. */
int store_body_new(struct store *store, uint64_t size, bool may_inline, struct store_body **out,
	struct penstock_error *err);
/* Encrypts the body; called before its first byte is written. `customer` is NULL for a key of the
 * store. */
int store_body_encrypt(
	struct store_body *body, const struct store_key *customer, struct penstock_error *err);
int store_body_write(
	struct store_body *body, const void *data, size_t len, struct penstock_error *err);
/* Returns all bytes written so far if the body is to be a file and memory still has them, else
 * NULL. The result is valid until the next write or the sync. */
const void *store_body_held(const struct store_body *body);
/* Reads exactly `len` bytes from a body that is a file and not yet synced. */
int store_body_read(struct store_body *body, uint64_t offset, void *data, size_t len,
	struct penstock_error *err);
uint64_t store_body_size(const struct store_body *body);
/* Returns true if the body has no file: store_body_sync() then returns at once. */
bool store_body_is_inline(const struct store_body *body);
/* Makes the bytes and the name of their file durable, unless durability is relaxed; blocks. No more
 * bytes may be written afterwards. */
int store_body_sync(struct store_body *body, struct penstock_error *err);
/* Removes the bytes unless a put of an object or a part took them over. `body` may be NULL. */
void store_body_free(struct store_body *body);

/* --- objects ------------------------------------------------------------------------------- */

#define STORE_ETAG_SIZE	    40 /* 32 digits, "-10000", NUL */
#define STORE_VERSION_SIZE  17 /* "null", or 16 hexadecimal digits */
#define STORE_CHECKSUM_SIZE 96 /* base64 of 64 bytes, "-10000", NUL */

/* Algorithm names such as "CRC64NVME", types "FULL_OBJECT" and "COMPOSITE"; all empty if there is
 * no checksum. */
struct store_checksum {
	char algorithm[12];
	char type[12];
	char value[STORE_CHECKSUM_SIZE];
};

/* A run of bytes in a data file. */
struct store_piece {
	uint64_t blob;
	uint64_t offset;
	uint64_t length;
};

/* One part of an object that was uploaded in parts. */
struct store_part {
	uint32_t number;
	uint64_t size;
	char etag[STORE_ETAG_SIZE];
	char checksum[STORE_CHECKSUM_SIZE]; /* the value of the checksum, or "" */
	int64_t modified_ns; /* only in listings of an unfinished upload */
};

struct store_blob;
struct quota_share;

/* A snapshot; read-only outside of src/store. */
struct store_object {
	atomic_uint refs;
	struct store *store;
	uint64_t size;
	int64_t modified_ns;
	char etag[STORE_ETAG_SIZE];
	char version[STORE_VERSION_SIZE];
	bool versioned; /* the bucket is not STORE_UNVERSIONED */
	bool marker; /* a delete marker, which has no content */
	enum store_encryption encryption;
	struct store_checksum checksum;
	/* The stored headers, as in store/header.h. */
	const char *headers;
	size_t headers_len;
	size_t n_parts; /* 0 if uploaded at once */
	const struct store_part *parts;
	size_t n_pieces;
	const struct store_piece *pieces;
	struct store_blob **blobs; /* blobs of the pieces, pinned */
	const struct seal *seals; /* seals of the pieces, if they are encrypted; else NULL */
	size_t memory; /* bytes of this snapshot */
	struct quota_share *share; /* counts these bytes; NULL if they are few */
	/* Set by a reader that has compared all bytes with the checksum and found no difference. */
	atomic_bool verified;
	/* Set by a reader that has combined the checksums of the parts: 1 if the result is the
	 * checksum of the object, -1 if not; 0 if unknown. */
	atomic_int part_sums;
	/* The bytes of an inline object (kept in the database), encrypted only with a customer's
	 * key; NULL for other objects. */
	const void *body;
	size_t body_len;
};

/* Gets the object of a key; the caller releases the object. If the result is STORE_NO_SUCH_KEY,
 * `*out` is the delete marker, or NULL if there is no delete marker. Like the other functions that
 * get objects, fails with PENSTOCK_E_MEMORY at LIMIT_STORE_SNAPSHOTS. */
enum store_status store_object_get(struct store *store, const char *bucket, const char *key,
	struct store_object **out, struct penstock_error *err);
/* Gets a version, or the newest version if `version` is NULL; the result may be a delete marker.
 * Returns STORE_NO_SUCH_VERSION if there is no version of that name. */
enum store_status store_version_get(struct store *store, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err);
/* Returns false if no version can have such a name. */
bool store_version_is_valid(const char *version);
/* Returns true for a name that a replica may have: the time in the name must be before 2116. */
bool store_replica_is_valid(const char *version);
struct store_object *store_object_ref(struct store_object *object);
/* Returns a copy with the time and the headers only, for a struct store_condition: a whole snapshot
 * may take megabytes. Returns NULL if out of memory. */
struct store_object *store_object_outline(const struct store_object *object);
/* `object` may be NULL. */
void store_object_unref(struct store_object *object);
static inline void store_object_unrefp(struct store_object **object)
{
	store_object_unref(*object);
}
/* Returns true if a copy with this encryption may share the bytes of an object; if not, the copy
 * needs a body. For STORE_CUSTOMER_KEY the caller also checks that the two keys are the same. */
bool store_object_is_shareable(const struct store_object *object, enum store_encryption encryption);
/* Returns the value of a stored header, or NULL if it is missing. `name` is in lower case. */
const char *store_object_header(const struct store_object *object, const char *name);
/*
 * Returns the bytes of a range, which lies within the object: in the inline body, or in a mapped
 * file. Returns NULL if the range is in several pieces or in an encrypted file, needs a customer's
 * key, or cannot be mapped; the caller reads such a range. The result is valid as long as the
 * object. Pass the result to the kernel only (send): a disk error under a mapping raises SIGBUS in
 * code that reads the bytes.
 */
const void *store_object_map(const struct store_object *object, uint64_t offset, uint64_t length);

/*
 * Opens the file that contains these bytes contiguously, for sendfile(); the bytes begin at offset
 * `*at` of the file. The caller closes the file, which stays valid without the object. Returns -1
 * if the bytes are in the database, in several pieces or encrypted, or if the file cannot be
 * opened; the caller maps or reads such bytes.
 */
int store_object_open(
	const struct store_object *object, uint64_t offset, uint64_t length, uint64_t *at);

/* Reads an object piece by piece; holds a reference and at most one open file. */
struct store_reader;
int store_reader_new(
	struct store_object *object, struct store_reader **out, struct penstock_error *err);
/* Sets the key of a customer, which store_reader_free() wipes. */
void store_reader_set_key(struct store_reader *reader, const struct store_key *customer);
/* Opens the file of the first of these bytes, which are within the object. Fails if a file that has
 * some of the bytes is missing or too short; checks only the first STORE_CHECKED_FILES, so that the
 * call is cheap. A later read can still fail. */
#define STORE_CHECKED_FILES 256
int store_reader_check(
	struct store_reader *reader, uint64_t offset, uint64_t length, struct penstock_error *err);
/* Returns fewer bytes than `len` only at the end of the object, or -1 with `err` set. */
ssize_t store_reader_read(struct store_reader *reader, uint64_t offset, void *data, size_t len,
	struct penstock_error *err);
void store_reader_free(struct store_reader *reader);

/* Conditions for the current object of the key at the time of the change. */
struct store_condition {
	const char *if_match; /* a list of ETags, or "*" for any object */
	const char *if_none_match; /* a list of ETags, or "*" for no object */
	/* For deletes: the state that the object must have. */
	bool has_size, has_modified;
	uint64_t size;
	int64_t modified_s; /* in whole seconds */
	/* The object that the access check has read; NULL if the check found no object. The result
	 * is STORE_CHANGED if the key has another object, or if the headers of the object, such as
	 * its tags, have changed. */
	bool has_decided;
	struct store_object *decided;
};

/*
 * Replaces the object of a key. The new object has the bytes of `body`, or, for a copy, shares the
 * bytes of `source`. The caller still owns what the members point to, which must live until the put
 * has ended. After a success `body` is empty.
 */
struct store_put {
	const char *bucket;
	int64_t bucket_id; /* store_bucket.id, or 0 for any bucket of the name */
	const char *key;
	struct store_body *body;
	struct store_object *source;
	const char *etag;
	struct store_checksum checksum;
	const char *headers; /* as in struct store_object */
	size_t headers_len;
	struct store_condition condition;
	const struct store_origin *origin; /* NULL if the put is not an event */
	/* For a copy that keeps the parts of its source. */
	size_t n_parts;
	const struct store_part *parts;
	/* Results. */
	enum store_status status;
	struct penstock_error error; /* the caller releases it */
	uint64_t size;
	int64_t modified_ns;
	char version[STORE_VERSION_SIZE]; /* "" in a bucket without versioning */
	/* Called once when the results are set: by the committer's thread, or by the caller's
	 * thread if the put cannot be submitted. Must not block. */
	void (*done)(struct store_put *put, void *cookie);
	void *cookie;
};
/* Returns without waiting; `done` is always called. */
void store_put_submit(struct store *store, struct store_put *put);
/* Waits for the result, which is also in `put`. Moves the error to `err`; does not call `done`. */
enum store_status store_put(struct store *store, struct store_put *put, struct penstock_error *err);

/*
 * A put or an upload with this header of the store makes a replica: a version of another store, at
 * its place among the versions of the key. The value is the name of the version. The result is
 * STORE_PRECONDITION if the key has that version already, or STORE_VERSION_TAKEN if the version of
 * that name has another ETag, or is a delete marker. In a bucket that is not STORE_VERSIONED, or if
 * store_replica_is_valid() is false for the name, the header has no effect. The default retention
 * of the bucket begins when the replica arrives, not at the time of the version.
 */
#define STORE_REPLICA_HEADER ":replica"
/* Prefix of the headers with the state of a version's replication. A version in the next two states
 * has an event. An import drops these states, because archives have no events. */
#define STORE_REPLICATION_HEADER  ":replication/"
#define STORE_REPLICATION_PENDING "PENDING"
#define STORE_REPLICATION_REFUSED "REFUSED"

/*
 * Changes one of the store's own headers of a version, or of the object if `version` is NULL;
 * nothing else of the version changes, not even its time. Returns STORE_CHANGED if the header does
 * not have the expected value: get the object again, and retry.
 */
struct store_annotation {
	const char *bucket;
	int64_t bucket_id; /* store_bucket.id, or 0 for any bucket of the name */
	const char *key;
	const char *version;
	const char *name; /* begins with ':' */
	const char *value; /* NULL removes the header */
	const char *expected; /* NULL if the header must be missing */
	bool any; /* the header may have any value, or be missing */
	/* Time of the version that the caller has seen; 0 for any version of that name. The result
	 * is STORE_CHANGED if the version of that name has another time. */
	int64_t modified_ns;
};
enum store_status store_annotate(
	struct store *store, const struct store_annotation *annotation, struct penstock_error *err);

/* Deletes a version, or the object if `version` is NULL; a bucket with versioning then keeps the
 * object as an older version, behind a delete marker. */
struct store_delete {
	const char *key;
	const char *version; /* a valid name (store_version_is_valid()), or NULL */
	struct store_condition condition; /* a missing object satisfies if_match */
	bool bypass; /* a retention in the mode STORE_GOVERNANCE does not protect the version */
	const struct store_origin *origin; /* NULL if the delete is not an event */
	bool unseen; /* the callback `version` of observers is not called */
	/* The name of a delete marker that is a replica. If NULL, or if store_replica_is_valid() is
	 * false for the name, the delete marker gets a new name. */
	const char *replica;
	/* Results. */
	/* STORE_OK even if the object is missing; else STORE_PRECONDITION, STORE_LOCKED,
	 * STORE_VERSION_TAKEN or STORE_CHANGED */
	enum store_status status;
	bool existed;
	bool marker; /* a delete marker was made, or deleted */
	char made[STORE_VERSION_SIZE]; /* the version of the marker that was made, else "" */
};
/* Deletes all items, each with its own result: in one transaction, or in several if the items have
 * many pieces. After a failure some items may be deleted. */
enum store_status store_delete(struct store *store, const char *bucket, int64_t id,
	struct store_delete *items, size_t n, struct penstock_error *err);

/* --- lifecycle ------------------------------------------------------------------------------ */

/* A version, or a delete marker. Rows are in the order of the keys; the rows of a key begin with
 * the newest version. */
struct store_row {
	const char *key;
	int64_t modified_ns;
	int64_t newer_ns; /* time at which the next newer version was made; 0 for the newest */
	size_t n_newer; /* noncurrent versions that are newer; markers do not count */
	uint64_t size;
	bool marker, is_null;
	bool alone; /* a marker that is the only version of its key */
	const char *headers; /* as in struct store_object */
	size_t headers_len;
};
/* The place of a walk; zeroed at the start. No lock is held between two steps. */
struct store_walk {
	char key[LIMIT_S3_KEY + 1];
	int64_t modified_ns;
	size_t n_noncurrent;
	bool ended;
};
struct store_walk_step {
	const char *bucket;
	const char *prefix;
	size_t max; /* rows */
	bool (*row)(void *cookie, const struct store_row *row); /* returns false if out of memory */
	void *cookie;
};
/* Walks over the next rows of a bucket. */
enum store_status store_walk(struct store *store, const struct store_walk_step *step,
	struct store_walk *walk, struct penstock_error *err);

enum store_expiry_kind {
	STORE_EXPIRE_OBJECT, /* the current version; with versioning its key gets a delete marker */
	STORE_EXPIRE_VERSION, /* a version or marker that is noncurrent */
	STORE_EXPIRE_MARKER, /* a marker that is the only version of its key */
};
/* A version to delete if it has not changed since a walk found it. Object Lock protects the version
 * as in store_delete(), and so does a replication that waits (store_header_waits()). */
struct store_expiry {
	enum store_expiry_kind kind;
	const char *key;
	int64_t modified_ns;
	bool is_null;
	/* The version must have the header `header` with this value, or without that header if
	 * `value` is NULL. No header is compared if `header` is NULL. */
	const char *header, *value;
	const struct store_origin *origin; /* NULL if the deletion is not an event */
	bool done; /* result */
};
/* The configuration that makes items expire. */
struct store_rules {
	const char *name;
	const void *text;
	size_t len;
};
/* Deletes all items, in one or more transactions like store_delete(). Returns STORE_CHANGED if the
 * configuration of the bucket is not `rules` any more; `rules` may be NULL. */
enum store_status store_expire(struct store *store, const char *bucket,
	const struct store_rules *rules, struct store_expiry *items, size_t n,
	struct penstock_error *err);

/* --- Object Lock ---------------------------------------------------------------------------- */

enum store_lock_mode {
	STORE_NOT_LOCKED,
	STORE_GOVERNANCE, /* protected until a time, unless the caller bypasses the retention */
	STORE_COMPLIANCE, /* protected until a time */
};

/* Two of the store's own headers protect a version from store_delete() and store_expire(): a
 * retention, and a legal hold, which has no end. A delete marker can always be made, and
 * deleted. */
#define STORE_RETENTION_HEADER ":retention" /* the text of store_retention_format() */
#define STORE_HOLD_HEADER      ":legal-hold"
#define STORE_HOLD_ON	       "ON" /* any other value means no hold */

struct store_retention {
	enum store_lock_mode mode; /* STORE_NOT_LOCKED if there is no retention */
	int64_t until_ns;
};
#define STORE_RETENTION_SIZE 24 /* a letter, a blank, a number of 64 bits and NUL */
void store_retention_format(
	const struct store_retention *retention, char out[static STORE_RETENTION_SIZE]);
struct store_retention store_retention_parse(const char *text);
struct store_retention store_object_retention(const struct store_object *object);
/* Returns true if a retention may be replaced: an active retention keeps its mode and does not get
 * shorter, except for a caller that bypasses STORE_GOVERNANCE. */
bool store_retention_may_become(const struct store_retention *old,
	const struct store_retention *new, int64_t now_ns, bool bypass);

/* The Object Lock of a bucket, whose versions may have a retention and a legal hold. Object Lock is
 * never removed from a bucket. */
struct store_lock {
	enum store_lock_mode mode; /* mode of the default retention of new versions */
	unsigned days, years; /* length of the default retention; at least one is 0 */
};
/* Returns STORE_NO_SUCH_KEY if the bucket has no Object Lock. */
enum store_status store_lock_get(struct store *store, const char *bucket, struct store_lock *out,
	struct penstock_error *err);
/* Returns STORE_BUCKET_STATE if the bucket is not STORE_VERSIONED. */
enum store_status store_lock_set(struct store *store, const char *bucket, int64_t id,
	const struct store_lock *lock, struct penstock_error *err);

/* --- listing ------------------------------------------------------------------------------- */

struct store_list_query {
	const char *bucket;
	const char *prefix; /* "" or NULL for all */
	const char *delimiter; /* "" or NULL for no grouping */
	const char *after; /* only keys and common prefixes after this text; may be NULL */
	size_t max;
};
struct store_list_entry {
	char *key; /* or the common prefix */
	bool is_prefix;
	uint64_t size;
	int64_t modified_ns; /* for an unfinished upload: its start */
	char etag[STORE_ETAG_SIZE]; /* for an unfinished upload: its id */
	struct store_checksum checksum; /* without its value */
	char storage_class[STORE_CLASS_SIZE]; /* "" if the class is STANDARD */
	char owner[STORE_OWNER_SIZE]; /* only in lists of uploads; "" if there is no owner */
	/* Only in lists of versions: */
	char version[STORE_VERSION_SIZE];
	bool is_marker, is_latest;
};
struct store_list {
	struct store_list_entry *entries; /* keys and common prefixes together, in byte order */
	size_t n;
	bool truncated; /* there are more entries */
};
enum store_status store_list_objects(struct store *store, const struct store_list_query *query,
	struct store_list *out, struct penstock_error *err);
/* Lists all versions of all keys; the list of a key begins with its newest version. `after_version`
 * continues among the versions of the key `query->after` itself; NULL continues after that key. */
enum store_status store_version_list(struct store *store, const struct store_list_query *query,
	const char *after_version, struct store_list *out, struct penstock_error *err);
/* Gets a text for `after_version` with which a list continues after an entry. Unlike the name
 * "null", this text stays valid if the entry is deleted. */
void store_version_place(const struct store_list_entry *entry, char out[static STORE_VERSION_SIZE]);
void store_list_release(struct store_list *list);

/* --- multipart ----------------------------------------------------------------------------- */

#define STORE_UPLOAD_ID_SIZE 33 /* 32 hexadecimal digits and NUL */

struct store_upload {
	int64_t started_ns; /* set by store_upload_get() */
	struct store_checksum checksum; /* algorithm and type */
	char *headers; /* headers of the future object; owned */
	size_t headers_len;
};
void store_upload_release(struct store_upload *upload);

/* `in` has headers and checksum; `id` gets the new id. */
enum store_status store_upload_create(struct store *store, const char *bucket, int64_t bucket_id,
	const char *key, const struct store_upload *in, char id[static STORE_UPLOAD_ID_SIZE],
	struct penstock_error *err);
enum store_status store_upload_get(struct store *store, const char *bucket, const char *key,
	const char *id, struct store_upload *out, struct penstock_error *err);
enum store_status store_upload_abort(struct store *store, const char *bucket, int64_t bucket_id,
	const char *key, const char *id, struct penstock_error *err);

/* A place among the unfinished uploads of all buckets; zeros are the place before the first
 * upload. */
struct store_upload_place {
	int64_t bucket;
	char key[LIMIT_S3_KEY + 1];
	char id[STORE_UPLOAD_ID_SIZE];
};
/* Checks the next 100 uploads, and aborts uploads that were started before `before_ns` and got no
 * part since then; sets *n to the number of aborted uploads. Sets *place to the last upload that
 * was checked, or to zeros if no upload follows. */
enum store_status store_upload_expire(struct store *store, int64_t before_ns,
	struct store_upload_place *place, size_t *n, struct penstock_error *err);

/* A put of a part. Uses the bucket, key, body or source (with the range), etag and checksum.value
 * of `put`. */
struct store_part_put {
	struct store_put put;
	const char *upload;
	uint32_t number;
	uint64_t offset; /* start of the range in the source */
	uint64_t length;
};
/* put.done gets the address of `part->put`. */
void store_part_put_submit(struct store *store, struct store_part_put *part);
enum store_status store_part_put(
	struct store *store, struct store_part_put *part, struct penstock_error *err);

struct store_part_page {
	struct store_part *parts; /* the caller frees this array */
	size_t n;
	bool truncated; /* there are more parts */
};
/* Lists parts with numbers above `after`, at most `max`, in order. */
enum store_status store_part_list(struct store *store, const char *bucket, const char *key,
	const char *id, uint32_t after, size_t max, struct store_part_page *page,
	struct penstock_error *err);

/*
 * Creates the object from the named parts (number, etag and checksum of each as given by
 * store_part_list(); ascending). Copies no bytes. Other parts are dropped. The result of a repeated
 * call is STORE_NO_SUCH_UPLOAD; store_completed_get() gets the object of the first call.
 */
struct store_complete {
	const char *bucket;
	int64_t bucket_id; /* store_bucket.id, or 0 for any bucket of the name */
	const char *key;
	const char *upload;
	const struct store_part *parts;
	size_t n_parts;
	const char *etag;
	struct store_checksum checksum;
	const struct store_origin *origin; /* NULL if the change is not an event */
	struct store_condition condition;
	int64_t modified_ns; /* result */
	char version[STORE_VERSION_SIZE]; /* result; "" in a bucket without versioning */
};
enum store_status store_complete(
	struct store *store, struct store_complete *complete, struct penstock_error *err);
/* Gets the object that the upload made, which may have become an older version. Returns
 * STORE_NO_SUCH_UPLOAD if the key does not have this object. */
enum store_status store_completed_get(struct store *store, const char *bucket, const char *key,
	const char *id, struct store_object **out, struct penstock_error *err);

/* Lists the unfinished uploads. `after_id` continues among the uploads of the key `query->after`
 * itself; NULL continues after that key. */
enum store_status store_upload_list(struct store *store, const struct store_list_query *query,
	const char *after_id, struct store_list *out, struct penstock_error *err);

#endif
