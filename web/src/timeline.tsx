/* Attempts of a run on one axis of time, the gaps between them, and a table of both. */
import { serverNow } from "./api";
import { covered, duration, isNumber, list, many, moment, money, ms, text } from "./format";
import { type Loss, lossOf } from "./loss";
import { State, isLive, stateClass } from "./parts";
import type { Attempt, Checkpoint, Metric, RunDetails } from "./types";

export interface Segment {
  attempt: Attempt | null; // null: a gap
  from: number;
  to: number;
}

/* End of an attempt: the recorded end, the present if the attempt is live, else the time of the
 * last report of the attempt. */
function endOf(attempt: Attempt, next: Attempt | undefined, now: number): number {
  const from = ms(attempt.started) ?? now;
  const end =
    ms(attempt.ended) ?? (isLive(attempt.state) && !next ? now : ms(attempt.heard)) ?? from;

  return Math.max(from, Math.min(end, ms(next?.started) ?? Infinity));
}

/* Number of attempts of the run on all machines. */
function countOf(run: RunDetails): number {
  return Math.max(list(run.attempts).length, isNumber(run.attempt) ? run.attempt : 0);
}

/* Returns true if the run has attempts of other machines that are not known here. */
export function isPartial(run: RunDetails): boolean {
  return list(run.attempts).length < countOf(run);
}

/* "2.49 for 2 of 3 attempts"; null if no attempt has a price */
export function costText(run: RunDetails): string | null {
  const priced = list<Attempt>(run.attempts).filter((attempt) => isNumber(attempt.cost));

  return isNumber(run.cost) ? money(run.cost) + covered(priced.length, countOf(run)) : null;
}

/* Attempts in their order, with the gaps before them. Leaves out the gaps if some attempts are
 * unknown, because a gap may be such an attempt. */
export function segmentsOf(run: RunDetails, now: number): Segment[] {
  const attempts = list<Attempt>(run.attempts).filter((attempt) => ms(attempt.started) !== null);
  const segments: Segment[] = [];
  const whole = !isPartial(run);
  let end = ms(run.created);

  attempts.sort((a, b) => ms(a.started)! - ms(b.started)!);
  attempts.forEach((attempt, i) => {
    const from = ms(attempt.started)!;

    if (whole && end !== null && from - end >= 1000)
      segments.push({ attempt: null, from: end, to: from });
    end = endOf(attempt, attempts[i + 1], now);
    segments.push({ attempt, from, to: end });
  });
  return segments;
}

/* Milliseconds without a running attempt, after the first one has begun. The time between a success
 * and a new start is not lost. */
export function lostTime(segments: Segment[]): number {
  return segments.reduce((sum, { attempt, from, to }, i) => {
    const before = segments[i - 1]?.attempt;

    return attempt || !before || before.state === "succeeded" ? sum : sum + to - from;
  }, 0);
}

function Bar({ segment, begin, span }: { segment: Segment; begin: number; span: number }) {
  const { attempt, from, to } = segment;
  const name = attempt ? `attempt ${text(attempt.attempt)}: ${text(attempt.state)}` : "waiting";

  return (
    <span
      class={`segment ${attempt ? stateClass(attempt.state) : "gap"}`}
      title={`${name}, ${duration(to - from)}, from ${moment(from)}`}
      style={{ left: `${((from - begin) / span) * 100}%`, width: `${((to - from) / span) * 100}%` }}
    >
      {attempt && (to - from) / span > 0.06 ? text(attempt.attempt) : ""}
    </span>
  );
}

/* "20 steps, at most 4 min 10 s, 0.17" */
function lossText(loss: Loss): string {
  const parts = [
    loss.steps ? many(loss.steps, "step") : "",
    `${loss.exact ? "" : "at most "}${duration(loss.ms)}`,
    loss.cost === null ? "" : money(loss.cost),
  ];

  return parts.filter(Boolean).join(", ");
}

