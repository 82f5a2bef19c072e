/* Sources of keys, region and endpoint, and the precedence between them. */
#include "net/credentials/credentials.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "net/credentials/aws_config.h"

static char directory[] = "/tmp/penstock-credentials-XXXXXX";

static const char config_text[] = "# a comment\n"
				  "[default]\n"
				  "region = eu-west-1\n"
				  "\n"
				  "[profile lab]\n"
				  "region=us-west-2   # near\n"
				  "endpoint_url = http://lab:9000\n"
				  "[profile \"two words\"]\n"
				  "services = local\n"
				  "endpoint_url = http://not-this\n"
				  "s3 =\n"
				  "    addressing_style = path\n"
				  "[services local]\n"
				  "s3 =\n"
				  "  endpoint_url = http://127.0.0.1:1\n"
				  "dynamodb =\n"
				  "  endpoint_url = http://127.0.0.1:2\n"
				  "[profile role]\n"
				  "role_arn = arn:aws:iam::1:role/x\n";

static const char credentials_text[] = "[default]\n"
				       "aws_access_key_id = DEFAULTID\n"
				       "aws_secret_access_key = default/secret+key=\n"
				       "[lab]\n"
				       "aws_access_key_id=LABID\n"
				       "aws_secret_access_key=labsecret#1\n"
				       "aws_session_token=labtoken\n";

static void write_file(const char *name, const char *text)
{
	char *path = path_join(directory, name);

	assert_int_equal(0, fs_write_atomic(path, text, strlen(text), 0600, NULL));
	free(path);
}

static int set_up(void **state)
{
	static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3",
		"AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"};
	char *path;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	setenv("HOME", directory, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	path = path_join(directory, ".aws");
	fs_mkdirs(path, 0700, NULL);
	free(path);
	write_file(".aws/config", config_text);
	write_file(".aws/credentials", credentials_text);
	return 0;
}

static struct s3_settings resolve(const struct store_place *given)
{
	struct s3_settings s = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (s3_settings_resolve(&s, given, &err) < 0)
		fail_msg("%s", err.message);
	return s;
}

static void assert_keys(const struct s3_settings *s, const char *id, const char *secret)
{
	struct credentials c = {0};

	assert_int_equal(0, credentials_get(s->credentials, &c, NULL));
	assert_string_equal(id, c.access_key_id);
	assert_string_equal(secret, c.secret_access_key);
	credentials_release(&c);
}

static void assert_refused(
	const struct store_place *given, enum penstock_code code, const char *says)
{
	struct s3_settings s = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(-(int)code, s3_settings_resolve(&s, given, &err));
	if (!strstr(err.message, says))
		fail_msg("the message \"%s\" does not contain \"%s\"", err.message, says);
	penstock_error_release(&err);
}

static void the_default_profile_is_used_where_nothing_else_is_said(void **state)
{
	struct s3_settings s = resolve(&(struct store_place){0});

	(void)state;
	assert_keys(&s, "DEFAULTID", "default/secret+key=");
	assert_string_equal("eu-west-1", s.region);
	assert_string_equal("https://s3.eu-west-1.amazonaws.com", s.endpoint_url);
	assert_string_equal("profile", s.source);
	s3_settings_release(&s);
}

static void a_profile_brings_its_keys_token_region_and_endpoint(void **state)
{
	struct s3_settings s;
	struct credentials c = {0};

	(void)state;
	setenv("AWS_PROFILE", "lab", 1);

	s = resolve(&(struct store_place){0});

	assert_keys(&s, "LABID", "labsecret#1");
	assert_int_equal(0, credentials_get(s.credentials, &c, NULL));
	assert_string_equal("labtoken", c.session_token);
	assert_string_equal("us-west-2", s.region);
	assert_string_equal("http://lab:9000", s.endpoint_url);
	credentials_release(&c);
	s3_settings_release(&s);
}

static void a_services_section_names_the_endpoint_of_s3_only(void **state)
{
	struct s3_settings s = resolve(
		&(struct store_place){.profile = "two words", .anonymous = true});

	(void)state;
	assert_string_equal("http://127.0.0.1:1", s.endpoint_url);
	assert_true(credentials_anonymous(s.credentials));
	s3_settings_release(&s);
}

