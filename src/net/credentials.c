#include "net/credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/banned.h"

/* Fetched keys are replaced this long before they end, so that no request runs into their end. */
#define REFRESH_BEFORE_NS (5 * 60 * NS_PER_S)
/* After a fetch failed, and the present keys still live: requests are not to wait for each new try. */
#define RETRY_AFTER_NS (15 * NS_PER_S)
/* Nor do fetched keys that are near their end already have others fetched more often than this. */
#define RENEW_AFTER_NS (1 * NS_PER_S)
/* So many generations of fetched secrets stay hidden in logs; older ones have long ended. */
#define HIDDEN_GENERATIONS 8

struct credentials_provider {
	bool anonymous;
	struct credentials_fetcher fetcher; /* fetch NULL: the keys never change */

	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t fetched;
	bool fetching;
	bool renewing; /* a thread of ours is at it */
	bool invalid;
	int64_t retry_ns; /* monotonic; before it ageing keys are not fetched again */
	struct credentials current;
	struct credentials earlier[HIDDEN_GENERATIONS]; /* that log_redact() knows, as a ring */
	unsigned next_earlier;
};

static void wipe(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

void credentials_release(struct credentials *c)
{
	wipe(&c->access_key_id);
	wipe(&c->secret_access_key);
	wipe(&c->session_token);
	wipe(&c->bearer);
	c->expires_at_ns = 0;
}

static int credentials_copy(const struct credentials *from, struct credentials *out)
{
	struct credentials copy = {.expires_at_ns = from->expires_at_ns};

	copy.access_key_id = from->access_key_id ? strdup(from->access_key_id) : NULL;
	copy.secret_access_key = from->secret_access_key ? strdup(from->secret_access_key) : NULL;
	copy.session_token = from->session_token ? strdup(from->session_token) : NULL;
	copy.bearer = from->bearer ? strdup(from->bearer) : NULL;
	if (!copy.access_key_id != !from->access_key_id ||
		!copy.secret_access_key != !from->secret_access_key ||
		!copy.session_token != !from->session_token || !copy.bearer != !from->bearer) {
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
		pthread_cond_init(&provider->fetched, NULL);
	}
	return provider;
}

void credentials_provider_free(struct credentials_provider *provider)
{
	if (!provider)
		return;
	pthread_mutex_lock(&provider->lock);
	while (provider->renewing)
		pthread_cond_wait(&provider->fetched, &provider->lock);
	pthread_mutex_unlock(&provider->lock);
	if (provider->fetcher.release)
		provider->fetcher.release(provider->fetcher.cookie);
	credentials_release(&provider->current);
	for (size_t i = 0; i < HIDDEN_GENERATIONS; i++)
		credentials_release(&provider->earlier[i]);
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

/* What was replaced stays hidden for some generations; then the log forgets it, else its list would grow
 * with every refresh of a long run. */
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

	if (!provider)
		return error_memory(err);
	provider->fetcher = *fetcher;
	*out = provider;
	return 0;
}

bool credentials_anonymous(const struct credentials_provider *provider)
{
	return !provider || provider->anonymous;
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

/* Keys that live some minutes are ageing from the first: a quarter of what is left of them is waited. */
static int64_t renewal_of(const struct credentials *c)
{
	int64_t now = clock_wall_ns();
	int64_t wait = c->expires_at_ns > now ? (c->expires_at_ns - now) / 4 : 0;

	return clock_monotonic_ns() + (wait > RENEW_AFTER_NS ? wait : RENEW_AFTER_NS);
}

/* Called and left with the lock held; without it while the keys are fetched. */
static int refresh(struct credentials_provider *provider, struct penstock_error *err)
{
	struct credentials fetched = {0};
	int r;

	provider->fetching = true;
	pthread_mutex_unlock(&provider->lock);
	r = provider->fetcher.fetch(provider->fetcher.cookie, &fetched, err);
	pthread_mutex_lock(&provider->lock);
	if (r == 0 && redact(&fetched) < 0) {
		credentials_release(&fetched);
		r = error_memory(err);
	}
	if (r == 0) {
		retire(provider, &provider->current);
		provider->current = fetched;
		provider->invalid = false;
		provider->retry_ns = renewal_of(&fetched);
	} else {
		provider->retry_ns = clock_monotonic_ns() + RETRY_AFTER_NS;
	}
	provider->fetching = false;
	pthread_cond_broadcast(&provider->fetched);
	return r;
}

int credentials_get(
	struct credentials_provider *provider, struct credentials *out, struct penstock_error *err)
{
	int r = 0;

	if (credentials_anonymous(provider))
		return error_set(
			err, PENSTOCK_E_PERMISSION, "there are no credentials to sign with");
	LOCK_SCOPE(&provider->lock);
	while (provider->fetcher.fetch && freshness_of(provider) != FRESH) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

		if (provider->fetching) {
			if (freshness_of(provider) == AGEING)
				break;
			pthread_cond_wait(&provider->fetched, &provider->lock);
			continue;
		}
		r = refresh(provider, &own);
		if (r == 0)
			break;
		/* Keys that still live are better than none. */
		if (freshness_of(provider) == UNUSABLE) {
			error_move(err, &own);
			return error_prefix(
				err, "cannot get credentials from %s", provider->fetcher.name);
		}
		log_warn("credentials from %s: %s; going on with the present ones",
			provider->fetcher.name, own.message ? own.message : "failed");
		break;
	}
	return credentials_copy(&provider->current, out) < 0 ? error_memory(err) : 0;
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

/* A fetch that fails is told by the next credentials_get(). */
static void *renew(void *arg)
{
	struct credentials_provider *provider = arg;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	LOCK_SCOPE(&provider->lock);
	while (provider->fetching)
		pthread_cond_wait(&provider->fetched, &provider->lock);
	if (freshness_of(provider) == UNUSABLE && refresh(provider, &err) < 0)
		log_debug("credentials from %s: %s", provider->fetcher.name,
			err.message ? err.message : "failed");
	provider->renewing = false;
	pthread_cond_broadcast(&provider->fetched);
	return NULL;
}

bool credentials_refused(struct credentials_provider *provider, const struct credentials *refused)
{
	pthread_t thread;

	if (credentials_anonymous(provider) || !provider->fetcher.fetch)
		return false;
	LOCK_SCOPE(&provider->lock);
	if (!same(&provider->current, refused))
		return true;
	provider->invalid = true;
	if (!provider->renewing) {
		provider->renewing = pthread_create(&thread, NULL, renew, provider) == 0;
		if (provider->renewing)
			pthread_detach(thread);
	}
	return provider->renewing;
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
