#include "cli/objects/batch_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "cli/frame/interrupt.h"

/* ---- output of the lines ---- */

/* Prints the buffered output. The caller holds the lock. */
static void tape_play(struct batch_tape *tape)
{
	if (!tape->held.len)
		return;
	fwrite(tape->held.data, 1, tape->held.len, tape->to);
	fflush(tape->to);
	buf_clear(&tape->held);
}

/* Prints the output of the first unfinished line at once. Buffers the output of other lines, which
 * wait while their buffer is full. */
static ssize_t tape_write(void *cookie, const char *data, size_t len)
{
	struct batch_tape *tape = cookie;
	struct batch_lines *lines = tape->line->lines;

	LOCK_SCOPE(&lines->lock);
	while (tape->line->state == BATCH_RUNS && lines->first != tape->line &&
		tape->held.len + len > LIMIT_BATCH_HELD)
		pthread_cond_wait(&lines->moved, &lines->lock);
	if (buf_add(&tape->held, data, len) < 0)
		return 0;
	if (lines->first == tape->line)
		tape_play(tape);
	return (ssize_t)len;
}

static void tape_open(struct batch_tape *tape)
{
	tape->file = fopencookie(tape, "w", (cookie_io_functions_t){.write = tape_write});
	if (!tape->file)
		abort();
	setvbuf(tape->file, NULL, _IOLBF, BUFSIZ);
}

void batch_line_take(struct batch_line *line)
{
	cli_set_where(line->where);
	if (line->in_turn)
		return;
	tape_open(&line->out);
	tape_open(&line->err);
	cli_set_out(line->out.file);
	log_set_stream(line->err.file);
}

void batch_line_let_go(struct batch_line *line)
{
	cli_set_where(NULL);
	cli_set_out(NULL);
	log_set_stream(NULL);
	if (line->in_turn) {
		fflush(stdout);
		return;
	}
	fclose(line->out.file);
	fclose(line->err.file);
	line->out.file = line->err.file = NULL;
}

/* ---- lines ---- */

struct batch_line *batch_line_new(char *where)
{
	struct batch_line *line = calloc(1, sizeof(*line));

	if (!line)
		return NULL;
	line->where = where;
	line->out.line = line->err.line = line;
	line->out.to = stdout;
	line->err.to = stderr;
	/* The last write of a thread that has waited may exceed the limit. */
	buf_init(&line->out.held, 2 * LIMIT_BATCH_HELD);
	buf_init(&line->err.held, 2 * LIMIT_BATCH_HELD);
	return line;
}

void batch_line_free(struct batch_line *line)
{
	for (size_t i = 0; i < line->n_places; i++)
		free(line->places[i].text);
	free(line->places);
	buf_release(&line->out.held);
	buf_release(&line->err.held);
	cli_free(line->cli);
	free(line->where);
	free(line);
}

/* Removes the ended lines at the head, and prints the buffered output of the next line. The caller
 * holds the lock. */
static void lines_advance(struct batch_lines *lines)
{
	struct batch_line *line;

	while ((line = lines->first)) {
		/* If --fail-fast has stopped the batch, ignore later lines that ended without
		 * running a verb. */
		if (lines->stop && !line->cli) {
			line->empty = true;
			line->code = 0;
			buf_clear(&line->err.held);
			buf_clear(&line->out.held);
		}
		tape_play(&line->out);
		tape_play(&line->err);
		if (line->state != BATCH_OVER)
			break;
		lines->first = line->next;
		lines->n--;
		lines->n_lines += !line->empty;
		lines->n_failed += line->code != 0 && !line->unfinished;
		lines->n_unfinished += line->unfinished;
		if (line->unfinished && !lines->first_unfinished)
			lines->first_unfinished = line->number;
		if (line->code > lines->code)
			lines->code = line->code;
		lines->stop |= line->code && lines->fail_fast;
		batch_line_free(line);
	}
	if (!lines->first)
		lines->last = NULL;
	pthread_cond_broadcast(&lines->moved);
}

/* Returns true if the line may run now. The caller holds the lock. */
static bool may_run(const struct batch_lines *lines, const struct batch_line *line)
{
	if (line->in_turn && line != lines->first)
		return false;
	if (line->heavy && lines->heavy_runs)
		return false;
	for (const struct batch_line *before = lines->first; before != line;
		before = before->next) {
		if (before->state != BATCH_OVER && batch_places_clash(before, line))
			return false;
	}
	return true;
}

/* Returns the first line that may run now, or NULL if no line may. Sets `*any` to true if any line
 * is waiting. The caller holds the lock. */
static struct batch_line *pick(struct batch_lines *lines, bool *any)
{
	*any = false;
	for (struct batch_line *line = lines->first; line; line = line->next) {
		if (line->state != BATCH_WAITS)
			continue;
		*any = true;
		if (may_run(lines, line))
			return line;
	}
	return NULL;
}

static void *worker_main(void *arg)
{
	struct batch_lines *lines = arg;
	struct batch_line *line;
	bool any;

	pthread_mutex_lock(&lines->lock);
	for (;;) {
		line = pick(lines, &any);
		if (!line && !any && lines->closing)
			break;
		if (!line) {
			pthread_cond_wait(&lines->moved, &lines->lock);
			continue;
		}
		line->state = BATCH_RUNS;
		lines->heavy_runs |= line->heavy;
		if (lines->stop || cli_interrupted()) {
			line->empty = true;
			line->unfinished = cli_interrupted();
		} else {
			pthread_mutex_unlock(&lines->lock);
			batch_line_take(line);
			log_own_level();
			log_set_level(line->level);
			line->code = cli_run(line->cli);
			line->unfinished = line->code > 128 && cli_interrupted();
			log_no_own_level();
			batch_line_let_go(line);
			pthread_mutex_lock(&lines->lock);
		}
		if (line->heavy)
			lines->heavy_runs = false;
		lines->stop |= line->code && lines->fail_fast;
		line->state = BATCH_OVER;
		lines_advance(lines);
	}
	pthread_mutex_unlock(&lines->lock);
	return NULL;
}

void batch_lines_begin(struct batch_lines *lines, unsigned jobs, bool fail_fast)
{
	*lines = (struct batch_lines){.fail_fast = fail_fast};
	pthread_mutex_init(&lines->lock, NULL);
	pthread_cond_init(&lines->moved, NULL);
	while (lines->n_threads < jobs && thread_start(&lines->threads[lines->n_threads], "batch",
						  worker_main, lines, NULL) == 0)
		lines->n_threads++;
	if (!lines->n_threads)
		abort();
}

bool batch_lines_add(struct batch_lines *lines, struct batch_line *line)
{
	LOCK_SCOPE(&lines->lock);

	line->state = line->cli ? BATCH_WAITS : BATCH_OVER;
	line->next = NULL;
	if (lines->last)
		lines->last->next = line;
	else
		lines->first = line;
	lines->last = line;
	lines->n++;
	lines_advance(lines);
	while (lines->n >= LIMIT_BATCH_AHEAD)
		pthread_cond_wait(&lines->moved, &lines->lock);
	return !lines->stop && !cli_interrupted();
}

void batch_lines_end(struct batch_lines *lines)
{
	pthread_mutex_lock(&lines->lock);
	lines->closing = true;
	pthread_cond_broadcast(&lines->moved);
	pthread_mutex_unlock(&lines->lock);
	for (unsigned i = 0; i < lines->n_threads; i++)
		pthread_join(lines->threads[i], NULL);
	pthread_cond_destroy(&lines->moved);
	pthread_mutex_destroy(&lines->lock);
}
