/*
 * Parsers and writers of the XML documents of S3. A document has one struct for both: all
 * strings are `const char *`, so a writer's caller points them at its data; after a parse they live
 * in the struct's arena until S_release().
 *
 *	struct s3_list list = { 0 };
 *
 *	if (s3_list_parse(body.data, body.len, &list, err) < 0)
 *		return -err->code;
 *	... list.entries[i].key ...
 *	s3_list_release(&list);
 *
 * Parsers take a zeroed struct, decode `encoding-type=url` if the document uses it, skip unknown
 * elements of replies, and on failure leave the struct released. PENSTOCK_E_PROTOCOL means that the
 * text is not such a document, and PENSTOCK_E_UNSUPPORTED that a request asks for a feature that
 * the store lacks. Writers append a whole document to `out`; check buf_failed(). NULL strings are
 * left out.
 */
#ifndef S3_MESSAGE_MESSAGES_H
#define S3_MESSAGE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/message/arena.h"
#include "s3/sum/checksum.h"
#include "s3/message/errors.h"
#include "s3/message/tags.h"

/* The texts of an element that is repeated inside another element. */
struct s3_texts {
	const char **items;
	size_t n;
};

struct s3_owner {
	const char *id;
	const char *display_name;
};

struct s3_list_entry {
	const char *key;
	const char *etag; /* with quotes; for Google the generation, without quotes */
	const char *generation; /* Google's; NULL if there is none */
	const char *storage_class; /* NULL for STANDARD */
	const char *checksum_algorithm;
	const char *checksum_type; /* "FULL_OBJECT", "COMPOSITE" */
	const struct s3_owner *owner; /* NULL to leave it out; not parsed */
	uint64_t size;
	int64_t modified_ns;
};

/* ListObjects (v1: ListBucketResult with Marker) and ListObjectsV2. */
struct s3_list {
	struct arena arena; /* memory of a parsed document; must be the first member */
	int version; /* 1 or 2; set by a parse */
	const char *bucket;
	const char *prefix; /* written even if empty */
	const char *delimiter;
	const char *marker; /* v1 */
	const char *next_marker; /* v1 */
	const char *start_after; /* v2 */
	const char *continuation_token; /* v2 */
	const char *next_continuation_token; /* v2 */
	bool url_encoded; /* writer: encode keys, prefixes, delimiter, markers */
	bool truncated;
	unsigned max_keys;
	struct s3_list_entry *entries;
	size_t n_entries;
	const char **prefixes; /* common prefixes */
	size_t n_prefixes;
};
int s3_list_parse(const char *xml, size_t len, struct s3_list *out, struct penstock_error *err);
void s3_list_write(struct buf *out, const struct s3_list *list);
void s3_list_release(struct s3_list *message);

struct s3_version {
	const char *key, *version_id;
	bool is_marker; /* a delete marker, without the members below `modified_ns` */
	bool is_latest;
	int64_t modified_ns;
	const char *etag; /* with quotes */
	const char *checksum_algorithm, *checksum_type;
	const char *storage_class; /* NULL for STANDARD */
	uint64_t size;
};
/* ListVersionsResult. A parse skips the owner, the checksums, the storage classes and the members
 * that repeat the request. */
struct s3_versions {
	struct arena arena;
	const char *bucket, *prefix, *delimiter;
	const char *key_marker, *version_id_marker, *next_key_marker, *next_version_id_marker;
	bool url_encoded, truncated;
	unsigned max_keys;
	struct s3_owner owner; /* owner of each version */
	struct s3_version *versions;
	size_t n_versions;
	const char **prefixes;
	size_t n_prefixes;
};
int s3_versions_parse(
	const char *xml, size_t len, struct s3_versions *out, struct penstock_error *err);
void s3_versions_write(struct buf *out, const struct s3_versions *versions);
void s3_versions_release(struct s3_versions *message);

struct s3_bucket {
	const char *name;
	const char *region; /* not parsed */
	int64_t created_ns;
};
/* ListAllMyBucketsResult. */
struct s3_buckets {
	struct arena arena;
	struct s3_owner owner;
	struct s3_bucket *buckets;
	size_t n;
	const char *prefix, *continuation_token; /* not parsed */
};
int s3_buckets_parse(
	const char *xml, size_t len, struct s3_buckets *out, struct penstock_error *err);
void s3_buckets_write(struct buf *out, const struct s3_buckets *buckets);
void s3_buckets_release(struct s3_buckets *message);

struct s3_upload {
	const char *key;
	const char *upload_id;
	const char *storage_class; /* NULL for STANDARD */
	const char *checksum_algorithm;
	const char *checksum_type;
	int64_t initiated_ns;
	struct s3_owner owner; /* not parsed */
};
/* ListMultipartUploadsResult. */
struct s3_uploads {
	struct arena arena;
	const char *bucket, *prefix, *delimiter;
	const char *key_marker, *upload_id_marker, *next_key_marker, *next_upload_id_marker;
	bool url_encoded, truncated;
	unsigned max_uploads;
	struct s3_upload *uploads;
	size_t n_uploads;
	const char **prefixes;
	size_t n_prefixes;
};
int s3_uploads_parse(
	const char *xml, size_t len, struct s3_uploads *out, struct penstock_error *err);
void s3_uploads_write(struct buf *out, const struct s3_uploads *uploads);
void s3_uploads_release(struct s3_uploads *message);

