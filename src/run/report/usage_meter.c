#include "run/report/usage_meter.h"

#include "run/process/gpus.h"

/* Returns the growth of a counter per ms; 0 if the counter got smaller, because a process has ended
 * or an interface was removed. */
static double rate(uint64_t now, uint64_t before, int64_t ms)
{
	return now > before && ms > 0 ? (double)(now - before) / (double)ms : 0;
}

void usage_meter_begin(struct usage_meter *m, const int *gpus, size_t n_gpus, int64_t now_ms)
{
	struct gpus_used used;

	*m = (struct usage_meter){.gpus = gpus, .n_gpus = n_gpus, .at_ms = now_ms};
	/* Load the library now: loading takes as long as hundreds of samples, and must not count as
	 * the first sample. */
	if (n_gpus)
		gpus_read(gpus, n_gpus, &used);
	usage_network_read(&m->network);
}

void usage_meter_read(
	struct usage_meter *m, int64_t now_ms, uint64_t cpu_ms, struct usage_sample *sample)
{
	int64_t ms = now_ms - m->at_ms;
	struct usage_network network;
	struct gpus_used gpus;

	usage_network_read(&network);
	sample->cpu = rate(cpu_ms, m->cpu_ms, ms);
	sample->received = rate(network.received, m->network.received, ms) * 1000;
	sample->sent = rate(network.sent, m->network.sent, ms) * 1000;
	sample->has_gpus = m->n_gpus && gpus_read(m->gpus, m->n_gpus, &gpus);
	if (sample->has_gpus) {
		sample->gpu = gpus.busy;
		sample->gpu_memory = gpus.memory;
	}
	m->at_ms = now_ms;
	m->cpu_ms = cpu_ms;
	m->network = network;
}
