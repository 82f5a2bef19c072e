#include "net/credentials/credentials.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/credentials/google.h"
#include "net/credentials/sources.h"

/* Fetched keys are replaced this long before they expire, so that no request uses expired keys. */
#define REFRESH_BEFORE_NS (5 * 60 * NS_PER_S)
/* Pause after a failed fetch while the current keys are still valid, so that requests do not wait
 * for every retry. */
#define RETRY_AFTER_NS (15 * NS_PER_S)
/* Minimum time between fetches of keys that are close to expiry from the start. */
#define RENEW_AFTER_NS (1 * NS_PER_S)
/* Interval between checks of the waiters' cancel flags. */
#define POLL_MS 50

struct credentials_provider {
	bool anonymous;
	struct credentials_fetcher fetcher; /* fetch is NULL if the keys never change */

	atomic_int stop; /* cancels the current fetch: its keys are no longer needed */

	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t fetched;
	bool fetching; /* `thread` is fetching */
	bool started; /* `thread` has to be joined */
	pthread_t thread;
	bool renewing; /* the keys are needed although no caller waits */
	bool ending; /* the provider is being freed */
	unsigned waiting;
	uint64_t fetches; /* number of completed fetches */
	/* error of the last fetch; its code is 0 if the fetch succeeded */
	struct penstock_error failed;
	bool invalid;
	int64_t retry_ns; /* monotonic; AGEING keys are not fetched again before this time */
	struct credentials current;
	/* a ring of replaced credentials that log_redact() still hides */
	struct credentials earlier[HIDDEN_GENERATIONS];
	unsigned next_earlier;
};

void credentials_release(struct credentials *c)
{
	str_wipe(c->access_key_id);
	str_wipe(c->secret_access_key);
	str_wipe(c->session_token);
	str_wipe(c->bearer);
	*c = (struct credentials){0};
}

static int credentials_copy(const struct credentials *from, struct credentials *out)
{
	struct credentials copy = {.expires_at_ns = from->expires_at_ns};

	if (!str_copy(&copy.access_key_id, from->access_key_id) ||
		!str_copy(&copy.secret_access_key, from->secret_access_key) ||
		!str_copy(&copy.session_token, from->session_token) ||
		!str_copy(&copy.bearer, from->bearer)) {
		credentials_release(&copy);
		return -1;
	}
	*out = copy;
	return 0;
}

static struct credentials_provider *provider_new(void)
{
	struct credentials_provider *provider = calloc(1, sizeof(*provider));

	if (provider) {
		pthread_mutex_init(&provider->lock, NULL);
		clock_cond_init(&provider->fetched);
	}
	return provider;
}

void credentials_provider_free(struct credentials_provider *provider)
{
	if (!provider)
		return;
	pthread_mutex_lock(&provider->lock);
	provider->ending = true;
	atomic_store(&provider->stop, 1);
	pthread_mutex_unlock(&provider->lock);
	/* Join before the process exits: OpenSSL frees a thread's state when the thread ends. */
	if (provider->started)
		pthread_join(provider->thread, NULL);
	if (provider->fetcher.release)
		provider->fetcher.release(provider->fetcher.cookie);
	credentials_release(&provider->current);
	for (size_t i = 0; i < HIDDEN_GENERATIONS; i++)
		credentials_release(&provider->earlier[i]);
	penstock_error_release(&provider->failed);
	pthread_cond_destroy(&provider->fetched);
	pthread_mutex_destroy(&provider->lock);
	free(provider);
}

void credentials_provider_freep(struct credentials_provider **provider)
{
	credentials_provider_free(*provider);
	*provider = NULL;
}

static int redact(const struct credentials *c)
{
	return log_redact(c->secret_access_key) < 0 || log_redact(c->session_token) < 0 ||
			       log_redact(c->bearer) < 0
		       ? -1
		       : 0;
}

/* Keeps replaced secrets hidden for some generations, then removes them from the log's list, which
 * would otherwise grow with every refresh of a long run. */
