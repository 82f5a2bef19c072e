#include "run/task/box.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "run/task/boxed.h"

static struct {
	pthread_mutex_t lock;
	/* Under the lock. */
	char *box; /* owned; NULL if none is ready */
	char *tmp; /* owned; its parent directory */
	bool taken; /* a box was taken, so another one may be needed */
} ahead = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int make_within(const char *box, const char *name, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(box, name);

	if (!path)
		return error_memory(err);
	/* chmod() sets the mode regardless of the umask. */
	if (mkdir(path, mode) < 0 || chmod(path, mode) < 0)
		return error_errno(err, errno, "cannot create '%s'", path);
	return 0;
}

int box_make(char **out, const char *tmp, const char *infix, struct penstock_error *err)
{
	_cleanup_free_ char *box = str_printf("%s/" BOXED_PREFIX "%sXXXXXX", tmp, infix);

	if (!box)
		return error_memory(err);
	if (!mkdtemp(box))
		return error_errno(err, errno, "cannot create a directory in '%s'", tmp);
	*out = take_pointer(box);
	return 0;
}

static int make(char **out, const char *tmp, struct penstock_error *err)
{
	_cleanup_free_ char *box = NULL;
	int r = box_make(&box, tmp, "", err);

	if (r < 0)
		return r;
	r = make_within(box, "work", 0700, err);
	/* The upper directory becomes "/" of the container. */
	if (r == 0)
		r = make_within(box, "upper", 0755, err);
	if (r < 0) {
		fs_remove_tree(box, NULL);
		return r;
	}
	*out = take_pointer(box);
	return 0;
}

static void make_ahead(char *tmp)
{
	char *box = NULL;

	(void)make(&box, tmp, NULL); /* on failure box_take() makes the box and reports the error */
	LOCK_SCOPE(&ahead.lock);
	if (box && !ahead.box) {
		free(ahead.tmp);
		ahead.box = box;
		ahead.tmp = tmp;
		return;
	}
	if (box)
		fs_remove_tree(box, NULL);
	free(box);
	free(tmp);
}

/* Returns the box that was made ahead, or NULL. Sets *another to true from the second call on: then
 * the box of the next container is made ahead. */
static char *take_ready(const char *tmp, bool *another)
{
	LOCK_SCOPE(&ahead.lock);
	*another = ahead.taken;
	ahead.taken = true;
	/* The box may be days old, and a cleaner of temporary files may have removed it. */
	if (ahead.box && access(ahead.box, F_OK) < 0)
		free(take_pointer(ahead.box));
	return ahead.box && strcmp(ahead.tmp, tmp) == 0 ? take_pointer(ahead.box) : NULL;
}

bool box_is_safe_in(const char *tmp)
{
	struct stat st;

	return stat(tmp, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

int box_take(char **out, const char *tmp, struct penstock_error *err)
{
	bool another;
	char *next;
	int r;

	*out = take_ready(tmp, &another);
	r = *out ? 0 : make(out, tmp, err);
	next = r == 0 && another ? strdup(tmp) : NULL;
	if (next && !litter_hand_over(make_ahead, next))
		free(next);
	return r;
}

void box_finish(void)
{
	LOCK_SCOPE(&ahead.lock);
	if (ahead.box)
		fs_remove_tree(ahead.box, NULL);
	free(take_pointer(ahead.box));
	free(take_pointer(ahead.tmp));
	ahead.taken = false;
}

/* ---- removal in the background ---- */

/* Bounds the disk space held if steps end faster than their directories are removed. */
#define MAX_WAITING 8

struct job {
	void (*fn)(char *path); /* NULL at the end of the queue */
	char *path; /* owned */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	struct job waiting[MAX_WAITING];
	size_t n;
	bool running;
	bool ending;
	pthread_t thread;
} litter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void remove_now(char *dir)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (fs_remove_tree(dir, &err) < 0)
		log_debug("%s", err.message);
	free(dir);
}

/* Takes the most recent job first. */
static struct job next(void)
{
	LOCK_SCOPE(&litter.lock);
	while (!litter.n && !litter.ending)
		pthread_cond_wait(&litter.changed, &litter.lock);
	return litter.n ? litter.waiting[--litter.n] : (struct job){0};
}

static void *run(void *arg)
{
	struct job job;

	(void)arg;
	while ((job = next()).fn)
		job.fn(job.path);
	return NULL;
}

bool litter_hand_over(void (*fn)(char *path), char *path)
{
	LOCK_SCOPE(&litter.lock);
	if (!litter.running)
		litter.running = thread_start(&litter.thread, "litter", run, NULL, NULL) == 0;
	if (!litter.running || litter.n == MAX_WAITING)
		return false;
	litter.waiting[litter.n++] = (struct job){fn, path};
	pthread_cond_signal(&litter.changed);
	return true;
}

void litter_remove(char *dir)
{
	if (dir && !litter_hand_over(remove_now, dir))
		remove_now(dir);
}

void litter_finish(void)
{
	bool running;

	pthread_mutex_lock(&litter.lock);
	running = litter.running;
	litter.ending = true;
	pthread_cond_signal(&litter.changed);
	pthread_mutex_unlock(&litter.lock);
	if (running)
		pthread_join(litter.thread, NULL);
	pthread_mutex_lock(&litter.lock);
	litter.running = litter.ending = false;
	pthread_mutex_unlock(&litter.lock);
}
