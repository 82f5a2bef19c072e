/* Client of a registry that speaks the distribution protocol ("/v2/"). */
#include "image/source.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <penstock/error.h>

#include "archive/ring.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http/http.h"
#include "s3/uri.h"

#define ACCEPT                                                                                     \
	"application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "    \
	"application/vnd.docker.distribution.manifest.list.v2+json, "                              \
	"application/vnd.docker.distribution.manifest.v2+json"

#define PROBE_CONNECT_MS 5000

struct registry {
	struct image_source source; /* first */
	struct registry_options options;
	const struct image_reference *ref;
	char *base; /* "https://host/v2/org/name" */
	struct image_login login;
	atomic_bool paused; /* a download waits for space in its ring */
	pthread_mutex_t lock;
	/* under lock; "Bearer …" or "Basic …"; NULL if no login was requested */
	char *authorization;
};

/* ---- logging in ---- */

/* Replaces the authorization with a text such as "Bearer …", or with NULL. The log no longer masks
 * the previous token, which has expired or whose pull has ended. */
static void set_authorization(struct registry *reg, char *authorization)
{
	if (authorization)
		log_redact(strchr(authorization, ' ') + 1);
	if (reg->authorization && str_starts(reg->authorization, "Bearer "))
		log_redact_forget(strchr(reg->authorization, ' ') + 1);
	str_wipe(reg->authorization);
	reg->authorization = authorization;
}

/* Returns "Basic …" for the login, or NULL if there is no login or if out of memory; free() the
 * result. */
static char *basic(const struct registry *reg)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(2 * LIMIT_IMAGE_LOGIN);

	if (!reg->login.username)
		return NULL;
	return http_add_basic(&out, reg->login.username, reg->login.password) < 0 ? NULL
										  : buf_take(&out);
}

static int token_url(const struct registry *reg, const struct image_challenge *challenge,
	struct buf *url, struct penstock_error *err)
{
	const char *realm = challenge->realm;

	/* Passwords go to the token service: require TLS, unless the registry itself has none. */
	if (!str_starts(realm, "https://") &&
		!(str_starts(realm, "http://") && str_starts(reg->base, "http://")))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"cannot log in to '%s': its token service has no TLS",
			reg->ref->shown_host);
	buf_add_str(url, realm);
	buf_add_char(url, strchr(realm, '?') ? '&' : '?');
	if (challenge->service) {
		buf_add_str(url, "service=");
		uri_encode(url, challenge->service, strlen(challenge->service), false);
		buf_add_char(url, '&');
	}
	buf_add_str(url, "scope=");
	if (challenge->scope)
		uri_encode(url, challenge->scope, strlen(challenge->scope), false);
	else
		buf_printf(url, "repository%%3A%s%%3Apull", reg->ref->repository);
	return buf_failed(url) ? buf_error(url, "the address of the token service", err) : 0;
}

static int refused(const struct registry *reg, struct penstock_error *err)
{
	const char *where = reg->ref->shown_host;

	if (reg->login.username)
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot pull '%s' from '%s': the registry refused the login of '%s', or that "
			"user may not read the image; check `username` and `password` of the "
			"container, or log in again with 'podman login %s'",
			reg->ref->repository, where, reg->login.username, where);
	return error_set(err, PENSTOCK_E_PERMISSION,
		"cannot pull '%s' from '%s': the registry requires a login, or has no such image; "
		"set `username` and `password` of the container, or log in with 'podman login %s'",
		reg->ref->repository, where, where);
}

static int fetch_token(struct registry *reg, const struct image_challenge *challenge,
	int64_t deadline_ms, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_wipe) struct buf body = BUF_INIT(LIMIT_IMAGE_LOGIN);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_free_ char *login = basic(reg);
	_cleanup_free_ char *token = NULL;
	struct http_request request = {.method = "GET",
		.sink = HTTP_SINK_TO_BUF(&body),
		.deadline_ms = deadline_ms,
		.direct = reg->ref->loopback,
		.patience_ms = reg->options.patience_ms,
		.cancel = reg->options.cancel,
		.what = "a token of the registry"};
	char *authorization = NULL;
	int r = token_url(reg, challenge, &url, err);

	if (r < 0)
		return r;
	request.url = buf_str(&url);
	if (login && http_request_header(&request, "Authorization", login) < 0)
		r = error_memory(err);
	if (r == 0)
		r = http_perform(reg->options.engine, &request, &reply, err);
	strlist_release(&request.headers);
	if (login)
		explicit_bzero(login, strlen(login));
	if (r < 0 && err && (err->http_status == 401 || err->http_status == 403))
		r = refused(reg, err);
	if (r == 0) {
		token = image_token_parse(buf_str(&body), body.len);
		authorization = token ? str_printf("Bearer %s", token) : NULL;
		if (!authorization)
			r = error_set(err, PENSTOCK_E_PROTOCOL,
				"the token service of '%s' replied without a token",
				reg->ref->shown_host);
		else
			set_authorization(reg, authorization);
	}
	if (token)
		explicit_bzero(token, strlen(token));
	return r;
}

