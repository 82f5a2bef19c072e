/* Message, class and exit code for the end of a step. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "run/step/run.h"

enum { EXIT_BAD_VALUES = 1, EXIT_TIMEOUT = 124, EXIT_OOM = 137, EXIT_OTHER = 79 };

void step_more(const struct workflow_step_resources *res, bool own, const char *key_and_value,
	char out[static STEP_MORE_SIZE])
{
	int key = (int)strcspn(key_and_value, "=");

	if (!own || !res)
		snprintf(out, STEP_MORE_SIZE, "--set resources.%s", key_and_value);
	else if (res->field)
		snprintf(out, STEP_MORE_SIZE, "--set %s.%s", res->field, key_and_value);
	else
		snprintf(out, STEP_MORE_SIZE, "`resources.%.*s` of the step in its module", key,
			key_and_value);
}

static void explain_memory(const struct step_end *end, const char *who, struct step_failure *out)
{
	const struct workflow_step_resources *res = end->resources;
	char more[STEP_MORE_SIZE];

	step_more(res, res && res->mem_per_cpu.given, "memPerCpu=MB", more);
	out->class = RUN_CLASS_OOM;
	out->exit_code = EXIT_OOM;
	if (end->memory_of_run)
		snprintf(out->text, sizeof(out->text),
			"%s was killed: out of memory: it used at most %" PRIu64 " of its %" PRIu64
			" MB, but the steps that ran together needed more than the %" PRIu64
			" MB of the run; ask for more with --set resources.memPerCpu=MB or "
			"resources.tasks=N, or run fewer at a time",
			who, end->memory_peak / MIB, end->memory_limit / MIB,
			end->memory_of_run / MIB);
	else if (!end->memory_limit)
		snprintf(out->text, sizeof(out->text),
			"%s was killed: out of memory; ask for more with %s", who, more);
	else if (end->memory_peak)
		snprintf(out->text, sizeof(out->text),
			"%s was killed: out of memory: its limit is %" PRIu64
			" MB, its peak was %" PRIu64 " MB; ask for more with %s",
			who, end->memory_limit / MIB, end->memory_peak / MIB, more);
	else
		snprintf(out->text, sizeof(out->text),
			"%s was killed: out of memory: its limit is %" PRIu64
			" MB; ask for more with %s",
			who, end->memory_limit / MIB, more);
}

bool step_end_explain(
	const struct step_end *end, const char *name, const char *run_id, struct step_failure *out)
{
	char who[320];

	*out = (struct step_failure){.class = RUN_CLASS_USER};
	if (end->rank >= 0)
		snprintf(who, sizeof(who), "task %d of '%.256s'", end->rank, name);
	else
		snprintf(who, sizeof(who), "'%.256s'", name);
	if (end->stop > STEP_PEER_FAILED && end->stop != STEP_OVER_MEMORY) {
		char time[32];

		/* "1.5 s", "20 min", "2 h". */
		if (end->stop_ms >= 7200000)
			snprintf(time, 32, "%.3g h", (double)end->stop_ms / 3600000);
		else if (end->stop_ms >= 120000)
			snprintf(time, 32, "%.3g min", (double)end->stop_ms / 60000);
		else
			snprintf(time, 32, "%.3g s", (double)end->stop_ms / 1000);
		out->class = RUN_CLASS_TIMEOUT;
		out->exit_code = EXIT_TIMEOUT;
		if (end->stop == STEP_TIMEOUT)
			snprintf(out->text, sizeof(out->text),
				"'%s' was stopped after its timeout of %s; raise its `timeout`",
				name, time);
		else if (end->stop == STEP_RUN_TIMEOUT)
			snprintf(out->text, sizeof(out->text),
				"'%s' was ended by the run's timeout of %s; raise it with "
				"--set timeout=TIME",
				name, time);
		else
			snprintf(out->text, sizeof(out->text),
				"'%s' was stopped: no output and no use of the CPU for %s (`hangTimeout`)",
				name, time);
	} else if (end->oom) {
		explain_memory(end, who, out);
	} else if (end->signal) {
		out->exit_code = 128 + end->signal;
		snprintf(out->text, sizeof(out->text),
			"%s was killed by signal %d (%s); see 'penstock logs %s'", who, end->signal,
			sigdescr_np(end->signal) ? sigdescr_np(end->signal) : "unknown", run_id);
	} else if (end->code) {
		/* An exit code of 64 to 78 of a step would be taken for one of penstock's own. */
		out->exit_code = end->code >= 64 && end->code <= 78 ? EXIT_OTHER : end->code;
		out->step_code = end->code;
		snprintf(out->text, sizeof(out->text), "%s exited with %d; see 'penstock logs %s'",
			who, end->code, run_id);
	} else if (*end->values) {
		out->exit_code = EXIT_BAD_VALUES;
		snprintf(out->text, sizeof(out->text), "%s %s", who, end->values);
	}
	return out->exit_code != 0;
}
