/* dstack's .dstack/workflows.yaml of 2022, in both generations of its keys. */
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/dialects/shell.h"

/* clang-format off */
#define ONE_MACHINE "penstock runs a workflow on one machine"

static const struct schema_key count_keys[] = {
	{"count", .kinds = KEY_WHOLE, .max = 4096},
	{"name", .kinds = KEY_TEXT, .note = "is not compared with what this machine has"},
	{"memory", .kinds = KEY_TEXT, .note = "is not compared with what this machine has"},
};
static const struct schema schema_count = {SCHEMA(NULL, "`cpu` or `gpu`", count_keys)};

static const struct schema_key resources_keys[] = {
	{"cpu", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_count, .min = 1, .max = 4096},
	{"memory", .kinds = KEY_TEXT},
	{"gpu", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_count, .max = 4096},
	{"interruptible", .kinds = KEY_FLAG, .note = "has no effect: the run is on this machine, and continues after an interruption anyway"},
	{"local", .kinds = KEY_FLAG},
	{"remote", .kinds = KEY_FLAG, .note = "has no effect: the run is on this machine"},
	{"shm_size", .kinds = KEY_TEXT, .note = "has no effect: a step has the shared memory of this machine"},
	{"nodes", .kinds = KEY_WHOLE, .min = 1, .max = 1, .refused = DIALECT_ONE_NODE},
};
static const struct schema schema_resources = {SCHEMA(NULL, "`resources`", resources_keys)};

static const struct schema_key artifact_keys[] = {
	{"path", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"mount", .kinds = KEY_FLAG},
};
static const struct schema schema_artifact = {SCHEMA(NULL, "an artifact", artifact_keys)};

static const struct schema_key dep_keys[] = {
	{"workflow", .kinds = KEY_TEXT},
	{"run", .kinds = KEY_TEXT},
	{"tag", .kinds = KEY_TEXT},
	{"mount", .kinds = KEY_FLAG, .note = "has no effect: artifacts of other workflows are copied before the steps start"},
};
static const struct schema schema_dep = {SCHEMA(NULL, "a dependency", dep_keys)};

static const struct schema_key repo_keys[] = {
	{"include", .kinds = KEY_TEXT | KEY_TEXTS, .note = "has no effect: the steps find the whole project"},
};
static const struct schema schema_repo = {SCHEMA(NULL, "`repo`", repo_keys)};

static const struct schema_key depends_keys[] = {
	{"repo", .kinds = KEY_MAP, .below = &schema_repo},
	{"workflows", .kinds = KEY_TEXTS},
};
static const struct schema schema_depends = {SCHEMA(NULL, "`depends-on`", depends_keys)};

static const struct schema_key provider_keys[] = {
	{"name", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"repo", .kinds = KEY_TEXT, .refused = "providers of other repositories are not fetched; use bash with `commands`"},
	{"file", .kinds = KEY_TEXT, .refused = "custom providers are not run; use bash with `commands`"},
};
static const struct schema schema_provider = {SCHEMA(NULL, "`provider`", provider_keys)};

