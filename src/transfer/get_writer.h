/*
 * Writes what a download receives on a thread of its own, so that the engine's thread can go on receiving: on a fast way
 * writing to the file and the checksums take as long as the network does.
 *
 *	writer = get_writer_start(fn, LIMIT_GET_LINGER_MS);	where there is a second processor
 *	data = get_writer_room(writer);			LIMIT_GET_GATHER bytes
 *	get_writer_push(writer, &slot->line, at, data, len);	the engine's thread; waits while much is in line
 *	get_writer_drain(writer, &slot->line);		all of that line is written; NULL: of every line
 *	failed = get_writer_stop(writer);
 *
 * `fn` is called for the pieces of all lines in the order they came, and after its first failure for none any more.
 */
#ifndef TRANSFER_GET_WRITER_H
#define TRANSFER_GET_WRITER_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

struct get_writer;

/* The pieces of one range, which follow each other. */
struct get_line {
	void *cookie;
	atomic_uint pending; /* pieces that are not written yet; 0 at the beginning */
};

/* Writes a piece to its place; 0 or an errno. */
typedef int get_writer_fn(void *cookie, uint64_t at, const void *data, size_t len);

/*
 * A piece that nobody waits for is written when there are some more of them, and at the latest after about `linger_ms`.
 * NULL: there is no use in it, or no thread to be had; then the caller writes.
 */
struct get_writer *get_writer_start(get_writer_fn *fn, int64_t linger_ms);
/* A piece's memory, used before where there is some; free() or get_writer_push() takes it. NULL: out of memory. */
void *get_writer_room(struct get_writer *writer);
/* Takes `data` over, also on failure. 0, or the errno of what was not written. */
int get_writer_push(
	struct get_writer *writer, struct get_line *line, uint64_t at, void *data, size_t len);
/* 0 or the errno of the first failure, whatever line that was of. */
int get_writer_drain(struct get_writer *writer, const struct get_line *line);
/* Writes what is left, and ends. NULL: 0. */
int get_writer_stop(struct get_writer *writer);

#endif
