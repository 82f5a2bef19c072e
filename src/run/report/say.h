/*
 * Events of a run. Each goes to the observer; messages and warnings also go to the run's log.
 *
 *	run_say(&voice, RUN_EVENT_WARNING, "'%s' did not end", name);
 */
#ifndef RUN_REPORT_SAY_H
#define RUN_REPORT_SAY_H

#include <stdint.h>

struct output;

/* Events of a run, for the command or program that shows them. */
enum run_event_kind {
	RUN_EVENT_STATE, /* text: the new state's name */
	RUN_EVENT_MESSAGE, /* text: one line for users */
	RUN_EVENT_WARNING, /* text: one line for users */
	RUN_EVENT_STAGE, /* text: the input's name; done and total in bytes (0: unknown) */
	RUN_EVENT_FLUSH, /* done: bytes sent so far; total: published and pending bytes */
	RUN_EVENT_STEP, /* text: name of the step; done: its number, from 1; total: all steps */
};

struct run_event {
	enum run_event_kind kind;
	const char *text; /* valid during the call */
	uint64_t done;
	uint64_t total;
};

struct run_observer {
	void (*event)(void *cookie, const struct run_event *event); /* called from any thread */
	void *cookie;
};

struct run_voice {
	const struct run_observer *observer; /* borrowed */
	/* The run's log; NULL until it is open. Set by the main thread and read by all. */
	struct output *_Atomic output;
};

/* Any thread may call these functions. */
void run_event(const struct run_voice *voice, enum run_event_kind kind, const char *text,
	uint64_t done, uint64_t total);
void run_say(const struct run_voice *voice, enum run_event_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* run_event() as callbacks, whose cookie is the voice. */
void run_voice_message(void *voice, const char *text);
void run_voice_warning(void *voice, const char *text);
void run_voice_stage(void *voice, const char *name, uint64_t done, uint64_t total);

#endif
