/* Tokens in exchange for a key, and from the metadata service of a Google machine. */
#include "net/credentials/google.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/http/http.h"
#include "s3/uri.h"

#define METADATA_HOST	    "metadata.google.internal"
#define METADATA_PATH	    "/computeMetadata/v1/instance/service-accounts/default/token"
#define METADATA_TIMEOUT_MS 3000
#define METADATA_ATTEMPTS   3
#define TOKEN_TIMEOUT_MS    20000

/* Adds the reason from {"error": "invalid_grant", "error_description": "…"}. A rejected key is a
 * permanent error, which is not retried. */
static int explain(const struct http_reply *reply, struct penstock_error *err)
{
	json_auto_t *json = json_loadb(
		buf_str(&reply->error_body), reply->error_body.len, JSON_REJECT_DUPLICATES, NULL);
	const char *code = json_string_value(json_object_get(json, "error"));
	const char *why = json_string_value(json_object_get(json, "error_description"));

	if (!err || !code)
		return err ? -(int)err->code : -(int)PENSTOCK_E_UNAVAILABLE;
	error_suffix(err, " (%.100s%s%.300s)", code, why ? ": " : "", why ? why : "");
	if (reply->status == 400 || reply->status == 401)
		err->code = PENSTOCK_E_PERMISSION;
	return -(int)err->code;
}

static int ask(struct http_request *request, const char *header, const atomic_int *cancel,
	struct credentials *out, struct penstock_error *err)
{
	_cleanup_(http_engine_freep) struct http_engine *engine = NULL;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	int64_t now = clock_wall_ns();
	int r = http_engine_new(&engine, &(struct http_engine_options){.cancel = cancel}, err);

	if (r == 0 && strlist_add(&request->headers, header) < 0)
		r = error_memory(err);
	if (r == 0) {
		request->sink = (struct http_sink)HTTP_SINK_TO_BUF(&text);
		r = http_perform(engine, request, &reply, err);
		if (r < 0)
			r = explain(&reply, err);
	}
	if (r == 0)
		r = google_token_parse(buf_str(&text), text.len, now, out, err);
	strlist_release(&request->headers);
	return r;
}

/* ---- keys ---- */

static int form_of(const struct google_key *key, struct buf *form, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf jwt = BUF_INIT(LIMIT_GOOGLE_KEY);
	int r = 0;

	if (key->kind == GOOGLE_SERVICE_ACCOUNT) {
		r = google_jwt(key, clock_wall_ns() / NS_PER_S, &jwt, err);
		uri_query_add(form, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
		uri_query_add(form, "assertion", buf_str(&jwt));
	} else {
		uri_query_add(form, "grant_type", "refresh_token");
		uri_query_add(form, "client_id", key->client_id);
		uri_query_add(form, "client_secret", key->client_secret);
		uri_query_add(form, "refresh_token", key->refresh_token);
	}
	return r == 0 && buf_failed(form) ? buf_error(form, "the token request", err) : r;
}

static int fetch_with_key(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	const struct google_key *key = cookie;
	_cleanup_(buf_wipe) struct buf form = BUF_INIT(2 * LIMIT_GOOGLE_KEY);
	int r = form_of(key, &form, err);

	if (r == 0) {
		struct http_request request = {.method = "POST",
			.url = key->token_uri,
			.stall_timeout_ms = TOKEN_TIMEOUT_MS,
			.source = {.kind = HTTP_SOURCE_MEMORY,
				.data = buf_str(&form),
				.length = form.len}};

		r = ask(&request, "Content-Type: application/x-www-form-urlencoded", cancel, out,
			err);
	}
	return r;
}

int credential_source_google(
	struct credentials_provider **out, const struct google_key *key, struct penstock_error *err)
{
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = key->kind == GOOGLE_SERVICE_ACCOUNT
							      ? "the service account"
							      : "the user's Google account",
			.fetch = fetch_with_key,
			.cookie = (void *)key},
		err);
}

/* ---- machines ---- */

static int fetch_instance(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	struct http_request request = {.method = "GET",
		.url = cookie,
		.direct = true,
		.max_attempts = METADATA_ATTEMPTS,
		.connect_timeout_ms = METADATA_TIMEOUT_MS,
		.stall_timeout_ms = METADATA_TIMEOUT_MS};

	return ask(&request, "Metadata-Flavor: Google", cancel, out, err);
}

int credential_source_google_instance(struct credentials_provider **out, struct penstock_error *err)
{
	const char *host = str_env("GCE_METADATA_HOST");
	char *url = NULL;

	if (!host)
		host = METADATA_HOST;
	if (strpbrk(host, "/?#@ "))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid GCE_METADATA_HOST '%s': it must be a host or HOST:PORT", host);
	url = str_printf("http://%s" METADATA_PATH, host);
	if (!url)
		return error_memory(err);
	return credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = "the machine's metadata",
			.fetch = fetch_instance,
			.release = free,
			.cookie = url},
		err);
}
