/* The client, and one S3 request: its URL, its signature, and the meaning of its failure. */
#include "transfer/client/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/date.h"
#include "s3/message/messages.h"
#include "s3/uri.h"
#include "transfer/client/google.h"

/* Maximum size of a body whose SHA-256 is signed; a larger body is protected by its checksum. */
#define SIGNED_BODY_MAX (16 * KIB)
/* Limit of attempts with refused credentials, not counting those while new ones are fetched. */
#define REFUSALS_MAX 5
/* Limit of new sets of credentials after refused ones; the last set gets only one attempt. */
#define RENEWALS_MAX 3

void object_info_release(struct object_info *info)
{
	free(info->key);
	free(info->version_id);
	free(info->content_type);
	free(info->storage_class);
	free(info->retention);
	strlist_release(&info->metadata);
	*info = (struct object_info){0};
}

void object_etag_copy(char out[static OBJECT_ETAG_SIZE], const char *etag)
{
	size_t len = etag ? strlen(etag) : 0;
	/* Ceph omits the quotes in replies to copies. */
	bool bare = len && *etag != '"' && !str_starts(etag, "W/");

	if (len == 0 || len + 2 >= OBJECT_ETAG_SIZE)
		out[0] = '\0';
	else
		snprintf(out, OBJECT_ETAG_SIZE, bare ? "\"%s\"" : "%s", etag);
}

bool object_etag_md5(const char *etag, uint8_t md5[static 16])
{
	char hex[33];

	if (!etag || strlen(etag) != 34 || etag[0] != '"' || etag[33] != '"')
		return false;
	memcpy(hex, etag + 1, 32);
	hex[32] = '\0';
	return str_unhex(hex, md5, 16) == 0;
}

/* ---- the client ---- */

/* Returns true if `authority` ends in a valid port ("host:80", "[::1]:80") or has no port; then the
 * scheme's port is used. */
static bool is_port(const char *authority, size_t len)
{
	const char *colon = memrchr(authority, ':', len);
	size_t n = colon ? len - (size_t)(colon + 1 - authority) : 0;
	char text[6] = "";
	uint64_t port;

	if (!colon || memchr(colon, ']', n + 1))
		return true;
	if (n >= sizeof(text))
		return false;
	memcpy(text, colon + 1, n);
	return str_to_u64(text, 1, 65535, &port);
}