/* Logs in as the challenge in `reply` requires. `used` is the authorization that the registry
 * refused, or NULL. Takes the lock. */
static int log_in(struct registry *reg, const struct http_reply *reply, const char *used,
	int64_t deadline_ms, struct penstock_error *err)
{
	LOCK_SCOPE(&reg->lock);
	const char *header = http_reply_header(reply, "WWW-Authenticate");
	struct image_challenge challenge = {0};
	int r;

	/* Another thread has already logged in. */
	if (reg->authorization && (!used || strcmp(used, reg->authorization) != 0))
		return 0;
	if (!header || !image_challenge_parse(&challenge, header))
		return refused(reg, err);
	if (challenge.basic) {
		char *authorization = used ? NULL : basic(reg);

		r = authorization ? 0 : refused(reg, err);
		if (authorization)
			set_authorization(reg, authorization);
	} else {
		r = fetch_token(reg, &challenge, deadline_ms, err);
	}
	image_challenge_release(&challenge);
	return r;
}

static char *current_authorization(struct registry *reg)
{
	LOCK_SCOPE(&reg->lock);

	return reg->authorization ? strdup(reg->authorization) : NULL;
}

/* ---- requests ---- */

/* Runs the request; logs in and repeats the request if the registry asks for a login. */
static int perform(struct registry *reg, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	request->direct = reg->ref->loopback;
	request->patience_ms = reg->options.patience_ms;
	request->cancel = reg->options.cancel;
	for (int round = 0;; round++) {
		_cleanup_free_ char *authorization = current_authorization(reg);
		int r;

		if (authorization &&
			http_request_header(request, "Authorization", authorization) < 0)
			return error_memory(err);
		http_reply_release(reply);
		*reply = (struct http_reply)HTTP_REPLY_INIT;
		r = http_perform(reg->options.engine, request, reply, err);
		if (r == 0 || reply->status != 401)
			return r;
		if (round == 2)
			return refused(reg, err);
		penstock_error_release(err);
		r = log_in(reg, reply, authorization, request->deadline_ms, err);
		if (r < 0)
			return r;
	}
}

static int explain(const struct registry *reg, const char *wanted, struct penstock_error *err)
{
	_cleanup_free_ char *name = image_reference_name(reg->ref);

	switch (err->http_status) {
	case 403:
		return refused(reg, err);
	case 404:
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find image '%s%s%s' in registry '%s'; check the name and the tag",
			reg->ref->repository, *wanted == 's' ? "@" : ":", wanted,
			reg->ref->shown_host);
	default:
		return error_prefix(err, "%s", name ? name : reg->ref->repository);
	}
}

/* Returns the absolute URL of a Location header; free() the URL. NULL if the URL is invalid, has no
 * TLS although the registry has TLS, or if out of memory. */
static char *resolve(const struct registry *reg, const char *location)
{
	if (str_starts(location, "https://") ||
		(str_starts(location, "http://") && str_starts(reg->base, "http://")))
		return strdup(location);
	if (*location == '/' && location[1] != '/') {
		const char *host = strstr(reg->base, "://") + 3;

		return str_printf("%.*s%s", (int)(host - reg->base + (int)strcspn(host, "/")),
			reg->base, location);
	}
	return NULL;
}

static bool is_moved(int status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Follows a redirect without the login, which the storage behind the registry must not get. */
static int follow(struct registry *reg, struct http_request *request,
	const struct http_reply *moved, struct penstock_error *err)
{
	const char *location = http_reply_header(moved, "Location");
	_cleanup_free_ char *url = location ? resolve(reg, location) : NULL;

	if (!url)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"'%s' redirects to an address that is invalid or without TLS",
			reg->ref->shown_host);
	request->url = url;
	request->follow_redirects = true;
	request->direct = reg->ref->loopback;
	request->patience_ms = reg->options.patience_ms;
	request->cancel = reg->options.cancel;
	return http_perform(reg->options.engine, request, NULL, err);
}

