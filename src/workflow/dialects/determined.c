/* Determined's experiment files, as one trial on this machine. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/dialects/shell.h"

/* Determined's size limit of a context: (128 MiB / 8) * 6 - 1 MiB. */
#define CONTEXT_BYTES (95 * MIB)

#define CONTAINER_WORK "/deepsquare/work" /* the copy of the context, in a container */
#define WORKDIR	       "/run/determined/workdir" /* that copy in Determined's containers */

#define MOST_KEPT 1000000 /* checkpoints; the limit of workflow/native/checkpoints.c */

/* clang-format off */
#define NO_CLUSTER "has no effect: there is one machine and no scheduler"
#define NO_PROXY   "has no effect: there is no proxy; programs listen on ports of this machine"
#define PASSED	   "is passed on in DET_EXPERIMENT_CONFIG; its meaning is up to the program"

static const struct schema_key length_keys[] = {
	{"batches", .kinds = KEY_WHOLE, .max = INT64_MAX},
	{"records", .kinds = KEY_WHOLE, .max = INT64_MAX},
	{"epochs", .kinds = KEY_WHOLE, .max = INT64_MAX},
};
static const struct schema schema_length = {SCHEMA(NULL, "a length", length_keys)};

static const struct schema_key searcher_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"metric", .kinds = KEY_TEXT},
	{"smaller_is_better", .kinds = KEY_FLAG},
	{"max_length", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_length, .min = 1, .max = INT64_MAX},
	{"max_steps", .kinds = KEY_WHOLE, .min = 1, .max = INT64_MAX},
	{"max_time", .kinds = KEY_WHOLE, .min = 1, .max = INT64_MAX, .note = PASSED},
	{"time_metric", .kinds = KEY_TEXT, .note = PASSED},
	{"max_trials", .kinds = KEY_WHOLE, .min = 1, .max = 1, .refused = "a run is one trial; start a run for each trial, with its own hyperparameters"},
	{"max_concurrent_trials", .kinds = KEY_WHOLE, .max = INT64_MAX, .note = NO_CLUSTER},
	{"source_trial_id", .kinds = KEY_ANY, .refused = "trials of other experiments are not known; fetch a checkpoint by `inputs`"},
	{"source_checkpoint_uuid", .kinds = KEY_ANY, .refused = "checkpoints of other experiments are not known; fetch the checkpoint by `inputs`"},
	{"num_rungs", .kinds = KEY_ANY, .refused = "only one trial is run"},
	{"max_rungs", .kinds = KEY_ANY, .refused = "only one trial is run"},
	{"divisor", .kinds = KEY_ANY, .refused = "only one trial is run"},
	{"mode", .kinds = KEY_ANY, .refused = "only one trial is run"},
	{"stop_once", .kinds = KEY_ANY, .refused = "only one trial is run"},
	{"bracket_rungs", .kinds = KEY_ANY, .refused = "only one trial is run"},
};
static const struct schema schema_searcher = {SCHEMA(NULL, "`searcher`", searcher_keys)};

static const struct schema_key resources_keys[] = {
	{"slots_per_trial", .kinds = KEY_WHOLE, .max = 4096},
	{"slots", .kinds = KEY_WHOLE, .max = 4096},
	{"max_slots", .kinds = KEY_WHOLE, .max = INT64_MAX, .note = NO_CLUSTER},
	{"weight", .kinds = KEY_TEXT, .note = NO_CLUSTER},
	{"priority", .kinds = KEY_WHOLE, .max = 99, .note = NO_CLUSTER},
	{"resource_pool", .kinds = KEY_TEXT, .note = NO_CLUSTER},
	{"is_single_node", .kinds = KEY_FLAG},
	{"agent_label", .kinds = KEY_EMPTY, .note = NO_CLUSTER},
	{"shm_size", .kinds = KEY_TEXT, .note = "has no effect: a step has the shared memory of this machine"},
	{"devices", .kinds = KEY_ANY, .refused = "single devices of the machine cannot be passed to a step"},
};
static const struct schema schema_resources = {SCHEMA(NULL, "`resources`", resources_keys)};

static const struct schema_key mount_keys[] = {
	{"host_path", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"container_path", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"read_only", .kinds = KEY_FLAG},
	{"propagation", .kinds = KEY_TEXT},
};
static const struct schema schema_mount = {SCHEMA(NULL, "a bind mount", mount_keys)};

