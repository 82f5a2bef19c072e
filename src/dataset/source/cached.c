/* Reads objects through the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/cache/cache.h"
#include "dataset/source/internal.h"

#define POLL_MS 5 /* interval of checks for blocks that other processes fetch */
/* time for which no read waits for other processes, after a read has waited too long */
#define NO_WAIT_MS (5 * 60 * 1000)

enum progress {
	WAITING,
	STRAIGHT, /* from the store, without the cache */
	DONE,
	FAILED
};

/* A block that this reader has claimed. */
struct claim {
	struct block_file *file; /* open until the block is written */
	uint64_t block;
};

/* The reads of a call. */
struct batch {
	struct source_reader *reader;
	struct source_read *reads;
	size_t n;
	enum progress *progress;
	size_t *at; /* bytes of each read that are in place */
	char *scratch; /* CACHE_BLOCK */
	struct claim claims[LIMIT_DATASET_FETCH];
	size_t n_claims;
	bool busy; /* other processes fetch missing blocks */
	const atomic_int *cancel;
};

static void batch_release(struct batch *b)
{
	for (size_t i = 0; i < b->n_claims; i++)
		block_cache_give_up(b->claims[i].file, b->claims[i].block);
	free(b->progress);
	free(b->at);
	free(b->scratch);
}

/* ---- files of the cache ---- */

/* Returns the identity of a shard on the web. The identity does not depend on the pattern or the
 * index that names the shard. */
static char *web_identity(const struct source *s, size_t shard)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	if (source_web_url(s, source_name(s, shard), &url) < 0)
		return NULL;
	return str_printf("%s\n%s", buf_str(&url), s->text.data + s->shards[shard].etag);
}

/* Returns the identity of a shard in the cache: its place and its ETag. Returns NULL if out of
 * memory. */
static char *identity(const struct source *s, size_t shard)
{
	_cleanup_free_ char *place = NULL;

	if (s->engine)
		return web_identity(s, shard);
	place = source_identity(s);
	if (!place)
		return NULL;
	/* An ETag has no line feed. */
	return str_printf("%s%s\n%s", place, s->single ? "" : source_name(s, shard),
		s->text.data + s->shards[shard].etag);
}

/* Returns the open cache file of a shard, or NULL if the shard cannot be cached or its file cannot
 * be opened. Creates a missing file if `make` is set. */
static struct block_file *file_of(struct source_reader *reader, size_t shard, bool make)
{
	const struct source *s = reader->source;
	_cleanup_free_ char *id = NULL;
	struct block_file *file;

	/* Without an ETag the version cannot be identified. */
	if (s->shards[shard].size == 0 || !s->text.data[s->shards[shard].etag])
		return NULL;
	file = source_file(reader, shard);
	if (file->fd >= 0)
		return file;
	id = identity(s, shard);
	file->size = s->shards[shard].size;
	return id && block_file_open(s->cache, file, id, make) ? file : NULL;
}

/* ---- blocks that are cached ---- */

/* Puts the next bytes of a read into place, up to the first missing block. */
static void deliver(struct batch *b, size_t i)
{
	struct source_read *read = &b->reads[i];
	struct block_file *file = file_of(b->reader, read->shard, false);

	while (file && b->at[i] < read->length) {
		uint64_t offset = read->offset + b->at[i];
		size_t len = CACHE_BLOCK - offset % CACHE_BLOCK;
		const char *bytes;

		if (len > read->length - b->at[i])
			len = read->length - b->at[i];
		bytes = block_cache_get(b->reader->source->cache, file, offset, len, b->scratch);
		if (!bytes)
			return;
		if (read->data)
			memcpy((char *)read->data + b->at[i], bytes, len);
		else
			read_pieces_add(&read->pieces, b->at[i], bytes, len);
		b->at[i] += len;
	}
	if (b->at[i] == read->length)
		b->progress[i] = DONE;
}

/* ---- blocks that are missing ---- */

static bool is_claimed(const struct batch *b, const struct block_file *file, uint64_t block)
{
	for (size_t i = b->n_claims; i > 0; i--) {
		if (b->claims[i - 1].file == file && b->claims[i - 1].block == block)
			return true;
	}
	return false;
}