/* Takes authority, base path and kind of the store from an endpoint, "http://host:80/base/". */
static int parse_endpoint(struct object_client *client, const char *url, struct penstock_error *err)
{
	const char *rest = strstr(url, "://");
	const char *port;
	size_t len;
	size_t base;

	client->https = str_starts(url, "https://");
	if (!client->https && !str_starts(url, "http://"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid S3 endpoint '%s': it must begin with http:// or https://", url);
	rest += 3;
	len = strcspn(rest, "/?#");
	if (len == 0 || memchr(rest, '@', len) || strpbrk(rest, "?#"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid S3 endpoint: expected http[s]://HOST[:PORT][/PATH] without "
			"user or query");
	if (!is_port(rest, len))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid S3 endpoint '%s': the port must be a number from 1 to 65535", url);
	port = client->https ? ":443" : ":80";
	base = strlen(rest + len);
	while (base && rest[len + base - 1] == '/')
		base--;
	client->base_path = strndup(rest + len, base);
	if (len > strlen(port) && strncmp(rest + len - strlen(port), port, strlen(port)) == 0)
		len -= strlen(port);
	client->authority = strndup(rest, len);
	if (!client->base_path || !client->authority)
		return error_memory(err);
	client->address = str_printf("%s://%s%s", client->https ? "https" : "http",
		client->authority, client->base_path);
	if (!client->address)
		return error_memory(err);
	client->aws = str_ends(client->authority, ".amazonaws.com") ||
		      str_ends(client->authority, ".amazonaws.com.cn");
	client->google = client->settings.google || google_is_host(client->authority);
	return 0;
}

const char *object_client_scheme(const struct object_client *client)
{
	return client->google ? "gs" : "s3";
}

int object_client_open(struct object_client **out, struct http_engine *engine,
	const struct store_place *place, struct penstock_error *err)
{
	const char *sums = getenv("AWS_REQUEST_CHECKSUM_CALCULATION");
	struct object_client *client = calloc(1, sizeof(*client));
	struct store_place asked = *place;
	enum guard guard;
	int r;

	if (!client)
		return error_memory(err);
	pthread_mutex_init(&client->probe_lock, NULL);
	for (unsigned i = 0; i < CLIENT_SIGNERS; i++)
		pthread_mutex_init(&client->signers[i].lock, NULL);
	client->engine = engine;
	asked.cancel_all = http_engine_cancel(engine);
	r = s3_settings_resolve(&client->settings, &asked, err);
	if (r == 0)
		r = parse_endpoint(client, client->settings.endpoint_url, err);
	for (unsigned i = 0; r == 0 && i < CLIENT_SIGNERS; i++) {
		r = sigv4_init(&client->signers[i].sigv4, err);
		client->signers[i].sigv4.kind = client->google ? SIGV4_GOOG_HMAC : SIGV4_AWS;
	}
	if (r < 0) {
		object_client_free(client);
		return r;
	}
	client->guard_kind = client->google ? CHECKSUM_CRC32C : CHECKSUM_CRC64NVME;
	guard = client->aws && client->https ? GUARD_TRAILER : GUARD_HEADER;
	if (sums && strcasecmp(sums, "when_required") == 0)
		guard = GUARD_MD5;
	atomic_init(&client->guard, guard);
	*out = client;
	return 0;
}

void object_client_free(struct object_client *client)
{
	if (!client)
		return;
	for (unsigned i = 0; i < CLIENT_SIGNERS; i++) {
		sigv4_release(&client->signers[i].sigv4);
		pthread_mutex_destroy(&client->signers[i].lock);
	}
	pthread_mutex_destroy(&client->probe_lock);
	free(client->authority);
	free(client->base_path);
	free(client->address);
	s3_settings_release(&client->settings);
	free(client);
}

const struct s3_settings *object_client_settings(const struct object_client *client)
{
	return &client->settings;
}

struct http_engine *object_client_engine(const struct object_client *client)
{
	return client->engine;
}

bool object_client_is_penstock(const struct object_client *client)
{
	return atomic_load(&client->own_kind);
}

void object_client_patience(struct object_client *client, int64_t ms, const atomic_int *cancel)
{
	atomic_store(&client->patience_ms, ms);
	atomic_store(&client->patient_cancel, ms ? cancel : NULL);
}

void object_client_gate(struct object_client *client, const struct http_gate *gate)
{
	atomic_store(&client->gate, gate);
}

/* ---- a request ---- */

void s3_op_release(struct s3_op *op)
{
	for (size_t i = 0; i < op->n_headers; i++) {
		free((char *)op->headers[i].name);
		free((char *)op->headers[i].value);
	}
	free(op->headers);
	strlist_release(&op->request.headers);
	http_reply_release(&op->reply);
	buf_release(&op->path);
	buf_release(&op->query);
	buf_release(&op->url);
	buf_release(&op->host);
	buf_release(&op->document);
	credentials_release(&op->keys);
	free(op->what);
	penstock_error_release(&op->failed);
	memset(op, 0, sizeof(*op));
}

static int op_prepare(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err);
static enum http_verdict op_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err);

/* Adds S3's headers to a reply of Google. */
static int op_translate(void *cookie, struct http_reply *reply, struct penstock_error *err)
{
	(void)cookie;
	return google_reply(reply, err);
}

static int op_names(struct s3_op *op, struct penstock_error *err)
{
	const struct object_client *client = op->at.client;
	/* No wildcard certificate covers a host name whose bucket has dots. */
	bool in_host = client->aws && op->at.bucket &&
		       !(client->https && strchr(op->at.bucket, '.'));

	if (op->at.bucket && (!*op->at.bucket || strpbrk(op->at.bucket, "/?#@: ")))
		return error_set(
			err, PENSTOCK_E_INVALID, "invalid bucket name '%s'", op->at.bucket);
	if (op->at.key && s3_key_problem(op->at.key, strlen(op->at.key)))
		return error_set(err, PENSTOCK_E_INVALID, "invalid key '%s': it %s", op->at.key,
			s3_key_problem(op->at.key, strlen(op->at.key)));
	if (in_host)
		buf_printf(&op->host, "%s.%s", op->at.bucket, client->authority);
	else
		buf_add_str(&op->host, client->authority);
	buf_add_str(&op->path, client->base_path);
	if (op->at.bucket && !in_host)
		buf_printf(&op->path, "/%s", op->at.bucket);
	if (op->at.key || op->path.len == 0)
		buf_add_char(&op->path, '/');
	if (op->at.key)
		uri_encode(&op->path, op->at.key, strlen(op->at.key), true);
	op->what = str_printf("%s %s://%s%s%s", op->request.method, object_client_scheme(client),
		op->at.bucket ? op->at.bucket : "", op->at.key ? "/" : "",
		op->at.key ? op->at.key : "");
	if (!op->what || buf_failed(&op->host) || buf_failed(&op->path))
		return error_memory(err);
	return 0;
}

static void add_version(struct s3_op *op)
{
	if (op->at.client->google)
		google_refuse_versions(&op->failed);
	else
		s3_op_query(op, "versionId", op->at.version);
}

void s3_op_init(struct s3_op *op, const char *method, struct object_ref at)
{
	memset(op, 0, sizeof(*op));
	op->at = at;
	op->reply = (struct http_reply)HTTP_REPLY_INIT;
	op->payload_hash = SIGV4_EMPTY_SHA256;
	buf_init(&op->path, LIMIT_STRING);
	buf_init(&op->query, LIMIT_STRING);
	buf_init(&op->url, LIMIT_STRING);
	buf_init(&op->host, LIMIT_STRING);
	buf_init(&op->document, LIMIT_XML_BODY);
	op->request = (struct http_request){
		.method = method, .prepare = op_prepare, .classify = op_classify, .cookie = op};
	if (at.client->google)
		op->request.translate = op_translate;
	if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
		op->request.patience_ms = atomic_load(&at.client->patience_ms);
	else
		op->request.gate = atomic_load(&at.client->gate);
	op->request.cancel = atomic_load(&at.client->patient_cancel);
	if (op_names(op, &op->failed) == 0 && at.version)
		add_version(op);
	op->request.what = op->what;
}

void s3_op_query(struct s3_op *op, const char *name, const char *value)
{
	if (uri_query_add(&op->query, name, value) < 0)
		error_memory(&op->failed);
}

void s3_op_header(struct s3_op *op, const char *name, const char *value)
{
	struct sigv4_header *grown;

	if (!value)
		return;
	if (strpbrk(value, "\r\n")) {
		error_set(&op->failed, PENSTOCK_E_INVALID,
			"invalid value of %s: it contains a line break", name);
		return;
	}
	grown = realloc(op->headers, (op->n_headers + 1) * sizeof(*grown));
	if (!grown) {
		error_memory(&op->failed);
		return;
	}
	op->headers = grown;
	grown += op->n_headers++;
	*grown = (struct sigv4_header){strdup(name), strdup(value)};
	if (!grown->name || !grown->value)
		error_memory(&op->failed);
}

void s3_op_body(struct s3_op *op, const void *data, size_t len)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];

	op->request.source = (struct http_source){
		.kind = HTTP_SOURCE_MEMORY, .data = len ? data : "", .length = len};
	op->payload_hash = SIGV4_UNSIGNED_PAYLOAD;
	if (len > SIGNED_BODY_MAX ||
		checksum_of(CHECKSUM_SHA256, data, len, digest, &op->failed) < 0)
		return;
	str_hex(digest, 32, op->sha256);
	op->payload_hash = op->sha256;
}