static const struct schema_key auth_keys[] = {
	{"username", .kinds = KEY_TEXT},
	{"password", .kinds = KEY_TEXT},
	{"serveraddress", .kinds = KEY_TEXT},
	{"email", .kinds = KEY_TEXT, .note = "has no effect: no registry asks for it"},
};
static const struct schema schema_auth = {SCHEMA(NULL, "`registry_auth`", auth_keys)};

static const struct schema_key image_keys[] = {
	{"cpu", .kinds = KEY_TEXT},
	{"cuda", .kinds = KEY_TEXT},
	{"gpu", .kinds = KEY_TEXT},
	{"rocm", .kinds = KEY_TEXT},
};
static const struct schema schema_image = {SCHEMA(NULL, "`image`", image_keys)};

static const struct schema_key environment_keys[] = {
	{"image", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_image},
	{"environment_variables", .kinds = KEY_FREE | KEY_TEXTS},
	{"registry_auth", .kinds = KEY_MAP, .below = &schema_auth},
	{"force_pull_image", .kinds = KEY_FLAG, .note = "has no effect: the digest of an image is always looked up"},
	{"proxy_ports", .kinds = KEY_ANY, .note = NO_PROXY},
	{"ports", .kinds = KEY_ANY, .note = NO_PROXY},
	{"add_capabilities", .kinds = KEY_ANY, .refused = "a step has the rights of the user who starts it"},
	{"drop_capabilities", .kinds = KEY_ANY, .refused = "a step has the rights of the user who starts it"},
	{"pod_spec", .kinds = KEY_ANY, .note = "has no effect: there is no Kubernetes"},
};
static const struct schema schema_environment = {SCHEMA(NULL, "`environment`", environment_keys)};

static const struct schema_key storage_keys[] = {
	{"type", .kinds = KEY_TEXT},
	{"bucket", .kinds = KEY_TEXT},
	{"prefix", .kinds = KEY_EMPTY},
	{"access_key", .kinds = KEY_TEXT},
	{"secret_key", .kinds = KEY_TEXT},
	{"endpoint_url", .kinds = KEY_TEXT},
	{"host_path", .kinds = KEY_TEXT},
	{"storage_path", .kinds = KEY_TEXT},
	{"propagation", .kinds = KEY_TEXT},
	{"container_path", .kinds = KEY_TEXT},
	{"container", .kinds = KEY_ANY, .refused = "Azure's storage is not supported; use s3, gcs, shared_fs or directory"},
	{"connection_string", .kinds = KEY_ANY, .refused = "Azure's storage is not supported; use s3, gcs, shared_fs or directory"},
	{"account_url", .kinds = KEY_ANY, .refused = "Azure's storage is not supported; use s3, gcs, shared_fs or directory"},
	{"credential", .kinds = KEY_ANY, .refused = "Azure's storage is not supported; use s3, gcs, shared_fs or directory"},
	{"save_experiment_best", .kinds = KEY_WHOLE, .max = INT64_MAX},
	{"save_trial_best", .kinds = KEY_WHOLE, .max = INT64_MAX},
	{"save_trial_latest", .kinds = KEY_WHOLE, .max = INT64_MAX},
};
static const struct schema schema_storage = {SCHEMA(NULL, "`checkpoint_storage`", storage_keys)};

static const struct schema_key seed_keys[] = {
	{"experiment_seed", .kinds = KEY_WHOLE, .max = UINT32_MAX},
};
static const struct schema schema_seed = {SCHEMA(NULL, "`reproducibility`", seed_keys)};

