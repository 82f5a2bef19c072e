#include "run/step/environment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/step/env_file.h"
#include "run/step/store_environment.h"
#include "run/notices/reaction.h"
#include "run/tracking/tracking.h"
#include "run/workdir/project.h"

/* Adds the inherited variables, except penstock's settings that a step must not inherit. */
static int inherit(struct strlist *env, const char *const *inherited)
{
	static const char *const own[] = {"PENSTOCK_ACCESS_KEY_ID=", "PENSTOCK_SECRET_ACCESS_KEY=",
		"PENSTOCK_SECRET_", "PENSTOCK_RUN_ID=", "PENSTOCK_ATTEMPT=", "PENSTOCK_CHECKPOINT=",
		"PENSTOCK_CHECKPOINT_DIR=", "PENSTOCK_TRACKED_RUN="};

	for (; inherited && *inherited; inherited++) {
		if (!str_starts_any(*inherited, own, ARRAY_SIZE(own)) &&
			strlist_add(env, *inherited) < 0)
			return -1;
	}
	return 0;
}

static int add_list(struct strlist *env, const struct workflow_env_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		if (strlist_set(env, list->items[i].key, list->items[i].value.value) < 0)
			return -1;
	}
	return 0;
}

static int set_number(struct strlist *env, const char *key, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	return strlist_set(env, key, text);
}

static int add_resources(struct strlist *env, const struct workflow_resources *r)
{
	int64_t cpus = r->tasks.value * r->cpus_per_task.value;

	if (set_number(env, "NTASKS", r->tasks.value) < 0 ||
		set_number(env, "CPUS_PER_TASK", r->cpus_per_task.value) < 0 ||
		set_number(env, "MEM_PER_CPU", r->mem_per_cpu.value) < 0 ||
		set_number(env, "GPUS", r->gpus.value) < 0 || set_number(env, "CPUS", cpus) < 0 ||
		set_number(env, "MEM", r->mem_per_cpu.value * cpus) < 0)
		return -1;
	return r->gpus_per_task.given ? set_number(env, "GPUS_PER_TASK", r->gpus_per_task.value)
				      : 0;
}

/* Does the same as `activate` of the virtual environment. */
static int add_venv(struct strlist *env, const char *venv)
{
	const char *path = strlist_get(env, "PATH");
	_cleanup_free_ char *longer = NULL;

	if (!venv)
		return 0;
	longer = str_printf("%s/bin:%s", venv, path ? path : "/usr/bin:/bin");
	if (!longer || strlist_set(env, "PATH", longer) < 0)
		return -1;
	return strlist_set(env, "VIRTUAL_ENV", venv);
}

static int add_places(struct strlist *env, const struct environment_spec *spec)
{
	const struct environment_container *container = spec->container;
	const struct run_layout *layout = container ? container->seen : spec->layout;
	/* Files that notify a program of a preemption, and the file that the program creates if it
	 * has finished nevertheless. */
	_cleanup_free_ char *preempt = path_join(layout->storage, REACTION_PREEMPT_FILE);
	_cleanup_free_ char *save = path_join(layout->storage, REACTION_SAVE_FILE);
	_cleanup_free_ char *done = str_printf(
		"%s/" REACTION_DONE_FILE "%lu", layout->storage, spec->serial);
	const struct {
		const char *key, *value;
	} all[] = {
		{"STORAGE_PATH", layout->storage},
		{"DEEPSQUARE_INPUT", layout->input},
		{"DEEPSQUARE_OUTPUT", layout->output},
		{"DEEPSQUARE_ENV", layout->env_file},
		{"DEEPSQUARE_TMP", layout->user_tmp},
		{"DEEPSQUARE_SHARED_TMP", layout->user_tmp},
		{"DEEPSQUARE_DISK_TMP", container ? container->disk_tmp : layout->user_tmp},
		{"DEEPSQUARE_SHARED_WORLD_TMP", layout->world_tmp},
		{"DEEPSQUARE_DISK_WORLD_TMP",
			container ? container->disk_world_tmp : layout->world_tmp},
		{"PENSTOCK_RUN_ID", spec->run_id},
		{"PENSTOCK_PREEMPT_FILE", preempt},
		{"PENSTOCK_SAVE_FILE", save},
		{"PENSTOCK_DONE_FILE", done},
		{"PENSTOCK_DEADLINE", spec->deadline ? spec->deadline : ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i].value || strlist_set(env, all[i].key, all[i].value) < 0)
			return -1;
	}
	return set_number(env, "PENSTOCK_ATTEMPT", spec->attempt);
}