/* The sum of the losses as text; null if nothing was lost. */
export function lostText(losses: Loss[]): string | null {
  const costs = losses.map((loss) => loss.cost).filter(isNumber);
  const sum = {
    ms: losses.reduce((all, loss) => all + loss.ms, 0),
    exact: losses.every((loss) => loss.exact),
    steps: losses.reduce((all, loss) => all + loss.steps, 0),
    cost: costs.length ? costs.reduce((all, cost) => all + cost, 0) : null,
  };

  if (sum.ms + sum.steps === 0) return null;
  return lossText(sum) + (costs.length ? covered(costs.length, losses.length) : "");
}

export interface TimelineProps {
  run: RunDetails;
  checkpoints: Checkpoint[] | null; // null: not known yet
  metrics: Metric[] | null;
}

export function Timeline({ run, checkpoints, metrics }: TimelineProps) {
  const segments = segmentsOf(run, serverNow());
  const first = segments[0];

  if (!first) return <p class="empty">The run has no attempt yet.</p>;
  const begin = first.from;
  const end = segments[segments.length - 1]!.to;
  const span = Math.max(1, end - begin);
  const losses = segments.map(({ attempt, from, to }) =>
    attempt && checkpoints && metrics
      ? lossOf(attempt, from, to, run, checkpoints, metrics)
      : null,
  );
  const work = lostText(losses.filter((loss) => loss !== null));
  const priced = isNumber(run.cost);
  const partial = isPartial(run);

  return (
    <>
      {!partial && (
        <>
          <div class="timeline" aria-hidden="true">
            {segments.map((segment, i) => (
              <Bar key={i} segment={segment} begin={begin} span={span} />
            ))}
          </div>
          <div class="timeline-ends quiet" aria-hidden="true">
            <span>{moment(begin)}</span>
            <span>{moment(end)}</span>
          </div>
        </>
      )}
      <p>
        {partial
          ? `Known here: ${list(run.attempts).length} of ${many(countOf(run), "attempt")}.`
          : `Total time: ${duration(end - begin)}. ` +
            `Time lost between attempts: ${duration(lostTime(segments))}.`}
        {work && ` Work lost with attempts: ${work}.`}
      </p>
      <div class="table-box" tabIndex={0} role="region" aria-label="Attempts">
        <table aria-label="Attempts">
          <thead>
            <tr>
              <th scope="col">Attempt</th>
              <th scope="col">State</th>
              <th scope="col">Waited</th>
              <th scope="col">Started</th>
              <th scope="col">Time</th>
              {priced && <th scope="col">Cost</th>}
              <th scope="col">Work lost</th>
              <th scope="col">Exit code</th>
              <th scope="col">Host</th>
              <th scope="col" class="message">
                Message
              </th>
            </tr>
          </thead>
          <tbody>
            {segments.map((segment, i) =>
              segment.attempt ? (
                <AttemptRow
                  key={i}
                  segment={segment}
                  before={segments[i - 1]}
                  loss={losses[i] ?? null}
                  priced={priced}
                />
              ) : null,
            )}
          </tbody>
        </table>
      </div>
    </>
  );
}

interface AttemptProps {
  segment: Segment;
  before: Segment | undefined;
  loss: Loss | null;
  priced: boolean;
}

function AttemptRow({ segment, before, loss, priced }: AttemptProps) {
  const attempt = segment.attempt!;
  const code = attempt.step_exit_code ?? attempt.exit_code;

  return (
    <tr>
      <td>{text(attempt.attempt)}</td>
      <td>
        <State state={attempt.state} cause={attempt.class} />
      </td>
      <td>{before && !before.attempt ? duration(before.to - before.from) : "–"}</td>
      <td>{moment(attempt.started)}</td>
      <td>{duration(segment.to - segment.from)}</td>
      {priced && <td>{money(attempt.cost)}</td>}
      <td>{loss ? lossText(loss) : "–"}</td>
      <td>{text(code)}</td>
      <td>{text(attempt.provenance?.host)}</td>
      <td class="message">
        <span title={attempt.message ?? undefined}>{text(attempt.message)}</span>
      </td>
    </tr>
  );
}
