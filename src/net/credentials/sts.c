/* STS, the service that issues temporary keys of a role. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/credentials/sources.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"
#include "s3/date.h"
#include "s3/sign/sigv4.h"
#include "s3/uri.h"
#include "s3/message/xml.h"

#define STS_VERSION "2011-06-15"
#define FORM	    "application/x-www-form-urlencoded; charset=utf-8"

/* --- replies --------------------------------------------------------------------------------- */

struct sts_reply {
	struct credentials keys;
	char *expiration;
	char *code;
	char *message;
};

static void sts_reply_release(struct sts_reply *reply)
{
	credentials_release(&reply->keys);
	free(reply->expiration);
	free(reply->code);
	free(reply->message);
}

/* Compares the ends of paths, because the root elements differ between calls and servers. */
static int on_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err)
{
	struct sts_reply *reply = cookie;
	const struct {
		const char *name;
		char **to;
	} wanted[] = {{"/Credentials/AccessKeyId", &reply->keys.access_key_id},
		{"/Credentials/SecretAccessKey", &reply->keys.secret_access_key},
		{"/Credentials/SessionToken", &reply->keys.session_token},
		{"/Credentials/Expiration", &reply->expiration}, {"/Error/Code", &reply->code},
		{"/Error/Message", &reply->message}};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!len || !str_ends(path, wanted[i].name))
			continue;
		free(*wanted[i].to);
		*wanted[i].to = strdup(text);
		if (!*wanted[i].to)
			return error_memory(err);
	}
	return 0;
}

int credentials_from_sts(
	const char *xml, size_t len, struct credentials *out, struct penstock_error *err)
{
	_cleanup_(sts_reply_release) struct sts_reply reply = {0};
	const struct xml_events events = {.end = on_end, .cookie = &reply};
	int r = xml_parse(xml, len, &events, "the reply of STS", err);

	if (r < 0)
		return r;
	if (!reply.keys.access_key_id || !reply.keys.secret_access_key)
		return error_set(err, PENSTOCK_E_PROTOCOL, "the reply of STS has no credentials");
	if (reply.expiration && !date_parse_iso_end(reply.expiration, &reply.keys.expires_at_ns))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"invalid Expiration '%.40s' in the reply of STS", reply.expiration);
	*out = reply.keys;
	reply.keys = (struct credentials){0};
	return 0;
}

/* Adds the reason from the body of a rejection: "AccessDenied: … is not authorized to …". */
static void add_reason(const struct http_reply *http, struct penstock_error *err)
{
	_cleanup_(sts_reply_release) struct sts_reply reply = {0};
	const struct xml_events events = {.end = on_end, .cookie = &reply};

	if (http->error_body.len &&
		xml_parse(buf_str(&http->error_body), http->error_body.len, &events, "the refusal",
			NULL) == 0 &&
		reply.code) {
		error_suffix(err, " (%.100s%s%.300s)", reply.code, reply.message ? ": " : "",
			reply.message ? reply.message : "");
		/* A 400 rejects the identity or the role, unless its code asks for a retry. */
		if (err && http->status == 400 && !str_starts(reply.code, "Throttling") &&
			strcmp(reply.code, "IDPCommunicationError") != 0)
			err->code = PENSTOCK_E_PERMISSION;
	}
}

/* --- requests -------------------------------------------------------------------------------- */

struct sts {
	char *url; /* with a path */
	char *host;
	char *region;
	char *role_arn;
	char *session_name;
	char *external_id;
	char *token_file;
	struct hidden_tokens hidden; /* tokens from `token_file` */
	unsigned duration_s;
	struct credentials_provider *source;
};

static void sts_free(void *cookie)
{
	struct sts *sts = cookie;

	credentials_provider_free(sts->source);
	free(sts->url);
	free(sts->host);
	free(sts->region);
	free(sts->role_arn);
	free(sts->session_name);
	free(sts->external_id);
	free(sts->token_file);
	hidden_tokens_release(&sts->hidden);
	free(sts);
}

