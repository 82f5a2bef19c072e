#include "server/iam/query.h"

#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/access/access.h"
#include "server/directory/directory.h"
#include "server/access/values.h"
#include "server/request/reply.h"
#include "server/request/request.h"

#define IAM_NAMESPACE "https://iam.amazonaws.com/doc/2010-05-08/"
#define STS_NAMESPACE "https://sts.amazonaws.com/doc/2011-06-15/"

/* --- parameters ------------------------------------------------------------------------------ */

const char *query_value(struct query *q, const char *name)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(QUERY_MAX);

	if (uri_query_get(buf_str(&q->req->body.document), name, &value) <= 0) {
		q->req->no_memory = q->req->no_memory || buf_failed(&value);
		return NULL;
	}
	return request_strdup(q->req, buf_str(&value));
}

const char *query_need(struct query *q, const char *name)
{
	const char *value = query_value(q, name);

	if (!value || !*value) {
		query_fail(q, 400, "ValidationError", "The request must contain the parameter %s",
			name);
		return NULL;
	}
	return value;
}

bool query_number(struct query *q, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *value = query_value(q, name);

	return !value || str_to_u64(value, min, max, out) ||
	       query_fail(q, 400, "ValidationError", "%s must be %llu to %llu", name,
		       (unsigned long long)min, (unsigned long long)max);
}

const char *query_text(struct query *q, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	const char *copy;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	copy = buf_failed(&text) ? NULL : request_strdup(q->req, buf_str(&text));
	if (!copy)
		query_no_memory(q);
	return copy;
}

/* --- rights ---------------------------------------------------------------------------------- */

/* Condition keys that are parameters of some actions. All other actions ignore the parameter, so
 * the parameter must not affect decisions on the other actions. */
static const struct {
	const char *key, *name;
	const char *actions[2]; /* prefixes */
} parameters[] = {
	{"iam:PolicyARN", "PolicyArn", {"Attach", "Detach"}},
	{"sts:ExternalId", "ExternalId", {"AssumeRole"}},
	{"sts:RoleSessionName", "RoleSessionName", {"AssumeRole"}},
};

int query_values(const struct policy_question *question, const char *key, struct policy_values *out)
{
	struct query *q = question->cookie;
	const struct access_subject subject = {.bucket = ""};
	const struct values_source source = {.req = q->req,
		.subject = &subject,
		.caller = question->caller,
		.owner = q->account,
		.memory = &q->req->arena};
	struct policy_question inner = *question;

	for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
		const char *const *actions = parameters[i].actions, *value = NULL;

		if (strcasecmp(key, parameters[i].key) != 0)
			continue;
		if (str_starts(q->action, actions[0]) ||
			(actions[1] && str_starts(q->action, actions[1]))) {
			policy_spend(question, q->req->body.document.len);
			value = query_value(q, parameters[i].name);
		}
		if (value)
			out->items[out->n++] = value;
		return q->req->no_memory ? -PENSTOCK_E_MEMORY : 0;
	}
	inner.cookie = (void *)(uintptr_t)&source;
	return values_of_request(&inner, key, out);
}

bool query_may(struct query *q, const char *action, const char *resource)
{
	const struct policy_caller caller = identity_caller(q->who);
	const struct policy_question question = {.action = action,
		.resource = resource,
		.caller = &caller,
		.values = query_values,
		.cookie = q,
		.steps = values_steps(q->req)};
	enum policy_result result;

	if (!action || !resource) /* out of memory: the reply is set */
		return false;
	result = identity_evaluate(q->who, &question);
	if (result == POLICY_FAILED)
		return query_fail(q, 503, "ServiceUnavailable", "Try again");
	return result == POLICY_ALLOW ||
	       query_fail(q, 403, "AccessDenied",
		       "User: %s is not authorized to perform: %s on resource: %s", q->who->arn,
		       action, resource);
}

/* --- replies --------------------------------------------------------------------------------- */

static void open_reply(struct query *q, struct buf *xml, const char *root)
{
	buf_printf(xml, "<%s xmlns=\"%s\">", root, q->is_sts ? STS_NAMESPACE : IAM_NAMESPACE);
}

bool query_fail(struct query *q, unsigned status, const char *code, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_free_ char *message = NULL;
	va_list ap;

	va_start(ap, fmt);
	message = str_vprintf(fmt, ap);
	va_end(ap);
	q->failed = true;
	open_reply(q, &xml, "ErrorResponse");
	xml_open(&xml, "Error");
	xml_element(&xml, "Type", status < 500 ? "Sender" : "Receiver");
	xml_element(&xml, "Code", code);
	xml_element(&xml, "Message", message ? message : "");
	xml_close(&xml, "Error");
	xml_element(&xml, "RequestId", q->req->id);
	xml_close(&xml, "ErrorResponse");
	reply_xml(q->req, status, &xml);
	return false;
}

bool query_no_memory(struct query *q)
{
	return query_fail(q, 503, "ServiceUnavailable", "Out of memory; try again");
}

void query_succeed(struct query *q)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_LIST_REPLY);
	const char *response = query_text(q, "%sResponse", q->action);
	const char *result = query_text(q, "%sResult", q->action);

	if (!response || !result)
		return;
	open_reply(q, &xml, response);
	xml_open(&xml, result);
	buf_add(&xml, buf_str(&q->xml), q->xml.len);
	xml_close(&xml, result);
	xml_open(&xml, "ResponseMetadata");
	xml_element(&xml, "RequestId", q->req->id);
	xml_close(&xml, "ResponseMetadata");
	xml_close(&xml, response);
	if (buf_failed(&q->xml))
		query_no_memory(q);
	else
		reply_xml(q->req, MHD_HTTP_OK, &xml);
}

void query_date(struct query *q, const char *name, int64_t seconds)
{
	char text[DATE_ISO_SIZE];

	date_format_iso(seconds * NS_PER_S, text);
	text[strlen("2026-01-01T00:00:00")] = 'Z';
	text[strlen("2026-01-01T00:00:00Z")] = '\0';
	xml_element(&q->xml, name, text);
}

bool query_store(struct query *q, const char *name, json_t *value)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct directory_change change = {.name = name, .value = value};
	enum store_status status = name ? directory_change(q->directory, &change, 1, &err)
					: STORE_FAILED;

	json_decref(value);
	if (status == STORE_OK)
		return true;
	q->failed = true;
	return reply_unless_stored(q->req, status, &err);
}
