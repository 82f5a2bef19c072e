/* SkyPilot's task files, as one run on this machine. */
#include "workflow/dialects/skypilot.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

/* clang-format off */
#define ONE_MACHINE "has no effect: there are no clouds to configure"

static const struct schema_key workdir_keys[] = {
	{"url", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"ref", .kinds = KEY_TEXT},
};
static const struct schema schema_workdir = {SCHEMA(NULL, "`workdir`", workdir_keys)};

static const struct schema_key root_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"workdir", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_workdir},
	{"num_nodes", .kinds = KEY_WHOLE, .min = 1, .max = 10000},
	{"resources", .kinds = KEY_MAP, .below = &skypilot_resources},
	{"envs", .kinds = KEY_FREE},
	{"secrets", .kinds = KEY_FREE},
	{"file_mounts", .kinds = KEY_FREE},
	{"setup", .kinds = KEY_EMPTY},
	{"run", .kinds = KEY_EMPTY},
	{"event_callback", .kinds = KEY_ANY, .note = "has no effect; `notify` of a penstock workflow reports events"},
	{"volumes", .kinds = KEY_ANY, .refused = "there are no volumes; use `file_mounts`"},
	{"service", .kinds = KEY_ANY, .refused = "penstock runs tasks, not services"},
	{"pool", .kinds = KEY_ANY, .refused = "there are no pools"},
	{"config", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"experimental", .kinds = KEY_ANY, .note = ONE_MACHINE},
	{"inputs", .kinds = KEY_ANY, .note = "has no effect: it estimates the price of transfers"},
	{"outputs", .kinds = KEY_ANY, .note = "has no effect: it estimates the price of transfers"},
};
static const struct schema schema_root = {SCHEMA(NULL, "a task", root_keys)};
/* clang-format on */

/* ---- variables ---- */

/* A secret without a value is looked up when the run starts. */
static void put_secret(struct task *t, struct node *plain, const struct node_entry *entry)
{
	const char *reference = workflow_arena_printf(
		t->rd->arena, "${{ secrets.%s }}", entry->key);

	reader_note(t->rd, &entry->key_at,
		"`secrets.%s` has no value in the file: the run takes the value of 'penstock secret "
		"set %s', or of --env %s=VALUE",
		entry->key, entry->key, entry->key);
	native_text(t->rd, plain, entry->key, reference, &entry->key_at);
}

static void put_variables(struct task *t)
{
	static const char *const maps[] = {"envs", "secrets"};
	const struct strlist *env = t->rd->options->env;
	const struct workflow_place *at = &t->root->at;

	native_variable_text(t->rd, t->env, "SKYPILOT_NUM_NODES",
		workflow_arena_printf(t->rd->arena, "%lld", (long long)t->nodes), at);
	native_variable_text(t->rd, t->env, "SKYPILOT_NUM_GPUS_PER_NODE",
		workflow_arena_printf(
			t->rd->arena, "%lld", (long long)dialect_gpus(t->rd, t->gpus)),
		at);
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
				put_secret(t, plain, entry);
			else
				reader_error(t->rd, &entry->key_at,
					"`%s.%s` has no value; give it with --env %s=VALUE",
					maps[i], entry->key, entry->key);
		}
		native_variables(t->rd, t->env, plain);
	}
}

/* ---- the image ---- */

/* Returns true for an image of a machine: ami-…, projects/…, skypilot:… and the like, and names
 * without `/` that have no colon, or several colons, like Azure's names. */
static bool is_of_machine(const char *image)
{
	static const char *const starts[] = {
		"ami-", "projects/", "skypilot:", "ocid1.", "/subscriptions/", "https://", "img-"};
	const char *colon = strchr(image, ':');

	if (str_starts_any(image, starts, ARRAY_SIZE(starts)))
		return true;
	return !strchr(image, '/') && (!colon || strchr(colon + 1, ':'));
}

static const struct node *image_of(struct task *t)
{
	const struct node *image = node_get(t->resources, "image_id");

	if (image && image->kind == NODE_MAP && image->n)
		image = image->entries[0].value;
	if (!image || image->kind != NODE_SCALAR)
		return NULL;
	if (str_starts(image->text, "docker:"))
		return image;
	if (is_of_machine(image->text)) {
		reader_note(t->rd, &image->at,
			"`resources.image_id` has no effect: it is the image of a machine, and the "
			"run is on this machine");
		return NULL;
	}
	reader_note(t->rd, &image->at, "`resources.image_id` is read as a container's: docker:%s",
		image->text);
	return image;
}

/* ---- steps ---- */

/* Nodes are named by their addresses, as in SkyPilot. */
static const char first_lines[] =
	"export SKYPILOT_TASK_ID=\"$PENSTOCK_RUN_ID\" "
	"SKYPILOT_INTERNAL_JOB_ID=\"$PENSTOCK_RUN_ID\"\n"
	"export PYTHONUNBUFFERED=1\n"
	"export SKYPILOT_NODE_RANK=\"${NODE_RANK:-0}\" SKYPILOT_SETUP_NODE_RANK=\"${NODE_RANK:-0}\"\n"
	"SKYPILOT_NODE_IPS=$(" SHELL_NODE_ADDRESSES ")\n"
	"export SKYPILOT_NODE_IPS SKYPILOT_SETUP_NODE_IPS=\"$SKYPILOT_NODE_IPS\"\n";