void s3_op_wants_document(struct s3_op *op)
{
	op->request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&op->document);
	op->may_be_error = true;
}

int s3_op_url(struct s3_op *op, struct penstock_error *err)
{
	if (op->failed.code)
		return error_move(err, &op->failed);
	buf_clear(&op->url);
	buf_printf(&op->url, "%s://%s%s%s%s", op->at.client->https ? "https" : "http",
		buf_str(&op->host), buf_str(&op->path), op->query.len ? "?" : "",
		buf_str(&op->query));
	if (buf_failed(&op->url))
		return buf_error(&op->url, "the URL", err);
	op->request.url = buf_str(&op->url);
	return 0;
}

int s3_op_ready(struct s3_op *op, struct penstock_error *err)
{
	int r = s3_op_url(op, err);

	if (r < 0)
		return r;
	credentials_release(&op->keys);
	if (credentials_anonymous(op->at.client->settings.credentials))
		return 0;
	/* The keys are fetched here and not in op_prepare(), because a fetch takes time. */
	return credentials_get_within(op->at.client->settings.credentials,
		&(struct credentials_patience){.cancel = op->request.cancel,
			.cancel_all = op->request.tidies_up
					      ? NULL
					      : http_engine_cancel(op->at.client->engine),
			.deadline_ms = op->request.deadline_ms},
		&op->keys, err);
}

