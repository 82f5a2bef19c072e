/*
 * Bulk requests, and others that ask for it, that are silent for far longer than bulk requests wait. In
 * stores of many machines one request of some thousands hangs for seconds at a machine that is out of sorts, while the same request,
 * sent again on another connection, is answered at once by another one.
 */
#include "net/http_internal.h"

#include <string.h>

#include "base/banned.h"

#define RESEND_MAX 3 /* of one request */

enum pace_kind call_pace_kind(const struct call *call)
{
	return call->request->source.kind == HTTP_SOURCE_NONE ? PACE_GET : PACE_PUT;
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

/*
 * Where the others got on meanwhile, or there are none, it is this one that is slow. Where all are silent
 * it is the host or the network: sending them all again would not help it.
 */
static bool is_alone(const struct call *call, int64_t now, int64_t slow)
{
	const struct http_host *host = call->host;

	if (host->active_bulk == (call->request->bulk ? 1 : 0) || now - host->moved_ms < slow / 2)
		return true;
	return now - call->silent_ms >= 2 * slow;
}

bool call_is_slow(const struct call *call, int64_t now)
{
	int64_t slow;

	if (!call->request->resend || call->paused || call->resent >= RESEND_MAX)
		return false;
	slow = pace_slow_ms(&call->host->pace, call_pace_kind(call));
	return slow && now - call->silent_ms >= slow && is_alone(call, now, slow);
}