static const struct schema_key root_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"description", .kinds = KEY_EMPTY},
	{"labels", .kinds = KEY_FREE | KEY_TEXTS},
	{"data", .kinds = KEY_FREE},
	{"workspace", .kinds = KEY_TEXT, .note = NO_CLUSTER},
	{"project", .kinds = KEY_TEXT, .note = NO_CLUSTER},
	{"entrypoint", .kinds = KEY_TEXT | KEY_TEXTS},
	{"max_restarts", .kinds = KEY_WHOLE, .max = 1000},
	{"hyperparameters", .kinds = KEY_FREE},
	{"searcher", .kinds = KEY_MAP, .below = &schema_searcher},
	{"resources", .kinds = KEY_MAP, .below = &schema_resources},
	{"bind_mounts", .kinds = KEY_LIST, .below = &schema_mount},
	{"environment", .kinds = KEY_MAP, .below = &schema_environment},
	{"checkpoint_storage", .kinds = KEY_MAP, .below = &schema_storage},
	{"checkpoint_policy", .kinds = KEY_TEXT, .note = PASSED},
	{"reproducibility", .kinds = KEY_MAP, .below = &schema_seed},
	{"profiling", .kinds = KEY_FREE, .note = PASSED},
	{"debug", .kinds = KEY_FLAG, .note = PASSED},
	{"min_validation_period", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_length, .max = INT64_MAX, .note = PASSED},
	{"min_checkpoint_period", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_length, .max = INT64_MAX, .note = PASSED},
	{"perform_initial_validation", .kinds = KEY_FLAG, .note = PASSED},
	{"records_per_epoch", .kinds = KEY_WHOLE, .max = INT64_MAX, .note = PASSED},
	{"scheduling_unit", .kinds = KEY_WHOLE, .min = 1, .max = INT64_MAX, .note = PASSED},
	{"batches_per_step", .kinds = KEY_WHOLE, .min = 1, .max = INT64_MAX, .note = PASSED},
	{"optimizations", .kinds = KEY_FREE, .note = PASSED},
	{"data_layer", .kinds = KEY_FREE, .refused = "there is no data layer; fetch data by `bind_mounts` or the context"},
	{"internal", .kinds = KEY_ANY, .refused = "it is internal to Determined"},
	{"log_policies", .kinds = KEY_ANY, .refused = "logs are not searched for patterns"},
	{"retention_policy", .kinds = KEY_ANY, .note = "has no effect: logs are kept until `penstock rm`"},
	{"preemption_timeout", .kinds = KEY_WHOLE, .min = 1, .max = INT64_MAX, .note = "has no effect: the preemption notice has the time that is left"},
	{"integrations", .kinds = KEY_ANY, .refused = "Pachyderm is not supported"},
	{"slurm", .kinds = KEY_ANY, .refused = "the run is on this machine, not on a cluster"},
	{"pbs", .kinds = KEY_ANY, .refused = "the run is on this machine, not on a cluster"},
};
static const struct schema schema_root = {SCHEMA(NULL, "an experiment", root_keys)};
/* clang-format on */

struct experiment {
	struct reader *rd;
	const struct node *root;
	const struct node *image; /* NULL if steps run on the host */
	struct node *job, *env, *run, *container;
	bool launched; /* by a launcher, which a signal would end before the trial has saved */
	int64_t slots;
};

/* ---- hyperparameters ---- */

/* Returns V for `{type: const, val: V}`, a map with such values replaced, or any other value as it
 * is. Returns NULL for a value that needs a search, which is reported. */
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
			"a hyperparameter of type %s needs a search, which is not supported: "
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

/* ---- the environment ---- */

/* Returns the ids of all slots: "[0,1]". */
static const char *slot_ids(struct experiment *e)
{
	_cleanup_(buf_release) struct buf ids = BUF_INIT(LIMIT_STRING);

	buf_add_char(&ids, '[');
	for (int64_t i = 0; i < e->slots; i++)
		buf_printf(&ids, "%s%lld", i ? "," : "", (long long)i);
	buf_add_char(&ids, ']');
	return workflow_arena_take(e->rd->arena, &ids);
}

/* Adds the variables that Determined gives a task, then the variables of the file. The command
 * exports the variables that are known only when it starts. */
