/*
 * The memory in which all streams of this process hold bytes in flight: LIMIT_STREAM_MEMORY. Each
 * stream gets its first piece unconditionally, so that it can progress, and more pieces while there
 * is memory.
 *
 *	n = memory_share_take(6, LIMIT_STREAM_RANGE);	// 1 to 6 pieces
 *	memory_share_give(n, LIMIT_STREAM_RANGE);
 *
 * If many streams start at a time, as copies between stores do, the first pieces alone are too
 * much. Such streams wait for their turn before they take any piece:
 *
 *	bytes = memory_turn_take(least, most, cancel);	// 0: cancelled
 *	memory_turn_give(bytes);
 */
#ifndef TRANSFER_STATE_MEMORY_SHARE_H
#define TRANSFER_STATE_MEMORY_SHARE_H

#include <stdatomic.h>
#include <stddef.h>

unsigned memory_share_take(unsigned wanted, size_t piece);
void memory_share_give(unsigned n, size_t piece);
/* Takes `least` to `most` bytes; all streams with a turn share LIMIT_STREAM_MEMORY. Waits until
 * `least` bytes are free, or no other stream has a turn. Returns 0 if cancelled. */
size_t memory_turn_take(size_t least, size_t most, const atomic_int *cancel);
void memory_turn_give(size_t bytes);
/* Returns the number of bytes taken by memory_share_take(). */
size_t memory_share_taken(void);

#endif
