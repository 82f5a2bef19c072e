/* SkyPilot's task files, as one run on this machine. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"

/* clang-format off */
#define ONE_MACHINE "has no effect: the run is on this machine"

static const struct schema_key recovery_keys[] = {
	{"strategy", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"max_restarts_on_errors", .kinds = KEY_WHOLE, .max = 1000},
	{"recover_on_exit_codes", .kinds = KEY_WHOLE | KEY_TEXTS, .max = 255},
};
static const struct schema schema_recovery = {SCHEMA(NULL, "`job_recovery`", recovery_keys)};

static const struct schema_key resources_keys[] = {
	{"accelerators", .kinds = KEY_TEXT | KEY_FREE | KEY_TEXTS},
	{"cpus", .kinds = KEY_TEXT},
	{"memory", .kinds = KEY_TEXT},
	{"image_id", .kinds = KEY_TEXT | KEY_FREE},
	{"ports", .kinds = KEY_ANY, .note = "has no effect: a step can use every free port of this machine"},
	{"infra", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"cloud", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"region", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"zone", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"instance_type", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"use_spot", .kinds = KEY_FLAG, .note = ONE_MACHINE ", and continues after an interruption anyway"},
	{"disk_size", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"disk_tier", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"network_tier", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"labels", .kinds = KEY_FREE, .note = ONE_MACHINE},
	{"autostop", .kinds = KEY_ANY, .note = ONE_MACHINE ", which keeps running"},
	{"accelerator_args", .kinds = KEY_FREE, .note = ONE_MACHINE},
	{"priority", .kinds = KEY_WHOLE, .min = -1000, .max = 1000, .note = ONE_MACHINE},
	{"job_recovery", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_recovery},
	{"spot_recovery", .kinds = KEY_TEXT, .note = ONE_MACHINE},
	{"any_of", .kinds = KEY_ANY, .refused = "there is one machine to choose from; give its resources"},
	{"ordered", .kinds = KEY_ANY, .refused = "there is one machine to choose from; give its resources"},
};
static const struct schema schema_resources = {SCHEMA(NULL, "`resources`", resources_keys)};

static const struct schema_key mount_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"source", .kinds = KEY_TEXT},
	{"store", .kinds = KEY_TEXT},
	{"mode", .kinds = KEY_TEXT},
	{"persistent", .kinds = KEY_FLAG, .note = "has no effect: nothing in a bucket is deleted"},
	{"_is_sky_managed", .kinds = KEY_ANY, .refused = "it is internal to SkyPilot"},
};
static const struct schema schema_mount = {SCHEMA(NULL, "a file mount", mount_keys)};

static const struct schema_key root_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"workdir", .kinds = KEY_TEXT},
	{"num_nodes", .kinds = KEY_WHOLE, .min = 1, .max = 1, .refused = DIALECT_ONE_NODE},
	{"resources", .kinds = KEY_MAP, .below = &schema_resources},
	{"envs", .kinds = KEY_FREE},
	{"secrets", .kinds = KEY_FREE},
	{"file_mounts", .kinds = KEY_FREE},
	{"setup", .kinds = KEY_EMPTY},
	{"run", .kinds = KEY_EMPTY},
	{"event_callback", .kinds = KEY_ANY, .refused = "callbacks are not supported; use `notify` of a workflow of penstock"},
	{"volumes", .kinds = KEY_ANY, .refused = "there are no volumes; use `file_mounts`"},
	{"service", .kinds = KEY_ANY, .refused = "penstock runs tasks, not services"},
	{"pool", .kinds = KEY_ANY, .refused = "there are no pools"},
	{"config", .kinds = KEY_ANY, .refused = "there are no clouds to configure"},
	{"experimental", .kinds = KEY_ANY, .refused = "there are no clouds to be configured"},
};
static const struct schema schema_root = {SCHEMA(NULL, "a task", root_keys)};
/* clang-format on */

