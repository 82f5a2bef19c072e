/*
 * A limit that owners share. After each quota_take() its owner holds at most as much as is still
 * free, so that no owner holds more than half of the limit.
 *
 *	struct quota memory;
 *
 *	quota_init(&memory, 64 * MIB);
 *	share = quota_share(&memory, owner);
 *	if (share && quota_take(share, bytes)) {
 *		...
 *		quota_give_back(share, bytes);
 *	}
 *	quota_release(&memory);
 *
 * Functions may be called by any thread.
 */
#ifndef BASE_QUOTA_H
#define BASE_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct quota {
	pthread_mutex_t lock;
	size_t limit; /* constant */
	size_t held; /* under lock: the sum of all shares */
	struct quota_share *shares; /* under lock */
};

struct quota_share {
	struct quota *quota;
	struct quota_share *next;
	size_t held; /* under the lock of the quota */
	char owner[];
};

void quota_init(struct quota *quota, size_t limit);
/* Frees all shares. */
void quota_release(struct quota *quota);
/* Returns the share of an owner, which exists until quota_release(); NULL if out of memory. */
struct quota_share *quota_share(struct quota *quota, const char *owner);
/* Takes nothing and returns false if the owner would hold more than what is left free. */
bool quota_take(struct quota_share *share, size_t n);
void quota_give_back(struct quota_share *share, size_t n);
/* Returns the amount that the owner holds. */
size_t quota_held(struct quota_share *share);

#endif
