/* Writing the documents of messages.h. Elements are in the order of Amazon's schema. */
#include "s3/message/messages.h"

#include <string.h>

#include "s3/uri.h"
#include "s3/message/xml.h"

static void write_owner(struct buf *out, const char *element, const struct s3_owner *owner)
{
	if (!owner || !owner->id)
		return;
	xml_open(out, element);
	xml_element(out, "ID", owner->id);
	xml_element(out, "DisplayName", owner->display_name);
	xml_close(out, element);
}

static void write_prefixes(struct buf *out, const char *const *prefixes, size_t n, bool url_encoded)
{
	for (size_t i = 0; i < n; i++) {
		xml_open(out, "CommonPrefixes");
		xml_element_url(out, "Prefix", prefixes[i], url_encoded);
		xml_close(out, "CommonPrefixes");
	}
}

static void write_entry(struct buf *out, const struct s3_list_entry *e, bool url_encoded)
{
	xml_open(out, "Contents");
	xml_element_url(out, "Key", e->key, url_encoded);
	xml_element_date(out, "LastModified", e->modified_ns);
	xml_element(out, "ETag", e->etag);
	xml_element(out, "ChecksumAlgorithm", e->checksum_algorithm);
	xml_element(out, "ChecksumType", e->checksum_type);
	xml_element_u64(out, "Size", e->size);
	write_owner(out, "Owner", e->owner);
	xml_element(out, "StorageClass", e->storage_class ? e->storage_class : "STANDARD");
	xml_close(out, "Contents");
}

void s3_list_write(struct buf *out, const struct s3_list *list)
{
	bool url = list->url_encoded;

	xml_declaration(out);
	xml_open_root(out, "ListBucketResult");
	xml_element(out, "Name", list->bucket);
	xml_element_url(out, "Prefix", list->prefix ? list->prefix : "", url);
	if (list->version == 2) {
		xml_element_url(out, "StartAfter", list->start_after, url);
		xml_element(out, "ContinuationToken", list->continuation_token);
		xml_element(out, "NextContinuationToken", list->next_continuation_token);
		xml_element_u64(out, "KeyCount", list->n_entries + list->n_prefixes);
	} else {
		xml_element_url(out, "Marker", list->marker ? list->marker : "", url);
		xml_element_url(out, "NextMarker", list->next_marker, url);
	}
	xml_element_u64(out, "MaxKeys", list->max_keys);
	xml_element_url(out, "Delimiter", list->delimiter, url);
	if (url)
		xml_element(out, "EncodingType", "url");
	xml_element_bool(out, "IsTruncated", list->truncated);
	for (size_t i = 0; i < list->n_entries; i++)
		write_entry(out, &list->entries[i], url);
	write_prefixes(out, list->prefixes, list->n_prefixes, url);
	xml_close(out, "ListBucketResult");
}

static void write_version(
	struct buf *out, const struct s3_version *v, const struct s3_owner *owner, bool url_encoded)
{
	const char *element = v->is_marker ? "DeleteMarker" : "Version";

	xml_open(out, element);
	xml_element_url(out, "Key", v->key, url_encoded);
	xml_element(out, "VersionId", v->version_id);
	xml_element_bool(out, "IsLatest", v->is_latest);
	xml_element_date(out, "LastModified", v->modified_ns);
	if (!v->is_marker) {
		xml_element(out, "ETag", v->etag);
		xml_element(out, "ChecksumAlgorithm", v->checksum_algorithm);
		xml_element(out, "ChecksumType", v->checksum_type);
		xml_element_u64(out, "Size", v->size);
		xml_element(out, "StorageClass", v->storage_class ? v->storage_class : "STANDARD");
	}
	write_owner(out, "Owner", owner);
	xml_close(out, element);
}

void s3_versions_write(struct buf *out, const struct s3_versions *versions)
{
	bool url = versions->url_encoded;

	xml_declaration(out);
	xml_open_root(out, "ListVersionsResult");
	xml_element(out, "Name", versions->bucket);
	xml_element_url(out, "Prefix", versions->prefix, url);
	xml_element_url(out, "Delimiter", versions->delimiter, url);
	xml_element_url(out, "KeyMarker", versions->key_marker, url);
	xml_element(out, "VersionIdMarker", versions->version_id_marker);
	xml_element_u64(out, "MaxKeys", versions->max_keys);
	if (url)
		xml_element(out, "EncodingType", "url");
	xml_element_bool(out, "IsTruncated", versions->truncated);
	xml_element_url(out, "NextKeyMarker", versions->next_key_marker, url);
	xml_element(out, "NextVersionIdMarker", versions->next_version_id_marker);
	for (size_t i = 0; i < versions->n_versions; i++)
		write_version(out, &versions->versions[i], &versions->owner, url);
	write_prefixes(out, versions->prefixes, versions->n_prefixes, url);
	xml_close(out, "ListVersionsResult");
}

