#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "s3/message/read_many.h"
#include "s3/uri.h"
#include "server/access/access.h"
#include "server/access/auth_v2.h"
#include "server/access/owner.h"
#include "server/form/multipart.h"
#include "server/iam/query.h"
#include "server/op/op.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/sse/sse.h"

/* The operation of a request depends on the level that its path names, on its method, and on at
 * most one subresource, which is a query parameter that changes the meaning of the request. */
enum level { SERVICE, BUCKET, OBJECT };

enum how {
	LOOP, /* on the event loop; a body is ignored */
	WORKER, /* on a worker, where it may wait for the disk; a body is ignored */
	DOCUMENT, /* on a worker, with an XML document */
	NOTE, /* likewise, with a short document */
	BEGIN /* at once: the function sets `finish` and begins the body */
};

struct route {
	enum level level;
	const char *method;
	const char *sub; /* may be NULL */
	enum how how;
	request_fn fn;
	const char *action; /* action that a policy has to allow; NULL if `fn` checks it */
};

/* AWS's replies for configurations that a bucket does not have. */
struct absence {
	enum level level;
	const char *sub;
	const char *code;
	const char *message;
	const char *action;
};

static const struct route routes[] = {
	{SERVICE, "GET", NULL, WORKER, op_list_buckets, "s3:ListAllMyBuckets"},
	{BUCKET, "PUT", NULL, DOCUMENT, op_create_bucket, "s3:CreateBucket"},
	{BUCKET, "HEAD", NULL, LOOP, op_head_bucket, "s3:ListBucket"},
	{BUCKET, "DELETE", NULL, WORKER, op_delete_bucket, "s3:DeleteBucket"},
	{BUCKET, "GET", NULL, WORKER, op_list_objects, "s3:ListBucket"},
	{BUCKET, "GET", "list-type", WORKER, op_list_objects_v2, "s3:ListBucket"},
	{BUCKET, "GET", "versions", WORKER, op_list_versions, "s3:ListBucketVersions"},
	{BUCKET, "GET", "location", LOOP, op_bucket_location, "s3:GetBucketLocation"},
	{BUCKET, "GET", "versioning", LOOP, op_bucket_versioning, "s3:GetBucketVersioning"},
	{BUCKET, "PUT", "versioning", DOCUMENT, op_put_bucket_versioning, "s3:PutBucketVersioning"},
	{BUCKET, "GET", "cors", WORKER, op_bucket_cors, "s3:GetBucketCORS"},
	{BUCKET, "PUT", "cors", DOCUMENT, op_put_bucket_cors, "s3:PutBucketCORS"},
	{BUCKET, "DELETE", "cors", WORKER, op_delete_bucket_cors, "s3:PutBucketCORS"},
	{BUCKET, "GET", "lifecycle", WORKER, op_bucket_lifecycle, "s3:GetLifecycleConfiguration"},
	{BUCKET, "PUT", "lifecycle", DOCUMENT, op_put_bucket_lifecycle,
		"s3:PutLifecycleConfiguration"},
	{BUCKET, "DELETE", "lifecycle", WORKER, op_delete_bucket_lifecycle,
		"s3:PutLifecycleConfiguration"},
	{BUCKET, "GET", "notification", WORKER, op_bucket_notification, "s3:GetBucketNotification"},
	{BUCKET, "PUT", "notification", DOCUMENT, op_put_bucket_notification,
		"s3:PutBucketNotification"},
	{BUCKET, "GET", "replication", WORKER, op_bucket_replication,
		"s3:GetReplicationConfiguration"},
	{BUCKET, "PUT", "replication", DOCUMENT, op_put_bucket_replication,
		"s3:PutReplicationConfiguration"},
	{BUCKET, "DELETE", "replication", WORKER, op_delete_bucket_replication,
		"s3:PutReplicationConfiguration"},
	{BUCKET, "GET", "logging", WORKER, op_bucket_logging, "s3:GetBucketLogging"},
	{BUCKET, "PUT", "logging", DOCUMENT, op_put_bucket_logging, "s3:PutBucketLogging"},
	{BUCKET, "GET", "encryption", WORKER, op_bucket_encryption,
		"s3:GetEncryptionConfiguration"},
	{BUCKET, "PUT", "encryption", DOCUMENT, op_put_bucket_encryption,
		"s3:PutEncryptionConfiguration"},
	{BUCKET, "DELETE", "encryption", WORKER, op_delete_bucket_encryption,
		"s3:PutEncryptionConfiguration"},
	{BUCKET, "GET", "acl", LOOP, op_bucket_acl, "s3:GetBucketAcl"},
	{BUCKET, "PUT", "acl", NOTE, op_put_bucket_acl, "s3:PutBucketAcl"},
	{BUCKET, "GET", "object-lock", LOOP, op_object_lock, "s3:GetBucketObjectLockConfiguration"},
	{BUCKET, "PUT", "object-lock", DOCUMENT, op_put_object_lock,
		"s3:PutBucketObjectLockConfiguration"},
	{BUCKET, "GET", "policy", LOOP, op_bucket_policy, "s3:GetBucketPolicy"},
	{BUCKET, "PUT", "policy", DOCUMENT, op_put_bucket_policy, "s3:PutBucketPolicy"},
	{BUCKET, "DELETE", "policy", WORKER, op_delete_bucket_policy, "s3:DeleteBucketPolicy"},
	{BUCKET, "GET", "policyStatus", LOOP, op_bucket_policy_status, "s3:GetBucketPolicyStatus"},
	{BUCKET, "GET", "publicAccessBlock", LOOP, op_access_block,
		"s3:GetBucketPublicAccessBlock"},
	{BUCKET, "PUT", "publicAccessBlock", DOCUMENT, op_put_access_block,
		"s3:PutBucketPublicAccessBlock"},
	{BUCKET, "DELETE", "publicAccessBlock", WORKER, op_delete_access_block,
		"s3:PutBucketPublicAccessBlock"},
	{BUCKET, "GET", "ownershipControls", LOOP, op_ownership, "s3:GetBucketOwnershipControls"},
	{BUCKET, "PUT", "ownershipControls", DOCUMENT, op_put_ownership,
		"s3:PutBucketOwnershipControls"},
	{BUCKET, "DELETE", "ownershipControls", WORKER, op_delete_ownership,
		"s3:PutBucketOwnershipControls"},
	{BUCKET, "GET", "tagging", LOOP, op_bucket_tagging, "s3:GetBucketTagging"},
	{BUCKET, "PUT", "tagging", DOCUMENT, op_put_bucket_tagging, "s3:PutBucketTagging"},
	{BUCKET, "DELETE", "tagging", WORKER, op_delete_bucket_tagging, "s3:PutBucketTagging"},
	{BUCKET, "GET", "uploads", WORKER, op_list_uploads, "s3:ListBucketMultipartUploads"},
	{BUCKET, "POST", "delete", DOCUMENT, op_delete_objects, NULL},
	{BUCKET, "POST", NULL, BEGIN, op_post_object_begin, NULL},
	{BUCKET, "POST", READ_MANY_QUERY, DOCUMENT, op_read_many, NULL},
	{OBJECT, "GET", NULL, LOOP, op_get_object, "s3:GetObject"},
	/* The checksums of parts take milliseconds if there are thousands of parts. */
	{OBJECT, "GET", "partNumber", WORKER, op_get_object, "s3:GetObject"},
	{OBJECT, "HEAD", NULL, LOOP, op_get_object, "s3:GetObject"},
	{OBJECT, "HEAD", "partNumber", WORKER, op_get_object, "s3:GetObject"},
	{OBJECT, "GET", "attributes", WORKER, op_object_attributes, "s3:GetObject"},
	{OBJECT, "GET", "acl", LOOP, op_object_acl, "s3:GetObjectAcl"},
	{OBJECT, "PUT", "acl", NOTE, op_put_object_acl, "s3:PutObjectAcl"},
	{OBJECT, "GET", "retention", LOOP, op_retention, "s3:GetObjectRetention"},
	{OBJECT, "PUT", "retention", NOTE, op_put_retention, NULL},
	{OBJECT, "GET", "legal-hold", LOOP, op_legal_hold, "s3:GetObjectLegalHold"},
	{OBJECT, "PUT", "legal-hold", NOTE, op_put_legal_hold, NULL},
	{OBJECT, "GET", "tagging", LOOP, op_tagging, "s3:GetObjectTagging"},
	{OBJECT, "PUT", "tagging", NOTE, op_put_tagging, NULL},
	{OBJECT, "DELETE", "tagging", WORKER, op_delete_tagging, "s3:DeleteObjectTagging"},
	{OBJECT, "PUT", NULL, BEGIN, op_put_object_begin, "s3:PutObject"},
	{OBJECT, "DELETE", NULL, WORKER, op_delete_object, "s3:DeleteObject"},
	{OBJECT, "POST", "uploads", WORKER, op_create_upload, "s3:PutObject"},
	{OBJECT, "PUT", "uploadId", BEGIN, op_upload_part_begin, "s3:PutObject"},
	{OBJECT, "GET", "uploadId", WORKER, op_list_parts, "s3:ListMultipartUploadParts"},
	{OBJECT, "POST", "uploadId", DOCUMENT, op_complete_upload, "s3:PutObject"},
	{OBJECT, "DELETE", "uploadId", WORKER, op_abort_upload, "s3:AbortMultipartUpload"},
};

