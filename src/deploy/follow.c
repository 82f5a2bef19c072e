/* The thread of a deployment that talks to the store; `main` is the thread of deploy_run(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "deploy/internal.h"

enum {
	BEAT_MS = REPLICAS_TERM_MS / 3, /* time between two writes while the replica rolls */
	TURN_MS = 1000, /* time between two requests for a turn */
	REFRESH_MS = 300000, /* time between two writes of an entry that does not change */
	SHORT_MS = 500, /* time between two checks of a version that is not complete */
	END_MS = 5000, /* timeout of the last request */
	REFUSED_MS = 60000 /* time until a version that was refused temporarily is tried again */
};

/* Used only by the thread. */
struct follower {
	struct follow *f;
	struct versions versions;
	struct replicas replicas;
	bool open; /* `replicas` is open */
	bool takes_turn; /* this replica has a turn to roll */
	int64_t written_ms;
	bool wrote_rolls; /* the last write of the entry reported a roll */
	/* A fetched version that waits for its turn. */
	struct model ready;
	struct cached cached;
	/* Last messages about versions and about the state object: they are not repeated. */
	char *said_look, *said_state;
	bool state_fails; /* the last write of the entry failed */
	bool said_none; /* reported that there is no version */
	bool said_whole; /* reported that the whole prefix is one version */
	bool serves; /* main has reported a version in service */
	bool no_bucket; /* the last listing found no bucket */
};

/* Reports an error, unless the last report had the same message. */
static void report(char **said, const struct penstock_error *err)
{
	if (err->code == PENSTOCK_E_CANCELLED || (*said && strcmp(*said, err->message) == 0))
		return;
	log_warn("%s", err->message);
	free(*said);
	str_copy(said, err->message);
}

static void forget_ready(struct follower *w)
{
	model_release(&w->ready);
	cached_release(&w->cached);
}

/* ---- the state object ---- */

/* A copy of the reports of main. */
struct reported {
	struct model serving; /* empty if this version has failed */
	struct model failed; /* empty if main tries this version again */
	char *why;
};

static void reported_release(struct reported *reported)
{
	model_release(&reported->serving);
	model_release(&reported->failed);
	free(reported->why);
}

/* The caller holds f->lock. Returns false if out of memory. */
static bool copy_reported(struct reported *to, const struct follow *f)
{
	if (strcmp(f->serving.content, f->failed.content) != 0 &&
		!model_copy_name(&to->serving, &f->serving))
		return false;
	return strcmp(f->failed.content, f->tried.content) == 0 ||
	       (model_copy_name(&to->failed, &f->failed) && str_copy(&to->why, f->why));
}

/* Writes this replica's entry if the entry has changed or is REFRESH_MS old, and always during a
 * rollout and once afterwards. */
static int write_entry(struct follower *w, bool rolls, struct penstock_error *err)
{
	_cleanup_(reported_release) struct reported now = {0};
	struct follow *f = w->f;
	struct model next = {0};
	bool changed, copied;
	int r;

	pthread_mutex_lock(&f->lock);
	changed = f->changed;
	f->changed = false;
	copied = copy_reported(&now, f) &&
		 (!rolls || model_copy_name(&next, f->offers ? &f->next : &f->tried));
	pthread_mutex_unlock(&f->lock);
	if (!changed && !rolls && !w->wrote_rolls &&
		clock_monotonic_ms() - w->written_ms < REFRESH_MS) {
		r = 0;
	} else {
		const struct replica_state state = {
			.state = rolls		    ? "rolling"
				 : now.serving.name ? "serving"
				 : now.failed.name  ? "failed"
						    : "waiting",
			.model = &now.serving,
			.next = &next,
			.failed = &now.failed,
			.why = now.why,
		};

		r = copied ? replicas_write(&w->replicas, &state, err) : error_memory(err);
		w->written_ms = r == 0 ? clock_monotonic_ms() : w->written_ms;
		w->wrote_rolls = r == 0 ? rolls : w->wrote_rolls;
	}
	if (r < 0 && changed) {
		LOCK_SCOPE(&f->lock);
		f->changed = true;
	}
	model_release(&next);
	return r;
}

/* ---- versions ---- */

static void offer(struct follower *w)
{
	struct follow *f = w->f;

	pthread_mutex_lock(&f->lock);
	model_release(&f->next);
	f->next = w->ready;
	f->cached = w->cached;
	f->offers = true;
	pthread_mutex_unlock(&f->lock);
	w->ready = (struct model){0};
	w->cached = (struct cached){.lock = -1};
}

/* Fetches a version, unless it was fetched already and waits for its turn. */
static int fetch(struct follower *w, struct model *model, const struct model *serving,
	struct penstock_error *err)
{
	int r;

