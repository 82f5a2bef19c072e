/* Closes connections that no request uses: first those that recent requests did not need, later
 * all. */
#include "net/http/internal.h"

#include "base/clock.h"

#define SPARE	  4 /* idle connections in addition to the maximum that was in use recently */
#define WINDOW_MS 10000 /* "recently" means in this window or the previous one */

/* libcurl closes the oldest idle connection when a connection becomes idle and there are more than
 * `kept`. */
static void set_kept(struct http_engine *engine, unsigned most)
{
	unsigned kept = most + SPARE;

	if (kept > engine->options.max_connections)
		kept = engine->options.max_connections;
	if (kept == engine->idle.kept)
		return;
	engine->idle.kept = kept;
	curl_multi_setopt(engine->multi, CURLMOPT_MAXCONNECTS, (long)kept);
}

/* Closes all idle connections. libcurl can do that only by freeing the multi handle. */
static void replace_multi(struct http_engine *engine)
{
	CURLM *fresh = curl_multi_init();
	CURLM *old = NULL;

	if (!fresh)
		return;
	pthread_mutex_lock(&engine->synced.lock);
	/* Other threads use `multi` only under the lock, so it can be replaced here. */
	if (!engine->synced.incoming && !engine->synced.ending) {
		old = engine->multi;
		engine->multi = fresh;
	}
	pthread_mutex_unlock(&engine->synced.lock);
	curl_multi_cleanup(old ? old : fresh);
	if (!old)
		return;
	curl_multi_setopt(engine->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	engine->idle.kept = 0;
	engine->idle.since_ms = 0;
	engine->idle.most = engine->idle.most_before = 0;
	set_kept(engine, 0);
}

bool idle_is_counted(const struct http_engine *engine)
{
	return engine->idle.since_ms != 0;
}

void idle_check(struct http_engine *engine)
{
	int64_t now = clock_monotonic_ms();

	if (engine->n_active) {
		engine->idle.since_ms = now;
		if (engine->n_active > engine->idle.most)
			engine->idle.most = engine->n_active;
	}
	if (now - engine->idle.window_ms >= WINDOW_MS) {
		engine->idle.window_ms = now;
		engine->idle.most_before = engine->idle.most;
		engine->idle.most = engine->n_active;
	}
	set_kept(engine, engine->idle.most > engine->idle.most_before ? engine->idle.most
								      : engine->idle.most_before);
	if (!engine->n_active && !engine->n_queued && !engine->waiting && engine->idle.since_ms &&
		now - engine->idle.since_ms >= engine->options.idle_ms)
		replace_multi(engine);
}
