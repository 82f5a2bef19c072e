#include "net/credentials/aws_config.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

#define CONFIG_VARIABLE	     "AWS_CONFIG_FILE"
#define CREDENTIALS_VARIABLE "AWS_SHARED_CREDENTIALS_FILE"

void aws_config_release(struct aws_config *config)
{
	for (size_t i = 0; i < config->n; i++) {
		free(config->entries[i].section);
		free(config->entries[i].key);
		str_wipe(config->entries[i].value); /* the value may be a secret */
	}
	free(config->entries);
	free(config->config_path);
	free(config->credentials_path);
	*config = (struct aws_config){0};
}

/* State of the parser. */
struct parser {
	struct aws_config *config;
	const char *path;
	unsigned line;
	bool credentials;
	char *section; /* NULL before the first section */
	char *parent; /* the key without a value whose indented lines follow */
};

static char *trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

static int add_entry(
	struct parser *p, const char *key, const char *value, struct penstock_error *err)
{
	struct aws_config *config = p->config;
	struct aws_config_entry *grown = realloc(config->entries, (config->n + 1) * sizeof(*grown));
	struct aws_config_entry *entry;

	if (!grown)
		return error_memory(err);
	config->entries = grown;
	entry = &grown[config->n++];
	*entry = (struct aws_config_entry){.section = strdup(p->section),
		.key = p->parent ? str_printf("%s.%s", p->parent, key) : strdup(key),
		.value = strdup(value)};
	return entry->section && entry->key && entry->value ? 0 : error_memory(err);
}

/* Parses "[profile x]", "[default]", "[services x]"; in the credentials file "[x]". */
static int parse_section(struct parser *p, char *text, struct penstock_error *err)
{
	char *close = strchr(text, ']');
	char *name;

	if (!close)
		return error_set(
			err, PENSTOCK_E_INVALID, "%s:%u: the section has no ']'", p->path, p->line);
	*close = '\0';
	name = trim(text + 1);
	if (!*name)
		return error_set(err, PENSTOCK_E_INVALID, "%s:%u: the section has no name", p->path,
			p->line);
	free(take_pointer(p->section));
	free(take_pointer(p->parent));
	if (p->credentials || strcmp(name, "default") == 0) {
		p->section = str_printf("profile %s", name);
	} else {
		size_t kind = strcspn(name, " \t");
		char *rest = name[kind] ? trim(name + kind) : NULL;
		size_t len = rest ? strlen(rest) : 0;

		if (len >= 2 && (*rest == '"' || *rest == '\'') && rest[len - 1] == *rest) {
			rest[len - 1] = '\0';
			rest++;
		}
		p->section = str_printf(
			"%.*s%s%s", (int)kind, name, rest ? " " : "", rest ? rest : "");
	}
	if (!p->section)
		return error_memory(err);
	/* Records the section even if it has no keys. */
	return add_entry(p, "", "", err);
}

static void cut_comment(char *value)
{
	for (char *c = value; *c; c++) {
		if ((*c == '#' || *c == ';') && c > value && isspace((unsigned char)c[-1])) {
			*c = '\0';
			return;
		}
	}
}

static int parse_line(struct parser *p, char *line, struct penstock_error *err)
{
	bool indented = isspace((unsigned char)*line);
	char *text = trim(line);
	char *equals;
	char *key;
	char *value;
	int r;

	if (!*text || *text == '#' || *text == ';')
		return 0;
	if (*text == '[' && !indented)
		return parse_section(p, text, err);
	if (!p->section)
		return error_set(err, PENSTOCK_E_INVALID,
			"%s:%u: expected a section such as [default] first", p->path, p->line);
	equals = strchr(text, '=');
	if (!equals || equals == text) {
		/* Ignore a line that continues the value above: the values that penstock uses have
		 * one line. */
		if (indented && !p->parent)
			return 0;
		return error_set(err, PENSTOCK_E_INVALID, "%s:%u: expected 'name = value'", p->path,
			p->line);
	}
	*equals = '\0';
	key = trim(text);
	cut_comment(equals + 1);
	value = trim(equals + 1);
	if (!indented)
		free(take_pointer(p->parent));
	r = add_entry(p, key, value, err);
	if (r == 0 && !indented && !*value) {
		p->parent = strdup(key);
		if (!p->parent)
			return error_memory(err);
	}
	return r;
}

int aws_config_parse(struct aws_config *config, const char *path, const char *text,
	bool credentials, struct penstock_error *err)
{
	struct parser p = {.config = config, .path = path, .credentials = credentials};
	_cleanup_free_ char *copy = strdup(text);
	int r = copy ? 0 : error_memory(err);

	for (char *line = copy, *next; r == 0 && line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		p.line++;
		r = parse_line(&p, line, err);
	}
	if (copy)
		explicit_bzero(copy, strlen(text));
	free(p.section);
	free(p.parent);
	return r;
}

static const char *home_directory(char *space, size_t size)
{
	const char *home = str_env("HOME");
	struct passwd entry;
	struct passwd *found = NULL;

	if (home)
		return home;
	if (getpwuid_r(getuid(), &entry, space, size, &found) != 0 || !found)
		return NULL;
	return entry.pw_dir;
}

