#include "server/access/access.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/access/decision.h"
#include "s3/access/policy.h"
#include "server/bucket/replicator.h"
#include "server/directory/directory.h"
#include "server/access/grants.h"
#include "server/directory/identity.h"
#include "server/access/settings.h"
#include "server/access/values.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"

#define RESOURCE "arn:aws:s3:::"

/* Returns true for the root of the bucket's account, unless its session has policies. */
static bool is_owner_root(const struct access_settings *settings, const struct identity *who)
{
	return who->is_root && !who->has_policies && strcmp(who->account, settings->owner) == 0;
}

static enum access_relation relation_of(
	const struct access_settings *settings, const struct policy_caller *caller)
{
	if (!caller->account)
		return ANONYMOUS;
	return strcmp(caller->account, settings->owner) == 0 ? OWN_ACCOUNT : OTHER_ACCOUNT;
}

/* Actions that have a different name if the request names a version. */
static const struct {
	const char *action, *of_version;
} versioned[] = {
	{"s3:DeleteObject", "s3:DeleteObjectVersion"},
	{"s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging"},
	{"s3:GetObject", "s3:GetObjectVersion"},
	{"s3:GetObjectAcl", "s3:GetObjectVersionAcl"},
	{"s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"},
	{"s3:GetObjectTagging", "s3:GetObjectVersionTagging"},
	{"s3:PutObjectAcl", "s3:PutObjectVersionAcl"},
	{"s3:PutObjectTagging", "s3:PutObjectVersionTagging"},
};

static const char *name_of(const char *action, const struct access_subject *subject)
{
	for (size_t i = 0; subject->version && i < ARRAY_SIZE(versioned); i++)
		if (strcmp(versioned[i].action, action) == 0)
			return versioned[i].of_version;
	return action;
}

/* --- the decision ---------------------------------------------------------------------------- */

/* The root of the account can always repair the policy, unless the root gave up this right. */
static bool is_repair(
	const struct access_settings *settings, const struct identity *who, const char *action)
{
	return is_owner_root(settings, who) && !settings->policy_binds_root &&
	       (strcmp(action, "s3:GetBucketPolicy") == 0 ||
		       strcmp(action, "s3:PutBucketPolicy") == 0 ||
		       strcmp(action, "s3:DeleteBucketPolicy") == 0);
}

/* If an account other than the bucket's owns the object, the bucket's policy cannot allow the
 * action: the ACL of the object decides, as if the bucket belonged to the owner of the object. */
static void apply_grants(struct access_facts *facts, const struct grants_answer *grants)
{
	facts->acl = grants->allows;
	if (!grants->is_foreign)
		return;
	if (facts->bucket == POLICY_ALLOW || facts->bucket == POLICY_DELEGATE)
		facts->bucket = POLICY_NEITHER;
	if (facts->relation != ANONYMOUS)
		facts->relation = grants->is_owner ? OWN_ACCOUNT : OTHER_ACCOUNT;
}

static enum access_result ask(const struct access_settings *settings, const char *action,
	const char *key, const struct values_source *source)
{
	_cleanup_(buf_release) struct buf resource = BUF_INIT(LIMIT_HTTP_HEADERS);
	const struct identity *who = source->req->identity;
	struct access_facts facts = {.relation = relation_of(settings, source->caller),
		.restricted = settings->policy_is_public && settings->block.restrict_buckets};
	struct grants_answer grants;
	bool allowed;
	struct policy_question question = {.action = action,
		.caller = source->caller,
		.values = values_of_request,
		.cookie = (void *)source,
		.steps = values_steps(source->req)};

	if (settings->policy_is_unreadable)
		return ACCESS_REFUSED;
	buf_printf(&resource, RESOURCE "%s%s%s", settings->bucket, key ? "/" : "", key ? key : "");
	if (buf_failed(&resource))
		return ACCESS_FAILED;
	question.resource = buf_str(&resource);
	facts.identity = identity_evaluate(who, &question);
	facts.bucket = policy_evaluate(settings->policy, &question);
	if (grants_ask(source->req, settings, action, source->subject, source->object, &grants) < 0)
		return ACCESS_FAILED;
	apply_grants(&facts, &grants);
	if (facts.bucket == POLICY_FAILED || facts.identity == POLICY_FAILED)
		return ACCESS_FAILED;
	if (facts.bucket == POLICY_DENY || facts.identity == POLICY_DENY)
		return ACCESS_DENIED;
	/* The session also limits what the bucket grants. */
	if (identity_is_limited(who, &question))
		return policy_spend(&question, 0) ? ACCESS_REFUSED : ACCESS_FAILED;
	allowed = access_decide(&facts);
	/* Computes the field of access logs that says if only an ACL allowed the request. */
	if (allowed && facts.acl) {
		facts.acl = false;
		source->req->acl_required = source->req->acl_required || !access_decide(&facts);
	}
	return allowed ? ACCESS_ALLOWED : ACCESS_REFUSED;
}

/* Decides if an action that is not on an existing bucket is allowed: only the sender's policies
 * count. */
