/* The policy of a bucket, its public access block, and its object ownership. */
#include "server/op/op.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/access/acl.h"
#include "s3/access/policy.h"
#include "s3/message/access.h"
#include "server/access/owner.h"
#include "server/access/settings.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Gets the settings of the request's bucket. Sets the reply and returns NULL if there is no such
 * bucket. */
static struct access_settings *get_settings(struct request *req)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (settings_get(req->server, req->bucket, &settings, &err) < 0) {
		reply_failure(req, &err);
		return NULL;
	}
	if (settings->exists)
		return take_pointer(settings);
	reply_error(req, S3_E_NO_SUCH_BUCKET);
	return NULL;
}

/* Replaces a configuration, or removes it if `text` is NULL; then replies. */
static void set_config(struct request *req, const char *name, const char *text, unsigned status)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (reply_unless_stored(req,
		    store_config_set(req->server->store, req->bucket, req->bucket_id, name, text,
			    text ? strlen(text) : 0, &err),
		    &err))
		reply_empty(req, status);
}

/* --- policies -------------------------------------------------------------------------------- */

/* As with AWS, only the account of the bucket reads and changes its policy, even if the policy
 * allows this to others: a policy for s3:* must not hand over control of the bucket. Sets the reply
 * and returns false for any other account, or on failure. */
static bool is_of_account(struct request *req)
{
	struct store_bucket bucket;

	return op_get_bucket(req, &bucket) &&
	       (owner_is_sender(req, &bucket) || reply_error(req, S3_E_METHOD_NOT_ALLOWED));
}

void op_bucket_policy(struct request *req)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(POLICY_BUCKET_MAX + 1);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	if (!is_of_account(req))
		return;
	status = store_config_get(req->server->store, req->bucket, POLICY_CONFIG, &text, &err);
	if (status == STORE_NO_SUCH_KEY) {
		reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchBucketPolicy",
			"The bucket policy does not exist");
	} else if (reply_unless_stored(req, status, &err)) {
		if (*buf_str(&text) == '!')
			buf_consume(&text, 1);
		reply_body(req, MHD_HTTP_OK, &text, "application/json");
	}
}

void op_bucket_policy_status(struct request *req)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = get_settings(req);
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	if (!settings)
		return;
	s3_policy_status_write(&xml, settings_are_public(settings));
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Replies to a PUT whose policy could not be parsed. Releases `err`. */
static void refuse_policy(struct request *req, int rc, struct penstock_error *err)
{
	if (rc == -PENSTOCK_E_MEMORY)
		reply_error(req, S3_E_SLOW_DOWN);
	else {
		str_make_utf8(err->message);
		reply_code(req, MHD_HTTP_BAD_REQUEST, "MalformedPolicy", err->message);
	}
	penstock_error_release(err);
}

void op_put_bucket_policy(struct request *req)
{
	const struct buf *document = &req->body.document;
	const char *confirm = request_header(req, "x-amz-confirm-remove-self-bucket-access");
	_cleanup_(settings_unrefp) struct access_settings *settings = get_settings(req);
	_cleanup_(buf_release) struct buf text = BUF_INIT(POLICY_BUCKET_MAX + 1);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct policy *policy = NULL;
	int rc;

	if (!settings || !is_of_account(req))
		return;
	if (document->len > POLICY_BUCKET_MAX) {
		reply_code(req, MHD_HTTP_BAD_REQUEST, "MalformedPolicy",
			"Policy exceeds the maximum allowed document size.");
		return;
	}
	rc = policy_parse(
		buf_str(document), document->len, POLICY_OF_BUCKET, req->bucket, &policy, &err);
	if (rc < 0) {
		refuse_policy(req, rc, &err);
		return;
	}
	if (confirm && strcasecmp(confirm, "true") == 0)
		buf_add_char(&text, '!');
	buf_add(&text, document->data, document->len);
	if (settings->block.block_policy && policy_is_public(policy))
		reply_error(req, S3_E_ACCESS_DENIED);
	else if (buf_failed(&text))
		reply_error(req, S3_E_SLOW_DOWN);
	else
		set_config(req, POLICY_CONFIG, text.data, MHD_HTTP_NO_CONTENT);
	policy_free(policy);
}