int s3_op_perform(struct s3_op *op, struct penstock_error *err)
{
	for (bool again = true;; again = false) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		int r = s3_op_ready(op, err);

		if (r < 0)
			return r;
		r = http_perform(op->at.client->engine, &op->request, &op->reply, &own);
		if (r == 0)
			return 0;
		if (again && (op->error == S3_E_EXPIRED_TOKEN ||
				     (op->keys.bearer && own.http_status == 401))) {
			credentials_invalidate(op->at.client->settings.credentials);
			buf_clear(&op->document);
			continue;
		}
		return error_move(err, &own);
	}
}

/* ---- signing, before every attempt ---- */

struct signing {
	struct sigv4_header headers[64];
	size_t n;
	char date[DATE_BASIC_SIZE];
	struct buf authorization;
	struct strlist owned; /* owned strings of translated headers */
};

static void signing_release(struct signing *s)
{
	buf_release(&s->authorization);
	strlist_release(&s->owned);
}

static void sign_add(struct signing *s, const char *name, const char *value)
{
	s->headers[s->n++] = (struct sigv4_header){name, value};
}

static int add_lines(struct strlist *lines, const struct sigv4_header *headers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		/* curl has a special notation for a header without a value. */
		int r = *headers[i].value
				? strlist_addf(lines, "%s: %s", headers[i].name, headers[i].value)
				: strlist_addf(lines, "%s;", headers[i].name);

		if (r < 0)
			return -1;
	}
	return 0;
}

static int add_own_headers(const struct s3_op *op, struct signing *s, struct penstock_error *err)
{
	if (op->at.client->google && op->at.client->settings.project && !op->at.key)
		sign_add(s, "x-goog-project-id", op->at.client->settings.project);
	for (size_t i = 0; i < op->n_headers; i++) {
		struct sigv4_header *to = &s->headers[s->n];
		bool no_memory = false;

		if (!op->at.client->google)
			*to = op->headers[i];
		else if (!google_header(
				 op->request.method, &op->headers[i], to, &s->owned, &no_memory)) {
			if (no_memory)
				return error_memory(err);
			continue;
		}
		s->n++;
	}
	return 0;
}

static struct client_signer *signer_take(struct object_client *client)
{
	for (unsigned i = 0; i < CLIENT_SIGNERS; i++) {
		if (pthread_mutex_trylock(&client->signers[i].lock) == 0)
			return &client->signers[i];
	}
	pthread_mutex_lock(&client->signers[0].lock);
	return &client->signers[0];
}

static int sign(struct s3_op *op, struct signing *s, int64_t now, struct penstock_error *err)
{
	const struct sigv4_credentials keys = {.access_key = op->keys.access_key_id,
		.secret_key = op->keys.secret_access_key,
		.session_token = op->keys.session_token};
	const struct sigv4_request request = {.method = op->request.method,
		.path = buf_str(&op->path),
		.query = buf_str(&op->query),
		.headers = s->headers,
		.n_headers = s->n,
		.payload_hash = op->payload_hash};

	struct client_signer *signer = signer_take(op->at.client);
	int r = sigv4_sign(&signer->sigv4, &request,
		(struct sigv4_identity){&keys, op->at.client->settings.region,
			op->at.client->google ? "storage" : "s3", now},
		&s->authorization, NULL, err);

	pthread_mutex_unlock(&signer->lock);
	return r;
}

/* Sets `authorization` to a token, or to a signature over all headers, for which more headers are
 * added. Without credentials, leaves `authorization` empty. */
