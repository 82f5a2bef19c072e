/* Reads over plain HTTP, without retries: the engine repeats failed reads. */
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

#define PAUSE_MS 5000 /* pause after a run in which no read succeeded */

/* Appends the head of the request. */
static int add_head(
	struct reads_signer *s, const struct object_read *read, struct penstock_error *err)
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
	if (buf_failed(path))
		return buf_error(path, "a request", err);
	return reads_sign(s,
		(struct sigv4_request){
			.method = "GET", .path = buf_str(path), .payload_hash = SIGV4_EMPTY_SHA256},
		read->whole && object_response_checksums(), err);
}

static bool has_value(const char *head, size_t len, const char *name, const char *wanted)
{
	size_t n;
	const char *value = plain_header(head, len, name, &n);

	return value && n == strlen(wanted) && memcmp(value, wanted, n) == 0;
}

/* Notes a reply of penstock's own store, which enables reads_many(). */
static void learn_store(struct object_client *client, const char *head, size_t len)
{
	size_t n;
	const char *server = atomic_load(&client->own_kind) ? NULL
							    : plain_header(head, len, "Server", &n);

	if (server && n > 9 && memcmp(server, "penstock/", 9) == 0)
		atomic_store(&client->own_kind, true);
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
	learn_store(f->client, head, len);
	/* A store or a cache may ignore If-Match. */
	if (read->etag && *read->etag && !has_value(head, len, "ETag", read->etag))
		return false;
	if (!read->whole) {
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/", read->offset,
			read->offset + read->length - 1);
		value = plain_header(head, len, "Content-Range", &n);
		return value && n > strlen(text) && memcmp(value, text, strlen(text)) == 0;
	}
	for (int kind = CHECKSUM_NONE + 1; kind < CHECKSUM_KIND_COUNT_; kind++) {
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
	flight_add(cookie, data, len);
}

/* Returns true if a read has succeeded. The bytes of a read into one buffer are already in place,
 * but not in the checksum. */
static bool is_good(struct flight *f, const struct plain_get *get)
{
	if (!get->good)
		return false;
	if (get->body) {
		checksum_update(&f->sum, get->body, get->len);
		f->at = get->len;
	}
	return flight_is_good(f);
}

static int make_heads(struct reads_signer *s, struct flight *flights, struct plain_get *gets,
	size_t n, struct penstock_error *err)
{
	struct buf *heads = &s->reads->heads;
	int r = 0;

	buf_clear(heads);
	for (size_t i = 0; r == 0 && i < n; i++) {
		size_t before = heads->len;

		r = add_head(s, flights[i].read, err);
		gets[i].head_len = heads->len - before;
	}
	for (size_t i = 0, at = 0; r == 0 && i < n; at += gets[i++].head_len)
		gets[i].head = heads->data + at;
	return r;
}

int reads_plain(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ struct plain_get *gets = calloc(n, sizeof(*gets));
	_cleanup_free_ struct flight *flights = calloc(n, sizeof(*flights));
	_cleanup_(reads_signer_release) struct reads_signer signer = {0};
	size_t m = 0, good = 0;
	int r;

	if (!gets || !flights)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		if (done[i])
			continue;
		flights[m] = (struct flight){.read = &items[i], .client = reads->client};
		gets[m] = (struct plain_get){.body = items[i].data,
			.room = items[i].length,
			.on_head = on_head,
			.on_body = on_body,
			.cookie = &flights[m]};
		m++;
	}
	if (m == 0)
		return 0;
	r = reads_signer_init(&signer, reads, cancel, err);
	if (r == 0)
		r = make_heads(&signer, flights, gets, m, err);
	if (r < 0)
		return r;
	plain_run(reads->plain, gets, m, READS_SILENCE_MS, cancel);
	for (size_t i = 0; i < m; i++) {
		bool is = is_good(&flights[i], &gets[i]);

		done[flights[i].read - items] = is;
		good += is;
		checksum_release(&flights[i].sum);
	}
	if (!good)
		reads->plain_from_ms = clock_monotonic_ms() + PAUSE_MS;
	return 0;
}
