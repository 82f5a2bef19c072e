#include "archive/decode.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <archive.h>
#include <archive_entry.h>
#include <isa-l/igzip_lib.h>

#include <penstock/error.h>

#include "archive/ring.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"

int decode_check_cancel(const atomic_int *cancel, struct penstock_error *err)
{
	if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
		return error_set(err, PENSTOCK_E_CANCELLED, "unpacking was cancelled");
	return 0;
}

static int refused(struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CANCELLED, "unpacking has ended");
}

/* ---- gzip ---- */

#define GZIP_NAME  0x08
#define GZIP_EXTRA 0x04

char *decode_gzip_name(const void *data, size_t len)
{
	const unsigned char *p = data;
	size_t at = 10;
	const void *end;

	if (len < at || !(p[3] & GZIP_NAME))
		return NULL;
	if (p[3] & GZIP_EXTRA) {
		if (len < at + 2)
			return NULL;
		at += 2 + ((size_t)p[at] | (size_t)p[at + 1] << 8);
	}
	if (at >= len)
		return NULL;
	end = memchr(p + at, 0, len - at);
	return end ? strdup((const char *)p + at) : NULL;
}

struct gzip {
	struct ring *in, *out;
	struct inflate_state *state;
	uint64_t consumed; /* bytes of `in` before the current span */
	size_t span; /* length of the current span */
	bool ended; /* there are no more spans */
};

static uint64_t gzip_offset(const struct gzip *z)
{
	return z->consumed + z->span - z->state->avail_in;
}

/* Gets the next span once the current one is used up. */
static int gzip_refill(struct gzip *z, struct penstock_error *err)
{
	const char *p;
	ssize_t n;

	if (z->state->avail_in > 0 || z->ended)
		return 0;
	if (z->span > 0)
		ring_read(z->in, z->span);
	z->consumed += z->span;
	z->span = 0;
	n = ring_read_span(z->in, &p);
	if (n < 0)
		return refused(err);
	z->ended = n == 0;
	z->span = (size_t)n;
	z->state->next_in = (uint8_t *)p;
	z->state->avail_in = (uint32_t)n;
	return 0;
}

/* Decodes one gzip member, and verifies its checksum. */
static int gzip_member(struct gzip *z, const atomic_int *cancel, struct penstock_error *err)
{
	struct inflate_state *s = z->state;

	isal_inflate_reset(s);
	s->crc_flag = ISAL_GZIP;
	while (s->block_state != ISAL_BLOCK_FINISH) {
		char *p;
		size_t room;
		int r = gzip_refill(z, err);
		unsigned long long at;

		if (r == 0)
			r = decode_check_cancel(cancel, err);
		if (r < 0)
			return r;
		room = ring_write_span(z->out, &p);
		if (room == 0)
			return refused(err);
		s->next_out = (uint8_t *)p;
		s->avail_out = (uint32_t)room;
		r = isal_inflate(s);
		if (s->avail_out < room)
			ring_written(z->out, room - s->avail_out);
		if (r == ISAL_END_INPUT || r >= 0) {
			if (z->ended && s->avail_in == 0 && s->avail_out == room &&
				s->block_state != ISAL_BLOCK_FINISH)
				return error_set(err, PENSTOCK_E_CORRUPT,
					"the gzip data is truncated after %llu bytes",
					(unsigned long long)gzip_offset(z));
			continue;
		}
		at = gzip_offset(z);
		if (r == ISAL_INCORRECT_CHECKSUM)
			return error_set(err, PENSTOCK_E_CORRUPT,
				"the gzip data does not match its checksum at byte %llu", at);
		return error_set(
			err, PENSTOCK_E_CORRUPT, "the gzip data is damaged near byte %llu", at);
	}
	return 0;
}

/* Sets `*next` to true if another member follows. Padding and other bytes after the last member are
 * ignored. */