static int authorize(struct s3_op *op, struct signing *s, struct penstock_error *err)
{
	bool google = op->at.client->google;
	int64_t now = clock_wall_ns() / NS_PER_S + atomic_load(&op->at.client->skew_s);

	if (op->keys.bearer) {
		buf_printf(&s->authorization, "Bearer %s", op->keys.bearer);
		return buf_failed(&s->authorization)
			       ? buf_error(&s->authorization, "the token", err)
			       : 0;
	}
	if (!op->keys.access_key_id)
		return 0;
	date_format_basic(now, s->date);
	sign_add(s, google ? "x-goog-date" : "x-amz-date", s->date);
	sign_add(s, google ? "x-goog-content-sha256" : "x-amz-content-sha256", op->payload_hash);
	if (op->keys.session_token)
		sign_add(s, google ? "x-goog-security-token" : "x-amz-security-token",
			op->keys.session_token);
	return sign(op, s, now, err);
}

static int op_prepare(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	struct s3_op *op = cookie;
	_cleanup_(signing_release) struct signing s = {
		.authorization = BUF_INIT(LIMIT_HTTP_HEADERS)};
	int r;

	/* A request with many retries may outlive its first keys; each set of keys gets its own
	 * attempts. */
	if (attempt > 1 && credentials_renewed(op->at.client->settings.credentials, &op->keys)) {
		op->refusals = op->refused && ++op->renewals >= RENEWALS_MAX ? REFUSALS_MAX : 0;
		op->refused = false;
	}
	op->error = S3_OK;
	if (op->n_headers + 5 > ARRAY_SIZE(s.headers))
		return error_set(err, PENSTOCK_E_LIMIT, "too many metadata headers");
	sign_add(&s, "host", buf_str(&op->host));
	r = add_own_headers(op, &s, err);
	if (r == 0)
		r = authorize(op, &s, err);
	strlist_release(&request->headers);
	if (r == 0 &&
		(add_lines(&request->headers, s.headers, s.n) < 0 ||
			/* Without this header Google decompresses objects that were stored
			 * compressed, and no checksum matches. */
			(op->at.client->google &&
				strlist_add(&request->headers, "Accept-Encoding: gzip") < 0) ||
			(s.authorization.len && strlist_addf(&request->headers, "Authorization: %s",
							buf_str(&s.authorization)) < 0)))
		r = error_memory(err);
	return r;
}

/* ---- the meaning of a failure ---- */

static const char *hint_of(const struct s3_op *op, enum s3_error e)
{
	switch (e) {
	case S3_E_ACCESS_DENIED:
		if (credentials_anonymous(op->at.client->settings.credentials))
			return "the store does not allow requests without credentials";
		/* A locked version and a missing permission have the same error code. */
		return op->at.version && strcmp(op->request.method, "DELETE") == 0
			       ? "the version is locked, or the credentials lack the permission"
			       : "the credentials lack the permission";
	case S3_E_INVALID_ACCESS_KEY_ID:
		return "check the access key id and the endpoint";
	case S3_E_SIGNATURE_DOES_NOT_MATCH:
		return "check the secret access key, and that no proxy rewrites requests";
	case S3_E_REQUEST_TIME_TOO_SKEWED:
		return "set this machine's clock";
	case S3_E_EXPIRED_TOKEN:
	case S3_E_INVALID_TOKEN:
		return "get fresh credentials";
	case S3_E_NO_SUCH_BUCKET:
		return "create the bucket, or check its name and the endpoint";
	case S3_E_AUTHORIZATION_HEADER_MALFORMED:
	case S3_E_PERMANENT_REDIRECT:
		return "set the bucket's region";
	case S3_E_QUOTA_EXCEEDED:
	case S3_E_STORAGE_FULL:
		return "free space in the store, or raise its quota";
	default:
		return NULL;
	}
}

/* Returns true if the error means that the store refuses every request to the bucket. */
static bool repeats(enum s3_error e)
{
	static const enum s3_error all[] = {S3_E_NO_SUCH_BUCKET, S3_E_INVALID_BUCKET_NAME,
		S3_E_INVALID_ACCESS_KEY_ID, S3_E_SIGNATURE_DOES_NOT_MATCH, S3_E_EXPIRED_TOKEN,
		S3_E_INVALID_TOKEN, S3_E_AUTHORIZATION_HEADER_MALFORMED, S3_E_PERMANENT_REDIRECT,
		S3_E_REQUEST_TIME_TOO_SKEWED};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (e == all[i])
			return true;
	}
	return false;
}