static const struct schema_key auth_keys[] = {
	{"username", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
	{"password", .kinds = KEY_TEXT, .flags = KEY_REQUIRED},
};
static const struct schema schema_auth = {SCHEMA(NULL, "`registry_auth`", auth_keys)};

static const struct schema_key workflow_keys[] = {
	{"name", .kinds = KEY_TEXT},
	{"help", .kinds = KEY_EMPTY},
	{"provider", .kinds = KEY_TEXT | KEY_MAP, .below = &schema_provider},
	{"python_script", .kinds = KEY_TEXT},
	{"script", .kinds = KEY_TEXT},
	{"file", .kinds = KEY_TEXT},
	{"args", .kinds = KEY_EMPTY | KEY_TEXTS},
	{"commands", .kinds = KEY_TEXT | KEY_TEXTS},
	{"before_run", .kinds = KEY_TEXT | KEY_TEXTS},
	{"setup", .kinds = KEY_TEXT | KEY_TEXTS},
	{"build", .kinds = KEY_TEXT | KEY_TEXTS},
	{"cache", .kinds = KEY_ANY, .note = "has no effect: packages and images are kept between runs anyway"},
	{"home_dir", .kinds = KEY_TEXT, .note = "has no effect: the home directory is the user's"},
	{"image", .kinds = KEY_TEXT},
	{"image_name", .kinds = KEY_TEXT, .note = "is read as `image`"},
	{"entrypoint", .kinds = KEY_TEXT, .refused = "the commands are run by /bin/sh; write the entry point into `commands`"},
	{"registry_auth", .kinds = KEY_MAP, .below = &schema_auth},
	{"url", .kinds = KEY_TEXT},
	{"output", .kinds = KEY_TEXT},
	{"python", .kinds = KEY_TEXT},
	{"version", .kinds = KEY_TEXT},
	{"environment", .kinds = KEY_FREE | KEY_TEXTS},
	{"env", .kinds = KEY_FREE | KEY_TEXTS},
	{"requirements", .kinds = KEY_TEXT},
	{"artifacts", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_artifact},
	{"working_dir", .kinds = KEY_TEXT},
	{"ports", .kinds = KEY_WHOLE | KEY_TEXTS, .max = 64},
	{"resources", .kinds = KEY_MAP, .below = &schema_resources},
	{"gpu", .kinds = KEY_WHOLE | KEY_MAP, .below = &schema_count, .max = 4096, .note = "belongs in `resources`: read as resources.gpu"},
	{"nodes", .kinds = KEY_WHOLE, .min = 1, .max = 1, .refused = DIALECT_ONE_NODE},
	{"nproc", .kinds = KEY_WHOLE, .min = 1, .max = 4096},
	{"deps", .kinds = KEY_TEXTS | KEY_LIST, .below = &schema_dep},
	{"depends-on", .kinds = KEY_TEXTS | KEY_MAP, .below = &schema_depends},
	{"template", .kinds = KEY_ANY, .refused = "templates are not merged; write the template's keys into the workflow"},
	{"type", .kinds = KEY_ANY, .refused = "of current dstack, penstock runs only `type: task`, at the top level of a file"},
};
static const struct schema schema_workflow = {SCHEMA(NULL, "a workflow", workflow_keys)};

static const struct schema_key root_keys[] = {
	{"workflows", .kinds = KEY_LIST, .flags = KEY_REQUIRED, .below = &schema_workflow},
};
static const struct schema schema_root = {SCHEMA(NULL, "the file", root_keys)};

/* If a workflow is chosen, mistakes in the other workflows do not matter. */
static const struct schema_key outer_keys[] = {
	{"workflows", .kinds = KEY_ANY, .flags = KEY_REQUIRED},
};
static const struct schema schema_outer = {SCHEMA(NULL, "the file", outer_keys)};
/* clang-format on */

/* Keys that only some providers have; keys of all providers are not listed. */
enum provider { PYTHON, TORCHRUN, BASH, DOCKER, CURL, PROVIDERS };
static const struct {
	const char *name;
	const char *keys[9];
} providers[PROVIDERS] = {
	[PYTHON] = {"python", {"python_script", "script", "file", "args", "python", "version"}},
	[TORCHRUN] = {"torchrun",
		{"python_script", "script", "file", "args", "python", "version", "nproc"}},
	[BASH] = {"bash", {"commands", "python", "version"}},
	[DOCKER] = {"docker", {"image", "image_name", "commands", "registry_auth"}},
	[CURL] = {"curl", {"url", "output"}},
};

struct chosen {
	struct reader *rd;
	const struct node *map; /* the workflow */
	const struct node *list; /* all workflows of the file; NULL if the file has only this one */
	const struct node *image; /* NULL if steps run on the host */
	enum provider provider;
	const char *script; /* from a `provider` with its arguments in one text */
	const char *script_args;
	struct workflow_place at;
	struct shell shell;
};

static bool knows_key(enum provider provider, const char *key)
{
	for (size_t i = 0; providers[provider].keys[i]; i++) {
		if (strcmp(providers[provider].keys[i], key) == 0)
			return true;
	}
	return false;
}

/* Reports keys of other providers. */
static void check_keys(struct chosen *c)
{
	for (size_t i = 0; i < c->map->n; i++) {
		const char *key = c->map->entries[i].key;
		bool special = false;

		if (node_is_null(c->map->entries[i].value))
			continue;
		for (size_t p = 0; p < PROVIDERS; p++)
			special = special || knows_key((enum provider)p, key);
		if (special && !knows_key(c->provider, key))
			reader_error(c->rd, &c->map->entries[i].key_at,
				"the provider %s has no key `%s`; its own keys are %s, %s%s%s",
				providers[c->provider].name, key, providers[c->provider].keys[0],
				providers[c->provider].keys[1],
				providers[c->provider].keys[2] ? ", " : "",
				providers[c->provider].keys[2] ? providers[c->provider].keys[2]
							       : "");
	}
}

static bool find_provider(struct chosen *c, const char *word, const struct workflow_place *at)
{
	static const char *const interactive[] = {
		"notebook", "lab", "code", "fastapi", "gradio", "streamlit"};
	const char *names[PROVIDERS];
	size_t len = strcspn(word, " @");
	char *name = workflow_arena_copy(c->rd->arena, word, len);
	const char *nearest;

	if (!name)
		return false;
	if (word[len] == '@')
		reader_note(c->rd, at, "`provider: %s` is read as %s", word, name);
	for (size_t i = 0; i < PROVIDERS; i++) {
		names[i] = providers[i].name;
		if (strcmp(name, names[i]) == 0) {
			c->provider = (enum provider)i;
			return true;
		}
	}
	if (is_one_of(name, interactive, ARRAY_SIZE(interactive))) {
		reader_error(c->rd, at,
			"the provider %s needs a browser and is not supported; start it with "
			"bash, `commands` and `ports`",
			name);
		return false;
	}
	nearest = str_nearest(name, names, PROVIDERS);
	reader_error(c->rd, at, "unknown provider %s%s%s%s", quote(name),
		nearest ? ", did you mean `"
			: "; the providers are python, torchrun, bash, docker and curl",
		nearest ? nearest : "", nearest ? "`?" : "");
	return false;
}

static bool read_provider(struct chosen *c)
{
	const struct node *provider = node_get(c->map, "provider");
	const char *word;

	c->at = provider ? provider->at : c->map->at;
	if (!provider) {
		c->provider = node_get(c->map, "image") ? DOCKER : BASH;
		if (dialect_was_invalid(c->map, "provider"))
			return false;
		if (node_get(c->map, "commands"))
			return true;
		if (dialect_was_invalid(c->map, "commands"))
			return false;
		reader_error(c->rd, &c->at,
			"`provider` is missing: python, torchrun, bash, docker or curl");
		return false;
	}
	word = provider->kind == NODE_MAP ? dialect_text(provider, "name") : provider->text;
	if (!word || !find_provider(c, word, &provider->at))
		return false;
	word += strcspn(word, " ");
	word += strspn(word, " ");
	if (*word) {
		size_t len = strcspn(word, " ");

		c->script = workflow_arena_copy(c->rd->arena, word, len);
		c->script_args = word + len + strspn(word + len, " ");
		reader_note(c->rd, &provider->at,
			"the text after the name of the provider is read as its script and "
			"arguments");
	}
	return true;
}

/* ---- the command ---- */

static const char *script_of(struct chosen *c)
{
	static const char *const keys[] = {"file", "script", "python_script"};
	const char *script = c->script;
	bool wrong = false;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct node_entry *entry = node_find(c->map, keys[i]);

		wrong = wrong || dialect_was_invalid(c->map, keys[i]);
		if (!entry || node_is_null(entry->value))
			continue;
		if (script)
			reader_error(c->rd, &entry->key_at,
				"`%s` names a second script; keep one of file, script and "
				"python_script",
				keys[i]);
		script = entry->value->text;
	}
	if (!script && !wrong)
		reader_error(c->rd, &c->at, "`%s` is missing: the script for the provider %s",
			reader_field(c->rd, "file"), providers[c->provider].name);
	return script;
}