void op_delete_bucket_policy(struct request *req)
{
	if (is_of_account(req))
		set_config(req, POLICY_CONFIG, NULL, MHD_HTTP_NO_CONTENT);
}

/* --- the public access block ----------------------------------------------------------------- */

static const char *word(bool value)
{
	return value ? "true" : "false";
}

void op_access_block(struct request *req)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = get_settings(req);
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	if (!settings)
		return;
	if (!settings->has_block) {
		reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchPublicAccessBlockConfiguration",
			"The public access block configuration was not found");
		return;
	}
	s3_access_block_write(
		&xml, &(struct s3_access_block){.block_acls = word(settings->block.block_acls),
			      .ignore_acls = word(settings->block.ignore_acls),
			      .block_policy = word(settings->block.block_policy),
			      .restrict_buckets = word(settings->block.restrict_buckets)});
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Adds the digit of a setting; the setting is off if `text` is NULL. Returns false if `text` is not
 * a boolean. */
static bool add_setting(char **out, const char *text)
{
	bool on = text && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);

	*(*out)++ = on ? '1' : '0';
	return on || !text || strcasecmp(text, "false") == 0 || strcmp(text, "0") == 0;
}

void op_put_access_block(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_access_block wanted = {0};
	char text[5] = "", *p = text;

	if (s3_access_block_parse(buf_str(document), document->len, &wanted, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return;
	}
	if (add_setting(&p, wanted.block_acls) && add_setting(&p, wanted.ignore_acls) &&
		add_setting(&p, wanted.block_policy) && add_setting(&p, wanted.restrict_buckets))
		set_config(req, BLOCK_CONFIG, text, MHD_HTTP_OK);
	else
		reply_error(req, S3_E_MALFORMED_XML);
	s3_access_block_release(&wanted);
}

void op_delete_access_block(struct request *req)
{
	set_config(req, BLOCK_CONFIG, NULL, MHD_HTTP_NO_CONTENT);
}

/* --- object ownership ------------------------------------------------------------------------ */

void op_ownership(struct request *req)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = get_settings(req);
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);

	if (!settings)
		return;
	if (settings->ownership == OWNERSHIP_MISSING) {
		reply_code(req, MHD_HTTP_NOT_FOUND, "OwnershipControlsNotFoundError",
			"The bucket ownership controls were not found");
		return;
	}
	s3_ownership_write(&xml, ownership_name(settings->ownership));
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* ACLs can be disabled only if the ACL of the bucket gives no rights to others. */
static void set_ownership(struct request *req, const char *ownership)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = get_settings(req);

	if (!settings)
		return;
	if (ownership_find(ownership) == BUCKET_OWNER_ENFORCED &&
		!acl_is_private(settings->acl, owner_of_account(req, settings->owner).id))
		reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidBucketAclWithObjectOwnership",
			"Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced "
			"setting");
	else
		set_config(req, OWNERSHIP_CONFIG, ownership, MHD_HTTP_OK);
}

void op_put_ownership(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_ownership wanted = {0};

	if (s3_ownership_parse(buf_str(document), document->len, &wanted, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return;
	}
	if (wanted.n == 1 && ownership_find(wanted.rules[0].ownership))
		set_ownership(req, wanted.rules[0].ownership);
	else
		reply_error(req, S3_E_MALFORMED_XML);
	s3_ownership_release(&wanted);
}

void op_delete_ownership(struct request *req)
{
	set_config(req, OWNERSHIP_CONFIG, NULL, MHD_HTTP_NO_CONTENT);
}
