/* The whole workflow: DeepSquare's grammar with its older keys, and penstock's own keys. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"

/* ---- notify ---- */

static void check_notify(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_credential *url = &((struct workflow_notify *)out)->url;

	(void)map;
	if (!url->value || rd->options->keep_references ||
		(rd->options->places_only && strstr(url->value, "${{")))
		return;
	if (!str_starts(url->value, "http://") && !str_starts(url->value, "https://"))
		reader_error_of(rd, &url->at, "url",
			"must begin with https:// or http:// (its value is a secret and not "
			"shown)");
}

static const char *const event_words[] = {"start", "end", "failure", NULL};

static const struct schema_key notify_keys[] = {
	{"url", CREDENTIAL(workflow_notify, url), .flags = KEY_REQUIRED, .value = "URL",
		.says = "the address that is notified; it is a [secret](#secrets-and-references)"},
	{"events", WORDS(workflow_notify, events, event_words), .flags = KEY_SHOWN,
		.preset = WORKFLOW_NOTIFY_START | WORKFLOW_NOTIFY_END | WORKFLOW_NOTIFY_FAILURE,
		.otherwise = "all three",
		.says = "`start`: the steps begin; `end`: the run has ended, with any result; "
			"`failure`: the run has failed"},
};
static const struct schema schema_notify = {
	SCHEMA("notify", "`notify`", notify_keys), AT(workflow_notify, at), .check = check_notify};

/* ---- retry ---- */

#define BACKOFF_MS     10000
#define BACKOFF_MAX_MS (24 * 3600 * 1000)

static const char *const class_words[] = {
	"input", "image", "oom", "user", "output", "node", "timeout", NULL};

static void check_retry(struct reader *rd, const struct node *map, void *out)
{
	(void)rd;
	if (!node_get(map, "codes") && !node_get(map, "classes"))
		((struct workflow_retry *)out)->classes = WORKFLOW_RETRY_ALL;
}

static const struct schema_key retry_keys[] = {
	{"max", NUMBER(workflow_retry, max, 1, LIMIT_WORKFLOW_RETRIES), .flags = KEY_REQUIRED,
		.says = "number of retries, counted since the run began or a user resumed it"},
	{"codes", WHOLES(workflow_retry, codes, n_codes, 1, 255),
		.says = "exit codes of a step after which the run is retried"},
	{"classes", WORDS(workflow_retry, classes, class_words),
		.refused = "mistakes in the workflow are not retried, and a preempted run is "
			   "continued by the same command, `penstock watch` or Slurm",
		.otherwise = "all of them, if there are no `codes`",
		.says = "classes of failures; a failure is retried if its code or its class is "
			"listed"},
	{"backoff", DURATION(workflow_retry, backoff, 1, BACKOFF_MAX_MS), .flags = KEY_SHOWN,
		.preset = BACKOFF_MS, .value = "duration up to 1d",
		.says = "the pause before the first retry; each later pause is twice as long, "
			"up to 10 minutes (or `backoff`, if that is longer), ± 20 %"},
};
static const struct schema schema_retry = {
	SCHEMA("retry", "`retry`", retry_keys), AT(workflow_retry, at), .check = check_retry};

/* ---- replaced ---- */

#define REPLACED_KEPT	  3
#define REPLACED_KEPT_MAX 1000000

static const struct schema_key replaced_keys[] = {
	{"keep", NUMBER(workflow_replaced, keep, 0, REPLACED_KEPT_MAX), .flags = KEY_SHOWN,
		.preset = REPLACED_KEPT,
		.says = "the number of copies of each object that stay: the newest ones"},
	{"age", DURATION(workflow_replaced, age, 1, INT64_MAX / 1000000), .otherwise = "no limit",
		.value = "duration such as `30d`", .says = "older copies are removed as well"},
};
static const struct schema schema_replaced = {SCHEMA("replaced", "`replaced`", replaced_keys),
	.given = offsetof(struct workflow_replaced, given) + 1, AT(workflow_replaced, at)};

/* ---- resources of a workflow without `resources` ---- */

static int take_largest(void *cookie, const struct workflow_step *step)
{
	struct workflow_resources *job = cookie;
	const struct workflow_step_resources *res = &step->run.resources;

	if (step->kind != WORKFLOW_STEP_RUN)
		return 0;
	take_larger(&job->tasks, res->tasks.value);
	take_larger(&job->cpus_per_task, res->cpus_per_task.value);
	take_larger(&job->mem_per_cpu, res->mem_per_cpu.value);
	take_larger(&job->gpus, res->tasks.value * res->gpus_per_task.value);
	return 0;
}

/* ---- keys that depend on others ---- */

