/*
 * Memory for bodies that are held whole until they are complete: writing a file at once costs less
 * than writing each piece from the network, and hashing need not read it again.
 */
#include "store/internal.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/banned.h"

void *held_take(struct store *store)
{
	struct held *held = &store->held;
	LOCK_SCOPE(&held->lock);

	/* the last one is probably still in the processor's cache */
	if (held->n_free)
		return held->free[--held->n_free];
	if (held->n == LIMIT_STORE_HELD_BODIES)
		return NULL;
	void *room = malloc(LIMIT_STORE_HELD);

	held->n += room != NULL;
	return room;
}

void held_give(struct store *store, void *room)
{
	struct held *held = &store->held;

	if (!room)
		return;
	LOCK_SCOPE(&held->lock);
	held->free[held->n_free++] = room;
}

void held_init(struct held *held)
{
	pthread_mutex_init(&held->lock, NULL);
}

void held_release(struct held *held)
{
	while (held->n_free)
		free(held->free[--held->n_free]);
	pthread_mutex_destroy(&held->lock);
}