	if (w->ready.name && strcmp(w->ready.content, model->content) == 0)
		return 0;
	forget_ready(w);
	r = model_fetch(w->f->o, model, &w->f->stop, &w->cached, err);
	/* Refuse a damaged version. If nothing is in service, also refuse a version that cannot be
	 * fetched for another reason, so that an older version is served. */
	if (r == -(int)PENSTOCK_E_CORRUPT)
		follow_failed(w->f, model, err->message, true);
	else if (r < 0 && !serving->name && r != -(int)PENSTOCK_E_CHANGED &&
		 r != -(int)PENSTOCK_E_NOT_FOUND && !error_is_retryable(err))
		follow_failed(w->f, model, err->message, false);
	if (r < 0 && serving->name)
		error_suffix(err, "; version '%s' stays in service", serving->name);
	else if (r < 0)
		error_suffix(err, "; no version is in service");
	if (r < 0)
		return error_prefix(err, "cannot serve version '%s'", model->name);
	w->ready = *model;
	*model = (struct model){0};
	return 0;
}

/* Takes turns with other replicas, unless this replica serves nothing yet. Returns 1 if it is this
 * replica's turn, else 0. */
static int take_turn(struct follower *w, const struct reported *now, struct penstock_error *err)
{
	const struct replica_state state = {.state = "rolling",
		.model = &now->serving,
		.next = &w->ready,
		.failed = &now->failed,
		.why = now->why};
	int r = now->serving.name ? replicas_take_turn(&w->replicas, &state, err) : 1;

	w->takes_turn = w->takes_turn || (r == 1 && now->serving.name);
	return r;
}

/* Offers the version that was served last, if the cache has it, without a request to the store. */
static void offer_last(struct follower *w)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct follow *f = w->f;
	bool refused;

	pthread_mutex_lock(&f->lock);
	refused = refused_has(&f->refused, f->last.content);
	pthread_mutex_unlock(&f->lock);
	if (!f->last.name || refused ||
		model_find(f->o, f->last.content, &f->stop, &w->cached, &err) < 0)
		return;
	log_info("starting version '%s' from the cache", f->last.name);
	w->ready = f->last;
	f->last = (struct model){0};
	offer(w);
}

/* Copies the list of refused contents. Returns false if out of memory. */
static bool copy_refused(struct refused *to, const struct refused *from)
{
	to->contents = calloc(from->n + 1, sizeof(*to->contents));
	if (!to->contents)
		return false;
	memcpy(to->contents, from->contents ? from->contents : to->contents,
		from->n * sizeof(*to->contents));
	to->n = from->n;
	return true;
}

/* Looks for a version once. Returns the time until the next look, or a negative code. */
static int64_t look(struct follower *w, struct penstock_error *err)
{
	struct follow *f = w->f;
	_cleanup_(reported_release) struct reported now = {0};
	const struct model *serving = &now.serving;
	struct model model = {0};
	struct refused refused = {0};
	char tried[MODEL_CONTENT_SIZE];
	bool settles = false, copied;
	int64_t wait = f->o->interval_ms;
	int r;

	pthread_mutex_lock(&f->lock);
	copied = copy_refused(&refused, &f->refused) && copy_reported(&now, f);
	memcpy(tried, f->tried.content, sizeof(tried));
	pthread_mutex_unlock(&f->lock);
	r = copied ? versions_look(&w->versions, &refused, &model, &settles, err)
		   : error_memory(err);
	w->no_bucket = r == -(int)PENSTOCK_E_NOT_FOUND;
	if (settles && wait > SHORT_MS)
		wait = SHORT_MS;
	if (r == 1 && !*model.directory && !w->said_whole) {
		log_info("all of %s://%s/%s is one version: no directory in it has a number as its "
			 "name, or a " COMMIT_NAME,
			object_client_scheme(f->o->client), f->o->bucket, f->o->prefix);
		w->said_whole = true;
	}
	if (r == 1 && (strcmp(model.content, serving->content) == 0 ||
			      strcmp(model.content, tried) == 0)) {
		r = 0; /* the version is in service, or main tries it */
	} else if (r == 1) {
		r = fetch(w, &model, serving, err);
		if (r == 0)
			r = take_turn(w, &now, err);
		if (r == 1) {
			offer(w);
			wait = wait > BEAT_MS ? BEAT_MS : wait;
		} else if (r == 0 && wait > TURN_MS) {
			wait = TURN_MS;
		}
	} else if (r == 0 && !serving->name && !settles && !w->said_none) {
		log_info("there is no complete version below %s://%s/%s yet%s%s%s",
			object_client_scheme(f->o->client), f->o->bucket, f->o->prefix,
			w->versions.n_unmeasured ? ": no checkpoint has the metric '" : "",
			w->versions.n_unmeasured ? f->o->best : "",
			w->versions.n_unmeasured ? "'" : "");
		w->said_none = true;
	}
	free(refused.contents);
	model_release(&model);
	return r < 0 ? r : wait;
}

