#include "workflow/document/secrets.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/document/reference.h"

static const char *const credential_keys[] = {"accessKeyId", "secretAccessKey", "serviceAccountKey",
	"password", "privateKey", "preSharedKey", "secret", "access_key", "secret_key",
	"connection_string"};

/* Endings of the names of secret variables. An ending must follow a `_`, or be the whole name. */
static const char *const secret_endings[] = {"SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE",
	"CREDENTIAL", "CREDENTIALS", "API_KEY", "APIKEY", "ACCESS_KEY", "ACCESS_KEY_ID",
	"SECRET_KEY", "PRIVATE_KEY", "ACCOUNT_KEY"};

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* Keys of well-known services. A match hides the value of any variable, so the patterns are strict:
 * the name of a run or a file that merely begins like a key does not match. */
static const struct known_key {
	const char *begins;
	const char *characters; /* allowed after `begins` */
	size_t least, most; /* number of these characters; most is 0 for no limit */
	/* minimum numbers: of digits, and of letters and digits in a row */
	size_t digits, run;
	bool lower, upper; /* requires a lower-case letter, an upper-case letter */
} known_keys[] = {
	{"hf_", LOWER UPPER DIGITS, 30, 0, 0, 30, true, true},
	{"ghp_", LOWER UPPER DIGITS, 36, 0, 1, 36, true, true},
	{"gho_", LOWER UPPER DIGITS, 36, 0, 1, 36, true, true},
	{"ghs_", LOWER UPPER DIGITS, 36, 0, 1, 36, true, true},
	{"github_pat_", LOWER UPPER DIGITS "_", 60, 0, 1, 22, true, true},
	{"glpat-", LOWER UPPER DIGITS "_-.", 20, 0, 0, 8, true, true},
	{"sk-", LOWER UPPER DIGITS "_-", 32, 0, 3, 20, true, true},
	{"AKIA", UPPER "234567", 16, 16, 1, 16, false, true},
	{"ASIA", UPPER "234567", 16, 16, 1, 16, false, true},
	{"xoxb-", LOWER UPPER DIGITS "-", 40, 0, 10, 10, true, true},
	{"xoxp-", LOWER UPPER DIGITS "-", 40, 0, 10, 10, true, true},
};

static size_t count_of(const char *s, const char *characters)
{
	size_t n = 0;

	for (; *s; s++)
		n += strchr(characters, *s) != NULL;
	return n;
}

static size_t longest_run(const char *s, const char *characters)
{
	size_t longest = 0;

	while (*s) {
		size_t n = strspn(s, characters);

		if (n > longest)
			longest = n;
		s += n + (s[n] != '\0');
	}
	return longest;
}

static bool is_known_key(const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_keys); i++) {
		const struct known_key *k = &known_keys[i];
		const char *rest = value + strlen(k->begins);
		size_t len;

		if (!str_starts(value, k->begins))
			continue;
		len = strlen(rest);
		return strspn(rest, k->characters) == len && len >= k->least &&
		       (!k->most || len <= k->most) && count_of(rest, DIGITS) >= k->digits &&
		       longest_run(rest, LOWER UPPER DIGITS) >= k->run &&
		       (!k->lower || count_of(rest, LOWER)) && (!k->upper || count_of(rest, UPPER));
	}
	return false;
}

bool secret_may_be_key(const char *name, const char *value)
{
	size_t name_len = strlen(name), len = strlen(value);

	if (name_len < 4 || strcasecmp(name + name_len - 4, "_KEY") != 0 || len < 20)
		return false;
	if (strspn(value, DIGITS "abcdef") == len || strspn(value, DIGITS "ABCDEF") == len)
		return len >= 32;
	return strspn(value, LOWER UPPER DIGITS) == len && count_of(value, LOWER) &&
	       count_of(value, UPPER) && count_of(value, DIGITS);
}

