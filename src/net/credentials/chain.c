/* Settings from the caller, the environment, the files and the machine, and their precedence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "net/credentials/aws_config.h"
#include "net/credentials/sources.h"
#include "net/credentials/credentials.h"
#include "net/credentials/google.h"

/* Longest chain of profiles whose role uses the keys of the next profile. */
#define ROLE_DEPTH 8

/* State of the search for credentials. */
struct chain {
	const struct store_place *given;
	const struct aws_config *config;
	const char *profile;
	const char *source; /* the source of the credentials; a literal */
	unsigned depth; /* number of nested roles */
	/* error of the instance's metadata service, if it gave no credentials */
	struct penstock_error instance;
};

static const char *first(const char *a, const char *b)
{
	return a && *a ? a : b;
}

static const char *region_of(const struct chain *chain, const char *profile)
{
	const char *region = first(
		chain->given->region, first(str_env("AWS_REGION"), str_env("AWS_DEFAULT_REGION")));

	return region ? region
		      : first(aws_config_get(chain->config, profile, "region"), "us-east-1");
}

/* --- places. Each function returns 1 if found, 0 if absent, negative if invalid -------------- */

static int from_environment(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	chain->source = "environment";
	return credential_source_pair(out, str_env("AWS_ACCESS_KEY_ID"),
		str_env("AWS_SECRET_ACCESS_KEY"), str_env("AWS_SESSION_TOKEN"), "the environment",
		err);
}

static char *amazon_url(const char *service, const char *region)
{
	return str_printf("https://%s.%s.amazonaws.com%s", service, region,
		str_starts(region, "cn-") ? ".cn" : "");
}

/* Returns the STS URL from the environment or the profile, or the default URL of the region. The
 * caller frees the string. Returns NULL if out of memory. */
static char *sts_url(const struct chain *chain, const char *profile)
{
	const char *url = NULL;

	if (!str_env_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) {
		url = first(str_env("AWS_ENDPOINT_URL_STS"), str_env("AWS_ENDPOINT_URL"));
		if (!url)
			url = aws_config_endpoint(chain->config, profile, "sts");
	}
	return url ? strdup(url) : amazon_url("sts", region_of(chain, profile));
}

static int web_identity(struct chain *chain, const char *profile, const char *token_file,
	const char *role_arn, const char *session, struct credentials_provider **out,
	struct penstock_error *err)
{
	_cleanup_free_ char *url = sts_url(chain, profile);
	int r;

	if (!url)
		return error_memory(err);
	r = credential_source_web_identity(out,
		&(struct sts_role){.sts_url = url,
			.region = region_of(chain, profile),
			.role_arn = role_arn,
			.session_name = session,
			.token_file = token_file},
		err);
	chain->source = "web identity";
	return r < 0 ? r : 1;
}

static int from_web_identity(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	const char *file = str_env("AWS_WEB_IDENTITY_TOKEN_FILE");

	return file ? web_identity(chain, chain->profile, file, str_env("AWS_ROLE_ARN"),
			      str_env("AWS_ROLE_SESSION_NAME"), out, err)
		    : 0;
}

