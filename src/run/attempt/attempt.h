/*
 * One attempt of a run: its workflow, number, paths and end. Every part of src/run works on the
 * attempt; the state of a part (such as the lease, the containers, the checkpoints) is in a struct
 * of that part.
 */
#ifndef RUN_ATTEMPT_ATTEMPT_H
#define RUN_ATTEMPT_ATTEMPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <penstock/error.h>

#include "records/layout.h"
#include "records/records.h"
#include "run/report/say.h"

struct workflow;

/* The end of an attempt. The first call of run_end() decides the end; only after run_end_reset()
 * can another call decide it. */
struct run_end {
	bool decided;
	enum run_state state;
	enum run_class class;
	int exit_code; /* penstock's exit code */
	int step_code; /* the step's own exit code if penstock's differs; else 0 */
	char *message; /* owned */
};

struct attempt {
	const struct workflow *workflow; /* borrowed */
	const char *home; /* $PENSTOCK_HOME; borrowed */
	struct records *records; /* borrowed */
	char id[RECORDS_ID_SIZE]; /* the run's ID */
	atomic_int number;
	bool continuing; /* continues an earlier attempt */
	bool keep_context; /* use the last attempt's copy of the code, not the code as it is now */
	bool steps_began; /* the steps have started, or all of them finished in earlier attempts */
	size_t steps_done; /* top-level steps that earlier attempts finished */
	struct run_layout layout;
	struct run_voice voice;
	struct run_end end;
	int reserve_fd; /* the reserved disk space; -1 if there is none */
};

/* Decides the end. If the end is already decided, the message is only reported, as a warning. */
void run_end(struct attempt *attempt, enum run_state state, enum run_class class, int exit_code,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Forgets a decided end, except for the step's exit code, so that a worse end can replace it. */
void run_end_reset(struct attempt *attempt);
/* Returns penstock's exit code for an error with the given class and code. */
int run_exit_code(enum run_class class, enum penstock_code code);

/* Reserves disk space for the records and the log, because a step may fill the disk. */
void attempt_reserve_space(struct attempt *attempt);
/* Frees the reserved space. Returns true if there was reserved space: the caller then retries the
 * write that failed. */
bool attempt_free_space(struct attempt *attempt);

/* Returns true if the output directory has entries or cannot be read. */
bool attempt_has_output(const struct attempt *attempt);

#endif
