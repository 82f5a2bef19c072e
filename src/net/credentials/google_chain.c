/* Sources of the credentials and the endpoint for Google Cloud Storage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "net/credentials/aws_config.h"
#include "net/credentials/credentials.h"
#include "net/credentials/google.h"
#include "net/credentials/sources.h"

#define ENDPOINT   "https://storage.googleapis.com"
#define ANY_REGION "auto" /* in signatures: Google ignores the region */

/* ---- endpoint ---- */

static int resolve_place(
	struct s3_settings *s, const struct store_place *given, struct penstock_error *err)
{
	const char *emulator = str_env("STORAGE_EMULATOR_HOST");
	const char *region = given->region && *given->region ? given->region : ANY_REGION;
	const char *url = given->endpoint_url;

	if (!url && emulator && !strstr(emulator, "://"))
		s->endpoint_url = str_printf("http://%s", emulator);
	else
		s->endpoint_url = strdup(url ? url : emulator ? emulator : ENDPOINT);
	s->region = strdup(region);
	s->google = true;
	if (!s->endpoint_url || !s->region)
		return error_memory(err);
	if (!str_starts(s->endpoint_url, "http://") && !str_starts(s->endpoint_url, "https://"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid endpoint '%s': it must begin with http:// or https://",
			s->endpoint_url);
	return 0;
}

/* ---- credentials. Each function returns 1 if found, 0 if absent, negative if invalid ---- */

static int hmac_keys(struct s3_settings *s, const char *id, const char *secret, const char *where,
	const char *source, struct penstock_error *err)
{
	s->source = source;
	return credential_source_pair(&s->credentials, id, secret, NULL, where, err);
}

static int key_file(
	struct s3_settings *s, const char *path, const char *source, struct penstock_error *err)
{
	int r = google_key_load(&s->key, path, err);

	if (r == 0)
		r = credential_source_google(&s->credentials, s->key, err);
	s->source = source;
	return r < 0 ? r : 1;
}

static int key_text(struct s3_settings *s, const char *json, struct penstock_error *err)
{
	int r = google_key_parse(&s->key, json, strlen(json), err);

	if (r < 0)
		return error_prefix(err, "serviceAccountKey");
	r = credential_source_google(&s->credentials, s->key, err);
	s->source = "given";
	return r < 0 ? r : 1;
}

static int from_profile(struct s3_settings *s, const char *profile, struct penstock_error *err)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	int r = aws_config_load(&config, err);

	if (r < 0)
		return r;
	if (!aws_config_has_profile(&config, profile))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot find profile '%s' in '%s' or '%s'", profile,
			config.config_path ? config.config_path : "~/.aws/config",
			config.credentials_path ? config.credentials_path : "~/.aws/credentials");
	r = hmac_keys(s, aws_config_get(&config, profile, "aws_access_key_id"),
		aws_config_get(&config, profile, "aws_secret_access_key"), "the profile", "profile",
		err);
	if (r == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"profile '%s' has no keys; gs:// needs HMAC keys of Google Cloud Storage",
			profile);
	return r;
}

static int from_environment(struct s3_settings *s, struct penstock_error *err)
{
	const char *file = str_env("GOOGLE_APPLICATION_CREDENTIALS");
	const char *aws = str_env("AWS_ACCESS_KEY_ID");
	int r = hmac_keys(s, str_env("GS_ACCESS_KEY_ID"), str_env("GS_SECRET_ACCESS_KEY"),
		"the environment", "environment", err);

	if (r == 0 && file) {
		r = key_file(s, file, "key file", err);
		if (r < 0)
			return error_prefix(err, "GOOGLE_APPLICATION_CREDENTIALS");
	}
	if (r == 0 && aws && str_starts(aws, "GOOG"))
		r = hmac_keys(s, aws, str_env("AWS_SECRET_ACCESS_KEY"), "the environment",
			"environment", err);
	return r;
}

