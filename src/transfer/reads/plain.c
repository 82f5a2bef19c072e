/* Reads over plain HTTP: only what goes well the first time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/date.h"
#include "s3/range.h"
#include "s3/uri.h"
#include "transfer/reads/internal.h"

#define SILENCE_MS 2000 /* then the engine asks again, on another connection */
#define PAUSE_MS   5000 /* without a try, after a run of which nothing went well */

/* A read in progress. */
struct flight {
	struct object_read *read;
	uint64_t at; /* bytes that `pieces` got */
	struct checksum sum; /* of a whole object; NONE if the store has none */
	uint8_t digest[CHECKSUM_MAX_SIZE]; /* the store's */
};

struct signer {
	struct object_reads *reads;
	struct credentials keys;
	int64_t now; /* the store's, in seconds since 1970 */
	char date[DATE_BASIC_SIZE];
};

/* Appends the headers that are signed: the host, and all that begin with x-amz-. */
static int add_signed(struct signer *s, const char *path, bool sums, struct penstock_error *err)
{
	const struct credentials *k = &s->keys;
	const struct sigv4_credentials keys = {
		.access_key = k->access_key_id,
		.secret_key = k->secret_access_key,
		.session_token = k->session_token,
	};
	struct sigv4_header headers[5] = {{"host", s->reads->client->authority}};
	struct sigv4_request request = {.method = "GET",
		.path = path,
		.headers = headers,
		.n_headers = 1,
		.payload_hash = SIGV4_EMPTY_SHA256};
	struct buf *out = &s->reads->heads;

	if (sums)
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-checksum-mode", "ENABLED"};
	if (k->access_key_id) {
		headers[request.n_headers++] = (struct sigv4_header){"x-amz-date", s->date};
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-content-sha256", SIGV4_EMPTY_SHA256};
	}
	if (k->session_token)
		headers[request.n_headers++] = (struct sigv4_header){
			"x-amz-security-token", k->session_token};
	for (size_t i = 0; i < request.n_headers; i++)
		buf_printf(out, "%s: %s\r\n", headers[i].name, headers[i].value);
	if (!k->access_key_id)
		return 0;
	buf_add_str(out, "Authorization: ");
	if (sigv4_sign(&s->reads->sigv4, &request,
		    (struct sigv4_identity){&keys, s->reads->client->settings.region, "s3", s->now},
		    out, NULL, err) < 0)
		return -1;
	buf_add_str(out, "\r\n");
	return 0;
}

/* Appends the head of the request. */
static int add_head(struct signer *s, const struct object_read *read, struct penstock_error *err)
{
	const struct object_client *client = s->reads->client;
	struct buf *out = &s->reads->heads, *path = &s->reads->path;

	if (s3_key_problem(read->key, strlen(read->key)))
		return error_set(err, PENSTOCK_E_INVALID, "invalid key '%s': it %s", read->key,
			s3_key_problem(read->key, strlen(read->key)));
	buf_clear(path);
	buf_printf(path, "%s/%s/", client->base_path, s->reads->bucket);
	uri_encode(path, read->key, strlen(read->key), true);
	buf_printf(out, "GET %s HTTP/1.1\r\n", buf_str(path));
	if (!read->whole)
		buf_printf(out, "Range: bytes=%" PRIu64 "-%" PRIu64 "\r\n", read->offset,
			read->offset + read->length - 1);
	if (read->etag && *read->etag)
		buf_printf(out, "If-Match: %s\r\n", read->etag);
	if (add_signed(s, buf_str(path), read->whole && object_response_checksums(), err) < 0)
		return -1;
	buf_add_str(out, "\r\n");
	if (buf_failed(path) || buf_failed(out))
		return buf_error(out, "a request", err);
	return 0;
}

static bool has_value(const char *head, size_t len, const char *name, const char *wanted)
{
	size_t n;
	const char *value = plain_header(head, len, name, &n);

	return value && n == strlen(wanted) && memcmp(value, wanted, n) == 0;
}