bool secret_variable(const char *name, const char *value)
{
	/* Short values are switches and numbers, and a path only locates a secret. */
	if (strlen(value) < 8 || value[strspn(value, "0123456789")] == '\0' || *value == '/')
		return false;
	if (is_known_key(value))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(secret_endings); i++) {
		size_t len = strlen(secret_endings[i]);
		size_t name_len = strlen(name);

		if (name_len >= len && strcasecmp(name + name_len - len, secret_endings[i]) == 0 &&
			(name_len == len || name[name_len - len - 1] == '_'))
			return true;
	}
	return false;
}

/* Returns the length of "user@" or "user:password@" at the beginning of the authority, or 0. */
static size_t user_length(const char *authority)
{
	size_t len = strcspn(authority, "/?#");
	const char *at = memrchr(authority, '@', len);

	return at ? (size_t)(at + 1 - authority) : 0;
}

static bool is_secret_parameter(const char *p, size_t len)
{
	const char *equals = memchr(p, '=', len);

	return log_secret_parameter(p, equals ? (size_t)(equals - p) : len);
}

static bool query_is_secret(const char *query)
{
	while (*query) {
		size_t len = strcspn(query, "&");

		if (is_secret_parameter(query, len))
			return true;
		query += len + (query[len] == '&');
	}
	return false;
}

bool secret_mask_url(const char *url, struct buf *out)
{
	const char *authority = strstr(url, "://");
	const char *query;
	bool masked = false;
	size_t user;

	if (!authority) {
		buf_add_str(out, url);
		return false;
	}
	authority += 3;
	buf_add(out, url, (size_t)(authority - url));
	user = user_length(authority);
	if (user) {
		buf_add_str(out, "***@");
		authority += user;
		masked = true;
	}
	query = strchr(authority, '?');
	if (query && query_is_secret(query + 1)) {
		buf_add(out, authority, (size_t)(query + 1 - authority));
		buf_add_str(out, "***");
		return true;
	}
	buf_add_str(out, authority);
	return masked;
}

void secret_redact_url(const char *url)
{
	const char *authority = strstr(url, "://");
	const char *query;
	size_t user;

	if (!authority)
		return;
	authority += 3;
	user = user_length(authority);
	log_redact_user(url);
	query = strchr(authority + user, '?');
	for (const char *p = query ? query + 1 : ""; *p;) {
		size_t len = strcspn(p, "&");
		const char *equals = memchr(p, '=', len);
		size_t value_len = equals ? len - (size_t)(equals + 1 - p) : 0;
		/* Do not redact the value of "auth=basic" or "sign=true": redacting such a common
		 * word would hide parts of every line. */
		bool is_word = equals && value_len < 8 &&
			       strspn(equals + 1, LOWER UPPER) >= value_len;

		if (value_len && !is_word && is_secret_parameter(p, len))
			log_redact_part(equals + 1, value_len);
		p += len + (p[len] == '&');
	}
}

static bool url_is_secret(const char *url)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_WORKFLOW_FILE);

	return secret_mask_url(url, &masked);
}

/* Returns true for the key of a map of variables, in penstock and in other runners. */
static bool is_variables(const char *key)
{
	static const char *const keys[] = {"env", "envs", "environment", "environment_variables",
		"secrets", "cpu", "cuda", "rocm"};

	return is_one_of(key, keys, ARRAY_SIZE(keys));
}