void s3_buckets_write(struct buf *out, const struct s3_buckets *buckets)
{
	xml_declaration(out);
	xml_open_root(out, "ListAllMyBucketsResult");
	write_owner(out, "Owner", &buckets->owner);
	xml_open(out, "Buckets");
	for (size_t i = 0; i < buckets->n; i++) {
		xml_open(out, "Bucket");
		xml_element(out, "Name", buckets->buckets[i].name);
		xml_element_date(out, "CreationDate", buckets->buckets[i].created_ns);
		xml_element(out, "BucketRegion", buckets->buckets[i].region);
		xml_close(out, "Bucket");
	}
	xml_close(out, "Buckets");
	xml_element(out, "ContinuationToken", buckets->continuation_token);
	xml_element(out, "Prefix", buckets->prefix);
	xml_close(out, "ListAllMyBucketsResult");
}

void s3_uploads_write(struct buf *out, const struct s3_uploads *uploads)
{
	bool url = uploads->url_encoded;

	xml_declaration(out);
	xml_open_root(out, "ListMultipartUploadsResult");
	xml_element(out, "Bucket", uploads->bucket);
	xml_element_url(out, "KeyMarker", uploads->key_marker ? uploads->key_marker : "", url);
	xml_element(
		out, "UploadIdMarker", uploads->upload_id_marker ? uploads->upload_id_marker : "");
	xml_element_url(out, "NextKeyMarker", uploads->next_key_marker, url);
	xml_element(out, "NextUploadIdMarker", uploads->next_upload_id_marker);
	xml_element_url(out, "Prefix", uploads->prefix ? uploads->prefix : "", url);
	xml_element_url(out, "Delimiter", uploads->delimiter, url);
	if (url)
		xml_element(out, "EncodingType", "url");
	xml_element_u64(out, "MaxUploads", uploads->max_uploads);
	xml_element_bool(out, "IsTruncated", uploads->truncated);
	for (size_t i = 0; i < uploads->n_uploads; i++) {
		const struct s3_upload *u = &uploads->uploads[i];

		xml_open(out, "Upload");
		xml_element_url(out, "Key", u->key, url);
		xml_element(out, "UploadId", u->upload_id);
		write_owner(out, "Initiator", &u->owner);
		write_owner(out, "Owner", &u->owner);
		xml_element(out, "StorageClass", u->storage_class ? u->storage_class : "STANDARD");
		xml_element_date(out, "Initiated", u->initiated_ns);
		xml_element(out, "ChecksumAlgorithm", u->checksum_algorithm);
		xml_element(out, "ChecksumType", u->checksum_type);
		xml_close(out, "Upload");
	}
	write_prefixes(out, uploads->prefixes, uploads->n_prefixes, url);
	xml_close(out, "ListMultipartUploadsResult");
}

static void write_checksums(struct buf *out, const char *const checksums[CHECKSUM_KIND_COUNT_])
{
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++)
		xml_element(out, checksum_element((enum checksum_kind)k), checksums[k]);
}

void s3_parts_write(struct buf *out, const struct s3_parts *parts)
{
	xml_declaration(out);
	xml_open_root(out, "ListPartsResult");
	xml_element(out, "Bucket", parts->bucket);
	xml_element_url(out, "Key", parts->key, parts->url_encoded);
	if (parts->url_encoded)
		xml_element(out, "EncodingType", "url");
	xml_element(out, "UploadId", parts->upload_id);
	write_owner(out, "Initiator", &parts->owner);
	write_owner(out, "Owner", &parts->owner);
	xml_element(out, "StorageClass", parts->storage_class ? parts->storage_class : "STANDARD");
	xml_element_u64(out, "PartNumberMarker", parts->marker);
	xml_element_u64(out, "NextPartNumberMarker", parts->next_marker);
	xml_element_u64(out, "MaxParts", parts->max_parts);
	xml_element_bool(out, "IsTruncated", parts->truncated);
	xml_element(out, "ChecksumAlgorithm", parts->checksum_algorithm);
	xml_element(out, "ChecksumType", parts->checksum_type);
	for (size_t i = 0; i < parts->n; i++) {
		const struct s3_part *part = &parts->parts[i];

		xml_open(out, "Part");
		xml_element_u64(out, "PartNumber", part->number);
		xml_element_date(out, "LastModified", part->modified_ns);
		xml_element(out, "ETag", part->etag);
		xml_element_u64(out, "Size", part->size);
		write_checksums(out, part->checksums);
		xml_close(out, "Part");
	}
	xml_close(out, "ListPartsResult");
}

