/* Credentials from the metadata services of EC2 instances, ECS tasks and EKS pods. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/credentials/sources.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "net/metadata.h"
#include "s3/date.h"

#define INSTANCE_URL	     "http://169.254.169.254"
#define INSTANCE_URL_IPV6    "http://[fd00:ec2::254]"
#define CONTAINER_URL	     "http://169.254.170.2"
#define TOKEN_TTL_S	     300 /* a fetch of keys takes only a few seconds */
#define CONTAINER_TIMEOUT_MS 5000
#define CONTAINER_ATTEMPTS   3

/* --- documents ------------------------------------------------------------------------------- */

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	return text && *text ? text : NULL;
}

static int take_json(const json_t *json, struct credentials *out, struct penstock_error *err)
{
	const char *id = text_of(json, "AccessKeyId");
	const char *secret = text_of(json, "SecretAccessKey");
	const char *token = text_of(json, "SessionToken");
	const char *expiration = text_of(json, "Expiration");

	if (!id || !secret)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the reply has no AccessKeyId and SecretAccessKey");
	if (expiration && !date_parse_iso_end(expiration, &out->expires_at_ns))
		return error_set(
			err, PENSTOCK_E_PROTOCOL, "invalid Expiration '%.40s'", expiration);
	if (!token)
		token = text_of(json, "Token");
	return str_copy(&out->access_key_id, id) && str_copy(&out->secret_access_key, secret) &&
			       str_copy(&out->session_token, token)
		       ? 0
		       : error_memory(err);
}

int credentials_from_json(
	const char *text, size_t len, struct credentials *out, struct penstock_error *err)
{
	json_auto_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const char *code = text_of(json, "Code");
	const char *message = text_of(json, "Message");
	const json_t *version = json_object_get(json, "Version");
	struct credentials c = {0};
	int r;

	if (!json_is_object(json))
		return error_set(err, PENSTOCK_E_PROTOCOL, "the reply is not a JSON object");
	if (code && strcmp(code, "Success") != 0)
		return error_set(err, PENSTOCK_E_PERMISSION, "rejected with '%.100s'%s%.300s", code,
			message ? ": " : "", message ? message : "");
	if (version && json_integer_value(version) != 1)
		return error_set(err, PENSTOCK_E_UNSUPPORTED, "the version of the reply is not 1");
	r = take_json(json, &c, err);
	if (r < 0) {
		credentials_release(&c);
		return r;
	}
	*out = c;
	return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

struct metadata {
	char *url; /* URL of the service (EC2), or of the credentials (containers) */
	char *token_file; /* containers; may be NULL */
	char *token; /* containers; may be NULL */
	struct hidden_tokens hidden;
	int64_t timeout_ms; /* limit for one attempt */
	unsigned attempts;
};

static void metadata_free(void *cookie)
{
	struct metadata *m = cookie;

	free(m->url);
	free(m->token_file);
	str_wipe(m->token);
	hidden_tokens_release(&m->hidden);
	free(m);
}

/* Fetches one small document. `header` ("Name: value") may be NULL. */
static int ask(struct http_engine *engine, const struct metadata *m, const char *url,
	const char *header, struct buf *out, struct penstock_error *err)
{
	return metadata_ask(engine,
		&(struct metadata_request){
			.url = url,
			.headers = {header},
			.timeout_ms = m->timeout_ms,
			.attempts = m->attempts,
		},
		out, NULL, err);
}

/* --- EC2 ------------------------------------------------------------------------------------- */

static int instance_url(const struct metadata *m, const char *path, const char *last,
	struct buf *url, struct penstock_error *err)
{
	buf_clear(url);
	buf_printf(url, "%s%s%s", m->url, path, last);
	return buf_failed(url) ? buf_error(url, "the URL", err) : 0;
}

static int fetch_instance(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	static const char roles[] = "/latest/meta-data/iam/security-credentials/";
	const struct metadata *m = cookie;
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_wipe) struct buf header = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_wipe) struct buf reply = BUF_INIT(LIMIT_METADATA_REPLY);
	char role[256];
	int r = http_engine_new(&engine, &(struct http_engine_options){.cancel = cancel}, err);

	if (r == 0)
		r = metadata_aws_token(engine,
			&(struct metadata_request){.url = m->url,
				.timeout_ms = m->timeout_ms,
				.attempts = m->attempts},
			TOKEN_TTL_S, &header, err);
	if (r < 0)
		return r;
	r = instance_url(m, roles, "", &url, err);
	if (r == 0)
		r = ask(engine, m, buf_str(&url), buf_str(&header), &reply, err);
	if (r == -PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "this instance has no role");
	if (r < 0)
		return r;
	snprintf(
		role, sizeof(role), "%.*s", (int)strcspn(buf_str(&reply), "\r\n"), buf_str(&reply));
	r = instance_url(m, roles, role, &url, err);
	if (r == 0)
		r = ask(engine, m, buf_str(&url), buf_str(&header), &reply, err);
	if (r == 0)
		r = credentials_from_json(buf_str(&reply), reply.len, out, err);
	return r;
}

