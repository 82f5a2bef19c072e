/* `use` of a step: a module, which is a group of steps from elsewhere. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"
#include "workflow/native/template.h"

static void check_source(struct reader *rd, const struct workflow_text *text)
{
	const char *source = text->value;
	bool is_plain;

	if (!reader_knows(rd, text))
		return;
	is_plain = *source == '/' || *source == '.' || strstr(source, "://") ||
		   (strchr(source, '/') && !str_ends(source, "@") && !strpbrk(source, " \t"));
	if (!is_plain || strpbrk(source, "\r\n"))
		reader_refuse(rd, text, "source",
			"be a directory (beginning with `/` or `./`) or a Git repository as "
			"github.com/OWNER/NAME@TAG");
}

/* ---- the module ---- */

/* Bytes that each module adds towards LIMIT_WORKFLOW_TEMPLATES, because its file is read. */
#define MODULE_COST (4 * KIB)

/* Loads the module and renders it as a template. Returns NULL on failure, which is reported, or if
 * the module is not fetched yet. */
static struct node *fetch(struct reader *rd, const struct workflow_use *use)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	_cleanup_(buf_release) struct buf rendered = BUF_INIT(LIMIT_WORKFLOW_FILE);
	struct template_context context = {
		rd->arena, rd->job, rd->step, &rd->workflow->resources, &rd->templates};
	const char *file = workflow_arena_printf(
		rd->arena, "%s: module.yaml", workflow_shown(&use->source));
	struct workflow_place at = {.line = 1, .column = 1, .file = file};
	struct node *module;
	const char *mistake;
	int r;

	if (rd->templates > LIMIT_WORKFLOW_TEMPLATES) /* this was reported */
		return NULL;
	rd->templates += MODULE_COST;
	r = rd->options->module(rd->options->module_cookie, use->source.value, &text, &err);

	if (r < 0)
		reader_error(rd, &use->source.at, "%s",
			err.message ? err.message : "the module cannot be read");
	if (r > 0)
		reader_note(rd, &use->source.at,
			"the module %s is not fetched yet; 'penstock run' fetches it",
			workflow_shown(&use->source));
	if (r || !file)
		return NULL;
	mistake = template_render(&context, buf_str(&text), &rendered, &at.line);
	if (mistake) {
		reader_error(rd, &at, "%s", mistake);
		return NULL;
	}
	module = document_read(rd->arena, file, buf_str(&rendered), rendered.len, rd->found);
	if (!module)
		return NULL;
	node_set_file(module, file);
	legacy_module_normalize(rd, module);
	return module;
}

/* Reports a value that is less than the module needs. Such a value is accepted with a note if it is
 * from the command line, and without a note if modules are not loaded, as for the record of a
 * run. */
static void check_minimum(struct reader *rd, const struct workflow_use *use, const char *what,
	int64_t need, const struct workflow_number *have)
{
	if (need <= have->value || !rd->workflow->resources.given)
		return;
	if (have->given && have->at.option)
		reader_note(rd, &use->source.at,
			"the module needs `%s` of at least %lld, and %s has %lld", what,
			(long long)need, have->at.option, (long long)have->value);
	else if (rd->options->module)
		reader_error(rd, &use->source.at,
			"the module needs `%s` of at least %lld, the workflow has %lld; raise "
			"`resources`",
			what, (long long)need, (long long)have->value);
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
	reader_read(rd, map, &schema_resources, &least);
	reader_leave(rd, saved);
	/* A workflow without `resources` gets the needs of its modules, but no limit of memory. The
	 * CPUs per task are set at once, because the module's steps inherit them. */
	if (!job->given) {
		take_larger(&rd->least.tasks, least.tasks.value);
		take_larger(&rd->least.cpus_per_task, least.cpus_per_task.value);
		take_larger(&rd->least.gpus, least.gpus.value);
		take_larger(&rd->workflow->resources.cpus_per_task, least.cpus_per_task.value);
	}
	check_minimum(rd, use, "tasks", least.tasks.value, &job->tasks);
	check_minimum(rd, use, "cpusPerTask", least.cpus_per_task.value, &job->cpus_per_task);
	if (job->mem_per_cpu.value)
		check_minimum(rd, use, "memPerCpu", least.mem_per_cpu.value, &job->mem_per_cpu);
	gpus.given |= job->gpus_per_task.given;
	check_minimum(rd, use, "gpus", least.gpus.value, &gpus);
}