/* Sets `key` to the path below `dir`. Does nothing if `path` is NULL. */
static int set_below(struct strlist *env, const char *key, const char *dir, const char *path)
{
	_cleanup_free_ char *whole = NULL;

	if (!path)
		return 0;
	whole = strcmp(path, ".") == 0 ? strdup(dir) : path_join(dir, path);
	return whole ? strlist_set(env, key, whole) : -1;
}

static int add_pairs(struct strlist *env, const char *const *pairs)
{
	for (; pairs && *pairs; pairs++) {
		const char *equals = strchr(*pairs, '=');
		_cleanup_free_ char *key = equals ? strndup(*pairs, (size_t)(equals - *pairs))
						  : NULL;

		if (!key || strlist_set(env, key, equals + 1) < 0)
			return -1;
	}
	return 0;
}

/* Adds the directory in front of any other PYTHONPATH. */
static int add_determined(struct strlist *env, const struct environment_spec *spec)
{
	const struct run_layout *layout = spec->container ? spec->container->seen : spec->layout;
	const char *path = strlist_get(env, "PYTHONPATH");
	_cleanup_free_ char *all = NULL;

	if (!spec->workflow->python.determined.value)
		return 0;
	all = str_printf("%s/" PROJECT_DETERMINED "%s%s", layout->storage, path ? ":" : "",
		path ? path : "");
	return all ? strlist_set(env, "PYTHONPATH", all) : -1;
}

/* Passes the endpoint of the output's store, because artifacts of a tracked run may be in that
 * store. */
static int add_tracking(
	struct strlist *env, const struct environment_spec *spec, const char *output)
{
	const char *endpoint = spec->workflow->output.kind == WORKFLOW_S3
				       ? store_environment_endpoint(spec)
				       : NULL;

	return spec->tracking ? tracking_environment(spec->tracking, output, endpoint, env) : 0;
}

int environment_build(
	const struct environment_spec *spec, struct strlist *env, struct penstock_error *err)
{
	const char *output = spec->container ? spec->container->seen->output : spec->layout->output;
	int r;

	if (inherit(env, spec->container ? spec->container->inherited : spec->inherited) < 0 ||
		store_environment(env, spec) < 0 || add_tracking(env, spec, output) < 0 ||
		add_pairs(env, spec->defaults) < 0 || add_list(env, &spec->workflow->env) < 0)
		return error_memory(err);
	r = env_file_read(spec->layout->env_file, env, err);
	if (r == 0 && spec->env_file)
		r = env_file_read(spec->env_file, env, err);
	if (r < 0)
		return r;
	if (add_resources(env, &spec->workflow->resources) < 0 || add_places(env, spec) < 0 ||
		set_below(env, "PENSTOCK_CHECKPOINT_DIR", output, spec->checkpoint_dir) < 0 ||
		set_below(env, "PENSTOCK_CHECKPOINT", output, spec->checkpoint) < 0 ||
		(spec->container && add_pairs(env, spec->container->image) < 0) ||
		add_venv(env, spec->venv) < 0 ||
		(spec->env_file ? strlist_set(env, "DEEPSQUARE_ENV", spec->env_file) : 0) < 0 ||
		add_pairs(env, spec->extra) < 0 || add_list(env, &spec->step->env) < 0 ||
		add_determined(env, spec) < 0)
		return error_memory(err);
	return 0;
}