static void retire(struct credentials_provider *provider, struct credentials *old)
{
	struct credentials *oldest = &provider->earlier[provider->next_earlier];

	provider->next_earlier = (provider->next_earlier + 1) % HIDDEN_GENERATIONS;
	log_redact_forget(oldest->secret_access_key);
	log_redact_forget(oldest->session_token);
	log_redact_forget(oldest->bearer);
	credentials_release(oldest);
	*oldest = *old;
	*old = (struct credentials){0};
}

int hidden_tokens_add(struct hidden_tokens *hidden, const char *token, size_t len)
{
	char **oldest = &hidden->ring[hidden->n % HIDDEN_GENERATIONS];
	const char *last = hidden->n ? hidden->ring[(hidden->n - 1) % HIDDEN_GENERATIONS] : NULL;
	char *copy;

	if (last && strlen(last) == len && memcmp(last, token, len) == 0)
		return 0;
	copy = strndup(token, len);
	if (!copy || log_redact(copy) < 0) {
		str_wipe(copy);
		return -1;
	}
	log_redact_forget(*oldest);
	str_wipe(*oldest);
	*oldest = copy;
	hidden->n++;
	return 0;
}

void hidden_tokens_release(struct hidden_tokens *hidden)
{
	for (size_t i = 0; i < HIDDEN_GENERATIONS; i++)
		str_wipe(hidden->ring[i]);
}

int credentials_provider_new_static(struct credentials_provider **out, const char *access_key_id,
	const char *secret_access_key, const char *session_token, struct penstock_error *err)
{
	_cleanup_(
		credentials_provider_freep) struct credentials_provider *provider = provider_new();
	const struct credentials given = {.access_key_id = (char *)access_key_id,
		.secret_access_key = (char *)secret_access_key,
		.session_token = session_token && *session_token ? (char *)session_token : NULL};

	if (!provider || credentials_copy(&given, &provider->current) < 0 ||
		redact(&provider->current) < 0)
		return error_memory(err);
	*out = take_pointer(provider);
	return 0;
}

int credential_source_pair(struct credentials_provider **out, const char *id, const char *secret,
	const char *session_token, const char *where, struct penstock_error *err)
{
	int r;

	if (!id && !secret)
		return 0;
	if (!id || !secret)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use the keys of %s: there is %s but no %s; give both or neither",
			where, id ? "an access key id" : "a secret access key",
			id ? "secret access key" : "access key id");
	r = credentials_provider_new_static(out, id, secret, session_token, err);
	return r < 0 ? r : 1;
}

int credentials_provider_new_anonymous(
	struct credentials_provider **out, struct penstock_error *err)
{
	struct credentials_provider *provider = provider_new();

	if (!provider)
		return error_memory(err);
	provider->anonymous = true;
	*out = provider;
	return 0;
}

int credentials_provider_new_fetcher(struct credentials_provider **out,
	const struct credentials_fetcher *fetcher, struct penstock_error *err)
{
	struct credentials_provider *provider = provider_new();

	if (!provider) {
		if (fetcher->release)
			fetcher->release(fetcher->cookie);
		return error_memory(err);
	}
	provider->fetcher = *fetcher;
	*out = provider;
	return 0;
}

bool credentials_anonymous(const struct credentials_provider *provider)
{
	return !provider || provider->anonymous;
}

bool credentials_renewable(const struct credentials_provider *provider)
{
	return provider && provider->fetcher.fetch;
}

enum freshness { FRESH, AGEING, UNUSABLE };

static enum freshness freshness_of(const struct credentials_provider *provider)
{
	const struct credentials *c = &provider->current;
	int64_t now;

	if ((!c->access_key_id && !c->bearer) || provider->invalid)
		return UNUSABLE;
	if (!c->expires_at_ns)
		return FRESH;
	now = clock_wall_ns();
	if (now >= c->expires_at_ns)
		return UNUSABLE;
	return now >= c->expires_at_ns - REFRESH_BEFORE_NS &&
			       clock_monotonic_ns() >= provider->retry_ns
		       ? AGEING
		       : FRESH;
}