static const struct schema_key module_input_keys[] = {
	{"key", .kinds = KEY_TEXT, .flags = KEY_REQUIRED, .says = "the name of the input"},
	{"description", .kinds = KEY_ANY, .says = "for readers"},
	{"default", .kinds = KEY_TEXT,
		.says = "the value if `args` does not give the input; an input without a "
			"default must be given"},
};
static const struct schema schema_module_input = {
	SCHEMA("module-input", "an input of a module", module_input_keys)};

static const struct schema_key module_output_keys[] = {
	{"key", .kinds = KEY_TEXT, .flags = KEY_REQUIRED, .says = "the name of the output"},
	{"description", .kinds = KEY_ANY, .says = "for readers"},
};
static const struct schema schema_module_output = {
	SCHEMA("module-output", "an output of a module", module_output_keys)};

/* Reads the name of an input or output. Unknown keys are allowed: they only describe the input or
 * output. */
static bool read_key(struct reader *rd, const struct node *node, const struct schema *schema,
	struct workflow_text *key)
{
	if (node->kind != NODE_MAP) {
		reader_error_of(rd, &node->at, NULL, "must be a map, not %s", node_kind_name(node));
		return false;
	}
	if (!node_get(node, "key"))
		reader_missing(rd, node, schema, "key");
	return reader_text(rd, node, "key", key) && check_variable_name(rd, key->value, &key->at);
}

/* Reads the value of an input: its argument, else its default. */
static bool read_input_of(struct reader *rd, struct node *node, void *out)
{
	const struct workflow_use *use = rd->use;
	const struct workflow_env *given = NULL;
	struct workflow_env *env = out;
	struct workflow_text key = {0};
	struct node *preset = node_get(node, "default");

	if (!read_key(rd, node, &schema_module_input, &key))
		return false;
	*env = (struct workflow_env){.key = key.value, .at = key.at};
	/* If several arguments have that name, the last one is used. */
	for (size_t i = 0; i < use->args.n; i++) {
		if (strcmp(use->args.items[i].key, key.value) == 0)
			given = &use->args.items[i];
	}
	if (given) {
		env->value = given->value;
	} else if (preset) {
		preset->literal = false;
		return reader_text_of(rd, preset, reader_field(rd, "default"), &env->value);
	} else if (!node_find(node, "default")) {
		reader_error(rd, &use->source.at,
			"the module's input `%s` has no default and is not among the `args`",
			key.value);
		return false;
	} else {
		env->value.value = "";
	}
	return true;
}

static bool read_output_of(struct reader *rd, struct node *node, void *out)
{
	return read_key(rd, node, &schema_module_output, out);
}

static void check_module(struct reader *rd, const struct node *module, void *out)
{
	struct workflow_step *step = out;
	struct workflow_use *use = &step->use;
	struct workflow_number cpus = rd->workflow->resources.cpus_per_task;
	const struct node *list = reader_list(rd, module, "inputs");

	use->resolved = true;
	read_minimum(rd, module, use);
	rd->use = use;
	use->env.items = reader_each(
		rd, module, "inputs", sizeof(*use->env.items), &use->env.n, read_input_of);
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
	use->outputs.items = reader_each(rd, module, "outputs", sizeof(*use->outputs.items),
		&use->outputs.n, read_output_of);
	if (rd->modules < READER_MODULES)
		rd->chain[rd->modules] = workflow_shown(&use->source);
	rd->modules++;
	read_steps(rd, module, "steps", &step->steps);
	rd->modules--;
	rd->workflow->resources.cpus_per_task = cpus;
}

