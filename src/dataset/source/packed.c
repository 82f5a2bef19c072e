/* Reads shards that are compressed as a whole. */
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/source/internal.h"

#define POLL_MS 50 /* interval at which a waiting thread checks for cancellation */
/* Bytes of a shard that a scan fetches: at least the first block, which has at most 128 KiB in
 * zstd. */
#define HEAD (160 * KIB)

/* ---- unpacking ---- */

/* These functions unpack up to `size` bytes and return their number, or SIZE_MAX with a reason. If
 * `all` is set, the input is a whole shard, whose content must have exactly `size` bytes. */

static size_t unpack_gzip(
	const char *in, size_t len, char *out, size_t size, bool all, const char **reason)
{
	_cleanup_free_ struct inflate_state *state = malloc(sizeof(*state));
	int r;

	*reason = "out of memory";
	if (!state)
		return SIZE_MAX;
	isal_inflate_init(state);
	state->crc_flag = ISAL_GZIP;
	state->next_in = (uint8_t *)in;
	state->avail_in = (uint32_t)len;
	state->next_out = (uint8_t *)out;
	state->avail_out = (uint32_t)size;
	r = isal_inflate(state);
	*reason = r == ISAL_INCORRECT_CHECKSUM ? "its checksum is wrong"
					       : "its bytes are not gzip data";
	if (r < 0)
		return SIZE_MAX;
	*reason = "it continues after its declared size, or its end is missing";
	if (all && (state->block_state != ISAL_BLOCK_FINISH || state->avail_in))
		return SIZE_MAX;
	return size - state->avail_out;
}

static size_t unpack_zstd(
	const char *in, size_t len, char *out, size_t size, bool all, const char **reason)
{
	ZSTD_DCtx *zstd = all ? NULL : ZSTD_createDCtx();
	ZSTD_inBuffer from = {in, len, 0};
	ZSTD_outBuffer to = {out, size, 0};
	size_t r = 1;

	*reason = "out of memory";
	if (!all && !zstd)
		return SIZE_MAX;
	if (all)
		r = to.pos = ZSTD_decompress(out, size, in, len);
	while (!all && to.pos < size && from.pos < len && r && !ZSTD_isError(r))
		r = ZSTD_decompressStream(zstd, &to, &from);
	ZSTD_freeDCtx(zstd);
	*reason = ZSTD_getErrorName(r);
	return ZSTD_isError(r) ? SIZE_MAX : to.pos;
}

static size_t unpack_bytes(const struct packed *p, const char *in, size_t len, char *out,
	size_t size, const char **reason)
{
	bool all = size == p->content.size;

	return p->content.packing == SOURCE_ZSTD ? unpack_zstd(in, len, out, size, all, reason)
						 : unpack_gzip(in, len, out, size, all, reason);
}

static int damaged(const struct source_reader *reader, struct source_read *read, const char *reason)
{
	return error_set(&read->error, PENSTOCK_E_CORRUPT, "cannot unpack '%s': %s",
		source_name(reader->source, read->shard), reason);
}

static int verify(const struct source_reader *reader, struct source_read *read,
	const struct source_sum *sum, const char *data, size_t len)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;

	if (sum->kind == CHECKSUM_NONE)
		return 0;
	r = checksum_of(sum->kind, data, len, digest, &read->error);
	if (r < 0 || memcmp(digest, sum->digest, checksum_size(sum->kind)) == 0)
		return r;
	return damaged(reader, read, "its hash differs from that in its index.json");
}

/* Reads bytes of a shard as they are stored; an error is in `read`. */
static int read_stored(struct source_reader *reader, struct source_read *read, char *data,
	size_t len, const atomic_int *cancel)
{
	struct source_read stored = {.shard = read->shard, .length = len, .data = data};
	int r = source_read_stored(reader, &stored, 1, cancel, &read->error);

	return r <= 0 ? r : error_move(&read->error, &stored.error);
}

/* Fetches the shard and returns its content, or NULL with the error in `read`. */
static char *unpack(struct source_reader *reader, struct source_read *read, const struct packed *p,
	const atomic_int *cancel)
{
	size_t len = (size_t)reader->source->shards[read->shard].size,
	       size = (size_t)p->content.size, n;
	_cleanup_free_ char *stored = malloc(len + 1), *data = malloc(size + 1);
	const char *reason;

	if (!stored || !data) {
		error_memory(&read->error);
		return NULL;
	}
	if (read_stored(reader, read, stored, len, cancel) < 0 ||
		verify(reader, read, &p->content.stored, stored, len) < 0)
		return NULL;
	n = unpack_bytes(p, stored, len, data, size, &reason);
	if (n != size) {
		damaged(reader, read, n == SIZE_MAX ? reason : "it contains too few bytes");
		return NULL;
	}
	if (verify(reader, read, &p->content.unpacked, data, size) < 0)
		return NULL;
	return take_pointer(data);
}

/* Unpacks the first bytes of the shard and reads from their content. Returns 1 if these bytes do
 * not suffice, or if the whole shard should be fetched. */