static const struct absence absences[] = {
	{BUCKET, "website", "NoSuchWebsiteConfiguration",
		"The specified bucket does not have a website configuration",
		"s3:GetBucketWebsite"},
};

size_t route_count(void)
{
	return ARRAY_SIZE(routes) + 1;
}

void route_name(size_t operation, char out[static ROUTE_NAME_SIZE])
{
	static const char *const levels[] = {"SERVICE", "BUCKET", "OBJECT"};
	const struct route *r = operation ? &routes[operation - 1] : NULL;

	if (r)
		snprintf(out, ROUTE_NAME_SIZE, "REST.%s.%s%s%s", r->method, levels[r->level],
			r->sub ? "." : "", r->sub ? r->sub : "");
	else
		snprintf(out, ROUTE_NAME_SIZE, "REST.OTHER");
}

static const struct absence *find_absence(enum level level, const char *sub)
{
	for (size_t i = 0; sub && i < ARRAY_SIZE(absences); i++)
		if (absences[i].level == level && strcmp(absences[i].sub, sub) == 0)
			return &absences[i];
	return NULL;
}

static void op_absent(struct request *req)
{
	const struct absence *a = find_absence(
		req->key ? OBJECT : BUCKET, request_subresource(req));

	if (op_subject_exists(req))
		reply_code(req, 404, a->code, a->message);
}