struct s3_part {
	unsigned number;
	const char *etag;
	uint64_t size; /* lists only */
	int64_t modified_ns; /* lists only */
	/* Base64, at the index of the kind; NULL if there is no such checksum. */
	const char *checksums[CHECKSUM_KIND_COUNT_];
};
/* ListPartsResult. */
struct s3_parts {
	struct arena arena;
	const char *etag; /* ETag of the object; only in object attributes */
	const char *bucket, *key, *upload_id, *storage_class, *checksum_algorithm, *checksum_type;
	struct s3_owner owner;
	unsigned marker, next_marker, max_parts;
	bool url_encoded, truncated;
	struct s3_part *parts;
	size_t n;
};
int s3_parts_parse(const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err);
/* Parses a GetObjectAttributesResponse; reads only the ETag and the parts. */
int s3_object_parts_parse(
	const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err);
void s3_parts_write(struct buf *out, const struct s3_parts *parts);
void s3_parts_release(struct s3_parts *message);

/*
 * CompleteMultipartUpload, the request. The parser rejects part numbers outside 1 to 10,000, parts
 * out of order (`problem` is S3_E_INVALID_PART_ORDER), more than LIMIT_S3_PARTS parts, and an empty
 * list.
 */
struct s3_complete {
	struct arena arena;
	struct s3_part *parts;
	size_t n;
	enum s3_error problem; /* the error for the reply, set by a failed parse */
};
int s3_complete_parse(
	const char *xml, size_t len, struct s3_complete *out, struct penstock_error *err);
void s3_complete_write(struct buf *out, const struct s3_complete *complete);
void s3_complete_release(struct s3_complete *message);

/* Delete, the request of a multi-delete. */
struct s3_delete_item {
	const char *key;
	const char *version_id;
	/* For a conditional delete, as in the document: */
	const char *etag, *size, *modified;
};
struct s3_delete {
	struct arena arena;
	bool quiet;
	struct s3_delete_item *items;
	size_t n;
	enum s3_error problem; /* the error for the reply, set by a failed parse */
};
int s3_delete_parse(const char *xml, size_t len, struct s3_delete *out, struct penstock_error *err);
void s3_delete_write(struct buf *out, const struct s3_delete *del);
void s3_delete_release(struct s3_delete *message);

/* DeleteResult: the outcome for each key. */
struct s3_delete_outcome {
	const char *key;
	const char *version_id;
	bool marker; /* a delete marker was created, or deleted */
	const char *marker_version; /* NULL if !marker */
	const char *code; /* NULL if deleted */
	const char *message; /* text of the error */
};
struct s3_delete_result {
	struct arena arena;
	struct s3_delete_outcome *outcomes;
	size_t n;
};
int s3_delete_result_parse(
	const char *xml, size_t len, struct s3_delete_result *out, struct penstock_error *err);
void s3_delete_result_write(struct buf *out, const struct s3_delete_result *result);
void s3_delete_result_release(struct s3_delete_result *message);

/*
 * The small replies and errors share one struct: InitiateMultipartUploadResult,
 * CompleteMultipartUploadResult, CopyObjectResult, CopyPartResult, LocationConstraint and Error.
 * `kind` is the document that was received; members are marked with the kinds that have them. Check
 * `kind` even if the status is 200: a store may send the status of CompleteMultipartUpload or of a
 * copy before the operation has ended, and then an S3_REPLY_ERROR.
 */
enum s3_reply_kind {
	S3_REPLY_INITIATE,
	S3_REPLY_COMPLETE,
	S3_REPLY_COPY_OBJECT,
	S3_REPLY_COPY_PART,
	S3_REPLY_LOCATION,
	S3_REPLY_ERROR,
	S3_REPLY_KIND_COUNT_
};
struct s3_reply {
	struct arena arena;
	enum s3_reply_kind kind;
	const char *bucket, *key, *upload_id; /* INITIATE; bucket and key also COMPLETE and ERROR */
	/* COMPLETE and both COPY kinds; `location` also LOCATION (the location constraint) */
	const char *etag, *location;
	const char *checksum_type; /* COMPLETE and both COPY kinds */
	const char *checksums[CHECKSUM_KIND_COUNT_];
	int64_t modified_ns; /* both COPY kinds */
	const char *code, *message, *resource, *request_id, *host_id; /* ERROR */
	const char *region; /* ERROR: the bucket's region */
	const char *method, *resource_type; /* ERROR: of a refused preflight; not parsed */
	const char *text; /* text of the root element; set only by a parse */
};
int s3_reply_parse(const char *xml, size_t len, struct s3_reply *out, struct penstock_error *err);
void s3_reply_write(struct buf *out, const struct s3_reply *reply);
void s3_reply_release(struct s3_reply *message);

/* VersioningConfiguration. Texts are NULL if missing. */
struct s3_versioning {
	struct arena arena;
	const char *status, *mfa_delete;
};
int s3_versioning_parse(
	const char *xml, size_t len, struct s3_versioning *out, struct penstock_error *err);
/* Like s3_versioning_parse(), but skips unknown elements, which replies of stores may have. */
int s3_versioning_parse_reply(
	const char *xml, size_t len, struct s3_versioning *out, struct penstock_error *err);
void s3_versioning_release(struct s3_versioning *message);

/* CreateBucketConfiguration. An empty body is accepted. */
struct s3_create_bucket {
	struct arena arena;
	const char *location; /* NULL if missing */
	struct s3_tag *tags;
	size_t n_tags;
};
int s3_create_bucket_parse(
	const char *xml, size_t len, struct s3_create_bucket *out, struct penstock_error *err);
void s3_create_bucket_release(struct s3_create_bucket *message);
void s3_create_bucket_write(struct buf *out, const char *location);

#endif
