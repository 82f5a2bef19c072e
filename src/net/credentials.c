#include "net/credentials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "net/aws_config.h"
#include "base/banned.h"

/* Fetched keys are replaced this long before they end, so that no request runs into their end. */
#define REFRESH_BEFORE_NS (5 * 60 * NS_PER_S)

struct credentials_provider {
	bool anonymous;
	struct credentials_fetcher fetcher; /* fetch NULL: the keys never change */

	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t fetched;
	bool fetching;
	bool invalid;
	struct credentials current;
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
	c->expires_at_ns = 0;
}

static int credentials_copy(const struct credentials *from, struct credentials *out)
{
	struct credentials copy = {.expires_at_ns = from->expires_at_ns};

	copy.access_key_id = from->access_key_id ? strdup(from->access_key_id) : NULL;
	copy.secret_access_key = from->secret_access_key ? strdup(from->secret_access_key) : NULL;
	copy.session_token = from->session_token ? strdup(from->session_token) : NULL;
	if (!copy.access_key_id != !from->access_key_id ||
		!copy.secret_access_key != !from->secret_access_key ||
		!copy.session_token != !from->session_token) {
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
	if (provider->fetcher.release)
		provider->fetcher.release(provider->fetcher.cookie);
	credentials_release(&provider->current);
	pthread_cond_destroy(&provider->fetched);
	pthread_mutex_destroy(&provider->lock);
	free(provider);
}

void credentials_provider_freep(struct credentials_provider **provider)
{
	credentials_provider_free(*provider);
	*provider = NULL;
}

static void redact(const struct credentials *c)
{
	log_redact(c->secret_access_key);
	log_redact(c->session_token);
}

int credentials_provider_new_static(struct credentials_provider **out, const char *access_key_id,
	const char *secret_access_key, const char *session_token, struct penstock_error *err)
{
	_cleanup_(
		credentials_provider_freep) struct credentials_provider *provider = provider_new();
	const struct credentials given = {.access_key_id = (char *)access_key_id,
		.secret_access_key = (char *)secret_access_key,
		.session_token = session_token && *session_token ? (char *)session_token : NULL};

	if (!provider || credentials_copy(&given, &provider->current) < 0)
		return error_memory(err);
	redact(&provider->current);
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

	if (!c->access_key_id || provider->invalid)
		return UNUSABLE;
	if (!c->expires_at_ns)
		return FRESH;
	now = clock_wall_ns();
	if (now >= c->expires_at_ns)
		return UNUSABLE;
	return now >= c->expires_at_ns - REFRESH_BEFORE_NS ? AGEING : FRESH;
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
	if (r == 0) {
		redact(&fetched);
		credentials_release(&provider->current);
		provider->current = fetched;
		provider->invalid = false;
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
			return error_prefix(err, "credentials from %s", provider->fetcher.name);
		}
		log_warn("credentials from %s: %s; going on with the present ones",
			provider->fetcher.name, own.message ? own.message : "failed");
		break;
	}
	return credentials_copy(&provider->current, out) < 0 ? error_memory(err) : 0;
}

void credentials_invalidate(struct credentials_provider *provider)
{
	if (!provider || !provider->fetcher.fetch)
		return;
	LOCK_SCOPE(&provider->lock);
	provider->invalid = true;
}

/* ---- what the user, the environment and the files say ---- */

void s3_settings_release(struct s3_settings *settings)
{
	free(settings->endpoint_url);
	free(settings->region);
	credentials_provider_free(settings->credentials);
	*settings = (struct s3_settings){0};
}

static const char *env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static const char *first(const char *a, const char *b)
{
	return a && *a ? a : b;
}

static int pair_complete(
	const char *id, const char *secret, const char *where, struct penstock_error *err)
{
	if (id && secret)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID, "%s give%s %s but no %s; give both or neither",
		where, strcmp(where, "the environment") == 0 ? "s" : "",
		id ? "an access key id" : "a secret access key",
		id ? "secret access key" : "access key id");
}

/* Ways to get keys that a profile may ask for and that are not built in. */
static const char *unsupported_key(const struct aws_config *config, const char *profile)
{
	static const char *const keys[] = {"role_arn", "credential_process", "sso_session",
		"sso_start_url", "web_identity_token_file"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (aws_config_get(config, profile, keys[i]))
			return keys[i];
	}
	return NULL;
}

/* 1: found; 0: the profile has none. */
static int from_profile(struct s3_settings *s, const struct aws_config *config, const char *profile,
	struct penstock_error *err)
{
	const char *id = aws_config_get(config, profile, "aws_access_key_id");
	const char *secret = aws_config_get(config, profile, "aws_secret_access_key");
	const char *other = unsupported_key(config, profile);
	int r;

