/*
 * The tree of steps while it is run: one frame for each list, step and loop that has begun and not ended. Nothing here
 * waits: a frame is advanced when it was pushed, because it is new or because what it waited for has ended, and
 * steps.c polls the executions that live. For src/run only, and for one thread.
 *
 *	list	its steps one after the other; may be a scope, whose launches end with it
 *	step	dependsOn, if, the body, catch, finally
 *	loop	its iterations, each a list
 */
#ifndef RUN_WALK_H
#define RUN_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "run/step_run.h"
#include "workflow/model.h"

struct frame;
struct launch;
struct finished_steps;
struct run;

/* How a part of the tree ended. */
struct outcome {
	bool failed;
	bool told; /* it failed after a notice, which is what a notice is for */
	bool cut;  /* something of it was not done because of a notice */
	struct step_failure failure;
};

/* What was launched in it ends with it. */
struct scope {
	struct scope *outer;
	struct launch *launches; /* owned; the last one first */
	struct frame *closer;	 /* waits for their end; NULL: not yet */
};

struct launch {
	struct launch *next;  /* of the scope */
	struct launch *outer; /* that it was launched by; NULL: the foreground */
	struct scope *scope;
	const struct workflow_step *step;
	char *name;	     /* for people; owned */
	struct frame *frame; /* its list; NULL: it has ended */
	struct outcome outcome;
	bool stopping;	    /* it was told to end */
	bool killed;	    /* it was ended */
	bool awaited;	    /* the end of the run waits for it, which was said */
	int64_t kill_at_ms; /* 0: not decided */
};

enum frame_kind { FRAME_LIST, FRAME_STEP, FRAME_LOOP };

enum frame_phase {
	PHASE_DEPENDS,
	PHASE_CONDITION,
	PHASE_CONDITION_RUNS,
	PHASE_BODY,
	PHASE_BODY_RUNS,
	PHASE_CATCH,
	PHASE_CATCH_RUNS,
	PHASE_FINALLY,
	PHASE_FINALLY_RUNS,
	PHASE_CLOSE,
};

struct frame {
	enum frame_kind kind;
	struct frame *parent;  /* NULL: the whole workflow, or a launch */
	struct launch *launch; /* the nearest that it is a part of; NULL: the foreground */
	struct scope *scope;
	struct scope *own_scope; /* owned; NULL: that of its parent */
	char *name;		 /* for people, "outer / inner"; owned */
	char *path;		 /* for finished.h; owned */
	struct strlist own_env;
	const struct strlist *env; /* loop variables, inputs of modules: own_env or the parent's */
	char *own_env_file;
	const char *env_file; /* $DEEPSQUARE_ENV; NULL: the run's */
	bool final;	      /* within a `finally`, which goes on after a request to end */
	bool final_in_launch; /* the same, of a `finally` of the nearest launch */
	bool unrecorded; /* within a `catch` or `finally`, which an attempt that goes on repeats */
	struct outcome outcome; /* so far */

	const struct workflow_step *step; /* of a step or a loop */
	enum frame_phase phase;		  /* of a step */
	int error_code;			  /* of its body */
	bool told;			  /* its execution, of a notice */
	int restarts;			  /* of its execution, after failures */
	struct step_run *run;		  /* its execution, or that of its condition; owned */
	struct workflow_run condition;	  /* what is run for `if` */

	const struct workflow_steps *list; /* of a list */
	size_t next;
	uint64_t index; /* of an iteration */

	uint64_t begun, live; /* iterations of a loop */

	bool ready; /* was pushed */
	struct frame *next_ready;
	bool waits; /* for a launch, by dependsOn */
	struct frame *next_waiting;
	struct frame *next_live, **prev_live; /* while `run` is not NULL */
};

struct env_seen; /* walk_env.c */

struct walk {
	struct run *run;
	struct finished_steps *progress;
	struct frame *root;
	struct frame *ready, **ready_end;
	struct frame *live; /* those with an execution */
	size_t n_live;
	struct frame *waiting;	   /* for the end of launches */
	bool stopping;		   /* somebody asked to end: nothing begins but `finally` */
	bool noticed;		   /* a notice is why */
	bool cut;		   /* and something was not done because of it */
	bool killed;		   /* nothing begins at all */
	struct env_seen *env_seen; /* of the files behind $DEEPSQUARE_ENV; owned */
	bool warned;		   /* that progress cannot be written */
	bool done;
	struct outcome outcome; /* when `done` */
};

