/* `file_mounts` of a SkyPilot task: inputs, and the output where its steps write. */
#include "workflow/dialects/skypilot.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

/* clang-format off */
static const struct schema_key mount_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"source", .kinds = KEY_TEXT | KEY_TEXTS},
	{"store", .kinds = KEY_TEXT},
	{"mode", .kinds = KEY_TEXT},
	{"persistent", .kinds = KEY_FLAG, .note = "has no effect: nothing in a bucket is deleted"},
	{"config", .kinds = KEY_ANY, .note = "has no effect: nothing is mounted"},
	{"_is_sky_managed", .kinds = KEY_ANY, .refused = "it is internal to SkyPilot"},
};
static const struct schema schema_mount = {SCHEMA(NULL, "a file mount", mount_keys)};
/* clang-format on */

/* The lowest score of a mount to which steps probably write. A bucket that is given by its name
 * alone has a lower score without other signs: it is the output only if no mount scores higher. */
#define WRITTEN 3

/* One of `file_mounts`. */
struct mount {
	const struct workflow_place *at;
	const char *target;
	struct node *sources; /* text or a list; NULL if there are none */
	const char *bucket; /* URL of the bucket; NULL if the files are not in a bucket */
	bool named; /* the bucket is known by its name alone */
	enum shell_how how;
	int score; /* likelihood that steps write to the mount; 0 or less if they probably do not */
};

/* ---- variables ---- */

/* Returns the length of a variable's name at `text`, after the `$`; 0 if there is none. */
static size_t name_length(const char *text)
{
	return isdigit((unsigned char)*text) ? 0 : strspn(text, LETTERS_AND_DIGITS "_");
}

static const char *value_of(const struct task *t, const char *name)
{
	static const char *const maps[] = {"envs", "secrets"};
	const struct strlist *env = t->rd->options->env;
	const char *value = env ? strlist_get(env, name) : NULL;

	for (size_t i = 0; !value && i < ARRAY_SIZE(maps); i++) {
		const struct node *map = node_get(t->root, maps[i]);

		value = map && map->kind == NODE_MAP ? dialect_text(map, name) : NULL;
	}
	return value;
}

const char *skypilot_expand(struct task *t, const struct workflow_place *at, const char *text)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (!strchr(text, '$') || strstr(text, "${{"))
		return text;
	while (*text) {
		size_t len = strcspn(text, "$");
		const char *name, *value;
		bool brace;

		buf_add(&out, text, len);
		text += len;
		if (!*text)
			break;
		brace = text[1] == '{';
		text += brace ? 2 : 1;
		len = name_length(text);
		name = workflow_arena_copy(t->rd->arena, text, len);
		value = name && len ? value_of(t, name) : NULL;
		if (!value) {
			reader_error(t->rd, at,
				"`envs` has no value for `%s` in this path; give it with --env "
				"%s=VALUE",
				name ? name : "", name ? name : "");
			return NULL;
		}
		buf_add_str(&out, value);
		text += len + (brace && text[len] == '}');
	}
	return workflow_arena_take(t->rd->arena, &out);
}

/* ---- buckets ---- */

static bool is_google(const struct task *t)
{
	const char *cloud = dialect_text(t->resources, "cloud");
	const char *infra = dialect_text(t->resources, "infra");

	return (cloud && strcasecmp(cloud, "gcp") == 0) ||
	       (infra && (strcmp(infra, "gcp") == 0 || str_starts(infra, "gcp/")));
}

/* Returns the URL of a bucket that is known by its name and `store`; NULL after an error, which is
 * reported. */
static const char *bucket_named(struct task *t, const struct node *map, const struct node *name)
{
	const struct node *store = node_get(map, "store");
	const char *kind = store	  ? skypilot_expand(t, &store->at, store->text)
			   : is_google(t) ? "gcs"
					  : "s3";
	const char *text = skypilot_expand(t, &name->at, name->text);

	if (!kind || !text)
		return NULL;
	if (!store)
		reader_note(t->rd, &name->at,
			"the bucket `%s` is read as a bucket of %s: `store` is missing", text,
			strcmp(kind, "gcs") == 0 ? "Google Cloud Storage" : "S3");
	if (strcasecmp(kind, "azure") == 0) {
		reader_error(t->rd, &store->at,
			"`store: azure` is not supported; use s3, gcs, or a store that speaks S3");
		return NULL;
	}
	if (strcasecmp(kind, "gcs") != 0 && strcasecmp(kind, "s3") != 0)
		reader_note(t->rd, &store->at,
			"`store: %s` is read as S3 at the address that AWS_ENDPOINT_URL gives",
			kind);
	return workflow_arena_printf(
		t->rd->arena, "%s://%s", strcasecmp(kind, "gcs") == 0 ? "gs" : "s3", text);
}