struct task {
	struct reader *rd;
	const struct node *root;
	struct node *job, *env, *inputs;
	int64_t gpus;
	int64_t restarts;
};

/* ---- resources ---- */

/* "H100:8", "H100" or, in a map, H100: 8. */
static void read_accelerators(struct task *t, const struct node *node)
{
	const char *text = node->text, *colon;
	uint64_t count = 1;

	if (node->kind == NODE_LIST && node->n) {
		text = node->entries[0].value->text;
		if (node->n > 1)
			reader_note(t->rd, &node->at,
				"only the first of the accelerators counts: one machine has one "
				"kind");
	}
	if (node->kind == NODE_MAP) {
		int64_t n;

		if (!node->n)
			return;
		if (node_is_null(node->entries[0].value))
			t->gpus = 1;
		else if (node_whole(node->entries[0].value, &n) && n >= 0 && n <= 4096)
			t->gpus = n;
		else
			reader_error(t->rd, &node->entries[0].value->at,
				"the number of accelerators must be a whole number from 0 to 4096");
		return;
	}
	if (!text)
		return;
	colon = strchr(text, ':');
	if (colon && !str_to_u64(colon + 1, 0, 4096, &count)) {
		reader_error(t->rd, &node->at,
			"`resources.accelerators` must be a kind and a number, such as H100:8, "
			"not %s",
			quote(text));
		return;
	}
	t->gpus = (int64_t)count;
	reader_note(t->rd, &node->at, "the kind of the %lld GPU%s is not checked",
		(long long)t->gpus, t->gpus == 1 ? "" : "s");
}

static char *without_suffix(struct task *t, const char *text, const char *suffix)
{
	return workflow_arena_copy(
		t->rd->arena, text, strlen(text) - (str_ends(text, suffix) ? strlen(suffix) : 0));
}

/* "4", or "4+" for at least 4. */
static int64_t read_cpus(struct task *t, const struct node *node)
{
	char *number = without_suffix(t, node->text, "+");
	uint64_t cpus = 1;

	if (number && !str_to_u64(number, 1, 65536, &cpus))
		reader_error(t->rd, &node->at,
			"`resources.cpus` must be a number such as 4 or 4+, from 1 to 65536, "
			"not %s",
			quote(node->text));
	return (int64_t)cpus;
}

/* "32" or "32+" in GiB, or "64GB", for all CPUs together; "2x" is multiplied by the CPUs. */
static void put_memory(struct task *t, struct node *out, const struct node *node, int64_t cpus)
{
	char *amount = without_suffix(t, node->text, "+");
	bool each = amount && str_ends(amount, "x");
	int64_t bytes;

	amount = amount ? without_suffix(t, amount, "x") : NULL;
	if (!amount)
		return;
	if (amount[strspn(amount, "0123456789.")] == '\0')
		amount = workflow_arena_printf(t->rd->arena, "%sGiB", amount);
	if (!amount)
		return;
	if (!dialect_memory(amount, &bytes) || bytes > (INT64_C(1) << 50)) {
		reader_error(t->rd, &node->at,
			"`resources.memory` must be an amount in GiB such as 32 or 32+, not %s",
			quote(node->text));
		return;
	}
	native_number(t->rd, out, "memPerCpu", each ? bytes / MIB : (bytes / MIB + cpus - 1) / cpus,
		&node->at);
}

/* Exit codes after which the job continues without limit, and which do not count as restarts. */
static void put_recovery(struct task *t, const struct node *recovery)
{
	struct node *codes = node_get(recovery, "recover_on_exit_codes");
	struct node *retry;

	if (!codes)
		return;
	retry = native_map(t->rd, t->job, "retry", &codes->at);
	native_number(t->rd, retry, "max", LIMIT_WORKFLOW_RETRIES, &codes->at);
	if (codes->kind == NODE_LIST)
		native_put(t->rd, retry, "codes", codes);
	else
		native_put(t->rd, native_list(t->rd, retry, "codes", &codes->at), NULL, codes);
}

