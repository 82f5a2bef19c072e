/* Building the native tree of a dialect's document. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/document/secrets.h"

void native_put(struct reader *rd, struct node *parent, const char *key, struct node *value)
{
	if (parent && value)
		node_add(rd->arena, parent, key, value->at, value);
}

struct node *native_new(struct reader *rd, struct node *parent, const char *key,
	enum node_kind kind, const struct workflow_place *at)
{
	struct node *node = node_new(rd->arena, kind, *at);

	native_put(rd, parent, key, node);
	return node;
}

void native_text(struct reader *rd, struct node *parent, const char *key, const char *text,
	const struct workflow_place *at)
{
	if (text)
		native_put(rd, parent, key, node_scalar(rd->arena, text, true, *at));
}

void native_number(struct reader *rd, struct node *parent, const char *key, int64_t value,
	const struct workflow_place *at)
{
	const char *text = workflow_arena_printf(rd->arena, "%lld", (long long)value);

	if (text)
		native_put(rd, parent, key, node_scalar(rd->arena, text, false, *at));
}

void native_flag(struct reader *rd, struct node *parent, const char *key, bool value,
	const struct workflow_place *at)
{
	native_put(rd, parent, key, node_scalar(rd->arena, value ? "true" : "false", false, *at));
}

static void native_variable(
	struct reader *rd, struct node *list, const char *name, struct node *value)
{
	if (value)
		native_put(rd, list, NULL, node_variable(rd->arena, name, value->at, value));
}

void native_variable_text(struct reader *rd, struct node *list, const char *name, const char *value,
	const struct workflow_place *at)
{
	if (value)
		native_variable(rd, list, name, node_scalar(rd->arena, value, true, *at));
}

/* Adds the variable of "NAME=VALUE"; a NAME without "=" has an empty value. The field of a secret
 * value is FIELD.NAME. */
static void put_pair(struct reader *rd, struct node *list, const struct node *pair)
{
	const char *equals = strchr(pair->text, '=');
	size_t len = equals ? (size_t)(equals - pair->text) : strlen(pair->text);
	const char *name = workflow_arena_copy(rd->arena, pair->text, len);
	struct node *value = node_scalar(rd->arena, equals ? equals + 1 : "", true, pair->at);

	if (!name || !value)
		return;
	if (pair->field)
		value->field = workflow_arena_printf(rd->arena, "%s.%s", pair->field, name);
	native_variable(rd, list, name, value);
}

void native_variables(struct reader *rd, struct node *list, const struct node *from)
{
	if (!from)
		return;
	for (size_t i = 0; i < from->n; i++) {
		const struct node_entry *entry = &from->entries[i];
		struct node *value = entry->value;

		if (from->kind == NODE_LIST && value->kind == NODE_SCALAR) {
			put_pair(rd, list, value);
		} else if (from->kind == NODE_MAP && value->kind == NODE_SCALAR) {
			value->literal = false;
			value->quoted = true;
			native_variable(rd, list, entry->key, value);
		} else {
			reader_error(rd, &value->at, "a variable must be text, not %s",
				node_kind_name(value));
		}
	}
}

/* Returns the length of a registry's host at the beginning of an image's name; 0 if there is
 * none. */
static size_t registry_length(const char *image)
{
	size_t len = strcspn(image, "/");

	if (!image[len])
		return 0;
	return memchr(image, '.', len) || memchr(image, ':', len) ||
			       (len == 9 && strncmp(image, "localhost", 9) == 0)
		       ? len
		       : 0;
}

struct node *native_container(
	struct reader *rd, struct node *run, const struct node *image, const struct node *auth)
{
	struct node *container = native_map(rd, run, "container", &image->at);
	const char *name = image->text;
	size_t registry;

	if (str_starts(name, "docker:"))
		name += strlen("docker:");
	registry = registry_length(name);
	if (registry) {
		native_text(rd, container, "registry",
			workflow_arena_copy(rd->arena, name, registry), &image->at);
		name += registry + 1;
	}
	native_text(rd, container, "image", name, &image->at);
	if (image->at.option) /* the image's registry may differ from the file's */
		return container;
	native_put(rd, container, "username", node_get(auth, "username"));
	native_put(rd, container, "password", node_get(auth, "password"));
	return container;
}

const struct node *native_image(struct reader *rd, const struct node *image)
{
	const char *given = rd->options->image;
	const struct workflow_place at = {.option = "--image"};

	if (given)
		given = workflow_arena_copy(rd->arena, given, strlen(given));
	return given ? node_scalar(rd->arena, given, true, at) : image;
}

struct node *native_context(struct reader *rd, struct node *job, const char *path,
	const char *ignore, const struct workflow_place *at)
{
	const char *given = rd->options->context;
	struct node *map;

	if (given)
		path = workflow_arena_copy(rd->arena, given, strlen(given));
	if (!path)
		return NULL;
	map = native_map(rd, job, "context", at);
	native_text(rd, map, "path", path, at);
	native_text(rd, map, "ignore", ignore, at);
	return map;
}

/* Adds a copy of a text that does not live as long as the arena. */
static void native_copy(struct reader *rd, struct node *parent, const char *key, const char *text,
	const struct workflow_place *at)
{
	native_text(rd, parent, key, workflow_arena_copy(rd->arena, text, strlen(text)), at);
}