/* Returns the earliest time of the next fetch: after a quarter of the remaining life, because keys
 * that are valid only for minutes are AGEING from the start. */
static int64_t renewal_of(const struct credentials *c)
{
	int64_t now = clock_wall_ns();
	int64_t wait = c->expires_at_ns > now ? (c->expires_at_ns - now) / 4 : 0;

	return clock_monotonic_ns() + (wait > RENEW_AFTER_NS ? wait : RENEW_AFTER_NS);
}

/* Under the lock: stores the outcome of a fetch for all waiters. */
static void take_fetched(struct credentials_provider *provider, struct credentials *fetched,
	struct penstock_error *err)
{
	if (err->code == 0 && redact(fetched) < 0)
		error_memory(err);
	if (err->code == 0) {
		retire(provider, &provider->current);
		provider->current = *fetched;
		provider->invalid = false;
		provider->retry_ns = renewal_of(fetched);
	} else {
		credentials_release(fetched);
		provider->retry_ns = clock_monotonic_ns() + RETRY_AFTER_NS;
	}
	error_move(&provider->failed, err);
}

/* Returns true if a cancelled fetch is needed again, because a store has meanwhile rejected the
 * current keys. */
static bool is_needed_again(struct credentials_provider *provider)
{
	LOCK_SCOPE(&provider->lock);
	return !provider->ending && provider->renewing && atomic_exchange(&provider->stop, 0);
}

static void *fetch_main(void *arg)
{
	struct credentials_provider *provider = arg;
	struct credentials fetched = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	while ((r = provider->fetcher.fetch(
			provider->fetcher.cookie, &provider->stop, &fetched, &err)) < 0 &&
		is_needed_again(provider))
		penstock_error_release(&err);
	LOCK_SCOPE(&provider->lock);
	/* A fetch that was cancelled because all waiters had left is not an error. */
	if (r < 0 && atomic_load(&provider->stop))
		penstock_error_release(&err);
	else
		take_fetched(provider, &fetched, &err);
	provider->fetches++;
	provider->fetching = false;
	provider->renewing = false;
	pthread_cond_broadcast(&provider->fetched);
	return NULL;
}

/* Under the lock: starts a fetch on its own thread, so that waiters can leave. */
static int fetch_begin(struct credentials_provider *provider, struct penstock_error *err)
{
	int r;

	/* Does not block: the previous thread no longer needs the lock. */
	if (provider->started)
		pthread_join(provider->thread, NULL);
	atomic_store(&provider->stop, 0);
	r = thread_start(&provider->thread, "credentials", fetch_main, provider, err);
	provider->started = provider->fetching = r == 0;
	return r;
}

static bool is_set(const atomic_int *flag)
{
	return flag && atomic_load(flag);
}

/* Under the lock: waits until the current fetch has ended, or until the waiter is cancelled or
 * times out. */
static int fetch_wait(struct credentials_provider *provider,
	const struct credentials_patience *patience, struct penstock_error *err)
{
	uint64_t before = provider->fetches;
	int r = 0;

	provider->waiting++;
	while (r == 0 && provider->fetches == before) {
		if (is_set(patience->cancel) || is_set(patience->cancel_all))
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		else if (patience->deadline_ms && clock_monotonic_ms() >= patience->deadline_ms)
			r = error_set(err, PENSTOCK_E_TIMEOUT, "the deadline passed");
		else
			clock_cond_wait_ms(&provider->fetched, &provider->lock, POLL_MS);
	}
	provider->waiting--;
	if (r < 0 && provider->fetching && !provider->waiting && !provider->renewing)
		atomic_store(&provider->stop, 1);
	return r;
}