static void put_resources(struct task *t)
{
	const struct node *resources = node_get(t->root, "resources");
	const struct node *kinds = node_get(resources, "accelerators");
	const struct node *cpu = node_get(resources, "cpus");
	const struct node *memory = node_get(resources, "memory");
	const struct node *recovery = node_get(resources, "job_recovery");
	struct node *out;
	int64_t cpus;

	t->restarts = dialect_whole(recovery, "max_restarts_on_errors", 0);
	put_recovery(t, recovery);
	if (kinds)
		read_accelerators(t, kinds);
	if (!cpu && !memory && !t->gpus)
		return;
	out = native_map(t->rd, t->job, "resources", &resources->at);
	cpus = cpu ? read_cpus(t, cpu) : 1;
	native_number(t->rd, out, "tasks", 1, &resources->at);
	native_number(t->rd, out, "cpusPerTask", cpus, cpu ? &cpu->at : &resources->at);
	if (memory)
		put_memory(t, out, memory, cpus);
	if (t->gpus)
		native_number(t->rd, out, "gpusPerTask", t->gpus, &kinds->at);
}

/* ---- variables ---- */

static void put_variables(struct task *t)
{
	static const char *const maps[] = {"envs", "secrets"};
	const struct strlist *env = t->rd->options->env;
	const struct workflow_place *at = &t->root->at;

	native_variable_text(t->rd, t->env, "SKYPILOT_NODE_RANK", "0", at);
	native_variable_text(t->rd, t->env, "SKYPILOT_NODE_IPS", "127.0.0.1", at);
	native_variable_text(t->rd, t->env, "SKYPILOT_NUM_NODES", "1", at);
	native_variable_text(t->rd, t->env, "SKYPILOT_NUM_GPUS_PER_NODE",
		workflow_arena_printf(t->rd->arena, "%lld", (long long)t->gpus), at);
	native_variable_text(t->rd, t->env, "SKYPILOT_SETUP_NODE_RANK", "0", at);
	native_variable_text(t->rd, t->env, "SKYPILOT_SETUP_NODE_IPS", "127.0.0.1", at);
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		const struct node *map = node_get(t->root, maps[i]);
		struct node *plain = map ? native_map(t->rd, NULL, NULL, &map->at) : NULL;

		for (size_t k = 0; plain && k < map->n; k++) {
			const struct node_entry *entry = &map->entries[k];

			if (!node_is_null(entry->value))
				native_put(t->rd, plain, entry->key, entry->value);
			else if (env && strlist_get(env, entry->key))
				continue; /* the command line gives the value */
			else if (i == 1)
				reader_error(t->rd, &entry->key_at,
					"`secrets.%s` has no value; store one with 'penstock "
					"secret set %s', and give --env '%s=${{ secrets.%s }}' "
					"or write ${{ secrets.%s }} here",
					entry->key, entry->key, entry->key, entry->key, entry->key);
			else
				reader_error(t->rd, &entry->key_at,
					"`%s.%s` has no value; give it with --env %s=VALUE",
					maps[i], entry->key, entry->key);
		}
		native_variables(t->rd, t->env, plain);
	}
}

/* ---- files ---- */

/* `$NAME` and `${NAME}` of `envs` in a path or URL. */
static const char *expanded(struct task *t, const struct node *node, const char *text)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const struct node *envs = node_get(t->root, "envs");

	if (!strchr(text, '$') || strstr(text, "${{"))
		return text;
	while (*text) {
		size_t len = strcspn(text, "$");
		bool brace;
		const char *name, *value;

		buf_add(&out, text, len);
		text += len;
		if (!*text)
			break;
		brace = text[1] == '{';
		text += brace ? 2 : 1;
		len = strspn(text, LETTERS_AND_DIGITS "_");
		name = workflow_arena_copy(t->rd->arena, text, len);
		value = name && envs && envs->kind == NODE_MAP ? dialect_text(envs, name) : NULL;
		if (!value) {
			reader_error(t->rd, &node->at, "`envs` has no `%s` for this path",
				name ? name : "");
			return NULL;
		}
		buf_add_str(&out, value);
		text += len + (brace && text[len] == '}');
	}
	return workflow_arena_take(t->rd->arena, &out);
}

