/* Reading the documents: the tables of their fields, and the checks after parsing. */
#include "s3/message/messages.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/ascii.h"
#include "s3/message/list_scan.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"
#include "base/banned.h"

/* ---- lists ---- */

static const struct field list_fields[] = {D("/Name", TEXT, s3_list, bucket),
	D("/Prefix", URL_TEXT, s3_list, prefix), D("/Delimiter", URL_TEXT, s3_list, delimiter),
	D("/Marker", URL_TEXT, s3_list, marker), D("/NextMarker", URL_TEXT, s3_list, next_marker),
	D("/StartAfter", URL_TEXT, s3_list, start_after), {"/StartAfter", VERSION_2, 0},
	D("/ContinuationToken", TEXT, s3_list, continuation_token),
	{"/ContinuationToken", VERSION_2, 0},
	D("/NextContinuationToken", TEXT, s3_list, next_continuation_token),
	{"/NextContinuationToken", VERSION_2, 0}, {"/KeyCount", VERSION_2, 0},
	D("/MaxKeys", SMALL, s3_list, max_keys), D("/IsTruncated", BOOLEAN, s3_list, truncated),
	{"/EncodingType", URL_ENCODING, 0}, {"/CommonPrefixes/Prefix", PREFIX, 0}, END};
static const struct field entry_fields[] = {D("/Key", URL_TEXT, s3_list_entry, key),
	D("/ETag", TEXT, s3_list_entry, etag), D("/Size", NUMBER, s3_list_entry, size),
	D("/Generation", TEXT, s3_list_entry, generation),
	D("/LastModified", DATE, s3_list_entry, modified_ns),
	D("/StorageClass", TEXT, s3_list_entry, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_list_entry, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_list_entry, checksum_type), END};
static const struct table list_table = {.root = "ListBucketResult",
	.items = {"/Contents"},
	.fields = list_fields,
	.item_fields = entry_fields,
	.item_size = sizeof(struct s3_list_entry),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_list, entries),
	.count = offsetof(struct s3_list, n_entries),
	.prefixes = offsetof(struct s3_list, prefixes),
	.n_prefixes = offsetof(struct s3_list, n_prefixes),
	.version = offsetof(struct s3_list, version)};

