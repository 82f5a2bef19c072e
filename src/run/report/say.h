/*
 * Messages of a run. Each goes to the observer; messages and warnings also go to the run's log.
 *
 *	run_say(&voice, RUN_EVENT_WARNING, "'%s' did not end", name);
 */
#ifndef RUN_REPORT_SAY_H
#define RUN_REPORT_SAY_H

#include "run/report/event.h"

struct output;

struct run_voice {
	const struct run_observer *observer; /* borrowed */
	/* The run's log; NULL until it is open. Set by the main thread and read by all. */
	struct output *_Atomic output;
};

/* Any thread. */
void run_event(const struct run_voice *voice, enum run_event_kind kind, const char *text,
	uint64_t done, uint64_t total);
void run_say(const struct run_voice *voice, enum run_event_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
