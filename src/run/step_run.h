/*
 * One execution of one `run`: its tasks from their start to the end of all that they began. It holds no
 * thread; several may live at a time in one thread, which polls their descriptors.
 *
 *	struct step_run *step = NULL;
 *
 *	step_run_start(&step, run, &(struct step_run_spec){.step = &s->run, .name = name}, err);
 *	... poll step_run_fd(step); step_run_ended(step, &end) says whether and how it ended; it has to be
 *	    asked whenever the descriptor is readable, for it is also what keeps the step's times
 *	step_run_signal(step, SIGTERM);    asks its leaders to end
 *	step_run_kill(step);               ends everything of it; also after its end, for what it left behind
 *	step_run_free(step);
 */
#ifndef RUN_STEP_RUN_H
#define RUN_STEP_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "records/records.h"
#include "workflow/model.h"

struct penstock_error;
struct run;
struct step_run;

#define STEP_MORE_SIZE	    256
#define STEP_MEMORY_LOOK_MS 250 /* where no control group holds the limit */

struct step_run_spec {
	const struct workflow_run *step;
	const char *name; /* for people; borrowed until step_run_free() */
	/* "K=V" of this execution, above the job's and below the step's own; NULL-terminated, or NULL. */
	const char *const *env;
	const char *env_file; /* $DEEPSQUARE_ENV beside that of the run; NULL: that of the run */
	bool here;	      /* on this machine, also where the run has a cluster's nodes */
};

/* Why it was ended by us, where it was. */
enum step_stop {
	STEP_NOT_STOPPED,
	STEP_PEER_FAILED, /* one of its tasks failed: its end is the step's */
	STEP_TIMEOUT,	  /* its own time was over */
	STEP_RUN_TIMEOUT, /* the run's time was over */
	STEP_HUNG,	  /* neither output nor use of the CPU for the given time */
	STEP_OVER_MEMORY, /* more than its limit, where no control group holds it */
};

/* How it ended. Of several tasks: how the first of them that failed did. */
struct step_end {
	int code;   /* exit status; meaningless when signal is set */
	int signal; /* that ended it, 0: it exited */
	int rank;   /* of the task that failed; -1: there was only one, or none failed */
	bool oom;   /* it wanted more memory than its limit */
	bool done;  /* it left the mark of being through, whatever it was told meanwhile */
	bool killed; /* some of its tasks were killed by us: what they were writing may be incomplete */
	enum step_stop stop;
	int64_t stop_ms;	/* the time that was over */
	uint64_t memory_limit;	/* bytes; 0: none */
	uint64_t memory_peak;	/* bytes; 0: not known */
	uint64_t memory_of_run; /* bytes; 0: unless all of the run together wanted more than this */
	const struct workflow_step_resources
		*resources; /* its own, borrowed; NULL: no limits of ours */
	char values
		[256]; /* what is wrong with what it left in $DEEPSQUARE_ENV, "wrote …"; "": nothing */
};

int step_run_start(struct step_run **out, struct run *run, const struct step_run_spec *spec,
	struct penstock_error *err);
/* Readable when something happened: ask step_run_ended(). */
int step_run_fd(const struct step_run *step);
/* False while any of its tasks runs. */
bool step_run_ended(struct step_run *step, struct step_end *out);
/* The leader of its first task. */
pid_t step_run_pid(const struct step_run *step);
/* Whether anything of it lives but for its leaders. */
bool step_run_left(const struct step_run *step);
void step_run_signal(struct step_run *step, int signal);
/* A notice: to leaders that handle the signal (0: none), each once. */
void step_run_tell(struct step_run *step, int signal);
/* It does not hold any more: the next one is told anew. */
void step_run_forget(struct step_run *step);
/* Its number within the attempt. */
unsigned long step_run_serial(const struct step_run *step);
void step_run_kill(struct step_run *step);
void step_run_free(struct step_run *step);

/* How long what is asked to end gets for it: $PENSTOCK_STOP_GRACE seconds, or 30. */
int64_t step_run_grace_ms(void);

/* "--set resources.memPerCpu=MB": how more is asked for; `own`: it is the step that says how much. */
void step_more(const struct workflow_step_resources *res, bool own, const char *key_and_value,
	char out[static STEP_MORE_SIZE]);

/* What an end that was not asked for means to the run. */
struct step_failure {
	enum run_class class;
	int exit_code;	/* of penstock */
	int step_code;	/* the step's own where penstock shows another, else 0 */
	char text[768]; /* one line: what and what to do */
};
/* False: it succeeded. */
bool step_end_explain(
	const struct step_end *end, const char *name, const char *run_id, struct step_failure *out);

#endif