/* Returns the value of either of two keys with the same meaning; NULL if both are missing. */
static const struct node *either(const struct node *map, const char *key, const char *other)
{
	const struct node *node = node_get(map, key);

	return node ? node : node_get(map, other);
}

static const struct node *gpu_of(const struct node *map)
{
	const struct node *gpu = node_get(node_get(map, "resources"), "gpu");

	return gpu ? gpu : node_get(map, "gpu");
}

/* Returns the number, or the `count` of a map (1 if it is missing). Returns `fallback` if `node` is
 * neither a whole number nor a map. */
static int64_t count_of(const struct node *node, int64_t fallback)
{
	int64_t count;

	if (node && node->kind == NODE_MAP)
		return dialect_whole(node, "count", 1);
	return node_whole(node, &count) ? count : fallback;
}

static void add_python(struct chosen *c, struct buf *out)
{
	const char *script = script_of(c);
	int64_t gpus = dialect_gpus(c->rd, count_of(gpu_of(c->map), 0));
	const struct node *version = either(c->map, "python", "version");
	const struct node *args = node_get(c->map, "args");

	if (!script)
		return;
	/* The virtual environment of the run names its interpreter python3, for any version. */
	buf_printf(out, "exec python%s",
		version && !node_get(c->map, "requirements") ? version->text : "3");
	if (c->provider == TORCHRUN)
		buf_printf(out,
			" -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node=%lld",
			(long long)dialect_whole(c->map, "nproc", gpus > 0 ? gpus : 1));
	buf_printf(out, " %s", dialect_quoted(c->rd, script));
	if (c->script_args && *c->script_args)
		buf_printf(out, " %s", c->script_args);
	if (args && args->kind == NODE_SCALAR && *args->text)
		buf_printf(out, " %s", args->text);
	for (size_t i = 0; args && args->kind == NODE_LIST && i < args->n; i++)
		buf_printf(out, " %s", dialect_quoted(c->rd, args->entries[i].value->text));
}

