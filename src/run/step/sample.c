/* Samples of the resources that an execution uses. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "run/step/execution.h"

size_t step_leaders(const struct step_run *step, pid_t *leaders)
{
	size_t n = 0;

	for (size_t i = 0; i < step->n_started; i++) {
		if (!step->tasks[i].ended)
			leaders[n++] = step->tasks[i].task->pid;
	}
	return n;
}

void step_use(const struct step_run *step, uint64_t *cpu_ms, uint64_t *memory)
{
	_cleanup_free_ pid_t *leaders = NULL;
	struct cgroup_found found;
	struct usage usage = {0};

	cgroup_read(step->group.cgroup, &found);
	if (memory)
		*memory = cgroup_memory(step->group.cgroup);
	if (found.cpu_us < 0 || (memory && !*memory))
		leaders = calloc(step->n, sizeof(*leaders));
	if (leaders)
		usage_read(leaders, step_leaders(step, leaders), &usage);
	*cpu_ms = found.cpu_us < 0 ? usage.cpu_ms : (uint64_t)found.cpu_us / 1000;
	if (memory && !*memory)
		*memory = usage.rss;
}

void step_sample_begin(struct step_run *step, int64_t now)
{
	usage_meter_begin(&step->meter, step->share.gpus, step->share.n_gpus, now);
	step->sample_at_ms = now + usage_file_interval_ms(&step->host->usage, now);
}

void step_sample(struct step_run *step, int64_t now)
{
	struct usage_file *file = &step->host->usage;
	int64_t began_ns = usage_file_clock_ns();
	struct usage_sample sample = {.time_ms = clock_wall_ns() / NS_PER_MS, .name = step->name};
	bool sampled = true;
	uint64_t cpu_ms;

	if (step->executor->use) {
		sampled = step->n_started && step->executor->use(step->tasks[0].task, &sample);
	} else {
		step_use(step, &cpu_ms, &sample.memory);
		usage_meter_read(&step->meter, now, cpu_ms, &sample);
	}
	if (sampled)
		usage_file_add(file, step->host->attempt->layout.log, &sample);
	file->spent_ns += usage_file_clock_ns() - began_ns;
	step->sample_at_ms = now + usage_file_interval_ms(file, now);
}
