/* `if` of a step. */
#include <stdio.h>
#include <stdlib.h>

#include "run/run_internal.h"
#include "run/walk.h"
#include "base/banned.h"

bool condition_begin(struct walk *walk, struct frame *frame)
{
	const struct workflow_step *step = frame->step;
	struct workflow_run *what = &frame->condition;
	char *command = NULL;

	if (asprintf(&command, "[[ %s ]] && exit %d; exit %d", step->condition.value, CONDITION_YES,
		    CONDITION_NO) < 0) {
		frame_fail_memory(frame);
		return false;
	}
	*what = (struct workflow_run){
		.command = {.value = command},
		.shell = {.value = "/bin/bash"},
		.resources = {.tasks = {.value = 1},
			.cpus_per_task = walk->run->workflow->resources.cpus_per_task,
			.mem_per_cpu = walk->run->workflow->resources.mem_per_cpu},
		.at = step->condition.at,
	};
	if (leaf_start(walk, frame, what))
		return true;
	free(command);
	what->command.value = NULL;
	return false;
}

void condition_ended(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	struct step_failure *failure = &frame->outcome.failure;

	free((char *)frame->condition.command.value);
	frame->condition.command.value = NULL;
	frame->phase = PHASE_BODY_RUNS;
	if (end->signal || end->oom) {
		frame->outcome.failed = step_end_explain(end, frame->name, walk->run->id, failure);
	} else if (end->code != CONDITION_YES && end->code != CONDITION_NO) {
		frame->outcome.failed = true;
		*failure = (struct step_failure){
			.class = RUN_CLASS_USER, .exit_code = CONDITION_WRONG};
		snprintf(failure->text, sizeof(failure->text),
			"'%s': bash cannot evaluate its `if`; see 'penstock logs %s'", frame->name,
			walk->run->id);
	} else if (end->code == CONDITION_NO || !frame_may_begin(walk, frame)) {
		frame->phase = PHASE_CLOSE;
		if (end->code != CONDITION_NO)
			frame_cut(walk, frame);
	} else {
		frame->phase = PHASE_BODY;
	}
}