/* The place of a mount's target in the working directory. NULL if it is elsewhere, which is
 * reported. */
static const char *link_of(struct task *t, const struct node_entry *entry)
{
	const char *path = entry->key;

	if (str_starts(path, "~/sky_workdir/"))
		path += strlen("~/sky_workdir/");
	while (str_starts(path, "./"))
		path += 2;
	if (*path != '/' && *path != '~' && *path && !reader_has_dots(path))
		return path;
	reader_error(t->rd, &entry->key_at,
		"`file_mounts`: %s is outside of the working directory, where penstock writes "
		"nothing on this machine; give a path below it, such as %s",
		entry->key, *path == '/' && path[1] ? path + 1 : "data");
	return NULL;
}

static bool check_mode(struct task *t, const struct node *map)
{
	const struct node *mode = node_get(map, "mode");

	if (mode && strcmp(mode->text, "COPY") == 0)
		return true;
	if (mode && strcmp(mode->text, "MOUNT") != 0 && strcmp(mode->text, "MOUNT_CACHED") != 0)
		reader_error(t->rd, &mode->at,
			"`mode` must be COPY, MOUNT or MOUNT_CACHED, not `%s`", mode->text);
	else
		reader_error(t->rd, mode ? &mode->at : &map->at,
			"the mode %s is not supported: nothing is mounted; write `mode: COPY` "
			"for data that is read, and write results to $DEEPSQUARE_OUTPUT",
			mode ? mode->text : "MOUNT, which is the default,");
	return false;
}

/* Adds the transport of `source` to the input. */
static void put_source(
	struct task *t, struct node *input, const struct node *node, const char *source)
{
	static const char *const others[] = {"r2://", "cos://", "oci://", "nebius://", "az://",
		"https://azure", "cw://", "vastdata://"};
	struct node *ignored, *local;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (str_starts(source, others[i])) {
			reader_error(t->rd, &node->at,
				"the store of `%s` is not supported; use s3://, gs://, "
				"http(s):// or files of this machine",
				source);
			return;
		}
	}
	if (native_bucket(t->rd, input, source, &node->at, &ignored))
		return;
	if (str_starts(source, "http://") || str_starts(source, "https://")) {
		struct node *http = native_map(t->rd, input, "http", &node->at);

		native_text(t->rd, http, "url", source, &node->at);
	} else {
		local = native_map(t->rd, input, "local", &node->at);
		if (str_starts(source, "~/") && getenv("HOME"))
			source = workflow_arena_printf(
				t->rd->arena, "%s/%s", getenv("HOME"), source + 2);
		native_text(t->rd, local, "path", source, &node->at);
	}
	native_put(t->rd, input, "unpack", node_scalar(t->rd->arena, "false", false, node->at));
}

static void put_file_mount(struct task *t, const struct node_entry *entry, size_t i)
{
	const struct node *node = entry->value;
	const char *link = link_of(t, entry);
	const char *source;
	struct node *input;

	if (node->kind == NODE_MAP) {
		size_t saved = reader_enter(t->rd, entry->key, 0);
		bool good = dialect_check(t->rd, entry->value, &schema_mount) &&
			    check_mode(t, node);

		reader_leave(t->rd, saved);
		if (!good)
			return;
		node = node_get(node, "source");
		if (!node) {
			reader_error(t->rd, &entry->value->at,
				"`source` is missing: without it SkyPilot creates an empty "
				"bucket, which has nothing to copy");
			return;
		}
	}
	if (node->kind != NODE_SCALAR || node_is_null(node)) {
		reader_error(t->rd, &node->at, "`file_mounts`: %s must be text or a map, not %s",
			entry->key, node_kind_name(node));
		return;
	}
	source = link ? expanded(t, node, node->text) : NULL;
	if (!source)
		return;
	input = native_map(t->rd, t->inputs, NULL, &node->at);
	put_source(t, input, node, source);
	native_text(t->rd, input, "path", workflow_arena_printf(t->rd->arena, "mounts/%zu", i),
		&node->at);
	native_text(t->rd, input, "link", link, &node->at);
}