static int from_container(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	int r;

	if (!str_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") &&
		!str_env("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
		return 0;
	r = credential_source_container(out, err);
	chain->source = "container";
	return r < 0 ? r : 1;
}

/* The instance comes last, because only a query shows if it has a metadata service. */
static int from_instance(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	_cleanup_(credentials_provider_freep) struct credentials_provider *provider = NULL;
	_cleanup_(credentials_release) struct credentials keys = {0};
	int r;

	if (str_env_is_true("AWS_EC2_METADATA_DISABLED"))
		return 0;
	r = credential_source_instance(&provider, err);
	if (r < 0)
		return r;
	r = credentials_get_within(provider,
		&(struct credentials_patience){
			.cancel = chain->given->cancel, .cancel_all = chain->given->cancel_all},
		&keys, &chain->instance);
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return error_move(err, &chain->instance);
	if (r < 0)
		return 0;
	chain->source = "instance";
	*out = take_pointer(provider);
	return 1;
}

/* --- profiles -------------------------------------------------------------------------------- */

static int from_profile_keys(struct chain *chain, const char *profile,
	struct credentials_provider **out, struct penstock_error *err)
{
	chain->source = "profile";
	return credential_source_pair(out,
		aws_config_get(chain->config, profile, "aws_access_key_id"),
		aws_config_get(chain->config, profile, "aws_secret_access_key"),
		aws_config_get(chain->config, profile, "aws_session_token"), "the profile's files",
		err);
}

static int from_profile(struct chain *chain, const char *profile, struct credentials_provider **out,
	struct penstock_error *err);

/* Gets the provider of the keys that are used to assume the role of a profile. */
static int role_source(struct chain *chain, const char *profile, struct credentials_provider **out,
	struct penstock_error *err)
{
	const char *other = aws_config_get(chain->config, profile, "source_profile");
	const char *kind = aws_config_get(chain->config, profile, "credential_source");
	int r;

	if (!other == !kind)
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s' has a role_arn and needs either a source_profile or a "
			"credential_source, not both",
			profile);
	if (other && !aws_config_has_profile(chain->config, other))
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s': source_profile '%s' does not exist", profile, other);
	if (other && strcmp(other, profile) == 0)
		r = from_profile_keys(chain, profile, out, err);
	else if (other)
		r = from_profile(chain, other, out, err);
	else if (strcmp(kind, "Environment") == 0)
		r = from_environment(chain, out, err);
	else if (strcmp(kind, "Ec2InstanceMetadata") == 0)
		return credential_source_instance(out, err);
	else if (strcmp(kind, "EcsContainer") == 0)
		r = from_container(chain, out, err);
	else
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s': credential_source must be Environment, "
			"Ec2InstanceMetadata or EcsContainer, not '%s'",
			profile, kind);
	if (r == 0)
		r = error_set(err, PENSTOCK_E_PERMISSION,
			"profile '%s': its %s '%s' has no credentials to assume the role", profile,
			other ? "source_profile" : "credential_source", other ? other : kind);
	return r < 0 ? r : 0;
}

static int from_profile_role(struct chain *chain, const char *profile, const char *role_arn,
	struct credentials_provider **out, struct penstock_error *err)
{
	const char *session = aws_config_get(chain->config, profile, "role_session_name");
	const char *duration = aws_config_get(chain->config, profile, "duration_seconds");
	const char *token_file = aws_config_get(chain->config, profile, "web_identity_token_file");
	_cleanup_free_ char *url = sts_url(chain, profile);
	struct credentials_provider *source = NULL;
	uint64_t seconds = 0;
	int r;

	if (!url)
		return error_memory(err);
	if (token_file)
		return web_identity(chain, profile, token_file, role_arn, session, out, err);
	if (aws_config_get(chain->config, profile, "mfa_serial"))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"profile '%s' needs an MFA code (mfa_serial), which a long run cannot "
			"ask for; export keys with 'aws configure export-credentials'",
			profile);
	if (duration && !str_to_u64(duration, 900, 43200, &seconds))
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s': duration_seconds must be a number from 900 to 43200",
			profile);
	if (++chain->depth > ROLE_DEPTH)
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s': the chain of its source_profile has a loop or is too long",
			profile);
	r = role_source(chain, profile, &source, err);
	if (r == 0)
		r = credential_source_role(out,
			&(struct sts_role){.sts_url = url,
				.region = region_of(chain, profile),
				.role_arn = role_arn,
				.session_name = session,
				.external_id = aws_config_get(
					chain->config, profile, "external_id"),
				.duration_s = (unsigned)seconds},
			source, err);
	chain->source = "role";
	return r < 0 ? r : 1;
}

static int from_profile(struct chain *chain, const char *profile, struct credentials_provider **out,
	struct penstock_error *err)
{
	const char *role_arn = aws_config_get(chain->config, profile, "role_arn");
	const char *process = aws_config_get(chain->config, profile, "credential_process");
	int r;

	if (role_arn)
		return from_profile_role(chain, profile, role_arn, out, err);
	r = from_profile_keys(chain, profile, out, err);
	if (r != 0)
		return r;
	if (process) {
		r = credential_source_process(out, process, err);
		chain->source = "credential_process";
		return r < 0 ? r : 1;
	}
	if (aws_config_get(chain->config, profile, "sso_session") ||
		aws_config_get(chain->config, profile, "sso_start_url"))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"profile '%s' gets its credentials by SSO in a browser; export them "
			"with 'aws configure export-credentials', or set credential_process to "
			"that command",
			profile);
	return 0;
}

static int from_chosen_profile(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	return from_profile(chain, chain->profile, out, err);
}

/* --- the chain ------------------------------------------------------------------------------- */

static int resolve_credentials(
	struct chain *chain, struct credentials_provider **out, struct penstock_error *err)
{
	typedef int (*place_fn)(
		struct chain *, struct credentials_provider **, struct penstock_error *);
	/* A profile named explicitly takes precedence over the environment. */
	static const place_fn named[] = {from_chosen_profile, from_environment, from_web_identity,
		from_container, from_instance};
	static const place_fn unnamed[] = {from_environment, from_web_identity, from_chosen_profile,
		from_container, from_instance};
	const struct store_place *given = chain->given;
	int r = 0;