bool native_bucket(struct reader *rd, struct node *parent, const char *url,
	const struct workflow_place *at, struct node **transport)
{
	bool google = str_starts(url, "gs://");
	const char *bucket = url + strlen("s3://");
	size_t len;
	struct node *map;

	if (!google && !str_starts(url, "s3://"))
		return false;
	len = strcspn(bucket, "/");
	map = native_map(rd, parent, google ? "gs" : "s3", at);
	if (!google) {
		const struct workflow_site *site = &rd->site;

		native_copy(rd, map, "region", site->region ? site->region : "us-east-1", at);
		native_copy(rd, map, "endpointUrl",
			site->endpoint_url ? site->endpoint_url : "https://s3.amazonaws.com", at);
	}
	native_text(rd, map, "bucketUrl",
		workflow_arena_printf(
			rd->arena, "%s%.*s", google ? "gs://" : "s3://", (int)len, bucket),
		at);
	native_text(rd, map, "path", bucket[len] ? bucket + len : "/", at);
	*transport = map;
	return true;
}

/* Converts `text` to a name: at most LIMIT_WORKFLOW_NAME letters, digits and "._-", beginning with
 * a letter or digit. */
static char *plain_name(struct reader *rd, const char *text)
{
	char *name = workflow_arena_copy(rd->arena, text, strlen(text));
	size_t n = 0;

	if (!name)
		return NULL;
	for (const char *p = text; *p && n < LIMIT_WORKFLOW_NAME; p++) {
		bool good = isalnum((unsigned char)*p) || *p == '.' || *p == '_' || *p == '-';

		if (good && (n || isalnum((unsigned char)*p)))
			name[n++] = *p;
		else if (!good && n && name[n - 1] != '-')
			name[n++] = '-';
	}
	while (n && name[n - 1] == '-')
		n--;
	name[n] = '\0';
	return name;
}

void native_name(struct reader *rd, struct node *job, const struct node *name)
{
	const char *plain;

	if (!name || name->kind != NODE_SCALAR)
		return;
	plain = plain_name(rd, name->text);
	if (!plain || !*plain)
		return;
	if (strcmp(plain, name->text) != 0)
		reader_note(rd, &name->at,
			"the run is named `%s`: a name has only letters, digits, `.`, `_` and "
			"`-`, not %s",
			plain, quote(name->text));
	native_text(rd, job, "name", plain, &name->at);
}

void native_resources(struct reader *rd, struct node *job, const struct workflow_place *at,
	const struct native_share *share)
{
	struct node *out;

	if (!share->cpu_at && !share->memory_at && !share->gpu_at && !share->gpus &&
		share->nodes == 1)
		return;
	out = native_map(rd, job, "resources", at);
	native_number(rd, out, "tasks", share->nodes, at);
	if (share->nodes > 1)
		native_number(rd, out, "tasksPerNode", 1, at);
	if (share->cpu_at)
		native_number(rd, out, "cpusPerTask", share->cpus, &share->cpu_at->at);
	if (share->memory_at && share->memory > 0)
		native_number(rd, out, "memPerCpu", (share->memory + share->cpus - 1) / share->cpus,
			&share->memory_at->at);
	if (share->gpu_at || share->gpus)
		native_number(rd, out, "gpusPerTask", share->gpus,
			share->gpu_at ? &share->gpu_at->at : at);
}

void native_local(
	struct reader *rd, struct node *input, const char *path, const struct workflow_place *at)
{
	struct node *map = native_map(rd, input, "local", at);

	native_text(rd, map, "path", dialect_home_path(rd, path), at);
	native_flag(rd, input, "unpack", false, at);
}

void native_default_cpus(struct reader *rd, struct node *job)
{
	struct node *resources = node_get(job, "resources");
	int64_t tasks = dialect_whole(resources, "tasks", 1);
	bool one_each = rd->site.nodes && dialect_whole(resources, "tasksPerNode", 0) == 1;
	int64_t cpus = dialect_cpus(rd) / (tasks > 0 && !one_each ? tasks : 1);

	if (!rd->site.cpus || node_find(resources, "cpusPerTask") || cpus < 1)
		return;
	if (!resources)
		resources = native_map(rd, job, "resources", &job->at);
	native_number(rd, resources, "cpusPerTask", cpus, &job->at);
}

/* ---- the output of the configuration ---- */

static void add_part(struct reader *rd, struct buf *path, const char *name)
{
	const char *plain = name ? plain_name(rd, name) : NULL;

	if (plain && *plain)
		buf_printf(path, "/%s", plain);
}

void native_default_output(
	struct reader *rd, struct node *job, const char *project, const char *name)
{
	const struct workflow_options *o = rd->options;
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	struct node *root, *output, *s3;
	struct node_entry *entry;

	if (!o->defaults || !o->defaults_len)
		return;
	root = document_read(rd->arena, o->defaults_name, o->defaults, o->defaults_len, rd->found);
	output = root && root->kind == NODE_MAP ? node_get(root, "output") : NULL;
	if (!output)
		return;
	node_set_file(
		output, workflow_arena_copy(rd->arena, o->defaults_name, strlen(o->defaults_name)));
	if (output->kind != NODE_MAP) {
		reader_error(
			rd, &output->at, "`output` must be a map, not %s", node_kind_name(output));
		return;
	}
	secrets_mark(rd->arena, output);
	native_put(rd, job, "output", output);
	s3 = node_get(output, "s3") ? node_get(output, "s3") : node_get(output, "gs");
	entry = node_find(s3, "path");
	if (!entry || entry->value->kind != NODE_SCALAR)
		return;
	buf_add_str(&path, entry->value->text);
	while (path.len && path.data[path.len - 1] == '/')
		buf_truncate(&path, path.len - 1);
	add_part(rd, &path, project);
	add_part(rd, &path, name);
	entry->value = node_scalar(rd->arena,
		workflow_arena_copy(rd->arena, buf_str(&path), path.len), true, entry->value->at);
	if (!node_find(job, "continuousOutputSync"))
		native_put(rd, job, "continuousOutputSync",
			node_scalar(rd->arena, "true", false, output->at));
}
