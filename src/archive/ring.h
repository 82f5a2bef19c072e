/*
 * A bounded queue of bytes between one writing and one reading thread. Both work in the ring's own
 * memory, so that a decoder can write into it and a parser read from it without a copy.
 *
 * The writer ends with ring_close() if the data is complete, with ring_break() if its source failed
 * (the reader gets the failure after the queued bytes), or with ring_abort() (the reader gets the
 * failure at once). A reader that needs no more data calls ring_refuse(), which makes the writer's
 * next call fail, or ring_discard(), which drops everything that is written.
 */
#ifndef ARCHIVE_RING_H
#define ARCHIVE_RING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ring {
	pthread_mutex_t mutex;
	pthread_cond_t readable, writable;
	char *data;
	size_t size;

	/* under the mutex */
	uint64_t written, consumed; /* total bytes; the difference is queued */
	bool closed, broken, aborted, refused, discard;
};

/* Returns -1 if out of memory. */
int ring_init(struct ring *r, size_t size);
void ring_release(struct ring *r);

/* Waits for free space of at least one byte. Returns its length, or 0 if the reader refuses. */
size_t ring_write_span(struct ring *r, char **p);
void ring_written(struct ring *r, size_t len);
/* Copies all `len` bytes; waits for space. Returns -1 if the reader refuses. */
int ring_write(struct ring *r, const void *data, size_t len);
/* Copies all `len` bytes (at most the ring's size) if there is space now. Returns 1 if the bytes
 * were copied or are discarded, 0 if there is no space, -1 if the reader refuses. */
int ring_try_write(struct ring *r, const void *data, size_t len);
void ring_close(struct ring *r);
void ring_break(struct ring *r);
void ring_abort(struct ring *r);

/* Waits for RING_PEEK queued bytes or the end. Returns the length of the next span of contiguous
 * bytes, 0 at the end, or -1 if the writer failed. */
ssize_t ring_read_span(struct ring *r, const char **p);
void ring_read(struct ring *r, size_t len);
/* State of a reader that reads span by span. */
struct ring_reader {
	struct ring *ring;
	size_t span; /* length of the last span */
	bool broken; /* the writer failed */
};
/* Marks the last span as read, and gets the next one as ring_read_span() does. */
ssize_t ring_next(struct ring_reader *reader, const char **p);
/* Waits until RING_PEEK bytes are queued or the writer has ended. Returns the number of contiguous
 * bytes (all queued bytes if nothing was read before), or -1 if the writer failed. */
#define RING_PEEK 65536
ssize_t ring_peek(struct ring *r, const char **p);
void ring_refuse(struct ring *r);
void ring_discard(struct ring *r);

#endif