static void add_curl(struct chosen *c, struct buf *out)
{
	const char *url = dialect_text(c->map, "url");
	const char *output = dialect_text(c->map, "output");

	if (dialect_is_missing(c->map, "url"))
		reader_error(c->rd, &c->at, "`url` is missing: the address that curl fetches");
	if (dialect_is_missing(c->map, "output"))
		reader_error(c->rd, &c->at, "`output` is missing: the file that curl writes");
	if (url && output)
		buf_printf(out,
			"exec curl --fail --silent --show-error --location --create-dirs "
			"--output %s %s",
			dialect_quoted(c->rd, output), dialect_quoted(c->rd, url));
}

/* Appends each member of a list, or one text, as a line. */
static void add_lines(struct buf *out, const struct node *lines)
{
	if (lines && lines->kind == NODE_SCALAR)
		buf_printf(out, "%s\n", lines->text);
	for (size_t i = 0; lines && i < lines->n; i++)
		buf_printf(out, "%s\n", lines->entries[i].value->text);
}

/* Returns the shell command of the only step. */
static const char *command_of(struct chosen *c)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const struct node *commands = node_get(c->map, "commands");
	const char *dir = dialect_text(c->map, "working_dir");

	buf_add_str(&out, "set -e\n");
	add_lines(&out, node_get(c->map, "build"));
	add_lines(&out, node_get(c->map, "setup"));
	add_lines(&out, node_get(c->map, "before_run"));
	buf_add_str(&out, "export JOB_ID=\"$PENSTOCK_RUN_ID\"\n");
	if (dir)
		buf_printf(&out, "cd %s\n", dialect_quoted(c->rd, dir));
	if (c->provider == PYTHON || c->provider == TORCHRUN) {
		add_python(c, &out);
	} else if (c->provider == CURL) {
		add_curl(c, &out);
	} else if (!commands) {
		if (dialect_is_missing(c->map, "commands"))
			reader_error(c->rd, &c->at,
				"`commands` is missing: the commands for the provider %s",
				providers[c->provider].name);
	} else if (commands->kind == NODE_SCALAR) {
		buf_add_str(&out, commands->text);
	} else {
		add_lines(&out, commands);
	}
	if (out.failure == BUF_NO_MEMORY)
		c->rd->arena->no_memory = true;
	if (out.failure == BUF_OVER_LIMIT)
		reader_error(c->rd, &c->at, "the command is longer than %zu bytes",
			(size_t)LIMIT_STRING);
	return workflow_arena_copy(c->rd->arena, buf_str(&out), out.len);
}