/* Claims the missing blocks of a read, starting with the first. */
static void claim_blocks(struct batch *b, size_t i)
{
	const struct source_read *read = &b->reads[i];
	struct block_file *file = file_of(b->reader, read->shard, true);
	uint64_t last = (read->offset + read->length - 1) / CACHE_BLOCK;

	if (!file)
		b->progress[i] = STRAIGHT;
	for (uint64_t k = (read->offset + b->at[i]) / CACHE_BLOCK;
		file && k <= last && b->n_claims < LIMIT_DATASET_FETCH; k++) {
		if (is_claimed(b, file, k))
			continue;
		switch (block_cache_claim(b->reader->source->cache, file, k, b->scratch)) {
		case CACHE_CLAIMED:
			b->claims[b->n_claims++] = (struct claim){file, k};
			break;
		case CACHE_BUSY:
			b->busy = true;
			break;
		case CACHE_FULL:
			b->progress[i] = STRAIGHT;
			return;
		case CACHE_PRESENT:
			break;
		}
	}
}

/* Claims blocks of the waiting reads, in at most as many shards as a reader can have open files. */
static void claim_all(struct batch *b)
{
	size_t files = 0, shard = SIZE_MAX;

	b->busy = false;
	for (size_t i = 0; i < b->n && b->n_claims < LIMIT_DATASET_FETCH; i++) {
		if (b->progress[i] != WAITING)
			continue;
		if (b->reads[i].shard != shard && files++ == LIMIT_DATASET_FILES)
			return;
		shard = b->reads[i].shard;
		claim_blocks(b, i);
	}
}

/* Makes one read of adjacent claimed blocks. Returns the number of blocks. */
static size_t join(const struct claim *claims, size_t n, char *data, struct source_read *out)
{
	const struct block_file *file = claims[0].file;
	size_t k = 0;

	*out = (struct source_read){
		.shard = file->shard, .offset = claims[0].block * CACHE_BLOCK, .data = data};
	do {
		out->length += block_size(file->size, claims[k].block);
		k++;
	} while (k < n && claims[k].file == file && claims[k].block == claims[k - 1].block + 1 &&
		 out->length < LIMIT_DATASET_JOIN);
	return k;
}

/* Passes the error of a range to the reads that need bytes of the range. */
static void fail(struct batch *b, struct source_read *range)
{
	for (size_t i = 0; i < b->n; i++) {
		struct source_read *read = &b->reads[i];

		if (b->progress[i] == WAITING && read->shard == range->shard &&
			read->offset < range->offset + range->length &&
			range->offset < read->offset + read->length) {
			error_set(&read->error, range->error.code, "%s", range->error.message);
			b->progress[i] = FAILED;
		}
	}
	penstock_error_release(&range->error);
}

/* Fetches the claimed blocks and writes them to the cache. Returns the number of ranges that
 * failed, or an error of the call. */
static int fetch(struct batch *b, struct penstock_error *err)
{
	_cleanup_free_ struct source_read *ranges = calloc(b->n_claims, sizeof(*ranges));
	_cleanup_free_ char *data = malloc(b->n_claims * CACHE_BLOCK);
	size_t n = 0, used = 0, k = 0;
	const char *block = data;
	int r;

	if (!ranges || !data)
		return error_memory(err);
	for (size_t i = 0; i < b->n_claims; n++) {
		i += join(b->claims + i, b->n_claims - i, data + used, &ranges[n]);
		used += ranges[n].length;
	}
	r = source_read_objects(b->reader, ranges, n, b->cancel, err);
	for (size_t i = 0; i < b->n_claims; i++) {
		const struct claim *c = &b->claims[i];

		if (block == (const char *)ranges[k].data + ranges[k].length)
			k++;
		if (r < 0 || ranges[k].error.code)
			block_cache_give_up(c->file, c->block);
		else
			block_cache_put(b->reader->source->cache, c->file, c->block, block);
		block += block_size(c->file->size, c->block);
	}
	for (size_t i = 0; i < n; i++) {
		if (ranges[i].error.code)
			fail(b, &ranges[i]);
	}
	b->n_claims = 0;
	return r;
}

