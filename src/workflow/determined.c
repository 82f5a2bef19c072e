/* Determined's experiment files, as one trial on this machine. */
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialect.h"
#include "base/banned.h"

/* What a context may have: Determined's own limit, (128 MiB / 8) * 6 - 1 MiB. */
#define CONTEXT_BYTES (95 * MIB)

#define MOST_KEPT 1000000 /* checkpoints; as native_checkpoints.c takes them */

/* clang-format off */
#define NO_CLUSTER "has no effect: there is one machine and no scheduler"
#define PASSED	   "is passed on in DET_EXPERIMENT_CONFIG; what it means is the program's"

static const struct shape_field length_fields[] = {
	{"batches", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
	{"records", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
	{"epochs", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
};
SHAPE(shape_length, "a length", length_fields);

static const struct shape_field searcher_fields[] = {
	{"name", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"metric", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"smaller_is_better", SHAPE_FLAG, NULL, 0, 0, NULL, NULL},
	{"max_length", SHAPE_WHOLE | SHAPE_MAP, &shape_length, 1, INT64_MAX, NULL, NULL},
	{"max_steps", SHAPE_WHOLE, NULL, 1, INT64_MAX, NULL, NULL},
	{"max_time", SHAPE_WHOLE, NULL, 1, INT64_MAX, PASSED, NULL},
	{"time_metric", SHAPE_TEXT, NULL, 0, 0, PASSED, NULL},
	{"max_trials", SHAPE_WHOLE, NULL, 1, 1, NULL, "one trial is one run; give each its own hyperparameters"},
	{"max_concurrent_trials", SHAPE_WHOLE, NULL, 0, INT64_MAX, NO_CLUSTER, NULL},
	{"source_trial_id", SHAPE_ANY, NULL, 0, 0, NULL, "there is no trial of another experiment; restore it by `inputs`"},
	{"source_checkpoint_uuid", SHAPE_ANY, NULL, 0, 0, NULL, "there is no checkpoint of another experiment; restore it by `inputs`"},
	{"num_rungs", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
	{"max_rungs", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
	{"divisor", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
	{"mode", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
	{"stop_once", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
	{"bracket_rungs", SHAPE_ANY, NULL, 0, 0, NULL, "only one trial is run"},
};
SHAPE(shape_searcher, "`searcher`", searcher_fields);

static const struct shape_field resources_fields[] = {
	{"slots_per_trial", SHAPE_WHOLE, NULL, 0, 4096, NULL, NULL},
	{"slots", SHAPE_WHOLE, NULL, 0, 4096, NULL, "it is of commands; an experiment has `slots_per_trial`"},
	{"max_slots", SHAPE_WHOLE, NULL, 0, INT64_MAX, NO_CLUSTER, NULL},
	{"weight", SHAPE_TEXT, NULL, 0, 0, NO_CLUSTER, NULL},
	{"priority", SHAPE_WHOLE, NULL, 0, 99, NO_CLUSTER, NULL},
	{"resource_pool", SHAPE_TEXT, NULL, 0, 0, NO_CLUSTER, NULL},
	{"is_single_node", SHAPE_FLAG, NULL, 0, 0, NULL, NULL},
	{"agent_label", SHAPE_EMPTY, NULL, 0, 0, NO_CLUSTER, NULL},
	{"shm_size", SHAPE_TEXT, NULL, 0, 0, "has no effect: a step has the shared memory of this machine", NULL},
	{"devices", SHAPE_ANY, NULL, 0, 0, NULL, "devices of the machine are not passed on one by one"},
};
SHAPE(shape_resources, "`resources`", resources_fields);

static const struct shape_field mount_fields[] = {
	{"host_path", SHAPE_TEXT | SHAPE_NEEDED, NULL, 0, 0, NULL, NULL},
	{"container_path", SHAPE_TEXT | SHAPE_NEEDED, NULL, 0, 0, NULL, NULL},
	{"read_only", SHAPE_FLAG, NULL, 0, 0, NULL, NULL},
	{"propagation", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
};
SHAPE(shape_mount, "a bind mount", mount_fields);

static const struct shape_field auth_fields[] = {
	{"username", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"password", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"serveraddress", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"email", SHAPE_TEXT, NULL, 0, 0, "has no effect: no registry asks for it", NULL},
};
SHAPE(shape_auth, "`registry_auth`", auth_fields);

static const struct shape_field image_fields[] = {
	{"cpu", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"cuda", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"gpu", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"rocm", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
};
SHAPE(shape_image, "`image`", image_fields);

static const struct shape_field environment_fields[] = {
	{"image", SHAPE_TEXT | SHAPE_MAP, &shape_image, 0, 0, NULL, NULL},
	{"environment_variables", SHAPE_FREE | SHAPE_TEXTS, NULL, 0, 0, NULL, NULL},
	{"registry_auth", SHAPE_MAP, &shape_auth, 0, 0, NULL, NULL},
	{"force_pull_image", SHAPE_FLAG, NULL, 0, 0, "has no effect: an image is looked up by its digest each time", NULL},
	{"proxy_ports", SHAPE_ANY, NULL, 0, 0, NULL, "there is no proxy; a step can use every free port"},
	{"ports", SHAPE_ANY, NULL, 0, 0, NULL, "there is no proxy; a step can use every free port"},
	{"add_capabilities", SHAPE_ANY, NULL, 0, 0, NULL, "a step has the rights of the user who starts it"},
	{"drop_capabilities", SHAPE_ANY, NULL, 0, 0, NULL, "a step has the rights of the user who starts it"},
	{"pod_spec", SHAPE_ANY, NULL, 0, 0, NULL, "there is no Kubernetes"},
};
SHAPE(shape_environment, "`environment`", environment_fields);

static const struct shape_field storage_fields[] = {
	{"type", SHAPE_TEXT | SHAPE_NEEDED, NULL, 0, 0, NULL, NULL},
	{"bucket", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"prefix", SHAPE_EMPTY, NULL, 0, 0, NULL, NULL},
	{"access_key", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"secret_key", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"endpoint_url", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"host_path", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"storage_path", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"propagation", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"container_path", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"container", SHAPE_ANY, NULL, 0, 0, NULL, "Azure's storage is not spoken; use s3, gcs, shared_fs or directory"},
	{"connection_string", SHAPE_ANY, NULL, 0, 0, NULL, "Azure's storage is not spoken; use s3, gcs, shared_fs or directory"},
	{"account_url", SHAPE_ANY, NULL, 0, 0, NULL, "Azure's storage is not spoken; use s3, gcs, shared_fs or directory"},
	{"credential", SHAPE_ANY, NULL, 0, 0, NULL, "Azure's storage is not spoken; use s3, gcs, shared_fs or directory"},
	{"save_experiment_best", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
	{"save_trial_best", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
	{"save_trial_latest", SHAPE_WHOLE, NULL, 0, INT64_MAX, NULL, NULL},
};
SHAPE(shape_storage, "`checkpoint_storage`", storage_fields);

static const struct shape_field seed_fields[] = {
	{"experiment_seed", SHAPE_WHOLE, NULL, 0, UINT32_MAX, NULL, NULL},
};
SHAPE(shape_seed, "`reproducibility`", seed_fields);

static const struct shape_field root_fields[] = {
	{"name", SHAPE_TEXT, NULL, 0, 0, NULL, NULL},
	{"description", SHAPE_EMPTY, NULL, 0, 0, NULL, NULL},
	{"labels", SHAPE_FREE | SHAPE_TEXTS, NULL, 0, 0, NULL, NULL},
	{"data", SHAPE_FREE, NULL, 0, 0, NULL, NULL},
	{"workspace", SHAPE_TEXT, NULL, 0, 0, NO_CLUSTER, NULL},
	{"project", SHAPE_TEXT, NULL, 0, 0, NO_CLUSTER, NULL},
	{"entrypoint", SHAPE_TEXT | SHAPE_TEXTS, NULL, 0, 0, NULL, NULL},
	{"max_restarts", SHAPE_WHOLE, NULL, 0, 1000, NULL, NULL},
	{"hyperparameters", SHAPE_FREE, NULL, 0, 0, NULL, NULL},
	{"searcher", SHAPE_MAP, &shape_searcher, 0, 0, NULL, NULL},
	{"resources", SHAPE_MAP, &shape_resources, 0, 0, NULL, NULL},
	{"bind_mounts", SHAPE_LIST, &shape_mount, 0, 0, NULL, NULL},
	{"environment", SHAPE_MAP, &shape_environment, 0, 0, NULL, NULL},
	{"checkpoint_storage", SHAPE_MAP, &shape_storage, 0, 0, NULL, NULL},
	{"checkpoint_policy", SHAPE_TEXT, NULL, 0, 0, PASSED, NULL},
	{"reproducibility", SHAPE_MAP, &shape_seed, 0, 0, NULL, NULL},
	{"profiling", SHAPE_FREE, NULL, 0, 0, PASSED, NULL},
	{"debug", SHAPE_FLAG, NULL, 0, 0, PASSED, NULL},
	{"min_validation_period", SHAPE_WHOLE | SHAPE_MAP, &shape_length, 0, INT64_MAX, PASSED, NULL},
	{"min_checkpoint_period", SHAPE_WHOLE | SHAPE_MAP, &shape_length, 0, INT64_MAX, PASSED, NULL},
	{"perform_initial_validation", SHAPE_FLAG, NULL, 0, 0, PASSED, NULL},
	{"records_per_epoch", SHAPE_WHOLE, NULL, 0, INT64_MAX, PASSED, NULL},
	{"scheduling_unit", SHAPE_WHOLE, NULL, 1, INT64_MAX, PASSED, NULL},
	{"batches_per_step", SHAPE_WHOLE, NULL, 1, INT64_MAX, PASSED, NULL},
	{"optimizations", SHAPE_FREE, NULL, 0, 0, PASSED, NULL},
	{"data_layer", SHAPE_FREE, NULL, 0, 0, NULL, "there is no data layer; bring data by `bind_mounts` or the context"},
	{"internal", SHAPE_ANY, NULL, 0, 0, NULL, "it is Determined's own"},
	{"log_policies", SHAPE_ANY, NULL, 0, 0, NULL, "logs are not searched for patterns"},
	{"retention_policy", SHAPE_ANY, NULL, 0, 0, "has no effect: logs are kept until `penstock rm`", NULL},
	{"preemption_timeout", SHAPE_WHOLE, NULL, 1, INT64_MAX, "has no effect: the notice says how long there is", NULL},
	{"integrations", SHAPE_ANY, NULL, 0, 0, NULL, "there is no Pachyderm"},
	{"slurm", SHAPE_ANY, NULL, 0, 0, NULL, "the run is on this machine, not on a cluster"},
	{"pbs", SHAPE_ANY, NULL, 0, 0, NULL, "the run is on this machine, not on a cluster"},
};
SHAPE(shape_root, "an experiment", root_fields);
/* clang-format on */

struct experiment {
	struct reader *rd;
	const struct node *root;
	const struct node *image; /* NULL: steps run on the host */
	bool image_was_wrong;	  /* there was to be one, and it was reported */
	struct node *job, *env, *run, *container;
	int64_t slots;
};

/* ---- hyperparameters ---- */

/* `{type: const, val: V}` is V; other types search. NULL: reported. */
static struct node *constant_of(struct experiment *e, struct node *node)
{
	const char *type = node->kind == NODE_MAP ? dialect_text(node, "type") : NULL;
	struct node *map;

	if (node->kind != NODE_MAP)
		return node;
	if (type &&
		(node_find(node, "val") || node_find(node, "vals") || node_find(node, "minval"))) {
		if (strcmp(type, "const") == 0 && node_find(node, "val"))
			return node_find(node, "val")->value;
		reader_error(e->rd, &node->at,
			"a hyperparameter of type %s is searched for, which cannot be honoured: "
			"give it one value",
			type);
		return NULL;
	}
	map = native_map(e->rd, NULL, NULL, &node->at);
	for (size_t i = 0; map && i < node->n; i++)
		native_put(
			e->rd, map, node->entries[i].key, constant_of(e, node->entries[i].value));
	return map;
}

static void put_hyperparameters(struct experiment *e)
{
	struct node *all = node_get(e->root, "hyperparameters");
	struct node *values = all ? constant_of(e, all) : NULL;

	native_variable_text(e->rd, e->env, "DET_HPARAMS",
		values ? dialect_json(e->rd, values) : "{}", all ? &all->at : &e->root->at);
}

static void check_searcher(struct experiment *e)
{
	const struct node *searcher = node_get(e->root, "searcher");
	const struct node *name = searcher ? node_get(searcher, "name") : NULL;

	if (name && strcmp(name->text, "single") != 0)
		reader_error(e->rd, &name->at,
			"the searcher %s runs many trials, which cannot be honoured: only `single` "
			"is",
			name->text);
}

/* ---- the environment ---- */

static void put_environment_variables(struct experiment *e, const struct node *environment)
{
	struct node *all = environment ? node_get(environment, "environment_variables") : NULL;
	struct node *cpu, *cuda;

	if (!all)
		return;
	cpu = all->kind == NODE_MAP ? node_get(all, "cpu") : NULL;
	cuda = all->kind == NODE_MAP ? node_get(all, "cuda") : NULL;
	if (all->kind == NODE_MAP && !cuda)
		cuda = node_get(all, "gpu");
	if ((cpu && cpu->kind != NODE_SCALAR) || (cuda && cuda->kind != NODE_SCALAR))
		native_variables(e->rd, e->env, e->slots ? cuda : cpu);
	else
		native_variables(e->rd, e->env, all);
}

/* What a task of Determined finds; what only is known when it starts is exported by its command. */
static void put_det_variables(struct experiment *e)
{
	const struct workflow_place *at = &e->root->at;
	const struct node *seeds = node_get(e->root, "reproducibility");
	const struct node *storage = node_get(e->root, "checkpoint_storage");

	native_variable_text(e->rd, e->env, "DET_EXPERIMENT_ID", "1", at);
	native_variable_text(e->rd, e->env, "DET_TRIAL_ID", "1", at);
	native_variable_text(e->rd, e->env, "DET_TRIAL_SEED",
		workflow_arena_printf(e->rd->arena, "%lld",
			(long long)(seeds ? dialect_whole(seeds, "experiment_seed", 0) : 0)),
		at);
	native_variable_text(
		e->rd, e->env, "DET_EXPERIMENT_CONFIG", dialect_json(e->rd, e->root), at);
	if (storage)
		native_variable_text(e->rd, e->env, "DET_STORAGE_CONFIG",
			dialect_json(e->rd, storage), &storage->at);
}

static const struct node *image_of(const struct experiment *e, const struct node *environment)
{
	const struct node *image = environment ? node_get(environment, "image") : NULL;
	const struct node *found;

	if (!image || image->kind == NODE_SCALAR)
		return image;
	if (!e->slots)
		return node_get(image, "cpu");
	found = node_get(image, "cuda");
	return found			? found
	       : node_get(image, "gpu") ? node_get(image, "gpu")
					: node_get(image, "rocm");
}

static bool was_image_wrong(const struct node *root, const struct node *environment)
{
	const struct node *image = environment ? node_get(environment, "image") : NULL;

	if (dialect_was_wrong(root, "environment") ||
		(environment && dialect_was_wrong(environment, "image")))
		return true;
	return image && image->kind == NODE_MAP && image->removed;
}

/* ---- mounts ---- */

static void put_mount(struct experiment *e, struct node *mounts, const char *host,
	const char *inside, bool read_only, const struct workflow_place *at)
{
	struct node *mount = native_map(e->rd, mounts, NULL, at);

	native_text(e->rd, mount, "hostDir", host, at);
	native_text(e->rd, mount, "containerDir", inside, at);
	native_text(e->rd, mount, "options", read_only ? "ro" : "rw", at);
}

static void check_propagation(struct experiment *e, const struct node *map)
{
	const struct node *node = node_get(map, "propagation");

	if (node && strcmp(node->text, "rprivate") != 0 && strcmp(node->text, "private") != 0)
		reader_error(e->rd, &node->at,
			"the propagation %s cannot be honoured: what a step mounts is its own; "
			"leave it out, or write rprivate",
			node->text);
}

static bool is_read_only(const struct node *item)
{
	const char *flag = dialect_text(item, "read_only");

	return flag && strchr("tTyYoO", *flag) && strcasecmp(flag, "off") != 0;
}

static bool is_not_here(const struct experiment *e, const char *path)
{
	return e->rd->options->is_here && !strstr(path, "${{") && !e->rd->options->is_here(path);
}

static bool check_mount(struct experiment *e, const struct node *item)
{
	const struct node *host = node_get(item, "host_path");
	const struct node *inside = node_get(item, "container_path");
	size_t before = e->rd->found->errors;

	check_propagation(e, item);
	if (*host->text != '/')
		reader_error(e->rd, &host->at, "`host_path` must be an absolute path");
	else if (is_not_here(e, host->text))
		reader_error(
			e->rd, &host->at, "bind_mounts: %s is not on this machine", host->text);
	if (strcmp(inside->text, ".") == 0 || reader_has_dots(inside->text))
		reader_error(e->rd, &inside->at, "`container_path` has no `.` or `..` in it");
	else if (!e->image && !e->image_was_wrong && *inside->text == '/' &&
		 is_not_here(e, inside->text))
		reader_error(e->rd, &inside->at,
			"bind_mounts: %s is not on this machine, and without a container nothing "
			"is made outside of the run: make it, or give environment.image",
			inside->text);
	return e->rd->found->errors == before;
}

/*
 * On the host, a mount is made in a mount namespace of the step's own. Where the directory is to be seen at its own
 * path and may be written, there is nothing to mount.
 */
static void add_host_mount(struct experiment *e, const struct node *item, struct buf *checks,
	struct buf *mounts, struct buf *remounts)
{
	const char *host = dialect_text(item, "host_path");
	const char *inside = dialect_text(item, "container_path");
	const char *from = dialect_quoted(e->rd, host), *to = dialect_quoted(e->rd, inside);

	if (!from || !to)
		return;
	buf_printf(checks,
		"[ -e %s ] || { echo bind_mounts: %s is not on this machine >&2; exit 1; }\n", from,
		from);
	if (*inside == '/')
		buf_printf(checks,
			"[ -e %s ] || { echo bind_mounts: %s is not on this machine, and nothing "
			"is made outside of the run: make it, or give environment.image >&2; exit "
			"1; }\n",
			to, to);
	else
		buf_printf(checks, "mkdir -p -- %s\n", to);
	if (strcmp(host, inside) == 0 && !is_read_only(item))
		return;
	buf_printf(mounts, "mount --bind -- %s %s\n", from, to);
	if (is_read_only(item))
		buf_printf(remounts, "mount -o remount,bind,ro -- %s\n", to);
}

/* What the command is run by where there are mounts on the host; NULL: there are none. */
static const char *host_mounts(struct experiment *e, const char *command)
{
	_cleanup_(buf_release) struct buf checks = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf mounts = BUF_INIT(LIMIT_STRING);
	/* Behind all mounts: what is mounted from a read-only place is that, too. */
	_cleanup_(buf_release) struct buf remounts = BUF_INIT(LIMIT_STRING);
	const struct node *list = node_get(e->root, "bind_mounts");
	const char *script;

	for (size_t i = 0; list && i < list->n; i++) {
		if (node_get(list->entries[i].value, "host_path"))
			add_host_mount(e, list->entries[i].value, &checks, &mounts, &remounts);
	}
	if (buf_failed(&checks) || buf_failed(&mounts) || buf_failed(&remounts)) {
		e->rd->arena->no_memory = true;
		return command;
	}
	if (!mounts.len)
		return workflow_arena_printf(e->rd->arena, "%s%s", buf_str(&checks), command);
	script = workflow_arena_printf(e->rd->arena, "set -e\n%s%scd .\nexec /bin/sh -c \"$1\"",
		buf_str(&mounts), buf_str(&remounts));
	if (!script)
		return command;
	/* A user of the machine may mount where the kernel gives user namespaces; root needs none. */
	return workflow_arena_printf(e->rd->arena,
		"%sif [ \"$(id -u)\" = 0 ]; then set -- unshare --mount\n"
		"else set -- unshare --user --map-current-user --keep-caps --mount; fi\n"
		"exec \"$@\" -- /bin/sh -c %s mounts %s",
		buf_str(&checks), dialect_quoted(e->rd, script), dialect_quoted(e->rd, command));
}

static void put_mounts(struct experiment *e)
{
	const struct node *list = node_get(e->root, "bind_mounts");
	struct node *mounts;

	if (!list || !list->n)
		return;
	mounts = e->container ? native_list(e->rd, e->container, "mounts", &list->at) : NULL;
	for (size_t i = 0; i < list->n; i++) {
		const struct node *item = list->entries[i].value;

		if (check_mount(e, item) && mounts)
			put_mount(e, mounts, dialect_text(item, "host_path"),
				dialect_text(item, "container_path"), is_read_only(item),
				&item->at);
	}
}

/* ---- what is run ---- */

/* "model_def:MyTrial", which only Determined's own library can run. */
static bool is_trial_class(const char *text)
{
	return strchr(text, ':') && !strpbrk(text, " /\t\n;&|") &&
	       text[strspn(text,
		       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:")] ==
		       '\0';
}

static const char *joined(struct experiment *e, const struct node *list)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	for (size_t i = 0; i < list->n; i++)
		buf_printf(&out, "%s%s", i ? " " : "",
			dialect_quoted(e->rd, list->entries[i].value->text));
	if (buf_failed(&out))
		e->rd->arena->no_memory = true;
	return workflow_arena_copy(e->rd->arena, buf_str(&out), out.len);
}

/* Determined's launcher of torch.distributed is torch's own with a chief to talk to. */
static const char *plain_launcher(
	struct experiment *e, const struct node *entrypoint, const char *text)
{
	static const char *const launchers[] = {"python3 -m determined.launch.torch_distributed",
		"python -m determined.launch.torch_distributed"};

	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++) {
		const char *rest = text + strlen(launchers[i]);

		if (!str_starts(text, launchers[i]))
			continue;
		rest += strspn(rest, " ");
		if (str_starts(rest, "-- "))
			rest += 3;
		if (str_starts(rest, "python3 "))
			rest += strlen("python3 ");
		else if (str_starts(rest, "python "))
			rest += strlen("python ");
		reader_note(e->rd, &entrypoint->at,
			"determined.launch.torch_distributed is read as torch.distributed.run on "
			"this machine");
		return workflow_arena_printf(e->rd->arena,
			"python3 -m torch.distributed.run --standalone --nnodes=1 "
			"--nproc_per_node=%lld %s",
			(long long)(e->slots ? e->slots : 1), rest);
	}
	return text;
}

static void put_command(struct experiment *e)
{
	const struct node *entrypoint = node_get(e->root, "entrypoint");
	const char *text;

	if (!entrypoint) {
		if (dialect_is_missing(e->root, "entrypoint"))
			reader_error(e->rd, &e->root->at,
				"`entrypoint` is missing: what the trial runs");
		return;
	}
	text = entrypoint->kind == NODE_LIST ? joined(e, entrypoint) : entrypoint->text;
	if (!text)
		return;
	if (is_trial_class(text)) {
		reader_error(e->rd, &entrypoint->at,
			"the entrypoint `%s` is a trial class, which needs Determined's harness; "
			"give a script, such as python3 train.py",
			text);
		return;
	}
	text = plain_launcher(e, entrypoint, text);
	if (text && !e->image)
		text = host_mounts(e, text);
	native_text(e->rd, e->run, "command",
		text ? workflow_arena_printf(e->rd->arena,
			       "export DET_TASK_ID=\"$PENSTOCK_RUN_ID\" "
			       "DET_ALLOCATION_ID=\"$PENSTOCK_RUN_ID.$PENSTOCK_ATTEMPT\" "
			       "DET_TRIAL_RUN_ID=\"$((PENSTOCK_ATTEMPT + "
			       "${PENSTOCK_RESTART:-0}))\"\n"
			       "if [ -n \"$PENSTOCK_CHECKPOINT\" ]; then "
			       "export DET_LATEST_CHECKPOINT=\"$PENSTOCK_CHECKPOINT\"; fi\n%s",
			       text)
		     : NULL,
		&entrypoint->at);
}

/* ---- where checkpoints go ---- */

static void put_bucket(struct experiment *e, const struct node *storage, bool google)
{
	const struct node *bucket = node_get(storage, "bucket");
	const char *prefix = dialect_text(storage, "prefix");
	const char *endpoint = dialect_text(storage, "endpoint_url");
	struct node *output, *s3;
	const char *url;

	if (!bucket) {
		if (dialect_is_missing(storage, "bucket"))
			reader_error(e->rd, &storage->at, "`checkpoint_storage.bucket` is missing");
		return;
	}
	while (prefix && *prefix == '/')
		prefix++;
	if (prefix && reader_has_dots(prefix)) {
		reader_error(e->rd, &node_get(storage, "prefix")->at,
			"`checkpoint_storage.prefix` has `.` or `..` in it");
		return;
	}
	url = workflow_arena_printf(e->rd->arena, "%s://%s/%s", google ? "gs" : "s3", bucket->text,
		prefix ? prefix : "");
	output = native_map(e->rd, e->job, "output", &storage->at);
	if (!url || !native_bucket(e->rd, output, url, &bucket->at, &s3))
		return;
	if (endpoint && node_find(s3, "endpointUrl"))
		node_find(s3, "endpointUrl")->value = node_get(storage, "endpoint_url");
	else
		native_put(e->rd, s3, "endpointUrl", node_get(storage, "endpoint_url"));
	native_put(e->rd, s3, "accessKeyId", node_get(storage, "access_key"));
	native_put(e->rd, s3, "secretAccessKey", node_get(storage, "secret_key"));
	native_put(e->rd, e->job, "continuousOutputSync",
		node_scalar(e->rd->arena, "true", false, storage->at));
}

/* A directory of the machine, which the program writes to itself. */
static void put_directory(
	struct experiment *e, const struct node *storage, const char *key, const char *inside)
{
	const struct node *path = node_get(storage, key);
	struct node *mounts;

	check_propagation(e, storage);
	if (!path && !dialect_is_missing(storage, key))
		return;
	if (!path || *path->text != '/') {
		reader_error(e->rd, path ? &path->at : &storage->at,
			"`checkpoint_storage.%s` must be an absolute path", key);
		return;
	}
	if (!e->container || !inside)
		return;
	mounts = node_get(e->container, "mounts");
	if (!mounts)
		mounts = native_list(e->rd, e->container, "mounts", &storage->at);
	put_mount(e, mounts, path->text, inside, false, &path->at);
}

static void put_storage(struct experiment *e)
{
	static const char *const types[] = {"s3", "gcs", "shared_fs", "directory"};
	const struct node *storage = node_get(e->root, "checkpoint_storage");
	const char *type = storage ? dialect_text(storage, "type") : NULL;
	const char *nearest;
	char quoted[QUOTE_SIZE];

	if (!type)
		return;
	if (strcmp(type, "s3") == 0 || strcmp(type, "gcs") == 0) {
		put_bucket(e, storage, *type == 'g');
	} else if (strcmp(type, "shared_fs") == 0) {
		put_directory(e, storage, "host_path", "/determined_shared_fs");
	} else if (strcmp(type, "directory") == 0) {
		put_directory(e, storage, "container_path", NULL);
	} else {
		nearest = str_nearest(type, types, ARRAY_SIZE(types));
		reader_error(e->rd, &node_get(storage, "type")->at,
			"`checkpoint_storage.type` is s3, gcs, shared_fs or directory, not "
			"%s%s%s%s",
			quote(type, quoted), nearest ? "; did you mean `" : "",
			nearest ? nearest : "", nearest ? "`?" : "");
	}
}

/* Determined's rules are of trials; there is one, so the best of all are its best. */
static void put_retention(struct experiment *e)
{
	const struct node *storage = node_get(e->root, "checkpoint_storage");
	const struct node *searcher = node_get(e->root, "searcher");
	const struct node *metric = searcher ? node_get(searcher, "metric") : NULL;
	const struct node *smaller = searcher ? node_get(searcher, "smaller_is_better") : NULL;
	int64_t best, latest, all;
	struct node *keep, *map;

	if (!storage || !(node_get(storage, "save_experiment_best") ||
				node_get(storage, "save_trial_best") ||
				node_get(storage, "save_trial_latest")))
		return;
	all = dialect_whole(storage, "save_experiment_best", 0);
	best = dialect_whole(storage, "save_trial_best", 1);
	latest = dialect_whole(storage, "save_trial_latest", 1);
	best = all > best ? all : best;
	if (best && !metric) {
		reader_note(e->rd, &storage->at,
			"no checkpoint is deleted: `searcher.metric` does not say by what the best "
			"are known");
		return;
	}
	map = native_map(e->rd, e->job, "checkpoints", &storage->at);
	keep = native_map(e->rd, map, "keep", &storage->at);
	/* The newest stays in any case. */
	if (latest || !best)
		native_number(e->rd, keep, "latest",
			latest > MOST_KEPT ? MOST_KEPT
			: latest	   ? latest
					   : 1,
			&storage->at);
	if (!best)
		return;
	map = native_map(e->rd, keep, "best", &storage->at);
	native_text(e->rd, map, "metric", metric->text, &metric->at);
	native_text(e->rd, map, "mode",
		smaller && strcmp(smaller->text, "false") == 0 ? "max" : "min", &storage->at);
	native_number(e->rd, map, "n", best > MOST_KEPT ? MOST_KEPT : best, &storage->at);
}

/* ---- the whole ---- */

static void put_context(struct experiment *e)
{
	const char *context = dialect_context(e->rd);
	struct node *map;

	if (!context && strcmp(e->rd->workflow->file, "<stdin>") == 0)
		return;
	map = native_map(e->rd, e->job, "context", &e->root->at);
	native_text(e->rd, map, "path", context ? context : dialect_folder(e->rd), &e->root->at);
	native_text(e->rd, map, "ignore", "detignore", &e->root->at);
	native_number(e->rd, map, "maxBytes", CONTEXT_BYTES, &e->root->at);
}

static void put_resources(struct experiment *e)
{
	const struct node *resources = node_get(e->root, "resources");
	const struct node *slots = resources ? node_get(resources, "slots_per_trial") : NULL;
	struct node *map;

	if (!slots || !node_whole(slots, &e->slots) || !e->slots)
		return;
	map = native_map(e->rd, e->job, "resources", &resources->at);
	native_number(e->rd, map, "tasks", 1, &resources->at);
	native_number(e->rd, map, "cpusPerTask", 1, &resources->at);
	native_number(e->rd, map, "gpusPerTask", e->slots, &slots->at);
}

static void put_image(struct experiment *e, const struct node *environment)
{
	const struct node *auth = environment ? node_get(environment, "registry_auth") : NULL;

	if (!e->image)
		return;
	e->container = native_container(e->rd, e->run, e->image);
	if (auth) {
		native_put(e->rd, e->container, "username", node_get(auth, "username"));
		native_put(e->rd, e->container, "password", node_get(auth, "password"));
	}
}

static struct node *translate(struct reader *rd, struct node *root)
{
	struct experiment e = {.rd = rd, .root = root};
	const struct node *environment = node_get(root, "environment");
	const struct node *restarts = node_get(root, "max_restarts");
	struct node *step;

	if (!shape_check(rd, root, &shape_root) && root->kind != NODE_MAP)
		return NULL;
	check_searcher(&e);
	e.job = native_map(rd, NULL, NULL, &root->at);
	native_name(rd, e.job, node_get(root, "name"));
	put_resources(&e);
	e.env = native_list(rd, e.job, "env", &root->at);
	put_hyperparameters(&e);
	put_det_variables(&e);
	put_environment_variables(&e, environment);
	put_context(&e);
	step = native_map(rd, native_list(rd, e.job, "steps", &root->at), NULL, &root->at);
	native_text(rd, step, "name", "trial", &root->at);
	e.run = native_map(rd, step, "run", &root->at);
	e.image = image_of(&e, environment);
	e.image_was_wrong = was_image_wrong(root, environment);
	put_command(&e);
	native_number(rd, e.run, "restarts", dialect_whole(root, "max_restarts", 5),
		restarts ? &restarts->at : &root->at);
	put_image(&e, environment);
	put_mounts(&e);
	put_storage(&e);
	put_retention(&e);
	if (!node_get(root, "checkpoint_storage"))
		native_default_output(rd, e.job, NULL, dialect_text(root, "name"));
	return e.job;
}

static int recognise(const struct node *root, const char *file)
{
	static const char *const keys[] = {"entrypoint", "searcher", "hyperparameters",
		"bind_mounts", "checkpoint_storage", "max_restarts", "records_per_epoch",
		"min_validation_period", "environment", "reproducibility", "scheduling_unit"};
	int n = 0;

	(void)file;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		n += node_find(root, keys[i]) != NULL;
	return n;
}

const struct dialect dialect_determined = {"determined", recognise, translate};
