/*
 * Reaction of a run to requests to stop and to preemption notices. After a notice a file is written
 * for the tasks. Then each leader that handles the signal gets the signal. At the end of the tasks'
 * share of the time the tasks are killed (the steps of `finally` later). The remaining time is for
 * publishing.
 *
 *	reaction_init(&reaction, attempt, err);	// reads the settings
 *	reaction_prepare(&reaction, err);	// makes the directory of the files
 *	reaction_watch(&reaction, err);		// starts the sources of notices
 *	reaction_begin(&reaction, &notice);	// writes the file; walk_notice() signals
 *	reaction_tasks_until(&reaction, &notice);	// when to kill the tasks
 *	reaction_flush_until(&reaction);	// when to write the state, published or not
 *	reaction_release(&reaction);
 */
#ifndef RUN_NOTICES_REACTION_H
#define RUN_NOTICES_REACTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "run/attempt/attempt.h"
#include "run/notices/interrupts.h"
#include "run/notices/notice.h"
#include "run/notices/settings.h"

struct penstock_error;

/* Below $STORAGE_PATH, so that containers see these files, too. */
#define REACTION_DIR	      ".penstock"
#define REACTION_PREEMPT_FILE REACTION_DIR "/preempt"
#define REACTION_SAVE_FILE    REACTION_DIR "/save"
#define REACTION_DONE_FILE    REACTION_DIR "/done-" /* the execution's number follows */

struct reaction {
	struct attempt *attempt; /* borrowed */
	struct interrupts interrupts;
	struct notice_settings settings;
	struct notices *notices; /* NULL if no source is watched */
	atomic_bool laid_out; /* attempt->layout is final: other threads may read it */
	/* Adds what a batch system knows about a signal; may be NULL. */
	void (*describe)(const void *cookie, int signal, struct notice *notice);
	const void *describe_cookie;
};

/* Reads the settings, and starts the thread that reads the signals. The caller has blocked the
 * signals, and has zeroed `*reaction` except for `describe`. */
int reaction_init(struct reaction *reaction, struct attempt *attempt, struct penstock_error *err);
/* Like reaction_init() for `penstock flush`: reads only the signals, not the settings. A signal
 * sets `interrupts.cancel`, and nothing is reported. */
int reaction_init_plain(
	struct reaction *reaction, struct attempt *attempt, struct penstock_error *err);
void reaction_release(struct reaction *reaction);
int reaction_prepare(struct reaction *reaction, struct penstock_error *err);
int reaction_watch(struct reaction *reaction, struct penstock_error *err);
/* Stops the sources. Call it after the state is written: some sources then acknowledge their
 * notice. */
void reaction_unwatch(struct reaction *reaction);

/* Ends the attempt because of an error of the given class and releases the error. If a request or a
 * notice caused the error, the attempt is stopped or preempted instead. */
void reaction_end_error(
	struct reaction *reaction, enum run_class class, struct penstock_error *err);

/* Writes the file for the tasks. A notice that is only a warning (`soon`) has a file of its own,
 * because a task may exit as soon as the preempt file exists. */
void reaction_begin(struct reaction *reaction, const struct notice *notice);
/* Removes the file that reaction_begin() wrote, after the notice was withdrawn: the preempt file
 * or, if `soon`, the file that asks for a save. */
void reaction_take_back(const struct reaction *reaction, bool soon);

int reaction_signal(const struct reaction *reaction);
int64_t reaction_tasks_until(const struct reaction *reaction, const struct notice *notice);
/* Returns the time at which the steps of `finally` are killed, too. */
int64_t reaction_finally_until(const struct reaction *reaction, const struct notice *notice);
/* Returns the time at which the state must be written, even if not all is published; 0 if there is
 * no such time. */
int64_t reaction_flush_until(struct reaction *reaction);
/* Returns the time at which the machine ends; 0 if unknown. */
int64_t reaction_gone_at(struct reaction *reaction);
/* Returns true if the execution has created its `done` file, and removes the file. */
bool reaction_is_done(const struct reaction *reaction, unsigned long serial);

#endif
