/* Versioning of a bucket, and the list of its versions. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "s3/message/messages.h"
#include "s3/message/xml.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* --- versioning ------------------------------------------------------------------------------ */

/* A bucket that never had versioning has an empty configuration. */
void op_bucket_versioning(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket bucket;

	if (!reply_unless_stored(
		    req, store_bucket_get(req->server->store, req->bucket, &bucket, &err), &err))
		return;
	xml_declaration(&xml);
	xml_open_root(&xml, "VersioningConfiguration");
	if (bucket.versioning != STORE_UNVERSIONED)
		xml_element(&xml, "Status",
			bucket.versioning == STORE_VERSIONED ? "Enabled" : "Suspended");
	xml_close(&xml, "VersioningConfiguration");
	reply_xml(req, MHD_HTTP_OK, &xml);
}

void op_put_bucket_versioning(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_versioning wanted = {0};
	bool enabled;

	if (s3_versioning_parse(buf_str(document), document->len, &wanted, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return;
	}
	enabled = wanted.status && strcmp(wanted.status, "Enabled") == 0;
	if (wanted.mfa_delete && strcmp(wanted.mfa_delete, "Disabled") != 0)
		reply_errorf(req, S3_E_NOT_IMPLEMENTED, "This store does not implement MFA Delete");
	else if (!wanted.status)
		reply_code(req, 400, "IllegalVersioningConfigurationException",
			"The Versioning element must be specified");
	else if (!enabled && strcmp(wanted.status, "Suspended") != 0)
		reply_error(req, S3_E_MALFORMED_XML);
	else if (reply_unless_stored(req,
			 store_bucket_set_versioning(req->server->store, req->bucket,
				 enabled ? STORE_VERSIONED : STORE_SUSPENDED, &err),
			 &err))
		reply_empty(req, MHD_HTTP_OK);
	s3_versioning_release(&wanted);
}

/* --- ListObjectVersions ---------------------------------------------------------------------- */

static void write_version(struct buf *xml, const struct store_list_entry *e, bool encode)
{
	const char *name = e->is_marker ? "DeleteMarker" : "Version";
	char etag[STORE_ETAG_SIZE + 2];

	xml_open(xml, name);
	xml_element_url(xml, "Key", e->key, encode);
	xml_element(xml, "VersionId", e->version);
	xml_element_bool(xml, "IsLatest", e->is_latest);
	xml_element_date(xml, "LastModified", e->modified_ns);
	if (!e->is_marker) {
		snprintf(etag, sizeof(etag), "\"%s\"", e->etag);
		xml_element(xml, "ETag", etag);
		if (e->checksum.algorithm[0]) {
			xml_element(xml, "ChecksumAlgorithm", e->checksum.algorithm);
			xml_element(xml, "ChecksumType", e->checksum.type);
		}
		xml_element_u64(xml, "Size", e->size);
		xml_element(xml, "StorageClass", "STANDARD");
	}
	xml_open(xml, "Owner");
	xml_element(xml, "ID", OWNER_ID);
	xml_element(xml, "DisplayName", OWNER_NAME);
	xml_close(xml, "Owner");
	xml_close(xml, name);
}

static void write_list(struct buf *xml, const struct s3_list *list, const char *version_marker,
	const struct store_list *found)
{
	bool encode = list->url_encoded;

	xml_declaration(xml);
	xml_open_root(xml, "ListVersionsResult");
	xml_element(xml, "Name", list->bucket);
	xml_element_url(xml, "Prefix", list->prefix, encode);
	xml_element_url(xml, "Delimiter", list->delimiter, encode);
	xml_element_url(xml, "KeyMarker", list->marker, encode);
	xml_element(xml, "VersionIdMarker", version_marker);
	xml_element_u64(xml, "MaxKeys", list->max_keys);
	xml_element(xml, "EncodingType", encode ? "url" : NULL);
	xml_element_bool(xml, "IsTruncated", found->truncated);
	if (found->truncated && found->n) {
		const struct store_list_entry *last = &found->entries[found->n - 1];
		char place[STORE_VERSION_SIZE];

		store_version_place(last, place);
		xml_element_url(xml, "NextKeyMarker", last->key, encode);
		xml_element(xml, "NextVersionIdMarker", last->is_prefix ? NULL : place);
	}
	for (size_t i = 0; i < found->n; i++) {
		const struct store_list_entry *e = &found->entries[i];

		if (!e->is_prefix) {
			write_version(xml, e, encode);
			continue;
		}
		xml_open(xml, "CommonPrefixes");
		xml_element_url(xml, "Prefix", e->key, encode);
		xml_close(xml, "CommonPrefixes");
	}
	xml_close(xml, "ListVersionsResult");
}

void op_list_versions(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	const char *version = request_query(req, "version-id-marker");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_list list = {0};
	struct store_list_query query = {0};
	_cleanup_(store_list_release) struct store_list found = {0};

	if (!op_list_begin(req, &list, &query))
		return;
	list.marker = request_query(req, "key-marker");
	if (!list.marker)
		list.marker = "";
	query.after = list.marker;
	if (version && !*version)
		version = NULL;
	if (version && !*list.marker) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"A version-id marker cannot be specified without a key marker.");
		return;
	}
	if (version && !store_version_is_valid(version)) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
		return;
	}
	if (!reply_unless_stored(req,
		    store_version_list(req->server->store, &query, version, &found, &err), &err))
		return;
	list.url_encoded = list.url_encoded || !op_names_fit(&found);
	write_list(&xml, &list, version ? version : "", &found);
	reply_xml(req, MHD_HTTP_OK, &xml);
}
