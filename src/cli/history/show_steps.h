/*
 * The steps of a workflow as a tree, each with its state, for `penstock show` and the page.
 *
 *	json_t *steps = show_steps(workflow, done, &run->last, layout.dir, layout.state);
 */
#ifndef CLI_HISTORY_SHOW_STEPS_H
#define CLI_HISTORY_SHOW_STEPS_H

#include <jansson.h>

#include "records/records.h"

/*
 * Returns an array with an object for each step of `workflow`, the recorded JSON; the caller
 * releases the array. The array is empty if `workflow` is NULL. `done` has the records of top-level
 * steps that ended, or is NULL.
 *
 * Members of all steps: `number` ("2.1"), `name`, `kind` (run, group, loop, launch, module, empty),
 * `state`. The states are "done", "to do", "failed", "ended" (a launch without a known result) and
 * the state of the run; null is an unknown state. Top-level steps also have `step`, `attempt` and
 * `ended`. Other members, if the step has them: `handle`, `depends_on`, `if`, `source`, `parallel`,
 * `iterations`, `iterations_done`, `iterations_running`, and the lists `steps`, `catch`, `finally`.
 *
 * `run_dir` and `state_dir` are the run's directories on this machine; NULL for a run of another
 * machine: the steps within an unfinished step then have unknown states.
 */
json_t *show_steps(const json_t *workflow, const json_t *done, const struct records_attempt *last,
	const char *run_dir, const char *state_dir);

#endif
