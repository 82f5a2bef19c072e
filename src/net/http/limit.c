/* The limit of bytes per second: the engine's thread sleeps once it has moved too many bytes. */
#include "net/http/internal.h"

#include "base/clock.h"

#define SLEEP_MS 50 /* between checks of the cancel flag */
/* After a pause, as many bytes as the limit allows in this time may move at once. */
#define BURST_NS (100 * NS_PER_MS)

void http_limit_take(struct http_engine *engine, size_t bytes)
{
	struct http_limit *limit = engine->options.limit;
	const atomic_int *cancel = engine->options.cancel;
	int64_t now, next;

	if (!limit || !bytes)
		return;
	now = clock_monotonic_ns();
	pthread_mutex_lock(&limit->lock);
	if (limit->next_ns < now - BURST_NS)
		limit->next_ns = now - BURST_NS;
	limit->next_ns += (int64_t)((double)bytes * NS_PER_S / (double)limit->bytes_per_s);
	next = limit->next_ns;
	pthread_mutex_unlock(&limit->lock);
	while (now < next && !(cancel && atomic_load(cancel))) {
		int64_t ms = (next - now) / NS_PER_MS + 1;

		clock_sleep_ms(ms < SLEEP_MS ? ms : SLEEP_MS);
		now = clock_monotonic_ns();
	}
}
