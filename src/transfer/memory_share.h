/*
 * The memory that streams of this process hold bytes in while they are fetched or sent, all of them together:
 * LIMIT_STREAM_MEMORY. Each gets its first piece in any case, or nothing would move, and more while there is any.
 *
 *	n = memory_share_take(6, LIMIT_STREAM_RANGE);	1 to 6 pieces
 *	memory_share_give(n, LIMIT_STREAM_RANGE);
 */
#ifndef TRANSFER_MEMORY_SHARE_H
#define TRANSFER_MEMORY_SHARE_H

#include <stddef.h>

unsigned memory_share_take(unsigned wanted, size_t piece);
void memory_share_give(unsigned n, size_t piece);
/* Bytes that are taken. */
size_t memory_share_taken(void);

#endif