static void put_variables(struct experiment *e, const struct node *environment)
{
	const struct workflow_place *at = &e->root->at;
	const struct node *seeds = node_get(e->root, "reproducibility");
	const struct node *storage = node_get(e->root, "checkpoint_storage");
	const struct node *all = node_get(environment, "environment_variables");
	const struct node *cpu = node_get(all, "cpu"), *cuda = node_get(all, "cuda");
	struct node *params = node_get(e->root, "hyperparameters");
	struct node *values = params ? constant_of(e, params) : NULL;

	native_variable_text(e->rd, e->env, "DET_HPARAMS",
		values ? dialect_json(e->rd, values) : "{}", params ? &params->at : at);
	native_variable_text(e->rd, e->env, "DET_EXPERIMENT_ID", "1", at);
	native_variable_text(e->rd, e->env, "DET_TRIAL_ID", "1", at);
	native_variable_text(e->rd, e->env, "DET_TRIAL_SEED",
		workflow_arena_printf(e->rd->arena, "%lld",
			(long long)dialect_whole(seeds, "experiment_seed", 0)),
		at);
	native_variable_text(
		e->rd, e->env, "DET_EXPERIMENT_CONFIG", dialect_json(e->rd, e->root), at);
	if (storage)
		native_variable_text(e->rd, e->env, "DET_STORAGE_CONFIG",
			dialect_json(e->rd, storage), &storage->at);
	native_variable_text(e->rd, e->env, "DET_SLOT_IDS", slot_ids(e), at);
	/* The value has a map of variables for machines with GPUs and one for machines without, or
	 * the variables themselves. */
	cuda = cuda ? cuda : node_get(all, "gpu");
	if ((cpu && cpu->kind != NODE_SCALAR) || (cuda && cuda->kind != NODE_SCALAR))
		all = e->slots ? cuda : cpu;
	native_variables(e->rd, e->env, all);
}

static const struct node *image_of(const struct experiment *e, const struct node *environment)
{
	const struct node *image = node_get(environment, "image");
	const struct node *found = image;

	if (image && image->kind == NODE_MAP)
		found = node_get(image, e->slots ? "cuda" : "cpu");
	if (!found && e->slots)
		found = node_get(image, "gpu");
	return found || !e->slots ? found : node_get(image, "rocm");
}

/* ---- mounts ---- */

static void put_mount(struct experiment *e, struct node *mounts, const char *host,
	const char *inside, bool read_only, bool slave, const struct workflow_place *at)
{
	struct node *mount = native_map(e->rd, mounts, NULL, at);

	native_text(e->rd, mount, "hostDir", host, at);
	native_text(e->rd, mount, "containerDir", inside, at);
	native_text(e->rd, mount, "options", read_only ? "ro" : "rw", at);
	if (slave)
		native_text(e->rd, mount, "propagation", "rslave", at);
}

/* Returns true if the mount sees what is mounted below its source later. A step cannot mount in its
 * container, so `shared` is the same as `slave`. */
static bool read_propagation(struct experiment *e, const struct node *map)
{
	static const char *const words[] = {
		"private", "rprivate", "slave", "rslave", "shared", "rshared"};
	const struct node *node = node_get(map, "propagation");
	bool known = false;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		known |= node && strcmp(node->text, words[i]) == 0;
	if (!node || strcmp(node->text, words[0]) == 0 || strcmp(node->text, words[1]) == 0)
		return false;
	if (known && e->container)
		return true;
	if (known)
		reader_note(e->rd, &node->at,
			"the propagation %s is read as rprivate: the step does not see what is "
			"mounted below the directory after its start",
			node->text);
	else
		reader_error(e->rd, &node->at,
			"the propagation must be rprivate, private, rslave, slave, rshared or "
			"shared, not %s",
			quote(node->text));
	return false;
}

static bool is_not_here(const struct experiment *e, const char *path)
{
	return e->rd->options->is_here && !strstr(path, "${{") && !e->rd->options->is_here(path);
}

static bool check_mount(struct experiment *e, const struct node *item, bool *slave)
{
	const struct node *host = node_get(item, "host_path");
	const struct node *inside = node_get(item, "container_path");
	size_t before = e->rd->found->errors;

	*slave = read_propagation(e, item);
	if (*host->text != '/')
		reader_error(e->rd, &host->at, "`host_path` must be an absolute path");
	else if (is_not_here(e, host->text))
		reader_error(
			e->rd, &host->at, "bind_mounts: %s is not on this machine", host->text);
	if (strcmp(inside->text, ".") == 0 || reader_has_dots(inside->text))
		reader_error(e->rd, &inside->at, "`container_path` must not contain `.` or `..`");
	return e->rd->found->errors == before;
}

/* Removes the working directory from the beginning of a path below it; returns other paths
 * unchanged. */
static const char *in_workdir(const char *path)
{
	return str_starts(path, WORKDIR "/") ? path + strlen(WORKDIR "/") : path;
}

/* Returns the command with its mounts on the host, in a mount namespace of the step. At the path of
 * Determined's working directory, programs find a link to the working directory: a bind mount would
 * not include the mounts below it. */
