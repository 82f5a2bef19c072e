/* The description of a task for another node, and the report of its end. */
#include "run/cluster/remote.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "image/image.h"

/* Environments contain arbitrary bytes; JSON contains text. */
static json_t *word(const char *text)
{
	json_t *value = json_string(text);
	_cleanup_free_ char *hex = NULL;

	if (value)
		return value;
	hex = malloc(2 * strlen(text) + 1);
	if (!hex)
		return NULL;
	str_hex(text, strlen(text), hex);
	return json_pack("{s:s}", "hex", hex);
}

static json_t *words(const char *const *items)
{
	json_t *array = json_array();

	for (; items && *items; items++)
		json_array_append_new(array, word(*items));
	return array;
}

static json_t *describe_container(const struct task_container *c)
{
	json_t *mounts = json_array();
	const char *cwd = c->image->config.working_dir;

	for (size_t i = 0; i < c->n_mounts; i++)
		json_array_append_new(mounts,
			json_pack("{s:o, s:o, s:b, s:b}", "source", word(c->mounts[i].source),
				"place", word(c->mounts[i].place), "ro",
				(int)c->mounts[i].read_only, "slave", (int)c->mounts[i].slave));
	return json_pack("{s:s, s:o, s:o*, s:o, s:o, s:b, s:I, s:I}", "image", c->image->name,
		"layers", words((const char *const *)c->image->layers.items), "workingDir",
		cwd ? word(cwd) : NULL, "tmp", word(c->tmp), "mounts", mounts, "readOnly",
		(int)c->read_only_root, "uid", (json_int_t)c->uid, "gid", (json_int_t)c->gid);
}

/* Includes the keys of the interfaces, just as the environment has other keys: only the nodes read
 * the description. */
static json_t *describe_network(const struct task_network *network)
{
	json_t *interfaces = json_array();

	for (size_t i = 0; i < network->n_interfaces; i++) {
		const struct task_interface *given = &network->interfaces[i];

		json_array_append_new(interfaces,
			json_pack("{s:i, s:s*, s:s*, s:s*, s:i}", "kind", (int)given->kind,
				"config", given->config, "server", given->server, "secret",
				given->secret, "port", given->port));
	}
	return json_pack("{s:i, s:o, s:o}", "kind", (int)network->kind, "dns", words(network->dns),
		"interfaces", interfaces);
}

static void describe(const struct task_spec *spec, json_t *root)
{
	json_object_set_new(root, "argv", words(spec->argv));
	json_object_set_new(root, "env", words(spec->envp));
	if (spec->cwd)
		json_object_set_new(root, "cwd", word(spec->cwd));
	if (spec->container)
		json_object_set_new(root, "container", describe_container(spec->container));
}

int remote_describe_rank(const struct task_spec *spec, const int *gpus, size_t n_gpus,
	struct buf *text, struct penstock_error *err)
{
	json_auto_t *root = json_object();
	_cleanup_free_ char *dumped = NULL;
	json_t *list = json_array();

	describe(spec, root);
	for (size_t i = 0; i < n_gpus; i++)
		json_array_append_new(list, json_integer(gpus[i]));
	json_object_set_new(root, "gpus", list);
	dumped = json_dumps(root, JSON_COMPACT);
	if (!dumped)
		return error_memory(err);
	buf_add_str(text, dumped);
	explicit_bzero(dumped, strlen(dumped));
	return buf_failed(text) ? buf_error(text, "the environment of the step", err) : 0;
}

int remote_describe(const struct task_spec *spec, struct buf *line, struct penstock_error *err)
{
	const struct task_cluster *cluster = spec->cluster;
	json_auto_t *root = json_object();
	_cleanup_free_ char *text = NULL;

	describe(spec, root);
	json_object_set_new(root, "dir", word(cluster->dir));
	if (cluster->notice)
		json_object_set_new(root, "notice", word(cluster->notice));
	if (spec->network.kind != TASK_NETWORK_HOST) {
		json_object_set_new(root, "network", describe_network(&spec->network));
		json_object_set_new(root, "tmp", word(spec->tmp));
	}
	if (cluster->keys_endpoint)
		json_object_set_new(root, "keys",
			json_pack("{s:s, s:s, s:s}", "endpoint", cluster->keys_endpoint, "region",
				cluster->keys_region, "token", cluster->keys_token));
	if (cluster->inputs)
		json_object_set_new(root, "inputs",
			json_pack("{s:o, s:o, s:s, s:i}", "from", word(cluster->inputs), "where",
				word(cluster->node_dir), "run", cluster->run_id, "attempt",
				cluster->attempt));
	text = json_dumps(root, JSON_COMPACT);
	if (!text)
		return error_memory(err);
	buf_printf(line, "%s\n", text);
	return buf_failed(line) ? buf_error(line, "the environment of the step", err) : 0;
}

bool remote_read_end(const char *dir, size_t rank, struct task_end *end, int64_t *when_ns)
{
	_cleanup_free_ char *path = str_printf("%s/end.%zu", dir, rank);
	_cleanup_(buf_release) struct buf text = BUF_INIT(128);
	int oom;

	*end = (struct task_end){.rank = (int)rank};
	if (!path || fs_read(path, &text, NULL) < 0 ||
		sscanf(buf_str(&text), "%d %d %d %" SCNd64, &end->code, &end->signal, &oom,
			when_ns) != 4)
		return false;
	end->oom = oom != 0;
	return true;
}
