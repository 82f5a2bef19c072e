/* `resources` of a job and of its steps. */
#include "base/cleanup.h"
#include "workflow/native/native.h"

/* Limits beyond any machine, and small enough that their products fit in 64 bits. */
#define MAX_TASKS	1000000
#define MAX_CPUS	65536
#define MAX_MEM_PER_CPU (16 * 1024 * 1024) /* MB: 16 TB */
#define MAX_GPUS	1000000
#define MAX_PROCESSES	4194304 /* the largest pid_max of Linux */

static void check_resources(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_resources *res = out;

	(void)map;
	if (!res->gpus_per_task.given)
		return;
	if (res->gpus.given) {
		reader_error_of(rd, &res->gpus_per_task.at, "gpusPerTask",
			"is the older form of `gpus` (GPUs of the whole job); keep one of them");
		return;
	}
	res->gpus.value = res->gpus_per_task.value * res->tasks.value;
	res->gpus.at = res->gpus_per_task.at;
}

static const struct schema_key resources_keys[] = {
	{"tasks", NUMBER(workflow_resources, tasks, 1, MAX_TASKS), .flags = KEY_SHOWN, .preset = 1,
		.says = "number of processes"},
	{"cpusPerTask", NUMBER(workflow_resources, cpus_per_task, 1, MAX_CPUS), .flags = KEY_SHOWN,
		.preset = 1, .says = "CPUs of each task"},
	{"memPerCpu", NUMBER(workflow_resources, mem_per_cpu, 1, MAX_MEM_PER_CPU),
		.flags = KEY_SHOWN, .otherwise = "not limited",
		.says = "memory for each CPU, in MB of 2^20 bytes"},
	{"gpus", NUMBER(workflow_resources, gpus, 0, MAX_GPUS), .flags = KEY_SHOWN,
		.shown = {UNSET(workflow_resources, gpus_per_task.given)}, .otherwise = "0",
		.says = "GPUs of the whole run"},
	{"gpusPerTask", NUMBER(workflow_resources, gpus_per_task, 0, MAX_GPUS),
		.says = "the older form of `gpus`: the run then gets `gpusPerTask` times `tasks` "
			"GPUs; steps inherit `gpusPerTask`"},
	{"tasksPerNode", NUMBER(workflow_resources, tasks_per_node, 1, MAX_TASKS),
		.otherwise = "any number",
		.says = "tasks on each node of a cluster; a run with more tasks needs "
			"`--on slurm`; extension"},
	{"maxProcesses", NUMBER(workflow_resources, max_processes, 0, MAX_PROCESSES),
		.otherwise = "512 for each CPU of the step, at least 4096",
		.says = "the number of processes and threads that a step may have, over all its "
			"tasks; 0: not limited by penstock; extension"},
	{"ntasks", .kinds = KEY_WHOLE, .min = 1, .max = MAX_TASKS, .flags = KEY_LEGACY},
};
const struct schema schema_resources = {SCHEMA("resources", "`resources`", resources_keys),
	.given = offsetof(struct workflow_resources, given) + 1, AT(workflow_resources, at),
	.check = check_resources};

/* Reports a step that needs more than the job has. */
static void check_share(struct reader *rd, const struct workflow_place *at, const char *what,
	int64_t need, int64_t have)
{
	if (need > have)
		reader_error_of(rd, at, NULL,
			"needs %lld %s, but the whole job has %lld; raise `resources`",
			(long long)need, what, (long long)have);
}

static void check_step_resources(struct reader *rd, const struct node *map, void *out)
{
	const struct workflow_resources *job = &rd->workflow->resources;
	struct workflow_step_resources *res = out;
	int64_t cpus = res->tasks.value * res->cpus_per_task.value;
	int64_t job_cpus = job->tasks.value * job->cpus_per_task.value;

	res->own_processes = node_get(map, "maxProcesses") != NULL;
	if (!job->given)
		return;
	check_share(rd, &res->at, "CPUs (tasks times cpusPerTask)", cpus, job_cpus);
	if (job->mem_per_cpu.value && cpus <= job_cpus)
		check_share(rd, &res->at, "MB of memory (memPerCpu times CPUs)",
			cpus * res->mem_per_cpu.value, job_cpus * job->mem_per_cpu.value);
	check_share(rd, &res->at, "GPUs (tasks times gpusPerTask)",
		res->tasks.value * res->gpus_per_task.value, job->gpus.value);
}

static const struct schema_key step_resources_keys[] = {
	{"tasks", NUMBER(workflow_step_resources, tasks, 1, MAX_TASKS), .flags = KEY_SHOWN,
		.preset = 1,
		.says = "number of processes; `tasks` of the run only reserves resources for "
			"this number, and starts no process"},
	{"cpusPerTask", NUMBER(workflow_step_resources, cpus_per_task, 1, MAX_CPUS),
		.flags = KEY_SHOWN, .otherwise = "the run's", .says = "CPUs of each task"},
	{"memPerCpu", NUMBER(workflow_step_resources, mem_per_cpu, 1, MAX_MEM_PER_CPU),
		.flags = KEY_SHOWN, .otherwise = "the run's",
		.says = "memory for each CPU, in MB of 2^20 bytes"},
	{"gpusPerTask", NUMBER(workflow_step_resources, gpus_per_task, 0, MAX_GPUS),
		.flags = KEY_SHOWN, .otherwise = "the run's `gpusPerTask`, else 0",
		.says = "GPUs of each task"},
	{"maxProcesses", NUMBER(workflow_step_resources, max_processes, 0, MAX_PROCESSES),
		.otherwise = "the run's",
		.says = "the number of processes and threads that the step may have; extension"},
	{"ntasks", .kinds = KEY_WHOLE, .min = 1, .max = MAX_TASKS, .flags = KEY_LEGACY},
	{"gpus", .kinds = KEY_WHOLE, .min = 0, .max = MAX_GPUS, .flags = KEY_LEGACY},
};
const struct schema schema_step_resources = {
	SCHEMA("step-resources", "the `resources` of a step", step_resources_keys),
	AT(workflow_step_resources, at), .check = check_step_resources};

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
	reader_read(rd, map, &schema_step_resources, res);
	reader_leave(rd, saved);
}