/* ---- the parts of the native tree ---- */

/* Returns the MiB of `memory` such as "32GB", "4GB/gpu" or "4GB/cpu"; 0 after an error, which is
 * reported. */
static int64_t read_memory(struct chosen *c, const struct node *memory, int64_t cpus, int64_t gpus)
{
	const char *slash = strchr(memory->text, '/');
	const char *amount = memory->text;
	int64_t bytes, each = 1;

	if (slash) {
		amount = workflow_arena_copy(c->rd->arena, amount, (size_t)(slash - amount));
		each = strcmp(slash, "/gpu") == 0 ? gpus : strcmp(slash, "/cpu") == 0 ? cpus : 0;
	}
	if (!amount)
		return 0;
	if (dialect_memory(amount, &bytes) && each >= 1 && bytes <= (INT64_C(1) << 50))
		return bytes / MIB * each;
	reader_error(c->rd, &memory->at,
		"`memory` must be an amount such as 32GB, 512MiB or, with GPUs, 16GB/gpu, not %s",
		quote(memory->text));
	return 0;
}

static void put_resources(struct chosen *c, struct node *job)
{
	const struct node *resources = node_get(c->map, "resources");
	struct native_share share = {
		.nodes = 1,
		.cpu_at = node_get(resources, "cpu"),
		.memory_at = node_get(resources, "memory"),
		.gpu_at = gpu_of(c->map),
	};

	share.cpus = share.cpu_at ? count_of(share.cpu_at, 1) : dialect_cpus(c->rd);
	share.gpus = count_of(share.gpu_at, 0);
	if (share.memory_at && share.cpus > 0)
		share.memory = read_memory(c, share.memory_at, share.cpus, share.gpus);
	native_resources(c->rd, job, resources ? &resources->at : &c->map->at, &share);
}

static void put_python(struct chosen *c, struct node *job)
{
	const struct node *requirements = node_get(c->map, "requirements");
	const struct node *version = either(c->map, "python", "version");
	struct node *python;

	if (!requirements && !version)
		return;
	if (requirements && c->provider == DOCKER) {
		reader_error(c->rd, &requirements->at,
			"`requirements` are for steps on this machine; install the packages in "
			"the image, or by `commands`");
		return;
	}
	python = native_map(c->rd, job, "python", requirements ? &requirements->at : &version->at);
	if (requirements)
		native_text(c->rd, python, "requirements", requirements->text, &requirements->at);
	if (version)
		native_text(c->rd, python, "version", version->text, &version->at);
}

static void put_artifacts(struct chosen *c, struct node *job)
{
	const struct node *list = node_get(c->map, "artifacts");
	struct node *out = list && list->n ? native_list(c->rd, job, "artifacts", &list->at) : NULL;

	for (size_t i = 0; out && i < list->n; i++) {
		const struct node *item = list->entries[i].value;
		const char *path = item->kind == NODE_MAP ? dialect_text(item, "path") : item->text;

		while (path && str_starts(path, "./"))
			path += 2;
		if (path && *path == '/' && !reader_has_dots(path)) {
			shell_place(&c->shell,
				workflow_arena_printf(
					c->rd->arena, "$DEEPSQUARE_OUTPUT/%s", path + 1),
				path, SHELL_MOUNT);
			continue;
		}
		native_text(c->rd, out, NULL, path, &item->at);
	}
}

