/*
 * The memory that streams of this process hold bytes in while they are fetched or sent, all of them together:
 * LIMIT_STREAM_MEMORY. Each gets its first piece in any case, or nothing would move, and more while there is any.
 *
 *	n = memory_share_take(6, LIMIT_STREAM_RANGE);	1 to 6 pieces
 *	memory_share_give(n, LIMIT_STREAM_RANGE);
 *
 * Where many begin at a time, as copies between stores do, the first pieces alone are too much. These wait for their turn
 * before they take any:
 *
 *	bytes = memory_turn_take(least, most, cancel);	0: cancelled
 *	memory_turn_give(bytes);
 */
#ifndef TRANSFER_MEMORY_SHARE_H
#define TRANSFER_MEMORY_SHARE_H

#include <stdatomic.h>
#include <stddef.h>

unsigned memory_share_take(unsigned wanted, size_t piece);
void memory_share_give(unsigned n, size_t piece);
/*
 * `least` to `most` bytes within LIMIT_STREAM_MEMORY for all that have a turn; waits until there are so many, or nobody
 * else has any.
 */
size_t memory_turn_take(size_t least, size_t most, const atomic_int *cancel);
void memory_turn_give(size_t bytes);
/* Bytes that are taken. */
size_t memory_share_taken(void);

#endif