	if (given->anonymous) {
		chain->source = "anonymous";
		return credentials_provider_new_anonymous(out, err);
	}
	chain->source = "given";
	r = credential_source_pair(out, given->access_key_id, given->secret_access_key,
		given->session_token, "the options", err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(named); i++)
		r = (given->profile ? named : unnamed)[i](chain, out, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (chain->given->no_keys)
		*chain->given->no_keys = true;
	error_set(err, PENSTOCK_E_PERMISSION,
		"cannot find S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
		"write profile '%s' into '%s' or '%s'",
		chain->profile,
		chain->config->credentials_path ? chain->config->credentials_path
						: "~/.aws/credentials",
		chain->config->config_path ? chain->config->config_path : "~/.aws/config");
	if (chain->instance.message)
		error_suffix(err, " (%s)", chain->instance.message);
	return -PENSTOCK_E_PERMISSION;
}

/* Returns the endpoint, or NULL if it is Amazon's. */
static const char *endpoint_of(const struct chain *chain)
{
	const char *endpoint = first(chain->given->endpoint_url, NULL);

	if (endpoint || str_env_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))
		return endpoint;
	endpoint = first(str_env("AWS_ENDPOINT_URL_S3"), str_env("AWS_ENDPOINT_URL"));
	return endpoint ? endpoint : aws_config_endpoint(chain->config, chain->profile, "s3");
}

int s3_place_resolve(char **endpoint_url, char **region, struct penstock_error *err)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	const char *named = str_env("AWS_PROFILE");
	const struct chain chain = {.given = &(struct store_place){0},
		.config = &config,
		.profile = named ? named : "default"};
	const char *endpoint;
	int r = aws_config_load(&config, err);

	if (r < 0)
		return r;
	endpoint = endpoint_of(&chain);
	*endpoint_url = endpoint ? strdup(endpoint) : NULL;
	*region = strdup(region_of(&chain, chain.profile));
	return *region && (*endpoint_url || !endpoint) ? 0 : error_memory(err);
}

bool s3_settings_embedded(const struct store_place *given)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	const char *named = first(given->profile, str_env("AWS_PROFILE"));
	const struct chain chain = {
		.given = given, .config = &config, .profile = named ? named : "default"};
	const char *endpoint;

	if (given->google || aws_config_load(&config, NULL) < 0)
		return false;
	endpoint = endpoint_of(&chain);
	return endpoint && strcmp(endpoint, "embedded") == 0;
}

static int resolve_place(
	struct s3_settings *s, const struct chain *chain, struct penstock_error *err)
{
	const char *region = region_of(chain, chain->profile);
	const char *endpoint = endpoint_of(chain);

	if (endpoint && !str_starts(endpoint, "http://") && !str_starts(endpoint, "https://"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid endpoint '%s': it must begin with http:// or https://%s", endpoint,
			strcmp(endpoint, "embedded") == 0
				? "; 'penstock serve' gives the embedded store a URL"
				: "");
	s->region = strdup(region);
	s->endpoint_url = endpoint ? strdup(endpoint) : amazon_url("s3", region);
	return s->region && s->endpoint_url ? 0 : error_memory(err);
}

int s3_settings_resolve(
	struct s3_settings *out, const struct store_place *given, struct penstock_error *err)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	_cleanup_(s3_settings_release) struct s3_settings s = {0};
	const char *named = first(given->profile, str_env("AWS_PROFILE"));
	struct chain chain = {
		.given = given, .config = &config, .profile = named ? named : "default"};
	/* If the caller gives keys, an AWS_PROFILE that does not exist is not an error. */
	bool needed = given->profile || !(given->access_key_id || given->anonymous);
	int r;

	if (given->google)
		return gs_settings_resolve(out, given, err);
	r = aws_config_load(&config, err);
	if (r == 0 && named && needed && !aws_config_has_profile(&config, named))
		r = error_set(err, PENSTOCK_E_INVALID, "cannot find profile '%s' in '%s' or '%s'",
			named, config.config_path ? config.config_path : "~/.aws/config",
			config.credentials_path ? config.credentials_path : "~/.aws/credentials");
	if (r == 0)
		r = resolve_place(&s, &chain, err);
	if (r == 0)
		r = resolve_credentials(&chain, &s.credentials, err);
	penstock_error_release(&chain.instance);
	if (r < 0)
		return r;
	s.source = chain.source;
	*out = s;
	s = (struct s3_settings){0};
	return 0;
}
