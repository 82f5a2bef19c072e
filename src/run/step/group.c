#include "run/step/group.h"

#include <inttypes.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "run/attempt/attempt.h"
#include "run/step/run.h"
#include "workflow/workflow.h"

/* ---- the whole run ---- */

static int is_unlimited(void *cookie, const struct workflow_step *step)
{
	(void)cookie;
	return step->kind == WORKFLOW_STEP_RUN && !step->run.resources.mem_per_cpu.value;
}

/* Returns the bytes that the run has claimed; 0 if it has no limit or a step may use more. */
static uint64_t memory_of_run(const struct run_group *run)
{
	const struct workflow_resources *res = &run->attempt->workflow->resources;

	if (workflow_walk(&run->attempt->workflow->steps, is_unlimited, NULL))
		return 0;
	return (uint64_t)(res->tasks.value * res->cpus_per_task.value) *
	       (uint64_t)res->mem_per_cpu.value * MIB;
}

static int make_run_group(struct run_group *run, struct penstock_error *err)
{
	struct cgroup_wanted wanted = {.of_run = true};

	if (run->made)
		return 0;
	run->made = true;
	run->memory_limit = wanted.memory = memory_of_run(run);
	return cgroup_make(&run->cgroup, NULL, run->attempt->id, &wanted, err);
}

void run_group_end(struct run_group *run)
{
	cgroup_end(take_pointer(run->cgroup));
}

/* ---- an execution ---- */

static uint64_t processes_of(const struct workflow_step_resources *res, uint64_t cpus)
{
	if (res->max_processes.given)
		return (uint64_t)res->max_processes.value;
	cpus *= LIMIT_STEP_PROCESSES_PER_CPU;
	return cpus > LIMIT_STEP_PROCESSES ? cpus : LIMIT_STEP_PROCESSES;
}

int step_group_make(struct step_group *group, struct run_group *run,
	const struct workflow_run *what, struct cgroup_wanted wanted, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &what->resources;
	const uint64_t count = (uint64_t)(res->tasks.value * res->cpus_per_task.value);
	int r = make_run_group(run, err);

	wanted.memory = count * (uint64_t)res->mem_per_cpu.value * MIB;
	wanted.pids = processes_of(res, count);
	if (r == 0)
		r = cgroup_make(&group->cgroup, run->cgroup, run->attempt->id, &wanted, err);
	group->memory_limit = wanted.memory;
	group->max_processes = wanted.pids;
	group->resources = res;
	group->watch_memory = wanted.memory && !cgroup_holds_memory(group->cgroup);
	if (r == 0) {
		if (group->watch_memory && !run->said_no_limits) {
			run->said_no_limits = true;
			run_say(&run->attempt->voice, RUN_EVENT_MESSAGE,
				"cannot create a control group that limits memory on this machine: the "
				"steps' memory use is checked every %.2g s instead, and CPUs are "
				"bound by affinity alone",
				STEP_MEMORY_CHECK_MS / 1000.0);
		}
		if (res->max_processes.given && group->max_processes &&
			!cgroup_holds_pids(group->cgroup) && !run->said_no_processes) {
			run->said_no_processes = true;
			run_say(&run->attempt->voice, RUN_EVENT_WARNING,
				"cannot create a control group that counts processes on this machine: "
				"`maxProcesses` is not enforced");
		}
	}
	return r;
}

/* ---- the end of an execution ---- */

/* Returns true if the peak is at most a sixteenth below the limit. The peak may be below the limit,
 * because the kernel counts in pages, and because the allocation that it refused may be large. */
static bool is_reached(uint64_t peak, uint64_t limit)
{
	return peak >= limit - limit / 16;
}

/* Returns true if the step was well below its limit when the run reached the limit of the run. */
static bool was_of_run(const struct step_group *group, const struct run_group *run, uint64_t peak)
{
	struct cgroup_found all;

	if (!run->cgroup || !peak || is_reached(peak, group->memory_limit))
		return false;
	cgroup_read(run->cgroup, &all);
	return is_reached(all.memory_peak, run->memory_limit);
}

void step_group_explain(const struct step_group *group, struct run_group *run, const char *name,
	bool failed, struct step_end *end)
{
	const struct workflow_step_resources *res = group->resources;
	struct cgroup_found found;
	char more[STEP_MORE_SIZE];

	cgroup_read(group->cgroup, &found);
	end->resources = res;
	end->memory_limit = group->memory_limit;
	if (found.memory_peak)
		end->memory_peak = found.memory_peak;
	if (found.pids_refused) {
		step_more(res, res && res->own_processes, "maxProcesses=N", more);
		run_say(&run->attempt->voice, RUN_EVENT_WARNING,
			"'%s' reached its limit of %" PRIu64 " processes and threads, and could "
			"not start more; raise the limit with %s",
			name, group->max_processes, more);
	}
	if (!found.oom_kills)
		return;
	if (was_of_run(group, run, found.memory_peak))
		end->memory_of_run = run->memory_limit;
	if (failed)
		end->oom = true;
	else
		run_say(&run->attempt->voice, RUN_EVENT_WARNING,
			"the kernel killed %" PRIu64 " process%s of '%s': out of memory",
			found.oom_kills, found.oom_kills == 1 ? "" : "es", name);
}