/* Under the lock: returns the outcome of the fetch. */
static int fetch_outcome(struct credentials_provider *provider, struct penstock_error *err)
{
	const struct penstock_error *failed = &provider->failed;
	const char *why = failed->message ? failed->message : "failed";

	if (!failed->code)
		return 0;
	if (freshness_of(provider) == UNUSABLE) {
		error_set(err, failed->code, "cannot get credentials from %s: %s",
			provider->fetcher.name, why);
		if (err)
			err->http_status = failed->http_status;
		return -(int)failed->code;
	}
	/* The current keys are still valid, so their use continues. */
	log_warn(
		"cannot refresh the credentials from %s: %s; continuing with the current credentials",
		provider->fetcher.name, why);
	return 0;
}

/* Under the lock: waits until the current keys can be used. */
static int ensure_usable(struct credentials_provider *provider,
	const struct credentials_patience *patience, struct penstock_error *err)
{
	for (;;) {
		enum freshness freshness = freshness_of(provider);
		/* If earlier waiters cancelled this fetch, later waiters ignore its outcome. */
		bool given_up = provider->fetching && atomic_load(&provider->stop);
		int r = 0;

		if (freshness == FRESH || (freshness == AGEING && provider->fetching))
			return 0;
		if (!provider->fetching)
			r = fetch_begin(provider, err);
		if (r < 0 && freshness == AGEING) {
			provider->retry_ns = clock_monotonic_ns() + RETRY_AFTER_NS;
			penstock_error_release(err);
			return 0;
		}
		if (r == 0)
			r = fetch_wait(provider, patience, err);
		if (r < 0)
			return r;
		if (!given_up)
			return fetch_outcome(provider, err);
	}
}

int credentials_get_within(struct credentials_provider *provider,
	const struct credentials_patience *patience, struct credentials *out,
	struct penstock_error *err)
{
	if (credentials_anonymous(provider))
		return error_set(err, PENSTOCK_E_PERMISSION,
			"cannot sign a request: there are no credentials");
	LOCK_SCOPE(&provider->lock);
	if (provider->fetcher.fetch) {
		int r = ensure_usable(provider, patience, err);

		if (r < 0)
			return r;
	}
	return credentials_copy(&provider->current, out) < 0 ? error_memory(err) : 0;
}

int credentials_get(
	struct credentials_provider *provider, struct credentials *out, struct penstock_error *err)
{
	return credentials_get_within(provider, &(struct credentials_patience){0}, out, err);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same(const struct credentials *a, const struct credentials *b)
{
	return same_text(a->access_key_id, b->access_key_id) &&
	       same_text(a->session_token, b->session_token) && same_text(a->bearer, b->bearer);
}

/* If this fetch fails, the next credentials_get() fetches again, and reports the error. */
bool credentials_refused(
	struct credentials_provider *provider, const struct credentials *refused, bool *pending)
{
	*pending = false;
	if (credentials_anonymous(provider) || !provider->fetcher.fetch)
		return false;
	LOCK_SCOPE(&provider->lock);
	*pending = provider->fetching || !same(&provider->current, refused);
	if (!same(&provider->current, refused))
		return true;
	provider->invalid = true;
	if (!provider->fetching && fetch_begin(provider, NULL) < 0)
		return false;
	provider->renewing = true;
	return true;
}

bool credentials_renewed(struct credentials_provider *provider, struct credentials *present)
{
	struct credentials copy = {0};

	if (credentials_anonymous(provider) || !provider->fetcher.fetch)
		return false;
	LOCK_SCOPE(&provider->lock);
	if (freshness_of(provider) == UNUSABLE || same(&provider->current, present) ||
		credentials_copy(&provider->current, &copy) < 0)
		return false;
	credentials_release(present);
	*present = copy;
	return true;
}

void credentials_invalidate(struct credentials_provider *provider)
{
	if (!provider || !provider->fetcher.fetch)
		return;
	LOCK_SCOPE(&provider->lock);
	provider->invalid = true;
}

void s3_settings_release(struct s3_settings *settings)
{
	free(settings->endpoint_url);
	free(settings->region);
	credentials_provider_free(settings->credentials);
	google_key_free(settings->key);
	free(settings->project);
	*settings = (struct s3_settings){0};
}
