/*
 * Detects bulk requests, and others that ask for it, that are silent for far longer than usual. In
 * stores of many machines one request of some thousands hangs for seconds at a faulty machine,
 * while the same request, sent again on another connection, is served at once by another machine.
 */
#include "net/http/internal.h"

#include <string.h>

struct waits *call_waits(const struct call *call)
{
	return &call->host->pace.waits[call->request->source.kind == HTTP_SOURCE_NONE ? PACE_GET
										      : PACE_PUT];
}

void call_count_moved(struct call *call, int64_t now)
{
	uint64_t moved = call->moved - call->moved_seen;

	if (!moved)
		return;
	if (call->request->bulk)
		pace_moved(&call->host->pace, moved);
	call->moved_seen = call->moved;
	call->silent_ms = now;
	call->host->moved_ms = now;
}

/* If other requests made progress meanwhile, or there are none, this one is slow. If all are silent
 * it is more likely the host or the network, so wait twice as long. */
static bool is_outlier(const struct call *call, int64_t now, int64_t slow)
{
	const struct http_host *host = call->host;

	if (host->active_bulk == (call->request->bulk ? 1 : 0) || now - host->moved_ms < slow / 2)
		return true;
	return now - call->silent_ms >= 2 * slow;
}

bool call_is_slow(const struct call *call, int64_t now)
{
	int64_t slow;

	if (!call->request->resend_ms || call->paused || call->resent >= WAITS_RESENDS)
		return false;
	slow = waits_slow_ms(call_waits(call), call->request->resend_ms);
	return slow && now - call->silent_ms >= slow && is_outlier(call, now, slow);
}