/* Adapts to the store's clock, once per request. Returns true if the request should be retried. */
static bool adjust_clock(struct s3_op *op, const struct http_reply *reply)
{
	const char *date = http_reply_header(reply, "Date");
	int64_t theirs;
	int64_t ours = clock_wall_ns() / NS_PER_S;

	if (op->skew_adjusted || !date || !date_parse_http(date, &theirs))
		return false;
	op->skew_adjusted = true;
	if (llabs(theirs - ours - atomic_load(&op->at.client->skew_s)) < 60)
		return false;
	log_warn("the clock of '%s' differs by %lld s; signing requests with its time",
		op->at.client->authority, (long long)(theirs - ours));
	atomic_store(&op->at.client->skew_s, theirs - ours);
	return true;
}

/* Decides by the status of a reply without a document, such as the reply to a HEAD. */
static enum http_verdict judge_status(
	struct s3_op *op, const struct http_reply *reply, struct penstock_error *err)
{
	const char *region = http_reply_header(reply, "x-amz-bucket-region");
	const char *type = http_reply_header(reply, "Content-Type");
	bool page = type && strncasecmp(type, "text/html", 9) == 0;

	op->error = s3_error_of_status(reply->status);
	if (reply->status == 301 || reply->status == 307)
		error_set(err, PENSTOCK_E_INVALID,
			"the bucket is in region %s; set that region or its endpoint",
			region ? region : "(unknown)");
	else if (reply->status == 404 && page && strcmp(op->request.method, "HEAD") != 0)
		error_set(err, PENSTOCK_E_PROTOCOL,
			"'%s' is not an object store: it replied with a web page; check the "
			"endpoint",
			op->at.client->authority);
	else if (reply->status == 404)
		error_set(err, PENSTOCK_E_NOT_FOUND,
			op->at.version ? "no such version"
			: op->at.key   ? "no such object"
				       : "no such bucket");
	else if (reply->status == 405 && op->at.version)
		error_set(err, PENSTOCK_E_NOT_FOUND,
			"the version marks a deletion, and has no contents");
	else if (reply->status == 401 || reply->status == 403)
		error_set(err, PENSTOCK_E_PERMISSION,
			"refused (%d); check the credentials and their permissions", reply->status);
	else if (reply->status == 412)
		error_set(err, PENSTOCK_E_PRECONDITION, "the object is not the expected one");
	else
		return HTTP_VERDICT_DEFAULT;
	/* The reply to a HEAD gives no reason for the refusal, which may be the clock. */
	return reply->status == 403 && adjust_clock(op, reply) ? HTTP_VERDICT_RETRY
							       : HTTP_VERDICT_FAIL;
}

static enum http_verdict judge_document(struct s3_op *op, const struct s3_reply *document,
	const struct http_reply *reply, struct penstock_error *err)
{
	const struct s3_error_info *info;
	const char *message = document->message ? document->message : "";
	size_t length = strlen(message);
	const char *hint;
	bool retryable;

	/* Some stores end the message with a full stop. */
	while (length && strchr(". \n", message[length - 1]))
		length--;
	op->error = s3_error_find(document->code ? document->code : "");
	info = s3_error_info(op->error ? op->error : s3_error_of_status(reply->status));
	hint = hint_of(op, op->error);
	error_set(err,
		op->error	       ? info->means
		: reply->status >= 300 ? s3_code_of_status(reply->status)
				       : PENSTOCK_E_UNAVAILABLE,
		"%s%s%.*s%s%s", document->code ? document->code : "error", length ? ": " : "",
		(int)length, message, hint ? "; " : "", hint ? hint : "");
	err->http_status = reply->status;
	err->repeats = repeats(op->error);
	if (document->region && (op->error == S3_E_AUTHORIZATION_HEADER_MALFORMED ||
					op->error == S3_E_PERMANENT_REDIRECT))
		error_suffix(err, " (%s)", document->region);
	if (op->error == S3_E_REQUEST_TIME_TOO_SKEWED && adjust_clock(op, reply))
		return HTTP_VERDICT_RETRY;
	retryable = op->error ? info->retryable : s3_status_is_retryable(reply->status);
	return retryable || reply->status < 300 ? HTTP_VERDICT_RETRY : HTTP_VERDICT_FAIL;
}