static void put_step(struct chosen *c, struct node *job)
{
	struct node *steps = native_list(c->rd, job, "steps", &c->map->at);
	struct node *step = native_map(c->rd, steps, NULL, &c->map->at);
	const char *command;
	struct node *run;
	bool placed;

	native_name(c->rd, step, node_get(c->map, "name"));
	run = native_map(c->rd, step, "run", &c->map->at);
	command = command_of(c);
	placed = c->shell.links.len || c->shell.mounts.len;
	if (command && placed)
		command = shell_command(&c->shell, "", command);
	native_text(c->rd, run, "command", command, &c->at);
	native_text(c->rd, run, "shell", c->provider == BASH || placed ? "/bin/bash" : "/bin/sh",
		&c->at);
	if (c->image)
		native_container(c->rd, run, c->image, node_get(c->map, "registry_auth"));
	else if (c->provider == DOCKER && dialect_is_missing(c->map, "image") &&
		 dialect_is_missing(c->map, "image_name"))
		reader_error(
			c->rd, &c->at, "`image` is missing: the image for the provider docker");
}

/* `ports` is a number of free ports, or a list of the ports that a program uses. */
static void put_ports(struct chosen *c, struct node *job)
{
	struct node *ports = node_get(c->map, "ports");

	if (ports && ports->kind == NODE_LIST)
		reader_note(c->rd, &ports->at,
			"`ports` has no effect: a step can use every free port of this machine");
	else
		native_put(c->rd, job, "ports", ports);
}

static struct node *make_job(struct chosen *c)
{
	const struct workflow_place *at = &c->map->at;
	struct node *job = native_map(c->rd, NULL, NULL, at), *env;
	const char *name = dialect_text(c->map, "name");
	const char *folder = dialect_folder(c->rd);
	const char *project = folder ? strrchr(folder, '/') : NULL;
	bool known = read_provider(c);

	if (!job)
		return NULL;
	if (known)
		check_keys(c);
	shell_init(&c->shell, c->rd, "");
	c->image = native_image(c->rd, either(c->map, "image", "image_name"));
	c->shell.contained = c->image != NULL;
	native_name(c->rd, job, node_get(c->map, "name"));
	put_resources(c, job);
	env = native_list(c->rd, job, "env", at);
	native_variable_text(c->rd, env, "PYTHONUNBUFFERED", "1", at);
	native_variable_text(c->rd, env, "RUN_NAME", name, at);
	native_variable_text(c->rd, env, "JOB_HOSTNAME", "localhost", at);
	native_variable_text(c->rd, env, "MASTER_HOSTNAME", "localhost", at);
	dstack_put_variables(c->rd, c->map, env);
	native_variables(c->rd, env, node_get(c->map, "environment"));
	native_variables(c->rd, env, node_get(c->map, "env"));
	dstack_put_deps(c->rd, c->list, c->map, job);
	put_python(c, job);
	put_artifacts(c, job);
	put_ports(c, job);
	native_context(c->rd, job, folder, "gitignore", at);
	if (known)
		put_step(c, job);
	shell_release(&c->shell);
	native_default_output(c->rd, job, project ? project + 1 : folder ? folder : ".", name);
	return job;
}

/* ---- the file ---- */

static const struct node *pick(struct reader *rd, const struct node *list)
{
	const char *wanted = rd->options->pick;
	const struct node *found = NULL;
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_STRING);

	for (size_t i = 0; i < list->n; i++) {
		const struct node *item = list->entries[i].value;
		const char *name = dialect_text(item, "name");

		if (item->kind != NODE_MAP)
			continue;
		if (!name) {
			reader_error(rd, &item->at, "the workflow has no `name`");
			continue;
		}
		buf_printf(&names, "%s%s", names.len ? ", " : "", name);
		if (wanted && strcmp(name, wanted) != 0)
			continue;
		if (found && wanted)
			reader_error(
				rd, &item->at, "there are two workflows named %s", quote(name));
		found = item;
	}
	if (found && found->kind != NODE_MAP)
		return NULL;
	if (found && !wanted && list->n > 1) {
		reader_error(rd, &list->at,
			"cannot choose a workflow; give one of these names with --workflow: %s",
			buf_str(&names));
		return NULL;
	}
	if (!found && wanted)
		reader_error(rd, &list->at, "there is no workflow %s; the workflows are %s",
			quote(wanted), names.len ? buf_str(&names) : "none");
	else if (!found && !list->n)
		reader_error(rd, &list->at, "`workflows` is empty: there is nothing to run");
	return found;
}

