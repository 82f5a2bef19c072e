#include "server/route.h"

#include <string.h>

#include "base/cleanup.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "base/banned.h"

/* Selects the operation of a request: by the subject of its path, its method, and at most one
 * subresource, which is a query parameter that changes the meaning of the request. */
enum level { SERVICE = 1, BUCKET = 2, OBJECT = 4 };

enum body_wish { NOTHING, DOCUMENT, IGNORED, BY_BEGIN };

struct route {
	unsigned level;
	const char *method;
	const char *sub; /* may be NULL */
	enum body_wish body;
	/* as `finish`; with BY_BEGIN called at once, to begin the body and set finish */
	request_fn fn;
};

/* AWS's replies for configurations that a bucket does not have. */
struct absence {
	unsigned level;
	const char *sub;
	const char *code;
	const char *message;
};

static const struct route routes[] = {
	{SERVICE, "GET", NULL, NOTHING, op_list_buckets},
	{BUCKET, "PUT", NULL, DOCUMENT, op_create_bucket},
	{BUCKET, "HEAD", NULL, NOTHING, op_head_bucket},
	{BUCKET, "DELETE", NULL, NOTHING, op_delete_bucket},
	{BUCKET, "GET", NULL, NOTHING, op_list_objects},
	{BUCKET, "GET", "list-type", NOTHING, op_list_objects_v2},
	{BUCKET, "GET", "versions", NOTHING, op_list_versions},
	{BUCKET, "GET", "location", NOTHING, op_bucket_location},
	{BUCKET, "GET", "versioning", NOTHING, op_bucket_versioning},
	{BUCKET, "GET", "acl", NOTHING, op_acl},
	{BUCKET, "PUT", "acl", IGNORED, op_put_acl},
	{BUCKET, "GET", "uploads", NOTHING, op_list_uploads},
	{BUCKET, "POST", "delete", DOCUMENT, op_delete_objects},
	{OBJECT, "GET", NULL, NOTHING, op_get_object},
	{OBJECT, "GET", "partNumber", NOTHING, op_get_object},
	{OBJECT, "HEAD", NULL, NOTHING, op_get_object},
	{OBJECT, "HEAD", "partNumber", NOTHING, op_get_object},
	{OBJECT, "GET", "attributes", NOTHING, op_object_attributes},
	{OBJECT, "GET", "acl", NOTHING, op_acl},
	{OBJECT, "PUT", "acl", IGNORED, op_put_acl},
	{OBJECT, "GET", "tagging", NOTHING, op_tagging_object},
	{OBJECT, "PUT", NULL, BY_BEGIN, op_put_object_begin},
	{OBJECT, "DELETE", NULL, NOTHING, op_delete_object},
	{OBJECT, "POST", "uploads", IGNORED, op_create_upload},
	{OBJECT, "PUT", "uploadId", BY_BEGIN, op_upload_part_begin},
	{OBJECT, "GET", "uploadId", NOTHING, op_list_parts},
	{OBJECT, "POST", "uploadId", DOCUMENT, op_complete_upload},
	{OBJECT, "DELETE", "uploadId", NOTHING, op_abort_upload},
};

/* Every subresource of S3; a request with one of them is never an ordinary one. In the order of
 * precedence if several are present. */
static const char *const subresources[] = {"uploadId", "uploads", "attributes", "acl", "tagging",
	"policy", "policyStatus", "cors", "lifecycle", "website", "notification", "replication",
	"requestPayment", "logging", "encryption", "accelerate", "analytics", "inventory",
	"metrics", "ownershipControls", "publicAccessBlock", "object-lock", "intelligent-tiering",
	"legal-hold", "retention", "torrent", "restore", "select", "session", "append",
	"renameObject", "metadataTable", "metadataConfiguration", "location", "versioning",
	"versions", "delete", "list-type", "partNumber"};