/* Returns the URL of a bucket in the form of s3:// or gs://; NULL for other sources. If `at` is not
 * NULL, adds a note at this place about a store that is read as S3. */
static const char *bucket_at(struct task *t, const struct workflow_place *at, const char *source)
{
	static const char *const alike[] = {
		"r2://", "oci://", "nebius://", "cw://", "vastdata://", "cos://"};
	const char *bucket = strstr(source, "://");

	if (str_starts(source, "s3://") || str_starts(source, "gs://"))
		return source;
	if (!bucket || !str_starts_any(source, alike, ARRAY_SIZE(alike)))
		return NULL;
	bucket += strlen("://");
	if (str_starts(source, "cos://") && strchr(bucket, '/')) /* cos://REGION/BUCKET */
		bucket = strchr(bucket, '/') + 1;
	if (at)
		reader_note(t->rd, at,
			"`%s` is read as S3 at the address that AWS_ENDPOINT_URL gives", source);
	/* oci://BUCKET@REGION */
	return workflow_arena_printf(t->rd->arena, "s3://%.*s", (int)strcspn(bucket, "@"), bucket);
}

static bool is_unknown_store(struct task *t, const struct workflow_place *at, const char *source)
{
	const char *host = strstr(source, "://");

	if (!host || str_starts(source, "http://") ||
		(str_starts(source, "https://") && !strstr(source, ".blob.core.windows.net")))
		return false;
	reader_error(t->rd, at,
		"the store of `%s` is not supported; use s3://, gs://, http(s):// or files of this "
		"machine",
		source);
	return true;
}

/* ---- guessing the mounts to which steps write ---- */

static bool has_any(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcasestr(text, words[i]))
			return true;
	}
	return false;
}

/* Returns true if a command seems to write to a path at or below `target`. */
static bool is_written(const struct task *t, const char *target)
{
	static const char *const words[] = {
		">", "of=", "out", "save", "log", "ckpt", "checkpoint", "tee ", "write", "export"};
	size_t len = strlen(target);

	for (const char *p = t->shell.commands; (p = strstr(p, target)); p += len) {
		const char *line = p;
		char before[40] = {0};
		size_t n;

		while (line > t->shell.commands && line[-1] != '\n' && p - line < 32)
			line--;
		n = (size_t)(p - line);
		memcpy(before, line, n);
		if (has_any(before, words, ARRAY_SIZE(words)))
			return true;
	}
	return false;
}

static int score_of(const struct task *t, const struct mount *m, const char *mode)
{
	static const char *const results[] = {"checkpoint", "ckpt", "output", "result", "log",
		"artifact", "save", "trained", "notebook"};
	static const char *const data[] = {"data", "input", "images"};
	bool written = is_written(t, m->target);
	int score = m->named ? 2 : 0;

	if (mode && strcmp(mode, "MOUNT_CACHED") == 0)
		score += 4;
	if (has_any(m->target, results, ARRAY_SIZE(results)))
		score += 3;
	else if (has_any(m->target, data, ARRAY_SIZE(data)) && !written)
		score -= 1;
	return written ? score + 3 : score;
}

/* ---- reading the mounts ---- */

static bool read_mode(struct task *t, const struct node *map, struct mount *m)
{
	const struct node *mode = node_get(map, "mode");

	m->how = mode && strcmp(mode->text, "COPY") == 0 ? SHELL_COPY : SHELL_MOUNT;
	if (m->how == SHELL_COPY || !mode || strcmp(mode->text, "MOUNT") == 0 ||
		strcmp(mode->text, "MOUNT_CACHED") == 0)
		return true;
	reader_error(t->rd, &mode->at, "`mode` must be COPY, MOUNT or MOUNT_CACHED, not `%s`",
		mode->text);
	return false;
}

