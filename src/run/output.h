/*
 * What steps print: to the terminal and to the run's log, with secrets masked.
 *
 *	output_start(&output, log_path, stdout_fd, stderr_fd, err);
 *	... children get output_write_fd(output, 1) as stdout and (output, 2) as stderr
 *	output_add(output, "[3] ", &one, err);     a pair of pipes of one task's own,
 *	output_task_fd(one, 1), output_task_started(one)   whose lines begin with that
 *	output_remove(output, one);                once it has ended
 *	output_drain(output);      after the last child of a step has ended
 *	output_stop(output);       closes the log, durable; later notes go nowhere
 *	output_free(output);       when no thread has notes any more
 *
 * One thread pumps both pipes, so a terminal that does not read stalls the steps, as it would
 * without us, but neither the sync nor the reaction to signals. The log takes stdout and stderr
 * as they come. A full disk does not stop the run: the last LIMIT_LOG_WAITING bytes of the log wait
 * for room, and a line says how many before them are missing.
 */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct output;

/* The log is appended to. A terminal descriptor of -1 shows nothing. */
int output_start(struct output **out, const char *log_path, int stdout_fd, int stderr_fd,
	struct penstock_error *err);
/* Close-on-exec; stays owned by the output. `which` is 1 or 2. */
int output_write_fd(const struct output *output, int which);
/* Pipes of their own for one task. With a label each of its lines is shown as a whole, behind the label;
 * with an empty one, those of an MPI launcher behind the rank that it tells. */
struct output_task;
int output_add(struct output *output, const char *label, struct output_task **out,
	struct penstock_error *err);
int output_task_fd(const struct output_task *task, int which);
/* What it prints to stderr is read there, too, for slurm_memory_*(); before it is started. */
void output_task_read_memory(struct output_task *task);
/* What that has told before the last output_drain(); false: nothing. */
struct slurm_memory;
bool output_task_memory(const struct output_task *task, struct slurm_memory *out);
/* It has started and has them: ours are closed. */
void output_task_started(struct output_task *task);
/* Bytes that it has printed so far. */
uint64_t output_task_bytes(const struct output_task *task);
/* What is still in its pipes is shown with the next output_drain(), at the latest. */
void output_remove(struct output *output, struct output_task *task);
/* A line of penstock's own into the log, beside what the steps print. */
void output_note(struct output *output, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns once everything written before the call has been shown and logged, or after 2 s of a stuck terminal. */
void output_drain(struct output *output);
/* There may be room on the disk again: writes what of the log waits for it. */
void output_retry(struct output *output);
/* Bytes in the log so far. */
uint64_t output_size(const struct output *output);
/* NULL is fine, here and below. */
void output_stop(struct output *output);
/* It was stopped. */
void output_free(struct output *output);

#endif
