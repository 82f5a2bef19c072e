/* Graph of the steps of a run, with their states. */
import type { CSSProperties } from "preact";
import { duration, list, many, moment, ms, strings, text } from "./format";
import { placesOf } from "./lanes";
import { State, stateClass } from "./parts";
import type { Attempt, RunDetails, Step } from "./types";

/* Duration of a step: from the end of the previous step in the same attempt, else from the start of
 * the attempt. Null if it is unknown. */
function tookOf(step: Step, before: Step | undefined, run: RunDetails): number | null {
  const end = ms(step.ended);
  const attempt = list<Attempt>(run.attempts).find((one) => one.attempt === step.attempt);
  const begin = before?.attempt === step.attempt ? ms(before?.ended) : ms(attempt?.started);

  return end === null || begin === null || end < begin ? null : end - begin;
}

/* Facts about the way in which a step runs. */
function notesOf(step: Step): string[] {
  const waits = strings(step.depends_on).join(", ");
  const running = Number(step.iterations_running ?? 0);
  const notes = [
    step.kind === "launch" ? `in the background${step.handle ? ` as ${step.handle}` : ""}` : "",
    waits && `waits for ${waits}`,
    step.if ? `if ${step.if}` : "",
    step.source ? `module ${step.source}` : "",
  ];

  if (step.kind === "loop") {
    notes.push(
      `${Number(step.iterations_done ?? 0)} of ${Number(step.iterations ?? 0)} iterations` +
        (step.parallel ? `, in parallel${running ? `, ${running} running` : ""}` : ""),
    );
  }
  return notes.filter(Boolean);
}

const PARTS: ["steps" | "catch" | "finally", string][] = [
  ["steps", ""],
  ["catch", "After a failure"],
  ["finally", "In any case"],
];

function Parts({ step }: { step: Step }) {
  const parts = PARTS.filter(([key]) => list<Step>(step[key]).length > 0);

  if (!parts.length) return null;
  return (
    <details open={step.state !== "done"}>
      <summary>{many(parts.reduce((n, [key]) => n + list(step[key]).length, 0), "step")}</summary>
      {parts.map(([key, title]) => (
        <div key={key}>
          {title && <p class="quiet">{title}</p>}
          <Chain steps={list<Step>(step[key])} />
        </div>
      ))}
    </details>
  );
}

function Chain({ steps, run }: { steps: Step[]; run?: RunDetails }) {
  return (
    <ol class="steps">
      {placesOf(steps).map(({ step, lane, row, rows, joins }, i) => {
        const took = run && !lane ? tookOf(step, steps[i - 1], run) : null;
        const again = step.attempt && (run?.attempt ?? 1) > 1;
        const place: CSSProperties = { gridColumn: lane + 1, gridRow: `${row} / span ${rows}` };

        return (
          <li
            key={i}
            class={`${stateClass(step.state)}${lane ? " launch" : ""}${joins ? " joins" : ""}`}
            style={place}
          >
            <strong>{text(step.name)}</strong>
            {step.state && <State state={step.state} />}
            <span class="quiet" title={step.ended ? `ended ${moment(step.ended)}` : undefined}>
              {took !== null ? duration(took) : ""}
              {again ? ` in attempt ${step.attempt}` : ""}
            </span>
            {notesOf(step).map((note) => (
              <span class="quiet" key={note}>
                {note}
              </span>
            ))}
            <Parts step={step} />
          </li>
        );
      })}
    </ol>
  );
}

export function Steps({ run }: { run: RunDetails }) {
  const steps = list<Step>(run.steps);

  if (!steps.length) return <p class="empty">The workflow has no steps, or cannot be read.</p>;
  return <Chain steps={steps} run={run} />;
}
