/* Work of a run that was lost when an attempt ended, and that was repeated or has to be
 * repeated. */
import { isNumber, list, ms } from "./format";
import type { Attempt, Checkpoint, Metric, RunDetails, Step } from "./types";

export interface Loss {
  ms: number; // since the last checkpoint or finished step, or since the attempt began
  /* False if no checkpoint of the attempt is known, so that less may be lost: retention may have
   * removed a checkpoint, or the step resumes from a file of its own. */
  exact: boolean;
  steps: number; // training steps that were written twice; 0 if unknown
  cost: number | null; // null without a price
}

/* The time by which timestamps of an attempt's files may be later than its recorded end. */
const SLACK_MS = 1000;

/* Money per hour; null if the attempt has no price. */
function priceOf(attempt: Attempt): number | null {
  const price = Number(attempt.provenance?.price ?? NaN);

  return Number.isFinite(price) ? price : null;
}

/* True for an attempt whose work after its last checkpoint was lost. */
export function isBroken(attempt: Attempt): boolean {
  return ["preempted", "lost", "failed", "stopped"].includes(String(attempt.state));
}

/* Loss of an attempt that ran from `from` to `to`; null if it succeeded or is running. */
export function lossOf(
  attempt: Attempt,
  from: number,
  to: number,
  run: RunDetails,
  checkpoints: Checkpoint[],
  metrics: Metric[],
): Loss | null {
  if (!isBroken(attempt)) return null;
  const ours = (one: { attempt?: unknown }) => one.attempt === attempt.attempt;
  const during = (times: (number | null)[]) =>
    times.filter((time): time is number => time !== null && time >= from && time <= to + SLACK_MS);
  const committed = during(
    checkpoints.filter((one) => one.readable && ours(one)).map((one) => ms(one.time)),
  );
  const finished = during(
    list<Step>(run.steps)
      .filter(ours)
      .map((step) => ms(step.ended)),
  );
  const lost = Math.max(0, to - Math.max(from, ...committed, ...finished));
  const price = priceOf(attempt);
  const steps = metrics
    .flatMap((metric) => list<unknown>(metric.repeated))
    .filter(
      (one): one is [number, number, number] =>
        Array.isArray(one) && one.every(isNumber) && one[2] >= from && one[2] <= to + SLACK_MS,
    )
    .map(([first, last]) => last - first + 1);

  return {
    ms: lost,
    exact: committed.length > 0,
    steps: Math.max(0, ...steps),
    cost: price === null ? null : (price * lost) / 3_600_000,
  };
}
