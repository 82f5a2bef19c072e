/* What the job and its steps ask of the machine. */
#include "workflow/native.h"

#include "base/banned.h"

/* Beyond any machine, and small enough that their product fits 64 bits. */
#define MAX_TASKS	1000000
#define MAX_CPUS	65536
#define MAX_MEM_PER_CPU (16 * 1024 * 1024) /* MB: 16 TB */
#define MAX_GPUS	1000000
#define MAX_PROCESSES	4194304 /* as many as Linux can have */

void read_resources_of(struct reader *rd, const struct node *map, struct workflow_resources *res)
{
	res->tasks.value = res->cpus_per_task.value = 1;
	res->tasks.at = res->cpus_per_task.at = res->mem_per_cpu.at = res->at;
	res->gpus.at = res->gpus_per_task.at = res->max_processes.at = res->at;
	if (!map)
		return;
	res->at = map->at;
	reader_check_map(rd, map, &schema_resources);
	reader_number(rd, map, "tasks", 1, MAX_TASKS, &res->tasks);
	reader_number(rd, map, "cpusPerTask", 1, MAX_CPUS, &res->cpus_per_task);
	reader_number(rd, map, "memPerCpu", 1, MAX_MEM_PER_CPU, &res->mem_per_cpu);
	reader_number(rd, map, "gpus", 0, MAX_GPUS, &res->gpus);
	reader_number(rd, map, "gpusPerTask", 0, MAX_GPUS, &res->gpus_per_task);
	reader_number(rd, map, "maxProcesses", 0, MAX_PROCESSES, &res->max_processes);
	if (res->gpus.given && res->gpus_per_task.given) {
		reader_error(rd, &res->gpus_per_task.at,
			"`%s` is the older way to say `gpus` (GPUs of the whole "
			"job); give one of them",
			reader_field(rd, "gpusPerTask"));
	} else if (res->gpus_per_task.given) {
		res->gpus.value = res->gpus_per_task.value * res->tasks.value;
		res->gpus.at = res->gpus_per_task.at;
	}
}

/* Whether a step's `need` is within the job's `have`; else says which keys to change. */
static void check_share(struct reader *rd, const struct workflow_place *at, const char *what,
	int64_t need, int64_t have)
{
	if (need > have)
		reader_error(rd, at,
			"`%s` needs %lld %s, the whole job has %lld; raise `resources`",
			buf_str(&rd->path), (long long)need, what, (long long)have);
}

static void check_shares(struct reader *rd, const struct workflow_step_resources *res)
{
	const struct workflow_resources *job = &rd->workflow->resources;
	int64_t cpus = res->tasks.value * res->cpus_per_task.value;
	int64_t job_cpus = job->tasks.value * job->cpus_per_task.value;

	check_share(rd, &res->at, "CPUs (tasks times cpusPerTask)", cpus, job_cpus);
	if (job->mem_per_cpu.value && cpus <= job_cpus)
		check_share(rd, &res->at, "MB of memory (memPerCpu times CPUs)",
			cpus * res->mem_per_cpu.value, job_cpus * job->mem_per_cpu.value);
	check_share(rd, &res->at, "GPUs (tasks times gpusPerTask)",
		res->tasks.value * res->gpus_per_task.value, job->gpus.value);
}

void read_step_resources(struct reader *rd, const struct node *run, struct workflow_run *out)
{
	const struct workflow_resources *whole = &rd->workflow->resources;
	struct workflow_step_resources *res = &out->resources;
	struct node *map = reader_map(rd, run, "resources");
	size_t saved;

	res->at = map ? map->at : out->at;
	res->tasks = (struct workflow_number){.value = 1, .at = res->at};
	res->cpus_per_task = (struct workflow_number){whole->cpus_per_task.value, false, res->at};
	res->mem_per_cpu = (struct workflow_number){whole->mem_per_cpu.value, false, res->at};
	res->gpus_per_task = (struct workflow_number){0, false, res->at};
	res->max_processes = whole->max_processes;
	if (!rd->modules)
		res->field = reader_field(rd, "resources");
	if (whole->gpus_per_task.given)
		res->gpus_per_task.value = whole->gpus_per_task.value;
	if (!map)
		return;
	saved = reader_enter(rd, "resources", 0);
	reader_check_map(rd, map, &schema_step_resources);
	reader_number(rd, map, "tasks", 1, MAX_TASKS, &res->tasks);
	reader_number(rd, map, "cpusPerTask", 1, MAX_CPUS, &res->cpus_per_task);
	reader_number(rd, map, "memPerCpu", 1, MAX_MEM_PER_CPU, &res->mem_per_cpu);
	reader_number(rd, map, "gpusPerTask", 0, MAX_GPUS, &res->gpus_per_task);
	reader_number(rd, map, "maxProcesses", 0, MAX_PROCESSES, &res->max_processes);
	res->own_processes = node_get(map, "maxProcesses") != NULL;
	if (whole->given)
		check_shares(rd, res);
	reader_leave(rd, saved);
}

static void take_larger(struct workflow_number *number, int64_t value)
{
	if (value > number->value)
		number->value = value;
}

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

void derive_resources(struct reader *rd)
{
	struct workflow_resources *job = &rd->workflow->resources;

	take_larger(&job->tasks, rd->least.tasks.value);
	take_larger(&job->cpus_per_task, rd->least.cpus_per_task.value);
	take_larger(&job->gpus, rd->least.gpus.value);
	workflow_walk(&rd->workflow->steps, take_largest, job);
}
