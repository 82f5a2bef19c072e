#include "run/step/times.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/str.h"
#include "workflow/model.h"
#include "base/banned.h"

/* Seconds of the wall clock at a monotonic time. */
static double wall_s(int64_t monotonic_ms)
{
	return (double)clock_wall_ns() / NS_PER_S +
	       (double)(monotonic_ms - clock_monotonic_ms()) / 1000;
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
		take_earlier(&at, wall_s(now + own->value));
	if (times->deadline_ms || job->given)
		take_earlier(
			&at, wall_s(times->deadline_ms ? times->deadline_ms : now + job->value));
	if (slurm && str_to_u64(slurm, 1, UINT32_MAX, &end))
		take_earlier(&at, (double)end);
	*out = '\0';
	if (at > 0)
		snprintf(out, STEP_DEADLINE_SIZE, "%.3f", at);
}