/* Waits until main wakes the thread, or `ms` at most. Returns false if the thread must end. */
static bool wait_turn(struct follow *f, int64_t ms)
{
	int64_t until = clock_monotonic_ms() + ms;

	LOCK_SCOPE(&f->lock);
	while (!atomic_load(&f->stop) && !f->wakes && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&f->wake, &f->lock, until);
	f->wakes = false;
	return !atomic_load(&f->stop);
}

/* Writes the entry of this replica, then looks for versions. Returns the time until the next round,
 * or a negative code. */
static int64_t follow_once(struct follower *w, struct penstock_error *err)
{
	struct follow *f = w->f;
	bool busy;
	int64_t r = 0;

	pthread_mutex_lock(&f->lock);
	busy = f->offers || f->rolling;
	w->serves = f->serving.name != NULL;
	pthread_mutex_unlock(&f->lock);
	if (!w->open) {
		r = replicas_open(&w->replicas, f->o, f->port, err);
		w->open = r == 0;
		if (!w->open)
			replicas_release(&w->replicas);
	}
	if (r == 0)
		r = write_entry(w, busy && w->takes_turn, err);
	if (!busy)
		w->takes_turn = false;
	w->state_fails = r < 0 && r != -(int)PENSTOCK_E_CANCELLED;
	if (r < 0 && (w->serves || r != -(int)PENSTOCK_E_NOT_FOUND))
		report(&w->said_state, err);
	penstock_error_release(err);
	if (busy)
		return BEAT_MS;
	/* A replica whose entry cannot be written stays in service, but does not roll. */
	return r < 0 && w->serves ? f->o->interval_ms : look(w, err);
}

static void *run(void *cookie)
{
	struct follow *f = cookie;
	struct follower w = {.f = f, .versions.o = f->o, .cached.lock = -1};
	bool begins;
	int64_t wait;

	pthread_mutex_lock(&f->lock);
	w.takes_turn = f->rolling;
	w.serves = f->serving.name != NULL;
	begins = !w.serves && !f->tried.name;
	pthread_mutex_unlock(&f->lock);
	if (begins)
		offer_last(&w);
	do {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		wait = follow_once(&w, &err);
		if (wait < 0) {
			wait = f->o->interval_ms;
			pthread_mutex_lock(&f->lock);
			f->missing = w.no_bucket && !w.serves && !f->offers && !f->tried.name;
			if (!f->missing)
				report(&w.said_look, &err);
			pthread_mutex_unlock(&f->lock);
		}
	} while (wait_turn(f, wait));
	if (w.open) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		/* follow_stop() sets `give_up`: a store that does not respond must not delay the
		 * end. */
		w.replicas.cancel = &f->give_up;
		if (!w.state_fails && replicas_write(&w.replicas, NULL, &err) < 0)
			report(&w.said_state, &err);
		replicas_release(&w.replicas);
	}
	forget_ready(&w);
	versions_release(&w.versions);
	free(w.said_look);
	free(w.said_state);
	LOCK_SCOPE(&f->lock);
	f->ended = true;
	pthread_cond_signal(&f->wake);
	return NULL;
}

/* ---- for main ---- */

void follow_init(struct follow *f, const struct deploy_options *o)
{
	f->o = o;
	f->changed = true; /* nothing is written yet */
	pthread_mutex_init(&f->lock, NULL);
	clock_cond_init(&f->wake);
}

int follow_start(struct follow *f, uint16_t port, struct penstock_error *err)
{
	int r;

	f->port = port;
	r = thread_start(&f->thread, "follow", run, f, err);
	f->started = r == 0;
	return r;
}

void follow_stop(struct follow *f)
{
	if (f->started) {
		int64_t until = clock_monotonic_ms() + END_MS;

		pthread_mutex_lock(&f->lock);
		atomic_store(&f->stop, 1);
		pthread_cond_signal(&f->wake);
		while (!f->ended && clock_monotonic_ms() < until)
			clock_cond_wait_until_ms(&f->wake, &f->lock, until);
		pthread_mutex_unlock(&f->lock);
		atomic_store(&f->give_up, 1);
		pthread_join(f->thread, NULL);
	}
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	model_release(&f->next);
	cached_release(&f->cached);
	model_release(&f->serving);
	model_release(&f->failed);
	model_release(&f->last);
	model_release(&f->tried);
	free(f->refused.contents);
	free(f->why);
	f->started = false;
}

/* Wakes the thread after a report on `model`. The turn ends only if `model` is the version that
 * rolls. */