int credential_source_instance(struct credentials_provider **out, struct penstock_error *err)
{
	const char *url = str_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = str_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	const char *timeout = str_env("AWS_METADATA_SERVICE_TIMEOUT");
	const char *attempts = str_env("AWS_METADATA_SERVICE_NUM_ATTEMPTS");
	uint64_t timeout_s = 1, n = 1;
	struct metadata *m;
	size_t len;

	if (!url)
		url = mode && strcasecmp(mode, "IPv6") == 0 ? INSTANCE_URL_IPV6 : INSTANCE_URL;
	if (timeout && !str_to_u64(timeout, 1, 60, &timeout_s))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid AWS_METADATA_SERVICE_TIMEOUT '%s': it must be a number from 1 to 60",
			timeout);
	if (attempts && !str_to_u64(attempts, 1, 20, &n))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid AWS_METADATA_SERVICE_NUM_ATTEMPTS '%s': it must be a number from 1 "
			"to 20",
			attempts);
	m = calloc(1, sizeof(*m));
	if (!m)
		return error_memory(err);
	m->timeout_ms = (int64_t)timeout_s * 1000;
	m->attempts = (unsigned)n;
	len = strlen(url);
	while (len && url[len - 1] == '/')
		len--;
	m->url = strndup(url, len);
	if (!m->url) {
		metadata_free(m);
		return error_memory(err);
	}
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = "the instance's metadata",
			.fetch = fetch_instance,
			.release = metadata_free,
			.cookie = m},
		err);
}

/* --- ECS and EKS ----------------------------------------------------------------------------- */

/* Reads the token file each time, because it is rotated. */
static int container_header(struct metadata *m, struct buf *header, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *token = m->token;
	size_t len;

	if (m->token_file) {
		int r = fs_read(m->token_file, &text, err);

		if (r < 0)
			return error_prefix(err, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
		token = buf_str(&text);
	}
	if (!token)
		return 0;
	len = strlen(token);
	while (len && strchr("\r\n", token[len - 1]))
		len--;
	buf_printf(header, "Authorization: %.*s", (int)len, token);
	if (!len || strpbrk(buf_str(header), "\r\n"))
		return error_set(err, PENSTOCK_E_INVALID,
			"the container authorization token must be one line");
	if (hidden_tokens_add(&m->hidden, token, len) < 0)
		return error_memory(err);
	return buf_failed(header) ? buf_error(header, "the authorization token", err) : 0;
}

static int fetch_container(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	struct metadata *m = cookie;
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_(buf_wipe) struct buf header = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_wipe) struct buf reply = BUF_INIT(LIMIT_METADATA_REPLY);
	int r = container_header(m, &header, err);

	if (r == 0)
		r = http_engine_new(&engine, &(struct http_engine_options){.cancel = cancel}, err);
	if (r == 0)
		r = ask(engine, m, m->url, header.len ? buf_str(&header) : NULL, &reply, err);
	if (r == 0)
		r = credentials_from_json(buf_str(&reply), reply.len, out, err);
	return r;
}

/* Allows plain HTTP only to this machine and to the addresses of ECS and EKS. */
static int check_full_uri(const char *uri, struct penstock_error *err)
{
	static const char *const services[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
	const char *host;
	size_t len = http_plain_host(uri, &host);

	if (str_starts(uri, "https://") || (len && http_host_is_local(host, len)))
		return 0;
	if (!str_starts(uri, "http://"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid AWS_CONTAINER_CREDENTIALS_FULL_URI: it must begin with http:// or "
			"https://");
	for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
		if (len == strlen(services[i]) && strncasecmp(host, services[i], len) == 0)
			return 0;
	}
	return error_set(err, PENSTOCK_E_INVALID,
		"invalid AWS_CONTAINER_CREDENTIALS_FULL_URI: it uses plain HTTP to another "
		"machine; use https://");
}

int credential_source_container(struct credentials_provider **out, struct penstock_error *err)
{
	const char *relative = str_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = str_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *file = str_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = str_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	struct metadata *m;

	if (!relative && !full)
		return error_set(err, PENSTOCK_E_INVALID,
			"neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor "
			"AWS_CONTAINER_CREDENTIALS_FULL_URI is set");
	if (relative && *relative != '/')
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: it must begin with '/'");
	if (!relative && check_full_uri(full, err) < 0)
		return -PENSTOCK_E_INVALID;
	m = calloc(1, sizeof(*m));
	if (!m)
		return error_memory(err);
	m->timeout_ms = CONTAINER_TIMEOUT_MS;
	m->attempts = CONTAINER_ATTEMPTS;
	m->url = str_printf("%s%s", relative ? CONTAINER_URL : "", relative ? relative : full);
	if (!m->url || !str_copy(&m->token_file, file) ||
		!str_copy(&m->token, file ? NULL : token)) {
		metadata_free(m);
		return error_memory(err);
	}
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = "the container's metadata",
			.fetch = fetch_container,
			.release = metadata_free,
			.cookie = m},
		err);
}
