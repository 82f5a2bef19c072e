#include "transfer/state/memory_share.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/must.h"

#define POLL_MS 50 /* interval for checking the caller's cancel flag */

static atomic_size_t taken;

/* A stream that waits for its turn. Turns are given in the order of the calls; otherwise a stream
 * that needs much would wait for all streams that need little. */
struct turn_waiter {
	struct turn_waiter *next;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t given;
	size_t bytes;
	struct turn_waiter *first;
} turn = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t turn_once = PTHREAD_ONCE_INIT;

static void turn_init(void)
{
	clock_cond_init(&turn.given);
}

size_t memory_turn_take(size_t least, size_t most, const atomic_int *cancel)
{
	struct turn_waiter self = {0}, **at = &turn.first;
	size_t left;

	pthread_once(&turn_once, turn_init);
	pthread_mutex_lock(&turn.lock);
	while (*at)
		at = &(*at)->next;
	*at = &self;
	while ((turn.first != &self || (turn.bytes && turn.bytes + least > LIMIT_STREAM_MEMORY)) &&
		!(cancel && atomic_load(cancel)))
		clock_cond_wait_ms(&turn.given, &turn.lock, POLL_MS);
	for (at = &turn.first; *at != &self; at = &(*at)->next)
		;
	*at = self.next;
	pthread_cond_broadcast(&turn.given);
	left = turn.bytes < LIMIT_STREAM_MEMORY ? LIMIT_STREAM_MEMORY - turn.bytes : 0;
	if (cancel && atomic_load(cancel))
		most = 0;
	else if (left < most)
		most = left > least ? left : least;
	turn.bytes += most;
	pthread_mutex_unlock(&turn.lock);
	return most;
}

void memory_turn_give(size_t bytes)
{
	pthread_mutex_lock(&turn.lock);
	MUST(bytes <= turn.bytes);
	turn.bytes -= bytes;
	pthread_cond_broadcast(&turn.given);
	pthread_mutex_unlock(&turn.lock);
}

unsigned memory_share_take(unsigned wanted, size_t piece)
{
	unsigned n = 1;

	atomic_fetch_add(&taken, piece);
	while (n < wanted) {
		size_t now = atomic_load(&taken);

		if (now + piece > LIMIT_STREAM_MEMORY)
			break;
		n += atomic_compare_exchange_weak(&taken, &now, now + piece);
	}
	return n;
}

void memory_share_give(unsigned n, size_t piece)
{
	MUST(atomic_fetch_sub(&taken, n * piece) >= n * piece);
}

size_t memory_share_taken(void)
{
	return atomic_load(&taken);
}
