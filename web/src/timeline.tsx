/* Attempts of a run on one axis of time, the gaps between them, and a table of both. */
import { serverNow } from "./api";
import { duration, list, moment, ms, text } from "./format";
import { State, isLive, stateClass } from "./parts";
import type { Attempt, RunDetails } from "./types";

export interface Segment {
  attempt: Attempt | null; // null: a gap
  from: number;
  to: number;
}

/* Time of the last sign of life of an attempt; a lost one has no end. */
function endOf(attempt: Attempt, next: Attempt | undefined, now: number): number {
  const from = ms(attempt.started) ?? now;
  const end =
    ms(attempt.ended) ?? (isLive(attempt.state) && !next ? now : ms(attempt.sync_at)) ?? from;

  return Math.max(from, Math.min(end, ms(next?.started) ?? Infinity));
}

/* Attempts in their order, with the gaps before them. */
export function segmentsOf(run: RunDetails, now: number): Segment[] {
  const attempts = list<Attempt>(run.attempts).filter((attempt) => ms(attempt.started) !== null);
  const segments: Segment[] = [];
  let end = ms(run.created);

  attempts.sort((a, b) => ms(a.started)! - ms(b.started)!);
  attempts.forEach((attempt, i) => {
    const from = ms(attempt.started)!;

    if (end !== null && from - end >= 1000) segments.push({ attempt: null, from: end, to: from });
    end = endOf(attempt, attempts[i + 1], now);
    segments.push({ attempt, from, to: end });
  });
  return segments;
}

/* Milliseconds without a running attempt, after the first one has begun. */
export function lostTime(segments: Segment[]): number {
  return segments
    .slice(1)
    .reduce((sum, { attempt, from, to }) => sum + (attempt ? 0 : to - from), 0);
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

export function Timeline({ run }: { run: RunDetails }) {
  const segments = segmentsOf(run, serverNow());
  const first = segments[0];

  if (!first) return <p class="empty">The run has no attempt yet.</p>;
  const begin = first.from;
  const end = segments[segments.length - 1]!.to;
  const span = Math.max(1, end - begin);
  const lost = lostTime(segments);

  return (
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
      <p>
        Total time: {duration(end - begin)}. Time lost between attempts: {duration(lost)}.
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
                <AttemptRow key={i} segment={segment} before={segments[i - 1]} />
              ) : null,
            )}
          </tbody>
        </table>
      </div>
    </>
  );
}

function AttemptRow({ segment, before }: { segment: Segment; before: Segment | undefined }) {
  const attempt = segment.attempt!;
  const code = attempt.step_exit_code ?? attempt.exit_code;

  return (
    <tr>
      <td>{text(attempt.attempt)}</td>
      <td>
        <State state={attempt.state} more={attempt.class ? `(${attempt.class})` : ""} />
      </td>
      <td>{before && !before.attempt ? duration(before.to - before.from) : "–"}</td>
      <td>{moment(attempt.started)}</td>
      <td>{duration(segment.to - segment.from)}</td>
      <td>{text(code)}</td>
      <td>{text(attempt.provenance?.host)}</td>
      <td class="message">
        <span title={attempt.message ?? undefined}>{text(attempt.message)}</span>
      </td>
    </tr>
  );
}
