/*
 * A program that is run to its end, within a time, with what it prints in memory.
 *
 *	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
 *	int status = 0;
 *
 *	r = process_run(&(struct process_spec){.argv = argv, .stdin_fd = -1, .stderr_fd = -1, .new_session = true},
 *		&(struct process_run_options){.name = "git", .patience_ms = 10000, .out.text = &text}, &status, err);
 *	if (r == 0 && status != 0)
 *		... it failed
 */
#ifndef BASE_PROCESS_RUN_H
#define BASE_PROCESS_RUN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct penstock_error;
struct process_spec;

/* Where one of its outputs goes: into `text`, else piece by piece to `take`, whose error ends the program. */
struct process_sink {
	struct buf *text;
	int (*take)(void *cookie, const char *data, size_t len, struct penstock_error *err);
	void *cookie;
};

struct process_run_options {
	const char *name;	  /* in messages: "NAME did not end within 10 s" */
	int patience_ms;	  /* 0: it may take for ever */
	int64_t began_ms;	  /* since when, for several with one time (monotonic); 0: now */
	const atomic_int *cancel; /* ends it once it is set; NULL: nobody does */
	const char *input;	  /* all that it reads; NULL: the specification's stdin_fd */
	/* Those without a sink go where the specification says. One buffer may take both. */
	struct process_sink
		out; /* more than its buffer takes is PENSTOCK_E_LIMIT, and ends the program */
	struct process_sink
		err; /* of what people are told the end is kept: there stands why it failed */
};

/*
 * 0: it has ended, and `status` is as of waitpid(), so 0 where all was well. What its children may print later is not
 * waited for: one that stays behind with our pipe holds up nobody.
 *
 * Else it is killed, with its session where it has one of its own: PENSTOCK_E_TIMEOUT, PENSTOCK_E_CANCELLED, PENSTOCK_E_LIMIT,
 * the error of a sink, or that of process_spawn(), which had nothing to kill. The sinks keep what they have.
 */
int process_run(const struct process_spec *spec, const struct process_run_options *options,
	int *status, struct penstock_error *err);

#endif
