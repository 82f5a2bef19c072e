/*
 * How many requests that move bulk data go to one host at a time, and when one of them is slow. Pure
 * arithmetic on what it is told, at times that it is told: docs/decisions/adaptive-concurrency.md has
 * the rule and its figures.
 *
 *	struct pace pace;
 *
 *	pace_init(&pace, 48);
 *	pace_moved(&pace, bytes);              of any bulk request, as they move
 *	pace_answered(&pace, PACE_GET, ms);    from the end of a request to the first byte of its reply
 *	pace_refused(&pace, now, active);      503 or 429
 *	pace_tick(&pace, now, starved);        often; pace.limit is what may run now
 *
 * Owned by the engine's thread.
 */
#ifndef NET_HTTP_PACE_H
#define NET_HTTP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_START   8	/* requests at a time, before anything is known */
#define PACE_FLOOR   4	/* what it never tries to go below by itself */
#define PACE_SAMPLES 64 /* latest waits that are remembered, of each kind */

enum pace_kind { PACE_GET, PACE_PUT, PACE_KINDS_ };

enum pace_phase {
	PACE_CLIMB, /* doubles while it pays */
	PACE_HOLD,  /* stays for some windows */
	PACE_UP,    /* tries a quarter more */
	PACE_DOWN,  /* tries a quarter less */
	PACE_AVOID  /* was told to slow down: one more per window */
};

struct pace {
	unsigned limit; /* requests at a time */
	unsigned max;
	enum pace_phase phase;

	/* The window that is measured. */
	int64_t window_ms; /* when it began; 0: not yet */
	uint64_t moved;
	bool starved; /* there was not always something to do */
	bool refused;

	double rate;	  /* bytes per ms, before the last step */
	unsigned before;  /* limit before it */
	unsigned held;	  /* windows */
	bool try_down;	  /* the next try goes down */
	unsigned ceiling; /* where it was told to slow down */

	/* Waits for the first byte of a reply, in ms. */
	struct {
		uint32_t last[PACE_SAMPLES];
		unsigned n;
		unsigned next;
	} waits[PACE_KINDS_];
	double credit; /* requests that may be sent again */
};

void pace_init(struct pace *pace, unsigned max);
void pace_moved(struct pace *pace, uint64_t bytes);
void pace_answered(struct pace *pace, enum pace_kind kind, int64_t wait_ms);
void pace_refused(struct pace *pace, int64_t now, unsigned active);
/* `starved`: fewer than the limit are under way, since nobody wants more. */
void pace_tick(struct pace *pace, int64_t now, bool starved);

/* Silence after which a request is slow beside its like; 0: that cannot be told. */
int64_t pace_slow_ms(const struct pace *pace, enum pace_kind kind);
/* A request ended: a twentieth of one may be sent again. */
void pace_earn(struct pace *pace);
/* False: too many were sent again already. */
bool pace_spend(struct pace *pace);

#endif
