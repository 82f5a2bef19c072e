#include "run/task/cdi.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/document/arena.h"
#include "workflow/document/diagnostics.h"
#include "workflow/document/document.h"

static const char *const standard_dirs[] = {"/etc/cdi", "/var/run/cdi", NULL};

/* ---- reading: JSON and YAML through the reader of workflows ---- */

static json_t *from_node(const struct node *node)
{
	json_t *out;
	int64_t number;

	switch (node->kind) {
	case NODE_SCALAR:
		switch (scalar_type(node)) {
		case SCALAR_NULL:
			return json_null();
		case SCALAR_BOOL:
			return json_boolean(strcasecmp(node->text, "true") == 0);
		case SCALAR_INT:
			if (str_to_i64(node->text, INT64_MIN, INT64_MAX, &number))
				return json_integer(number);
			return json_string(node->text);
		default:
			return json_string(node->text);
		}
	case NODE_LIST:
		out = json_array();
		for (size_t i = 0; i < node->n; i++)
			json_array_append_new(out, from_node(node->entries[i].value));
		return out;
	default:
		out = json_object();
		for (size_t i = 0; i < node->n; i++)
			json_object_set_new(
				out, node->entries[i].key, from_node(node->entries[i].value));
		return out;
	}
}

static json_t *read_file(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	struct workflow_arena arena = {0};
	struct diagnostics found = {0};
	const struct node *node = NULL;
	json_t *json = NULL;

	if (fs_read(path, &text, NULL) == 0)
		node = document_read(&arena, path, buf_str(&text), text.len, &found);
	if (node && !found.errors && node->kind == NODE_MAP)
		json = from_node(node);
	else
		log_warn("cannot read CDI specification '%s'", path);
	diagnostics_release(&found);
	workflow_arena_release(&arena);
	return json;
}

static int is_spec(const struct dirent *entry)
{
	return str_ends(entry->d_name, ".json") || str_ends(entry->d_name, ".yaml") ||
	       str_ends(entry->d_name, ".yml");
}

/* ---- searching ---- */

static const json_t *find_device(const json_t *spec, const char *name)
{
	const json_t *devices = json_object_get(spec, "devices");
	size_t i;
	json_t *device;

	json_array_foreach (devices, i, device) {
		const json_t *given = json_object_get(device, "name");
		char number[24] = "";

		if (json_is_integer(given))
			snprintf(number, sizeof(number), "%lld",
				(long long)json_integer_value(given));
		if (strcmp(json_is_string(given) ? json_string_value(given) : number, name) == 0)
			return device;
	}
	return NULL;
}

static bool is_gpus(const json_t *spec)
{
	const char *kind = json_string_value(json_object_get(spec, "kind"));

	return kind && str_ends(kind, "/gpu");
}

/* Appends the edits of the devices to `edits`. Returns false if the specification lacks one of
 * them. */
static bool take_devices(const json_t *spec, const int *gpus, size_t n, json_t *edits)
{
	json_auto_t *found = json_array();

	/* Appending NULL does nothing. */
	json_array_append(found, json_object_get(spec, "containerEdits"));
	for (size_t i = 0; i < n; i++) {
		const json_t *device;
		char name[16];

		snprintf(name, sizeof(name), "%d", gpus[i]);
		device = find_device(spec, name);
		if (!device)
			return false;
		json_array_append(found, json_object_get(device, "containerEdits"));
	}
	return json_array_extend(edits, found) == 0;
}

static bool look_in(const char *dir, const int *gpus, size_t n, json_t *edits)
{
	struct dirent **names = NULL;
	int count = scandir(dir, &names, is_spec, alphasort);
	bool found = false;

	for (int i = 0; i < count; i++) {
		_cleanup_free_ char *path = found ? NULL : path_join(dir, names[i]->d_name);
		json_auto_t *spec = path ? read_file(path) : NULL;

		found = found || (spec && is_gpus(spec) && take_devices(spec, gpus, n, edits));
		free(names[i]);
	}
	free(names);
	return found;
}