	if (!id && !secret && other)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"profile \"%s\" gets its credentials by %s, which is not supported; give "
			"keys, or export them with \"aws configure export-credentials\"",
			profile, other);
	if (!id && !secret)
		return 0;
	r = pair_complete(id, secret, "the profile's files", err);
	if (r == 0)
		r = credentials_provider_new_static(&s->credentials, id, secret,
			aws_config_get(config, profile, "aws_session_token"), err);
	s->source = "profile";
	return r < 0 ? r : 1;
}

static int from_environment(struct s3_settings *s, struct penstock_error *err)
{
	const char *id = env("AWS_ACCESS_KEY_ID");
	const char *secret = env("AWS_SECRET_ACCESS_KEY");
	int r;

	if (!id && !secret)
		return 0;
	r = pair_complete(id, secret, "the environment", err);
	if (r == 0)
		r = credentials_provider_new_static(
			&s->credentials, id, secret, env("AWS_SESSION_TOKEN"), err);
	s->source = "environment";
	return r < 0 ? r : 1;
}

static int resolve_credentials(struct s3_settings *s, const struct s3_given *given,
	const struct aws_config *config, const char *profile, struct penstock_error *err)
{
	int r = 0;

	if (given->anonymous) {
		s->source = "anonymous";
		return credentials_provider_new_anonymous(&s->credentials, err);
	}
	if (given->access_key_id || given->secret_access_key) {
		s->source = "given";
		r = pair_complete(
			given->access_key_id, given->secret_access_key, "the options", err);
		return r < 0 ? r
			     : credentials_provider_new_static(&s->credentials,
				       given->access_key_id, given->secret_access_key,
				       given->session_token, err);
	}
	/* A profile that was named here and now goes before what the environment happens to hold. */
	if (given->profile)
		r = from_profile(s, config, profile, err);
	if (r == 0)
		r = from_environment(s, err);
	if (r == 0 && !given->profile)
		r = from_profile(s, config, profile, err);
	if (r != 0)
		return r < 0 ? r : 0;
	return error_set(err, PENSTOCK_E_PERMISSION,
		"no S3 credentials: looked at AWS_ACCESS_KEY_ID and at profile \"%s\" in %s and %s",
		profile, config->credentials_path ? config->credentials_path : "no file",
		config->config_path ? config->config_path : "no file");
}

static char *default_endpoint(const char *region)
{
	char *url = NULL;

	if (asprintf(&url, "https://s3.%s.amazonaws.com%s", region,
		    str_starts(region, "cn-") ? ".cn" : "") < 0)
		return NULL;
	return url;
}

static int resolve_place(struct s3_settings *s, const struct s3_given *given,
	const struct aws_config *config, const char *profile, struct penstock_error *err)
{
	const char *ignore = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
	const char *region = first(
		given->region, first(env("AWS_REGION"), env("AWS_DEFAULT_REGION")));
	const char *endpoint = given->endpoint_url && *given->endpoint_url ? given->endpoint_url
									   : NULL;

	if (!region)
		region = first(aws_config_get(config, profile, "region"), "us-east-1");
	if (!endpoint && !(ignore && strcasecmp(ignore, "true") == 0)) {
		endpoint = first(env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"));
		if (!endpoint)
			endpoint = aws_config_endpoint(config, profile);
	}
	if (endpoint && !str_starts(endpoint, "http://") && !str_starts(endpoint, "https://"))
		return error_set(err, PENSTOCK_E_INVALID,
			"the endpoint \"%s\" is no URL; it must begin with http:// or https://",
			endpoint);
	s->region = strdup(region);
	s->endpoint_url = endpoint ? strdup(endpoint) : default_endpoint(region);
	return s->region && s->endpoint_url ? 0 : error_memory(err);
}

int s3_settings_resolve(
	struct s3_settings *out, const struct s3_given *given, struct penstock_error *err)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	_cleanup_(s3_settings_release) struct s3_settings s = {0};
	const char *named = first(given->profile, env("AWS_PROFILE"));
	const char *profile = named ? named : "default";
	/* With keys in hand a stray AWS_PROFILE does not matter. */
	bool needed = given->profile || !(given->access_key_id || given->anonymous);
	int r = aws_config_load(&config, err);

	if (r == 0 && named && needed && !aws_config_has_profile(&config, named))
		r = error_set(err, PENSTOCK_E_INVALID, "there is no profile \"%s\" in %s or %s",
			named, config.config_path ? config.config_path : "~/.aws/config",
			config.credentials_path ? config.credentials_path : "~/.aws/credentials");
	if (r == 0)
		r = resolve_credentials(&s, given, &config, profile, err);
	if (r == 0)
		r = resolve_place(&s, given, &config, profile, err);
	if (r < 0)
		return r;
	*out = s;
	s = (struct s3_settings){0};
	return 0;
}
