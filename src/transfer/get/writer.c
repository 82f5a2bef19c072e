#include "transfer/get/writer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/thread.h"

/*
 * The two threads wake each other rarely: a wake-up costs as much as writing a quarter of a piece.
 * The writer starts when several pieces are queued, when a caller waits for them, or after some
 * time, and continues until the queue is empty; a caller that finds the queue full waits until half
 * of it is free.
 */
#define BEGIN_WITH  4
#define GO_ON_BELOW (LIMIT_GET_WRITE_AHEAD / 2 + 1)

struct piece {
	struct get_line *line;
	uint64_t at;
	void *data;
	size_t len;
};

struct get_writer {
	get_writer_fn *fn;
	int64_t linger_ms;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t came; /* wakes the writer: enough pieces, a waiting caller, or the end */
	pthread_cond_t written; /* wakes callers: their pieces are written, or there is room */
	struct piece pieces[LIMIT_GET_WRITE_AHEAD];
	unsigned first;
	unsigned n; /* including the piece being written */
	void *spare[LIMIT_GET_WRITE_AHEAD]; /* memory of written pieces */
	unsigned n_spare;
	unsigned draining; /* callers that wait for their pieces */
	bool full; /* a caller waits for room */
	int failed; /* errno */
	bool ending;
};

/* Under the lock, which is dropped while writing: writes the first piece of the queue. */
static void write_first(struct get_writer *w)
{
	struct piece piece = w->pieces[w->first];
	int failed = w->failed;
	unsigned left;

	pthread_mutex_unlock(&w->lock);
	if (!failed)
		failed = w->fn(piece.line->cookie, piece.at, piece.data, piece.len);
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		w->failed = failed;
	if (w->n_spare < LIMIT_GET_WRITE_AHEAD)
		w->spare[w->n_spare++] = piece.data;
	else
		free(piece.data);
	w->first = (w->first + 1) % LIMIT_GET_WRITE_AHEAD;
	w->n--;
	/* After the decrement the line may belong to another range. */
	left = atomic_fetch_sub(&piece.line->pending, 1) - 1;
	if ((w->draining && !left) || (w->full && w->n < GO_ON_BELOW)) {
		w->full = false;
		pthread_cond_broadcast(&w->written);
	}
}

/* Under the lock: returns true if the writer should write now. */
static bool is_to_begin(const struct get_writer *w)
{
	return w->ending || w->n >= BEGIN_WITH || (w->n && w->draining);
}

static void *writer_main(void *arg)
{
	struct get_writer *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		if (!is_to_begin(w))
			clock_cond_wait_ms(&w->came, &w->lock, w->linger_ms);
		if (w->ending && !w->n)
			break;
		while (w->n)
			write_first(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void release(struct get_writer *w)
{
	pthread_cond_destroy(&w->came);
	pthread_cond_destroy(&w->written);
	pthread_mutex_destroy(&w->lock);
	while (w->n_spare)
		free(w->spare[--w->n_spare]);
	free(w);
}

struct get_writer *get_writer_start(get_writer_fn *fn, int64_t linger_ms)
{
	struct get_writer *w = process_is_parallel() ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	w->fn = fn;
	w->linger_ms = linger_ms;
	pthread_mutex_init(&w->lock, NULL);
	clock_cond_init(&w->came);
	pthread_cond_init(&w->written, NULL);
	if (thread_start(&w->thread, "write", writer_main, w, NULL) < 0) {
		release(w);
		return NULL;
	}
	return w;
}

void *get_writer_room(struct get_writer *w)
{
	void *room = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->n_spare)
		room = w->spare[--w->n_spare];
	pthread_mutex_unlock(&w->lock);
	return room ? room : malloc(LIMIT_GET_GATHER);
}

int get_writer_push(
	struct get_writer *w, struct get_line *line, uint64_t at, void *data, size_t len)
{
	int failed;

	pthread_mutex_lock(&w->lock);
	if (w->n == LIMIT_GET_WRITE_AHEAD) {
		do {
			w->full = true;
			pthread_cond_wait(&w->written, &w->lock);
		} while (w->n >= GO_ON_BELOW);
	}
	failed = w->failed;
	if (!failed) {
		atomic_fetch_add(&line->pending, 1);
		w->pieces[(w->first + w->n++) % LIMIT_GET_WRITE_AHEAD] = (struct piece){
			line, at, data, len};
		if (is_to_begin(w))
			pthread_cond_signal(&w->came);
	}
	pthread_mutex_unlock(&w->lock);
	if (failed)
		free(data);
	return failed;
}

int get_writer_drain(struct get_writer *w, const struct get_line *line)
{
	int failed;

	pthread_mutex_lock(&w->lock);
	w->draining++;
	pthread_cond_signal(&w->came);
	while (line ? atomic_load(&line->pending) > 0 : w->n > 0)
		pthread_cond_wait(&w->written, &w->lock);
	w->draining--;
	failed = w->failed;
	pthread_mutex_unlock(&w->lock);
	return failed;
}

int get_writer_stop(struct get_writer *w)
{
	int failed;

	if (!w)
		return 0;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->came);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	failed = w->failed;
	release(w);
	return failed;
}