static int gzip_has_next(struct gzip *z, bool *next, struct penstock_error *err)
{
	bool odd = false;
	int r;

	*next = false;
	for (;;) {
		r = gzip_refill(z, err);
		if (r < 0 || z->ended)
			break;
		if (!odd && z->state->next_in[0] == 0x1F) {
			*next = true;
			return 0;
		}
		/* Zeros are padding; other bytes end the gzip data. */
		if (z->state->next_in[0] != 0)
			odd = true;
		z->state->next_in++;
		z->state->avail_in--;
	}
	if (odd)
		log_warn("ignoring unknown bytes after the end of the gzip data");
	return r;
}

static int decode_gzip(
	struct ring *in, struct ring *out, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ struct inflate_state *state = malloc(sizeof(*state));
	struct gzip z = {.in = in, .out = out, .state = state};
	bool next = true;

	if (!state)
		return error_memory(err);
	isal_inflate_init(state);
	state->avail_in = 0;
	while (next) {
		int r = gzip_member(&z, cancel, err);

		if (r == 0)
			r = gzip_has_next(&z, &next, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- other formats, through libarchive ---- */

static la_ssize_t read_source(struct archive *a, void *cookie, const void **data)
{
	const char *p = NULL;
	ssize_t n = ring_next(cookie, &p);

	if (n < 0)
		archive_set_error(a, EIO, "the source failed");
	*data = p;
	return n;
}

static void free_reader(struct archive **a)
{
	archive_read_free(*a);
}

static int (*const filters[])(struct archive *a) = {
	[ARCHIVE_KIND_BZIP2] = archive_read_support_filter_bzip2,
	[ARCHIVE_KIND_XZ] = archive_read_support_filter_xz,
	[ARCHIVE_KIND_LZMA] = archive_read_support_filter_lzma,
	[ARCHIVE_KIND_LZIP] = archive_read_support_filter_lzip,
	[ARCHIVE_KIND_ZSTD] = archive_read_support_filter_zstd,
	[ARCHIVE_KIND_LZ4] = archive_read_support_filter_lz4,
	[ARCHIVE_KIND_COMPRESS] = archive_read_support_filter_compress,
};

static int filter_failed(struct archive *a, enum archive_kind kind,
	const struct ring_reader *source, struct penstock_error *err)
{
	const char *text = archive_error_string(a);

	if (source->broken)
		return refused(err);
	return error_set(err, PENSTOCK_E_CORRUPT,
		"the %s data is truncated or damaged near byte %lld: %s", archive_kind_name(kind),
		(long long)archive_filter_bytes(a, -1), text ? text : "no reason given");
}

static int decode_filter(enum archive_kind kind, struct ring *in, struct ring *out,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(free_reader) struct archive *a = archive_read_new();
	struct ring_reader source = {.ring = in};
	struct archive_entry *entry;
	int r;

	if (!a)
		return error_memory(err);
	/* ARCHIVE_WARN means that libarchive would run an external program instead of a library. */
	if (!filters[kind] || filters[kind](a) != ARCHIVE_OK)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot unpack %s data: libarchive was built without this format",
			archive_kind_name(kind));
	archive_read_support_format_raw(a);
	archive_read_support_format_empty(a);
	r = archive_read_open(a, &source, NULL, read_source, NULL);
	if (r == ARCHIVE_OK)
		r = archive_read_next_header(a, &entry);
	if (r == ARCHIVE_EOF)
		return 0;
	if (r != ARCHIVE_OK)
		return filter_failed(a, kind, &source, err);
	for (;;) {
		char *p;
		size_t room = ring_write_span(out, &p);
		la_ssize_t n;

		if (room == 0)
			return refused(err);
		if (decode_check_cancel(cancel, err) < 0)
			return -(int)PENSTOCK_E_CANCELLED;
		n = archive_read_data(a, p, room);
		if (n < 0)
			return filter_failed(a, kind, &source, err);
		if (n == 0)
			return 0;
		ring_written(out, (size_t)n);
	}
}

int decode_stream(enum archive_kind kind, struct ring *in, struct ring *out,
	const atomic_int *cancel, struct penstock_error *err)
{
	int r = kind == ARCHIVE_KIND_GZIP ? decode_gzip(in, out, cancel, err)
					  : decode_filter(kind, in, out, cancel, err);

	if (r < 0)
		ring_break(out);
	else
		ring_close(out);
	return r;
}
