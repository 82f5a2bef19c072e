/* Threads that wait for the disk. */
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
