#include "server/iam/actions.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/message/xml.h"
#include "s3/sum/checksum.h"
#include "s3/uri.h"
#include "server/directory/directory.h"
#include "server/iam/entity.h"
#include "server/iam/query.h"
#include "server/request/body.h"
#include "server/request/reply.h"
#include "server/request/request.h"

static const struct {
	const char *name;
	void (*fn)(struct query *q);
	bool of_sts;
} actions[] = {
	{"AddUserToGroup", iam_add_member},
	{"AssumeRole", sts_assume_role, true},
	{"AttachGroupPolicy", iam_attach},
	{"AttachRolePolicy", iam_attach},
	{"AttachUserPolicy", iam_attach},
	{"CreateAccessKey", iam_create_key},
	{"CreateGroup", iam_create},
	{"CreatePolicy", iam_create_managed},
	{"CreatePolicyVersion", iam_create_version},
	{"CreateRole", iam_create},
	{"CreateUser", iam_create},
	{"DeleteAccessKey", iam_delete_key},
	{"DeleteGroup", iam_delete},
	{"DeleteGroupPolicy", iam_delete_policy},
	{"DeletePolicy", iam_delete_managed},
	{"DeletePolicyVersion", iam_delete_version},
	{"DeleteRole", iam_delete},
	{"DeleteRolePolicy", iam_delete_policy},
	{"DeleteUser", iam_delete},
	{"DeleteUserPolicy", iam_delete_policy},
	{"DetachGroupPolicy", iam_detach},
	{"DetachRolePolicy", iam_detach},
	{"DetachUserPolicy", iam_detach},
	{"GetAccountSummary", iam_summary},
	{"GetCallerIdentity", sts_caller, true},
	{"GetGroup", iam_get},
	{"GetGroupPolicy", iam_get_policy},
	{"GetPolicy", iam_get_managed},
	{"GetPolicyVersion", iam_get_version},
	{"GetRole", iam_get},
	{"GetRolePolicy", iam_get_policy},
	{"GetSessionToken", sts_session_token, true},
	{"GetUser", iam_get},
	{"GetUserPolicy", iam_get_policy},
	{"ListAccessKeys", iam_list_keys},
	{"ListAttachedGroupPolicies", iam_list_attached},
	{"ListAttachedRolePolicies", iam_list_attached},
	{"ListAttachedUserPolicies", iam_list_attached},
	{"ListEntitiesForPolicy", iam_list_holders},
	{"ListGroupPolicies", iam_list_policies},
	{"ListGroups", iam_list},
	{"ListGroupsForUser", iam_groups_of_user},
	{"ListOpenIDConnectProviders", iam_list_providers},
	{"ListPolicies", iam_list_managed},
	{"ListPolicyVersions", iam_list_versions},
	{"ListRolePolicies", iam_list_policies},
	{"ListRoles", iam_list},
	{"ListUserPolicies", iam_list_policies},
	{"ListUsers", iam_list},
	{"PutGroupPolicy", iam_put_policy},
	{"PutRolePolicy", iam_put_policy},
	{"PutUserPolicy", iam_put_policy},
	{"RemoveUserFromGroup", iam_remove_member},
	{"SetDefaultPolicyVersion", iam_set_version},
	{"UpdateAccessKey", iam_update_key},
	{"UpdateAssumeRolePolicy", iam_update_trust},
	{"UpdateGroup", iam_update},
	{"UpdateRole", iam_update_role},
	{"UpdateUser", iam_update},
};

/* Parameters of features that this store does not have; they are refused rather than ignored. */
static const char *const refused[] = {"PermissionsBoundary", "SerialNumber", "SourceIdentity",
	"Tags.member.1.Key", "TokenCode", "TransitiveTagKeys.member.1"};

/* As with AWS, a session of a user may not use actions of IAM. */
static bool may_manage(struct query *q)
{
	const char *action = query_text(q, "iam:%s", q->action), *resource;

	if (q->who->is_temporary && q->who->kind != IDENTITY_ROLE)
		return query_fail(q, 403, "InvalidClientTokenId",
			"The security token included in the request is invalid");
	resource = action ? entity_resource(q) : NULL;
	return resource && query_may(q, action, resource);
}