static bool read_map(struct task *t, struct node_entry *entry, struct mount *m)
{
	struct node *map = entry->value;
	size_t saved = reader_enter(t->rd, entry->key, 0);
	bool good = dialect_check(t->rd, map, &schema_mount) && read_mode(t, map, m);
	const struct node *name = node_get(map, "name");

	reader_leave(t->rd, saved);
	m->sources = node_get(map, "source");
	if (!good)
		return false;
	if (!m->sources && !name) {
		reader_error(t->rd, &map->at,
			"`source` and `name` are missing; give the bucket or the files");
		return false;
	}
	m->named = !m->sources;
	if (m->named) {
		m->bucket = bucket_named(t, map, name);
		good = m->bucket != NULL;
	} else if (m->sources->kind == NODE_SCALAR) {
		const char *source = skypilot_expand(t, &m->sources->at, m->sources->text);

		m->bucket = source ? bucket_at(t, &m->sources->at, source) : NULL;
		good = source != NULL;
	}
	/* If earlier documents name this bucket, their tasks may write the files that this task
	 * reads. */
	if (good && m->bucket && m->how == SHELL_MOUNT && t->rd->before &&
		strstr(t->rd->before, strstr(m->bucket, "://") + 3))
		m->score = 0;
	else if (good && m->bucket && m->how == SHELL_MOUNT)
		m->score = score_of(t, m, dialect_text(map, "mode"));
	else if (good && !m->bucket && name)
		reader_note(t->rd, &entry->key_at,
			"these files are copied from this machine: they are not uploaded to the "
			"bucket `%s`, and changes to them stay in the run",
			name->text);
	else if (good && m->how == SHELL_MOUNT)
		reader_note(t->rd, &entry->key_at,
			"these files are copied: changes to them stay in the run");
	return good;
}

/* Returns false for a mount with a mistake, which is reported. */
static bool read_mount(struct task *t, struct node_entry *entry, struct mount *m)
{
	*m = (struct mount){.at = &entry->key_at, .sources = entry->value};
	m->target = skypilot_expand(t, &entry->key_at, entry->key);
	if (!m->target)
		return false;
	if (!*m->target) {
		reader_error(t->rd, m->at, "`file_mounts`: a target is empty; give its path");
		return false;
	}
	if (reader_has_dots(m->target + strspn(m->target, "./"))) {
		reader_error(
			t->rd, m->at, "`file_mounts`: %s must not contain `.` or `..`", m->target);
		return false;
	}
	if (entry->value->kind == NODE_MAP)
		return read_map(t, entry, m);
	if (entry->value->kind == NODE_SCALAR && !node_is_null(entry->value)) {
		const char *source = skypilot_expand(t, &entry->value->at, entry->value->text);

		m->bucket = source ? bucket_at(t, &entry->value->at, source) : NULL;
		return source != NULL;
	}
	reader_error(t->rd, &entry->value->at, "`file_mounts`: %s must be text or a map, not %s",
		entry->key, node_kind_name(entry->value));
	return false;
}

/* ---- the native tree ---- */

/* Returns the target as a path in the working directory; NULL if the target is elsewhere. */
static const char *link_of(struct task *t, const char *target)
{
	size_t len;

	if (str_starts(target, "~/sky_workdir/"))
		target += strlen("~/sky_workdir/");
	while (str_starts(target, "./"))
		target += 2;
	len = strlen(target);
	while (len && target[len - 1] == '/')
		len--;
	return *target == '/' || *target == '~' || !len
		       ? NULL
		       : workflow_arena_copy(t->rd->arena, target, len);
}

static void put_transport(
	struct task *t, struct node *input, const struct workflow_place *at, const char *source)
{
	const char *bucket = bucket_at(t, NULL, source);
	struct node *ignored;

	if (native_bucket(t->rd, input, bucket ? bucket : source, at, &ignored))
		return;
	if (!str_starts(source, "http://") && !str_starts(source, "https://")) {
		native_local(t->rd, input, source, at);
		return;
	}
	native_text(t->rd, native_map(t->rd, input, "http", at), "url", source, at);
	native_flag(t->rd, input, "unpack", false, at);
}