int cdi_find(json_t **out, const char *const *dirs, const int *gpus, size_t n,
	struct penstock_error *err)
{
	json_t *edits = json_array();
	size_t last = 0;

	if (!edits)
		return error_memory(err);
	if (!dirs)
		dirs = standard_dirs;
	while (dirs[last])
		last++;
	while (last > 0) {
		if (look_in(dirs[--last], gpus, n, edits)) {
			*out = edits;
			return 0;
		}
	}
	json_decref(edits);
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		"cannot find a CDI specification for GPU %d in /etc/cdi or /var/run/cdi; make one "
		"with 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml', or run without GPUs "
		"with --set resources.gpusPerTask=0",
		n ? gpus[0] : 0);
}

/* ---- applying ---- */

static json_t *member(json_t *object, const char *key, json_t *(*make)(void))
{
	json_t *found = json_object_get(object, key);

	if (!found) {
		json_object_set_new(object, key, make());
		found = json_object_get(object, key);
	}
	return found;
}

static void add_node(json_t *config, const json_t *node)
{
	const char *path = json_string_value(json_object_get(node, "path"));
	const char *host = json_string_value(json_object_get(node, "hostPath"));
	json_t *devices = member(member(config, "linux", json_object), "devices", json_array);
	struct stat st;

	if (!path || stat(host ? host : path, &st) < 0 ||
		(!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))) {
		log_warn("cannot use the device '%s' of a CDI specification: it does not exist",
			path ? path : "(without a path)");
		return;
	}
	json_array_append_new(devices,
		json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:i}", "path", path, "type",
			S_ISCHR(st.st_mode) ? "c" : "b", "major", (json_int_t)major(st.st_rdev),
			"minor", (json_int_t)minor(st.st_rdev), "fileMode",
			(int)(st.st_mode & 0777), "uid", 0, "gid", 0));
}

static void add_mount(json_t *config, const json_t *mount)
{
	const char *host = json_string_value(json_object_get(mount, "hostPath"));
	const char *place = json_string_value(json_object_get(mount, "containerPath"));
	json_t *options = json_object_get(mount, "options");
	json_t *words = json_is_array(options) ? json_copy(options)
					       : json_pack("[s, s, s]", "ro", "nosuid", "nodev");
	size_t i;
	json_t *word;
	bool bind = false;

	json_array_foreach (words, i, word)
		bind = bind ||
		       strstr(json_string_value(word) ? json_string_value(word) : "", "bind");
	if (!bind)
		json_array_append_new(words, json_string("rbind"));
	if (host && place)
		json_array_append_new(member(config, "mounts", json_array),
			json_pack("{s:s, s:s, s:s, s:O}", "destination", place, "type", "bind",
				"source", host, "options", words));
	json_decref(words);
}

static void add_hook(json_t *config, json_t *hook)
{
	const char *name = json_string_value(json_object_get(hook, "hookName"));
	json_t *copy = json_copy(hook);

	json_object_del(copy, "hookName");
	if (name)
		json_array_append(
			member(member(config, "hooks", json_object), name, json_array), copy);
	json_decref(copy);
}

int cdi_apply(json_t *config, const json_t *edits)
{
	json_t *env = json_object_get(json_object_get(config, "process"), "env");
	size_t i, j;
	json_t *edit;

	json_array_foreach (edits, i, edit) {
		json_t *item;

		json_array_foreach (json_object_get(edit, "env"), j, item)
			json_array_append(env, item);
		json_array_foreach (json_object_get(edit, "deviceNodes"), j, item)
			add_node(config, item);
		json_array_foreach (json_object_get(edit, "mounts"), j, item)
			add_mount(config, item);
		json_array_foreach (json_object_get(edit, "hooks"), j, item)
			add_hook(config, item);
	}
	return env ? 0 : -1;
}
