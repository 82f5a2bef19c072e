/*
 * Detects requests with `resend_ms` that are silent for far longer than usual. In stores of many
 * machines one request in some thousands hangs for seconds at a faulty machine, while the same
 * request, sent again on another connection, is served immediately by another machine.
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

bool call_is_slow(const struct call *call, int64_t now)
{
	const struct http_request *request = call->request;
	const struct http_host *host = call->host;
	bool alone = host->active_bulk == (request->bulk ? 1 : 0);

	return request->resend_ms && !call->paused && call->resent < WAITS_RESENDS &&
	       waits_is_slow(call_waits(call), request->resend_ms, now - call->silent_ms,
		       alone ? 0 : now - host->moved_ms);
}