static enum access_result ask_identity(
	const char *action, const char *bucket, const struct values_source *source)
{
	char resource[sizeof(RESOURCE) + sizeof(source->req->bucket)];
	const struct policy_question question = {.action = action,
		.resource = resource,
		.caller = source->caller,
		.values = values_of_request,
		.cookie = (void *)source,
		.steps = values_steps(source->req)};

	snprintf(resource, sizeof(resource), RESOURCE "%s", *bucket ? bucket : "*");
	switch (identity_evaluate(source->req->identity, &question)) {
	case POLICY_ALLOW:
		return ACCESS_ALLOWED;
	case POLICY_DENY:
		return ACCESS_DENIED;
	case POLICY_FAILED:
		return ACCESS_FAILED;
	case POLICY_NEITHER:
	case POLICY_DELEGATE:
		break;
	}
	return ACCESS_REFUSED;
}

static bool creates_bucket(const struct request *req)
{
	return req->action && strcmp(req->action, "s3:CreateBucket") == 0;
}

/* Decides if an action is allowed; `key` is NULL if the action is on the bucket. Sets *plain if no
 * policy of the bucket was evaluated. */
static enum access_result decide(struct request *req, const char *action, const char *key,
	const struct access_subject *subject, bool *plain)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = NULL;
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	_cleanup_(arena_release) struct arena memory = {0};
	const struct policy_caller caller = identity_caller(req->identity);
	struct values_source source = {.req = req,
		.subject = subject,
		.caller = &caller,
		.object = &object,
		.memory = &memory};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum access_result result;

	*plain = true;
	source.owner = caller.account;
	if (!*subject->bucket || creates_bucket(req))
		return ask_identity(action, subject->bucket, &source);
	if (settings_get(req->server, subject->bucket, &settings, &err) < 0) {
		log_warn("cannot read the settings of bucket '%s' for request '%s': %s",
			subject->bucket, req->id, err.message ? err.message : "unknown reason");
		penstock_error_release(&err);
		return ACCESS_FAILED;
	}
	if (!settings->exists)
		return ACCESS_MISSING;
	/* All decisions of a request are on the same bucket. Another account may create a bucket
	 * with the name of a deleted one. */
	if (subject->bucket == req->bucket) {
		if (req->bucket_id && req->bucket_id != settings->id)
			return ACCESS_MISSING;
		req->bucket_id = settings->id;
	}
	source.owner = settings->owner;
	if (is_repair(settings, req->identity, action))
		return ACCESS_ALLOWED;
	if (!settings->policy && !settings->policy_is_unreadable &&
		is_owner_root(settings, req->identity) &&
		(settings->ownership == BUCKET_OWNER_ENFORCED ||
			!directory_is_shared(req->server->directory)))
		return ACCESS_ALLOWED;
	*plain = false;
	/* All decisions on a subject, and the operation, use the same object. */
	if (!request_has_decided(req, subject->bucket, subject->key, subject->version))
		req->decided.tagged = false;
	object = request_take_object(req, subject->bucket, subject->key, subject->version);
	result = ask(settings, action, key, &source);
	if (object && !object->marker)
		request_keep_object(
			req, subject->bucket, subject->key, subject->version, take_pointer(object));
	return result;
}

void access_forget(struct request *req)
{
	store_object_unref(take_pointer(req->decided.object));
	req->decided.missing = req->decided.tagged = false;
}

enum access_result access_of(
	struct request *req, const char *action, const struct access_subject *subject)
{
	bool plain;

	return decide(req, name_of(action, subject), subject->key, subject, &plain);
}

/* --- replies --------------------------------------------------------------------------------- */

static bool refuse(struct request *req)
{
	return req->anonymous && request_is_browser(req) ? reply_page(req)
							 : reply_error(req, S3_E_ACCESS_DENIED);
}

static bool is_missing(struct request *req, const struct access_subject *subject)
{
	struct store_object *object = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_object_get(
		req->server->store, subject->bucket, subject->key, &object, &err);

	penstock_error_release(&err);
	store_object_unref(object);
	return status == STORE_NO_SUCH_KEY;
}

bool access_may_list(struct request *req, const struct access_subject *subject)
{
	bool plain;

	return decide(req, "s3:ListBucket", NULL, subject, &plain) == ACCESS_ALLOWED;
}

bool access_check_subject(
	struct request *req, const char *action, const struct access_subject *subject)
{
	bool reads = subject->key && str_starts(action, "s3:GetObject"), plain, lists;
	enum access_result result = decide(
		req, name_of(action, subject), subject->key, subject, &plain);

	if (result == ACCESS_FAILED)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (result == ACCESS_MISSING)
		return reply_error(req, S3_E_NO_SUCH_BUCKET);
	if (reads)
		req->hides_missing = false;
	if (plain || !reads)
		return result == ACCESS_ALLOWED || refuse(req);
	lists = access_may_list(req, subject);
	req->hides_missing = !lists;
	if (result == ACCESS_ALLOWED)
		return true;
	return lists && !subject->version && is_missing(req, subject)
		       ? reply_error(req, S3_E_NO_SUCH_KEY)
		       : refuse(req);
}

