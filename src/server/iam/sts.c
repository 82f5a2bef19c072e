/* The actions of STS: temporary keys, and the sender's own name. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/access/policy.h"
#include "s3/json.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/access/values.h"
#include "server/directory/directory.h"
#include "server/directory/managed.h"
#include "server/directory/record.h"
#include "server/directory/session.h"
#include "server/iam/actions.h"
#include "server/iam/entity.h"
#include "server/request/reply.h"
#include "server/request/request.h"

#define SESSION_MIN_S	   900
#define SESSION_MAX_S	   129600 /* maximum for a user; each role has its own maximum */
#define ROOT_SESSION_MAX_S 3600 /* maximum for the root, or if a role's session assumes a role */
#define SESSION_ARNS_MAX   10
#define SESSION_POLICY_MAX 2048 /* characters */

void sts_caller(struct query *q)
{
	xml_element(&q->xml, "Arn", q->who->arn);
	xml_element(&q->xml, "UserId", q->who->user_id);
	xml_element(&q->xml, "Account", q->account);
}

/* Creates keys with these terms, and writes the keys; takes the reference to `terms`. Sets the
 * reply and returns false on failure. */
static bool write_keys(struct query *q, json_t *terms, uint64_t seconds)
{
	_cleanup_(s3_json_freep) json_t *owned = terms;
	_cleanup_(buf_wipe) struct buf token = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *id = entity_id(q, SESSION_ID_PREFIX, 16, ENTITY_ID_ALPHABET);
	int64_t now = clock_wall_ns() / NS_PER_S, expires = now + (int64_t)seconds;
	char secret[SESSION_SECRET_SIZE];
	struct session_key key;
	enum store_status status;
	bool ok;

	if (!id)
		return false;
	status = directory_session_key(q->directory, &key, &err);
	if (status != STORE_OK) {
		q->failed = true;
		return reply_unless_stored(q->req, status, &err);
	}
	ok = owned && json_object_set_new(owned, "key", json_string(id)) == 0 &&
	     json_object_set_new(owned, "issued", json_integer(now)) == 0 &&
	     json_object_set_new(owned, "expires", json_integer(expires)) == 0 &&
	     session_secret(&key, id, secret) == 0 && session_seal(&key, owned, &token) == 0;
	explicit_bzero(&key, sizeof(key));
	if (!ok)
		return query_no_memory(q);
	xml_open(&q->xml, "Credentials");
	xml_element(&q->xml, "AccessKeyId", id);
	xml_element(&q->xml, "SecretAccessKey", secret);
	xml_element(&q->xml, "SessionToken", token.data);
	query_date(q, "Expiration", expires);
	xml_close(&q->xml, "Credentials");
	explicit_bzero(secret, sizeof(secret));
	return true;
}

void sts_session_token(struct query *q)
{
	uint64_t seconds = q->who->is_root ? ROOT_SESSION_MAX_S : 43200;
	json_t *terms;

	if (q->who->is_temporary) {
		query_fail(q, 403, "AccessDenied",
			"Cannot call GetSessionToken with session credentials");
		return;
	}
	if (!query_number(q, "DurationSeconds", SESSION_MIN_S,
		    q->who->is_root ? ROOT_SESSION_MAX_S : SESSION_MAX_S, &seconds))
		return;
	terms = json_pack("{s:s,s:s}", "record", q->who->record, "by", q->who->access_key_id);
	if (terms && !q->who->is_root &&
		json_object_set_new(terms, "id", json_string(q->who->user_id)) < 0) {
		json_decref(terms);
		terms = NULL;
	}
	write_keys(q, terms, seconds);
}

/* --- AssumeRole ------------------------------------------------------------------------------ */

/* Decides if the sender may assume the role. The trust policy of the role must admit the sender. If
 * this policy names only the account of the sender, or if the role belongs to another account, the
 * policies of the sender must allow the action, too. */
static bool may_assume(struct query *q, const json_t *role, const char *record, const char *arn)
{
	const struct policy_caller caller = identity_caller(q->who);
	const struct policy_question question = {.action = "sts:AssumeRole",
		.resource = arn,
		.caller = &caller,
		.values = query_values,
		.cookie = q,
		.steps = values_steps(q->req)};
	const char *text = record_text(role, "trust");
	struct policy *trust = NULL;
	enum policy_result trusted, own;
	bool same = strcmp(record_account(record).number, q->account) == 0;

	if (policy_parse(text, strlen(text), POLICY_OF_ROLE, NULL, &trust, NULL) < 0)
		return false;
	trusted = policy_evaluate(trust, &question);
	policy_free(trust);
	own = identity_evaluate(q->who, &question);
	if (trusted >= POLICY_DENY || own >= POLICY_DENY || trusted == POLICY_NEITHER ||
		identity_is_limited(q->who, &question))
		return false;
	return own == POLICY_ALLOW || (same && trusted == POLICY_ALLOW);
}

/* Returns true for a policy of the role's account, or a policy of AWS. */
static bool is_policy(struct query *q, const char *arn, const char *role)
{
	const char *record;

	if (managed_builtin_find(arn))
		return true;
	return record_by_arn(directory_records(q->directory), arn, &record) &&
	       str_starts(record, "policy/") &&
	       strcmp(record_account(record).number, record_account(role).number) == 0;
}

/* Adds the policies that narrow the session of a role. Sets the reply and returns false on
 * failure. */
