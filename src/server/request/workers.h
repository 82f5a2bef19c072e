/*
 * Threads that wait for the disk, and that read the bytes of long copies.
 *
 *	workers_submit(workers, run, req);	// "run" is called on a worker's thread
 *	req->is_long = true;
 *	workers_submit(workers, run, req);	// likewise, in a slot for long jobs
 *
 * Long jobs have LIMIT_SERVER_LONG_JOBS slots, so that threads are left for other jobs. Accounts
 * share the threads and the slots evenly.
 */
#ifndef SERVER_REQUEST_WORKERS_H
#define SERVER_REQUEST_WORKERS_H

#include "server/request/request.h"

struct penstock_error;
struct worker_pool;

int workers_start(struct worker_pool **out, struct penstock_error *err);
/* Finishes the queued jobs. */
void workers_stop(struct worker_pool *pool);
void workers_submit(struct worker_pool *pool, request_fn fn, struct request *req);

#endif
