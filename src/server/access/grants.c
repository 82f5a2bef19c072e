#include "server/access/grants.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "s3/access/acl.h"
#include "server/access/access.h"
#include "server/directory/directory.h"
#include "server/directory/identity.h"
#include "server/access/owner.h"
#include "server/access/settings.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

#define OWNER_HAS_ALL "bucket-owner-full-control"

/* The headers of grants, in the order of the grants in a list. */
static const struct {
	const char *header, *permission;
} grant_headers[] = {
	{"x-amz-grant-read", "READ"},
	{"x-amz-grant-write", "WRITE"},
	{"x-amz-grant-read-acp", "READ_ACP"},
	{"x-amz-grant-write-acp", "WRITE_ACP"},
	{"x-amz-grant-full-control", "FULL_CONTROL"},
};

/* --- the bucket ------------------------------------------------------------------------------ */

bool grants_begin(struct request *req, struct grants_scope *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (settings_get(req->server, req->bucket, &out->settings, &err) < 0)
		return reply_failure(req, &err);
	if (!out->settings->exists)
		return reply_error(req, S3_E_NO_SUCH_BUCKET);
	out->bucket_owner = owner_of_account(req, out->settings->owner);
	out->enforced = out->settings->ownership == BUCKET_OWNER_ENFORCED;
	return true;
}

void grants_end(struct grants_scope *scope)
{
	settings_unref(scope->settings);
	scope->settings = NULL;
}

struct s3_owner grants_owner_of(
	struct request *req, const struct grants_scope *scope, const struct store_object *object)
{
	return scope->enforced ? scope->bucket_owner : owner_of_object(req, object);
}

/* --- lists ----------------------------------------------------------------------------------- */

static const char *id_of(struct request *req, const struct s3_grant *grant)
{
	struct directory *directory = req->server->directory;
	const struct account_info *account = grant->id
						     ? directory_account_by_id(directory, grant->id)
						     : directory_account_by_email(
							       directory, grant->email);

	if (account)
		return account->id;
	if (grant->id)
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid id");
	else
		reply_code(req, MHD_HTTP_BAD_REQUEST, "UnresolvableGrantByEmailAddress",
			"The email address that you provided does not match any account on "
			"record");
	return NULL;
}

/* Adds all grants, the grants of groups first, as in canned ACLs. */
static bool add_grants(struct request *req, const struct s3_acl *acl, struct buf *out)
{
	for (size_t i = 0; i < acl->n; i++)
		if (acl->grants[i].uri &&
			!acl_add_group(out, acl->grants[i].permission, acl->grants[i].uri))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid group uri");
	for (size_t i = 0; i < acl->n; i++) {
		const char *id = acl->grants[i].uri ? NULL : id_of(req, &acl->grants[i]);

		if (id)
			acl_add(out, acl->grants[i].permission, id);
		else if (request_replied(req))
			return false;
	}
	if (!acl->n)
		buf_add_str(out, ACL_EMPTY);
	return true;
}

static bool add_canned(
	struct request *req, const char *name, const struct acl_owners *owners, struct buf *out)
{
	if (acl_canned(out, name, owners))
		return true;
	if (strcmp(name, "aws-exec-read") == 0)
		return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
			"This store does not implement the canned ACL aws-exec-read");
	return reply_errorf(req, S3_E_INVALID_ARGUMENT, "'%s' is not a canned ACL", name);
}

static bool has_grants(const struct request *req)
{
	for (size_t i = 0; i < ARRAY_SIZE(grant_headers); i++)
		if (request_header(req, grant_headers[i].header))
			return true;
	return false;
}

bool grants_are_asked(const struct request *req)
{
	return request_header(req, "x-amz-acl") || has_grants(req);
}

static bool add_headers(struct request *req, struct buf *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_acl acl = {0};
	int rc = 0;
	bool ok;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(grant_headers); i++) {
		const char *value = request_header(req, grant_headers[i].header);

		if (value)
			rc = s3_acl_parse_header(value, grant_headers[i].permission, &acl, &err);
	}
	if (rc == -PENSTOCK_E_MEMORY)
		ok = reply_error(req, S3_E_SLOW_DOWN);
	else if (rc < 0)
		ok = reply_errorf(req, S3_E_INVALID_ARGUMENT, "A header x-amz-grant is invalid: %s",
			err.message ? err.message : "");
	else
		ok = add_grants(req, &acl, out);
	penstock_error_release(&err);
	s3_acl_release(&acl);
	return ok;
}