static int get_manifest(struct image_source *source, const char *digest, struct buf *out,
	struct penstock_error *err)
{
	struct registry *reg = (struct registry *)source;
	const char *wanted = digest ? digest : reg->ref->digest ? reg->ref->digest : reg->ref->tag;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_free_ char *url = str_printf("%s/manifests/%s", reg->base, wanted);
	struct http_request request = {.method = "GET",
		.url = url,
		.sink = HTTP_SINK_TO_BUF(out),
		.deadline_ms = reg->options.manifest_deadline_ms};
	int r;

	if (!url)
		return error_memory(err);
	r = http_request_header(&request, "Accept", ACCEPT) < 0
		    ? error_memory(err)
		    : perform(reg, &request, &reply, err);
	strlist_release(&request.headers);
	if (r < 0 && is_moved(reply.status)) {
		penstock_error_release(err);
		r = http_request_header(&request, "Accept", ACCEPT) < 0
			    ? error_memory(err)
			    : follow(reg, &request, &reply, err);
		strlist_release(&request.headers);
	}
	return r < 0 ? explain(reg, wanted, err) : 0;
}

/* ---- blobs ---- */

struct blob_get {
	struct registry *reg;
	struct buf *buf; /* NULL if `ring` is used */
	struct ring *ring; /* NULL if `buf` is used */
	uint64_t size; /* according to the manifest */
	uint64_t taken;
};

static int on_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	const struct blob_get *get = cookie;

	if (reply->content_length != HTTP_LENGTH_UNKNOWN && reply->status == 200 &&
		reply->content_length != get->size)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the registry sends %llu bytes of a blob, but the manifest states %llu",
			(unsigned long long)reply->content_length, (unsigned long long)get->size);
	return 0;
}

static enum http_take take(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct blob_get *get = cookie;
	struct registry *reg = get->reg;
	int r;

	if (get->taken + len > get->size) {
		error_set(err, PENSTOCK_E_CORRUPT,
			"the registry sends more than the %llu bytes of a blob that the manifest states",
			(unsigned long long)get->size);
		return HTTP_REFUSE;
	}
	if (get->buf) {
		r = buf_add(get->buf, data, len) < 0 ? buf_error(get->buf, "a blob", err) : 1;
	} else {
		/* Set the flag before the second attempt, so that space that is freed in between is
		 * not missed. */
		r = ring_try_write(get->ring, data, len);
		if (r == 0) {
			atomic_store(&reg->paused, true);
			r = ring_try_write(get->ring, data, len);
		}
		if (r == 0)
			return HTTP_PAUSE;
		if (r < 0)
			error_set(err, PENSTOCK_E_CANCELLED, "unpacking has ended");
	}
	if (r < 0)
		return HTTP_REFUSE;
	get->taken += len;
	if (get->ring && reg->options.progress)
		reg->options.progress(reg->options.cookie, (int64_t)len);
	return HTTP_TAKEN;
}

static int restart(void *cookie)
{
	const struct blob_get *get = cookie;

	return get->taken == 0 ? 0 : -1;
}

static int get_blob(struct blob_get *get, const char *digest, struct penstock_error *err)
{
	struct registry *reg = get->reg;
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_free_ char *url = str_printf("%s/blobs/%s", reg->base, digest);
	struct http_request request = {.method = "GET",
		.url = url,
		.sink = {.kind = HTTP_SINK_CALLBACK,
			.write = take,
			.restart = restart,
			.cookie = get},
		.on_headers = on_headers,
		.cookie = get};
	int r;

	if (!url)
		return error_memory(err);
	r = perform(reg, &request, &reply, err);
	strlist_release(&request.headers);
	if (r < 0 && is_moved(reply.status)) {
		penstock_error_release(err);
		/* Request a range, so that a broken transfer is resumed. */
		request.range.wanted = request.range.full_is_fine = true;
		request.on_headers = NULL;
		r = follow(reg, &request, &reply, err);
	}
	if (r == 0 && get->taken != get->size)
		r = error_set(err, PENSTOCK_E_CORRUPT,
			"a blob ends after %llu bytes, but the manifest states %llu",
			(unsigned long long)get->taken, (unsigned long long)get->size);
	return r < 0 ? explain(reg, digest, err) : 0;
}

