/*
 * Output of the steps, to the terminal and to the run's log, with secrets masked.
 *
 *	output_start(&output, log_path, stdout_fd, stderr_fd, err);
 *	... children get output_write_fd(output, 1) as stdout and (output, 2) as stderr
 *	output_add(output, "[3] ", &one, err);	// pipes for one task, whose lines get a label
 *	output_task_fd(one, 1), output_task_started(one);
 *	output_remove(output, one);	// after the task has ended
 *	output_drain(output);	// after the last child of a step has ended
 *	output_stop(output);	// syncs and closes the log; later notes are dropped
 *	output_free(output);	// when no thread writes notes any more
 *
 * One thread reads all pipes. If stdout is a pipe and its reader stops, the steps block, as they
 * would without penstock; the sync and the reaction to signals do not block. A slow terminal blocks
 * no step (screen.h). The log has stdout and stderr in the order in which they were read. A full
 * disk does not stop the run: the last LIMIT_LOG_WAITING bytes of the log wait for space, and a
 * line before them has the number of missing bytes.
 */
#ifndef RUN_REPORT_OUTPUT_H
#define RUN_REPORT_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct output;

/* Opens the log to append to it. A stream whose terminal descriptor is -1 is not shown. */
int output_start(struct output **out, const char *log_path, int stdout_fd, int stderr_fd,
	struct penstock_error *err);
/* Returns a descriptor that is close-on-exec and stays owned by the output. `which` is 1 or 2. */
int output_write_fd(const struct output *output, int which);
/* Pipes for one task. With a label each line of the task is shown whole, after the label. With an
 * empty label, lines of an MPI launcher are shown with the rank in front. */
struct output_task;
int output_add(struct output *output, const char *label, struct output_task **out,
	struct penstock_error *err);
int output_task_fd(const struct output_task *task, int which);
/* Makes the thread that reads the pipes also pass the task's stderr to `parse`. If `parse` is NULL,
 * the earlier function is no longer called once output_task_parse() returns. */
typedef void (*output_parse_fn)(void *cookie, const char *data, size_t len);
void output_task_parse(struct output_task *task, output_parse_fn parse, void *cookie);
/* Closes the write ends of the pipes, once the task has started with copies of them. */
void output_task_started(struct output_task *task);
/* Returns the number of bytes that the task has printed so far. */
uint64_t output_task_bytes(const struct output_task *task);
/* Removes the task's pipes. Data that is still in the pipes is shown at the next output_drain() at
 * the latest. */
void output_remove(struct output *output, struct output_task *task);
/* Writes a line of penstock's own to the log. */
void output_note(struct output *output, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns once everything written before the call is shown and logged, or after 2 s if the terminal
 * is stuck. */
void output_drain(struct output *output);
/* Writes the waiting part of the log, after disk space was freed. */
void output_retry(struct output *output);
/* Returns the number of bytes in the log so far. */
uint64_t output_size(const struct output *output);
/* `output` may be NULL, for output_stop() and output_free(). */
void output_stop(struct output *output);
/* Call it after output_stop(). */
void output_free(struct output *output);

#endif