int s3_op_check_etag(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	const struct s3_op *op = cookie;
	const char *etag = http_reply_header(reply, "ETag");

	if (etag && *etag)
		return 0;
	return error_set(err, PENSTOCK_E_PROTOCOL,
		"reply without ETag: a proxy or a login page in front of %s may have answered "
		"in place of the store",
		op->at.client->authority);
}

int s3_op_check_same(struct s3_op *op, const struct http_reply *reply, const char *etag,
	struct penstock_error *err)
{
	char there[OBJECT_ETAG_SIZE];
	int r = s3_op_check_etag(op, reply, err);

	object_etag_copy(there, http_reply_header(reply, "ETag"));
	if (r < 0 || !*etag || strcmp(there, etag) == 0)
		return r;
	return error_set(err, PENSTOCK_E_CHANGED, "the object was replaced meanwhile");
}

/* Returns true if the reply has a header that stores send, and login pages normally lack. */
static bool has_store_header(const struct http_reply *reply)
{
	for (size_t i = 0; i < reply->headers.n; i++) {
		if (strncasecmp(reply->headers.items[i], "x-amz", 5) == 0 ||
			strncasecmp(reply->headers.items[i], "x-goog", 6) == 0)
			return true;
	}
	return http_reply_header(reply, "ETag") != NULL;
}

/* Returns true if a web page came in place of the store's reply. An object may be a web page, and
 * some stores send their XML as text/html, but with headers of their own. */
static bool is_web_page(const struct s3_op *op, const struct http_reply *reply)
{
	const char *type = http_reply_header(reply, "Content-Type");
	bool reads = strcmp(op->request.method, "GET") == 0 ||
		     strcmp(op->request.method, "HEAD") == 0;

	return type && strncasecmp(type, "text/html", 9) == 0 && !(op->at.key && reads) &&
	       reply->content_length != 0 && !has_store_header(reply);
}

/* Learns if the store is penstock, which accepts trailers: files are then read only once. */
static void learn_store(struct object_client *client, const struct http_reply *reply)
{
	const char *server = atomic_load(&client->own_kind) || client->google
				     ? NULL
				     : http_reply_header(reply, "Server");
	int header = GUARD_HEADER;

	if (!server || !str_starts(server, "penstock/"))
		return;
	atomic_store(&client->own_kind, true);
	atomic_compare_exchange_strong(&client->guard, &header, GUARD_TRAILER);
}

static enum http_verdict classify(
	struct s3_op *op, const struct http_reply *reply, struct penstock_error *err)
{
	_cleanup_(s3_reply_release) struct s3_reply document = {0};
	bool good = reply->status >= 200 && reply->status < 300;
	const struct buf *body = good ? &op->document : &reply->error_body;

	learn_store(op->at.client, reply);
	if (good && is_web_page(op, reply)) {
		error_set(err, PENSTOCK_E_PROTOCOL,
			"the reply is a web page: a proxy or a login page in front of %s may "
			"have answered in place of the store",
			op->at.client->authority);
		return HTTP_VERDICT_RETRY;
	}
	if (good && (!op->may_be_error || body->len == 0))
		return HTTP_VERDICT_DEFAULT;
	/* Use the document only if it is an Error. */
	if (body->len == 0 || !memmem(body->data, body->len, "<Error", 6) ||
		s3_reply_parse(body->data, body->len, &document, NULL) < 0 ||
		document.kind != S3_REPLY_ERROR)
		return good ? HTTP_VERDICT_DEFAULT : judge_status(op, reply, err);
	return judge_document(op, &document, reply, err);
}

static enum http_verdict op_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct s3_op *op = cookie;
	enum http_verdict verdict = classify(op, reply, err);
	bool expired = op->error == S3_E_EXPIRED_TOKEN || (op->keys.bearer && reply->status == 401);
	bool pending;

	/* If the credentials expired during a transfer, fetch new ones and retry. Attempts while
	 * new credentials are fetched use the old ones, and do not count. */
	if (verdict != HTTP_VERDICT_FAIL || !expired || op->refusals >= REFUSALS_MAX ||
		!credentials_refused(op->at.client->settings.credentials, &op->keys, &pending))
		return verdict;
	op->refused = true;
	op->refusals += !pending;
	return pending ? HTTP_VERDICT_WAIT : HTTP_VERDICT_RETRY;
}
