/* Keeps several requests of one transfer in flight. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "transfer/client/internal.h"

#define POLL_MS 50 /* interval for checking the caller's cancel flag */

void fan_init(struct fan *fan, struct http_engine *engine, const atomic_int *cancel)
{
	*fan = (struct fan){.engine = engine, .cancel = cancel};
	pthread_mutex_init(&fan->lock, NULL);
	clock_cond_init(&fan->changed);
}

void fan_release(struct fan *fan)
{
	pthread_cond_destroy(&fan->changed);
	pthread_mutex_destroy(&fan->lock);
	penstock_error_release(&fan->error);
}

int fan_submit(struct fan *fan, struct http_request *request, struct http_reply *reply,
	atomic_bool *flying, struct penstock_error *err)
{
	int r;

	request->cancel = &fan->stop;
	pthread_mutex_lock(&fan->lock);
	fan->in_flight++;
	pthread_mutex_unlock(&fan->lock);
	if (flying)
		atomic_store(flying, true);
	r = http_submit(fan->engine, request, reply, err);
	if (r < 0)
		fan_ended(fan, flying, NULL);
	return r;
}

void fan_fail(struct fan *fan, struct penstock_error *err)
{
	pthread_mutex_lock(&fan->lock);
	if (!fan->error.code)
		error_move(&fan->error, err);
	else
		penstock_error_release(err);
	atomic_store(&fan->stop, 1);
	pthread_mutex_unlock(&fan->lock);
	http_wake(fan->engine);
}

void fan_ended(struct fan *fan, atomic_bool *flying, struct penstock_error *err)
{
	if (flying)
		atomic_store(flying, false);
	if (err)
		fan_fail(fan, err);
	pthread_mutex_lock(&fan->lock);
	fan->in_flight--;
	/* Signal under the lock: the waiter may destroy the fan as soon as it sees the count. */
	pthread_cond_signal(&fan->changed);
	pthread_mutex_unlock(&fan->lock);
}

static void look_at_cancel(struct fan *fan)
{
	if (!fan->cancel || !atomic_load(fan->cancel) || atomic_load(&fan->stop))
		return;
	if (!fan->error.code)
		error_set(&fan->error, PENSTOCK_E_CANCELLED, "cancelled");
	atomic_store(&fan->stop, 1);
	http_wake(fan->engine);
}

bool fan_wait(struct fan *fan, unsigned limit)
{
	bool fine;

	pthread_mutex_lock(&fan->lock);
	for (;;) {
		look_at_cancel(fan);
		fine = !atomic_load(&fan->stop);
		if (fan->in_flight < limit || (!fine && limit > 1))
			break;
		clock_cond_wait_ms(&fan->changed, &fan->lock, POLL_MS);
	}
	pthread_mutex_unlock(&fan->lock);
	return fine;
}

bool fan_failed(struct fan *fan)
{
	LOCK_SCOPE(&fan->lock);
	look_at_cancel(fan);
	return atomic_load(&fan->stop);
}

void fan_stop(struct fan *fan)
{
	atomic_store(&fan->stop, 1);
	http_wake(fan->engine);
	fan_wait(fan, 1);
}

int fan_finish(struct fan *fan, struct penstock_error *err)
{
	fan_wait(fan, 1);
	return fan->error.code ? error_move(err, &fan->error) : 0;
}
