/*
 * A bounded queue of bytes between one writing and one reading thread. Both work in the ring's own
 * memory, so that a decoder can write into it and a parser read from it without a copy.
 *
 * The writer ends with ring_close() (whole), ring_break() (its source failed: the reader sees that
 * behind what is queued) or ring_abort() (the reader sees that at once). The reader that wants no
 * more calls ring_refuse(): the writer's next call then fails; or ring_discard(): everything that
 * is written vanishes.
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
	uint64_t written, consumed; /* totals; their difference is what is queued */
	bool closed, broken, aborted, refused, discard;
};

/* -1: out of memory. */
int ring_init(struct ring *r, size_t size);
void ring_release(struct ring *r);

/* Room for at least one byte, waiting for it; its length. 0: the reader refuses. */
size_t ring_write_span(struct ring *r, char **p);
void ring_written(struct ring *r, size_t len);
/* Copies all of `len`. -1: the reader refuses. */
int ring_write(struct ring *r, const void *data, size_t len);
/* Copies all of `len` (at most the ring's size) if there is room for it now: 1. 0: there is none. -1: the reader refuses. */
int ring_try_write(struct ring *r, const void *data, size_t len);
void ring_close(struct ring *r);
void ring_break(struct ring *r);
void ring_abort(struct ring *r);

/* Queued bytes, waiting for RING_PEEK or the end; their length. 0: the end. -1: broken off. */
ssize_t ring_read_span(struct ring *r, const char **p);
void ring_read(struct ring *r, size_t len);
/*
 * Waits until RING_PEEK bytes are there or the writer ended; shows what lies in one piece: all of
 * it, where nothing was read yet. -1: broken off.
 */
#define RING_PEEK 65536
ssize_t ring_peek(struct ring *r, const char **p);
void ring_refuse(struct ring *r);
void ring_discard(struct ring *r);

#endif