static int get_config(struct image_source *source, const struct image_blob *blob, struct buf *out,
	struct penstock_error *err)
{
	struct blob_get get = {.reg = (struct registry *)source, .buf = out, .size = blob->size};

	return get_blob(&get, blob->digest, err);
}

static int get_layer(struct image_source *source, const struct image_blob *blob, struct ring *ring,
	struct penstock_error *err)
{
	struct registry *reg = (struct registry *)source;
	struct blob_get get = {.reg = reg, .ring = ring, .size = blob->size};
	int r = get_blob(&get, blob->digest, err);

	if (r < 0) {
		ring_break(ring);
		if (reg->options.progress)
			reg->options.progress(reg->options.cookie, -(int64_t)get.taken);
	} else {
		ring_close(ring);
	}
	return r;
}

static void drained(struct image_source *source)
{
	struct registry *reg = (struct registry *)source;

	if (atomic_exchange(&reg->paused, false))
		http_resume(reg->options.engine);
}

/* ---- opening ---- */

/* Fails if no registry replies over `scheme`, "http" or "https". */
static int probe(const struct registry *reg, const char *scheme, struct penstock_error *err)
{
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_free_ char *url = str_printf("%s://%s/v2/", scheme, reg->ref->host);
	struct http_request request = {.method = "GET",
		.url = url,
		.expect = {200, 401},
		.max_attempts = 1,
		.connect_timeout_ms = PROBE_CONNECT_MS,
		.direct = true,
		.deadline_ms = reg->options.manifest_deadline_ms,
		.cancel = reg->options.cancel};

	if (!url)
		return error_memory(err);
	return http_perform(reg->options.engine, &request, &reply, err);
}

/* Falls back to HTTP only for a registry on this machine, where no other user can read the
 * traffic. */
static int choose_scheme(
	const struct registry *reg, const char **scheme, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error without = PENSTOCK_ERROR_INIT;
	int r;

	*scheme = reg->ref->plain_http ? "http" : "https";
	if (reg->ref->plain_http || !reg->ref->loopback)
		return 0;
	r = probe(reg, "https", err);
	if (r == 0 || err->http_status)
		return 0;
	if (probe(reg, "http", &without) < 0)
		return error_prefix(err,
			err->code == PENSTOCK_E_UNAVAILABLE ? "registry '%s' does not reply"
							    : "cannot use registry '%s'",
			reg->ref->shown_host);
	penstock_error_release(err);
	*scheme = "http";
	return 0;
}

static void free_registry(struct image_source *source)
{
	struct registry *reg = (struct registry *)source;

	image_login_release(&reg->login);
	set_authorization(reg, NULL);
	free(reg->base);
	pthread_mutex_destroy(&reg->lock);
	free(reg);
}

static const struct image_source_ops registry_ops = {
	.manifest = get_manifest,
	.config = get_config,
	.layer = get_layer,
	.drained = drained,
	.free = free_registry,
};

int registry_open(struct image_source **out, const struct registry_options *options,
	struct penstock_error *err)
{
	struct registry *reg = calloc(1, sizeof(*reg));
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	const char *scheme;
	int r;

	if (!reg)
		return error_memory(err);
	reg->source.ops = &registry_ops;
	reg->options = *options;
	reg->ref = options->reference;
	pthread_mutex_init(&reg->lock, NULL);
	if (options->username) {
		reg->login.username = strdup(options->username);
		reg->login.password = strdup(options->password ? options->password : "");
		r = reg->login.username && reg->login.password &&
				    log_redact(reg->login.password) == 0
			    ? 0
			    : error_memory(&why);
	} else {
		r = login_find(&reg->login, reg->ref, options->cancel, &why);
	}
	if (r == 0)
		r = choose_scheme(reg, &scheme, &why);
	if (r == 0) {
		reg->base = str_printf(
			"%s://%s/v2/%s", scheme, reg->ref->host, reg->ref->repository);
		r = reg->base ? 0 : error_memory(&why);
	}
	if (r < 0) {
		free_registry(&reg->source);
		return error_move(err, &why);
	}
	*out = &reg->source;
	return 0;
}