/* Begins with the whole workflow; -1: no memory. */
int walk_begin(struct walk *walk, struct run *run, struct finished_steps *progress);
void walk_release(struct walk *walk);
/* Advances one frame that is ready; false: there is none. */
bool walk_advance(struct walk *walk);
/* Takes the executions that ended, and ends launches that had their time. */
void walk_take_ended(struct walk *walk);
/* Milliseconds until a launch is to be killed, at most `wait`. */
int64_t walk_next_deadline(const struct walk *walk, int64_t wait);

/* The machine goes away: nothing begins but what is within `finally`, and what lives is told by `signal` (0: by its file
 * alone) where its leaders handle it. To be repeated: some only handle it later. */
void walk_notice(struct walk *walk, int signal);
/* Ends what was told; what is within `finally` may still go on. */
void walk_kill_told(struct walk *walk);
/* It does not go after all, and nothing was cut: as if nobody had been told. */
void walk_forget_notice(struct walk *walk);
/* It was withdrawn, and another one comes: walk_notice() tells who was told already. */
void walk_tell_again(struct walk *walk);
/* Asks all to end that lives, but for what runs within `finally`. */
void walk_stop(struct walk *walk);
/* Ends all that lives. */
void walk_kill(struct walk *walk);

/* ---- for the files of the walk ---- */

void frame_push(struct walk *walk, struct frame *frame);
/* Pushes all that wait for launches: something of these has changed. */
void walk_wake_waiting(struct walk *walk);
/* Ends it with an error of our own; releases the error. */
void frame_fail(struct frame *frame, enum run_class class, struct penstock_error *err);
void frame_fail_memory(struct frame *frame);
/* Something of the frame is not done because of a notice. */
void frame_cut(struct walk *walk, struct frame *frame);
/* Whether a step may begin there. */
bool frame_may_begin(const struct walk *walk, const struct frame *frame);
/* A list of steps below `parent` that goes by its name and path. NULL: no memory. */
struct frame *frame_list(struct walk *walk, struct frame *parent, const struct workflow_steps *list,
	const char *name, const char *path);
/* Variables of its own, beginning with its parent's. */
int frame_own_env(struct frame *frame);
int frame_own_scope(struct frame *frame);
void frame_free(struct frame *frame);
/* It ended: whoever waits for it goes on. Frees it. */
void frame_end(struct walk *walk, struct frame *frame);

/* Starts what `what` says in the environment of the frame. False: the frame has failed. */
bool leaf_start(struct walk *walk, struct frame *frame, const struct workflow_run *what);
/* Takes its end. False: it still runs. */
bool leaf_ended(struct walk *walk, struct frame *frame, struct step_end *end);
void leaf_kill(struct walk *walk, struct frame *frame);

/* One more frame whose own $DEEPSQUARE_ENV `path` is (-1: no memory), and one less: with the last it is forgotten. */
int walk_env_own(struct walk *walk, const char *path);
void walk_env_disown(struct walk *walk, const char *path);
/* Before an execution that may write to its $DEEPSQUARE_ENV, and after it: tells what it wrote in vain. */
void walk_env_begin(struct walk *walk, const struct frame *frame);
void walk_env_check(struct walk *walk, const struct frame *frame, struct step_end *end);
void walk_env_release(struct walk *walk);

/* Codes of the condition's shell. Bash exits with 0 where it cannot read what is to be run. */
enum { CONDITION_YES = 10, CONDITION_NO = 11, CONDITION_WRONG = 2 };

/* `if`: bash's [[ ]] in the environment of a step. False: the frame has failed. */
bool condition_begin(struct walk *walk, struct frame *frame);
void condition_ended(struct walk *walk, struct frame *frame, const struct step_end *end);

/* Begins a launch beside `frame`, a step. False: no memory. */
bool launch_begin(struct walk *walk, struct frame *frame);
/* The launch that a handle means there; NULL: none, which the reader has refused. */
struct launch *launch_find(const struct frame *frame, const char *handle);
void launch_ended(struct walk *walk, struct launch *launch, const struct outcome *outcome);
/* The variables PID_… of what is launched and lives. */
int launch_add_pids(const struct walk *walk, const struct frame *frame, struct strlist *env);
/* Ends what was launched in the scope; true: all has ended, else the frame is pushed when it has. */
bool scope_close(struct walk *walk, struct scope *scope, struct frame *frame);
void scope_free(struct scope *scope);
/* Kills what had its time. */
void launch_check_deadlines(struct walk *walk);

#endif
