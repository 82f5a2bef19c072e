#include "archive/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* Spans are short so that the other thread starts early. A reader sleeps until WAKE bytes are
 * queued. */
#define SPAN ((size_t)256 * 1024)
#define WAKE ((size_t)RING_PEEK)

int ring_init(struct ring *r, size_t size)
{
	memset(r, 0, sizeof(*r));
	r->data = malloc(size);
	if (!r->data)
		return -1;
	r->size = size;
	pthread_mutex_init(&r->mutex, NULL);
	pthread_cond_init(&r->readable, NULL);
	pthread_cond_init(&r->writable, NULL);
	return 0;
}

void ring_release(struct ring *r)
{
	if (!r->data)
		return;
	pthread_mutex_destroy(&r->mutex);
	pthread_cond_destroy(&r->readable);
	pthread_cond_destroy(&r->writable);
	free(r->data);
	r->data = NULL;
}

static size_t queued(const struct ring *r)
{
	return (size_t)(r->written - r->consumed);
}

/* Returns how many of the `len` bytes from position `at` of the stream are contiguous in memory. */
static size_t piece(const struct ring *r, uint64_t at, size_t len)
{
	size_t left = r->size - (size_t)(at % r->size);

	return len < left ? len : left;
}

size_t ring_write_span(struct ring *r, char **p)
{
	LOCK_SCOPE(&r->mutex);
	size_t room;

	while (queued(r) == r->size && !r->refused && !r->discard)
		pthread_cond_wait(&r->writable, &r->mutex);
	if (r->refused)
		return 0;
	if (r->discard)
		r->consumed = r->written;
	room = piece(r, r->written, r->size - queued(r));
	*p = r->data + r->written % r->size;
	return room < SPAN ? room : SPAN;
}

void ring_written(struct ring *r, size_t len)
{
	LOCK_SCOPE(&r->mutex);
	size_t before = queued(r);

	r->written += len;
	if (r->discard)
		r->consumed = r->written;
	else if (before < WAKE && queued(r) >= WAKE)
		pthread_cond_signal(&r->readable);
}

int ring_write(struct ring *r, const void *data, size_t len)
{
	const char *from = data;

	while (len) {
		char *p;
		size_t n = ring_write_span(r, &p);

		if (n == 0)
			return -1;
		if (n > len)
			n = len;
		memcpy(p, from, n);
		ring_written(r, n);
		from += n;
		len -= n;
	}
	return 0;
}

int ring_try_write(struct ring *r, const void *data, size_t len)
{
	LOCK_SCOPE(&r->mutex);
	size_t before = queued(r);
	size_t first;

	if (r->refused)
		return -1;
	if (r->discard)
		return 1;
	if (r->size - before < len)
		return 0;
	first = piece(r, r->written, len);
	memcpy(r->data + r->written % r->size, data, first);
	memcpy(r->data, (const char *)data + first, len - first);
	r->written += len;
	if (before < WAKE && queued(r) >= WAKE)
		pthread_cond_signal(&r->readable);
	return 1;
}

static void set_flag(struct ring *r, bool *flag, pthread_cond_t *changed)
{
	LOCK_SCOPE(&r->mutex);

	*flag = true;
	pthread_cond_signal(changed);
}

void ring_close(struct ring *r)
{
	set_flag(r, &r->closed, &r->readable);
}

void ring_break(struct ring *r)
{
	set_flag(r, &r->broken, &r->readable);
}

void ring_abort(struct ring *r)
{
	set_flag(r, &r->aborted, &r->readable);
}

ssize_t ring_peek(struct ring *r, const char **p)
{
	LOCK_SCOPE(&r->mutex);

	while (queued(r) < WAKE && !r->closed && !r->broken && !r->aborted)
		pthread_cond_wait(&r->readable, &r->mutex);
	if (r->aborted || (r->broken && queued(r) == 0))
		return -1;
	*p = r->data + r->consumed % r->size;
	return (ssize_t)piece(r, r->consumed, queued(r));
}

ssize_t ring_read_span(struct ring *r, const char **p)
{
	ssize_t n = ring_peek(r, p);

	return n > (ssize_t)SPAN ? (ssize_t)SPAN : n;
}

void ring_read(struct ring *r, size_t len)
{
	LOCK_SCOPE(&r->mutex);

	r->consumed += len;
	pthread_cond_signal(&r->writable);
}

ssize_t ring_next(struct ring_reader *reader, const char **p)
{
	ssize_t n;

	if (reader->span)
		ring_read(reader->ring, reader->span);
	n = ring_read_span(reader->ring, p);
	reader->broken = n < 0;
	reader->span = n > 0 ? (size_t)n : 0;
	return n;
}

void ring_refuse(struct ring *r)
{
	set_flag(r, &r->refused, &r->writable);
}

void ring_discard(struct ring *r)
{
	LOCK_SCOPE(&r->mutex);

	r->discard = true;
	r->consumed = r->written;
	pthread_cond_signal(&r->writable);
}
