/* Keeps idle readers for later calls. */
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "dataset/internal.h"

/* Held while a child process sets up its state, in its first call after fork(). */
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

/* Sets up a child after fork(): the connections belong to the parent, and a thread of the parent
 * may have held the lock. */
static int begin_process(struct dataset *set, struct penstock_error *err)
{
	int r;

	LOCK_SCOPE(&fork_lock);
	if (atomic_load(&set->pid) == getpid())
		return 0;
	r = source_after_fork(set->source, err);
	if (r < 0)
		return r;
	pthread_mutex_init(&set->lock, NULL);
	set->n_idle = 0;
	atomic_store(&set->decoding, 0);
	atomic_store(&set->pid, getpid());
	return 0;
}

int dataset_take_reader(struct dataset *set, struct source_reader **out, struct penstock_error *err)
{
	struct source_reader *reader = NULL;
	int r = atomic_load(&set->pid) == getpid() ? 0 : begin_process(set, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&set->lock);
	if (set->n_idle)
		reader = set->idle[--set->n_idle];
	pthread_mutex_unlock(&set->lock);
	if (!reader)
		return source_reader_new(out, set->source, err);
	*out = reader;
	return 0;
}

void dataset_give_reader(struct dataset *set, struct source_reader *reader)
{
	pthread_mutex_lock(&set->lock);
	if (set->n_idle < LIMIT_DATASET_READERS)
		set->idle[set->n_idle++] = take_pointer(reader);
	pthread_mutex_unlock(&set->lock);
	source_reader_free(reader);
}
