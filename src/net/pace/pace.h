/*
 * The number of concurrent bulk requests to one host. Pure arithmetic on reported events and times;
 * docs/decisions/adaptive-concurrency.md has the rule and its figures.
 *
 *	struct pace pace;
 *
 *	pace_init(&pace, 48);
 *	pace_moved(&pace, bytes);	// bytes of any bulk request, as they move
 *	waits_add(&pace.waits[PACE_GET], ms);	// from the request's last byte to the reply's first
 *	pace_refused(&pace, now, active);	// 503 or 429
 *	pace_tick(&pace, now, starved);	// often; pace.limit is the current limit
 *
 * Owned by the engine's thread.
 */
#ifndef NET_PACE_PACE_H
#define NET_PACE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/pace/waits.h"

#define PACE_START 8 /* initial concurrency */
#define PACE_FLOOR 4 /* only a 429 or 503 reduces the concurrency below this */

enum pace_kind { PACE_GET, PACE_PUT, PACE_KINDS_ };

enum pace_phase {
	PACE_CLIMB, /* doubles while doubling helps */
	PACE_HOLD, /* keeps the limit for some windows */
	PACE_UP, /* tries a quarter more */
	PACE_DOWN, /* tries a quarter less */
	PACE_AVOID /* the server asked to slow down: the limit grows by one per window */
};

struct pace {
	unsigned limit; /* concurrent requests */
	unsigned max;
	enum pace_phase phase;

	/* The window being measured. */
	int64_t window_ms; /* start of the window; 0 if there is none yet */
	uint64_t moved;
	bool starved; /* at times there were too few requests to reach the limit */
	bool refused;

	double rate; /* bytes per ms before the last step of the limit */
	unsigned before; /* limit before the last step */
	unsigned held; /* windows in PACE_HOLD */
	bool try_down; /* the next try goes down */
	unsigned ceiling; /* the concurrency at which the server asked to slow down */

	struct waits waits[PACE_KINDS_];
};

void pace_init(struct pace *pace, unsigned max);
void pace_moved(struct pace *pace, uint64_t bytes);
void pace_refused(struct pace *pace, int64_t now, unsigned active);
/* `starved` is true if fewer requests than the limit are in flight because no more are queued. */
void pace_tick(struct pace *pace, int64_t now, bool starved);

#endif
