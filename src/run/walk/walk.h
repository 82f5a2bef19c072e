/*
 * The tree of steps while it runs: one frame for each list, step and loop that has started and not
 * ended. Nothing here blocks: a frame is advanced after it was pushed, because it is new, or
 * because the work that it waited for has ended; steps.c polls the live executions. One thread
 * calls these functions.
 *
 *	list	its steps, one after the other; may be a scope, whose launches end with it
 *	step	dependsOn, if, the body, catch, finally
 *	loop	its iterations, each a list
 */
#ifndef RUN_WALK_WALK_H
#define RUN_WALK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "run/step/run.h"
#include "workflow/model.h"

struct frame;
struct launch;
struct attempt;
struct finished_steps;
struct run_layout;
struct publisher;
struct reaction;
struct step_host;

/* Outcome of a part of the tree. */
struct outcome {
	bool failed;
	bool after_notice; /* the part failed after a notice had asked it to end */
	bool cut; /* some steps were not done because of a notice */
	struct step_failure failure;
};

/* A scope ends the launches that were started in it. */
struct scope {
	struct scope *outer;
	struct launch *launches; /* owned; the newest first */
	/* frame that waits for the end of the launches; NULL if there is none yet */
	struct frame *closer;
};

struct launch {
	struct launch *next; /* next launch of the scope */
	struct launch *outer; /* the launch that contains this one; NULL in the foreground */
	struct scope *scope;
	const struct workflow_step *step;
	char *name; /* for messages; owned */
	struct frame *frame; /* the launch's list; NULL after its end */
	struct outcome outcome;
	bool stopping; /* the launch was signalled */
	bool killed; /* the launch was killed */
	bool awaited; /* the user was notified that the run waits for it */
	int64_t kill_at_ms; /* 0 if undecided */
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
	struct frame *parent; /* NULL for the whole workflow, or a launch */
	struct launch *launch; /* the innermost launch around the frame; NULL in the foreground */
	struct scope *scope;
	struct scope *own_scope; /* owned; NULL if the frame uses its parent's scope */
	char *name; /* for messages, "outer / inner"; owned */
	char *path; /* for finished.h; owned */
	struct strlist own_env;
	const struct strlist *env; /* loop variables, inputs of modules: own_env or the parent's */
	char *own_env_file;
	const char *env_file; /* $DEEPSQUARE_ENV; NULL for the file of the run */
	bool final; /* within a `finally`, which continues after a request to end the run */
	bool final_in_launch; /* within a `finally` of the nearest launch */
	/* within a `catch` or `finally`, which an attempt that continues repeats */
	bool unrecorded;
	struct outcome outcome; /* outcome so far */

	const struct workflow_step *step; /* the step of a FRAME_STEP or FRAME_LOOP */
	enum frame_phase phase; /* phase of a FRAME_STEP */
	int error_code; /* exit code of the step's body */
	bool noticed; /* the execution knows of a notice */
	int restarts; /* restarts of the execution after failures */
	struct step_run *run; /* execution of the command or of the condition; owned */
	struct workflow_run condition; /* the command of `if` */

	const struct workflow_steps *list; /* steps of a FRAME_LIST */
	size_t next;
	uint64_t index; /* index of an iteration */

	uint64_t begun, live; /* iterations of a loop that have begun, and that run now */

	bool ready; /* the frame was pushed */
	struct frame *next_ready;
	bool waits; /* waits for a launch in dependsOn, or for descriptors */
	struct frame *next_waiting;
	struct frame *next_live, **prev_live; /* valid while `run` is not NULL */
};

/* Checks, before the inputs are staged, for a fault that would make the first step fail. */
int run_check_first_step(const struct attempt *attempt, struct penstock_error *err);

struct env_seen; /* env.c */

struct walk {
	struct attempt *attempt; /* borrowed, as are the next four */
	struct reaction *reaction;
	struct publisher *publisher;
	struct step_host *host;
	struct finished_steps *progress;
	struct frame *root;
	size_t steps_done; /* top-level steps up to the last that is finished */
	struct frame *ready, **ready_end;
	struct frame *live; /* frames with an execution */
	size_t n_live;
	struct frame *waiting; /* frames that wait for the end of launches or executions */
	bool full; /* no execution may start before one ends: too few descriptors are free */
	bool stopping; /* an end was requested: only `finally` may begin */
	bool noticed; /* the request was a notice */
	bool cut; /* a part of the walk was not done because of the notice */
	bool killed; /* no step may begin at all */
	struct env_seen *env_seen; /* state of the $DEEPSQUARE_ENV files; owned */
	bool warned; /* the user was warned that progress cannot be written */
	bool done;
	struct outcome outcome; /* valid if `done` */
};

/* Begins with the whole workflow. Returns -1 if out of memory. */
int walk_begin(struct walk *walk, struct step_host *host, struct reaction *reaction,
	struct publisher *publisher, struct finished_steps *progress);
void walk_release(struct walk *walk);
/* Advances one frame that is ready. Returns false if there is none. */
bool walk_advance(struct walk *walk);
/* Handles executions that have ended, and kills launches at their deadline. */
void walk_take_ended(struct walk *walk);
/* Returns the milliseconds until the next launch is killed, at most `wait`. */
int64_t walk_next_deadline(const struct walk *walk, int64_t wait);