static void read_input_mode(struct reader *rd, const struct node *job)
{
	struct workflow_number *mode = &rd->workflow->input_mode;
	const struct node *node = node_get(job, "inputMode");
	const char *text = node && node->kind == NODE_SCALAR ? node->text : "";
	uint64_t decimal;

	/* 755 was probably meant as octal 0755; as a decimal number it is out of range. */
	if (node && str_to_u64(text, 512, 777, &decimal) && !text[strspn(text, "01234567")]) {
		mode->at = node->at;
		reader_error_of(rd, &node->at, "inputMode",
			"must be the decimal value of the mode, at most 511: for octal %03llu write "
			"%lu",
			(unsigned long long)decimal, strtoul(text, NULL, 8));
		return;
	}
	if (reader_number(rd, job, schema_find(&schema_job, "inputMode"), mode) &&
		!rd->workflow->n_inputs)
		reader_note(rd, &mode->at, "`inputMode` has no effect without an input");
}

/* Sets `continuousOutputSync` to false for an output that cannot be synchronized while the steps
 * run. */
static void check_continuous(struct reader *rd, const struct node *job)
{
	struct workflow_flag *flag = &rd->workflow->continuous_output_sync;

	if (!flag->value || rd->workflow->output.kind == WORKFLOW_S3)
		return;
	if (rd->workflow->output.kind == WORKFLOW_HTTP)
		reader_note(rd, &flag->at,
			"`continuousOutputSync` needs an S3 output: an HTTP output is uploaded "
			"once, at the end");
	else if (!node_get(job, "output"))
		reader_note(rd, &flag->at, "`continuousOutputSync` has no effect without `output`");
	flag->value = false;
}

/* Returns 1 for a step in a container, and for a module that is not loaded and may have such a
 * step. */
static int is_contained(void *cookie, const struct workflow_step *step)
{
	(void)cookie;
	return (step->kind == WORKFLOW_STEP_RUN && step->run.container.given) ||
	       (step->kind == WORKFLOW_STEP_USE && !step->use.resolved);
}

static void read_job_steps(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	struct workflow_resources *res = &wf->resources;
	const struct node *steps = node_get(job, "steps");

	if (!steps)
		return;
	read_steps(rd, job, "steps", &wf->steps);
	if (steps->kind == NODE_LIST && !steps->n && !rd->partial)
		reader_error(rd, &steps->at, "`steps` is empty: there is nothing to run");
	if (!res->given) {
		take_larger(&res->tasks, rd->least.tasks.value);
		take_larger(&res->cpus_per_task, rd->least.cpus_per_task.value);
		take_larger(&res->gpus, rd->least.gpus.value);
		workflow_walk(&wf->steps, take_largest, res);
	}
	check_handles(rd, &wf->steps);
}

/* ---- the table ---- */

/* Returns true for "12" and "12.5". */
static bool is_decimal(const char *text)
{
	static const char digits[] = "0123456789";
	size_t n = strspn(text, digits);

	if (n && text[n] == '.' && text[n + 1])
		n += 1 + strspn(text + n + 1, digits);
	return n && !text[n];
}

static void check_job(struct reader *rd, const struct node *job, void *out)
{
	struct workflow *wf = out;
	const struct workflow_checkpoints *c;

	/* The name is part of paths and of object keys. */
	if (reader_knows(rd, &wf->name) &&
		(!isalnum((unsigned char)*wf->name.value) ||
			wf->name.value[strspn(wf->name.value, LETTERS_AND_DIGITS "._-")] ||
			strlen(wf->name.value) > LIMIT_WORKFLOW_NAME))
		reader_refuse(rd, &wf->name, "name",
			"be 1 to %d letters, digits, `.`, `_` and `-`, beginning with a letter or "
			"digit",
			LIMIT_WORKFLOW_NAME);
	if (reader_knows(rd, &wf->price) &&
		(!is_decimal(wf->price.value) || strlen(wf->price.value) > LIMIT_WORKFLOW_PRICE))
		reader_refuse(rd, &wf->price, "price",
			"be a number such as 2.49, of at most %d characters", LIMIT_WORKFLOW_PRICE);
	read_secrets(rd, job);
	read_inputs(rd, job);
	read_input_mode(rd, job);
	check_continuous(rd, job);
	wf->has_work_dir |= node_get(job, "context") || node_get(job, "python");
	read_artifacts(rd, job);
	read_job_steps(rd, job);
	if (wf->n_mounts && wf->steps.n && !workflow_walk(&wf->steps, is_contained, NULL))
		reader_note(rd, &wf->mounts[0].at,
			"`mounts` has no effect: no step has a container, and the other steps see "
			"the directories of this machine directly");
	if (wf->replaced.given && wf->output.kind != WORKFLOW_S3)
		reader_note(rd, &wf->replaced.at,
			"`replaced` has no effect without an S3 output: no copies are made");
	c = &wf->checkpoints;
	if (c->pattern.value && wf->output.kind != WORKFLOW_S3)
		reader_note(rd, &c->pattern.at,
			"`checkpoints.pattern` has no effect without an S3 output: a file becomes a "
			"checkpoint when it is published");
	if (c->pattern.value && c->metric.value)
		reader_note(rd, &c->pattern.at,
			"files that match `checkpoints.pattern` have no metrics: "
			"`checkpoints.keep.best` keeps none of them");
}

