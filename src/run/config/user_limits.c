#include "run/config/user_limits.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/arena.h"
#include "workflow/document/document.h"

int user_config_wrong(const struct user_config *c, const struct node *node, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return error_set(c->err, PENSTOCK_E_INVALID, "%s:%d:%d: %s", c->path, node->at.line,
		node->at.column, buf_str(&text));
}

static void lower(int64_t *limit, int64_t value)
{
	if (*limit < 0 || value < *limit)
		*limit = value;
}

static int read_limit(const struct user_config *c, const char *key, const struct node *node,
	struct claim_limits *out)
{
	uint64_t n = 0;

	if (strcmp(key, "memory") == 0) {
		if (node->kind != NODE_SCALAR || !str_to_size(node->text, &n) || n > INT64_MAX)
			return user_config_wrong(c, node, "`memory` must be a size such as 32GiB");
		lower(&out->memory, (int64_t)n);
		return 0;
	}
	if (strcmp(key, "cpus") != 0 && strcmp(key, "gpus") != 0 && strcmp(key, "runs") != 0)
		return user_config_wrong(
			c, node, "unknown key `%s`: limits are cpus, memory, gpus and runs", key);
	if (node->kind != NODE_SCALAR || !str_to_u64(node->text, 0, INT32_MAX, &n))
		return user_config_wrong(c, node, "`%s` must be a whole number", key);
	lower(strcmp(key, "cpus") == 0	   ? &out->cpus
		: strcmp(key, "gpus") == 0 ? &out->gpus
					   : &out->runs,
		(int64_t)n);
	return 0;
}

/* Checks every entry, including the entries of other users. */
static int read_users(
	const struct user_config *c, const struct node *limits, struct claim_limits *out)
{
	const struct node *mine = node_get(limits, c->user);

	if (!mine)
		mine = node_get(limits, "*");
	for (size_t i = 0; i < limits->n; i++) {
		const struct node *user = limits->entries[i].value;
		struct claim_limits ignored = CLAIM_NO_LIMITS;

		if (user->kind != NODE_MAP)
			return user_config_wrong(c, user,
				"the limits of `%s` must be a map of cpus, memory, gpus and runs",
				limits->entries[i].key);
		for (size_t k = 0; k < user->n; k++) {
			int r = read_limit(c, user->entries[k].key, user->entries[k].value,
				user == mine ? out : &ignored);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int read_limits(const struct user_config *c, const struct node *root, void *out)
{
	const struct node *limits = node_get(root, "limits");

	if (limits && limits->kind != NODE_MAP)
		return user_config_wrong(c, limits, "`limits` must be a map of users");
	return limits ? read_users(c, limits, out) : 0;
}

static int read_images(const struct user_config *c, const struct node *root, void *out)
{
	const struct node *images = node_get(root, "images");
	uint64_t *bound = out;
	uint64_t n;

	if (images && images->kind != NODE_MAP)
		return user_config_wrong(c, images, "`images` must be a map with `maxSize`");
	for (size_t i = 0; images && i < images->n; i++) {
		const struct node *value = images->entries[i].value;

		if (strcmp(images->entries[i].key, "maxSize") != 0)
			return user_config_wrong(c, value,
				"unknown key `%s`: `images` has `maxSize`", images->entries[i].key);
		if (value->kind != NODE_SCALAR || !str_to_size(value->text, &n))
			return user_config_wrong(
				c, value, "`maxSize` must be a size such as 50GiB");
		if (n < *bound)
			*bound = n;
	}
	return 0;
}

/* Refuses unknown keys: a typing mistake would lift a limit. */
static int check_keys(const struct user_config *c, const struct node *root)
{
	static const char *const keys[] = {
		"images", "limits", "on", "output", "preemption", "slurm"};

	for (size_t i = 0; i < root->n; i++) {
		const struct node_entry *entry = &root->entries[i];
		bool known = false;

		for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
			known |= strcmp(entry->key, keys[k]) == 0;
		if (!known)
			return error_set(c->err, PENSTOCK_E_INVALID,
				"%s:%d:%d: unknown key `%s`: a configuration has images, limits, "
				"on, output, preemption and slurm",
				c->path, entry->key_at.line, entry->key_at.column, entry->key);
	}
	return 0;
}

static int read_file(const char *path, uid_t uid,
	int (*take)(const struct user_config *c, const struct node *root, void *out), void *out,
	struct penstock_error *err)
{
	_cleanup_free_ char *user = NULL;
	struct user_config c = {.path = path, .err = err};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(buf_release) struct buf mistake = BUF_INIT(LIMIT_LOG_LINE);
	struct workflow_arena arena = {0};
	struct diagnostics found = {0};
	const struct node *root;
	int r;

	if (access(path, F_OK) < 0)
		return 0;
	r = fs_read(path, &text, err);
	if (r < 0 || text.len == 0)
		return r;
	c.user = user = claim_user_name(uid);
	if (!user)
		return error_memory(err);
	root = document_read(&arena, path, buf_str(&text), text.len, &found);
	if (found.n && diagnostic_format(&found.items[0], &mistake) == 0)
		r = error_set(err, PENSTOCK_E_INVALID, "%s", buf_str(&mistake));
	else if (!root || root->kind != NODE_MAP)
		r = error_set(err, PENSTOCK_E_INVALID,
			"%s: a configuration must be a map of images, limits, on, output, "
			"preemption or slurm",
			path);
	else
		r = check_keys(&c, root);
	if (r == 0)
		r = take(&c, root, out);
	diagnostics_release(&found);
	workflow_arena_release(&arena);
	return r;
}

char *user_config_path(void)
{
	const char *given = str_env("PENSTOCK_CONFIG");
	const char *config = str_env("XDG_CONFIG_HOME");
	const char *home = str_env("HOME");

	if (given)
		return strdup(given);
	if (config && *config == '/')
		return path_join(config, "penstock/config.yaml");
	return str_printf("%s/.config/penstock/config.yaml", home ? home : "/root");
}

const char *system_config_path(void)
{
	const char *given = str_env("PENSTOCK_SYSTEM_CONFIG");

	return given ? given : "/etc/penstock/config.yaml";
}

int user_config_read(int (*take)(const struct user_config *c, const struct node *root, void *out),
	void *out, struct penstock_error *err)
{
	_cleanup_free_ char *own = user_config_path();
	int r;

	if (!own)
		return error_memory(err);
	r = read_file(system_config_path(), geteuid(), take, out, err);
	return r < 0 ? r : read_file(own, geteuid(), take, out, err);
}

int user_limits_read(struct claim_limits *out, struct penstock_error *err)
{
	*out = (struct claim_limits)CLAIM_NO_LIMITS;
	return user_config_read(read_limits, out, err);
}

int user_images_bound(uint64_t *out, struct penstock_error *err)
{
	*out = UINT64_MAX;
	return user_config_read(read_images, out, err);
}

int user_limits_of(uid_t uid, struct claim_limits *out, struct penstock_error *err)
{
	if (uid == geteuid())
		return user_limits_read(out, err);
	*out = (struct claim_limits)CLAIM_NO_LIMITS;
	return read_file(system_config_path(), uid, read_limits, out, err);
}
