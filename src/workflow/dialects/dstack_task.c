/* `type: task` of current dstack, as one run on this machine or, with several nodes, on Slurm. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/dialects/shell.h"

/* clang-format off */
#define MOST_GPUS   4096
#define ONE_MACHINE "has no effect: the run is on this machine"

static const struct schema_key cpu_keys[] = {
	{"arch", .kinds = KEY_TEXT, .note = "is not compared with what this machine has"},
	{"count", .kinds = KEY_TEXT | KEY_FREE},
	{"min", .kinds = KEY_TEXT},
	{"max", .kinds = KEY_TEXT},
};
static const struct schema schema_cpu = {SCHEMA(NULL, "`cpu`", cpu_keys)};

static const struct schema_key gpu_keys[] = {
	{"count", .kinds = KEY_TEXT | KEY_FREE},
	{"vendor", .kinds = KEY_TEXT, .note = "is not compared with what this machine has"},
	{"name", .kinds = KEY_TEXT | KEY_TEXTS, .note = "is not compared with what this machine has"},
	{"memory", .kinds = KEY_TEXT | KEY_FREE, .note = "is not compared with what this machine has"},
	{"total_memory", .kinds = KEY_TEXT | KEY_FREE, .note = "is not compared with what this machine has"},
	{"compute_capability", .kinds = KEY_ANY, .note = "is not compared with what this machine has"},
};
static const struct schema schema_gpu = {SCHEMA(NULL, "`gpu`", gpu_keys)};

static const struct schema_key resources_keys[] = {
	{"cpu", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_cpu},
	{"memory", .kinds = KEY_TEXT | KEY_FREE},
	{"gpu", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_gpu},
	{"shm_size", .kinds = KEY_TEXT, .note = "has no effect: a step has the shared memory of this machine"},
	{"disk", .kinds = KEY_ANY, .note = ONE_MACHINE},
};
static const struct schema schema_resources = {SCHEMA(NULL, "`resources`", resources_keys)};