/* Returns the variable's path, with a leading "~/" resolved, or `name` in ~/.aws. Returns NULL if
 * the path needs a home directory and the user has none, or if out of memory. */
static char *file_path(const char *variable, const char *name)
{
	char space[4096];
	const char *given = str_env(variable);
	const char *home = home_directory(space, sizeof(space));

	if (given && !str_starts(given, "~/"))
		return strdup(given);
	if (!home)
		return NULL;
	if (given)
		return str_printf("%s/%s", home, given + 2);
	return str_printf("%s/.aws/%s", home, name);
}

/* A process that changed its user may have a HOME that it cannot search. Such a home counts as
 * empty, unless `variable` names the file. */
static bool is_missing(const char *path, const char *variable)
{
	return access(path, F_OK) < 0 &&
	       (errno == ENOENT || errno == ENOTDIR || (errno == EACCES && !str_env(variable)));
}

static int load_file(struct aws_config *config, const char *variable, const char *path,
	bool credentials, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	int r;

	if (!path || is_missing(path, variable))
		return 0;
	r = fs_read(path, &text, err);
	return r < 0 ? r : aws_config_parse(config, path, buf_str(&text), credentials, err);
}

int aws_config_load(struct aws_config *out, struct penstock_error *err)
{
	_cleanup_(aws_config_release) struct aws_config config = {0};
	int r;

	config.config_path = file_path(CONFIG_VARIABLE, "config");
	config.credentials_path = file_path(CREDENTIALS_VARIABLE, "credentials");
	r = load_file(&config, CONFIG_VARIABLE, config.config_path, false, err);
	if (r == 0)
		r = load_file(&config, CREDENTIALS_VARIABLE, config.credentials_path, true, err);
	if (r < 0)
		return r;
	*out = config;
	config = (struct aws_config){0};
	return 0;
}

static const char *lookup(
	const struct aws_config *config, const char *kind, const char *name, const char *key)
{
	size_t len = strlen(kind);

	for (size_t i = config->n; i-- > 0;) {
		const struct aws_config_entry *entry = &config->entries[i];

		if (strncmp(entry->section, kind, len) == 0 && entry->section[len] == ' ' &&
			strcmp(entry->section + len + 1, name) == 0 && strcmp(entry->key, key) == 0)
			return entry->value;
	}
	return NULL;
}

static const char *not_empty(const char *s)
{
	return s && *s ? s : NULL;
}

const char *aws_config_get(const struct aws_config *config, const char *profile, const char *key)
{
	return not_empty(lookup(config, "profile", profile, key));
}

bool aws_config_has_profile(const struct aws_config *config, const char *profile)
{
	return lookup(config, "profile", profile, "") != NULL;
}

const char *aws_config_endpoint(
	const struct aws_config *config, const char *profile, const char *service)
{
	const char *services = aws_config_get(config, profile, "services");
	const char *endpoint = NULL;
	char key[64];

	snprintf(key, sizeof(key), "%s.endpoint_url", service);
	if (services)
		endpoint = not_empty(lookup(config, "services", services, key));
	return endpoint ? endpoint : aws_config_get(config, profile, "endpoint_url");
}

/* A profile with one of the first N_SOURCES keys is a source of credentials. */
#define N_SOURCES 7
static const char *const credential_keys[] = {"aws_access_key_id", "role_arn", "credential_process",
	"web_identity_token_file", "sso_session", "sso_start_url", "login_session",
	"aws_secret_access_key", "aws_session_token", "aws_security_token", "source_profile",
	"credential_source", "role_session_name", "external_id", "mfa_serial", "duration_seconds",
	"sso_account_id", "sso_role_name", "sso_region",
	/* The last three keys are not credentials: the step of a run gets the endpoint and the
	 * region in its environment, and "services" would name a section that is not written. */
	"services", "endpoint_url", "region"};

bool aws_config_has_credentials(const struct aws_config *config, const char *profile)
{
	for (size_t i = 0; i < N_SOURCES; i++) {
		if (aws_config_get(config, profile, credential_keys[i]))
			return true;
	}
	return false;
}

static bool is_credential_key(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(credential_keys); i++) {
		if (strcmp(key, credential_keys[i]) == 0)
			return true;
	}
	return false;
}

void aws_config_without_credentials(
	const struct aws_config *config, const char *profile, const char *name, struct buf *out)
{
	buf_printf(out, "[profile %s]\n", name);
	for (size_t i = 0; i < config->n; i++) {
		const struct aws_config_entry *entry = &config->entries[i];
		const char *value = lookup(config, "profile", profile, entry->key);
		const char *dot = strchr(entry->key, '.');

		/* Parsers reject a repeated key, so only the entry that counts is written. */
		if (!str_starts(entry->section, "profile ") ||
			strcmp(entry->section + 8, profile) != 0 || !*entry->key ||
			is_credential_key(entry->key) || !value || value != entry->value)
			continue;
		if (dot)
			buf_printf(out, "  %s = %s\n", dot + 1, value);
		else
			buf_printf(out, "%s =%s%s\n", entry->key, *value ? " " : "", value);
	}
}
