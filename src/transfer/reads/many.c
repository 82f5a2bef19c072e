/* Sends many small reads in one request to penstock's own store (s3/message/read_many.h). */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/message/read_many.h"
#include "s3/uri.h"
#include "transfer/reads/internal.h"

/* A batch is sent as several requests, so that the store reads while this thread receives. */
#define GROUP	    64
#define GROUP_BYTES (1 * MIB)
#define GROUP_MIN   4 /* fewer small reads are sent as GETs */
/* larger reads are sent as GETs: a request costs little compared with their bytes */
#define SMALL (64 * KIB)

/* The reads of one request. */
struct group {
	struct flight flights[GROUP];
	bool takes[GROUP]; /* the reply has the bytes that the read expects */
	size_t n;
	size_t bytes;
	uint8_t table[GROUP * READ_MANY_ENTRY];
	size_t got; /* bytes of `table` received so far */
	size_t next; /* the read whose bytes come next */
	uint64_t left; /* bytes of that read that are missing */
	bool refused, invalid; /* the store refused the request; the reply is invalid */
};

/* Advances to the next read that has bytes in the reply. */
static void advance(struct group *g)
{
	for (; g->next < g->n; g->next++) {
		struct flight *f = &g->flights[g->next];
		struct read_many_result result;

		if (!read_many_decode(g->table + g->next * READ_MANY_ENTRY, &result)) {
			g->invalid = true;
			return;
		}
		g->takes[g->next] = result.status == 200 && result.length == f->read->length;
		g->left = result.length;
		if (g->takes[g->next] && f->read->whole && result.kind != CHECKSUM_NONE &&
			object_response_checksums()) {
			memcpy(f->digest, result.digest, READ_MANY_DIGEST);
			checksum_init(&f->sum, result.kind, NULL); /* cannot fail for a CRC */
		}
		if (g->left)
			return;
	}
}

static void on_body(void *cookie, const void *data, size_t len)
{
	struct group *g = cookie;
	const uint8_t *p = data;
	size_t table = g->n * READ_MANY_ENTRY;

	if (g->got < table) {
		size_t part = len < table - g->got ? len : table - g->got;

		memcpy(g->table + g->got, p, part);
		g->got += part;
		p += part;
		len -= part;
		if (g->got == table)
			advance(g);
	}
	while (len && !g->invalid && g->next < g->n) {
		size_t part = len < g->left ? len : (size_t)g->left;

		if (g->takes[g->next])
			flight_add(&g->flights[g->next], p, part);
		p += part;
		len -= part;
		g->left -= part;
		if (g->left == 0) {
			g->next++;
			advance(g);
		}
	}
	g->invalid |= len > 0;
}

static bool on_head(void *cookie, struct plain_get *get, const char *head, size_t len)
{
	struct group *g = cookie;
	size_t n;
	const char *version = plain_header(head, len, READ_MANY_HEADER, &n);

	g->refused = get->status != 200 || !version || n != strlen(READ_MANY_VERSION) ||
		     memcmp(version, READ_MANY_VERSION, n) != 0;
	return !g->refused;
}

static bool add_read(struct object_reads *reads, struct group *g, struct object_read *read)
{
	const struct read_many_item item = {.key = read->key,
		.offset = read->offset,
		.length = read->length,
		.whole = read->whole,
		.etag = read->etag && *read->etag ? read->etag : NULL};

	if (!read_many_add(&reads->body, &item))
		return false;
	g->flights[g->n++] = (struct flight){.read = read, .client = reads->client};
	g->bytes += read->length;
	return true;
}

