/* Reading the documents: the tables of their fields, and the checks after parsing. */
#include "s3/message/messages.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/ascii.h"
#include "s3/message/list_scan.h"
#include "s3/message/table.h"

/* ---- lists ---- */

static const struct field list_fields[] = {D("/Name", TEXT, s3_list, bucket),
	D("/Prefix", URL_TEXT, s3_list, prefix), D("/Delimiter", URL_TEXT, s3_list, delimiter),
	D("/Marker", URL_TEXT, s3_list, marker), D("/NextMarker", URL_TEXT, s3_list, next_marker),
	D("/StartAfter", URL_TEXT, s3_list, start_after),
	D("/StartAfter", VERSION_2, s3_list, version),
	D("/ContinuationToken", TEXT, s3_list, continuation_token),
	D("/ContinuationToken", VERSION_2, s3_list, version),
	D("/NextContinuationToken", TEXT, s3_list, next_continuation_token),
	D("/NextContinuationToken", VERSION_2, s3_list, version),
	D("/KeyCount", VERSION_2, s3_list, version), D("/MaxKeys", SMALL, s3_list, max_keys),
	D("/IsTruncated", BOOLEAN, s3_list, truncated),
	D("/EncodingType", URL_ENCODING, s3_list, url_encoded),
	{"/CommonPrefixes/Prefix", PREFIX, 0, false}, END};
static const struct field entry_fields[] = {NEEDED("/Key", URL_TEXT, s3_list_entry, key),
	D("/ETag", TEXT, s3_list_entry, etag), D("/Size", NUMBER, s3_list_entry, size),
	D("/Generation", TEXT, s3_list_entry, generation),
	D("/LastModified", DATE, s3_list_entry, modified_ns),
	D("/StorageClass", TEXT, s3_list_entry, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_list_entry, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_list_entry, checksum_type), END};
static const struct table list_table = {.what = "the list of objects",
	.roots = {"ListBucketResult"},
	.items = {"/Contents"},
	.fields = list_fields,
	.item_fields = entry_fields,
	ITEMS(s3_list, entries, n_entries, LIMIT_S3_LIST_KEYS),
	.prefixes = offsetof(struct s3_list, prefixes),
	.n_prefixes = offsetof(struct s3_list, n_prefixes)};

int s3_list_parse(const char *xml, size_t len, struct s3_list *out, struct penstock_error *err)
{
	enum list_scan scan = list_scan(xml, len, out);
	int rc;

	if (scan == LIST_SCAN_DONE) {
		rc = table_finish(&list_table, out, out->url_encoded, err);
	} else {
		s3_list_release(out);
		rc = scan == LIST_SCAN_NO_MEMORY ? error_memory(err)
						 : table_parse(&list_table, out, xml, len, err);
	}
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < out->n_entries; i++) {
		struct s3_list_entry *entry = &out->entries[i];

		if (entry->generation && *entry->generation)
			entry->etag = entry->generation;
	}
	out->version = out->version == 2 ? 2 : 1;
	return 0;
}

RELEASE(list)

static const struct field versions_fields[] = {
	D("/NextKeyMarker", URL_TEXT, s3_versions, next_key_marker),
	D("/NextVersionIdMarker", TEXT, s3_versions, next_version_id_marker),
	D("/IsTruncated", BOOLEAN, s3_versions, truncated),
	D("/EncodingType", URL_ENCODING, s3_versions, url_encoded),
	{"/CommonPrefixes/Prefix", PREFIX, 0, false}, END};
static const struct field version_fields[] = {NEEDED("/Key", URL_TEXT, s3_version, key),
	NEEDED("/VersionId", TEXT, s3_version, version_id),
	D("/IsLatest", BOOLEAN, s3_version, is_latest),
	D("/LastModified", DATE, s3_version, modified_ns), D("/ETag", TEXT, s3_version, etag),
	D("/Size", NUMBER, s3_version, size), END};
static const struct table versions_table = {.what = "the list of versions",
	.roots = {"ListVersionsResult"},
	.items = {"/Version", "/DeleteMarker"},
	.fields = versions_fields,
	.item_fields = version_fields,
	ITEMS(s3_versions, versions, n_versions, LIMIT_S3_LIST_KEYS),
	.prefixes = offsetof(struct s3_versions, prefixes),
	.n_prefixes = offsetof(struct s3_versions, n_prefixes)};