/* Looks for the file that "gcloud auth application-default login" writes. */
static int from_gcloud(struct s3_settings *s, struct penstock_error *err)
{
	const char *folder = str_env("CLOUDSDK_CONFIG");
	const char *home = str_env("HOME");
	_cleanup_free_ char *path = NULL;

	if (!folder && !home)
		return 0;
	path = str_printf("%s%s/application_default_credentials.json", folder ? folder : home,
		folder ? "" : "/.config/gcloud");
	if (!path)
		return error_memory(err);
	return access(path, F_OK) == 0 ? key_file(s, path, "gcloud", err) : 0;
}

/* The metadata service is the last source: only a query shows if it exists. */
static int from_instance(struct s3_settings *s, const struct store_place *given,
	struct penstock_error *why, struct penstock_error *err)
{
	_cleanup_(credentials_release) struct credentials token = {0};
	int r;

	if (str_env_is_true("NO_GCE_CHECK"))
		return 0;
	r = credential_source_google_instance(&s->credentials, err);
	if (r < 0)
		return r;
	r = credentials_get_within(s->credentials,
		&(struct credentials_patience){
			.cancel = given->cancel, .cancel_all = given->cancel_all},
		&token, why);
	if (r == 0) {
		s->source = "instance";
		return 1;
	}
	credentials_provider_free(s->credentials);
	s->credentials = NULL;
	return r == -(int)PENSTOCK_E_CANCELLED ? error_move(err, why) : 0;
}

static int anonymous(struct s3_settings *s, struct penstock_error *err)
{
	int r = credentials_provider_new_anonymous(&s->credentials, err);

	s->source = "anonymous";
	return r < 0 ? r : 1;
}

static int resolve_credentials(struct s3_settings *s, const struct store_place *given,
	struct penstock_error *why, struct penstock_error *err)
{
	int r;

	if (given->anonymous)
		return anonymous(s, err);
	r = hmac_keys(
		s, given->access_key_id, given->secret_access_key, "the workflow", "given", err);
	if (r == 0 && given->google_key_json)
		r = key_text(s, given->google_key_json, err);
	if (r == 0 && given->google_key)
		r = key_file(s, given->google_key, "given", err);
	if (r == 0 && given->profile)
		r = from_profile(s, given->profile, err);
	if (r == 0)
		r = from_environment(s, err);
	if (r == 0)
		r = from_gcloud(s, err);
	if (r == 0 && str_env("STORAGE_EMULATOR_HOST"))
		r = anonymous(s, err);
	if (r == 0)
		r = from_instance(s, given, why, err);
	if (r != 0)
		return r;
	error_set(err, PENSTOCK_E_PERMISSION,
		"cannot find credentials for Google Cloud Storage: checked "
		"GOOGLE_APPLICATION_CREDENTIALS, GS_ACCESS_KEY_ID, gcloud's application default "
		"credentials, and this machine's service account; for a public bucket use "
		"--no-sign-request");
	if (why->message)
		error_suffix(err, " (%s)", why->message);
	return -PENSTOCK_E_PERMISSION;
}

/* An intercepted token can be used for any request, unlike an intercepted signature. */
static int check_token_transport(const struct s3_settings *s, struct penstock_error *err)
{
	bool token = s->key || strcmp(s->source, "instance") == 0;

	if (!token || google_may_have_token(s->endpoint_url))
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot send a Google token to '%s': it could be intercepted; use https://, HMAC "
		"keys or --no-sign-request",
		s->endpoint_url);
}

int gs_settings_resolve(
	struct s3_settings *out, const struct store_place *given, struct penstock_error *err)
{
	_cleanup_(s3_settings_release) struct s3_settings s = {0};
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	const char *project = str_env("GOOGLE_CLOUD_PROJECT");
	int r = resolve_place(&s, given, err);

	if (r == 0)
		r = resolve_credentials(&s, given, &why, err);
	if (r >= 0)
		r = check_token_transport(&s, err);
	if (r < 0)
		return r;
	if (!project && s.key)
		project = s.key->project_id;
	if (!str_copy(&s.project, project))
		return error_memory(err);
	*out = s;
	s = (struct s3_settings){0};
	return 0;
}
