/* Runs the steps of a workflow until they end, are stopped, or another owner has the run. */
#ifndef RUN_WALK_STEPS_H
#define RUN_WALK_STEPS_H

#include <stdbool.h>

struct attempt;
struct publisher;
struct reaction;
struct step_host;

/* Runs the steps that are not finished yet and decides the end unless they succeed. No process of
 * the steps is alive when the function returns. */
void run_steps(struct step_host *host, struct reaction *reaction, struct publisher *publisher);
/* Makes the files of finished steps durable at the end of a preempted attempt, since the next
 * attempt may come after another boot. Does nothing if the output was not `flushed`. */
void run_settle_storage(const struct attempt *attempt, bool flushed);

#endif
