/*
 * The times that requests of one kind to one server waited for the first byte of the reply. These
 * times decide when a request counts as slow, and whether the request may be sent again. Pure
 * arithmetic; docs/decisions/adaptive-concurrency.md has the rule and its figures.
 *
 *	struct waits waits;
 *
 *	waits_init(&waits);
 *	waits_add(&waits, ms);	// a request was answered
 *	if (waits_is_slow(&waits, LIMIT_HTTP_RESEND_MS, silent_ms, others_ms) &&
 *		waits_spend(&waits))
 *		... send it again on another connection
 */
#ifndef NET_PACE_WAITS_H
#define NET_PACE_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#define WAITS_SAMPLES 64 /* latest waits that are remembered */
#define WAITS_RESENDS 3 /* maximum number of resends of one request */

struct waits {
	uint32_t last[WAITS_SAMPLES]; /* ms */
	unsigned n, next;
	double credit; /* number of requests that may be sent again */
};

void waits_init(struct waits *waits);
/* Records the wait of a request that was answered, and adds a twentieth of a resend to the
 * budget. */
void waits_add(struct waits *waits, int64_t wait_ms);
/* Returns a quantile of the latest waits, such as the median if `tenths` is 5, or -1 if no wait is
 * known. */
int64_t waits_quantile(const struct waits *waits, unsigned tenths);
/* Returns the silence after which a request counts as slow: the mean wait plus `more_ms`, but at
 * least twice the ninth decile. Returns 0 if fewer than 8 waits are known. */
int64_t waits_slow_ms(const struct waits *waits, int64_t more_ms);
/* Returns true if a request that was silent for `silent_ms` counts as slow. `others_ms` is the time
 * since any request made progress, or 0 if there are no other requests. If all requests have been
 * silent for half of waits_slow_ms(), the cause is the server or the network, and a request counts
 * as slow only after twice waits_slow_ms(). */
bool waits_is_slow(
	const struct waits *waits, int64_t more_ms, int64_t silent_ms, int64_t others_ms);
/* Takes one resend from the budget. Returns false if the budget is used up. */
bool waits_spend(struct waits *waits);

#endif
