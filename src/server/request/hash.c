/* Computes the MD5 of complete bodies, several at a time. */
#include "server/request/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "base/thread.h"
#include "s3/sum/md5_lanes.h"
#include "server/request/request.h"
#include "server/request/reply.h"

/* Bytes of each body that one round hashes. The bytes of all bodies fit in the processor's cache,
 * and a round is so short that the next bodies soon find a free lane. */
#define CHUNK ((size_t)16 * KIB)
/* Number of bodies that make a full round. */
#define ENOUGH MD5_LANES
/* Time that complete bodies wait for incoming bodies, so that a round hashes more bodies. */
#define LINGER_MS 2

struct lane {
	struct request *req; /* NULL if free */
	struct md5_lane md5;
	uint64_t size, read;
	size_t used, have; /* offsets into `at` */
	const uint8_t *at; /* `data`, or the body if it is in memory */
	uint8_t *data;
};

struct hasher {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct request *head, **tail; /* under lock; bounded by the number of connections */
	unsigned waiting; /* under lock: number of queued requests */
	unsigned coming; /* under lock: announced bodies */
	bool stopping; /* under lock */
	pthread_t thread;
	/* Owned by the thread. */
	struct lane lanes[MD5_LANES];
	unsigned busy;
	uint8_t data[MD5_LANES][CHUNK];
};

static int lane_fill(struct lane *lane, struct penstock_error *err)
{
	struct store_body *body = lane->req->body.object;
	uint64_t left = lane->size - lane->read;
	const uint8_t *held = store_body_held(body);

	lane->used = 0;
	lane->have = left < CHUNK ? (size_t)left : CHUNK;
	lane->at = held ? held + lane->read : lane->data;
	if (!held && store_body_read(body, lane->read, lane->data, lane->have, err) < 0)
		return -1;
	lane->read += lane->have;
	return 0;
}

/* Returns the number of whole blocks in the lane. If the lane has no whole block, completes its
 * body. */
static size_t lane_ready(struct hasher *hasher, struct lane *lane)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct request *req = lane->req;
	uint8_t digest[16];

	if (lane->used == lane->have && lane->read < lane->size && lane_fill(lane, &err) < 0) {
		lane->req = NULL;
		hasher->busy--;
		req->after = NULL;
		reply_failure(req, &err);
		request_wake(req);
		return 0;
	}
	if (lane->have - lane->used >= MD5_BLOCK)
		return (lane->have - lane->used) / MD5_BLOCK;
	md5_lane_end(&lane->md5, lane->at + lane->used, lane->have - lane->used, digest);
	str_hex(digest, sizeof(digest), req->body.etag);
	lane->req = NULL;
	hasher->busy--;
	req->job(req);
	return 0;
}

/* Hashes the same number of blocks in all lanes: the number of blocks in the lane with the
 * fewest. */
static void hash_round(struct hasher *hasher)
{
	struct md5_lane md5s[MD5_LANES];
	const unsigned char *data[MD5_LANES];
	size_t n = 0, blocks = SIZE_MAX;

	for (size_t i = 0; i < MD5_LANES; i++) {
		struct lane *lane = &hasher->lanes[i];
		size_t ready = lane->req ? lane_ready(hasher, lane) : 0;

		if (!ready)
			continue;
		md5s[n] = lane->md5;
		data[n++] = lane->at + lane->used;
		blocks = ready < blocks ? ready : blocks;
	}
	if (!n)
		return;
	md5_lanes_update(md5s, n, data, blocks * MD5_BLOCK);
	n = 0;
	for (size_t i = 0; i < MD5_LANES; i++) {
		struct lane *lane = &hasher->lanes[i];

		if (!lane->req)
			continue;
		lane->md5 = md5s[n++];
		lane->used += blocks * MD5_BLOCK;
	}
}

/* ---- the queue ---- */

/* Moves queued bodies to free lanes; waits for a body if no lane is busy. Returns false if the
 * hasher is stopping and has no work left. */
static bool take_bodies(struct hasher *hasher)
{
	int64_t until, left;

	LOCK_SCOPE(&hasher->lock);
	if (!hasher->busy) {
		while (!hasher->head && !hasher->stopping)
			pthread_cond_wait(&hasher->filled, &hasher->lock);
		until = clock_monotonic_ms() + LINGER_MS;
		while (hasher->waiting < ENOUGH && hasher->coming && !hasher->stopping &&
			(left = until - clock_monotonic_ms()) > 0)
			clock_cond_wait_ms(&hasher->filled, &hasher->lock, left);
	}
	for (size_t i = 0; i < MD5_LANES && hasher->head; i++) {
		struct lane *lane = &hasher->lanes[i];

		if (lane->req)
			continue;
		lane->req = hasher->head;
		md5_lane_begin(&lane->md5);
		lane->size = store_body_size(lane->req->body.object);
		lane->read = lane->used = lane->have = 0;
		hasher->head = hasher->head->next_job;
		hasher->waiting--;
		hasher->busy++;
	}
	if (!hasher->head)
		hasher->tail = &hasher->head;
	return hasher->busy > 0;
}

static void *hasher_main(void *arg)
{
	struct hasher *hasher = arg;

	while (take_bodies(hasher))
		hash_round(hasher);
	return NULL;
}

bool hasher_expect(struct hasher *hasher)
{
	bool wanted;

	LOCK_SCOPE(&hasher->lock);
	/* If the queue is long, hashing in the event loops is faster. */
	wanted = hasher->waiting + hasher->coming < 8 * MD5_LANES;
	hasher->coming += wanted;
	return wanted;
}

void hasher_forget(struct hasher *hasher)
{
	LOCK_SCOPE(&hasher->lock);
	hasher->coming--;
	if (!hasher->coming && hasher->waiting)
		pthread_cond_signal(&hasher->filled);
}

void hasher_submit(struct hasher *hasher, request_fn next, struct request *req)
{
	req->job = next;
	req->next_job = NULL;
	LOCK_SCOPE(&hasher->lock);
	*hasher->tail = req;
	hasher->tail = &req->next_job;
	hasher->waiting++;
	hasher->coming--;
	if (hasher->waiting == 1 || hasher->waiting == ENOUGH || !hasher->coming)
		pthread_cond_signal(&hasher->filled);
}

/* ---- start and stop ---- */

static void hasher_free(struct hasher *hasher)
{
	pthread_cond_destroy(&hasher->filled);
	pthread_mutex_destroy(&hasher->lock);
	free(hasher);
}

int hasher_start(struct hasher **out, struct penstock_error *err)
{
	struct hasher *hasher = calloc(1, sizeof(*hasher));
	int rc;

	if (!hasher)
		return error_memory(err);
	for (size_t i = 0; i < MD5_LANES; i++)
		hasher->lanes[i].data = hasher->data[i];
	hasher->tail = &hasher->head;
	pthread_mutex_init(&hasher->lock, NULL);
	clock_cond_init(&hasher->filled);
	rc = thread_start(&hasher->thread, "hash", hasher_main, hasher, err);
	if (rc == 0)
		*out = hasher;
	else
		hasher_free(hasher);
	return rc;
}

void hasher_stop(struct hasher *hasher)
{
	if (!hasher)
		return;
	pthread_mutex_lock(&hasher->lock);
	hasher->stopping = true;
	pthread_cond_broadcast(&hasher->filled);
	pthread_mutex_unlock(&hasher->lock);
	pthread_join(hasher->thread, NULL);
	hasher_free(hasher);
}