static bool add_policies(struct query *q, const char *role, json_t *terms)
{
	const char *policy = query_value(q, "Policy"), *arn;
	json_t *arns = json_array();

	if (!arns || json_object_set_new(terms, "arns", arns) < 0)
		return query_no_memory(q);
	if (policy && !(policy = entity_check_policy(
				q, policy, POLICY_OF_IDENTITY, 0, SESSION_POLICY_MAX)))
		return false;
	if (policy && json_object_set_new(terms, "policy", json_string(policy)) < 0)
		return query_no_memory(q);
	for (size_t i = 1; i <= SESSION_ARNS_MAX + 1; i++) {
		const char *name = query_text(q, "PolicyArns.member.%zu.arn", i);

		arn = name ? query_value(q, name) : NULL;
		if (!arn)
			return name != NULL;
		if (i > SESSION_ARNS_MAX)
			break;
		if (!is_policy(q, arn, role))
			return query_fail(q, 400, "MalformedPolicyDocument",
				"The policy %s does not exist", arn);
		if (json_array_append_new(arns, json_string(arn)) < 0)
			return query_no_memory(q);
	}
	return query_fail(q, 400, "ValidationError", "PolicyArns must have at most %d members",
		SESSION_ARNS_MAX);
}

/* The parameters that AssumeRole reads. The lists at the end must be empty: SDKs send their names
 * without a value. */
static const char *const parameters[] = {"Action", "Version", "RoleArn", "RoleSessionName",
	"DurationSeconds", "ExternalId", "Policy", "PolicyArns", "ProvidedContexts", "Tags",
	"TransitiveTagKeys"};
enum { FIRST_LIST = 7, PARAMETERS = ARRAY_SIZE(parameters) };

/* Returns the index of a parameter, or a negative number if AssumeRole does not read the parameter.
 * The indexes of policies follow those of `parameters`. */
static int place_of(const char *name, struct span value, size_t n_policies)
{
	char policy[40];

	for (int i = 0; i < PARAMETERS; i++)
		if (strcmp(name, parameters[i]) == 0)
			return i < FIRST_LIST || !value.n ? i : -1;
	for (size_t i = 1; i <= n_policies; i++) {
		snprintf(policy, sizeof(policy), "PolicyArns.member.%zu.arn", i);
		if (strcmp(name, policy) == 0)
			return PARAMETERS - 1 + (int)i;
	}
	return -1;
}

/* Refuses a parameter that AssumeRole does not read, because it may be meant to limit the keys.
 * Sets the reply and returns false after a refusal. */
static bool reads_all(struct query *q, size_t n_policies)
{
	bool seen[PARAMETERS + SESSION_ARNS_MAX] = {false};
	_cleanup_(buf_release) struct buf text = BUF_INIT(QUERY_MAX);
	struct span name, value;

	for (const char *at = buf_str(&q->req->body.document);
		uri_query_next(&at, &name, &value);) {
		int i;

		buf_clear(&text);
		if (uri_decode(&text, name.p, name.n, URI_PLUS_SPACE) < 0)
			return query_no_memory(q);
		i = place_of(buf_str(&text), value, n_policies);
		if (i < 0)
			return query_fail(q, 501, "NotImplemented",
				"This store does not implement the parameter %s", buf_str(&text));
		if (seen[i])
			return query_fail(q, 400, "ValidationError", "The parameter %s is repeated",
				buf_str(&text));
		seen[i] = true;
	}
	return true;
}

void sts_assume_role(struct query *q)
{
	const char *arn = query_need(q, "RoleArn"),
		   *name = arn ? query_need(q, "RoleSessionName") : NULL;
	const char *record = NULL;
	const json_t *role = name ? record_by_arn(directory_records(q->directory), arn, &record)
				  : NULL;
	uint64_t seconds = 3600, most;
	json_t *terms;

	if (!name)
		return;
	if (strlen(name) < 2 || !entity_is_name(name, 64)) {
		query_fail(q, 400, "ValidationError",
			"RoleSessionName must have 2 to 64 characters: letters, digits and _+=,.@-");
		return;
	}
	if (!role || !str_starts(record, "role/") || !may_assume(q, role, record, arn)) {
		query_fail(q, 403, "AccessDenied",
			"User: %s is not authorized to perform: sts:AssumeRole on resource: %s",
			q->who->arn, arn);
		return;
	}
	most = (uint64_t)json_integer_value(json_object_get(role, "max"));
	if (q->who->kind == IDENTITY_ROLE)
		most = ROOT_SESSION_MAX_S;
	if (!query_number(q, "DurationSeconds", SESSION_MIN_S, most, &seconds))
		return;
	record = query_text(q, "%s", record); /* write_keys() may change the records */
	if (!record)
		return;
	terms = json_pack("{s:s,s:s,s:s,s:s}", "record", record, "id", record_text(role, "id"),
		"name", name, "account", q->account);
	if (!terms) {
		query_no_memory(q);
		return;
	}
	if (!add_policies(q, record, terms) ||
		!reads_all(q, json_array_size(json_object_get(terms, "arns")))) {
		json_decref(terms);
		return;
	}
	if (!write_keys(q, terms, seconds))
		return;
	xml_open(&q->xml, "AssumedRoleUser");
	xml_element(
		&q->xml, "AssumedRoleId", query_text(q, "%s:%s", record_text(role, "id"), name));
	xml_element(&q->xml, "Arn",
		query_text(q, "arn:aws:sts::%s:assumed-role/%s/%s", record_account(record).number,
			record_text(role, "name"), name));
	xml_close(&q->xml, "AssumedRoleUser");
}