static const struct schema_key auth_keys[] = {
	{"username", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"password", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
};
static const struct schema schema_auth = {SCHEMA(NULL, "`registry_auth`", auth_keys)};

static const struct schema_key file_keys[] = {
	{"local_path", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"path", .kinds = KEY_TEXT},
};
static const struct schema schema_file = {SCHEMA(NULL, "a file", file_keys)};

static const struct schema_key repo_keys[] = {
	{"local_path", .kinds = KEY_TEXT},
	{"url", .kinds = KEY_TEXT},
	{"branch", .kinds = KEY_TEXT},
	{"hash", .kinds = KEY_TEXT},
	{"path", .kinds = KEY_TEXT},
	{"if_exists", .kinds = KEY_TEXT, .note = "has no effect: the working directory is new"},
};
static const struct schema schema_repo = {SCHEMA(NULL, "a repository", repo_keys)};

static const struct schema_key volume_keys[] = {
	{"name", .kinds = KEY_TEXT | KEY_TEXTS},
	{"instance_path", .kinds = KEY_TEXT},
	{"path", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"optional", .kinds = KEY_FLAG},
};
static const struct schema schema_volume = {SCHEMA(NULL, "a volume", volume_keys)};

static const struct schema_key retry_keys[] = {
	{"on_events", .kinds = KEY_TEXTS},
	{"duration", .kinds = KEY_TEXT, .note = "has no effect: the number of attempts is limited, not their time"},
};
static const struct schema schema_retry = {SCHEMA(NULL, "`retry`", retry_keys)};

static const struct schema_key task_keys[] = {
	{"type", .kinds = KEY_TEXT},
	{"name", .kinds = KEY_TEXT},
	{"commands", .kinds = KEY_TEXTS},
	{"env", .kinds = KEY_FREE | KEY_TEXTS},
	{"image", .kinds = KEY_TEXT},
	{"user", .kinds = KEY_TEXT, .note = "has no effect: the user of a container is root"},
	{"entrypoint", .kinds = KEY_TEXT},
	{"shell", .kinds = KEY_TEXT},
	{"registry_auth", .kinds = KEY_MAP, .below = &schema_auth},
	{"python", .kinds = KEY_TEXT},
	{"nvcc", .kinds = KEY_FLAG, .note = "has no effect: the CUDA compiler is this machine's"},
	{"privileged", .kinds = KEY_FLAG, .note = "has no effect: containers have the rights of their user"},
	{"docker", .kinds = KEY_FLAG},
	{"working_dir", .kinds = KEY_TEXT},
	{"files", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_file},
	{"repos", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_repo},
	{"volumes", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_volume},
	{"ports", .kinds = KEY_ANY, .note = "has no effect: a step can use every free port of this machine"},
	{"nodes", .kinds = KEY_WHOLE, .min = 1, .max = 10000},
	{"groups", .kinds = KEY_ANY, .refused = "groups of nodes run different commands, but all tasks of a run run the same command; write one file for each group"},
	{"resources", .kinds = KEY_MAP, .below = &schema_resources},
	{"max_duration", .kinds = KEY_TEXT},
	{"retry", .kinds = KEY_FLAG | KEY_MAP, .below = &schema_retry},
	{"spot_policy", .kinds = KEY_TEXT, .note = ONE_MACHINE ", and continues after an interruption anyway"},
	{"stop_criteria", .kinds = KEY_TEXT},
	{"startup_order", .kinds = KEY_TEXT, .note = "has no effect: all nodes start at the same time"},
	{"schedule", .kinds = KEY_ANY, .note = "has no effect: the run starts now; use cron or a timer"},
	{"utilization_policy", .kinds = KEY_ANY, .note = "has no effect; in penstock's own workflows `hangTimeout` stops a step that prints nothing and uses no CPU for that time"},
	{"setup", .kinds = KEY_ANY, .note = "has no effect in tasks, as in dstack"},
	{"backends", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"backend_options", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"regions", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"availability_zones", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"instance_types", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"instances", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"fleets", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"reservation", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"max_price", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"creation_policy", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"idle_duration", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"stop_duration", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"priority", .kinds = KEY_WHOLE, .max = 100, .note = ONE_MACHINE},
	{"tags", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"single_branch", .kinds = KEY_ANY, .note = "has no effect: the commit alone is fetched"},
	{"home_dir", .kinds = KEY_ANY, .note = "has no effect, as in dstack"},
	{"dstack", .kinds = KEY_FLAG, .note = "has no effect: there is no server"},
	{"profile", .kinds = KEY_ANY, .note = ONE_MACHINE},
};
static const struct schema schema_task = {SCHEMA(NULL, "a task", task_keys)};
/* clang-format on */

struct task {
	struct reader *rd;
	const struct node *root, *image;
	struct node *job, *inputs, *mounts; /* `mounts` of the container; NULL on the host */
	struct shell shell;
	int64_t nodes, gpus;
};

/* ---- resources ---- */

struct range {
	double min, max; /* -1 if there is no bound */
};

/* Reads "8", "8..", "..8" or "4..8", with units of memory if `memory`. */
static bool read_range(struct task *t, const char *text, bool memory, struct range *out)
{
	const char *dots = strstr(text, "..");
	const char *ends[2] = {text, dots ? dots + 2 : text};
	double values[2] = {-1, -1};

	for (size_t i = 0; i < 2; i++) {
		const char *end = i == 0 && dots ? dots : ends[i] + strlen(ends[i]);
		char *part = workflow_arena_copy(t->rd->arena, ends[i], (size_t)(end - ends[i]));
		char *rest;
		int64_t bytes;

		if (!part || !*part)
			continue;
		values[i] = strtod(part, &rest);
		if (memory && rest != part && !*rest) /* GB without a unit */
			part = workflow_arena_printf(t->rd->arena, "%sGB", part);
		if (memory && part && dialect_memory(part, &bytes))
			values[i] = (double)bytes;
		else if (memory || rest == part || *rest || values[i] < 0)
			return false;
	}
	*out = (struct range){values[0], values[1]};
	return values[0] >= 0 || values[1] >= 0;
}

/* Reads a text or number, or a map of `min` and `max`. */
static bool range_of(struct task *t, const struct node *node, bool memory, struct range *out)
{
	const char *min, *max;

	if (node->kind == NODE_SCALAR)
		return read_range(t, node->text, memory, out);
	min = dialect_text(node, "min");
	max = dialect_text(node, "max");
	return (min || max) && read_range(t,
				       workflow_arena_printf(t->rd->arena, "%s..%s", min ? min : "",
					       max ? max : ""),
				       memory, out);
}

/* Returns `here`, the number that the machine has, limited to the range; `least` replaces a missing
 * minimum. */
static int64_t take(const struct range *range, int64_t here, int64_t least)
{
	int64_t count = range->min >= 0 ? (int64_t)range->min : least;

	if (here > count)
		count = here;
	if (range->max >= 0 && (double)count > range->max)
		count = (int64_t)range->max;
	return count;
}

static int64_t read_cpus(struct task *t, const struct node *node)
{
	const struct node *count = node->kind == NODE_MAP && node_get(node, "count")
					   ? node_get(node, "count")
					   : node;
	const char *colon = count->kind == NODE_SCALAR ? strchr(count->text, ':') : NULL;
	struct range range;
	bool good;

	if (colon)
		reader_note(t->rd, &node->at,
			"the architecture `%.*s` is not compared with the machine's",
			(int)(colon - count->text), count->text);
	good = colon ? read_range(t, colon + 1, false, &range) : range_of(t, count, false, &range);
	if (good && (range.min > 0 || range.max > 0) && range.min <= 65536 &&
		(range.max < 0 || range.max >= 1))
		return take(&range, dialect_cpus(t->rd), 1);
	reader_error(t->rd, &node->at,
		"`resources.cpu` must be a number such as 8, or a range such as 8.., not %s",
		node->kind == NODE_SCALAR ? quote(node->text) : node_kind_name(node));
	return 1;
}

/* Reads the number in "A100:80GB:8", "24GB..40GB:2", "nvidia:1..8" or "2": the only part between
 * colons that is a number or a range of numbers; 1 if there is none. */
static bool gpu_count(struct task *t, const char *text, struct range *out)
{
	bool found = false;

	*out = (struct range){1, 1};
	while (*text) {
		size_t len = strcspn(text, ":");
		const char *part = workflow_arena_copy(t->rd->arena, text, len);
		struct range range;

		if (part && !part[strspn(part, "0123456789.")]) {
			if (found || !read_range(t, part, false, &range))
				return false;
			*out = range;
			found = true;
		}
		text += len + (text[len] == ':');
	}
	return true;
}

static int64_t read_gpus(struct task *t, const struct node *node)
{
	struct range range = {1, 1};
	const struct node *count = node->kind == NODE_MAP ? node_get(node, "count") : NULL;
	const char *name = dialect_text(node, "name"), *vendor = dialect_text(node, "vendor");
	bool good = node->kind == NODE_MAP ? !count || range_of(t, count, false, &range)
					   : gpu_count(t, node->text, &range);
	int64_t gpus;

	if (!good || range.min > MOST_GPUS) {
		reader_error(t->rd, &node->at,
			"`resources.gpu` must be a number, or text such as A100:80GB:2 or 24GB:1..8, "
			"not %s",
			node->kind == NODE_SCALAR ? quote(node->text) : node_kind_name(node));
		return 0;
	}
	if (dialect_other_device(t->rd, node,
		    node->kind == NODE_SCALAR ? node->text
		    : vendor		      ? vendor
		    : name		      ? name
					      : ""))
		return 0;
	gpus = take(&range, t->rd->site.gpus, 1);
	if (node->kind == NODE_SCALAR && node->text[strspn(node->text, "0123456789.")])
		reader_note(t->rd, &node->at, "the kind of the %lld GPU%s is not checked",
			(long long)gpus, gpus == 1 ? "" : "s");
	return gpus;
}

/* Returns the MiB of each node; 0 after an error, which is reported. */
static int64_t read_memory(struct task *t, const struct node *node)
{
	struct range range;

	if (!range_of(t, node, true, &range) || range.min > (double)(INT64_C(1) << 50)) {
		reader_error(t->rd, &node->at,
			"`resources.memory` must be an amount such as 32GB, or a range such as "
			"32GB.., not %s",
			node->kind == NODE_SCALAR ? quote(node->text) : node_kind_name(node));
		return 0;
	}
	return (int64_t)(range.min >= 0 ? range.min : range.max) / MIB;
}

static void put_resources(struct task *t)
{
	const struct node *given = node_get(t->root, "resources");
	struct native_share share = {
		.nodes = t->nodes,
		.cpu_at = node_get(given, "cpu"),
		.memory_at = node_get(given, "memory"),
		.gpu_at = node_get(given, "gpu"),
	};

	share.cpus = share.cpu_at ? read_cpus(t, share.cpu_at) : dialect_cpus(t->rd);
	if (share.memory_at)
		share.memory = read_memory(t, share.memory_at);
	if (share.gpu_at)
		share.gpus = read_gpus(t, share.gpu_at);
	t->gpus = dialect_gpus(t->rd, share.gpus);
	native_resources(t->rd, t->job, given ? &given->at : &t->root->at, &share);
}

/* ---- limits ---- */

static void put_limits(struct task *t)
{
	static const char *const classes[] = {"user", "oom", "timeout"};
	const struct node *longest = node_get(t->root, "max_duration");
	const struct node *retry = node_get(t->root, "retry");
	const struct node *events = node_get(retry, "on_events");
	bool error = retry && retry->kind == NODE_SCALAR && dialect_flag(t->root, "retry", false);
	struct node *map, *list;

	if (longest && strcmp(longest->text, "off") != 0 && strcmp(longest->text, "-1") != 0)
		native_text(t->rd, t->job, "timeout",
			longest->text[strspn(longest->text, "0123456789")]
				? longest->text
				: workflow_arena_printf(t->rd->arena, "%ss", longest->text),
			&longest->at);
	for (size_t i = 0; events && i < events->n; i++)
		error = error || strcmp(events->entries[i].value->text, "error") == 0;
	if (!retry)
		return;
	if (!error) {
		reader_note(t->rd, &retry->at,
			"`retry` has no effect without `error`: an interrupted run is continued by "
			"the same command");
		return;
	}
	map = native_map(t->rd, t->job, "retry", &retry->at);
	native_number(t->rd, map, "max", LIMIT_WORKFLOW_RETRIES, &retry->at);
	list = native_list(t->rd, map, "classes", &retry->at);
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		native_text(t->rd, list, NULL, classes[i], &retry->at);
}

/* ---- variables ---- */

/* Adds the variables. A NAME without a value gets its value from the command line or from the
 * environment of the caller. */
static void put_variables(struct task *t)
{
	const struct node *given = node_get(t->root, "env");
	const struct strlist *env = t->rd->options->env;
	struct node *list = native_list(t->rd, t->job, "env", &t->root->at);
	struct node *plain = given ? native_new(t->rd, NULL, NULL, given->kind, &given->at) : NULL;
	const char *name = dialect_text(t->root, "name");

	native_variable_text(t->rd, list, "PYTHONUNBUFFERED", "1", &t->root->at);
	native_variable_text(t->rd, list, "DSTACK_RUN_NAME", name ? name : "task", &t->root->at);
	native_variable_text(t->rd, list, "DSTACK_NODES_NUM",
		workflow_arena_printf(t->rd->arena, "%lld", (long long)t->nodes), &t->root->at);
	native_variable_text(t->rd, list, "DSTACK_GPUS_PER_NODE",
		workflow_arena_printf(t->rd->arena, "%lld", (long long)t->gpus), &t->root->at);
	native_variable_text(t->rd, list, "DSTACK_GPUS_NUM",
		workflow_arena_printf(t->rd->arena, "%lld", (long long)t->gpus * t->nodes),
		&t->root->at);
	for (size_t i = 0; plain && i < given->n; i++) {
		const struct node_entry *entry = &given->entries[i];
		struct node *value = entry->value;
		const char *key = entry->key		       ? entry->key
				  : value->kind == NODE_SCALAR ? value->text
							       : "";

		if (entry->key ? !node_is_null(value) : strchr(key, '=') != NULL) {
			native_put(t->rd, plain, entry->key, value);
		} else if (!env || !strlist_get(env, key)) {
			reader_note(t->rd, &value->at,
				"`%s` gets its value from the environment, or from --env %s=VALUE",
				key, key);
			native_variable_text(t->rd, list, key,
				workflow_arena_printf(t->rd->arena, "${{ env.%s }}", key),
				&value->at);
		}
	}
	native_variables(t->rd, list, plain);
}

/* ---- files ---- */

/* Splits "LOCAL:PATH"; `*path` is NULL if there is no PATH. */
static void split(struct task *t, const char *text, const char **local, const char **path)
{
	const char *colon = strrchr(text, ':');

	if (colon && colon[1] == '/' && colon[2] == '/') /* the colon of a URL */
		colon = NULL;
	*local = colon ? workflow_arena_copy(t->rd->arena, text, (size_t)(colon - text)) : text;
	*path = colon ? colon + 1 : NULL;
}

static void put_files(struct task *t)
{
	const struct node *files = node_get(t->root, "files");

	for (size_t i = 0; files && i < files->n; i++) {
		const struct node *item = files->entries[i].value;
		const char *local = dialect_text(item, "local_path");
		const char *path = dialect_text(item, "path"), *slash;

		if (item->kind == NODE_SCALAR)
			split(t, item->text, &local, &path);
		if (!local)
			continue;
		/* Without a path the file gets its local path, below the working directory. */
		slash = strrchr(local, '/');
		if (!path && str_starts(local, "../") && slash)
			path = slash + 1;
		path = path ? path : local;
		while (str_starts(path, "./"))
			path += 2;
		if (!t->inputs)
			t->inputs = native_list(t->rd, t->job, "inputs", &files->at);
		native_local(t->rd, shell_input(&t->shell, t->inputs, path, SHELL_COPY, &item->at),
			local, &item->at);
	}
}

/* Adds a directory of this machine, or a volume by its name. A volume becomes a part of the
 * output. */
static void put_volume(struct task *t, const struct node *item)
{
	const struct node *name = node_get(item, "name");
	const char *host = dialect_text(item, "instance_path"), *path = dialect_text(item, "path");
	const char *volume = name && name->kind == NODE_SCALAR ? name->text : NULL;
	struct node *mount;

	if (item->kind == NODE_SCALAR) {
		split(t, item->text, &volume, &path);
		if (volume && *volume == '/') {
			host = volume;
			volume = NULL;
		}
	}
	if (name && name->kind == NODE_LIST && name->n)
		volume = name->entries[0].value->text;
	if (!path || *path != '/' || (!host && !volume)) {
		reader_error(t->rd, &item->at,
			"a volume must be NAME:/PATH or /HOST:/PATH, or a map with `path` and one of "
			"`name` and `instance_path`");
		return;
	}
	if (volume) {
		reader_note(t->rd, &item->at,
			"the volume `%s` is a part of the run's output: it is empty when the run "
			"starts, and what steps write to %s is published",
			volume, path);
		shell_place(&t->shell,
			workflow_arena_printf(t->rd->arena, "$DEEPSQUARE_OUTPUT/%s",
				workflow_arena_copy(t->rd->arena, volume, strcspn(volume, "$/"))),
			path, SHELL_MOUNT);
		return;
	}
	if (dialect_flag(item, "optional", false) && t->rd->options->is_here &&
		!t->rd->options->is_here(host))
		return;
	if (!t->mounts) {
		shell_bind(&t->shell, host, path, false);
		return;
	}
	mount = native_map(t->rd, t->mounts, NULL, &item->at);
	native_text(t->rd, mount, "hostDir", host, &item->at);
	native_text(t->rd, mount, "containerDir", path, &item->at);
	native_text(t->rd, mount, "options", "rw", &item->at);
}

/* Adds the context. Returns the lines that fetch a repository into the working directory; NULL if
 * there is none. */
static const char *put_repo(struct task *t)
{
	const struct node *repos = node_get(t->root, "repos");
	const struct node *item = repos && repos->n ? repos->entries[0].value : NULL;
	const char *local = dialect_text(item, "local_path"), *url = dialect_text(item, "url");
	const char *path = dialect_text(item, "path"), *ref = dialect_text(item, "hash");
	const char *lines = NULL;

	if (repos && repos->n > 1)
		reader_error(t->rd, &repos->at, "`repos` must have one repository, as in dstack");
	if (item && item->kind == NODE_SCALAR)
		split(t, item->text, &local, &path);
	if (local && (strstr(local, "://") || str_starts(local, "git@"))) {
		url = local;
		local = NULL;
	}
	if (url)
		lines = dialect_clone(t->rd, url, ref ? ref : dialect_text(item, "branch"));
	if (!native_context(t->rd, t->job, local ? dialect_home_path(t->rd, local) : NULL,
		    "gitignore", item ? &item->at : &t->root->at))
		native_map(t->rd, t->job, "context", &t->root->at);
	if (path && strcmp(path, ".") != 0)
		shell_place(&t->shell, "$PWD", path, SHELL_MOUNT);
	return lines;
}

/* ---- the step ---- */

static const char first_lines[] =
	"export DSTACK_RUN_ID=\"$PENSTOCK_RUN_ID\" DSTACK_JOB_ID=\"$PENSTOCK_RUN_ID\" "
	"DSTACK_WORKING_DIR=\"$PWD\" DSTACK_REPO_DIR=\"$PWD\" "
	"DSTACK_NODE_RANK=\"${NODE_RANK:-0}\"\n"
	"DSTACK_NODES_IPS=$(" SHELL_NODE_ADDRESSES ")\n"
	"export DSTACK_NODES_IPS DSTACK_MASTER_NODE_IP=\"${DSTACK_NODES_IPS%%$'\\n'*}\" "
	"DSTACK_MPI_HOSTFILE=\"$STORAGE_PATH/hostfile\"\n"
	"for ip in $DSTACK_NODES_IPS; do echo \"$ip slots=$DSTACK_GPUS_PER_NODE\"; done "
	">\"$DSTACK_MPI_HOSTFILE.$DSTACK_NODE_RANK\" && "
	"mv -f \"$DSTACK_MPI_HOSTFILE.$DSTACK_NODE_RANK\" \"$DSTACK_MPI_HOSTFILE\"\n";

/* The other nodes end when the commands of the first node have succeeded. */
static const char master_lines[] =
	"penstock_done=$STORAGE_PATH/.master-done-$PENSTOCK_ATTEMPT\n"
	"if [ \"$DSTACK_NODE_RANK\" != 0 ]; then\n"
	"\t{ until [ -e \"$penstock_done\" ]; do sleep 1; done; kill -USR2 $$; } &\n"
	"\ttrap 'trap - EXIT; kill -- $(jobs -p) 2>/dev/null; exit 0' USR2\n"
	"else trap 'if [ $? = 0 ]; then : >\"$penstock_done\"; fi' EXIT; fi\n";

/* Joins the commands by `&&`, as dstack does. A command that only has comments counts as `:`. */
static const char *joined(struct task *t, const struct node *commands)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	for (size_t i = 0; commands && i < commands->n; i++)
		buf_printf(
			&out, "%s{ :\n%s\n}", i ? " &&\n" : "", commands->entries[i].value->text);
	buf_add_char(&out, '\n');
	return workflow_arena_take(t->rd->arena, &out);
}