static void perform_action(struct query *q)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(actions) && strcmp(actions[i].name, q->action) != 0)
		i++;
	if (i == ARRAY_SIZE(actions)) {
		query_fail(q, 501, "NotImplemented",
			"This store does not implement the action '%s'", q->action);
		return;
	}
	for (size_t k = 0; k < ARRAY_SIZE(refused); k++)
		if (query_value(q, refused[k])) {
			query_fail(q, 501, "NotImplemented",
				"This store does not implement the parameter %s", refused[k]);
			return;
		}
	if (q->is_sts != actions[i].of_sts)
		query_fail(q, 400, "InvalidAction", "The action %s is not one of this service",
			q->action);
	else if (q->is_sts || may_manage(q))
		actions[i].fn(q);
}

/* --- the request ----------------------------------------------------------------------------- */

/* Returns true if the value of each parameter can be decoded: otherwise the parameter would count
 * as missing. */
static bool is_valid(const struct buf *form)
{
	return strlen(buf_str(form)) == form->len && uri_query_is_valid(buf_str(form));
}

/* Finds the sender. Sets the reply and returns false if the key is invalid. */
static bool identify(struct request *req)
{
	return request_identify(
		       req, req->auth.access_key, request_header(req, "x-amz-security-token")) ||
	       query_fail(&(struct query){.req = req, .action = ""}, 403, "InvalidClientTokenId",
		       "The security token included in the request is invalid.");
}

static void perform(struct request *req)
{
	struct query q = {.req = req,
		.directory = req->server->directory,
		.action = "",
		.xml = BUF_INIT(LIMIT_LIST_REPLY)};
	const char *action = query_value(&q, "Action");

	q.action = action ? action : "";
	q.is_sts = strcmp(req->auth.scope.service, "sts") == 0;
	if (!is_valid(&req->body.document)) {
		query_fail(&q, 400, "ValidationError",
			"The form cannot be decoded: each %% needs two hexadecimal digits, and NUL "
			"is not allowed");
		return;
	}
	directory_begin(q.directory);
	/* An earlier change may have deleted the key or changed the policies of the sender. */
	q.failed = !identify(req);
	q.who = req->identity;
	q.account = q.who->account;
	if (!q.failed)
		perform_action(&q);
	directory_end(q.directory);
	if (!q.failed)
		query_succeed(&q);
	buf_release(&q.xml);
}

bool query_is(const struct request *req)
{
	const char *type = request_header(req, "content-type");
	static const char form[] = "application/x-www-form-urlencoded";

	return strcmp(req->method, "POST") == 0 && strcmp(req->resource, "/") == 0 && type &&
	       strncasecmp(type, form, sizeof(form) - 1) == 0;
}

/* Verifies the signature, which covers the hash of the body. Sets the reply and returns false on
 * failure. */
static bool verify(struct request *req)
{
	const struct buf *body = &req->body.document;
	struct sigv4 *signer = server_signer(req->server);
	struct sigv4_request sr = {.method = req->method,
		.path = req->path,
		.query = req->query,
		.headers = req->headers,
		.n_headers = req->n_headers};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	enum sigv4_failure failure;
	struct checksum sum;
	char hex[65];

	if (!signer)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (checksum_init(&sum, CHECKSUM_SHA256, &err) < 0)
		return reply_failure(req, &err);
	checksum_update(&sum, buf_str(body), body->len);
	checksum_final(&sum, digest);
	checksum_release(&sum);
	str_hex(digest, 32, hex);
	sr.payload_hash = hex;
	failure = sigv4_parse(&sr, &req->auth);
	if (failure == SIGV4_VALID && !identify(req))
		return false;
	if (failure == SIGV4_VALID) {
		signer->generic = true;
		failure = strcmp(req->auth.scope.service, "iam") != 0 &&
					  strcmp(req->auth.scope.service, "sts") != 0
				  ? SIGV4_SCOPE_SERVICE
				  : sigv4_verify(signer, &sr, &req->auth,
					    req->identity->secret_access_key,
					    clock_wall_ns() / NS_PER_S);
		signer->generic = false;
	}
	req->auth.payload_hash = NULL; /* `hex` goes out of scope */
	if (failure != SIGV4_VALID) {
		const struct s3_error_info *info = s3_error_info(sigv4_failure_error(failure));

		return query_fail(&(struct query){.req = req, .action = ""}, (unsigned)info->status,
			failure == SIGV4_ANONYMOUS ? "MissingAuthenticationToken" : info->code,
			"%s", sigv4_failure_message(failure));
	}
	request_sender_is_known(req);
	return true;
}

static void finish(struct request *req)
{
	if (!verify(req))
		return;
	request_finish_by_worker(req, perform);
	req->finish(req);
}

void query_begin(struct request *req)
{
	req->finish = finish;
	body_begin(req, BODY_DOCUMENT, QUERY_MAX);
}
