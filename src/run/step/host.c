#include "run/step/host.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "run/step/ranks.h"
#include "run/task/executor.h"
#include "run/task/keys.h"
#include "workflow/model.h"
#include "workflow/workflow.h"

int step_host_find_ports(struct step_host *host, struct penstock_error *err)
{
	const struct attempt *attempt = host->attempt;
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	_cleanup_free_ char *path = run_path(attempt->home, attempt->id, RUN_FILE_PORTS);
	size_t n = (size_t)attempt->workflow->ports.value;
	int r;

	if (!path)
		return error_memory(err);
	unlink(path);
	if (!n)
		return 0;
	r = free_ports(host->ports, n, err);
	for (size_t i = 0; r == 0 && i < n; i++)
		buf_printf(&text, "%s%d", i ? " " : "", host->ports[i]);
	return r < 0 ? r : fs_write_atomic(path, buf_str(&text), text.len, 0600, err);
}

void step_host_end(struct step_host *host)
{
	executor_container_finish();
	key_servers_free(host->keys);
	host->keys = NULL;
	if (*host->keys_token)
		key_token_forget(host->keys_token);
	run_group_end(&host->group);
	run_life_end(&host->life);
	usage_file_close(&host->usage);
}

static void take_earlier(double *at, double other)
{
	if (other > 0 && (*at <= 0 || other < *at))
		*at = other;
}

void step_deadline(const struct run_times *times, const struct workflow *workflow,
	const struct workflow_run *what, char out[static STEP_DEADLINE_SIZE])
{
	const struct workflow_number *own = &what->timeouts.timeout;
	const struct workflow_number *job = &workflow->timeouts.timeout;
	const char *slurm = getenv("SLURM_JOB_END_TIME");
	int64_t now = clock_monotonic_ms();
	uint64_t end;
	double at = 0;

	if (own->given)
		take_earlier(&at, clock_wall_s(now + own->value));
	if (times->deadline_ms || job->given)
		take_earlier(&at,
			clock_wall_s(times->deadline_ms ? times->deadline_ms : now + job->value));
	if (slurm && str_to_u64(slurm, 1, UINT32_MAX, &end))
		take_earlier(&at, (double)end);
	*out = '\0';
	if (at > 0)
		snprintf(out, STEP_DEADLINE_SIZE, "%.3f", at);
}

size_t shares_take(uint16_t *used, const int *list, size_t have, size_t n, int *out)
{
	bool taken[CLAIMS_MAX_CPUS] = {false};
	size_t count = 0;

	if (n > have)
		n = have;
	for (size_t k = 0; k < n; k++) {
		size_t best = have;

		for (size_t i = 0; i < have; i++) {
			if (!taken[i] && (best == have || used[i] < used[best]))
				best = i;
		}
		taken[best] = true;
	}
	for (size_t i = 0; i < have; i++) {
		if (taken[i]) {
			used[i]++;
			out[count++] = list[i];
		}
	}
	return count;
}

void shares_release(uint16_t *used, const int *list, size_t have, const int *taken, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		for (size_t i = 0; i < have; i++) {
			if (list[i] == taken[k] && used[i])
				used[i]--;
		}
	}
}

int step_share_take(struct step_share *share, struct shares *shares, const struct claim *claim,
	const struct workflow_step_resources *res, struct penstock_error *err)
{
	size_t n_cpus, n_gpus;
	const int *cpus = claim_cpus(claim, &n_cpus);
	const int *gpus = claim_gpus(claim, &n_gpus);

	share->cpus = calloc(n_cpus + 1, sizeof(int));
	share->gpus = calloc(n_gpus + 1, sizeof(int));
	if (!share->cpus || !share->gpus)
		return error_memory(err);
	share->n_cpus = shares_take(shares->cpus, cpus, n_cpus,
		(size_t)(res->tasks.value * res->cpus_per_task.value), share->cpus);
	share->n_gpus = shares_take(shares->gpus, gpus, n_gpus,
		(size_t)(res->tasks.value * res->gpus_per_task.value), share->gpus);
	return 0;
}

void step_share_release(struct step_share *share, struct shares *shares, const struct claim *claim)
{
	size_t n_cpus, n_gpus;
	const int *cpus = claim_cpus(claim, &n_cpus);
	const int *gpus = claim_gpus(claim, &n_gpus);

	if (share->cpus)
		shares_release(shares->cpus, cpus, n_cpus, share->cpus, share->n_cpus);
	if (share->gpus)
		shares_release(shares->gpus, gpus, n_gpus, share->gpus, share->n_gpus);
	free(share->cpus);
	free(share->gpus);
	*share = (struct step_share){0};
}
