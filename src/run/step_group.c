#include "run/step_group.h"

#include <inttypes.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "run/cgroups.h"
#include "run/run_internal.h"
#include "run/step_run.h"
#include "workflow/workflow.h"
#include "base/banned.h"

/* ---- the whole run ---- */

static int is_unlimited(void *cookie, const struct workflow_step *step)
{
	(void)cookie;
	return step->kind == WORKFLOW_STEP_RUN && !step->run.resources.mem_per_cpu.value;
}

/* What the run has claimed, in bytes; 0: none, or some step may have more than it. */
static uint64_t memory_of_run(const struct run *run)
{
	const struct workflow_resources *res = &run->workflow->resources;

	if (workflow_walk(&run->workflow->steps, is_unlimited, NULL))
		return 0;
	return (uint64_t)(res->tasks.value * res->cpus_per_task.value) *
	       (uint64_t)res->mem_per_cpu.value * MIB;
}

static int make_run_group(struct run *run, struct penstock_error *err)
{
	struct cgroup_wanted wanted = {.of_run = true};

	if (run->group.made)
		return 0;
	run->group.made = true;
	run->group.memory_limit = wanted.memory = memory_of_run(run);
	return cgroup_make(&run->group.cgroup, NULL, run->id, &wanted, err);
}

void run_group_end(struct run *run)
{
	cgroup_end(take_pointer(run->group.cgroup));
}

/* ---- an execution ---- */

static void tell_what_does_not_hold(struct run *run, const struct step_group *group, bool asked)
{
	if (group->watch_memory && !run->told_no_limits) {
		run->told_no_limits = true;
		run_say(run, RUN_EVENT_MESSAGE,
			"this machine lets us make no control group that limits memory: what the "
			"steps use is looked at every %.2g s instead, and CPUs are bound by "
			"affinity alone",
			STEP_MEMORY_LOOK_MS / 1000.0);
	}
	if (asked && group->max_processes && !cgroup_holds_pids(group->cgroup) &&
		!run->told_no_processes) {
		run->told_no_processes = true;
		run_say(run, RUN_EVENT_WARNING,
			"this machine lets us make no control group that counts processes: "
			"`maxProcesses` does not hold");
	}
}

static uint64_t processes_of(const struct workflow_step_resources *res, uint64_t cpus)
{
	if (res->max_processes.given)
		return (uint64_t)res->max_processes.value;
	cpus *= LIMIT_STEP_PROCESSES_PER_CPU;
	return cpus > LIMIT_STEP_PROCESSES ? cpus : LIMIT_STEP_PROCESSES;
}

int step_group_make(struct step_group *group, struct run *run, const struct workflow_run *what,
	const int *cpus, size_t n_cpus, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &what->resources;
	const uint64_t count = (uint64_t)(res->tasks.value * res->cpus_per_task.value);
	struct cgroup_wanted wanted = {
		.memory = count * (uint64_t)res->mem_per_cpu.value * MIB,
		.cpus = cpus,
		.n_cpus = n_cpus,
		.pids = processes_of(res, count),
	};
	int r = make_run_group(run, err);

	if (what->disable_cpu_binding.value)
		wanted.cpus = claim_cpus(run->claim, &wanted.n_cpus);
	if (r == 0)
		r = cgroup_make(&group->cgroup, run->group.cgroup, run->id, &wanted, err);
	group->memory_limit = wanted.memory;
	group->max_processes = wanted.pids;
	group->resources = res;
	group->watch_memory = wanted.memory && !cgroup_holds_memory(group->cgroup);
	if (r == 0)
		tell_what_does_not_hold(run, group, res->max_processes.given);
	return r;
}

/* ---- its end ---- */

/* The kernel counts in pages, and what it just refused may be large. */
static bool is_reached(uint64_t peak, uint64_t limit)
{
	return peak >= limit - limit / 16;
}

/* Whether it was well within its own limit when all of the run together had reached theirs. */
static bool was_of_run(const struct step_group *group, const struct run *run, uint64_t peak)
{
	struct cgroup_found all;

	if (!run->group.cgroup || !peak || is_reached(peak, group->memory_limit))
		return false;
	cgroup_read(run->group.cgroup, &all);
	return is_reached(all.memory_peak, run->group.memory_limit);
}

void step_group_judge(const struct step_group *group, struct run *run, const char *name,
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
		run_say(run, RUN_EVENT_WARNING,
			"'%s' reached its limit of %" PRIu64 " processes and threads, and was "
			"refused more; raise it with %s",
			name, group->max_processes, more);
	}
	if (!found.oom_kills)
		return;
	if (was_of_run(group, run, found.memory_peak))
		end->memory_of_run = run->group.memory_limit;
	if (failed)
		end->oom = true;
	else
		run_say(run, RUN_EVENT_WARNING,
			"the kernel ended %" PRIu64 " process%s of '%s' for want of memory",
			found.oom_kills, found.oom_kills == 1 ? "" : "es", name);
}