static const char *const resume_words[] = {
	[WORKFLOW_RESUME_AUTO] = "auto",
	[WORKFLOW_RESUME_NEVER] = "never",
	NULL,
};

static const struct schema_key job_keys[] = {
	{"name", TEXT(workflow, name), .flags = KEY_SHOWN,
		.value = "1 to 64 letters, digits, `.`, `_`, `-`",
		.says = "names the run; part of its [identity](#identity); extension"},
	{"resources", MAP(workflow, resources, &schema_resources), .flags = KEY_SHOWN,
		.value = "[map](#resources)", .otherwise = "the needs of the largest step",
		.says = "CPUs, memory and GPUs of this machine for the whole run"},
	{"env", VARIABLES(workflow, env), .flags = KEY_SHOWN, .below = &schema_env,
		.says = "[variables](#variables) of every step"},
	{"enableLogging", FLAG(workflow, enable_logging), .flags = KEY_SHOWN,
		.says = "also keeps the log of each attempt in the bucket of the output, in "
			"`.penstock/runs/ID/log/`"},
	{"input", .kinds = KEY_MAP, .below = &schema_input, .value = "[input](#inputs)",
		.says = "data that is copied into `$DEEPSQUARE_INPUT` before the first step"},
	{"inputs", LIST(workflow, inputs, n_inputs, &schema_input), .flags = KEY_SHOWN | KEY_OWN,
		.value = "list of [inputs](#inputs)", .says = "further inputs; extension"},
	{"inputMode", NUMBER(workflow, input_mode, 0, 0777), .flags = KEY_OWN,
		.otherwise = "as in the source",
		.says = "permissions of everything in the input directory, as the **decimal** value "
			"of an octal mode: 511 is 0777, 493 is 0755, 448 is 0700; in YAML also "
			"`0o755`"},
	{"output", MAP(workflow, output, &schema_output), .flags = KEY_SHOWN,
		.shown = {SET(workflow, output.kind)}, .value = "[output](#output)",
		.says = "the place in which `$DEEPSQUARE_OUTPUT` is kept"},
	{"continuousOutputSync", FLAG(workflow, continuous_output_sync), .flags = KEY_SHOWN,
		.says = "publishes files as soon as they are complete, not only at the end; "
			"needs an output in a bucket: an HTTP output is uploaded once, at the "
			"end, and a note reports that"},
	{"replaced", MAP(workflow, replaced, &schema_replaced),
		.shown = {SET(workflow, replaced.given)}, .otherwise = "`keep: 3`",
		.value = "[map](#replaced)",
		.says = "the copies of replaced objects that stay in the bucket of the output; "
			"extension"},
	{"virtualNetworks",
		LIST(workflow, virtual_networks, n_virtual_networks, &schema_virtual_network),
		.value = "list of `name`, `gatewayAddress`",
		.says = "networks between steps, for `customNetworkInterfaces`"},
	{"context", .kinds = KEY_MAP | KEY_TEXT, .below = &schema_context,
		.member = offsetof(struct workflow, context) + 1, .flags = KEY_SHORT,
		.shown = {SET(workflow, context.path.value)},
		.value = "[map](#context-python-and-artifacts), or a directory",
		.says = "a directory whose copy is the working directory of every step; extension"},
	{"python", MAP(workflow, python, &schema_python), .shown = {SET(workflow, python.given)},
		.value = "[map](#context-python-and-artifacts)",
		.says = "Python packages of the steps; extension"},
	{"artifacts", .kinds = KEY_TEXTS, .member = offsetof(struct workflow, artifacts) + 1,
		.length = MEMBER_OF(workflow, n_artifacts, size_t), .flags = KEY_OWN,
		.value = "list of [paths](#context-python-and-artifacts)",
		.says = "paths of the working directory that belong to the output; extension"},
	{"steps", .kinds = KEY_LIST, .below = &schema_step,
		.member = offsetof(struct workflow, steps.items) + 1,
		.length = MEMBER_OF(workflow, steps.n, size_t),
		.flags = KEY_REQUIRED | KEY_SHOWN | KEY_OWN, .value = "list of [steps](#steps)",
		.says = "the steps to run, one after the other"},
	{"resume", WORD(workflow, resume, resume_words), .flags = KEY_SHOWN,
		.says = "`auto`: the same command continues a run that was interrupted or has "
			"failed; `never`: it starts over; extension"},
	{"timeout", DURATION(workflow, timeouts.timeout, 1, LIMIT_WORKFLOW_DURATION),
		.value = "duration such as `90s`, `30m`, `12h`, `2d`; a bare number is seconds",
		.says = "the time limit of all steps together; when it is reached, running steps are "
			"asked to exit, and killed after the grace period of `penstock stop`, and the "
			"run fails with the class `timeout`; extension"},
	{"hangTimeout", DURATION(workflow, timeouts.hang, 1, LIMIT_WORKFLOW_DURATION),
		.says = "a step that prints nothing and uses no CPU for this time is stopped in "
			"the same way; extension"},
	{"storePatience", DURATION(workflow, store_patience, 1, LIMIT_WORKFLOW_DURATION),
		.otherwise = "`30s`",
		.says = "the time for which the final upload waits, without any progress, for a "
			"store that does not reply; then the run ends with 73 and `penstock flush` "
			"uploads the rest; extension"},
	{"ports", NUMBER(workflow, ports, 0, LIMIT_WORKFLOW_PORTS), .otherwise = "0",
		.refused = "penstock chooses the ports and passes them as $PORT_0, $PORT_1, …",
		.says = "the number of free TCP ports of this machine that the steps get, as "
			"`$PORT_0`, `$PORT_1`, …; `penstock ps` shows them; extension"},
	{"price", TEXT(workflow, price), .flags = KEY_NUMBERS, .value = "number such as `2.49`",
		.says = "the price of one hour of this machine, in any currency; [`penstock "
			"show`](#price) and the page of `penstock ui` have the cost of each "
			"attempt; extension"},
	{"secrets", .kinds = KEY_TEXTS, .value = "list of names",
		.says = "every step gets each of these secrets as a variable, as with `${{ "
			"secrets.NAME }}` in `env`; `env` takes precedence; extension"},
	{"mounts", LIST(workflow, mounts, n_mounts, &schema_mount),
		.value = "list of `hostDir`, `containerDir`, `options`",
		.says = "[mounts](containers.md#the-command) of every step in a container; "
			"mounts of the step come after these; extension"},
	{"notify", MAP(workflow, notify, &schema_notify),
		.shown = {SET(workflow, notify.url.value)}, .value = "[map](#notify)",
		.says = "a webhook; extension"},
	{"preemption", MAP(workflow, preemption, &schema_preemption), .otherwise = "detected",
		.value = "[map](preemption.md)",
		.says = "sources of preemption notices, the signal to the steps, and the time "
			"that is left; extension"},
	{"checkpoints", MAP(workflow, checkpoints, &schema_checkpoints),
		.shown = {SET(workflow, checkpoints.given)}, .otherwise = "all are kept",
		.value = "[map](checkpoints.md)",
		.says = "the place of checkpoints, and those that are kept; extension"},
	{"retry", MAP(workflow, retry, &schema_retry), .shown = {SET(workflow, retry.max.value)},
		.value = "[map](#retry)",
		.says = "failures after which the run is retried; extension"},
	{"tracking", MAP(workflow, tracking, &schema_tracking),
		.shown = {SET(workflow, tracking.given)}, .value = "[map](tracking.md)",
		.says = "experiment trackers: MLflow, Weights & Biases, Aim; extension"},
};
const struct schema schema_job = {SCHEMA("workflow", "a workflow", job_keys), .check = check_job};

/* Returns true if a key other than `name` is a key of a workflow, or similar to such a key, or if
 * there are no keys. */
static bool has_own_key(const struct node *job)
{
	for (size_t i = 0; i < job->n; i++) {
		const char *key = job->entries[i].key;

		if (strcmp(key, "name") != 0 &&
			(schema_find(&schema_job, key) || schema_nearest(&schema_job, key)))
			return true;
	}
	return !job->n;
}

void read_native(struct reader *rd, struct node *job)
{
	rd->job = job;
	if (!rd->partial && !has_own_key(job)) {
		reader_error(rd, &job->at,
			"this is not a workflow: it has no `steps`, and no key of dstack, Determined or "
			"SkyPilot");
		return;
	}
	reader_read(rd, job, &schema_job, rd->workflow);
}