/* Collects the next small reads that fit, from `*at` on, and appends their request. */
static int add_group(struct reads_signer *s, struct group *g, struct object_read *items, size_t n,
	size_t *at, struct penstock_error *err)
{
	struct object_reads *reads = s->reads;
	struct buf *out = &reads->heads, *path = &reads->path, *body = &reads->body;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hash[65];
	int r;

	buf_clear(body);
	for (; *at < n && g->n < GROUP && g->bytes < GROUP_BYTES; ++*at) {
		if (items[*at].length <= SMALL)
			add_read(reads, g, &items[*at]);
	}
	if (g->n == 0)
		return 0;
	buf_clear(path);
	buf_printf(path, "%s/%s", reads->client->base_path, reads->bucket);
	if (buf_failed(body) || buf_failed(path))
		return buf_error(buf_failed(body) ? body : path, "a request", err);
	r = checksum_of(CHECKSUM_SHA256, body->data, body->len, digest, err);
	if (r < 0)
		return r;
	str_hex(digest, 32, hash);
	buf_printf(out, "POST %s?" READ_MANY_QUERY " HTTP/1.1\r\nContent-Length: %zu\r\n",
		buf_str(path), body->len);
	r = reads_sign(s,
		(struct sigv4_request){.method = "POST",
			.path = buf_str(path),
			.query = READ_MANY_QUERY,
			.payload_hash = hash},
		false, err);
	buf_add(out, body->data, body->len);
	return r;
}

/* Builds the requests, and sets `*n_groups` to their number. */
static int add_groups(struct reads_signer *s, struct group *groups, struct plain_get *gets,
	struct object_read *items, size_t n, size_t *n_groups, struct penstock_error *err)
{
	struct buf *heads = &s->reads->heads;
	size_t m = 0;
	int r = 0;

	buf_clear(heads);
	for (size_t at = 0; r == 0 && at < n;) {
		struct group *g = &groups[m];
		size_t before = heads->len;

		r = add_group(s, g, items, n, &at, err);
		gets[m] = (struct plain_get){.head_len = heads->len - before,
			.room = g->n * READ_MANY_ENTRY + g->bytes,
			.on_head = on_head,
			.on_body = on_body,
			.cookie = g};
		m += g->n > 0;
	}
	if (r == 0 && buf_failed(heads))
		r = buf_error(heads, "a request", err);
	for (size_t i = 0, at = 0; r == 0 && i < m; at += gets[i++].head_len)
		gets[i].head = heads->data + at;
	*n_groups = m;
	return r;
}

static void end_group(struct object_reads *reads, struct group *g, const struct plain_get *get,
	const struct object_read *items, bool *done)
{
	bool good = get->good && !g->invalid && g->next == g->n;

	/* The server is another store or an older penstock, or a proxy lets only GETs through. */
	if (g->refused || get->status == 400 || get->status == 404 || get->status == 405 ||
		get->status == 501)
		atomic_store(&reads->client->no_read_many, true);
	for (size_t i = 0; i < g->n; i++) {
		struct flight *f = &g->flights[i];

		done[f->read - items] = good && g->takes[i] && flight_is_good(f);
		checksum_release(&f->sum);
	}
}

int reads_many(struct object_reads *reads, struct object_read *items, size_t n, bool *done,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ struct group *groups = NULL;
	_cleanup_free_ struct plain_get *gets = NULL;
	_cleanup_(reads_signer_release) struct reads_signer signer = {0};
	size_t small = 0, m;
	int r;

	for (size_t i = 0; i < n; i++)
		small += items[i].length <= SMALL;
	if (small < GROUP_MIN || reads->singly || !atomic_load(&reads->client->own_kind) ||
		atomic_load(&reads->client->no_read_many))
		return 0;
	/* A full group has GROUP reads or at least GROUP_BYTES, which are 16 or more small
	 * reads. */
	m = small / (GROUP_BYTES / SMALL) + 1;
	groups = calloc(m, sizeof(*groups));
	gets = calloc(m, sizeof(*gets));
	if (!groups || !gets)
		return error_memory(err);
	r = reads_signer_init(&signer, reads, cancel, err);
	if (r == 0)
		r = add_groups(&signer, groups, gets, items, n, &m, err);
	if (r < 0)
		return r;
	plain_run(reads->plain, gets, m, READS_SILENCE_MS, cancel);
	for (size_t i = 0; i < m; i++)
		end_group(reads, &groups[i], &gets[i], items, done);
	return 0;
}