int s3_list_parse(const char *xml, size_t len, struct s3_list *out, struct penstock_error *err)
{
	struct parse p = {.table = &list_table,
		.what = "the list of objects",
		.out = (char *)out,
		.arena = &out->arena};
	enum list_scan scan = list_scan(xml, len, out);
	int rc;

	if (scan == LIST_SCAN_DONE) {
		p.url_encoded = out->url_encoded;
		rc = p.url_encoded ? table_url_decode(&p, err) : 0;
	} else {
		s3_list_release(out);
		rc = scan == LIST_SCAN_NO_MEMORY ? error_memory(err)
						 : table_parse(&p, xml, len, err);
	}
	for (size_t i = 0; rc == 0 && i < out->n_entries; i++) {
		struct s3_list_entry *entry = &((struct s3_list_entry *)out->entries)[i];

		if (!entry->key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an entry without <Key>", p.what);
		if (entry->generation && *entry->generation)
			entry->etag = entry->generation;
	}
	if (rc < 0) {
		s3_list_release(out);
		return rc;
	}
	out->version = out->version == 2 ? 2 : 1;
	out->url_encoded = p.url_encoded;
	return 0;
}

void s3_list_release(struct s3_list *list)
{
	arena_release(&list->arena);
	*list = (struct s3_list){0};
}

static const struct field buckets_fields[] = {D("/Owner/ID", TEXT, s3_buckets, owner.id),
	D("/Owner/DisplayName", TEXT, s3_buckets, owner.display_name), END};
static const struct field bucket_fields[] = {
	D("/Name", TEXT, s3_bucket, name), D("/CreationDate", DATE, s3_bucket, created_ns), END};
static const struct table buckets_table = {.root = "ListAllMyBucketsResult",
	.items = {"/Buckets/Bucket"},
	.fields = buckets_fields,
	.item_fields = bucket_fields,
	.item_size = sizeof(struct s3_bucket),
	.max_items = 10000,
	.array = offsetof(struct s3_buckets, buckets),
	.count = offsetof(struct s3_buckets, n)};

int s3_buckets_parse(
	const char *xml, size_t len, struct s3_buckets *out, struct penstock_error *err)
{
	struct parse p = {.table = &buckets_table,
		.what = "the list of buckets",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = table_parse(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->buckets[i].name)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has a bucket without <Name>", p.what);
	}
	if (rc < 0)
		s3_buckets_release(out);
	return rc;
}

void s3_buckets_release(struct s3_buckets *buckets)
{
	arena_release(&buckets->arena);
	*buckets = (struct s3_buckets){0};
}

static const struct field uploads_fields[] = {D("/Bucket", TEXT, s3_uploads, bucket),
	D("/Prefix", URL_TEXT, s3_uploads, prefix),
	D("/Delimiter", URL_TEXT, s3_uploads, delimiter),
	D("/KeyMarker", URL_TEXT, s3_uploads, key_marker),
	D("/UploadIdMarker", TEXT, s3_uploads, upload_id_marker),
	D("/NextKeyMarker", URL_TEXT, s3_uploads, next_key_marker),
	D("/NextUploadIdMarker", TEXT, s3_uploads, next_upload_id_marker),
	D("/MaxUploads", SMALL, s3_uploads, max_uploads),
	D("/IsTruncated", BOOLEAN, s3_uploads, truncated), {"/EncodingType", URL_ENCODING, 0},
	{"/CommonPrefixes/Prefix", PREFIX, 0}, END};
static const struct field upload_fields[] = {D("/Key", URL_TEXT, s3_upload, key),
	D("/UploadId", TEXT, s3_upload, upload_id), D("/Initiated", DATE, s3_upload, initiated_ns),
	D("/StorageClass", TEXT, s3_upload, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_upload, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_upload, checksum_type), END};
static const struct table uploads_table = {.root = "ListMultipartUploadsResult",
	.items = {"/Upload"},
	.fields = uploads_fields,
	.item_fields = upload_fields,
	.item_size = sizeof(struct s3_upload),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_uploads, uploads),
	.count = offsetof(struct s3_uploads, n_uploads),
	.prefixes = offsetof(struct s3_uploads, prefixes),
	.n_prefixes = offsetof(struct s3_uploads, n_prefixes)};

int s3_uploads_parse(
	const char *xml, size_t len, struct s3_uploads *out, struct penstock_error *err)
{
	struct parse p = {.table = &uploads_table,
		.what = "the list of uploads",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = table_parse(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n_uploads; i++) {
		if (!out->uploads[i].key || !out->uploads[i].upload_id)
			rc = error_set(err, PENSTOCK_E_PROTOCOL,
				"%s has an upload without <Key> or <UploadId>", p.what);
	}
	if (rc < 0)
		s3_uploads_release(out);
	else
		out->url_encoded = p.url_encoded;
	return rc;
}

void s3_uploads_release(struct s3_uploads *uploads)
{
	arena_release(&uploads->arena);
	*uploads = (struct s3_uploads){0};
}

#define CHECKSUM_FIELDS(structure)                                                                 \
	D("/ChecksumCRC32", TEXT, structure, checksums[CHECKSUM_CRC32]),                           \
		D("/ChecksumCRC32C", TEXT, structure, checksums[CHECKSUM_CRC32C]),                 \
		D("/ChecksumCRC64NVME", TEXT, structure, checksums[CHECKSUM_CRC64NVME]),           \
		D("/ChecksumSHA1", TEXT, structure, checksums[CHECKSUM_SHA1]),                     \
		D("/ChecksumSHA256", TEXT, structure, checksums[CHECKSUM_SHA256])

static const struct field parts_fields[] = {D("/Bucket", TEXT, s3_parts, bucket),
	D("/Key", URL_TEXT, s3_parts, key), D("/UploadId", TEXT, s3_parts, upload_id),
	D("/StorageClass", TEXT, s3_parts, storage_class),
	D("/ChecksumAlgorithm", TEXT, s3_parts, checksum_algorithm),
	D("/ChecksumType", TEXT, s3_parts, checksum_type), D("/Owner/ID", TEXT, s3_parts, owner.id),
	D("/Owner/DisplayName", TEXT, s3_parts, owner.display_name),
	D("/PartNumberMarker", SMALL, s3_parts, marker),
	D("/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/MaxParts", SMALL, s3_parts, max_parts), D("/IsTruncated", BOOLEAN, s3_parts, truncated),
	{"/EncodingType", URL_ENCODING, 0}, END};
static const struct field part_fields[] = {D("/PartNumber", SMALL, s3_part, number),
	D("/ETag", TEXT, s3_part, etag), D("/Size", NUMBER, s3_part, size),
	D("/LastModified", DATE, s3_part, modified_ns), CHECKSUM_FIELDS(s3_part), END};
static const struct table parts_table = {.root = "ListPartsResult",
	.items = {"/Part"},
	.fields = parts_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_parts, parts),
	.count = offsetof(struct s3_parts, n)};