void s3_complete_write(struct buf *out, const struct s3_complete *complete)
{
	xml_open_root(out, "CompleteMultipartUpload");
	for (size_t i = 0; i < complete->n; i++) {
		const struct s3_part *part = &complete->parts[i];

		xml_open(out, "Part");
		xml_element_u64(out, "PartNumber", part->number);
		xml_element(out, "ETag", part->etag);
		write_checksums(out, part->checksums);
		xml_close(out, "Part");
	}
	xml_close(out, "CompleteMultipartUpload");
}

void s3_delete_write(struct buf *out, const struct s3_delete *del)
{
	xml_open_root(out, "Delete");
	if (del->quiet)
		xml_element_bool(out, "Quiet", true);
	for (size_t i = 0; i < del->n; i++) {
		xml_open(out, "Object");
		xml_element(out, "Key", del->items[i].key);
		xml_element(out, "VersionId", del->items[i].version_id);
		xml_element(out, "ETag", del->items[i].etag);
		xml_element(out, "LastModifiedTime", del->items[i].modified);
		xml_element(out, "Size", del->items[i].size);
		xml_close(out, "Object");
	}
	xml_close(out, "Delete");
}

void s3_delete_result_write(struct buf *out, const struct s3_delete_result *result)
{
	xml_declaration(out);
	xml_open_root(out, "DeleteResult");
	for (size_t i = 0; i < result->n; i++) {
		const struct s3_delete_outcome *o = &result->outcomes[i];
		const char *element = o->code ? "Error" : "Deleted";

		xml_open(out, element);
		xml_element(out, "Key", o->key);
		xml_element(out, "VersionId", o->version_id);
		if (o->marker) {
			xml_element_bool(out, "DeleteMarker", true);
			xml_element(out, "DeleteMarkerVersionId", o->marker_version);
		}
		xml_element(out, "Code", o->code);
		xml_element(out, "Message", o->message);
		xml_close(out, element);
	}
	xml_close(out, "DeleteResult");
}

static void write_copy(struct buf *out, const char *root, const struct s3_reply *reply)
{
	xml_open_root(out, root);
	xml_element_date(out, "LastModified", reply->modified_ns);
	xml_element(out, "ETag", reply->etag);
	xml_element(out, "ChecksumType", reply->checksum_type);
	write_checksums(out, reply->checksums);
	xml_close(out, root);
}

void s3_reply_write(struct buf *out, const struct s3_reply *reply)
{
	xml_declaration(out);
	switch (reply->kind) {
	case S3_REPLY_INITIATE:
		xml_open_root(out, "InitiateMultipartUploadResult");
		xml_element(out, "Bucket", reply->bucket);
		xml_element(out, "Key", reply->key);
		xml_element(out, "UploadId", reply->upload_id);
		xml_close(out, "InitiateMultipartUploadResult");
		break;
	case S3_REPLY_COMPLETE:
		xml_open_root(out, "CompleteMultipartUploadResult");
		xml_element(out, "Location", reply->location);
		xml_element(out, "Bucket", reply->bucket);
		xml_element(out, "Key", reply->key);
		xml_element(out, "ETag", reply->etag);
		write_checksums(out, reply->checksums);
		xml_element(out, "ChecksumType", reply->checksum_type);
		xml_close(out, "CompleteMultipartUploadResult");
		break;
	case S3_REPLY_COPY_OBJECT:
		write_copy(out, "CopyObjectResult", reply);
		break;
	case S3_REPLY_COPY_PART:
		write_copy(out, "CopyPartResult", reply);
		break;
	case S3_REPLY_LOCATION:
		xml_open_root(out, "LocationConstraint");
		if (reply->location)
			xml_text(out, reply->location, strlen(reply->location));
		xml_close(out, "LocationConstraint");
		break;
	case S3_REPLY_ERROR:
	case S3_REPLY_KIND_COUNT_:
		/* Errors have no namespace. */
		xml_open(out, "Error");
		xml_element(out, "Code", reply->code);
		xml_element(out, "Message", reply->message);
		xml_element(out, "Key", reply->key);
		xml_element(out, "BucketName", reply->bucket);
		xml_element(out, "Resource", reply->resource);
		xml_element(out, "Region", reply->region);
		xml_element(out, "Method", reply->method);
		xml_element(out, "ResourceType", reply->resource_type);
		xml_element(out, "RequestId", reply->request_id);
		xml_element(out, "HostId", reply->host_id);
		xml_close(out, "Error");
		break;
	}
}

void s3_create_bucket_write(struct buf *out, const char *location)
{
	xml_open_root(out, "CreateBucketConfiguration");
	xml_element(out, "LocationConstraint", location);
	xml_close(out, "CreateBucketConfiguration");
}