static const struct schema_key module_keys[] = {
	{"name", TEXT(workflow_step, use.module_name), .flags = KEY_REQUIRED,
		.says = "the name of the module"},
	{"description", .kinds = KEY_ANY, .says = "for readers"},
	{"minimumResources", .kinds = KEY_MAP, .below = &schema_resources, .flags = KEY_OWN,
		.says = "the workflow's `resources` must be at least as large"},
	{"resources", .kinds = KEY_MAP, .below = &schema_resources, .flags = KEY_LEGACY},
	{"inputs", .kinds = KEY_LIST, .below = &schema_module_input,
		.says = "the variables that `args` gives"},
	{"outputs", .kinds = KEY_LIST, .below = &schema_module_output,
		.says = "the variables that `exportEnvAs` exports"},
	{"steps", .kinds = KEY_LIST, .below = &schema_step, .flags = KEY_REQUIRED | KEY_OWN,
		.says = "the steps of the module"},
};
const struct schema schema_module = {
	SCHEMA("module", "a module", module_keys), .check = check_module};

/* Only the depth shows that modules use each other in a circle, because a template may end a
 * recursion. */
static void report_depth(struct reader *rd, const struct workflow_use *use)
{
	_cleanup_(buf_release) struct buf chain = BUF_INIT(LIMIT_STRING);
	const char *last = workflow_shown(&use->source);
	unsigned begin = READER_MODULES;

	while (begin > 0 && strcmp(rd->chain[begin - 1], last) != 0)
		begin--;
	if (!begin) {
		reader_error(rd, &use->source.at, "modules are nested more than %d deep",
			READER_MODULES);
		return;
	}
	for (unsigned i = begin - 1; i < READER_MODULES; i++)
		buf_printf(&chain, "%s uses ", rd->chain[i]);
	reader_error(rd, &use->source.at,
		"modules use each other in a circle: %s%s; remove one of these `use`",
		buf_str(&chain), last);
}

/* Returns the module: from the record of a run, which contains the module as it was when the run
 * began, or else from its source. Returns NULL if the module is not available. */
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

static const struct schema_key use_keys[] = {
	{"source", TEXT(workflow_step, use.source), .flags = KEY_REQUIRED | KEY_SHOWN,
		.value = "a directory, or a Git repository",
		.says = "the place of `module.yaml`, such as ./modules/prepare or "
			"github.com/OWNER/NAME@TAG"},
	{"args", VARIABLES(workflow_step, use.args), .flags = KEY_SHOWN, .below = &schema_env,
		.says = "the module's inputs"},
	{"exportEnvAs", TEXT(workflow_step, use.export_env_as), .flags = KEY_SHOWN,
		.value = "name of a variable",
		.says = "a prefix: each output of the module becomes a variable with this name "
			"and `_` in front"},
	{"steps", .kinds = KEY_LIST, .below = &schema_step,
		.says = "steps that the module may insert among its own"},
	{"module", .kinds = KEY_MAP, .below = &schema_module, .otherwise = "loaded from `source`",
		.says = "the module itself; the record of a run contains it, so that the run continues "
			"with the module that it began with"},
};
const struct schema schema_use = {SCHEMA("use", "`use`", use_keys)};

void read_use(struct reader *rd, struct node *map, struct workflow_step *step)
{
	const struct node *whole = rd->step;
	struct node *module;
	struct workflow_use *use = &step->use;
	size_t errors = rd->found->errors, saved = reader_enter(rd, "use", 0), inner;

	if (reader_read(rd, map, &schema_use, step)) {
		check_source(rd, &use->source);
		if (use->export_env_as.value)
			check_variable_name(rd, use->export_env_as.value, &use->export_env_as.at);
		/* Report mistakes of these steps here, not where the module inserts them. */
		read_steps(rd, map, "steps", &step->steps);
		rd->step = whole;
	}
	module = rd->found->errors == errors ? find_module(rd, map, use) : NULL;
	if (module) {
		step->steps = (struct workflow_steps){.at = module->at};
		inner = reader_enter(rd, "module", 0);
		reader_read(rd, module, &schema_module, step);
		reader_leave(rd, inner);
	}
	reader_leave(rd, saved);
}