static bool add_document(struct request *req, const char *owner, struct buf *out)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_acl acl = {0};
	bool ok;

	if (s3_acl_parse(buf_str(document), document->len, &acl, &err) < 0)
		return reply_document_error(req, S3_E_MALFORMED_ACL, &err);
	ok = strcmp(acl.owner, owner) == 0 ? add_grants(req, &acl, out)
					   : reply_error(req, S3_E_ACCESS_DENIED);
	s3_acl_release(&acl);
	return ok;
}

/* Gets a list from the headers or the document of the request. */
static bool read_list(
	struct request *req, const struct acl_owners *owners, bool block_public, const char **out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	const char *canned = request_header(req, "x-amz-acl");
	bool ok;

	if (canned && has_grants(req))
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Specifying both Canned ACLs and Header Grants is not allowed");
	ok = canned	       ? add_canned(req, canned, owners, &text)
	     : has_grants(req) ? add_headers(req, &text)
			       : add_document(req, owners->owner, &text);
	if (!ok)
		return false;
	if (buf_failed(&text))
		return reply_error(req, S3_E_SLOW_DOWN);
	if (block_public && acl_is_public(buf_str(&text)))
		return reply_error(req, S3_E_ACCESS_DENIED);
	*out = NULL;
	if (acl_is_default(buf_str(&text), owners->owner))
		return true;
	*out = request_strdup(req, buf_str(&text));
	return *out || reply_error(req, S3_E_SLOW_DOWN);
}

static bool refuse_list(struct request *req)
{
	reply_code(req, MHD_HTTP_BAD_REQUEST, "AccessControlListNotSupported",
		"The bucket does not allow ACLs");
	return false;
}

bool grants_of_new_bucket(struct request *req, const char **text)
{
	const char *id = owner_of_account(req, req->identity->account).id;
	const char *ownership = request_header(req, "x-amz-object-ownership");

	*text = NULL;
	if (!grants_are_asked(req))
		return true;
	if (!read_list(req, &(struct acl_owners){id, id}, false, text))
		return false;
	if (!*text || !ownership || ownership_find(ownership) != BUCKET_OWNER_ENFORCED)
		return true;
	reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidBucketAclWithObjectOwnership",
		"Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting");
	return false;
}

bool grants_of_request(
	struct request *req, const struct grants_scope *scope, const char *owner, const char **text)
{
	if (scope->enforced)
		return refuse_list(req);
	if (!req->body.document.len && !grants_are_asked(req))
		return reply_error(req, S3_E_MISSING_SECURITY_HEADER);
	if (req->body.document.len && grants_are_asked(req)) {
		reply_code(req, MHD_HTTP_BAD_REQUEST, "UnexpectedContent",
			"This request does not support content");
		return false;
	}
	return read_list(req, &(struct acl_owners){owner, scope->bucket_owner.id},
		scope->settings->block.block_acls, text);
}

/* --- the decision ---------------------------------------------------------------------------- */

/* Actions that an ACL can allow, as AWS maps them. The ACL of the object applies to actions on
 * existing objects, the ACL of the bucket to all other actions. */
static const struct {
	const char *action;
	unsigned permission; /* 0 if no grant allows the action */
	bool of_object;
} lists[] = {
	{"s3:ListBucket", ACL_READ, false},
	{"s3:ListBucketMultipartUploads", ACL_READ, false},
	{"s3:ListBucketVersions", ACL_READ, false},
	{"s3:PutObject", ACL_WRITE, false},
	{"s3:DeleteObject", ACL_WRITE, false},
	{"s3:GetBucketAcl", ACL_READ_ACP, false},
	{"s3:PutBucketAcl", ACL_WRITE_ACP, false},
	{"s3:GetObject", ACL_READ, true},
	{"s3:GetObjectVersion", ACL_READ, true},
	{"s3:GetObjectAttributes", ACL_READ, true},
	{"s3:GetObjectVersionAttributes", ACL_READ, true},
	{"s3:GetObjectAcl", ACL_READ_ACP, true},
	{"s3:GetObjectVersionAcl", ACL_READ_ACP, true},
	{"s3:PutObjectAcl", ACL_WRITE_ACP, true},
	{"s3:PutObjectVersionAcl", ACL_WRITE_ACP, true},
	{"s3:GetObjectTagging", 0, true},
	{"s3:GetObjectVersionTagging", 0, true},
	{"s3:PutObjectTagging", 0, true},
	{"s3:PutObjectVersionTagging", 0, true},
	{"s3:DeleteObjectTagging", 0, true},
	{"s3:DeleteObjectVersionTagging", 0, true},
};

static bool allows(struct request *req, const struct access_settings *settings, const char *owner,
	const char *text, unsigned permission)
{
	const struct identity *who = req->identity;

	return permission &&
	       acl_allows(text, &(struct acl_question){.owner = owner_of_account(req, owner).id,
					.id = who->owner ? who->owner->id : NULL,
					.permission = permission,
					.ignore_public = settings->block.ignore_acls});
}

