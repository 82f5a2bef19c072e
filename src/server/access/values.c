#include "server/access/values.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "s3/date.h"
#include "s3/message/tags.h"
#include "s3/uri.h"
#include "server/access/access.h"
#include "server/access/grants.h"
#include "server/directory/identity.h"
#include "server/request/headers.h"
#include "server/request/request.h"
#include "server/request/tags.h"

#define TEXT_MAX 64

/* Counts `n` steps, of about a nanosecond each, against the limit of the request. */
static void spend(const struct values_source *source, size_t n)
{
	policy_spend(&(struct policy_question){.steps = &source->req->policy_steps}, n);
}

/* Adds a value, or nothing if `text` is NULL. */
static int take(struct policy_values *out, const char *text)
{
	if (text && out->n < POLICY_VALUES_MAX)
		out->items[out->n++] = text;
	return 0;
}

static int take_copy(
	const struct values_source *source, struct policy_values *out, const char *text)
{
	const char *copy = arena_copy(source->memory, text, strlen(text));

	return copy ? take(out, copy) : -PENSTOCK_E_MEMORY;
}

/* --- the sender and the connection ----------------------------------------------------------- */

/* Clients on this machine may use a Unix socket, which counts as the loopback address. */
static int source_ip(const struct values_source *source, struct policy_values *out)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		source->req->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *address = info ? info->client_addr : NULL;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
	const void *bytes = NULL;
	char text[INET6_ADDRSTRLEN];
	int family = address ? address->sa_family : AF_UNSPEC;

	if (family == AF_INET)
		bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
	if (family == AF_INET6)
		bytes = &v6->sin6_addr;
	if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		family = AF_INET;
		bytes = v6->sin6_addr.s6_addr + 12;
	}
	if (!bytes)
		return take(out, "127.0.0.1");
	return inet_ntop(family, bytes, text, sizeof(text)) ? take_copy(source, out, text)
							    : -PENSTOCK_E_INTERNAL;
}

static int secure_transport(const struct values_source *source, struct policy_values *out)
{
	return take(out, request_tls_version(source->req) ? "true" : "false");
}

static int tls_version(const struct values_source *source, struct policy_values *out)
{
	const char *version = request_tls_version(source->req);

	return take(out, version ? version + strlen("TLSv") : NULL);
}

static int current_time(const struct values_source *source, struct policy_values *out)
{
	char text[DATE_ISO_SIZE];

	date_format_iso(clock_wall_ns(), text);
	return take_copy(source, out, text);
}

static int epoch_time(const struct values_source *source, struct policy_values *out)
{
	char text[TEXT_MAX];

	snprintf(text, sizeof(text), "%lld", (long long)(clock_wall_ns() / NS_PER_S));
	return take_copy(source, out, text);
}

static int referer(const struct values_source *source, struct policy_values *out)
{
	return take(out, request_header(source->req, "referer"));
}

static int user_agent(const struct values_source *source, struct policy_values *out)
{
	return take(out, request_header(source->req, "user-agent"));
}

static int principal_arn(const struct values_source *source, struct policy_values *out)
{
	const struct policy_caller *c = source->caller;

	return take(out, c->role_arn ? c->role_arn : c->arn);
}

static int principal_account(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->caller->account);
}

static int principal_type(const struct values_source *source, struct policy_values *out)
{
	const struct policy_caller *c = source->caller;

	return take(out, !c->account   ? "Anonymous"
			 : c->is_root  ? "Account"
			 : c->role_arn ? "AssumedRole"
				       : "User");
}

static int user_id(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->req->identity->user_id);
}

static int user_name(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->req->identity->user_name);
}

static int token_issue_time(const struct values_source *source, struct policy_values *out)
{
	const struct identity *who = source->req->identity;
	char text[DATE_ISO_SIZE];

	if (!who->is_temporary)
		return 0;
	date_format_iso(who->issued_s * NS_PER_S, text);
	return take_copy(source, out, text);
}

/* No service of AWS sends requests to this store. */
static int via_service(const struct values_source *source, struct policy_values *out)
{
	(void)source;
	return take(out, "false");
}

static int principal_is_service(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->caller->account ? "false" : NULL);
}

/* --- the request ----------------------------------------------------------------------------- */

static int auth_type(const struct values_source *source, struct policy_values *out)
{
	const struct request *req = source->req;

	if (req->anonymous)
		return 0;
	return take(out, req->form				? "POST"
			 : request_header(req, "authorization") ? "REST-HEADER"
								: "REST-QUERY-STRING");
}

static int signature_version(const struct values_source *source, struct policy_values *out)
{
	const struct request *req = source->req;

	if (req->anonymous)
		return 0;
	return take(out, *req->auth.access_key ? "AWS4-HMAC-SHA256" : "AWS");
}