static bool is_empty(const struct node *commands)
{
	return !commands || !commands->text[strspn(commands->text, " \t\r\n")];
}

static void put_step(struct task *t, struct node *steps, const char *name, const char *commands,
	const struct workflow_place *at)
{
	struct node *step = native_map(t->rd, steps, NULL, at), *run, *resources;

	native_text(t->rd, step, "name", name, at);
	run = native_map(t->rd, step, "run", at);
	/* Fetch the current commit in each step, because a resumed run skips the finished step
	 * 'workdir'. */
	if (commands && t->clone && commands != t->clone)
		commands = workflow_arena_printf(t->rd->arena, "%s%s", t->clone, commands);
	native_text(t->rd, run, "command",
		commands ? shell_command(&t->shell, first_lines, commands) : NULL, at);
	native_text(t->rd, run, "shell", "/bin/bash", at);
	if (t->nodes > 1) {
		resources = native_map(t->rd, run, "resources", at);
		native_number(t->rd, resources, "tasks", t->nodes, at);
	}
	if (t->restarts && strcmp(name, "run") == 0)
		native_number(t->rd, run, "restarts", t->restarts, at);
	if (!t->image)
		return;
	native_container(t->rd, run, t->image, NULL);
	/* In SkyPilot's containers the user is root. */
	native_number(t->rd, run, "mapUid", 0, at);
	native_number(t->rd, run, "mapGid", 0, at);
}

static void put_steps(struct task *t)
{
	const struct node *setup = node_get(t->root, "setup"), *run = node_get(t->root, "run");
	const struct node *workdir = node_get(t->root, "workdir");
	struct node *steps = native_list(t->rd, t->job, "steps", &t->root->at);
	const char *url = dialect_text(workdir, "url"), *text;

	if (url) {
		t->clone = dialect_clone(t->rd, url, dialect_text(workdir, "ref"));
		put_step(t, steps, "workdir", t->clone, &workdir->at);
	}
	if (is_empty(setup) && is_empty(run)) {
		if (!dialect_was_invalid(t->root, "setup") && !dialect_was_invalid(t->root, "run"))
			reader_error(t->rd, &t->root->at,
				"both `setup` and `run` are missing: there is nothing to run");
	} else if (t->image && !is_empty(setup) && !is_empty(run)) {
		/* Use one container for `setup` and `run`, so that `run` finds the programs that
		 * `setup` installed. */
		text = dialect_quoted(t->rd, setup->text);
		text = text ? workflow_arena_printf(
				      t->rd->arena, "/bin/bash -c %s || exit\n%s", text, run->text)
			    : NULL;
		put_step(t, steps, "run", text, &run->at);
	} else {
		if (!is_empty(setup))
			put_step(t, steps, "setup", setup->text, &setup->at);
		if (!is_empty(run))
			put_step(t, steps, "run", run->text, &run->at);
	}
}

static void put_workdir(struct task *t)
{
	const struct node *workdir = node_get(t->root, "workdir");
	const char *path = dialect_text(t->root, "workdir");

	if (!native_context(t->rd, t->job, path ? dialect_home_path(t->rd, path) : NULL,
		    "gitignore", workdir ? &workdir->at : &t->root->at))
		native_map(t->rd, t->job, "context", &t->root->at);
	/* Commands may name ~/sky_workdir, SkyPilot's path of the working directory. */
	if (strstr(t->shell.commands, "sky_workdir"))
		shell_place(&t->shell, "$PWD", "~/sky_workdir", SHELL_MOUNT);
}

static struct node *translate(struct reader *rd, struct node *root)
{
	struct task t = {.rd = rd, .root = root};
	const char *setup, *run, *text;

	if (!dialect_check(rd, root, &schema_root) && root->kind != NODE_MAP)
		return NULL;
	setup = dialect_text(root, "setup");
	run = dialect_text(root, "run");
	text = workflow_arena_printf(rd->arena, "%s\n%s", setup ? setup : "", run ? run : "");
	t.nodes = dialect_nodes(rd, dialect_whole(root, "num_nodes", 1));
	t.job = native_map(rd, NULL, NULL, &root->at);
	if (!t.job || !text)
		return NULL;
	shell_init(&t.shell, rd, text);
	native_name(rd, t.job, node_get(root, "name"));
	skypilot_put_resources(&t);
	t.image = rd->options->image ? native_image(rd, NULL) : image_of(&t);
	t.shell.contained = t.image != NULL;
	t.env = native_list(rd, t.job, "env", &root->at);
	put_variables(&t);
	put_workdir(&t);
	skypilot_put_files(&t);
	put_steps(&t);
	shell_release(&t.shell);
	if (!node_find(t.job, "output"))
		native_default_output(rd, t.job, NULL, dialect_text(root, "name"));
	return t.job;
}

static const char *const own_keys[] = {
	"run", "setup", "file_mounts", "workdir", "num_nodes", "envs", "service", NULL};

const struct dialect dialect_skypilot = {
	.name = "skypilot", .keys = own_keys, .translate = translate};