static int add_header(
	struct http_request *request, const struct sigv4_header *h, struct penstock_error *err)
{
	return http_request_header(request, h->name, h->value) < 0 ? error_memory(err) : 0;
}

/* Signs with the keys that are used to assume the role. */
static int sign(const struct sts *sts, const atomic_int *cancel, struct http_request *request,
	struct penstock_error *err)
{
	_cleanup_(credentials_release) struct credentials keys = {0};
	_cleanup_(buf_release) struct buf authorization = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(sigv4_release) struct sigv4 signer = {0};
	struct sigv4_header headers[5] = {{"content-type", FORM}, {"host", sts->host}};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hash[65], date[DATE_BASIC_SIZE];
	int64_t now = clock_wall_ns() / NS_PER_S;
	size_t n = 2;
	int r = credentials_get_within(
		sts->source, &(struct credentials_patience){.cancel = cancel}, &keys, err);

	if (r == 0)
		r = checksum_of(CHECKSUM_SHA256, request->source.data,
			(size_t)request->source.length, digest, err);
	if (r == 0)
		r = sigv4_init(&signer, err);
	if (r < 0)
		return r;
	signer.generic = true;
	str_hex(digest, 32, hash);
	date_format_basic(now, date);
	headers[n++] = (struct sigv4_header){"x-amz-date", date};
	if (keys.session_token)
		headers[n++] = (struct sigv4_header){"x-amz-security-token", keys.session_token};
	r = sigv4_sign(&signer,
		&(struct sigv4_request){.method = "POST",
			.path = strchr(strstr(sts->url, "://") + 3, '/'),
			.query = "",
			.headers = headers,
			.n_headers = n,
			.payload_hash = hash},
		(struct sigv4_identity){&(struct sigv4_credentials){keys.access_key_id,
						keys.secret_access_key, keys.session_token},
			sts->region, "sts", now},
		&authorization, NULL, err);
	headers[n++] = (struct sigv4_header){"Authorization", buf_str(&authorization)};
	for (size_t i = 0; r == 0 && i < n; i++)
		r = add_header(request, &headers[i], err);
	return r;
}

static int form_of(
	const struct sts *sts, const char *token, struct buf *form, struct penstock_error *err)
{
	char duration[16];

	snprintf(duration, sizeof(duration), "%u", sts->duration_s);
	uri_query_add(form, "Action", token ? "AssumeRoleWithWebIdentity" : "AssumeRole");
	uri_query_add(form, "Version", STS_VERSION);
	if (sts->role_arn)
		uri_query_add(form, "RoleArn", sts->role_arn);
	uri_query_add(form, "RoleSessionName", sts->session_name);
	if (sts->external_id)
		uri_query_add(form, "ExternalId", sts->external_id);
	if (sts->duration_s)
		uri_query_add(form, "DurationSeconds", duration);
	if (token)
		uri_query_add(form, "WebIdentityToken", token);
	return buf_failed(form) ? buf_error(form, "the request to STS", err) : 0;
}

static int post(const struct sts *sts, const atomic_int *cancel, const struct buf *form,
	struct buf *xml, struct penstock_error *err)
{
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct http_request request = {.method = "POST",
		.url = sts->url,
		.source = {.kind = HTTP_SOURCE_MEMORY, .data = buf_str(form), .length = form->len},
		.sink = HTTP_SINK_TO_BUF(xml)};
	int r = http_engine_new(&engine, &(struct http_engine_options){.cancel = cancel}, err);

	if (r == 0 && sts->source)
		r = sign(sts, cancel, &request, err);
	else if (r == 0)
		r = add_header(&request, &(struct sigv4_header){"Content-Type", FORM}, err);
	if (r == 0) {
		r = http_perform(engine, &request, &reply, err);
		if (r < 0) {
			add_reason(&reply, err);
			r = err ? -(int)err->code : r;
		}
	}
	strlist_release(&request.headers);
	return r;
}