/* Gets the age of the signature, in milliseconds. */
static int signature_age(const struct values_source *source, struct policy_values *out)
{
	const struct request *req = source->req;
	int64_t ms = clock_wall_ns() / NS_PER_MS - req->auth.when * 1000;
	char text[TEXT_MAX];

	if (!*req->auth.access_key)
		return 0;
	snprintf(text, sizeof(text), "%lld", (long long)(ms > 0 ? ms : 0));
	return take_copy(source, out, text);
}

/* A presigned request has no x-amz-content-sha256 header: the payload is unsigned, or the query has
 * its hash. */
static int content_sha256(const struct values_source *source, struct policy_values *out)
{
	const struct request *req = source->req;

	return take(out, req->auth.payload_hash ? req->auth.payload_hash
						: request_header(req, "x-amz-content-sha256"));
}

static int parameter(
	const struct values_source *source, struct policy_values *out, const char *name)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *query = source->req->query;

	spend(source, query ? strlen(query) : 0);
	if (uri_query_get(query, name, &value) > 0)
		return take_copy(source, out, buf_str(&value));
	return buf_failed(&value) ? -PENSTOCK_E_MEMORY : 0;
}

/* If the subject has a key, the prefix is that key: a sender who may list this prefix may learn
 * that the key is missing. */
static int prefix(const struct values_source *source, struct policy_values *out)
{
	if (source->subject->key)
		return take(out, source->subject->key);
	return parameter(source, out, "prefix");
}

static int delimiter(const struct values_source *source, struct policy_values *out)
{
	return parameter(source, out, "delimiter");
}

static int max_keys(const struct values_source *source, struct policy_values *out)
{
	return parameter(source, out, "max-keys");
}

static int version_id(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->subject->version);
}

/* The value is "bucket/key", decoded, without the version. */
static int copy_source(const struct values_source *source, struct policy_values *out)
{
	const char *text = request_header(source->req, "x-amz-copy-source"), *version;
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_HTTP_HEADERS);
	size_t len, slash;

	if (!headers_ask_copy(source->req))
		return 0;
	len = copy_source_length(text, &version);
	spend(source, len);
	slash = len && *text == '/';
	if (uri_decode(&plain, text + slash, len - slash, URI_PLUS_LITERAL) < 0 &&
		buf_failed(&plain))
		return -PENSTOCK_E_MEMORY;
	return take_copy(source, out, buf_str(&plain));
}

static int resource_account(const struct values_source *source, struct policy_values *out)
{
	return take(out, source->owner);
}

/* Gets "false" for the start and the parts of a multipart upload, "true" for all other requests. */
static int creates_object(const struct values_source *source, struct policy_values *out)
{
	const struct request *req = source->req;

	return take(out, req->sub && strncmp(req->sub, "upload", 6) == 0 &&
					 !(strcmp(req->sub, "uploadId") == 0 &&
						 strcmp(req->method, "POST") == 0)
				 ? "false"
				 : "true");
}

/* Gets the value of s3:object-lock-NAME: from the document if the request sets the lock by a
 * document, else from a header. */
static const char *lock_value(const struct values_source *source, const char *name)
{
	const struct access_subject *s = source->subject;
	char header[TEXT_MAX];

	if (!s->locks) {
		snprintf(header, sizeof(header), "x-amz-object-lock-%s", name);
		return request_header(source->req, header);
	}
	if (strcasecmp(name, "mode") == 0)
		return s->lock_mode;
	if (strcasecmp(name, "retain-until-date") == 0)
		return s->lock_until;
	return strcasecmp(name, "legal-hold") == 0 ? s->lock_hold : NULL;
}

static int remaining_days(const struct values_source *source, struct policy_values *out)
{
	const char *until = lock_value(source, "retain-until-date");
	char text[TEXT_MAX];
	int64_t ns;

	if (!until || !date_parse_iso_end(until, &ns))
		return 0;
	snprintf(text, sizeof(text), "%lld",
		(long long)((ns - clock_wall_ns()) / ((int64_t)24 * 60 * 60 * NS_PER_S)));
	return take_copy(source, out, text);
}

/* --- tags ------------------------------------------------------------------------------------ */

/* Policy steps for each byte of tags that are parsed. */
#define TAG_STEPS 8

/* Adds the value of the tag `wanted`, or the keys of all tags if `wanted` is NULL. */
static int take_tags(const struct values_source *source, struct policy_values *out,
	const char *text, const char *wanted)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_tagging tags = {0};
	int rc;

	spend(source, text ? TAG_STEPS * strlen(text) : 0);
	rc = text ? s3_tagging_parse_query(text, &tags, &err) : 0;
	/* An invalid header is refused by the operation. */
	if (rc < 0 && err.code != PENSTOCK_E_MEMORY)
		rc = 0;
	for (size_t i = 0; rc == 0 && i < tags.n; i++)
		if (!wanted || strcmp(tags.tags[i].key, wanted) == 0)
			rc = take_copy(source, out, wanted ? tags.tags[i].value : tags.tags[i].key);
	s3_tagging_release(&tags);
	penstock_error_release(&err);
	return rc;
}

