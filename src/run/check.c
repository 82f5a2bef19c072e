/* Checks of a workflow before it is run: features that this version or machine lacks, and resources
 * that can never fit. */
#include "run/internal.h"

#include <inttypes.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "records/claims.h"
#include "run/config/user_limits.h"
#include "run/step/network.h"
#include "run/task/network.h"
#include "workflow/workflow.h"

void run_claim_request(const struct workflow *workflow, const char *run_id,
	const struct claim_limits *limits, struct claim_request *request)
{
	const struct workflow_resources *r = &workflow->resources;

	*request = (struct claim_request){
		.run_id = run_id,
		.name = workflow->name.value,
		.tasks = r->tasks.value,
		.cpus_per_task = r->cpus_per_task.value,
		.mem_per_cpu = r->mem_per_cpu.value,
		.gpus = r->gpus.value,
		.limits = limits,
		.gpus_key = r->gpus_per_task.given ? "gpusPerTask" : "gpus",
	};
}

struct refusal {
	const struct workflow *workflow;
	struct penstock_error *err;
	bool here; /* the steps will run on this machine */
};

static int refuse(const struct refusal *refusal, const struct workflow_place *at,
	const struct workflow_step *step, const char *what, const char *field)
{
	error_set(refusal->err, PENSTOCK_E_INVALID,
		"%s not supported by this version; run with --set %s%s", what, step->path, field);
	return workflow_error_at(refusal->workflow, at, refusal->err);
}

/* Refuses features that are valid in a workflow but that no machine supports. */
static int check_kind(void *cookie, const struct workflow_step *step)
{
	const struct refusal *refusal = cookie;

	for (size_t i = 0; step->kind == WORKFLOW_STEP_RUN && i < step->run.n_interfaces; i++) {
		if (step->run.interfaces[i].kind == WORKFLOW_VNET)
			return refuse(refusal, &step->run.interfaces[i].at, step,
				"`vnet` (a network between several machines; use `network: host` "
				"on one machine) is",
				".run.customNetworkInterfaces=null");
	}
	return 0;
}

/* Like check_kind(), and also checks modules and networks. If `here`, also checks that this machine
 * has the programs that a network needs. */
static int check_step(void *cookie, const struct workflow_step *step)
{
	const struct refusal *refusal = cookie;

	if (step->kind == WORKFLOW_STEP_USE && !step->use.resolved)
		return refuse(refusal, &step->at, step, "modules are", ".use=null");
	if (step->kind != WORKFLOW_STEP_RUN)
		return 0;
	_cleanup_(step_network_release) struct step_network network = {0};
	int r;

	r = check_kind(cookie, step);
	if (r < 0)
		return r;
	r = step_network_describe(&network, &step->run, refusal->err);
	if (r == 0 && refusal->here)
		r = network_check(&network.network, refusal->err);
	if (r == 0)
		return 0;
	return workflow_error_at(refusal->workflow, &step->run.network_at, refusal->err);
}

static int check_steps(const struct workflow *workflow, bool here, struct penstock_error *err)
{
	struct refusal refusal = {workflow, err, here};

	return workflow_walk(&workflow->steps, check_step, &refusal);
}

/* Returns the place of the first option that asks for more than the machine has, or else the place
 * of the resources. */
static const struct workflow_place *place_of_misfit(
	const struct machine_capacity *machine, const struct workflow *workflow)
{
	const struct workflow_resources *r = &workflow->resources;
	const struct {
		const struct workflow_place *at;
		bool too_much;
	} asked[] = {
		{&r->gpus.at, r->gpus.value > machine->gpus},
		{&r->gpus_per_task.at, r->gpus.value > machine->gpus},
		{&r->tasks.at, r->tasks.value * r->cpus_per_task.value > machine->cpus},
		{&r->cpus_per_task.at, r->tasks.value * r->cpus_per_task.value > machine->cpus},
		{&r->mem_per_cpu.at,
			r->tasks.value * r->cpus_per_task.value * r->mem_per_cpu.value >
				(int64_t)(machine->memory / MIB)},
	};

	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		if (asked[i].too_much && asked[i].at->option)
			return asked[i].at;
	}
	return &r->at;
}