static int read_head(struct source_reader *reader, struct source_read *read, const struct packed *p,
	const atomic_int *cancel)
{
	size_t len = (size_t)reader->source->shards[read->shard].size, need, n;
	_cleanup_free_ char *stored = NULL, *data = NULL;
	const char *reason;

	/* A small shard is fetched as a whole. */
	if (len <= HEAD || read->offset + read->length >= p->content.size)
		return 1;
	need = (size_t)read->offset + read->length;
	stored = malloc(HEAD);
	data = malloc(need + 1);
	if (!stored || !data)
		return error_memory(&read->error);
	if (read_stored(reader, read, stored, HEAD, cancel) < 0)
		return -1;
	n = unpack_bytes(p, stored, HEAD, data, need, &reason);
	if (n == SIZE_MAX)
		return damaged(reader, read, reason);
	if (n < need)
		return 1;
	memcpy(read->data, data + read->offset, read->length);
	return 0;
}

/* ---- in memory ---- */

/* Under the lock: waits for a change by another thread, at most POLL_MS. Fails if the call was
 * cancelled. */
static int await(struct source *s, const atomic_int *cancel, struct penstock_error *err)
{
	if (cancel && atomic_load(cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	clock_cond_wait_ms(&s->changed, &s->lock, POLL_MS);
	return 0;
}

/* Under the lock: frees the content of the least recently read shard among those that no thread
 * holds. Returns false if there is no such content. */
static bool forget_oldest(struct source *s)
{
	struct packed *oldest = NULL;

	for (size_t i = 0; i < s->n; i++) {
		struct packed *p = s->packed[i];

		if (p && p->data && !p->readers && (!oldest || p->used < oldest->used))
			oldest = p;
	}
	if (!oldest)
		return false;
	free(take_pointer(oldest->data));
	s->unpacked -= oldest->content.size;
	return true;
}

/* Under the lock: reserves `size` bytes of the room. Frees contents that no thread holds, or waits
 * for other threads to end their reads. A thread that holds a content never waits here, so there is
 * no deadlock. */
static int take_room(
	struct source *s, uint64_t size, const atomic_int *cancel, struct penstock_error *err)
{
	int r = 0;

	while (r == 0 && s->unpacked + size > s->room) {
		if (!forget_oldest(s))
			r = await(s, cancel, err);
	}
	if (r == 0)
		s->unpacked += size;
	return r;
}

/* Unpacks the shard unless its content is in memory, and holds the content for the caller. */
static int hold(struct source_reader *reader, struct source_read *read, const atomic_int *cancel)
{
	struct source *s = reader->source;
	struct packed *p = s->packed[read->shard];
	uint64_t stored = s->shards[read->shard].size;
	int r = 0;

	LOCK_SCOPE(&s->lock);
	while (r == 0 && p->loading)
		r = await(s, cancel, &read->error);
	if (r == 0 && !p->data) {
		p->loading = true;
		r = take_room(s, stored + p->content.size, cancel, &read->error);
		if (r == 0) {
			char *data;

			pthread_mutex_unlock(&s->lock);
			data = unpack(reader, read, p, cancel);
			pthread_mutex_lock(&s->lock);
			p->data = data;
			s->unpacked -= stored + (data ? 0 : p->content.size);
			r = data ? 0 : -1;
		}
		p->loading = false;
		pthread_cond_broadcast(&s->changed);
	}
	p->readers += r == 0;
	p->used = ++s->clock;
	return r;
}

/* Reads a range of a compressed shard. Returns 0, or 1 after an error, which is in `read`. */
static int read_packed(
	struct source_reader *reader, struct source_read *read, const atomic_int *cancel)
{
	struct source *s = reader->source;
	struct packed *p = s->packed[read->shard];
	int r = read->scan ? read_head(reader, read, p, cancel) : 1;

	if (r <= 0)
		return r < 0;
	if (hold(reader, read, cancel) < 0)
		return 1;
	if (read->data)
		memcpy(read->data, p->data + read->offset, read->length);
	else
		read_pieces_add(&read->pieces, 0, p->data + read->offset, read->length);
	LOCK_SCOPE(&s->lock);
	p->readers--;
	pthread_cond_broadcast(&s->changed);
	return 0;
}

int source_read(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err)
{
	struct packed *const *packed = reader->source->packed;
	int r, failed = 0;

	if (n == 0)
		return 0;
	if (!packed)
		return source_read_stored(reader, reads, n, cancel, err);
	for (size_t i = 0; i < n; i++) {
		reads[i].error = (struct penstock_error)PENSTOCK_ERROR_INIT;
		/* After a failure the other reads are not tried, because each of them would wait
		 * for an unavailable store. */
		if (failed)
			r = -error_set(
				&reads[i].error, PENSTOCK_E_CANCELLED, "another read failed");
		else if (packed[reads[i].shard])
			r = read_packed(reader, &reads[i], cancel);
		else
			r = source_read_stored(reader, &reads[i], 1, cancel, err);
		if (r < 0)
			return r;
		failed += r > 0;
	}
	return failed;
}
