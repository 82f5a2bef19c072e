/* `use` of a step: a module, which is a group of steps from elsewhere. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native.h"
#include "workflow/odd.h"
#include "workflow/template.h"
#include "base/banned.h"

static void read_source(struct reader *rd, const struct node *map, struct workflow_use *use)
{
	char quoted[QUOTE_SIZE];
	const char *source;

	if (!node_get(map, "source"))
		reader_missing(rd, map, &schema_use, "source",
			"a directory, or a Git repository as github.com/OWNER/NAME@TAG");
	if (!reader_text(rd, map, "source", &use->source) || reader_is_open(rd, &use->source))
		return;
	source = use->source.value;
	if (*source == '/' || *source == '.' || strstr(source, "://"))
		return;
	if (!strchr(source, '/') || str_ends(source, "@") || strpbrk(source, " \t\n"))
		reader_error(rd, &use->source.at,
			"`%s` is a directory (beginning with `/` or `./`) or a Git repository as "
			"github.com/OWNER/NAME@TAG, not %s",
			reader_field(rd, "source"), quote(workflow_shown(&use->source), quoted));
}

/* ---- the module behind it ---- */

/* The file of the module, for messages. */
static const char *module_file(struct reader *rd, const char *source)
{
	return workflow_arena_printf(rd->arena, "%s: module.yaml", source);
}

/* The text of the module, from which the document in `module` is read. NULL: reported, or not looked at. */
static struct node *fetch(struct reader *rd, const struct workflow_use *use)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	_cleanup_(buf_release) struct buf rendered = BUF_INIT(LIMIT_WORKFLOW_FILE);
	struct template_context context = {rd->arena, rd->job, rd->step, &rd->workflow->resources};
	const char *file = module_file(rd, workflow_shown(&use->source));
	struct workflow_place at = {.line = 1, .column = 1, .file = file};
	struct node *module;
	const char *mistake;
	int r = rd->options->module(rd->options->module_cookie, use->source.value, &text, &err);

	if (r < 0)
		reader_error(rd, &use->source.at, "%s",
			err.message ? err.message : "the module cannot be read");
	if (r > 0)
		reader_note(rd, &use->source.at,
			"the module %s is not here yet; 'penstock run' fetches it",
			workflow_shown(&use->source));
	if (r || !file)
		return NULL;
	mistake = template_render(&context, buf_str(&text), &rendered, &at.line);
	if (mistake) {
		reader_error(rd, &at, "%s", mistake);
		return NULL;
	}
	module = document_read(rd->arena, file, NULL, buf_str(&rendered), rendered.len, rd->found);
	if (!module)
		return NULL;
	odd_module_put_right(rd->arena, file, module, rd->found);
	node_set_file(module, file);
	return module;
}

/* Who asks for less on the command line knows the machine; a run is read back, where no module is looked for, as it
 * began. */
static void check_minimum(struct reader *rd, const struct workflow_use *use, const char *what,
	int64_t need, const struct workflow_number *have)
{
	if (need <= have->value || !rd->workflow->resources.given)
		return;
	if (have->given && have->at.option)
		reader_note(rd, &use->source.at,
			"the module needs `%s` of at least %lld, and is given %lld by %s", what,
			(long long)need, (long long)have->value, have->at.option);
	else if (rd->options->module)
		reader_error(rd, &use->source.at,
			"the module needs `%s` of at least %lld, the workflow has %lld; raise "
			"`resources`",
			what, (long long)need, (long long)have->value);
}

static void make_at_least(struct workflow_number *number, int64_t least)
{
	if (number->value < least)
		number->value = least;
}

/* Without `resources` the workflow asks for what it needs, of memory for no limit: what is read next of the
 * module has as many CPUs as it needs. */