static const char *host_mounts(struct experiment *e, const char *command)
{
	static const char link[] =
		"mkdir -p \"$STORAGE_PATH/determined-run\" &&\n"
		"\tln -sfn \"$PWD\" \"$STORAGE_PATH/determined-run/workdir\" || exit\n";
	const struct node *list = node_get(e->root, "bind_mounts");
	bool named = strstr(dialect_json(e->rd, e->root), WORKDIR) != NULL;
	struct shell shell;
	const char *text;

	shell_init(&shell, e->rd, "");
	if (named)
		shell_place(&shell, "$STORAGE_PATH/determined-run", "/run/determined", SHELL_MOUNT);
	for (size_t i = 0; list && i < list->n; i++) {
		const struct node *item = list->entries[i].value;

		if (node_get(item, "host_path"))
			shell_bind(&shell, dialect_text(item, "host_path"),
				in_workdir(dialect_text(item, "container_path")),
				dialect_flag(item, "read_only", false));
	}
	text = shell_mounted(&shell, "/bin/bash", command);
	shell_release(&shell);
	return text && named ? workflow_arena_printf(e->rd->arena, "%s%s", link, text) : text;
}

/* Returns `path` in the container; a relative path starts in the working directory. */
static const char *inside_image(struct experiment *e, const char *path)
{
	path = in_workdir(path);
	return *path == '/' ? path
			    : workflow_arena_printf(e->rd->arena, CONTAINER_WORK "/%s", path);
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
		bool slave;

		if (check_mount(e, item, &slave) && mounts)
			put_mount(e, mounts, dialect_text(item, "host_path"),
				inside_image(e, dialect_text(item, "container_path")),
				dialect_flag(item, "read_only", false), slave, &item->at);
	}
}

/* ---- the command ---- */

/* Keeps the directory of `python.determined` in the PYTHONPATH that a command sets. */
static const char *with_python_path(struct experiment *e, const char *text)
{
	static const char key[] = "PYTHONPATH=";
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	for (const char *at; (at = strstr(text, key)); text = at + strlen(key)) {
		buf_add(&out, text, (size_t)(at - text) + strlen(key));
		buf_add_str(&out, "\"$STORAGE_PATH\"/determined:");
	}
	buf_add_str(&out, text);
	return workflow_arena_take(e->rd->arena, &out);
}

static void put_command(struct experiment *e)
{
	_cleanup_(buf_release) struct buf joined = BUF_INIT(LIMIT_STRING);
	const struct node *entrypoint = node_get(e->root, "entrypoint");
	const char *text;

	if (!entrypoint) {
		if (dialect_is_missing(e->root, "entrypoint"))
			reader_error(e->rd, &e->root->at,
				"`entrypoint` is missing: the command of the trial");
		return;
	}
	for (size_t i = 0; i < entrypoint->n; i++)
		buf_printf(&joined, "%s%s", i ? " " : "",
			dialect_quoted(e->rd, entrypoint->entries[i].value->text));
	text = entrypoint->kind == NODE_LIST ? workflow_arena_take(e->rd->arena, &joined)
					     : entrypoint->text;
	if (!text)
		return;
	/* "model_def:MyTrial" */
	if (strchr(text, ':') && !text[strspn(text, LETTERS_AND_DIGITS "_.:")]) {
		reader_note(e->rd, &entrypoint->at,
			"the trial class %s is run by the package `determined`, which the Python of "
			"the step must have",
			text);
		text = determined_trial(e->rd, text, e->slots);
	}
	e->launched = text && determined_is_launched(text);
	text = text ? determined_launch(e->rd, entrypoint, text, e->slots) : NULL;
	text = text ? with_python_path(e, text) : NULL;
	/* Determined's containers run this hook too, and need bash for the hook. */
	text = text ? workflow_arena_printf(e->rd->arena,
			      "if [ -f startup-hook.sh ]; then . ./startup-hook.sh; fi\n%s", text)
		    : NULL;
	if (text && !e->image)
		text = host_mounts(e, text);
	else if (text)
		text = workflow_arena_printf(e->rd->arena,
			"[ -e " WORKDIR " ] || { mkdir -p /run/determined && "
			"ln -s \"$PWD\" " WORKDIR "; } 2>/dev/null\n%s",
			text);
	native_text(e->rd, e->run, "shell", "/bin/bash", &entrypoint->at);
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

/* ---- checkpoints ---- */

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
			"`checkpoint_storage.prefix` must not contain `.` or `..`");
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