static bool is_shell(const char *entrypoint)
{
	static const char *const shells[] = {
		"bash -c", "sh -c", "/bin/bash -c", "/bin/sh -c", "bash", "sh"};

	return is_one_of(entrypoint, shells, ARRAY_SIZE(shells));
}

static const char *command_of(struct task *t, const char *clone)
{
	const struct node *commands = node_get(t->root, "commands");
	const char *dir = dialect_text(t->root, "working_dir");
	const char *criteria = dialect_text(t->root, "stop_criteria");
	bool master = t->nodes > 1 && criteria && strcmp(criteria, "master-done") == 0;
	const char *text = joined(t, commands);

	dir = dir ? dialect_quoted(t->rd, dir) : NULL;
	if (!text || !commands)
		return text;
	/* The shell runs a trap only when the command in the foreground has ended, so the other
	 * nodes run the commands in the background. */
	if (master)
		text = workflow_arena_printf(t->rd->arena,
			"if [ \"$DSTACK_NODE_RANK\" != 0 ]; then { %s} & wait $!\nelse\n%sfi\n",
			text, text);
	return text ? shell_command(&t->shell, first_lines,
			      workflow_arena_printf(t->rd->arena, "%s%s%s%s%s%s",
				      clone ? clone : "", dir ? "mkdir -p -- " : "", dir ? dir : "",
				      dir ? workflow_arena_printf(
						    t->rd->arena, " && cd %s || exit\n", dir)
					  : "",
				      master ? master_lines : "", text))
		    : NULL;
}