static void the_environment_goes_before_the_files(void **state)
{
	struct s3_settings s;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "ENVID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "envsecret", 1);
	setenv("AWS_DEFAULT_REGION", "env-1", 1);
	setenv("AWS_ENDPOINT_URL", "http://general", 1);
	setenv("AWS_ENDPOINT_URL_S3", "http://for-s3", 1);

	s = resolve(&(struct store_place){0});

	assert_keys(&s, "ENVID", "envsecret");
	assert_string_equal("env-1", s.region);
	assert_string_equal("http://for-s3", s.endpoint_url);
	s3_settings_release(&s);
}

static void what_is_given_goes_before_everything(void **state)
{
	struct s3_settings s;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "ENVID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "envsecret", 1);
	setenv("AWS_REGION", "env-1", 1);
	setenv("AWS_ENDPOINT_URL", "http://general", 1);
	setenv("AWS_PROFILE", "nobody", 1);

	s = resolve(&(struct store_place){.access_key_id = "GIVEN",
		.secret_access_key = "given-secret",
		.region = "r",
		.endpoint_url = "http://given"});

	assert_keys(&s, "GIVEN", "given-secret");
	assert_string_equal("r", s.region);
	assert_string_equal("http://given", s.endpoint_url);
	s3_settings_release(&s);
}

static void a_profile_given_by_name_goes_before_the_environment(void **state)
{
	struct s3_settings s;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "ENVID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "envsecret", 1);

	s = resolve(&(struct store_place){.profile = "lab"});

	assert_keys(&s, "LABID", "labsecret#1");
	s3_settings_release(&s);
}

static void mistakes_are_named_with_their_place(void **state)
{
	(void)state;
	assert_refused(&(struct store_place){.profile = "nobody"}, PENSTOCK_E_INVALID, "nobody");
	assert_refused(&(struct store_place){.profile = "role"}, PENSTOCK_E_INVALID, "role_arn");
	assert_refused(&(struct store_place){.access_key_id = "A"}, PENSTOCK_E_INVALID, "secret");
	assert_refused(&(struct store_place){.endpoint_url = "lab:9000", .profile = "lab"},
		PENSTOCK_E_INVALID, "http://");
	setenv("AWS_ACCESS_KEY_ID", "ENVID", 1);
	assert_refused(&(struct store_place){0}, PENSTOCK_E_INVALID, "secret");
	unsetenv("AWS_ACCESS_KEY_ID");
	write_file(".aws/config", "[default]\nregion = x\nnonsense\n");
	assert_refused(&(struct store_place){0}, PENSTOCK_E_INVALID, "config:3");
	write_file(".aws/config", "region = x\n");
	assert_refused(&(struct store_place){0}, PENSTOCK_E_INVALID, "config:1");
	write_file(".aws/config", "\n[default\n");
	assert_refused(&(struct store_place){0}, PENSTOCK_E_INVALID, "config:2");
}

static void missing_credentials_say_where_they_were_looked_for(void **state)
{
	(void)state;
	setenv("AWS_CONFIG_FILE", "~/nothing", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials", 1);

	assert_refused(&(struct store_place){0}, PENSTOCK_E_PERMISSION, "/nowhere/credentials");
	assert_refused(&(struct store_place){0}, PENSTOCK_E_PERMISSION, directory);
}

/* If the file counted as missing, keys of another source would be used. */
static void a_file_that_cannot_be_opened_is_not_missing(void **state)
{
	char *loop = path_join(directory, "loop");
	char *below_file = path_join(directory, ".aws/credentials/none");
	struct s3_settings s;

	(void)state;
	assert_int_equal(0, symlink("loop", loop));
	setenv("AWS_CONFIG_FILE", below_file, 1);
	s = resolve(&(struct store_place){0});
	assert_keys(&s, "DEFAULTID", "default/secret+key=");
	s3_settings_release(&s);

	setenv("AWS_CONFIG_FILE", loop, 1);
	assert_refused(&(struct store_place){0}, PENSTOCK_E_INVALID, loop);
	free(loop);
	free(below_file);
}

static void secrets_are_masked_in_the_log(void **state)
{
	struct s3_settings s = resolve(&(struct store_place){.profile = "lab"});
	struct buf line = BUF_INIT(1000);

	(void)state;
	log_redact_into(&line, "keys LABID labsecret#1 labtoken");

	assert_string_equal("keys LABID *** ***", buf_str(&line));
	buf_release(&line);
	s3_settings_release(&s);
}

struct issuer {
	atomic_uint calls;
	int64_t life_ns;
	atomic_llong takes_ms;
	bool fail;
};

static int issue(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	struct issuer *issuer = cookie;
	unsigned n = atomic_fetch_add(&issuer->calls, 1) + 1;

	for (int64_t ms = atomic_load(&issuer->takes_ms); ms > 0; ms -= 5) {
		if (atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "given up");
		clock_sleep_ms(5);
	}
	if (issuer->fail)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "no answer");
	clock_sleep_ms(20);
	out->expires_at_ns = clock_wall_ns() + issuer->life_ns;
	if (asprintf(&out->access_key_id, "ID%u", n) < 0)
		return error_memory(err);
	out->secret_access_key = strdup("issued-secret");
	return 0;
}