/* Refuses a workflow that needs several nodes. */
static int check_nodes(const struct workflow *workflow, struct penstock_error *err)
{
	const struct workflow_number *each = &workflow->resources.tasks_per_node;
	int64_t tasks = workflow->resources.tasks.value;

	if (!each->given || tasks <= each->value)
		return 0;
	error_set(err, PENSTOCK_E_INVALID,
		"cannot run on this machine: the workflow asks for %" PRId64
		" nodes; run with --on slurm, or with --set resources.tasksPerNode=null to start "
		"all tasks here",
		(tasks + each->value - 1) / each->value);
	return workflow_error_at(workflow, &each->at, err);
}

/* Overrides for the steps that ask for more than `job`, the resources that the run has with the
 * overrides that are already in the message. */
struct advice {
	const struct claim_request *job;
	bool inherited; /* the job has gpusPerTask */
	struct buf overrides;
};

/* Adds an override for a step. Writes "steps.0.run" for "steps[0].run", because a shell may expand
 * brackets as a pattern. */
static void advise(struct advice *a, const struct workflow_step *step, const char *key, int64_t n)
{
	buf_add_str(&a->overrides, " --set ");
	for (const char *p = step->run.resources.field; *p; p++) {
		if (*p != ']')
			buf_add_char(&a->overrides, *p == '[' ? '.' : *p);
	}
	buf_printf(&a->overrides, ".%s=%" PRId64, key, n);
}

static int advise_step(void *cookie, const struct workflow_step *step)
{
	struct advice *a = cookie;
	const struct workflow_step_resources *r = &step->run.resources;
	const struct claim_request *job = a->job;
	int64_t all = job->tasks * job->cpus_per_task, tasks = r->tasks.value, cpus, gpus, memory;

	/* --set cannot change a step of a module. */
	if (step->kind != WORKFLOW_STEP_RUN || !r->field)
		return 0;
	if (tasks > all)
		advise(a, step, "tasks", tasks = all);
	cpus = r->cpus_per_task.given ? r->cpus_per_task.value : job->cpus_per_task;
	if (tasks * cpus > all)
		advise(a, step, "cpusPerTask", cpus = all / tasks);
	memory = r->mem_per_cpu.given ? r->mem_per_cpu.value : job->mem_per_cpu;
	if (job->mem_per_cpu && tasks * cpus * memory > all * job->mem_per_cpu)
		advise(a, step, "memPerCpu", all * job->mem_per_cpu / (tasks * cpus));
	gpus = r->gpus_per_task.given ? r->gpus_per_task.value
	       : a->inherited	      ? job->gpus / job->tasks
				      : 0;
	if (tasks * gpus > job->gpus)
		advise(a, step, "gpusPerTask", job->gpus / tasks);
	return 0;
}

/* Appends the overrides for steps to the error message. */
static void add_advice(const struct workflow *workflow, const struct claim_request *fitting,
	struct penstock_error *err)
{
	struct advice a = {
		fitting, workflow->resources.gpus_per_task.given, BUF_INIT(LIMIT_LOG_LINE)};
	_cleanup_free_ char *message = err ? strdup(err->message) : NULL;

	workflow_walk(&workflow->steps, advise_step, &a);
	if (message && a.overrides.len)
		error_set(err, PENSTOCK_E_INVALID, "%s%s", message, buf_str(&a.overrides));
	buf_release(&a.overrides);
}

int run_check_on(const struct machine_capacity *machine, const struct workflow *workflow,
	struct penstock_error *err)
{
	struct claim_request request, fitting;
	struct claim_limits limits;
	int r = check_steps(workflow, true, err);

	if (r < 0)
		return r;
	r = check_nodes(workflow, err);
	if (r < 0)
		return r;
	r = user_limits_read(&limits, err);
	if (r < 0)
		return r;
	run_claim_request(workflow, "", &limits, &request);
	r = claim_check_fits(machine, &request, &fitting, err);
	if (r == 0)
		return 0;
	add_advice(workflow, &fitting, err);
	return workflow_error_at(workflow, place_of_misfit(machine, workflow), err);
}

int run_check_kinds(const struct workflow *workflow, struct penstock_error *err)
{
	return workflow_walk(&workflow->steps, check_kind, &(struct refusal){workflow, err, false});
}

int run_check_elsewhere(const struct workflow *workflow, struct penstock_error *err)
{
	return check_steps(workflow, false, err);
}

int run_check(const struct workflow *workflow, struct penstock_error *err)
{
	struct machine_capacity machine;

	machine_capacity(&machine);
	return run_check_on(&machine, workflow, err);
}