static void put_step(struct task *t, struct node *steps)
{
	const struct workflow_place *at = &t->root->at;
	const char *entrypoint = dialect_text(t->root, "entrypoint");
	const struct node *volumes = node_get(t->root, "volumes");
	struct node *step = native_map(t->rd, steps, NULL, at);
	struct node *run = native_map(t->rd, step, "run", at), *map;
	const char *clone;

	native_text(t->rd, step, "name", "run", at);
	if (t->image) {
		map = native_container(t->rd, run, t->image, node_get(t->root, "registry_auth"));
		t->mounts = volumes ? native_list(t->rd, map, "mounts", &volumes->at) : NULL;
		native_number(t->rd, run, "mapUid", 0, at);
		native_number(t->rd, run, "mapGid", 0, at);
	}
	clone = put_repo(t);
	put_files(t);
	for (size_t i = 0; volumes && i < volumes->n; i++)
		put_volume(t, volumes->entries[i].value);
	if (entrypoint && !is_shell(entrypoint))
		reader_error(t->rd, &node_get(t->root, "entrypoint")->at,
			"the entrypoint `%s` is not supported; write it into `commands`",
			entrypoint);
	if (node_get(t->root, "commands"))
		native_text(t->rd, run, "command", command_of(t, clone), at);
	else
		native_text(t->rd, run, "command", t->image ? "" : "true", at);
	native_text(t->rd, run, "shell",
		node_get(t->root, "commands") || !t->image ? "/bin/bash" : "ENTRYPOINT", at);
	if (t->nodes > 1) {
		map = native_map(t->rd, run, "resources", at);
		native_number(t->rd, map, "tasks", t->nodes, at);
	}
}

