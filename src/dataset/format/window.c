#include "dataset/format/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/must.h"
#include "base/str.h"

/* bytes of the first piece, and of a piece that begins more than LIMIT_SCAN_SKIP bytes after the
 * end of the previous piece */
#define PIECE_MIN (4 * KIB)

int shard_error(struct penstock_error *err, enum penstock_code code, const char *shard,
	uint64_t offset, const char *fmt, ...)
{
	_cleanup_free_ char *reason = NULL;
	va_list ap;

	if (!err)
		return -(int)code;
	va_start(ap, fmt);
	reason = str_vprintf(fmt, ap);
	va_end(ap);
	return error_set(err, code, "cannot read '%s' at byte %" PRIu64 ": %s", shard, offset,
		reason ? reason : "out of memory");
}

void window_of_piece(struct window *w, const struct format_piece *piece)
{
	*w = (struct window){.name = piece->shard,
		.data = (unsigned char *)piece->data,
		.offset = piece->offset,
		.len = piece->size};
}

void window_release(struct window *w)
{
	if (w->shard)
		free(w->data);
	*w = (struct window){NULL};
}

const char *window_name(const struct window *w)
{
	return w->shard ? w->shard->name : w->name;
}

uint64_t window_end(const struct window *w)
{
	return w->shard ? w->shard->size : w->offset + w->len;
}

/* Returns the size of the next piece. Pieces grow while the scan skips at most LIMIT_SCAN_SKIP
 * bytes. */
static size_t next_piece(const struct window *w, uint64_t offset)
{
	uint64_t end = w->offset + w->len;

	if (w->piece == 0 || offset < w->offset || (offset > end && offset - end > LIMIT_SCAN_SKIP))
		return PIECE_MIN;
	return w->piece < LIMIT_SCAN_PIECE / 4 ? 4 * w->piece : LIMIT_SCAN_PIECE;
}

static int fill(struct window *w, uint64_t offset, size_t len, struct penstock_error *err)
{
	size_t piece = next_piece(w, offset), want = piece > len ? piece : len;
	int r;

	if (want > w->shard->size - offset)
		want = (size_t)(w->shard->size - offset);
	if (want > w->cap) {
		unsigned char *data = realloc(w->data, want);

		if (!data)
			return error_memory(err);
		w->data = data;
		w->cap = want;
	}
	w->len = 0;
	r = w->shard->read(w->shard->cookie, offset, w->data, want, err);
	if (r < 0)
		return r;
	w->offset = offset;
	w->len = want;
	w->piece = piece;
	return 0;
}

int window_get(struct window *w, uint64_t offset, size_t len, const unsigned char **out,
	struct penstock_error *err)
{
	uint64_t end = window_end(w);
	int r = 0;

	MUST(len <= LIMIT_SCAN_PIECE);
	if (offset > end || len > end - offset)
		return shard_error(err, PENSTOCK_E_CORRUPT, window_name(w), offset,
			"it ends at byte %" PRIu64 ", but %zu bytes are expected", end, len);
	if (w->shard && (offset < w->offset || offset > w->offset + w->len ||
				len > w->offset + w->len - offset))
		r = fill(w, offset, len, err);
	if (r < 0)
		return r;
	*out = w->data + (offset - w->offset);
	return 0;
}

/* ---- fields ---- */

void fields_begin(struct format_fields *out)
{
	out->n = 0;
	out->scratch_used = 0;
}

int fields_add(struct format_fields *out, const struct format_piece *piece,
	const struct format_field *field, struct penstock_error *err)
{
	if (out->n == LIMIT_FORMAT_FIELDS)
		return shard_error(err, PENSTOCK_E_LIMIT, piece->shard, piece->offset,
			"more than %d fields in the sample", LIMIT_FORMAT_FIELDS);
	out->items[out->n++] = *field;
	return 0;
}

int fields_grow(
	struct format_fields *fields, void **scratch, size_t size, struct penstock_error *err)
{
	size_t need = fields->scratch_used;
	void *grown;

	if (err->code != PENSTOCK_E_LIMIT || need <= fields->scratch_size ||
		need > FORMAT_SCRATCH(size))
		return -(int)err->code;
	penstock_error_release(err);
	grown = realloc(*scratch, need);
	if (!grown)
		return error_memory(err);
	*scratch = fields->scratch = grown;
	fields->scratch_size = need;
	return 0;
}

void *fields_scratch(struct format_fields *out, size_t size)
{
	size_t start = (out->scratch_used + 7) & ~(size_t)7;

	out->scratch_used = start + size;
	if (!out->scratch || out->scratch_used > out->scratch_size)
		return NULL;
	return (char *)out->scratch + start;
}

int fields_end(const struct format_fields *out, const struct format_piece *piece,
	struct penstock_error *err)
{
	if (out->scratch_used > out->scratch_size)
		return shard_error(err, PENSTOCK_E_LIMIT, piece->shard, piece->offset,
			"%zu bytes of memory are too few for a sample that needs %zu",
			out->scratch_size, out->scratch_used);
	return 0;
}
