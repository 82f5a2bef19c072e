/*
 * What a run does when it is told that its machine goes away. The tasks find a file first, then their leaders get a
 * signal if they handle it, and all are ended when their part of the time is over; what is left of it is for publishing.
 *
 *	reaction_prepare(run)			before the steps: where the files are
 *	reaction_begin(run, &notice)		writes the file; the walk tells the leaders (walk_notice())
 *	reaction_tasks_until(run, &notice)	when all is ended that still runs
 *	reaction_flush_until(run)		when the state has to be written, whatever is published by then
 */
#ifndef RUN_REACTION_H
#define RUN_REACTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "run/notice.h"

struct penstock_error;
struct run;
struct run_layout;

/* Below $STORAGE_PATH, so that containers see them, too. */
#define REACTION_DIR	      ".penstock"
#define REACTION_PREEMPT_FILE REACTION_DIR "/preempt"
#define REACTION_SAVE_FILE    REACTION_DIR "/save"
#define REACTION_DONE_FILE    REACTION_DIR "/done-" /* and the execution's number */
/* Below runs/ID: what was noticed, for `ps` and `show`; and what `penstock preempt` asks for. */
#define REACTION_NOTICE_FILE  "notice"
#define REACTION_REQUEST_FILE "preempt"

int reaction_prepare(struct run *run, struct penstock_error *err);
/* A callback of struct interrupts: what SIGUSR1 of `penstock preempt` means. */
void reaction_describe(void *cookie, int signal, struct notice *notice);
/* Another: says it, and keeps it for `ps` and `show`. */
void reaction_noticed(void *cookie, const struct notice *notice);

/*
 * The file for the tasks. One that only says "soon" has a file of its own: whoever just looks whether the preempt file
 * is there must not end of it.
 */
void reaction_begin(struct run *run, const struct notice *notice);
/* It was withdrawn: the file is gone again; `soon`: the one that asks for a save. */
void reaction_take_back(const struct run *run, bool soon);

int reaction_signal(const struct run *run);
int64_t reaction_tasks_until(const struct run *run, const struct notice *notice);
/* When the steps of `finally` are ended, too. */
int64_t reaction_finally_until(const struct run *run, const struct notice *notice);
/* 0: there is no such time. */
int64_t reaction_flush_until(struct run *run);
/* When the machine goes, likewise. */
int64_t reaction_gone_at(struct run *run);
/* Whether no other run holds anything of this machine: it may still be saving. */
bool reaction_is_alone(void);
/* Whether the execution has left the mark of being through, which is taken away. */
bool reaction_is_done(const struct run *run, unsigned long serial);

/* Unix time at which an execution that begins now has to be over: its timeout, the run's, or the end of the Slurm job;
 * "" where nobody knows. */
#define REACTION_DEADLINE_SIZE 32
struct workflow_run;
void reaction_deadline(const struct run *run, const struct workflow_run *what,
	char out[static REACTION_DEADLINE_SIZE]);

/* Milliseconds of $PENSTOCK_STOP_GRACE; -1: it is not set. */
int64_t stop_grace_given_ms(void);

/* ---- leaders.c ---- */

/*
 * The leader, or where that is a shell what it runs: who handles the signal gets it. Nobody else does, so nothing ends of
 * it, and helpers of a program (data loaders) hear nothing. Returns how many were told.
 */
unsigned leaders_tell(pid_t leader, int signal);

#endif