static void *get_keys(void *arg)
{
	struct credentials c = {0};

	assert_int_equal(0, credentials_get(arg, &c, NULL));
	assert_string_equal("ID1", c.access_key_id);
	credentials_release(&c);
	return NULL;
}

static void keys_that_expire_are_fetched_once_for_all_threads(void **state)
{
	struct issuer issuer = {.life_ns = 3600 * NS_PER_S};
	struct credentials_provider *provider = NULL;
	pthread_t threads[8];
	struct credentials c = {0};

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, get_keys, provider);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(1, issuer.calls);

	credentials_invalidate(provider);
	assert_int_equal(0, credentials_get(provider, &c, NULL));
	assert_string_equal("ID2", c.access_key_id);
	credentials_release(&c);
	credentials_provider_free(provider);
}

static void keys_near_their_end_are_replaced_but_still_serve(void **state)
{
	struct issuer issuer = {.life_ns = 6 * NS_PER_S};
	struct credentials_provider *provider = NULL;
	struct credentials c = {0};

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));
	assert_int_equal(0, credentials_get(provider, &c, NULL));
	credentials_release(&c);
	clock_sleep_ms(1600); /* a quarter of their lifetime */
	issuer.fail = true;
	log_set_level(LOG_QUIET);

	assert_int_equal(0, credentials_get(provider, &c, NULL));

	log_set_level(LOG_INFO);
	assert_string_equal("ID1", c.access_key_id);
	assert_int_equal(2, issuer.calls);
	credentials_release(&c);
	credentials_provider_free(provider);
}

/* If a service issues keys that last only some minutes, it is not asked again for each request. */
static void keys_that_are_born_near_their_end_are_fetched_once_for_many_requests(void **state)
{
	struct issuer issuer = {.life_ns = 4 * NS_PER_S};
	struct credentials_provider *provider = NULL;
	struct credentials c = {0};

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));
	for (int i = 0; i < 20; i++) {
		assert_int_equal(0, credentials_get(provider, &c, NULL));
		assert_string_equal("ID1", c.access_key_id);
		credentials_release(&c);
	}
	assert_int_equal(1, issuer.calls);

	/* New keys arrive before the old ones expire. */
	clock_sleep_ms(1100);
	assert_int_equal(0, credentials_get(provider, &c, NULL));
	assert_string_equal("ID2", c.access_key_id);
	credentials_release(&c);
	credentials_provider_free(provider);
}

/* Each fetch returns a different secret, as those of real services do. */
static int issue_token(
	void *cookie, const atomic_int *cancel, struct credentials *out, struct penstock_error *err)
{
	struct issuer *issuer = cookie;

	(void)cancel;
	out->expires_at_ns = clock_wall_ns() + 3600 * NS_PER_S;
	if (asprintf(&out->bearer, "token-number-%06u", atomic_fetch_add(&issuer->calls, 1)) < 0)
		return error_memory(err);
	return 0;
}

/* A run that takes weeks fetches thousands of keys. */
static void the_list_of_hidden_secrets_does_not_grow_with_every_refresh(void **state)
{
	struct issuer issuer = {0};
	struct credentials_provider *provider = NULL;
	struct buf line = BUF_INIT(1000);
	size_t before = log_redact_count();

	(void)state;
	assert_int_equal(0,
		credentials_provider_new_fetcher(&provider,
			&(struct credentials_fetcher){"a test", issue_token, NULL, &issuer}, NULL));

	for (int i = 0; i < 100; i++) {
		struct credentials c = {0};

		assert_int_equal(0, credentials_get(provider, &c, NULL));
		credentials_release(&c);
		credentials_invalidate(provider);
	}

	/* Nine secrets, in ten encodings each. */
	assert_in_range(log_redact_count(), before, before + 90);
	log_redact_into(&line, "token-number-000099 token-number-000095");
	assert_string_equal("*** ***", buf_str(&line));
	buf_release(&line);
	credentials_provider_free(provider);
}