static void need_least(struct reader *rd, const struct workflow_resources *least)
{
	make_at_least(&rd->least.tasks, least->tasks.value);
	make_at_least(&rd->least.cpus_per_task, least->cpus_per_task.value);
	make_at_least(&rd->least.gpus, least->gpus.value);
	make_at_least(&rd->workflow->resources.cpus_per_task, least->cpus_per_task.value);
}

static void read_minimum(
	struct reader *rd, const struct node *module, const struct workflow_use *use)
{
	const struct workflow_resources *job = &rd->workflow->resources;
	const struct node *map = reader_map(rd, module, "minimumResources");
	struct workflow_resources least = {.at = module->at};
	struct workflow_number gpus = job->gpus;
	size_t saved;

	if (!map)
		return;
	saved = reader_enter(rd, "minimumResources", 0);
	read_resources_of(rd, map, &least);
	reader_leave(rd, saved);
	if (!job->given)
		need_least(rd, &least);
	check_minimum(rd, use, "tasks", least.tasks.value, &job->tasks);
	check_minimum(rd, use, "cpusPerTask", least.cpus_per_task.value, &job->cpus_per_task);
	if (job->mem_per_cpu.value)
		check_minimum(rd, use, "memPerCpu", least.mem_per_cpu.value, &job->mem_per_cpu);
	gpus.given |= job->gpus_per_task.given;
	check_minimum(rd, use, "gpus", least.gpus.value, &gpus);
}

/* The name of an input or output. Other keys than ours only describe it. */
static bool read_key(struct reader *rd, const struct node *node, const struct schema *schema,
	struct workflow_text *key)
{
	if (node->kind != NODE_MAP) {
		reader_error(rd, &node->at, "`%s` must be a map, not %s", buf_str(&rd->path),
			node_kind_name(node));
		return false;
	}
	if (!node_get(node, "key"))
		reader_missing(rd, node, schema, "key", "");
	return reader_text(rd, node, "key", key) && check_variable_name(rd, key->value, &key->at);
}

/* What the input is: of the arguments, else its default. */
static void read_input_of(struct reader *rd, const struct node *node, struct workflow_use *use)
{
	const struct workflow_env *given;
	struct workflow_env *env = &use->env.items[use->env.n];
	struct workflow_text key = {0};
	struct node *preset = node_get(node, "default");

	if (!read_key(rd, node, &schema_module_input, &key))
		return;
	*env = (struct workflow_env){.key = key.value, .at = key.at};
	given = workflow_env_find(&use->args, key.value);
	if (given) {
		env->value = given->value;
	} else if (preset) {
		preset->literal = false;
		if (!reader_text_of(rd, preset, reader_field(rd, "default"), &env->value))
			return;
	} else if (!node_find(node, "default")) {
		reader_error(rd, &use->source.at,
			"the module's input `%s` has no default and is not among the `args`",
			key.value);
		return;
	} else {
		env->value.value = "";
	}
	use->env.n++;
}

