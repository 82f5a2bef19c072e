/*
 * The memory in which all streams of this process hold bytes in flight: LIMIT_STREAM_MEMORY. Each
 * stream gets its first piece unconditionally, or nothing would move, and more while there is any.
 *
 *	n = memory_share_take(6, LIMIT_STREAM_RANGE);	// 1 to 6 pieces
 *	memory_share_give(n, LIMIT_STREAM_RANGE);
 *
 * If many streams start at a time, as copies between stores do, the first pieces alone are too
 * much. These wait for their turn before they take any:
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
/* Takes `least` to `most` bytes within LIMIT_STREAM_MEMORY for all that have a turn; waits until so
 * many are free, or no other stream has a turn. */
size_t memory_turn_take(size_t least, size_t most, const atomic_int *cancel);
void memory_turn_give(size_t bytes);
/* Number of bytes taken. */
size_t memory_share_taken(void);

#endif