/* A hook on the engine's thread must not wait for a fetch. */
static void renewed_credentials_are_given_without_fetching(void **state)
{
	struct issuer issuer = {0};
	struct credentials_provider *provider = NULL;
	struct credentials mine = {0}, other = {0};

	(void)state;
	assert_int_equal(0,
		credentials_provider_new_fetcher(&provider,
			&(struct credentials_fetcher){"a test", issue_token, NULL, &issuer}, NULL));
	assert_int_equal(0, credentials_get(provider, &mine, NULL));

	assert_false(credentials_renewed(provider, &mine));
	credentials_invalidate(provider);
	assert_false(credentials_renewed(provider, &mine));
	assert_int_equal(0, credentials_get(provider, &other, NULL));
	assert_true(credentials_renewed(provider, &mine));

	assert_string_equal(other.bearer, mine.bearer);
	assert_int_equal(2, issuer.calls);
	credentials_release(&mine);
	credentials_release(&other);
	credentials_provider_free(provider);
}

/* During the fetch, the engine's thread continues and checks from time to time whether new keys
 * have arrived. */
static void refused_credentials_are_replaced_in_the_background(void **state)
{
	struct issuer issuer = {0};
	struct credentials_provider *provider = NULL;
	struct credentials mine = {0}, first = {0};
	int64_t deadline = clock_monotonic_ms() + 60000;
	bool pending;

	(void)state;
	assert_int_equal(0,
		credentials_provider_new_fetcher(&provider,
			&(struct credentials_fetcher){"a test", issue_token, NULL, &issuer}, NULL));
	assert_int_equal(0, credentials_get(provider, &mine, NULL));
	assert_int_equal(0, credentials_get(provider, &first, NULL));

	for (int i = 0; i < 10; i++) {
		assert_true(credentials_refused(provider, &first, &pending));
		assert_int_equal(pending, i > 0);
	}
	while (!credentials_renewed(provider, &mine) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_true(credentials_refused(provider, &first, &pending) && pending);

	assert_string_equal("token-number-000001", mine.bearer);
	assert_int_equal(2, issuer.calls);
	credentials_release(&mine);
	credentials_release(&first);
	credentials_provider_free(provider);
}

static void a_source_that_fails_is_named(void **state)
{
	struct issuer issuer = {.fail = true};
	struct credentials_provider *provider = NULL;
	struct credentials c = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));

	assert_int_equal(-(int)PENSTOCK_E_UNAVAILABLE, credentials_get(provider, &c, &err));

	assert_non_null(strstr(err.message, "no answer"));
	penstock_error_release(&err);
	credentials_provider_free(provider);
}

struct asker {
	struct credentials_provider *provider;
	atomic_int cancel;
	int64_t deadline_ms;
	int r;
	int64_t ended_ms;
	struct penstock_error err;
	pthread_t thread;
};

static void *ask(void *arg)
{
	struct asker *a = arg;
	struct credentials c = {0};

	a->r = credentials_get_within(a->provider,
		&(struct credentials_patience){.cancel = &a->cancel, .deadline_ms = a->deadline_ms},
		&c, &a->err);
	a->ended_ms = clock_monotonic_ms();
	credentials_release(&c);
	return NULL;
}

static void a_fetch_that_fails_is_told_to_all_who_waited_for_it(void **state)
{
	struct issuer issuer = {.fail = true, .takes_ms = 500};
	struct credentials_provider *provider = NULL;
	struct asker askers[6];

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));

	for (int i = 0; i < 6; i++) {
		askers[i] = (struct asker){.provider = provider};
		pthread_create(&askers[i].thread, NULL, ask, &askers[i]);
	}
	for (int i = 0; i < 6; i++) {
		pthread_join(askers[i].thread, NULL);
		assert_int_equal(-(int)PENSTOCK_E_UNAVAILABLE, askers[i].r);
		assert_non_null(strstr(askers[i].err.message, "no answer"));
		penstock_error_release(&askers[i].err);
	}

	assert_int_equal(1, issuer.calls);
	credentials_provider_free(provider);
}