int s3_versions_parse(
	const char *xml, size_t len, struct s3_versions *out, struct penstock_error *err)
{
	int r = table_parse(&versions_table, out, xml, len, err);

	/* The list has versions and delete markers; a delete marker has no ETag. */
	for (size_t i = 0; r == 0 && i < out->n_versions; i++)
		out->versions[i].is_marker = !out->versions[i].etag;
	return r;
}

RELEASE(versions)

static const struct field buckets_fields[] = {D("/Owner/ID", TEXT, s3_buckets, owner.id),
	D("/Owner/DisplayName", TEXT, s3_buckets, owner.display_name), END};
static const struct field bucket_fields[] = {NEEDED("/Name", TEXT, s3_bucket, name),
	D("/CreationDate", DATE, s3_bucket, created_ns), END};
static const struct table buckets_table = {.what = "the list of buckets",
	.roots = {"ListAllMyBucketsResult"},
	.items = {"/Buckets/Bucket"},
	.fields = buckets_fields,
	.item_fields = bucket_fields,
	ITEMS(s3_buckets, buckets, n, 10000)};

DOCUMENT(buckets)

static const struct field uploads_fields[] = {D("/Bucket", TEXT, s3_uploads, bucket),
	D("/Prefix", URL_TEXT, s3_uploads, prefix),
	D("/Delimiter", URL_TEXT, s3_uploads, delimiter),
	D("/KeyMarker", URL_TEXT, s3_uploads, key_marker),
	D("/UploadIdMarker", TEXT, s3_uploads, upload_id_marker),
	D("/NextKeyMarker", URL_TEXT, s3_uploads, next_key_marker),
	D("/NextUploadIdMarker", TEXT, s3_uploads, next_upload_id_marker),
	D("/MaxUploads", SMALL, s3_uploads, max_uploads),
	D("/IsTruncated", BOOLEAN, s3_uploads, truncated),
	D("/EncodingType", URL_ENCODING, s3_uploads, url_encoded),
	{"/CommonPrefixes/Prefix", PREFIX, 0, false}, END};
static const struct field upload_fields[] = {NEEDED("/Key", URL_TEXT, s3_upload, key),
	NEEDED("/UploadId", TEXT, s3_upload, upload_id),
	D("/Initiated", DATE, s3_upload, initiated_ns),
	D("/StorageClass", TEXT, s3_upload, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_upload, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_upload, checksum_type), END};
static const struct table uploads_table = {.what = "the list of uploads",
	.roots = {"ListMultipartUploadsResult"},
	.items = {"/Upload"},
	.fields = uploads_fields,
	.item_fields = upload_fields,
	ITEMS(s3_uploads, uploads, n_uploads, LIMIT_S3_LIST_KEYS),
	.prefixes = offsetof(struct s3_uploads, prefixes),
	.n_prefixes = offsetof(struct s3_uploads, n_prefixes)};

DOCUMENT(uploads)

#define CHECKSUM_FIELDS(structure)                                                                 \
	D("/ChecksumCRC32", TEXT, structure, checksums[CHECKSUM_CRC32]),                           \
		D("/ChecksumCRC32C", TEXT, structure, checksums[CHECKSUM_CRC32C]),                 \
		D("/ChecksumCRC64NVME", TEXT, structure, checksums[CHECKSUM_CRC64NVME]),           \
		D("/ChecksumSHA1", TEXT, structure, checksums[CHECKSUM_SHA1]),                     \
		D("/ChecksumSHA256", TEXT, structure, checksums[CHECKSUM_SHA256]),                 \
		D("/ChecksumMD5", TEXT, structure, checksums[CHECKSUM_MD5]),                       \
		D("/ChecksumSHA512", TEXT, structure, checksums[CHECKSUM_SHA512]),                 \
		D("/ChecksumXXHASH64", TEXT, structure, checksums[CHECKSUM_XXHASH64]),             \
		D("/ChecksumXXHASH3", TEXT, structure, checksums[CHECKSUM_XXHASH3]),               \
		D("/ChecksumXXHASH128", TEXT, structure, checksums[CHECKSUM_XXHASH128])

static const struct field parts_fields[] = {D("/Bucket", TEXT, s3_parts, bucket),
	D("/Key", URL_TEXT, s3_parts, key), D("/UploadId", TEXT, s3_parts, upload_id),
	D("/StorageClass", TEXT, s3_parts, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_parts, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_parts, checksum_type), D("/Owner/ID", TEXT, s3_parts, owner.id),
	D("/Owner/DisplayName", TEXT, s3_parts, owner.display_name),
	D("/PartNumberMarker", SMALL, s3_parts, marker),
	D("/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/MaxParts", SMALL, s3_parts, max_parts), D("/IsTruncated", BOOLEAN, s3_parts, truncated),
	D("/EncodingType", URL_ENCODING, s3_parts, url_encoded), END};