/* ---- without the cache ---- */

/* Reads the remaining bytes of the STRAIGHT reads. */
static int read_straight(struct batch *b, struct penstock_error *err)
{
	_cleanup_free_ struct source_read *rest = calloc(b->n, sizeof(*rest));
	size_t n = 0;
	int r;

	if (!rest)
		return error_memory(err);
	for (size_t i = 0; i < b->n; i++) {
		const struct source_read *read = &b->reads[i];
		/* A read into pieces starts from its first byte again. */
		size_t at = read->data ? b->at[i] : 0;

		if (b->progress[i] != STRAIGHT)
			continue;
		rest[n] = *read;
		rest[n].data = read->data ? (char *)read->data + at : NULL;
		rest[n].offset += at;
		rest[n++].length -= at;
	}
	if (n == 0)
		return 0;
	r = source_read_objects(b->reader, rest, n, b->cancel, err);
	n = 0;
	for (size_t i = 0; i < b->n; i++) {
		if (b->progress[i] == STRAIGHT)
			b->reads[i].error = rest[n++].error;
	}
	return r;
}

/* ---- the reads of a call ---- */

/* Fails the reads that were not done when another read failed or the call was cancelled. Returns
 * the number of all failed reads. */
static int fail_rest(struct batch *b)
{
	int failed = 0;

	for (size_t i = 0; i < b->n; i++) {
		if (b->progress[i] == WAITING || b->progress[i] == STRAIGHT)
			error_set(&b->reads[i].error, PENSTOCK_E_CANCELLED, "another read failed");
		failed += b->reads[i].error.code != PENSTOCK_OK;
	}
	return failed;
}

/* Returns true if a read must stop waiting for another process: LIMIT_DATASET_WAIT_MS have passed,
 * so that process is probably suspended, or another read has stopped waiting during the last
 * NO_WAIT_MS. */
static bool is_too_late(struct source *s, int64_t since)
{
	int64_t now = clock_monotonic_ms();

	if (now < atomic_load(&s->no_wait_until_ms))
		return true;
	if (now - since < LIMIT_DATASET_WAIT_MS)
		return false;
	atomic_store(&s->no_wait_until_ms, now + NO_WAIT_MS);
	return true;
}

/* Runs until no read is waiting. Returns 0, a number above 0 if some reads failed or the call was
 * cancelled, or a negative error of the call. */
static int fill(struct batch *b, struct penstock_error *err)
{
	int64_t since = clock_monotonic_ms();
	int r = 0;

	for (;;) {
		bool waits = false;

		for (size_t i = 0; i < b->n; i++) {
			if (b->progress[i] == WAITING)
				deliver(b, i);
			waits |= b->progress[i] == WAITING;
		}
		if (!waits)
			return 0;
		claim_all(b);
		if (b->n_claims) {
			r = fetch(b, err);
			since = clock_monotonic_ms();
		} else if (b->busy && !is_too_late(b->reader->source, since)) {
			clock_sleep_ms(POLL_MS);
		} else if (b->busy) {
			for (size_t i = 0; i < b->n; i++) {
				if (b->progress[i] == WAITING)
					b->progress[i] = STRAIGHT;
			}
		}
		if (r)
			return r;
		if (b->cancel && atomic_load(b->cancel))
			return 1;
	}
}

int source_read_cached(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(batch_release) struct batch b = {
		.reader = reader, .reads = reads, .n = n, .cancel = cancel};
	int r;

	b.progress = calloc(n, sizeof(*b.progress));
	b.at = calloc(n, sizeof(*b.at));
	b.scratch = malloc(CACHE_BLOCK);
	if (!b.progress || !b.at || !b.scratch)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		if (!reads[i].scan)
			continue;
		deliver(&b, i);
		if (b.progress[i] == WAITING)
			b.progress[i] = STRAIGHT;
	}
	r = fill(&b, err);
	if (r > 0)
		return fail_rest(&b);
	return r < 0 ? r : read_straight(&b, err);
}
