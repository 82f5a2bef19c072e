#include "run/cluster/node_usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "run/process/gpus.h"

/* A sample replaces the previous one in place, so all lines have the same length. */
enum { LINE = 120 };

static void begin(struct node_usage *u, const char *dir, int64_t now)
{
	const char *node = str_env("SLURM_NODEID"), *local = str_env("SLURM_LOCALID");

	u->begun = true;
	if (!node || !local || strcmp(local, "0") != 0)
		return;
	u->path = str_printf("%s/use.%s", dir, node);
	u->fd = u->path ? open(u->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
	u->n_gpus = gpus_parse(str_env("SLURM_STEP_GPUS"), u->gpus, CLAIMS_MAX_GPUS);
	usage_meter_begin(&u->meter, u->gpus, u->n_gpus, now);
	u->next_ms = now + usage_file_interval_ms(&u->pace, now);
}

static void write_sample(const struct node_usage *u, const struct usage_sample *s)
{
	char text[LINE], line[LINE + 2];

	snprintf(text, sizeof(text), "%.3f %" PRIu64 " %.0f %.0f %.2f %" PRIu64, s->cpu, s->memory,
		s->received, s->sent, s->has_gpus ? s->gpu : -1, s->gpu_memory);
	snprintf(line, sizeof(line), "%-*s\n", LINE, text);
	/* If the disk is full, only the sample is lost. */
	(void)!pwrite(u->fd, line, LINE + 1, 0);
}

static void sample(struct node_usage *u, int64_t now)
{
	/* The tasks of the step on this node are children of its slurmstepd. */
	pid_t leader = getppid() > 1 ? getppid() : getpid();
	struct usage_sample s = {0};
	struct usage usage;

	usage_read(&leader, 1, &usage);
	s.memory = usage.rss;
	usage_meter_read(&u->meter, now, usage.cpu_ms, &s);
	write_sample(u, &s);
}

int64_t node_usage_sample(struct node_usage *u, const char *dir)
{
	int64_t now = clock_monotonic_ms(), began_ns;

	if (!u->begun)
		begin(u, dir, now);
	if (u->fd < 0)
		return -1;
	if (now >= u->next_ms) {
		began_ns = usage_file_clock_ns();
		sample(u, now);
		u->pace.spent_ns += usage_file_clock_ns() - began_ns;
		u->next_ms = now + usage_file_interval_ms(&u->pace, now);
	}
	return u->next_ms - now;
}

void node_usage_end(struct node_usage *u)
{
	if (u->fd >= 0) {
		unlink(u->path);
		close(u->fd);
	}
	free(u->path);
	*u = (struct node_usage)NODE_USAGE_INIT;
}

bool node_usage_sum(const char *dir, size_t n_nodes, struct usage_sample *sum)
{
	bool any = false;

	for (size_t i = 0; i < n_nodes; i++) {
		_cleanup_free_ char *path = str_printf("%s/use.%zu", dir, i);
		_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		char line[LINE + 2] = "";
		double cpu, received, sent, gpu;
		uint64_t memory, gpu_memory;

		if (fd < 0 || read(fd, line, LINE + 1) != LINE + 1 ||
			sscanf(line, "%lf %" SCNu64 " %lf %lf %lf %" SCNu64, &cpu, &memory,
				&received, &sent, &gpu, &gpu_memory) != 6)
			continue;
		any = true;
		sum->cpu += cpu;
		sum->memory += memory;
		sum->received += received;
		sum->sent += sent;
		if (gpu >= 0) {
			sum->has_gpus = true;
			sum->gpu += gpu;
			sum->gpu_memory += gpu_memory;
		}
	}
	return any;
}