static const struct field part_fields[] = {NEEDED("/PartNumber", PART_NUMBER, s3_part, number),
	D("/ETag", TEXT, s3_part, etag), D("/Size", NUMBER, s3_part, size),
	D("/LastModified", DATE, s3_part, modified_ns), CHECKSUM_FIELDS(s3_part), END};
static const struct table parts_table = {.what = "the list of parts",
	.roots = {"ListPartsResult"},
	.items = {"/Part"},
	.fields = parts_fields,
	.item_fields = part_fields,
	ITEMS(s3_parts, parts, n, LIMIT_S3_PARTS)};

DOCUMENT(parts)

static const struct field object_parts_fields[] = {D("/ETag", TEXT, s3_parts, etag),
	D("/ObjectParts/PartNumberMarker", SMALL, s3_parts, marker),
	D("/ObjectParts/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/ObjectParts/MaxParts", SMALL, s3_parts, max_parts),
	D("/ObjectParts/IsTruncated", BOOLEAN, s3_parts, truncated), END};
static const struct table object_parts_table = {.what = "the object's list of parts",
	.roots = {"GetObjectAttributesResponse"},
	.items = {"/ObjectParts/Part"},
	.fields = object_parts_fields,
	.item_fields = part_fields,
	ITEMS(s3_parts, parts, n, LIMIT_S3_PARTS)};

int s3_object_parts_parse(
	const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err)
{
	return table_parse(&object_parts_table, out, xml, len, err);
}

/* ---- requests ---- */

static const struct field complete_part_fields[] = {
	NEEDED("/PartNumber", PART_NUMBER, s3_part, number), NEEDED("/ETag", TEXT, s3_part, etag),
	CHECKSUM_FIELDS(s3_part), END};
static const struct table complete_table = {.what = "the CompleteMultipartUpload request",
	.strict = true,
	.roots = {"CompleteMultipartUpload"},
	.items = {"/Part"},
	.item_fields = complete_part_fields,
	.not_empty = true,
	ITEMS(s3_complete, parts, n, LIMIT_S3_PARTS)};

/* Returns the error for the reply to a request that could not be parsed. */
static enum s3_error problem_of(int rc)
{
	return rc == 0			       ? S3_OK
	       : rc == -PENSTOCK_E_MEMORY      ? S3_E_SLOW_DOWN
	       : rc == -PENSTOCK_E_UNSUPPORTED ? S3_E_NOT_IMPLEMENTED
					       : S3_E_MALFORMED_XML;
}

int s3_complete_parse(
	const char *xml, size_t len, struct s3_complete *out, struct penstock_error *err)
{
	int rc = table_parse(&complete_table, out, xml, len, err);

	out->problem = problem_of(rc);
	for (size_t i = 1; i < out->n; i++) {
		const struct s3_part *part = &out->parts[i];

		if (part->number > part[-1].number)
			continue;
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s: part %u comes after part %u",
			complete_table.what, part->number, part[-1].number);
		s3_complete_release(out);
		out->problem = S3_E_INVALID_PART_ORDER;
	}
	return rc;
}

RELEASE(complete)

static const struct field delete_fields[] = {D("/Quiet", BOOLEAN, s3_delete, quiet), END};
static const struct field delete_item_fields[] = {NEEDED("/Key", TEXT, s3_delete_item, key),
	D("/VersionId", TEXT, s3_delete_item, version_id), D("/ETag", TEXT, s3_delete_item, etag),
	D("/Size", TEXT, s3_delete_item, size),
	D("/LastModifiedTime", TEXT, s3_delete_item, modified), END};
static const struct table delete_table = {.what = "the Delete request",
	.strict = true,
	.roots = {"Delete"},
	.items = {"/Object"},
	.fields = delete_fields,
	.item_fields = delete_item_fields,
	.not_empty = true,
	ITEMS(s3_delete, items, n, LIMIT_S3_LIST_KEYS)};

int s3_delete_parse(const char *xml, size_t len, struct s3_delete *out, struct penstock_error *err)
{
	int rc = table_parse(&delete_table, out, xml, len, err);

	for (size_t i = 0; i < out->n; i++) {
		if (*out->items[i].key)
			continue;
		rc = error_set(
			err, PENSTOCK_E_PROTOCOL, "%s has an empty <Key>", delete_table.what);
		s3_delete_release(out);
	}
	out->problem = problem_of(rc);
	return rc;
}