static void put_file_mounts(struct task *t)
{
	const struct node *mounts = node_get(t->root, "file_mounts");
	size_t saved;

	if (!mounts || !mounts->n)
		return;
	t->inputs = native_list(t->rd, t->job, "inputs", &mounts->at);
	saved = reader_enter(t->rd, "file_mounts", 0);
	for (size_t i = 0; i < mounts->n; i++)
		put_file_mount(t, &mounts->entries[i], i);
	reader_leave(t->rd, saved);
}

/* ---- steps ---- */

static const struct node *image_of(struct task *t)
{
	const struct node *resources = node_get(t->root, "resources");
	const struct node *image = node_get(resources, "image_id");

	if (image && image->kind == NODE_MAP && image->n)
		image = image->entries[0].value;
	if (!image || image->kind != NODE_SCALAR)
		return NULL;
	if (str_starts(image->text, "docker:"))
		return image;
	reader_note(t->rd, &image->at,
		"`resources.image_id` has no effect: it is the image of a machine, and the run "
		"is on this machine");
	return NULL;
}

static void put_step(struct task *t, struct node *steps, const char *name,
	const struct node *commands, const struct node *image)
{
	struct node *step, *run;

	if (!commands || !commands->text[strspn(commands->text, " \t\r\n")])
		return;
	step = native_map(t->rd, steps, NULL, &commands->at);
	native_text(t->rd, step, "name", name, &commands->at);
	run = native_map(t->rd, step, "run", &commands->at);
	native_text(t->rd, run, "command",
		workflow_arena_printf(t->rd->arena,
			"export SKYPILOT_TASK_ID=\"$PENSTOCK_RUN_ID\" "
			"SKYPILOT_INTERNAL_JOB_ID=\"$PENSTOCK_RUN_ID\"\n%s",
			commands->text),
		&commands->at);
	native_text(t->rd, run, "shell", "/bin/bash", &commands->at);
	if (t->restarts && strcmp(name, "run") == 0)
		native_number(t->rd, run, "restarts", t->restarts, &commands->at);
	if (image)
		native_container(t->rd, run, image, NULL);
}

static struct node *translate(struct reader *rd, struct node *root)
{
	struct task t = {.rd = rd, .root = root};
	const struct node *image, *workdir = node_get(root, "workdir");
	struct node *steps;

	if (!dialect_check(rd, root, &schema_root) && root->kind != NODE_MAP)
		return NULL;
	t.job = native_map(rd, NULL, NULL, &root->at);
	native_name(rd, t.job, node_get(root, "name"));
	put_resources(&t);
	t.env = native_list(rd, t.job, "env", &root->at);
	put_variables(&t);
	native_context(rd, t.job, dialect_text(root, "workdir"), "gitignore",
		workdir ? &workdir->at : &root->at);
	put_file_mounts(&t);
	image = image_of(&t);
	steps = native_list(rd, t.job, "steps", &root->at);
	put_step(&t, steps, "setup", node_get(root, "setup"), image);
	put_step(&t, steps, "run", node_get(root, "run"), image);
	if (steps && !steps->n && !dialect_was_invalid(root, "setup") &&
		!dialect_was_invalid(root, "run"))
		reader_error(rd, &root->at,
			"both `setup` and `run` are missing: there is nothing to run");
	native_default_output(rd, t.job, NULL, dialect_text(root, "name"));
	return t.job;
}

static const char *const own_keys[] = {
	"run", "setup", "file_mounts", "workdir", "num_nodes", "envs", "service", NULL};

const struct dialect dialect_skypilot = {
	.name = "skypilot", .keys = own_keys, .translate = translate};
