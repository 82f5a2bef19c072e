/* Steps of a run as a chain, with their states. */
import { duration, list, moment, ms, text } from "./format";
import { State, stateClass } from "./parts";
import type { Attempt, RunDetails, Step } from "./types";

/* Time of a step that ended in the attempt of the step before; null if it is unknown. */
function tookOf(step: Step, before: Step | undefined, run: RunDetails): number | null {
  const end = ms(step.ended);
  const attempt = list<Attempt>(run.attempts).find((one) => one.attempt === step.attempt);
  const begin = before?.attempt === step.attempt ? ms(before?.ended) : ms(attempt?.started);

  return end === null || begin === null || end < begin ? null : end - begin;
}

export function Steps({ run }: { run: RunDetails }) {
  const steps = list<Step>(run.steps);

  if (!steps.length) return <p class="empty">The workflow has no steps, or cannot be read.</p>;
  return (
    <ol class="steps">
      {steps.map((step, i) => {
        const took = tookOf(step, steps[i - 1], run);

        return (
          <li key={i} class={stateClass(step.state)}>
            <strong>{text(step.name)}</strong>
            <State state={step.state} />
            <span class="quiet" title={step.ended ? `ended ${moment(step.ended)}` : undefined}>
              {took !== null ? duration(took) : ""}
              {step.attempt && (run.attempt ?? 1) > 1 ? ` in attempt ${step.attempt}` : ""}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
