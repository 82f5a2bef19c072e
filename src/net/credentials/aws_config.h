/*
 * The shared AWS config and credentials files: INI with sections "[profile NAME]" (config),
 * "[NAME]" (credentials) and "[services NAME]", and one level of indented values below a key.
 *
 *	_cleanup_(aws_config_release) struct aws_config c = { 0 };
 *
 *	if (aws_config_load(&c, err) < 0)	// both files, if they exist
 *		return -err->code;
 *	aws_config_get(&c, "default", "region")
 */
#ifndef NET_CREDENTIALS_AWS_CONFIG_H
#define NET_CREDENTIALS_AWS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct penstock_error;

struct aws_config_entry {
	char *section; /* "profile NAME", "services NAME", … */
	char *key; /* "region"; "s3.endpoint_url" if it is below "s3 =" */
	char *value;
};

struct aws_config {
	struct aws_config_entry *entries; /* later entries take precedence */
	size_t n;
	char *config_path;
	char *credentials_path;
};

/* Loads AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE, or the files in ~/.aws. A missing file
 * counts as empty, and so does a file in a home that the process may not search. */
int aws_config_load(struct aws_config *out, struct penstock_error *err);
/* Adds the text of one file; if `credentials` is set every section is a profile. */
int aws_config_parse(struct aws_config *config, const char *path, const char *text,
	bool credentials, struct penstock_error *err);
void aws_config_release(struct aws_config *config);

/* Returns the value of a key of the profile, or NULL if the key is missing or its value is
 * empty. */
const char *aws_config_get(const struct aws_config *config, const char *profile, const char *key);
/* Returns the endpoint of a service ("s3", "sts") from the profile's "services" section, else the
 * profile's own endpoint. Returns NULL if there is none. */
const char *aws_config_endpoint(
	const struct aws_config *config, const char *profile, const char *service);
/* Returns true if the profile is a source of credentials, of any kind. */
bool aws_config_has_credentials(const struct aws_config *config, const char *profile);
/* Appends a config file with profile `name`: the settings of `profile` without credentials,
 * endpoint, region and services. */
void aws_config_without_credentials(
	const struct aws_config *config, const char *profile, const char *name, struct buf *out);
bool aws_config_has_profile(const struct aws_config *config, const char *profile);

#endif