/* Adds an input for one source of the mount, and puts it at the target. */
static void put_input(struct task *t, const struct mount *m, const struct workflow_place *at,
	const char *source, const char *target)
{
	const char *link = link_of(t, target);
	struct node *input;

	if (!source || is_unknown_store(t, at, bucket_at(t, NULL, source) ? "s3" : source))
		return;
	if (!link) {
		input = shell_input(&t->shell, t->inputs, target, m->how, at);
	} else {
		input = native_map(t->rd, t->inputs, NULL, at);
		native_text(t->rd, input, "path",
			workflow_arena_printf(t->rd->arena, "mounts/%zu", t->inputs->n - 1), at);
		native_text(t->rd, input, "link", link, at);
	}
	put_transport(t, input, at, source);
}

static void put_inputs(struct task *t, const struct mount *m)
{
	const struct node *list = m->sources;

	if (m->named) {
		put_input(t, m, m->at, m->bucket, m->target);
		return;
	}
	if (list->kind == NODE_SCALAR) {
		put_input(t, m, &list->at, skypilot_expand(t, &list->at, list->text), m->target);
		return;
	}
	for (size_t i = 0; i < list->n; i++) {
		const struct node *item = list->entries[i].value;
		const char *source = skypilot_expand(t, &item->at, item->text);
		size_t len = source ? strlen(source) : 0;
		const char *base;

		while (len > 1 && source[len - 1] == '/')
			len--;
		base = source ? memrchr(source, '/', len) : NULL;
		base = base ? base + 1 : source;
		if (!source)
			continue;
		bucket_at(t, &item->at, source);
		put_input(t, m, &item->at, source,
			workflow_arena_printf(t->rd->arena, "%s%s%.*s", m->target,
				str_ends(m->target, "/") ? "" : "/", (int)(source + len - base),
				base));
	}
}

static void put_output(struct task *t, const struct mount *m)
{
	struct node *output, *transport = NULL;

	if (!node_find(t->job, "output")) {
		output = native_map(t->rd, t->job, "output", m->at);
		if (!native_bucket(t->rd, output, m->bucket, m->at, &transport))
			return;
		native_put(t->rd, t->job, "continuousOutputSync",
			node_scalar(t->rd->arena, "true", false, *m->at));
		reader_note(t->rd, m->at,
			"%s is the run's output: what steps write to it is published to %s; what "
			"the bucket has from other runs is not fetched",
			m->target, m->bucket);
	}
	shell_place(&t->shell, "$DEEPSQUARE_OUTPUT", m->target, SHELL_MOUNT);
}

/* Returns the mount that is most likely the output; NULL if steps probably write to no mount. */
static const struct mount *output_of(const struct mount *mounts, size_t n)
{
	const struct mount *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (mounts[i].score >= 2 && (!best || mounts[i].score >= best->score))
			best = &mounts[i];
	}
	return best;
}

void skypilot_put_files(struct task *t)
{
	const struct node *map = node_get(t->root, "file_mounts");
	_cleanup_free_ struct mount *mounts = map ? calloc(map->n + 1, sizeof(*mounts)) : NULL;
	const struct mount *output;
	size_t n = 0, saved;

	if (!map)
		return;
	if (!mounts) {
		t->rd->arena->no_memory = true;
		return;
	}
	saved = reader_enter(t->rd, "file_mounts", 0);
	for (size_t i = 0; i < map->n; i++)
		n += read_mount(t, &map->entries[i], &mounts[n]);
	reader_leave(t->rd, saved);
	output = output_of(mounts, n);
	t->inputs = native_list(t->rd, t->job, "inputs", &map->at);
	for (size_t i = 0; t->inputs && i < n; i++) {
		const struct mount *m = &mounts[i];

		if (output && m->bucket && m->how == SHELL_MOUNT &&
			strcmp(m->bucket, output->bucket) == 0) {
			put_output(t, m);
			continue;
		}
		if (output && m->bucket && m->how == SHELL_MOUNT && m->score >= WRITTEN) {
			reader_error(t->rd, m->at,
				"%s seems to be written as well as %s, and a run publishes to one "
				"bucket; give it `mode: COPY` if steps only read it, else use the "
				"same bucket for both",
				m->target, output->target);
			continue;
		}
		if (m->bucket && m->how == SHELL_MOUNT)
			reader_note(t->rd, m->at,
				"%s is fetched before the steps, and what they write there is not "
				"published",
				m->target);
		put_inputs(t, m);
	}
}