static const uint64_t body_limits[] = {[LOOP] = LIMIT_SERVER_IGNORED_BODY,
	[WORKER] = LIMIT_SERVER_IGNORED_BODY,
	[DOCUMENT] = LIMIT_XML_BODY,
	[NOTE] = LIMIT_XML_NOTE};

static void follow(struct request *req, const struct route *route)
{
	req->action = route->action;
	if (!access_check_request(req) || !sse_read(req, req->sub))
		return;
	if (route->how == BEGIN) {
		route->fn(req);
		return;
	}
	if (route->how == LOOP)
		req->finish = route->fn;
	else
		request_finish_by_worker(req, route->fn);
	body_begin(req, BODY_DOCUMENT, body_limits[route->how]);
}

bool request_is_form(const struct request *req)
{
	const char *name = req->resource + (req->resource[0] == '/');
	const char *slash = strchr(name, '/');

	return strcmp(req->method, "POST") == 0 && *name && (!slash || !slash[1]) &&
	       multipart_is_form(request_header(req, "content-type")) && !request_subresource(req);
}

static bool is_read(const struct request *req)
{
	return strcmp(req->method, "GET") == 0 || strcmp(req->method, "HEAD") == 0;
}

/* Reads the version that the request names; `sub` is its subresource. Sets the reply and returns
 * false on failure. */
static bool take_version(struct request *req, const char *sub)
{
	bool has_versions = sub ? strncmp(sub, "upload", 6) != 0
				: is_read(req) || strcmp(req->method, "DELETE") == 0;

	if (!request_has_query(req, "versionId"))
		return true;
	req->version = request_query(req, "versionId");
	if (!req->version)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (!*req->version)
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "Version id cannot be the empty string");
	if (!store_version_is_valid(req->version))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
	if (!has_versions)
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "This operation does not accept a version-id.");
	return true;
}

void request_route(struct request *req)
{
	enum level level = req->key ? OBJECT : req->bucket[0] ? BUCKET : SERVICE;
	const char *sub = level == SERVICE ? NULL : request_subresource(req);

	if (!uri_query_is_valid(req->query)) {
		reply_error(req, S3_E_INVALID_URI);
		return;
	}
	if (level == SERVICE && query_is(req)) {
		query_begin(req);
		return;
	}
	req->sub = sub;
	if (!take_version(req, sub) || !headers_from_query(req, !auth_v2_is(req)) ||
		!headers_acceptable(req) || (!is_read(req) && !request_query_is_known(req)) ||
		!owner_is_expected(req, "x-amz-expected-bucket-owner", req->bucket))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];

		if (r->level == level && strcmp(r->method, req->method) == 0 &&
			(sub ? r->sub && strcmp(r->sub, sub) == 0 : !r->sub)) {
			req->operation = (size_t)(r - routes) + 1;
			follow(req, r);
			return;
		}
	}
	if (strcmp(req->method, "GET") == 0 && find_absence(level, sub))
		follow(req, &(struct route){.how = LOOP,
				    .fn = op_absent,
				    .action = find_absence(level, sub)->action});
	else if (!access_check_sender(req))
		return;
	else if (sub)
		reply_errorf(req, S3_E_NOT_IMPLEMENTED, "This store does not implement %s with ?%s",
			req->method, sub);
	else
		reply_error(req, S3_E_METHOD_NOT_ALLOWED);
}