/* Handles a notice: only `finally` may begin, and live executions outside of `finally` get `signal`
 * if their leaders handle it (0: no signal). Repeat the call: some leaders handle it only later. */
void walk_notice(struct walk *walk, int signal);
/* Kills the executions that know of the notice; `finally` may still run. */
void walk_kill_noticed(struct walk *walk);
/* Continues as before, after a notice was withdrawn and nothing was cut. */
void walk_forget_notice(struct walk *walk);
/* Makes walk_notice() signal all executions again: another notice follows a withdrawn one. */
void walk_notice_again(struct walk *walk);
/* Asks all live executions to end, except in `finally`. */
void walk_stop(struct walk *walk);
/* Kills all live executions. */
void walk_kill(struct walk *walk);

/* ---- for the files of the walk ---- */

void frame_push(struct walk *walk, struct frame *frame);
void frame_wait(struct walk *walk, struct frame *frame);
/* Pushes all frames that wait. */
void walk_wake_waiting(struct walk *walk);
/* Fails the frame with an error that is penstock's own; releases the error. */
void frame_fail(struct frame *frame, enum run_class class, struct penstock_error *err);
void frame_fail_memory(struct frame *frame);
/* Records that a part of the frame is not done because of a notice. */
void frame_cut(struct walk *walk, struct frame *frame);
/* Returns true if the run, or the launch around the frame, was asked to end, and the frame is not
 * in a `finally`. */
bool frame_is_stopping(const struct walk *walk, const struct frame *frame);
/* Returns true if a step may begin in the frame. */
bool frame_may_begin(const struct walk *walk, const struct frame *frame);
/* Make a frame, or a frame for a list of steps, below `parent`. Return NULL if out of memory. */
struct frame *frame_new(
	struct frame *parent, enum frame_kind kind, const char *name, const char *path);
struct frame *frame_list(struct frame *parent, const struct workflow_steps *list, const char *name,
	const char *path);
/* Gives the frame its own variables, starting with its parent's. */
int frame_own_env(struct frame *frame);
int frame_own_scope(struct frame *frame);
void frame_free(struct frame *frame);
/* Ends the frame, pushes its parent, and frees the frame; the root is freed with the walk. */
void frame_end(struct walk *walk, struct frame *frame);

/* Returns false if the step has to wait for descriptors until another execution ends. */
bool leaf_has_room(struct walk *walk, const struct frame *frame);
/* Starts `what` in the environment of the frame. Returns false if the frame has failed. */
bool leaf_start(struct walk *walk, struct frame *frame, const struct workflow_run *what);
/* Handles the end of the frame's execution. Returns false while the execution runs. */
bool leaf_ended(struct walk *walk, struct frame *frame, struct step_end *end);

/* Adds or removes a frame that owns the $DEEPSQUARE_ENV file `path`; the state of the file is freed
 * with the last owner. Returns -1 if out of memory. */
int walk_env_own(struct walk *walk, const char *path);
void walk_env_disown(struct walk *walk, const char *path);
/* Call walk_env_begin() before, and walk_env_check() after an execution that may write to its
 * $DEEPSQUARE_ENV. walk_env_check() reports lines that set no variable. A value without its end, or
 * an unreadable file, makes the step fail. */
void walk_env_begin(struct walk *walk, const struct frame *frame);
void walk_env_check(struct walk *walk, const struct frame *frame, struct step_end *end);
void walk_env_release(struct walk *walk);

/* Exit codes of the condition's shell. Bash exits with 0 if it cannot read the command. */
enum { CONDITION_YES = 10, CONDITION_NO = 11, CONDITION_WRONG = 2 };

/* Starts bash's [[ ]] for `if`, in the environment of the step. Returns false if the frame has
 * failed. */
bool condition_begin(struct walk *walk, struct frame *frame);
void condition_ended(struct walk *walk, struct frame *frame, const struct step_end *end);

/* Begins the launch of `frame`, a step. Returns false if out of memory. */
bool launch_begin(struct walk *walk, struct frame *frame);
/* Finds the launch of a handle. Returns NULL if no launch has the handle; the reader of workflows
 * refuses such a handle. */
struct launch *launch_find(const struct frame *frame, const char *handle);
void launch_ended(struct walk *walk, struct launch *launch, const struct outcome *outcome);
/* Adds the variables PID_… of the live launches. */
int launch_add_pids(const struct walk *walk, const struct frame *frame, struct strlist *env);
/* Ends the launches of the scope; launches without a signal move to the scope of the run, which
 * waits for them, or ends them if a step has failed. Returns true if no live launch is left in the
 * scope; else the frame is pushed when one of them ends. */
bool scope_close(struct walk *walk, struct scope *scope, struct frame *frame);
void scope_free(struct scope *scope);
void launch_free(struct launch *launch);
/* Kills launches at their deadline. */
void launch_check_deadlines(struct walk *walk);

/* $DEEPSQUARE_ENV of a module with exported outputs: a file of its own next to the file of the
 * run. */

/* Creates the file if it is missing; the caller owns the path `*file`. */
int module_env_begin(
	const struct run_layout *layout, const char *path, char **file, struct penstock_error *err);
/* Appends the outputs, with the prefix of `use`, to `outer`, or to the run's file if `outer` is
 * NULL. */
int module_env_export(const struct run_layout *layout, const char *path,
	const struct workflow_use *use, const char *outer, struct penstock_error *err);

#endif