bool access_check(struct request *req, const char *action)
{
	return access_check_subject(req, action,
		&(struct access_subject){
			.bucket = req->bucket, .key = req->key, .version = req->version});
}

bool access_check_sender(struct request *req)
{
	_cleanup_(settings_unrefp) struct access_settings *settings = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (*req->bucket && settings_get(req->server, req->bucket, &settings, &err) < 0)
		return reply_failure(req, &err);
	if (req->anonymous)
		return (settings && (settings_are_public(settings) ||
					    policy_admits_anyone(settings->policy))) ||
		       refuse(req);
	/* Do not reply yet to an upload by a form: its sender is not known before the form is
	 * read. */
	return req->identity->is_anonymous || !settings || settings->exists ||
	       reply_error(req, S3_E_NO_SUCH_BUCKET);
}

/* A sender that may make an object may also give the object tags and grants, unless a statement
 * denies this. Locks, and all headers of a new bucket, need a statement that allows the action. */
static const struct {
	const char *header, *of_object, *of_bucket;
	bool needed;
} implied[] = {
	{"x-amz-acl", "s3:PutObjectAcl", "s3:PutBucketAcl", false},
	{"x-amz-grant-full-control", "s3:PutObjectAcl", "s3:PutBucketAcl", false},
	{"x-amz-grant-read", "s3:PutObjectAcl", "s3:PutBucketAcl", false},
	{"x-amz-grant-read-acp", "s3:PutObjectAcl", "s3:PutBucketAcl", false},
	{"x-amz-grant-write", NULL, "s3:PutBucketAcl", false},
	{"x-amz-grant-write-acp", "s3:PutObjectAcl", "s3:PutBucketAcl", false},
	{"x-amz-tagging", "s3:PutObjectTagging", NULL, false},
	{"x-amz-object-lock-mode", "s3:PutObjectRetention", NULL, true},
	{"x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold", NULL, true},
	{"x-amz-object-ownership", NULL, "s3:PutBucketOwnershipControls", true},
	{"x-amz-bucket-object-lock-enabled", NULL, "s3:PutBucketObjectLockConfiguration", true},
	{"x-amz-bucket-object-lock-enabled", NULL, "s3:PutBucketVersioning", true},
};

bool access_check_implied(struct request *req, const char *action, bool needed)
{
	const struct access_subject subject = {
		.bucket = req->bucket, .key = req->key, .version = req->version};
	bool plain;
	enum access_result result = decide(req, action, req->key, &subject, &plain);

	if (result == ACCESS_FAILED)
		return reply_error(req, S3_E_SLOW_DOWN);
	return (result != ACCESS_DENIED && (result != ACCESS_REFUSED || !needed)) || refuse(req);
}

bool access_needs_read(const char *etag, const char *size, const char *modified)
{
	return (etag && strcmp(etag, "*") != 0) || size || modified;
}

/* Returns true if the request changes an object under a condition on its content. */
static bool changes_if(const struct request *req)
{
	const char *etag = request_header(req, "if-match");
	bool other = access_needs_read(request_header(req, "if-none-match"), NULL, NULL);

	if (strcmp(req->action, "s3:PutObject") == 0)
		return etag || other;
	return strcmp(req->action, "s3:DeleteObject") == 0 &&
	       (other || access_needs_read(etag, request_header(req, "x-amz-if-match-size"),
				 request_header(req, "x-amz-if-match-last-modified-time")));
}

static bool check_headers(struct request *req)
{
	bool new_bucket = creates_bucket(req);

	if (changes_if(req) && !access_check(req, "s3:GetObject"))
		return false;
	if (lock_is_bypassed(req) && !access_check(req, "s3:BypassGovernanceRetention"))
		return false;
	if (req->key && request_header(req, REPLICA_HEADER) &&
		!access_check(req, strcmp(req->method, "DELETE") == 0 ? "s3:ReplicateDelete"
								      : "s3:ReplicateObject"))
		return false;
	for (size_t i = 0; (req->key || new_bucket) && i < ARRAY_SIZE(implied); i++) {
		const char *action = new_bucket ? implied[i].of_bucket : implied[i].of_object;

		if (action && request_header(req, implied[i].header) &&
			!access_check_implied(req, action, implied[i].needed || new_bucket))
			return false;
	}
	return true;
}

bool access_check_request(struct request *req)
{
	return req->action ? access_check(req, req->action) && check_headers(req)
			   : access_check_sender(req);
}

bool request_identify(struct request *req, const char *access_key_id, const char *token)
{
	enum s3_error problem = S3_E_SLOW_DOWN;
	struct identity *identity = directory_identify(
		req->server->directory, access_key_id, token, &problem);

	if (!identity) /* req->identity stays, so that the access log can name the sender */
		return reply_error(req, problem);
	identity_unref(req->identity);
	req->identity = identity;
	return true;
}

bool access_check_again(struct request *req)
{
	struct identity *before = identity_ref(req->identity);
	bool ok = before->is_anonymous ||
		  request_identify(req, before->access_key_id, before->token);

	identity_unref(before);
	access_forget(req);
	req->bucket_id = 0;
	return ok && access_check_request(req);
}