/* ---- the task ---- */

static void check_task(struct task *t)
{
	const struct node *python = node_get(t->root, "python"),
			  *shell = node_get(t->root, "shell");
	struct node *map;

	if (shell && strcmp(shell->text, "bash") != 0 && strcmp(shell->text, "/bin/bash") != 0)
		reader_note(t->rd, &shell->at,
			"the commands are run by /bin/bash, not by %s, even in an image",
			shell->text);
	if (dialect_flag(t->root, "docker", false))
		reader_error(t->rd, &node_get(t->root, "docker")->at,
			"`docker: true` is not supported: there is no Docker in a run; give `image`");
	if (!t->image && dialect_is_missing(t->root, "commands") &&
		dialect_is_missing(t->root, "image"))
		reader_error(t->rd, &t->root->at,
			"both `commands` and `image` are missing: there is nothing to run");
	if (!python || t->image)
		return;
	t->shell.python = python->text;
	map = native_map(t->rd, t->job, "python", &python->at);
	native_text(t->rd, map, "version", python->text, &python->at);
}

/* Replaces `${{ run.args }}` in the commands. */
static void expand_arguments(struct reader *rd, struct node *root)
{
	struct node *commands = node_get(root, "commands");
	struct node *map = native_map(rd, NULL, NULL, &root->at);

	native_put(rd, map, "name", node_get(root, "name"));
	native_put(rd, map, "commands", commands);
	if (!map || !commands)
		return;
	dstack_check_arguments(rd, map);
	dstack_expand(rd, map);
}

struct node *dstack_task(struct reader *rd, struct node *root)
{
	const struct workflow_place *at = &root->at;
	struct task t = {.rd = rd, .root = root};
	const struct node *commands;

	dialect_check(rd, root, &schema_task);
	expand_arguments(rd, root);
	commands = node_get(root, "commands");
	t.job = native_map(rd, NULL, NULL, at);
	if (!t.job)
		return NULL;
	t.image = native_image(rd, node_get(root, "image"));
	t.nodes = dialect_nodes(rd, dialect_whole(root, "nodes", 1));
	shell_init(&t.shell, rd, commands ? joined(&t, commands) : "");
	if (!t.shell.commands)
		t.shell.commands = "";
	t.shell.contained = t.image != NULL;
	native_name(rd, t.job, node_get(root, "name"));
	check_task(&t);
	put_resources(&t);
	put_limits(&t);
	put_variables(&t);
	put_step(&t, native_list(rd, t.job, "steps", at));
	shell_release(&t.shell);
	native_default_output(rd, t.job, NULL, dialect_text(root, "name"));
	return t.job;
}