static const struct field object_parts_fields[] = {D("/ETag", TEXT, s3_parts, etag),
	D("/ObjectParts/PartNumberMarker", SMALL, s3_parts, marker),
	D("/ObjectParts/NextPartNumberMarker", SMALL, s3_parts, next_marker),
	D("/ObjectParts/MaxParts", SMALL, s3_parts, max_parts),
	D("/ObjectParts/IsTruncated", BOOLEAN, s3_parts, truncated), END};
static const struct table object_parts_table = {.root = "GetObjectAttributesResponse",
	.items = {"/ObjectParts/Part"},
	.fields = object_parts_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_parts, parts),
	.count = offsetof(struct s3_parts, n)};

static int parse_parts(const struct table *table, const char *what, const char *xml, size_t len,
	struct s3_parts *out, struct penstock_error *err)
{
	struct parse p = {.table = table, .what = what, .out = (char *)out, .arena = &out->arena};
	int rc = table_parse(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (out->parts[i].number < 1 || out->parts[i].number > LIMIT_S3_PARTS)
			rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has part number %u", p.what,
				out->parts[i].number);
	}
	if (rc < 0)
		s3_parts_release(out);
	else
		out->url_encoded = p.url_encoded;
	return rc;
}

int s3_parts_parse(const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err)
{
	return parse_parts(&parts_table, "the list of parts", xml, len, out, err);
}

int s3_object_parts_parse(
	const char *xml, size_t len, struct s3_parts *out, struct penstock_error *err)
{
	return parse_parts(&object_parts_table, "the object's list of parts", xml, len, out, err);
}

void s3_parts_release(struct s3_parts *parts)
{
	arena_release(&parts->arena);
	*parts = (struct s3_parts){0};
}

/* ---- requests ---- */

static const struct field no_fields[] = {END};
static const struct table complete_table = {.root = "CompleteMultipartUpload",
	.items = {"/Part"},
	.fields = no_fields,
	.item_fields = part_fields,
	.item_size = sizeof(struct s3_part),
	.max_items = LIMIT_S3_PARTS,
	.array = offsetof(struct s3_complete, parts),
	.count = offsetof(struct s3_complete, n)};

static int check_complete(struct s3_complete *out, const char *what, struct penstock_error *err)
{
	if (out->n == 0)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has no parts", what);
	for (size_t i = 0; i < out->n; i++) {
		const struct s3_part *part = &out->parts[i];

		if (part->number < 1 || part->number > LIMIT_S3_PARTS || !part->etag)
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"%s: entry %zu needs a <PartNumber> of 1 to %d and an <ETag>", what,
				i + 1, LIMIT_S3_PARTS);
		if (i > 0 && part->number <= part[-1].number) {
			out->problem = S3_E_INVALID_PART_ORDER;
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"%s: part %u comes after part %u", what, part->number,
				part[-1].number);
		}
	}
	return 0;
}