static bool on_head(void *cookie, struct plain_get *get, const char *head, size_t len)
{
	struct flight *f = cookie;
	const struct object_read *read = f->read;
	char text[128];
	const char *value;
	size_t n;

	if (get->status != (read->whole ? 200 : 206))
		return false;
	/* A store or a cache may ignore If-Match. */
	if (read->etag && *read->etag && !has_value(head, len, "ETag", read->etag))
		return false;
	if (!read->whole) {
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/", read->offset,
			read->offset + read->length - 1);
		value = plain_header(head, len, "Content-Range", &n);
		return value && n > strlen(text) && memcmp(value, text, strlen(text)) == 0;
	}
	for (int kind = CHECKSUM_NONE + 1; kind < CHECKSUM_MD5; kind++) {
		value = plain_header(head, len, checksum_header((enum checksum_kind)kind), &n);
		if (!value || n >= sizeof(text))
			continue;
		snprintf(text, sizeof(text), "%.*s", (int)n, value);
		return !checksum_parse((enum checksum_kind)kind, text, f->digest) ||
		       checksum_init(&f->sum, (enum checksum_kind)kind, NULL) == 0;
	}
	return true;
}

static void on_body(void *cookie, const void *data, size_t len)
{
	struct flight *f = cookie;

	read_pieces_add(&f->read->pieces, f->at, data, len);
	f->at += len;
	if (f->sum.kind != CHECKSUM_NONE)
		checksum_update(&f->sum, data, len);
}

static bool is_good(struct flight *f, const struct plain_get *get)
{
	uint8_t got[CHECKSUM_MAX_SIZE];

	if (!get->good || get->len != f->read->length)
		return false;
	if (f->sum.kind == CHECKSUM_NONE)
		return true;
	if (get->body)
		checksum_update(&f->sum, get->body, get->len);
	checksum_final(&f->sum, got);
	return memcmp(got, f->digest, checksum_size(f->sum.kind)) == 0;
}

static int make_heads(struct object_reads *reads, struct object_read *items, struct plain_get *gets,
	size_t n, const atomic_int *cancel, struct penstock_error *err)
{
	struct signer s = {.reads = reads,
		.now = clock_wall_ns() / NS_PER_S + atomic_load(&reads->client->skew_s)};
	struct credentials_provider *provider = reads->client->settings.credentials;
	int r = 0;

	if (!credentials_anonymous(provider))
		r = credentials_get_within(provider,
			&(struct credentials_patience){.cancel = cancel,
				.cancel_all = http_engine_cancel(reads->client->engine)},
			&s.keys, err);
	date_format_basic(s.now, s.date);
	buf_clear(&reads->heads);
	for (size_t i = 0; r == 0 && i < n; i++) {
		size_t before = reads->heads.len;

		r = add_head(&s, &items[i], err);
		gets[i].head_len = reads->heads.len - before;
	}
	credentials_release(&s.keys);
	for (size_t i = 0, at = 0; r == 0 && i < n; at += gets[i++].head_len)
		gets[i].head = reads->heads.data + at;
	return r < 0 ? -(int)err->code : 0;
}

int reads_plain(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ struct plain_get *gets = NULL;
	_cleanup_free_ struct flight *flights = NULL;
	size_t good = 0;
	int r;

	if (!reads->plain || n == 0 || clock_monotonic_ms() < reads->plain_from_ms ||
		(cancel && atomic_load(cancel)))
		return 0;
	gets = calloc(n, sizeof(*gets));
	flights = calloc(n, sizeof(*flights));
	if (!gets || !flights)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		flights[i].read = &items[i];
		gets[i] = (struct plain_get){.body = items[i].data,
			.room = items[i].length,
			.on_head = on_head,
			.on_body = on_body,
			.cookie = &flights[i]};
	}
	r = make_heads(reads, items, gets, n, cancel, err);
	if (r < 0)
		return r;
	plain_run(reads->plain, gets, n, SILENCE_MS, cancel);
	for (size_t i = 0; i < n; i++) {
		done[i] = is_good(&flights[i], &gets[i]);
		checksum_release(&flights[i].sum);
		good += done[i];
	}
	if (!good)
		reads->plain_from_ms = clock_monotonic_ms() + PAUSE_MS;
	return 0;
}
