/*
 * Writes the received bytes of a download on a thread of its own, so that the engine's thread can
 * continue to receive: on a fast network, writing and checksums take as long as receiving.
 *
 *	writer = get_writer_start(fn, LIMIT_GET_LINGER_MS);	// if there is a second processor
 *	data = get_writer_room(writer);	// LIMIT_GET_GATHER bytes
 *	get_writer_push(writer, &slot->line, at, data, len);	// waits while the queue is full
 *	get_writer_drain(writer, &slot->line);	// NULL: waits for all lines
 *	failed = get_writer_stop(writer);
 *
 * get_writer_push() belongs to the engine's thread. `fn` is called for the pieces of all lines in
 * the order of the pushes, and no more after its first failure.
 */
#ifndef TRANSFER_GET_WRITER_H
#define TRANSFER_GET_WRITER_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

struct get_writer;

/* The pieces of one range, in order. */
struct get_line {
	void *cookie;
	atomic_uint pending; /* pieces not written yet; 0 initially */
};

/* Writes a piece at its offset; returns 0 or an errno. */
typedef int get_writer_fn(void *cookie, uint64_t at, const void *data, size_t len);

/* Starts the thread. A piece that no caller waits for is written when several are queued, and at
 * the latest after about `linger_ms`. Returns NULL if there is only one processor or the thread
 * cannot be started; then the caller writes. */
struct get_writer *get_writer_start(get_writer_fn *fn, int64_t linger_ms);
/* Returns memory for a piece, reused if possible; pass it to get_writer_push() or free(). NULL if
 * out of memory. */
void *get_writer_room(struct get_writer *writer);
/* Takes ownership of `data`, even on failure. Returns 0, or the errno of an earlier write. */
int get_writer_push(
	struct get_writer *writer, struct get_line *line, uint64_t at, void *data, size_t len);
/* Waits until all pieces of the line are written; NULL for all lines. Returns 0 or the errno of the
 * first failure of any line. */
int get_writer_drain(struct get_writer *writer, const struct get_line *line);
/* Writes the queue and stops. `writer` may be NULL; returns 0 then. */
int get_writer_stop(struct get_writer *writer);

#endif