int s3_complete_parse(
	const char *xml, size_t len, struct s3_complete *out, struct penstock_error *err)
{
	struct parse p = {.table = &complete_table,
		.what = "the CompleteMultipartUpload request",
		.out = (char *)out,
		.arena = &out->arena};
	int rc;

	out->problem = S3_E_MALFORMED_XML;
	rc = table_parse(&p, xml, len, err);
	if (rc == 0)
		rc = check_complete(out, p.what, err);
	if (rc < 0) {
		enum s3_error problem = rc == -PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN : out->problem;

		s3_complete_release(out);
		out->problem = problem;
		return rc;
	}
	out->problem = S3_OK;
	return 0;
}

void s3_complete_release(struct s3_complete *complete)
{
	arena_release(&complete->arena);
	*complete = (struct s3_complete){0};
}

static const struct field delete_fields[] = {D("/Quiet", BOOLEAN, s3_delete, quiet), END};
static const struct field delete_item_fields[] = {D("/Key", TEXT, s3_delete_item, key),
	D("/VersionId", TEXT, s3_delete_item, version_id), D("/ETag", TEXT, s3_delete_item, etag),
	END};
static const struct table delete_table = {.root = "Delete",
	.items = {"/Object"},
	.fields = delete_fields,
	.item_fields = delete_item_fields,
	.item_size = sizeof(struct s3_delete_item),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_delete, items),
	.count = offsetof(struct s3_delete, n)};

int s3_delete_parse(const char *xml, size_t len, struct s3_delete *out, struct penstock_error *err)
{
	struct parse p = {.table = &delete_table,
		.what = "the Delete request",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = table_parse(&p, xml, len, err);

	if (rc == 0 && out->n == 0)
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has no objects", p.what);
	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->items[i].key || !*out->items[i].key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an object without <Key>", p.what);
	}
	if (rc < 0) {
		s3_delete_release(out);
		out->problem = rc == -PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN : S3_E_MALFORMED_XML;
	}
	return rc;
}

void s3_delete_release(struct s3_delete *del)
{
	arena_release(&del->arena);
	*del = (struct s3_delete){0};
}

/* ---- small replies ---- */

static const struct field outcome_fields[] = {D("/Key", TEXT, s3_delete_outcome, key),
	D("/VersionId", TEXT, s3_delete_outcome, version_id),
	D("/Code", TEXT, s3_delete_outcome, code), D("/Message", TEXT, s3_delete_outcome, message),
	END};
static const struct table outcome_table = {.root = "DeleteResult",
	.items = {"/Deleted", "/Error"},
	.fields = no_fields,
	.item_fields = outcome_fields,
	.item_size = sizeof(struct s3_delete_outcome),
	.max_items = LIMIT_S3_LIST_KEYS,
	.array = offsetof(struct s3_delete_result, outcomes),
	.count = offsetof(struct s3_delete_result, n)};

int s3_delete_result_parse(
	const char *xml, size_t len, struct s3_delete_result *out, struct penstock_error *err)
{
	struct parse p = {.table = &outcome_table,
		.what = "the result of a multi-delete",
		.out = (char *)out,
		.arena = &out->arena};
	int rc = table_parse(&p, xml, len, err);

	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		if (!out->outcomes[i].key)
			rc = error_set(
				err, PENSTOCK_E_PROTOCOL, "%s has an entry without <Key>", p.what);
	}
	if (rc < 0)
		s3_delete_result_release(out);
	return rc;
}

void s3_delete_result_release(struct s3_delete_result *result)
{
	arena_release(&result->arena);
	*result = (struct s3_delete_result){0};
}

