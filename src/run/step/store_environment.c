#include "run/step/store_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/credentials/aws_config.h"
#include "net/credentials/credentials.h"
#include "run/notices/reaction.h"
#include "run/step/environment.h"
#include "transfer/objects.h"

#define PROFILE	     "penstock-run"
#define PROFILE_FILE "aws-config" /* file in REACTION_DIR of the storage */

/* Replaces the profile with a profile without credentials, which keeps settings such as the
 * addressing style. If the file cannot be written, SDKs of the step get keys from the profile of
 * the machine. */
static int hide_profile(struct strlist *env, const struct environment_spec *spec)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_free_ char *path = path_join(spec->layout->storage, REACTION_DIR);
	const char *storage = spec->container ? spec->container->seen->storage
					      : spec->layout->storage;
	_cleanup_free_ char *seen = path_join(storage, REACTION_DIR "/" PROFILE_FILE);
	_cleanup_close_ int dir = -1;
	const char *profile = str_env("AWS_PROFILE");

	if (!profile)
		profile = "default";
	if (!path || !seen)
		return -1;
	if (aws_config_load(&config, NULL) < 0 || !aws_config_has_credentials(&config, profile))
		return 0;
	aws_config_without_credentials(&config, profile, PROFILE, &text);
	/* A step can replace this directory with a link. */
	dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (buf_failed(&text))
		return -1;
	if (dir < 0 || fs_write_text_at(dir, PROFILE_FILE, buf_str(&text), 0600) < 0) {
		log_warn("cannot write '%s/" PROFILE_FILE "': %s; the step has the profile '%s'",
			path, strerror(errno), profile);
		return 0;
	}
	strlist_unset(env, "AWS_DEFAULT_PROFILE");
	return strlist_set(env, "AWS_CONFIG_FILE", seen) < 0 ||
			       strlist_set(env, "AWS_PROFILE", PROFILE) < 0
		       ? -1
		       : 0;
}

static int add_endpoint_of_keys(struct strlist *env, const struct environment_spec *spec)
{
	static const char *const others[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_CREDENTIAL_EXPIRATION",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		strlist_unset(env, others[i]);
	if (strlist_set(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI", spec->keys_uri) < 0 ||
		strlist_set(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN", spec->keys_token) < 0)
		return -1;
	return hide_profile(env, spec);
}

int store_environment_place(struct strlist *env, const struct s3_settings *s)
{
	/* SDKs prefer $AWS_ENDPOINT_URL_S3, which is the endpoint of another store. */
	strlist_unset(env, "AWS_ENDPOINT_URL_S3");
	return strlist_set(env, "AWS_ENDPOINT_URL", s->endpoint_url) < 0 ||
			       strlist_set(env, "S3_ENDPOINT_URL", s->endpoint_url) <
				       0 || /* s5cmd */
			       strlist_set(env, "AWS_REGION", s->region) < 0 ||
			       strlist_set(env, "AWS_DEFAULT_REGION", s->region) < 0
		       ? -1
		       : 0;
}

int store_environment_keys(struct strlist *env, const struct credentials *keys)
{
	/* A session token belongs to its keys: requests with other keys and this token fail. */
	strlist_unset(env, "AWS_SESSION_TOKEN");
	strlist_unset(env, "AWS_SECURITY_TOKEN");
	if (strlist_set(env, "AWS_ACCESS_KEY_ID", keys->access_key_id) < 0 ||
		strlist_set(env, "AWS_SECRET_ACCESS_KEY", keys->secret_access_key) < 0)
		return -1;
	return keys->session_token ? strlist_set(env, "AWS_SESSION_TOKEN", keys->session_token) : 0;
}

/* Returns the settings of the step's store. Returns NULL without a store, and for Google's store
 * without HMAC keys, which S3 clients cannot use. */
static const struct s3_settings *settings_of(const struct environment_spec *spec)
{
	const struct s3_settings *s = spec->store ? object_client_settings(spec->store) : NULL;

	return s && s->google && s->key ? NULL : s;
}

const char *store_environment_endpoint(const struct environment_spec *spec)
{
	const struct s3_settings *s = settings_of(spec);

	return s ? s->endpoint_url : NULL;
}

int store_environment(struct strlist *env, const struct environment_spec *spec)
{
	const struct s3_settings *s = settings_of(spec);
	_cleanup_(credentials_release) struct credentials keys = {0};

	if (!s)
		return 0;
	if (store_environment_place(env, s) < 0)
		return -1;
	if (spec->keys_uri)
		return add_endpoint_of_keys(env, spec);
	if (credentials_get(s->credentials, &keys, NULL) < 0 || !keys.access_key_id)
		return 0;
	return store_environment_keys(env, &keys);
}