static int fetch(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	struct sts *sts = cookie;
	_cleanup_(buf_wipe) struct buf token = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_wipe) struct buf form = BUF_INIT(4 * LIMIT_HTTP_HEADERS);
	_cleanup_(buf_wipe) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	int r = 0;

	if (sts->token_file) {
		r = fs_read(sts->token_file, &token, err);
		while (token.len && strchr(" \r\n", token.data[token.len - 1]))
			buf_truncate(&token, token.len - 1);
		if (r == 0 && !token.len)
			r = error_set(err, PENSTOCK_E_INVALID, "'%s' is empty", sts->token_file);
		if (r < 0)
			return error_prefix(err, "the web identity token");
		if (hidden_tokens_add(&sts->hidden, buf_str(&token), token.len) < 0)
			return error_memory(err);
	}
	r = form_of(sts, sts->token_file ? buf_str(&token) : NULL, &form, err);
	if (r == 0)
		r = post(sts, cancel, &form, &xml, err);
	if (r == 0)
		r = credentials_from_sts(buf_str(&xml), xml.len, out, err);
	return r;
}

/* --- constructors ---------------------------------------------------------------------------- */

/* Copies a text; "" counts as missing. */
static bool copy(char **to, const char *from)
{
	return str_copy(to, from && *from ? from : NULL);
}

/* Sets URL and host. The path is signed: "" becomes "/". A query is not allowed. */
static int set_url(struct sts *sts, const char *url, struct penstock_error *err)
{
	const char *authority = strstr(url, "://");
	const char *slash;

	if (!authority || (!str_starts(url, "http://") && !str_starts(url, "https://")) ||
		strpbrk(url, "?#@"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid STS endpoint '%s'; expected http://HOST or https://HOST", url);
	authority += 3;
	slash = strchr(authority, '/');
	sts->url = str_printf("%s%s", url, slash ? "" : "/");
	sts->host = strndup(authority, slash ? (size_t)(slash - authority) : strlen(authority));
	return sts->url && sts->host ? 0 : error_memory(err);
}

static int sts_new(struct sts **out, const struct sts_role *role, struct penstock_error *err)
{
	struct sts *sts = calloc(1, sizeof(*sts));
	int r;

	if (!sts)
		return error_memory(err);
	r = set_url(sts, role->sts_url, err);
	if (r == 0 && (!copy(&sts->region, role->region) || !copy(&sts->role_arn, role->role_arn) ||
			      !copy(&sts->session_name, role->session_name) ||
			      !copy(&sts->external_id, role->external_id) ||
			      !copy(&sts->token_file, role->token_file)))
		r = error_memory(err);
	if (r == 0 && !sts->session_name &&
		!(sts->session_name = str_printf("penstock-%ld", (long)getpid())))
		r = error_memory(err);
	sts->duration_s = role->duration_s;
	if (r < 0) {
		sts_free(sts);
		return r;
	}
	*out = sts;
	return 0;
}

/* Takes over `source`, which is NULL for a web identity. */
static int new_provider(struct credentials_provider **out, const char *name,
	const struct sts_role *role, struct credentials_provider *source,
	struct penstock_error *err)
{
	struct sts *sts = NULL;
	int r = sts_new(&sts, role, err);

	if (r < 0) {
		credentials_provider_free(source);
		return r;
	}
	sts->source = source;
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){
			.name = name, .fetch = fetch, .release = sts_free, .cookie = sts},
		err);
}

int credential_source_role(struct credentials_provider **out, const struct sts_role *role,
	struct credentials_provider *source, struct penstock_error *err)
{
	return new_provider(out, "an assumed role", role, source, err);
}

int credential_source_web_identity(
	struct credentials_provider **out, const struct sts_role *role, struct penstock_error *err)
{
	return new_provider(out, "a web identity", role, NULL, err);
}
