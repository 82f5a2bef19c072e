/* Versioning of a bucket, and the list of its versions. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "s3/message/messages.h"
#include "s3/message/xml.h"
#include "server/bucket/replicator.h"
#include "server/op/op.h"
#include "server/access/owner.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* --- versioning ------------------------------------------------------------------------------ */

/* A bucket that never had versioning has an empty configuration. */
void op_bucket_versioning(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct store_bucket bucket;

	if (!op_get_bucket(req, &bucket))
		return;
	xml_declaration(&xml);
	xml_open_root(&xml, "VersioningConfiguration");
	if (bucket.versioning != STORE_UNVERSIONED)
		xml_element(&xml, "Status",
			bucket.versioning == STORE_VERSIONED ? "Enabled" : "Suspended");
	xml_close(&xml, "VersioningConfiguration");
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* As with AWS, a bucket with replication keeps versioning. Sets the reply and returns false for
 * such a bucket, or on failure. */
static bool may_suspend(struct request *req)
{
	_cleanup_(buf_release) struct buf rules = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, REPLICATION_CONFIG, &rules, &err);

	if (status == STORE_OK)
		return reply_errorf(req, S3_E_INVALID_BUCKET_STATE,
			"A replication configuration is present on this bucket, so you cannot "
			"change the versioning state. To change the versioning state, first delete "
			"the replication configuration.");
	return status == STORE_NO_SUCH_KEY || reply_unless_stored(req, status, &err);
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
	else if ((enabled || may_suspend(req)) &&
		 reply_unless_stored(req,
			 store_bucket_set_versioning(req->server->store, req->bucket,
				 req->bucket_id, enabled ? STORE_VERSIONED : STORE_SUSPENDED, &err),
			 &err))
		reply_empty(req, MHD_HTTP_OK);
	s3_versioning_release(&wanted);
}

/* --- ListObjectVersions ---------------------------------------------------------------------- */

static void fill_version(
	struct request *req, const struct store_list_entry *from, struct s3_version *to)
{
	*to = (struct s3_version){.key = from->key,
		.version_id = from->version,
		.is_marker = from->is_marker,
		.is_latest = from->is_latest,
		.modified_ns = from->modified_ns,
		.storage_class = from->storage_class[0] ? from->storage_class : NULL,
		.size = from->size};
	if (from->is_marker)
		return;
	to->etag = request_quote(req, from->etag);
	if (from->checksum.algorithm[0]) {
		to->checksum_algorithm = from->checksum.algorithm;
		to->checksum_type = from->checksum.type;
	}
}

static void reply_versions(
	struct request *req, const struct s3_versions *page, const struct store_list *found)
{
	struct s3_versions list = *page;
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	_cleanup_free_ struct s3_version *versions = calloc(found->n + 1, sizeof(*versions));
	_cleanup_free_ const char **prefixes = calloc(found->n + 1, sizeof(char *));
	const struct store_list_entry *last = found->n ? &found->entries[found->n - 1] : NULL;
	char place[STORE_VERSION_SIZE];

	if (!versions || !prefixes) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	for (size_t i = 0; i < found->n; i++) {
		if (found->entries[i].is_prefix)
			prefixes[list.n_prefixes++] = found->entries[i].key;
		else
			fill_version(req, &found->entries[i], &versions[list.n_versions++]);
	}
	list.versions = versions;
	list.prefixes = prefixes;
	list.truncated = found->truncated;
	if (found->truncated && last) {
		store_version_place(last, place);
		list.next_key_marker = last->key;
		list.next_version_id_marker = last->is_prefix ? NULL : place;
	}
	s3_versions_write(&xml, &list);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

void op_list_versions(struct request *req)
{
	const char *marker = request_query(req, "key-marker");
	const char *version = request_query(req, "version-id-marker");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_list list = {0};
	struct store_list_query query = {0};
	_cleanup_(store_list_release) struct store_list found = {0};
	struct store_bucket bucket;
	struct s3_owner owner;

	if (!op_list_begin(req, "max-keys", &list, &query) ||
		!owner_of_request_bucket(req, &bucket, &owner))
		return;
	query.after = marker ? marker : "";
	if (version && !*version)
		version = NULL;
	if (version && !*query.after) {
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
	const struct s3_versions page = {.bucket = req->bucket,
		.prefix = list.prefix,
		.delimiter = list.delimiter,
		.key_marker = query.after,
		.version_id_marker = version ? version : "",
		.url_encoded = list.url_encoded || !op_names_fit(&found),
		.max_keys = list.max_keys,
		.owner = owner};
	reply_versions(req, &page, &found);
}
