/* Places of the steps of a list in a graph. Steps that run one after the other are in lane 0. Each
 * launch is in another lane: the launch begins next to the step that follows it, and ends before
 * the step that waits for it. */
import { list, strings } from "./format";
import type { Step } from "./types";

export interface Place {
  step: Step;
  lane: number;
  row: number; // from 1
  rows: number; // rows that the step spans
  joins: boolean; // a step of the list waits for this launch
}

/* Returns true if the step, or one within it, waits for the launch of this name. */
function waitsFor(step: Step, handle: string): boolean {
  const parts = [step.steps, step.catch, step.finally];

  return (
    strings(step.depends_on).some((one) => one.toUpperCase() === handle) ||
    parts.some((part) => list<Step>(part).some((inner) => waitsFor(inner, handle)))
  );
}

export function placesOf(steps: Step[]): Place[] {
  const rows: number[] = []; // row of each step; a launch has the row of the next step
  const ends: number[] = []; // last row in use, by lane
  let row = 1;

  for (const step of steps) {
    rows.push(row);
    if (step.kind !== "launch") row++;
  }
  return steps.map((step, i) => {
    const place = { step, lane: 0, row: rows[i] ?? 1, rows: 1, joins: false };

    if (step.kind !== "launch") return place;
    const handle = String(step.handle ?? "").toUpperCase();
    const join = handle
      ? steps.findIndex((other, k) => k > i && waitsFor(other, handle))
      : -1;
    const until = join >= 0 ? (rows[join] ?? row) : row;

    place.joins = join >= 0;
    place.rows = Math.max(1, until - place.row);
    place.lane = 1;
    while ((ends[place.lane] ?? 0) >= place.row) place.lane++;
    ends[place.lane] = place.row + place.rows - 1;
    return place;
  });
}