static int existing_tag(
	const struct values_source *source, struct policy_values *out, const char *name)
{
	bool found;

	if (!source->subject->key)
		return 0;
	source->req->decided.tagged = true;
	if (grants_read(source->req, source->subject, source->object, &found) < 0)
		return -PENSTOCK_E_IO;
	return found ? take_tags(
			       source, out, store_object_header(*source->object, TAGS_HEADER), name)
		     : 0;
}

/* Returns true if tags of the request count: a copy ignores them unless they replace the tags of
 * the source. */
static bool has_request_tags(const struct request *req)
{
	const char *directive = request_header(req, "x-amz-tagging-directive");

	return !headers_ask_copy(req) || (directive && strcmp(directive, "REPLACE") == 0);
}

static int request_tag(
	const struct values_source *source, struct policy_values *out, const char *name)
{
	const char *text = source->subject->tags;

	if (!text && has_request_tags(source->req))
		text = request_header(source->req, "x-amz-tagging");
	return take_tags(source, out, text, name);
}

static int request_tag_keys(const struct values_source *source, struct policy_values *out)
{
	return request_tag(source, out, NULL);
}

/* --- the table ------------------------------------------------------------------------------- */

typedef int (*value_fn)(const struct values_source *source, struct policy_values *out);

static const struct {
	const char *key;
	value_fn fn;
} keys[] = {
	{"aws:CurrentTime", current_time},
	{"aws:EpochTime", epoch_time},
	{"aws:PrincipalAccount", principal_account},
	{"aws:PrincipalArn", principal_arn},
	{"aws:PrincipalIsAWSService", principal_is_service},
	{"aws:PrincipalType", principal_type},
	{"aws:Referer", referer},
	{"aws:ResourceAccount", resource_account},
	{"aws:SecureTransport", secure_transport},
	{"aws:SourceIp", source_ip},
	{"aws:TokenIssueTime", token_issue_time},
	{"aws:UserAgent", user_agent},
	{"aws:userid", user_id},
	{"aws:username", user_name},
	{"aws:ViaAWSService", via_service},
	{"s3:authType", auth_type},
	{"s3:delimiter", delimiter},
	{"s3:max-keys", max_keys},
	{"s3:object-lock-remaining-retention-days", remaining_days},
	{"s3:ObjectCreationOperation", creates_object},
	{"s3:prefix", prefix},
	{"s3:RequestObjectTagKeys", request_tag_keys},
	{"s3:ResourceAccount", resource_account},
	{"s3:signatureAge", signature_age},
	{"s3:signatureversion", signature_version},
	{"s3:TlsVersion", tls_version},
	{"s3:VersionId", version_id},
	{"s3:x-amz-content-sha256", content_sha256},
	{"s3:x-amz-copy-source", copy_source},
};

/* Gets the value of a key that names a header: s3:x-amz-acl, s3:if-match, s3:object-lock-mode. */
static int header(const struct values_source *source, struct policy_values *out, const char *name)
{
	if (strncasecmp(name, "object-lock-", 12) == 0)
		return take(out, lock_value(source, name + 12));
	if (strncasecmp(name, "x-amz-", 6) != 0 && strncasecmp(name, "if-", 3) != 0)
		return 0;
	return take(out, request_header(source->req, name));
}

int values_of_request(
	const struct policy_question *question, const char *key, struct policy_values *out)
{
	static const char existing[] = "s3:ExistingObjectTag/", wanted[] = "s3:RequestObjectTag/";
	const struct values_source *source = question->cookie;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strcasecmp(keys[i].key, key) == 0)
			return keys[i].fn(source, out);
	if (strncasecmp(key, existing, sizeof(existing) - 1) == 0)
		return existing_tag(source, out, key + sizeof(existing) - 1);
	if (strncasecmp(key, wanted, sizeof(wanted) - 1) == 0)
		return request_tag(source, out, key + sizeof(wanted) - 1);
	return strncasecmp(key, "s3:", 3) == 0 ? header(source, out, key + 3) : 0;
}

size_t *values_steps(struct request *req)
{
	size_t steps = req->policy_steps + LIMIT_POLICY_STEPS_KEY;

	req->policy_steps = steps < LIMIT_POLICY_STEPS ? steps : LIMIT_POLICY_STEPS;
	return &req->policy_steps;
}