static void changed(struct follow *f, const struct model *model)
{
	if (strcmp(f->tried.content, model->content) == 0)
		f->rolling = false;
	f->changed = true;
	f->wakes = true;
	pthread_cond_signal(&f->wake);
}

void follow_serving(struct follow *f, const struct model *model, bool rolled)
{
	LOCK_SCOPE(&f->lock);
	if (rolled || strcmp(f->failed.content, model->content) == 0)
		model_release(&f->failed);
	if (!model_set(&f->serving, model->name, model->content))
		log_warn("out of memory");
	changed(f, model);
	/* Keep `tried` until its result is reported, and while it is in service. */
	if (!f->rolling && strcmp(f->tried.content, model->content) != 0)
		model_release(&f->tried);
}

/* Refuses a content until `until_ms`, forever if 0. Returns false if out of memory. */
static bool refuse(struct refused *refused, const char *content, int64_t until_ms)
{
	struct refused_content *list;

	for (size_t i = 0; i < refused->n; i++) {
		if (strcmp(refused->contents[i].content, content) == 0) {
			refused->contents[i].until_ms = until_ms;
			return true;
		}
	}
	list = array_grow(refused->contents, refused->n, sizeof(*list));
	if (!list)
		return false;
	refused->contents = list;
	list[refused->n] = (struct refused_content){.until_ms = until_ms};
	snprintf(list[refused->n++].content, MODEL_CONTENT_SIZE, "%s", content);
	return true;
}

/* Ends the attempt to serve a version. The version is offered again, unless it is refused. The
 * caller holds f->lock. */
static void end_try(struct follow *f, const struct model *model)
{
	changed(f, model);
	if (strcmp(f->tried.content, model->content) == 0)
		model_release(&f->tried);
}

void follow_not_started(struct follow *f, const struct model *model)
{
	LOCK_SCOPE(&f->lock);
	end_try(f, model);
}

void follow_failed(struct follow *f, const struct model *model, const char *why, bool for_ever)
{
	bool noted;

	LOCK_SCOPE(&f->lock);
	noted = refuse(
		&f->refused, model->content, for_ever ? 0 : clock_monotonic_ms() + REFUSED_MS);
	f->refuses_more = true;
	free(take_pointer(f->why));
	if (!noted || !model_set(&f->failed, model->name, model->content) ||
		!str_copy(&f->why, why))
		log_warn("out of memory");
	if (f->why)
		str_make_utf8(f->why); /* JSON must be UTF-8 */
	end_try(f, model);
}

json_t *follow_pack_failures(struct follow *f)
{
	json_t *list = json_array(), *failed;

	LOCK_SCOPE(&f->lock);
	for (size_t i = 0; i < f->refused.n; i++) {
		const struct refused_content *c = &f->refused.contents[i];

		json_array_append_new(list, json_pack("{s:s, s:I}", "content", c->content,
						    "until_ms", (json_int_t)c->until_ms));
	}
	failed = f->failed.name && f->why ? json_pack("{s:s, s:s, s:s}", "version", f->failed.name,
						    "content", f->failed.content, "why", f->why)
					  : json_null();
	f->refuses_more = false;
	return json_pack("{s:o, s:o}", "refused", list, "failed", failed);
}

bool follow_refuses_more(struct follow *f)
{
	LOCK_SCOPE(&f->lock);
	return f->refuses_more;
}

void follow_unpack_failures(struct follow *f, const json_t *state)
{
	const json_t *failed = json_object_get(state, "failed"), *item;
	const char *version = json_string_value(json_object_get(failed, "version"));
	const char *content = json_string_value(json_object_get(failed, "content"));
	const char *why = json_string_value(json_object_get(failed, "why"));
	size_t i;

	json_array_foreach (json_object_get(state, "refused"), i, item) {
		const char *refused = json_string_value(json_object_get(item, "content"));
		int64_t until_ms = json_integer_value(json_object_get(item, "until_ms"));

		if (refused && !refuse(&f->refused, refused, until_ms))
			log_warn("out of memory");
	}
	if (version && content && why &&
		(!model_set(&f->failed, version, content) || !str_copy(&f->why, why)))
		log_warn("out of memory");
}

bool follow_is_in_vain(struct follow *f)
{
	LOCK_SCOPE(&f->lock);
	return f->missing;
}

bool follow_take(struct follow *f, bool rolls, struct model *model, struct cached *cached)
{
	LOCK_SCOPE(&f->lock);
	if (!f->offers)
		return false;
	*model = f->next;
	*cached = f->cached;
	f->next = (struct model){0};
	f->cached = (struct cached){.lock = -1};
	f->offers = false;
	f->rolling = rolls;
	if (strcmp(f->failed.content, model->content) == 0)
		f->changed = true;
	if (!model_set(&f->tried, model->name, model->content))
		log_warn("out of memory");
	return true;
}