static void read_inputs_of(struct reader *rd, const struct node *module, struct workflow_use *use)
{
	const struct node *list = reader_list(rd, module, "inputs");
	size_t saved = reader_enter(rd, "inputs", 0);

	use->env.items = workflow_arena_array(
		rd->arena, (list ? list->n : 0) + 1, sizeof(*use->env.items));
	for (size_t i = 0; use->env.items && list && i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_input_of(rd, list->entries[i].value, use);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	for (size_t i = 0; i < use->args.n; i++) {
		const char *key = use->args.items[i].key;
		bool known = false;

		for (size_t j = 0; list && j < list->n; j++) {
			const struct node *name = node_get(list->entries[j].value, "key");

			known |= name && name->kind == NODE_SCALAR && strcmp(name->text, key) == 0;
		}
		if (!known)
			reader_error(
				rd, &use->args.items[i].at, "the module has no input `%s`", key);
	}
}

static void read_outputs_of(struct reader *rd, const struct node *module, struct workflow_use *use)
{
	const struct node *list = reader_list(rd, module, "outputs");
	size_t saved = reader_enter(rd, "outputs", 0);

	use->outputs.items = workflow_arena_array(
		rd->arena, (list ? list->n : 0) + 1, sizeof(*use->outputs.items));
	for (size_t i = 0; use->outputs.items && list && i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		if (read_key(rd, list->entries[i].value, &schema_module_output,
			    &use->outputs.items[use->outputs.n]))
			use->outputs.n++;
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

static void read_module(struct reader *rd, const struct node *module, struct workflow_step *step)
{
	size_t saved = reader_enter(rd, "module", 0);
	struct workflow_number cpus = rd->workflow->resources.cpus_per_task;

	step->use.resolved = true;
	if (reader_check_map(rd, module, &schema_module)) {
		if (!node_get(module, "name"))
			reader_missing(rd, module, &schema_module, "name", "");
		reader_text(rd, module, "name", &step->use.module_name);
		read_minimum(rd, module, &step->use);
		read_inputs_of(rd, module, &step->use);
		read_outputs_of(rd, module, &step->use);
		if (!node_get(module, "steps"))
			reader_missing(rd, module, &schema_module, "steps", "what it does");
		if (rd->modules < READER_MODULES)
			rd->chain[rd->modules] = workflow_shown(&step->use.source);
		rd->modules++;
		read_steps_of(rd, module, "steps", &step->steps);
		rd->modules--;
	}
	rd->workflow->resources.cpus_per_task = cpus;
	reader_leave(rd, saved);
}

/* A template may end what looks like a cycle, so it is one when it got too deep. */
static void report_depth(struct reader *rd, const struct workflow_use *use)
{
	_cleanup_(buf_release) struct buf chain = BUF_INIT(LIMIT_STRING);
	const char *last = workflow_shown(&use->source);
	unsigned begin = READER_MODULES;

	while (begin > 0 && strcmp(rd->chain[begin - 1], last) != 0)
		begin--;
	if (!begin) {
		reader_error(rd, &use->source.at, "modules use each other more than %d deep",
			READER_MODULES);
		return;
	}
	for (unsigned i = begin - 1; i < READER_MODULES; i++)
		buf_printf(&chain, "%s uses ", rd->chain[i]);
	reader_error(rd, &use->source.at,
		"modules use each other in a circle: %s%s; take one of these `use` out",
		buf_str(&chain), last);
}

/* The copy of a workflow that a run keeps has the module in it, as it was then. */
static struct node *find_module(struct reader *rd, struct node *map, const struct workflow_use *use)
{
	struct node *module = reader_map(rd, map, "module");

	if (module || !rd->options->module || !use->source.value ||
		reader_is_open(rd, &use->source))
		return module;
	if (rd->modules >= READER_MODULES) {
		report_depth(rd, use);
		return NULL;
	}
	module = fetch(rd, use);
	if (module && node_add(rd->arena, map, "module", module->at, module) < 0)
		return NULL;
	return module;
}

void read_use(struct reader *rd, const struct node *node, struct workflow_step *step)
{
	const struct node *whole = rd->step;
	struct node *map = node_get(whole, "use"), *module;
	struct workflow_use *use = &step->use;
	size_t errors = rd->found->errors;

	if (!reader_check_map(rd, node, &schema_use))
		return;
	read_source(rd, map, use);
	read_variables(rd, map, "args", &use->args);
	if (reader_text(rd, map, "exportEnvAs", &use->export_env_as))
		check_variable_name(rd, use->export_env_as.value, &use->export_env_as.at);
	/* What is wrong with them is told where they stand, not where the module puts them. */
	read_steps_of(rd, map, "steps", &step->steps);
	rd->step = whole;
	if (rd->found->errors != errors)
		return;
	module = find_module(rd, map, use);
	if (module) {
		step->steps = (struct workflow_steps){.at = module->at};
		read_module(rd, module, step);
	}
}