/* ---- files of current dstack ---- */

static const struct {
	const char *type;
	const char *instead;
} types_of_today[] = {
	{"task", NULL},
	{"dev-environment",
		"no editor can connect; 'penstock exec RUN' runs a program in a running step"},
	{"service", "write its `commands` as the `run` of a step and its port as `ports`, see "
		    "penstock-workflow(5)"},
	{"fleet", "penstock runs on this machine, or with --on slurm on a cluster; 'penstock "
		  "runners' lists the resources"},
	{"volume", "fetch data by `inputs` and keep it by `output`, see penstock-workflow(5)"},
	{"gateway", "penstock does not publish services on the internet"},
	{"preset", "write the preset's keys into the workflow"},
};

/* Returns the index in `types_of_today`; -1 if `root` is not a file of current dstack. */
static int of_today(const struct node *root)
{
	const char *type = dialect_text(root, "type");

	for (size_t i = 0; type && i < ARRAY_SIZE(types_of_today); i++) {
		if (strcmp(type, types_of_today[i].type) == 0)
			return (int)i;
	}
	return -1;
}

/* Reads a key of `resources` such as "V100/gpu" as `gpu`, with a note. */
static void read_kinds(struct reader *rd, struct node *map)
{
	struct node *resources = map->kind == NODE_MAP ? node_get(map, "resources") : NULL;

	for (size_t i = 0; resources && resources->kind == NODE_MAP && i < resources->n; i++) {
		struct node_entry *entry = &resources->entries[i];

		if (!entry->key || !str_ends(entry->key, "/gpu"))
			continue;
		reader_note(rd, &entry->key_at,
			"`%s` is read as `gpu`: the kind of the GPUs is not checked", entry->key);
		entry->key = "gpu";
	}
}

static struct node *translate_picked(struct chosen *c, struct node *root, const struct node *list)
{
	size_t i = 0, saved;
	struct node *map;

	while (list->entries[i].value != c->map)
		i++;
	map = list->entries[i].value;
	dstack_check_arguments(c->rd, map);
	dstack_expand(c->rd, map);
	read_kinds(c->rd, map);
	dialect_check(c->rd, root, &schema_outer);
	saved = reader_enter(c->rd, "workflows", 0);
	reader_enter(c->rd, NULL, i);
	dialect_check(c->rd, map, &schema_workflow);
	reader_leave(c->rd, saved);
	return make_job(c);
}

static struct node *translate(struct reader *rd, struct node *root)
{
	struct chosen c = {.rd = rd};
	const struct node *list = node_get(root, "workflows");
	int today = of_today(root);

	if (today >= 0 && !types_of_today[today].instead)
		return dstack_task(rd, root);
	if (today >= 0) {
		const struct node *type = node_get(root, "type");

		reader_error(rd, &type->at,
			"`type: %s` of dstack is not supported; penstock runs tasks: %s",
			type->text, types_of_today[today].instead);
		return NULL;
	}
	if (!node_find(root, "workflows")) {
		c.map = root;
		dstack_check_arguments(c.rd, root);
		dstack_expand(c.rd, root);
		read_kinds(c.rd, root);
		dialect_check(c.rd, root, &schema_workflow);
		return make_job(&c);
	}
	if (list && list->kind == NODE_LIST) {
		c.list = list;
		c.map = pick(rd, list);
		if (c.map)
			return translate_picked(&c, root, list);
		for (size_t i = 0; i < list->n; i++)
			dstack_expand(rd, list->entries[i].value);
	}
	dialect_check(rd, root, &schema_root);
	return NULL;
}

static int recognise(const struct node *root, const char *file)
{
	if (of_today(root) >= 0 || node_find(root, "workflows") ||
		strstr(file, ".dstack/workflows/") || str_ends(file, ".dstack/workflows.yaml") ||
		str_ends(file, ".dstack/workflows.yml"))
		return INT_MAX;
	return node_find(root, "provider") ? 8 : 0;
}

const struct dialect dialect_dstack = {
	.name = "dstack", .recognise = recognise, .translate = translate};