enum secret_kind secret_kind_of(
	const struct node *map, const struct node_entry *entry, const char *map_key)
{
	const struct node *value = entry->value;

	if (value->kind != NODE_SCALAR || node_is_null(value))
		return SECRET_NONE;
	if (is_one_of(entry->key, credential_keys, ARRAY_SIZE(credential_keys)))
		return SECRET_CREDENTIAL;
	/* The address of a webhook is enough to post to the webhook. */
	if (map_key && strcmp(map_key, "notify") == 0 && strcmp(entry->key, "url") == 0)
		return SECRET_CREDENTIAL;
	/* A user without a password in the SSH address of a module is not a secret: SSH logins use
	 * a key, and the user is usually "git". */
	if (map_key && strcmp(map_key, "use") == 0 && strcmp(entry->key, "source") == 0)
		return (!str_starts(value->text, "ssh://") ||
			       memchr(value->text + 6, ':', user_length(value->text + 6))) &&
				       url_is_secret(value->text)
			       ? SECRET_URL
			       : SECRET_NONE;
	/* `mlflow.uri` is the only key `uri` of penstock's workflows. */
	if (str_ends(entry->key, "url") || str_ends(entry->key, "Url") ||
		(map_key && strcmp(map_key, "mlflow") == 0 && strcmp(entry->key, "uri") == 0))
		return url_is_secret(value->text) ? SECRET_URL : SECRET_NONE;
	if (map_key && is_variables(map_key))
		return secret_variable(entry->key, value->text) ? SECRET_VARIABLE : SECRET_NONE;
	if (strcmp(entry->key, "value") == 0) {
		const struct node *name = node_get(map, "key");

		if (name && name->kind == NODE_SCALAR && secret_variable(name->text, value->text))
			return SECRET_VARIABLE;
	}
	return SECRET_NONE;
}

/* Returns true for a text with one of dstack's variables, because the value of any variable may be
 * a secret. */
static bool is_to_come(const struct node *node)
{
	const char *rest = node->kind == NODE_SCALAR ? node->text : "";
	struct reference ref;
	int found;

	while ((found = reference_find(rest, &ref)) == 1)
		rest = ref.end;
	return found < 0;
}

/* Marks a member of a map if the member is a secret. The log masks the secret even if an override
 * replaces it. */
static void mark_entry(struct workflow_arena *arena, const struct node *map,
	const struct node_entry *entry, const char *map_key, const struct buf *path)
{
	enum secret_kind kind = secret_kind_of(map, entry, map_key);

	if (kind == SECRET_NONE && !(map_key && is_variables(map_key) && is_to_come(entry->value)))
		return;
	entry->value->field = workflow_arena_copy(arena, buf_str(path), path->len);
	if (kind == SECRET_URL)
		secret_redact_url(entry->value->text);
	else if (!strstr(entry->value->text, "${{"))
		log_redact(entry->value->text);
}

/* Marks the text "NAME=VALUE", a member of a list, if VALUE is or may become a secret. */
static void mark_pair(struct workflow_arena *arena, struct node *node, const struct buf *path)
{
	const char *equals = node->kind == NODE_SCALAR ? strchr(node->text, '=') : NULL;
	const char *name = equals ? workflow_arena_copy(
					    arena, node->text, (size_t)(equals - node->text))
				  : NULL;

	if (!name || (!is_to_come(node) &&
			     (!secret_variable(name, equals + 1) || strstr(equals, "${{"))))
		return;
	node->field = workflow_arena_copy(arena, buf_str(path), path->len);
	if (!is_to_come(node))
		log_redact(equals + 1);
}

static void mark_below(
	struct workflow_arena *arena, struct node *node, const char *node_key, struct buf *path)
{
	for (size_t i = 0; i < node->n; i++) {
		struct node_entry *entry = &node->entries[i];
		size_t saved = path->len;

		field_append(path, entry->key, i);
		if (node->kind == NODE_MAP)
			mark_entry(arena, node, entry, node_key, path);
		else if (node_key && is_variables(node_key))
			mark_pair(arena, entry->value, path);
		mark_below(arena, entry->value, entry->key, path);
		buf_truncate(path, saved);
	}
}

void secrets_mark(struct workflow_arena *arena, struct node *root)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_WORKFLOW_FILE);

	mark_below(arena, root, NULL, &path);
	if (buf_failed(&path))
		arena->no_memory = true;
}