/* Returns the path below `top` that `storage_path` has below `host`. `storage_path` may be relative
 * to `host`, or an absolute path below `host`. */
static const char *below_storage(
	struct experiment *e, const char *top, const struct node *path, const char *host)
{
	const char *rest = path ? path->text : "";

	if (str_starts(rest, host) && strchr("/", rest[strlen(host)]))
		rest += strlen(host);
	else if (*rest == '/' || reader_has_dots(rest))
		reader_error(e->rd, &path->at, "`checkpoint_storage.storage_path` must be below %s",
			quote(host));
	while (*rest == '/')
		rest++;
	return *rest ? workflow_arena_printf(e->rd->arena, "%s/%s", top, rest) : top;
}

/* Adds a directory of the machine, to which the program writes directly. */
static void put_directory(
	struct experiment *e, const struct node *storage, const char *key, const char *inside)
{
	const struct node *path = node_get(storage, key);
	struct node *mounts;
	bool slave;

	slave = read_propagation(e, storage);
	if (!path && !dialect_is_missing(storage, key))
		return;
	if (!path || *path->text != '/') {
		reader_error(e->rd, path ? &path->at : &storage->at,
			"`checkpoint_storage.%s` must be an absolute path", key);
		return;
	}
	native_variable_text(e->rd, e->env, "PENSTOCK_DETERMINED_STORAGE",
		below_storage(e, e->container && inside ? inside : path->text,
			node_get(storage, "storage_path"), path->text),
		&path->at);
	if (!e->container || !inside)
		return;
	mounts = node_get(e->container, "mounts");
	if (!mounts)
		mounts = native_list(e->rd, e->container, "mounts", &storage->at);
	put_mount(e, mounts, path->text, inside, false, slave, &path->at);
}

/* Uses the store of the configuration if there is no type, as Determined does. */
static void put_default_storage(struct experiment *e, const struct node *storage)
{
	static const char *const places[] = {"bucket", "host_path", "container_path"};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (node_get(storage, places[i]) && dialect_is_missing(storage, "type"))
			reader_error(e->rd, &node_get(storage, places[i])->at,
				"`checkpoint_storage.%s` needs a `type`: s3, gcs, shared_fs or "
				"directory",
				places[i]);
	}
	native_default_output(e->rd, e->job, NULL, dialect_text(e->root, "name"));
}

static void put_storage(struct experiment *e)
{
	static const char *const types[] = {"s3", "gcs", "shared_fs", "directory"};
	const struct node *storage = node_get(e->root, "checkpoint_storage");
	const char *type = storage ? dialect_text(storage, "type") : NULL;
	const char *nearest;

	if (!type) {
		put_default_storage(e, storage);
		return;
	}
	if (strcmp(type, "s3") == 0 || strcmp(type, "gcs") == 0) {
		put_bucket(e, storage, *type == 'g');
	} else if (strcmp(type, "shared_fs") == 0) {
		put_directory(e, storage, "host_path", "/determined_shared_fs");
	} else if (strcmp(type, "directory") == 0) {
		put_directory(e, storage, "container_path", NULL);
	} else {
		nearest = str_nearest(type, types, ARRAY_SIZE(types));
		reader_error(e->rd, &node_get(storage, "type")->at,
			"`checkpoint_storage.type` must be s3, gcs, shared_fs or directory, not "
			"%s%s%s%s",
			quote(type), nearest ? "; did you mean `" : "", nearest ? nearest : "",
			nearest ? "`?" : "");
	}
}

/* Determined's rules are per trial; with one trial, the best checkpoints of the experiment are
 * those of the trial. */