int grants_read(struct request *req, const struct access_subject *subject,
	struct store_object **object, bool *found)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = STORE_OK;

	if (!*object)
		status = request_get_object(
			req, subject->bucket, subject->key, subject->version, object, &err);
	penstock_error_release(&err);
	*found = *object && !(*object)->marker;
	if (status == STORE_FAILED || status == STORE_NO_SPACE)
		return -PENSTOCK_E_IO;
	if (!*found)
		request_keep_object(req, subject->bucket, subject->key, subject->version, NULL);
	return 0;
}

static int ask_object(struct request *req, const struct access_settings *settings,
	unsigned permission, const struct access_subject *subject, struct store_object **object,
	struct grants_answer *out)
{
	const char *owner;
	bool found;
	int rc = grants_read(req, subject, object, &found);

	if (rc < 0 || !found)
		return rc;
	owner = owner_number((*object)->headers, (*object)->headers_len);
	out->is_foreign = strcmp(owner, settings->owner) != 0;
	out->is_owner = strcmp(owner, req->identity->account) == 0;
	out->allows = allows(
		req, settings, owner, store_object_header(*object, ACL_HEADER), permission);
	return 0;
}

/* The account that started an upload may list its parts and abort it, even in a bucket of another
 * account. */
static int ask_upload(
	struct request *req, const struct access_subject *subject, struct grants_answer *out)
{
	_cleanup_(store_upload_release) struct store_upload upload = {0};
	const char *id = request_query(req, "uploadId");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	if (!id || !subject->key || req->identity->is_anonymous)
		return 0;
	status = store_upload_get(
		req->server->store, subject->bucket, subject->key, id, &upload, &err);
	penstock_error_release(&err);
	if (status == STORE_FAILED || status == STORE_NO_SPACE)
		return -PENSTOCK_E_IO;
	if (status != STORE_OK)
		return 0;
	out->allows = strcmp(owner_number(upload.headers, upload.headers_len),
			      req->identity->account) == 0;
	return 0;
}

int grants_ask(struct request *req, const struct access_settings *settings, const char *action,
	const struct access_subject *subject, struct store_object **object,
	struct grants_answer *out)
{
	size_t i = 0;

	*out = (struct grants_answer){0};
	if (strcmp(action, "s3:AbortMultipartUpload") == 0 ||
		strcmp(action, "s3:ListMultipartUploadParts") == 0)
		return ask_upload(req, subject, out);
	while (i < ARRAY_SIZE(lists) && strcmp(lists[i].action, action) != 0)
		i++;
	if (i == ARRAY_SIZE(lists) || settings->ownership == BUCKET_OWNER_ENFORCED)
		return 0;
	if (lists[i].of_object)
		return subject->key ? ask_object(req, settings, lists[i].permission, subject,
					      object, out)
				    : 0;
	out->allows = allows(req, settings, settings->owner, settings->acl, lists[i].permission);
	return 0;
}

/* --- new objects ----------------------------------------------------------------------------- */

/* Selects the account that owns a new object, and the object's list of grants. */
static bool choose(struct request *req, const struct grants_scope *scope, const char **account,
	const char **text)
{
	const char *canned = request_header(req, "x-amz-acl");
	bool gives = canned && strcmp(canned, OWNER_HAS_ALL) == 0 && !has_grants(req);
	const char *owner = scope->settings->owner;

	*text = NULL;
	*account = owner;
	if (scope->enforced)
		return !grants_are_asked(req) || gives || refuse_list(req);
	if (gives && scope->settings->ownership == BUCKET_OWNER_PREFERRED)
		return true;
	/* The bucket's owner gets the object of an anonymous sender: no other account could manage
	 * it. */
	if (!req->identity->is_anonymous)
		*account = req->identity->account;
	return !grants_are_asked(req) ||
	       read_list(req,
		       &(struct acl_owners){
			       owner_of_account(req, *account).id, scope->bucket_owner.id},
		       scope->settings->block.block_acls, text);
}

bool grants_add(struct request *req, struct buf *out)
{
	struct grants_scope scope = GRANTS_SCOPE_INIT;
	const char *account, *text;
	bool ok = grants_begin(req, &scope) && choose(req, &scope, &account, &text);

	if (ok && *account && strcmp(account, ACCOUNT_FIRST) != 0)
		store_header_add(out, STORE_OWNER_HEADER, account);
	if (ok && text)
		store_header_add(out, ACL_HEADER, text);
	grants_end(&scope);
	return ok && (!buf_failed(out) || reply_error(req, S3_E_SLOW_DOWN));
}