static void who_gives_up_leaves_the_fetch_to_those_who_wait_on(void **state)
{
	struct issuer issuer = {.life_ns = 3600 * NS_PER_S, .takes_ms = 600};
	struct credentials_provider *provider = NULL;
	struct asker leaves = {0}, late = {0}, stays = {0};

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));
	leaves.provider = late.provider = stays.provider = provider;
	late.deadline_ms = clock_monotonic_ms() + 200;
	pthread_create(&leaves.thread, NULL, ask, &leaves);
	pthread_create(&late.thread, NULL, ask, &late);
	pthread_create(&stays.thread, NULL, ask, &stays);
	clock_sleep_ms(100);
	atomic_store(&leaves.cancel, 1);
	pthread_join(leaves.thread, NULL);
	pthread_join(late.thread, NULL);
	pthread_join(stays.thread, NULL);

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, leaves.r);
	assert_int_equal(-(int)PENSTOCK_E_TIMEOUT, late.r);
	assert_int_equal(0, stays.r);
	assert_true(leaves.ended_ms < stays.ended_ms && late.ended_ms < stays.ended_ms);
	assert_int_equal(1, issuer.calls);
	penstock_error_release(&leaves.err);
	penstock_error_release(&late.err);
	credentials_provider_free(provider);
}

/* The next caller starts a new fetch, although the old one may still be running. */
static void a_fetch_that_all_gave_up_is_ended_and_says_nothing_to_others(void **state)
{
	struct issuer issuer = {.life_ns = 3600 * NS_PER_S, .takes_ms = 3600000};
	struct credentials_provider *provider = NULL;
	struct asker leaves = {0};
	struct credentials c = {0};

	(void)state;
	assert_int_equal(
		0, credentials_provider_new_fetcher(&provider,
			   &(struct credentials_fetcher){"a test", issue, NULL, &issuer}, NULL));
	leaves.provider = provider;
	pthread_create(&leaves.thread, NULL, ask, &leaves);
	clock_sleep_ms(100);
	atomic_store(&leaves.cancel, 1);
	pthread_join(leaves.thread, NULL);
	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, leaves.r);
	penstock_error_release(&leaves.err);
	while (atomic_load(&issuer.calls) < 1)
		clock_sleep_ms(1);

	atomic_store(&issuer.takes_ms, 0);
	assert_int_equal(0, credentials_get(provider, &c, NULL));

	assert_string_equal("ID2", c.access_key_id);
	credentials_release(&c);
	credentials_provider_free(provider);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			the_default_profile_is_used_where_nothing_else_is_said, set_up),
		cmocka_unit_test_setup(a_profile_brings_its_keys_token_region_and_endpoint, set_up),
		cmocka_unit_test_setup(a_services_section_names_the_endpoint_of_s3_only, set_up),
		cmocka_unit_test_setup(the_environment_goes_before_the_files, set_up),
		cmocka_unit_test_setup(what_is_given_goes_before_everything, set_up),
		cmocka_unit_test_setup(a_profile_given_by_name_goes_before_the_environment, set_up),
		cmocka_unit_test_setup(mistakes_are_named_with_their_place, set_up),
		cmocka_unit_test_setup(missing_credentials_say_where_they_were_looked_for, set_up),
		cmocka_unit_test_setup(a_file_that_cannot_be_opened_is_not_missing, set_up),
		cmocka_unit_test_setup(secrets_are_masked_in_the_log, set_up),
		cmocka_unit_test(keys_that_expire_are_fetched_once_for_all_threads),
		cmocka_unit_test(keys_near_their_end_are_replaced_but_still_serve),
		cmocka_unit_test(a_fetch_that_fails_is_told_to_all_who_waited_for_it),
		cmocka_unit_test(who_gives_up_leaves_the_fetch_to_those_who_wait_on),
		cmocka_unit_test(a_fetch_that_all_gave_up_is_ended_and_says_nothing_to_others),
		cmocka_unit_test(
			keys_that_are_born_near_their_end_are_fetched_once_for_many_requests),
		cmocka_unit_test(the_list_of_hidden_secrets_does_not_grow_with_every_refresh),
		cmocka_unit_test(renewed_credentials_are_given_without_fetching),
		cmocka_unit_test(refused_credentials_are_replaced_in_the_background),
		cmocka_unit_test(a_source_that_fails_is_named),
	};
	int r;

	if (!mkdtemp(directory))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	fs_remove_tree(directory, NULL);
	log_redact_clear();
	return r;
}