static void put_retention(struct experiment *e)
{
	const struct node *storage = node_get(e->root, "checkpoint_storage");
	const struct node *searcher = node_get(e->root, "searcher");
	const struct node *metric = node_get(searcher, "metric");
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
			"no checkpoint is deleted: `searcher.metric` is missing, by which "
			"checkpoints are compared");
		return;
	}
	map = native_map(e->rd, e->job, "checkpoints", &storage->at);
	keep = native_map(e->rd, map, "keep", &storage->at);
	/* `keep` must have a rule: `latest: 1` keeps only the newest checkpoint, which is always
	 * kept. */
	latest = latest || best ? latest : 1;
	if (latest)
		native_number(e->rd, keep, "latest", latest > MOST_KEPT ? MOST_KEPT : latest,
			&storage->at);
	if (!best)
		return;
	map = native_map(e->rd, keep, "best", &storage->at);
	native_text(e->rd, map, "metric", metric->text, &metric->at);
	native_text(e->rd, map, "mode",
		dialect_flag(searcher, "smaller_is_better", true) ? "min" : "max", &storage->at);
	native_number(e->rd, map, "n", best > MOST_KEPT ? MOST_KEPT : best, &storage->at);
}

/* ---- the experiment ---- */

/* Determined's default is one slot, and a slot of a machine without a GPU is its CPUs. */
static void put_resources(struct experiment *e)
{
	const struct node *resources = node_get(e->root, "resources");
	const struct workflow_place *at = resources ? &resources->at : &e->root->at;
	const struct node *slots = node_get(resources, "slots_per_trial");
	struct node *map;

	slots = slots ? slots : node_get(resources, "slots");
	if (slots && !node_whole(slots, &e->slots))
		return;
	if (!slots && !dialect_was_invalid(e->root, "resources") &&
		(!resources || !dialect_was_invalid(resources, "slots_per_trial"))) {
		e->slots = e->rd->site.gpus > 0;
		if (!e->slots)
			reader_note(e->rd, at,
				"`slots_per_trial` is missing, and Determined's default is 1: the "
				"trial gets a GPU only on a machine that has one");
	}
	e->slots = dialect_gpus(e->rd, e->slots);
	if (!e->slots)
		return;
	map = native_map(e->rd, e->job, "resources", at);
	native_number(e->rd, map, "tasks", 1, at);
	native_number(e->rd, map, "gpusPerTask", e->slots, slots ? &slots->at : at);
}

static struct node *translate(struct reader *rd, struct node *root)
{
	struct experiment e = {.rd = rd, .root = root};
	const struct node *environment = node_get(root, "environment");
	const struct node *restarts = node_get(root, "max_restarts");
	struct node *step;
	const struct node *searcher, *name;

	if (!dialect_check(rd, root, &schema_root) && root->kind != NODE_MAP)
		return NULL;
	searcher = node_get(e.root, "searcher");
	name = node_get(searcher, "name");
	if (name && strcmp(name->text, "single") != 0)
		reader_error(e.rd, &name->at,
			"the searcher %s runs many trials, which is not supported: use `single`",
			name->text);
	e.job = native_map(rd, NULL, NULL, &root->at);
	native_name(rd, e.job, node_get(root, "name"));
	put_resources(&e);
	e.env = native_list(rd, e.job, "env", &root->at);
	put_variables(&e, environment);
	native_number(rd, native_context(rd, e.job, dialect_folder(rd), "detignore", &root->at),
		"maxBytes", CONTEXT_BYTES, &root->at);
	step = native_map(rd, native_list(rd, e.job, "steps", &root->at), NULL, &root->at);
	native_text(rd, step, "name", "trial", &root->at);
	e.run = native_map(rd, step, "run", &root->at);
	e.image = native_image(rd, image_of(&e, environment));
	put_command(&e);
	native_number(rd, e.run, "restarts", dialect_whole(root, "max_restarts", 5),
		restarts ? &restarts->at : &root->at);
	if (e.image)
		e.container = native_container(
			rd, e.run, e.image, node_get(environment, "registry_auth"));
	put_mounts(&e);
	put_storage(&e);
	put_retention(&e);
	native_flag(rd, native_map(rd, e.job, "python", &root->at), "determined", true, &root->at);
	if (e.launched)
		native_text(rd, native_map(rd, e.job, "preemption", &root->at), "signal", "none",
			&root->at);
	return e.job;
}

static const char *const own_keys[] = {"entrypoint", "searcher", "hyperparameters", "bind_mounts",
	"checkpoint_storage", "max_restarts", "records_per_epoch", "min_validation_period",
	"environment", "reproducibility", "scheduling_unit", NULL};

const struct dialect dialect_determined = {
	.name = "determined", .keys = own_keys, .translate = translate};
