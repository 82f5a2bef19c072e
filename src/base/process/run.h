/*
 * Runs a program to its end, with a timeout and with its output in memory.
 *
 *	#include "base/buf.h"
 *	#include "base/process/process.h"
 *
 *	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
 *	int status = 0;
 *
 *	r = process_run(&(struct process_spec){ .argv = argv, .stdin_fd = -1, .stderr_fd = -1,
 *				.new_session = true },
 *		&(struct process_run_options){ .name = "git", .timeout_ms = 10000,
 *			.out.text = &text }, &status, err);
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

/* The destination of stdout or stderr: `text`, or if `text` is NULL, `take`, which is called for
 * each piece. An error of `take` ends the program. */
struct process_sink {
	struct buf *text;
	int (*take)(void *cookie, const char *data, size_t len, struct penstock_error *err);
	void *cookie;
};

struct process_run_options {
	const char *name; /* in messages: "NAME did not end within 10 s" */
	int timeout_ms; /* 0 if there is no limit */
	/* start of the timeout (monotonic), if several programs share a timeout; 0 if it starts
	 * now */
	int64_t began_ms;
	const atomic_int *cancel; /* kills the program once it is set; may be NULL */
	/* the complete input; NULL if the program reads `stdin_fd` of the specification */
	const char *input;
	/* An output without a sink goes to the descriptor in the specification. Both outputs may
	 * use the same buffer. */
	/* output that exceeds its buffer ends the program with PENSTOCK_E_LIMIT */
	struct process_sink out;
	/* the end of stderr is kept, because it says why the program failed */
	struct process_sink err;
};

/*
 * Returns 0 if the program has ended; `status` is that of waitpid(), so 0 on success. Does not wait
 * for later output of the program's children: a child that keeps our pipe open blocks nothing.
 *
 * On failure the program is killed, and its whole process group if `new_session` is set. The errors
 * are PENSTOCK_E_TIMEOUT, PENSTOCK_E_CANCELLED, PENSTOCK_E_LIMIT, the error of a sink, and that of
 * process_spawn(), after which there is nothing to kill. The sinks keep the data that they have
 * received.
 */
int process_run(const struct process_spec *spec, const struct process_run_options *options,
	int *status, struct penstock_error *err);

#endif