static const struct field reply_fields[] = {D("/Bucket", TEXT, s3_reply, bucket),
	D("/Key", TEXT, s3_reply, key), D("/UploadId", TEXT, s3_reply, upload_id),
	D("/ETag", TEXT, s3_reply, etag), D("/Location", TEXT, s3_reply, location),
	D("/ChecksumType", TEXT, s3_reply, checksum_type), CHECKSUM_FIELDS(s3_reply),
	D("/LastModified", DATE, s3_reply, modified_ns), D("/Code", TEXT, s3_reply, code),
	D("/Message", TEXT, s3_reply, message), D("/Resource", TEXT, s3_reply, resource),
	D("/RequestId", TEXT, s3_reply, request_id), D("/HostId", TEXT, s3_reply, host_id),
	D("/Region", TEXT, s3_reply, region), D("/BucketName", TEXT, s3_reply, bucket), END};
static const struct table reply_table = {.fields = reply_fields, .item_fields = no_fields};

static const char *const reply_roots[S3_REPLY_KIND_COUNT_] = {
	[S3_REPLY_INITIATE] = "InitiateMultipartUploadResult",
	[S3_REPLY_COMPLETE] = "CompleteMultipartUploadResult",
	[S3_REPLY_COPY_OBJECT] = "CopyObjectResult",
	[S3_REPLY_COPY_PART] = "CopyPartResult",
	[S3_REPLY_LOCATION] = "LocationConstraint",
	[S3_REPLY_ERROR] = "Error",
};

/* Like table_on_end(), and also handles the text of <LocationConstraint>, which is the root
 * itself. */
static int on_reply_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err)
{
	struct parse *p = cookie;

	if (strcmp(path, "/LocationConstraint") == 0)
		return table_set_text(
			p, &((struct s3_reply *)(void *)p->out)->location, text, len, err);
	return table_on_end(cookie, path, text, len, err);
}

static int find_reply_kind(struct s3_reply *out, const char *root, struct penstock_error *err)
{
	for (int k = 0; k < S3_REPLY_KIND_COUNT_; k++) {
		if (strcmp(root, reply_roots[k]) == 0) {
			out->kind = (enum s3_reply_kind)k;
			return 0;
		}
	}
	return error_set(err, PENSTOCK_E_PROTOCOL, "the reply is a <%.60s> document", root);
}

int s3_reply_parse(const char *xml, size_t len, struct s3_reply *out, struct penstock_error *err)
{
	struct parse p = {.table = &reply_table,
		.what = "the reply",
		.out = (char *)out,
		.arena = &out->arena};
	const struct xml_events events = {
		.start = table_on_start, .end = on_reply_end, .cookie = &p};
	int rc = xml_parse(xml, len, &events, p.what, err);

	if (rc == 0)
		rc = find_reply_kind(out, p.root, err);
	if (rc == 0 && out->kind == S3_REPLY_INITIATE && !out->upload_id)
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has no <UploadId>", p.what);
	if (rc < 0)
		s3_reply_release(out);
	return rc;
}

void s3_reply_release(struct s3_reply *reply)
{
	arena_release(&reply->arena);
	*reply = (struct s3_reply){0};
}

struct create_bucket {
	const char *location;
	struct arena arena;
};
static const struct field create_bucket_fields[] = {
	D("/LocationConstraint", TEXT, create_bucket, location), END};
static const struct table create_bucket_table = {.root = "CreateBucketConfiguration",
	.fields = create_bucket_fields,
	.item_fields = no_fields};

int s3_create_bucket_parse(
	const char *xml, size_t len, struct buf *location, struct penstock_error *err)
{
	struct create_bucket config = {0};
	struct parse p = {.table = &create_bucket_table,
		.what = "the CreateBucketConfiguration",
		.out = (char *)&config,
		.arena = &config.arena};
	int rc = 0;

	while (len > 0 && ascii_space(*xml)) {
		xml++;
		len--;
	}
	if (len > 0)
		rc = table_parse(&p, xml, len, err);
	if (rc == 0 && config.location && buf_add_str(location, config.location) < 0)
		rc = buf_error(location, "the location constraint", err);
	arena_release(&config.arena);
	return rc;
}