RELEASE(delete)

/* ---- small replies ---- */

static const struct field outcome_fields[] = {NEEDED("/Key", TEXT, s3_delete_outcome, key),
	D("/VersionId", TEXT, s3_delete_outcome, version_id),
	D("/Code", TEXT, s3_delete_outcome, code), D("/Message", TEXT, s3_delete_outcome, message),
	END};
static const struct table delete_result_table = {.what = "the result of a multi-delete",
	.roots = {"DeleteResult"},
	.items = {"/Deleted", "/Error"},
	.item_fields = outcome_fields,
	ITEMS(s3_delete_result, outcomes, n, LIMIT_S3_LIST_KEYS)};

DOCUMENT(delete_result)

static const struct field reply_fields[] = {D("/Bucket", TEXT, s3_reply, bucket),
	D("/Key", TEXT, s3_reply, key), D("/UploadId", TEXT, s3_reply, upload_id),
	D("/ETag", TEXT, s3_reply, etag), D("/Location", TEXT, s3_reply, location),
	D("/ChecksumType", TEXT, s3_reply, checksum_type), CHECKSUM_FIELDS(s3_reply),
	D("/LastModified", DATE, s3_reply, modified_ns), D("/Code", TEXT, s3_reply, code),
	D("/Message", TEXT, s3_reply, message), D("/Resource", TEXT, s3_reply, resource),
	D("/RequestId", TEXT, s3_reply, request_id), D("/HostId", TEXT, s3_reply, host_id),
	D("/Region", TEXT, s3_reply, region), D("/BucketName", TEXT, s3_reply, bucket),
	D("", TEXT, s3_reply, text), END};
static const struct table reply_table = {.what = "the reply",
	.roots = {[S3_REPLY_INITIATE] = "InitiateMultipartUploadResult",
		[S3_REPLY_COMPLETE] = "CompleteMultipartUploadResult",
		[S3_REPLY_COPY_OBJECT] = "CopyObjectResult",
		[S3_REPLY_COPY_PART] = "CopyPartResult",
		[S3_REPLY_LOCATION] = "LocationConstraint",
		[S3_REPLY_ERROR] = "Error"},
	.fields = reply_fields,
	.size = sizeof(struct s3_reply),
	.kind = offsetof(struct s3_reply, kind)};

int s3_reply_parse(const char *xml, size_t len, struct s3_reply *out, struct penstock_error *err)
{
	int rc = table_parse(&reply_table, out, xml, len, err);

	if (rc == 0 && out->kind == S3_REPLY_LOCATION)
		out->location = out->text;
	if (rc == 0 && out->kind == S3_REPLY_INITIATE && !out->upload_id) {
		s3_reply_release(out);
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has no <UploadId>", reply_table.what);
	}
	return rc;
}

RELEASE(reply)

static const struct field versioning_fields[] = {D("/Status", TEXT, s3_versioning, status),
	D("/MfaDelete", TEXT, s3_versioning, mfa_delete), END};
static const struct table versioning_table = {.what = "the VersioningConfiguration",
	.strict = true,
	.roots = {"VersioningConfiguration"},
	.fields = versioning_fields,
	.size = sizeof(struct s3_versioning)};

DOCUMENT(versioning)

int s3_versioning_parse_reply(
	const char *xml, size_t len, struct s3_versioning *out, struct penstock_error *err)
{
	struct table reply = versioning_table;

	reply.strict = false;
	return table_parse(&reply, out, xml, len, err);
}

static const struct field create_bucket_fields[] = {
	D("/LocationConstraint", TEXT, s3_create_bucket, location), F("/Location", REFUSED),
	F("/Bucket", REFUSED), END};
static const struct table create_bucket_table = {.what = "the CreateBucketConfiguration",
	.strict = true,
	.roots = {"CreateBucketConfiguration"},
	.items = {"/Tags/Tag"},
	.fields = create_bucket_fields,
	.item_fields = tag_fields,
	ITEMS(s3_create_bucket, tags, n_tags, S3_TAGS_MAX)};

int s3_create_bucket_parse(
	const char *xml, size_t len, struct s3_create_bucket *out, struct penstock_error *err)
{
	while (len > 0 && ascii_space(*xml)) {
		xml++;
		len--;
	}
	return len > 0 ? table_parse(&create_bucket_table, out, xml, len, err) : 0;
}

RELEASE(create_bucket)
