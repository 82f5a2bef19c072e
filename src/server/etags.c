/*
 * MD5s of parts that lie in their files already, several at a time. Workers come here each with one; whoever
 * finds nobody at it takes all that wait and hashes them side by side, the others wait for theirs.
 */
#include "server/request.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/md5_lanes.h"
#include "base/banned.h"

#define BLOCK (32 * KIB) /* of each at a time: all of them stay in the second cache */

struct job {
	struct job *next;
	struct store_body *body;
	struct md5_lane lane;
	uint64_t at;
	uint8_t *digest;
	int rc;
	struct penstock_error *err;
	bool done;
};

struct etags {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job *waiting, **tail;		/* under lock */
	bool busy;				/* somebody hashes; under lock */
	unsigned char blocks[MD5_LANES][BLOCK]; /* of whom hashes */
};

int etags_new(struct etags **out, struct penstock_error *err)
{
	struct etags *etags = calloc(1, sizeof(*etags));

	if (!etags)
		return error_memory(err);
	pthread_mutex_init(&etags->lock, NULL);
	pthread_cond_init(&etags->changed, NULL);
	etags->tail = &etags->waiting;
	*out = etags;
	return 0;
}

void etags_free(struct etags *etags)
{
	if (!etags)
		return;
	pthread_mutex_destroy(&etags->lock);
	pthread_cond_destroy(&etags->changed);
	free(etags);
}

/* The next bytes of a job into a block. How many: a whole block, or the last ones; -1: it failed. */
static ssize_t job_read(struct job *job, unsigned char *block)
{
	uint64_t size = store_body_size(job->body), left = size - job->at;
	size_t want = left < BLOCK ? (size_t)left : BLOCK;
	ssize_t n = store_body_read(job->body, job->at, block, want, job->err);

	if (n >= 0 && (size_t)n != want)
		n = error_set(job->err, PENSTOCK_E_CORRUPT, "a part became shorter in the store");
	if (n < 0)
		job->rc = -(int)job->err->code;
	else
		job->at += (uint64_t)n;
	return n < 0 ? -1 : n;
}

/* Hashes them side by side, each to its end. */
static void hash_all(struct etags *etags, struct job **jobs, size_t n)
{
	struct md5_lane lanes[MD5_LANES];
	const unsigned char *data[MD5_LANES];

	while (n) {
		size_t going = 0;

		for (size_t i = 0; i < n; i++) {
			struct job *job = jobs[i];
			ssize_t got = job_read(job, etags->blocks[going]);

			if (got == (ssize_t)BLOCK) {
				data[going] = etags->blocks[going];
				lanes[going] = job->lane;
				jobs[going++] = job;
			} else if (got >= 0) {
				md5_lane_end(
					&job->lane, etags->blocks[going], (size_t)got, job->digest);
			}
		}
		n = going;
		if (n)
			md5_lanes_update(lanes, n, data, BLOCK);
		for (size_t i = 0; i < n; i++)
			jobs[i]->lane = lanes[i];
	}
}

/* Under the lock, which is let go meanwhile. */
static void take_turn(struct etags *etags)
{
	struct job *taken[MD5_LANES], *jobs[MD5_LANES];
	size_t n = 0;

	while (n < MD5_LANES && etags->waiting) {
		taken[n] = jobs[n] = etags->waiting;
		etags->waiting = etags->waiting->next;
		n++;
	}
	if (!etags->waiting)
		etags->tail = &etags->waiting;
	etags->busy = true;
	pthread_mutex_unlock(&etags->lock);
	hash_all(etags, jobs, n);
	pthread_mutex_lock(&etags->lock);
	etags->busy = false;
	for (size_t i = 0; i < n; i++)
		taken[i]->done = true;
	pthread_cond_broadcast(&etags->changed);
}

int etags_md5(struct etags *etags, struct store_body *body, uint8_t digest[static 16],
	struct penstock_error *err)
{
	struct job job = {.body = body, .digest = digest, .err = err};

	md5_lane_begin(&job.lane);
	LOCK_SCOPE(&etags->lock);
	*etags->tail = &job;
	etags->tail = &job.next;
	while (!job.done) {
		if (etags->busy)
			pthread_cond_wait(&etags->changed, &etags->lock);
		else
			take_turn(etags);
	}
	return job.rc;
}