static const struct absence absences[] = {
	{BUCKET, "policy", "NoSuchBucketPolicy", "The bucket policy does not exist"},
	{BUCKET, "policyStatus", "NoSuchBucketPolicy", "The bucket policy does not exist"},
	{BUCKET, "tagging", "NoSuchTagSet", "The TagSet does not exist"},
	{BUCKET, "cors", "NoSuchCORSConfiguration", "The CORS configuration does not exist"},
	{BUCKET, "lifecycle", "NoSuchLifecycleConfiguration",
		"The lifecycle configuration does not exist"},
	{BUCKET, "website", "NoSuchWebsiteConfiguration",
		"The specified bucket does not have a website configuration"},
	{BUCKET, "replication", "ReplicationConfigurationNotFoundError",
		"The replication configuration was not found"},
	{BUCKET, "encryption", "ServerSideEncryptionConfigurationNotFoundError",
		"The server side encryption configuration was not found"},
	{BUCKET, "object-lock", "ObjectLockConfigurationNotFoundError",
		"Object Lock configuration does not exist for this bucket"},
	{BUCKET, "publicAccessBlock", "NoSuchPublicAccessBlockConfiguration",
		"The public access block configuration was not found"},
	{BUCKET, "ownershipControls", "OwnershipControlsNotFoundError",
		"The bucket ownership controls were not found"},
	{OBJECT, "retention", "NoSuchObjectLockConfiguration",
		"The specified object does not have a ObjectLock configuration"},
	{OBJECT, "legal-hold", "NoSuchObjectLockConfiguration",
		"The specified object does not have a ObjectLock configuration"},
};

static const char *find_sub(const struct request *req)
{
	for (size_t i = 0; req->query && i < ARRAY_SIZE(subresources); i++)
		if (request_has_query(req, subresources[i]))
			return subresources[i];
	return NULL;
}

static const struct absence *find_absence(unsigned level, const char *sub)
{
	for (size_t i = 0; sub && i < ARRAY_SIZE(absences); i++)
		if ((absences[i].level & level) && strcmp(absences[i].sub, sub) == 0)
			return &absences[i];
	return NULL;
}

static void op_absent(struct request *req)
{
	const struct absence *a = find_absence(req->key ? OBJECT : BUCKET, find_sub(req));
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_bucket_get(req->server->store, req->bucket, NULL, &err);
	struct store_object *object = NULL;

	if (status == STORE_OK && req->key)
		status = store_object_get(req->server->store, req->bucket, req->key, &object, &err);
	store_object_unref(object);
	if (status != STORE_OK)
		reply_store_error(req, status, &err);
	else
		reply_code(req, 404, a->code, a->message);
}

static bool check_version(struct request *req)
{
	const char *version = request_query(req, "versionId");

	if (!version || strcmp(version, "null") == 0)
		return true;
	reply_error(req, S3_E_NO_SUCH_VERSION);
	return false;
}

static void follow(struct request *req, const struct route *route)
{
	if (route->body != BY_BEGIN)
		req->finish = route->fn;
	switch (route->body) {
	case NOTHING:
	case IGNORED:
		body_begin(req, BODY_DOCUMENT, LIMIT_SERVER_IGNORED_BODY);
		break;
	case DOCUMENT:
		body_begin(req, BODY_DOCUMENT, LIMIT_XML_BODY);
		break;
	case BY_BEGIN:
		route->fn(req);
		break;
	}
}

void request_route(struct request *req)
{
	unsigned level = req->key ? OBJECT : req->bucket[0] ? BUCKET : SERVICE;
	const char *sub = level == SERVICE ? NULL : find_sub(req);

	if (!check_version(req))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct route *r = &routes[i];

		if ((r->level & level) && strcmp(r->method, req->method) == 0 &&
			(sub ? r->sub && strcmp(r->sub, sub) == 0 : !r->sub)) {
			follow(req, r);
			return;
		}
	}
	if (strcmp(req->method, "GET") == 0 && find_absence(level, sub)) {
		req->finish = op_absent;
		body_begin(req, BODY_DOCUMENT, LIMIT_SERVER_IGNORED_BODY);
		return;
	}
	if (sub)
		reply_errorf(req, S3_E_NOT_IMPLEMENTED, "This store does not implement %s with ?%s",
			req->method, sub);
	else
		reply_error(req, S3_E_METHOD_NOT_ALLOWED);
}
