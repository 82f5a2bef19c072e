#include "base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void buf_init(struct buf *b, size_t limit)
{
	*b = (struct buf)BUF_INIT(limit);
}

void buf_release(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	*b = (struct buf)BUF_INIT(b->limit);
}

void buf_wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_release(b);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failure = 0;
	if (b->data)
		b->data[0] = '\0';
}

static int buf_fail(struct buf *b, enum buf_failure failure)
{
	b->failure = failure;
	return -1;
}

char *buf_reserve(struct buf *b, size_t len)
{
	size_t need;

	if (b->failure)
		return NULL;
	if (len > b->limit - b->len) {
		buf_fail(b, BUF_OVER_LIMIT);
		return NULL;
	}
	need = b->len + len + 1;
	if (need > b->cap) {
		size_t cap = b->cap ? b->cap : 64;
		char *data;

		while (cap < need)
			cap += cap / 2 + 1;
		if (cap > b->limit + 1)
			cap = b->limit + 1;
		data = realloc(b->data, cap);
		if (!data) {
			buf_fail(b, BUF_NO_MEMORY);
			return NULL;
		}
		b->data = data;
		b->cap = cap;
		data[b->len] = '\0';
	}
	return b->data + b->len;
}

void buf_grown(struct buf *b, size_t len)
{
	assert(b->len + len < b->cap);
	b->len += len;
	b->data[b->len] = '\0';
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	char *room = buf_reserve(b, len);

	if (!room)
		return -1;
	if (len)
		memcpy(room, data, len);
	buf_grown(b, len);
	return 0;
}

int buf_add_str(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_add_char(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_add_quoted(struct buf *b, const char *s)
{
	buf_add_char(b, '\'');
	for (const char *end; (end = strchr(s, '\'')); s = end + 1) {
		buf_add(b, s, (size_t)(end - s));
		buf_add_str(b, "'\\''");
	}
	buf_add_str(b, s);
	return buf_add_char(b, '\'');
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	char *room;
	int len;

	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (len < 0)
		return buf_fail(b, BUF_NO_MEMORY);
	room = buf_reserve(b, (size_t)len);
	if (!room)
		return -1;
	vsnprintf(room, (size_t)len + 1, fmt, ap);
	buf_grown(b, (size_t)len);
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t len)
{
	assert(len <= b->len);
	if (!len)
		return;
	memmove(b->data, b->data + len, b->len - len + 1);
	b->len -= len;
}

void buf_truncate(struct buf *b, size_t len)
{
	assert(len <= b->len);
	b->len = len;
	if (b->data)
		b->data[len] = '\0';
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
	char *data;

	if (b->failure || (!b->data && buf_add(b, "", 0) < 0)) {
		buf_release(b);
		return NULL;
	}
	data = b->data;
	*b = (struct buf)BUF_INIT(b->limit);
	return data;
}

int buf_error(const struct buf *b, const char *what, struct penstock_error *err)
{
	if (b->failure == BUF_OVER_LIMIT)
		return error_set(err, PENSTOCK_E_LIMIT, "%s is longer than the limit of %zu bytes",
			what, b->limit);
	return error_memory(err);
}
