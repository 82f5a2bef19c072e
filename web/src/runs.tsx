/* Page of all runs: filter, sort, choose some to compare. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { serverNow } from "./api";
import { announce } from "./announce";
import { merge } from "./changes";
import { duration, list, moment, ms, many, size, span, text } from "./format";
import { Empty, Failure, State, Waiting, isLive, useTick } from "./parts";
import { usePoll } from "./poll";
import { link } from "./route";
import { type Column, type Sort, Table } from "./table";
import type { About, Run } from "./types";

const MOST_COMPARED = 8;

/* Choices that survive a visit to another page. */
const kept = {
  filter: "",
  state: "",
  sort: { key: "age", down: false } as Sort,
  chosen: new Map<string, string | null>(), // ids with their places
};

export function runLink(run: Run, tab = ""): string {
  return link("run", `${run.id ?? ""}${tab ? `/${tab}` : ""}`, { place: run.place });
}

export function age(run: Run): number | null {
  const began = ms(run.started) ?? ms(run.created);

  return began === null ? null : Math.max(0, serverNow() - began);
}

export function took(run: Run): number | null {
  const began = ms(run.started);
  const ended = isLive(run.state) ? serverNow() : (ms(run.ended) ?? ms(run.heard));

  return began === null || ended === null ? null : ended - began;
}

export function sync(run: Run): string {
  if (run.unflushed) return "not flushed";
  if (!run.sync_at) return "–";
  if (!run.sync_lag_ms && !run.sync_lag_bytes) return "in sync";
  return `${duration(run.sync_lag_ms)} behind by ${size(run.sync_lag_bytes)}`;
}

function lag(run: Run): number | null {
  if (run.unflushed) return Number.MAX_VALUE;
  return run.sync_at ? (run.sync_lag_bytes ?? 0) : null;
}

/* Line next to a run: its notice, message or workflow. */
export function message(run: Run): string {
  const { notice } = run;

  if (notice?.source && !notice.withdrawn && isLive(run.state)) {
    const when = notice.soon ? "may be preempted soon" : "is being preempted";

    return `${when} (${notice.source}: ${text(notice.reason)})`;
  }
  const heard = ms(run.heard);

  if (run.state === "lost" && !run.workflow && !run.message && heard !== null)
    return `last heard of ${duration(serverNow() - heard)} ago`;
  return text(run.message || run.sync_error || run.workflow);
}

function where(run: Run, host: string): string {
  return text(run.host || run.place || host);
}

export const identity = (run: Run) => `${run.id ?? ""} ${run.place ?? ""}`;

/* Reports changed states to screen readers. */
function useChanges(runs: Run[] | null): void {
  const before = useRef<Map<string, string> | null>(null);

  useEffect(() => {
    if (!runs) return;
    const now = new Map(runs.map((run) => [identity(run), String(run.state)]));
    const changed = before.current
      ? runs.filter((run) => before.current!.get(identity(run)) !== String(run.state))
      : [];

    before.current = now;
    if (changed.length > 3) announce(`${changed.length} runs have changed`);
    else if (changed.length)
      announce(changed.map((run) => `${run.name ?? run.id}: ${run.state}`).join(", "));
  }, [runs]);
}

function columnsOf(
  host: string,
  chosen: Map<string, string | null>,
  choose: (run: Run) => void,
): Column<Run>[] {
  return [
    {
      key: "choose",
      label: "Compare",
      hideLabel: true,
      cell: (run) => (
        <label class="check">
          <input
            type="checkbox"
            checked={chosen.has(run.id ?? "")}
            disabled={!chosen.has(run.id ?? "") && chosen.size >= MOST_COMPARED}
            aria-label={`Compare ${run.name ?? run.id}`}
            onChange={() => choose(run)}
          />
        </label>
      ),
    },
    {
      key: "state",
      label: "State",
      order: (run) => run.state,
      cell: (run) => <State state={run.state} />,
    },
    {
      key: "name",
      label: "Name",
      order: (run) => run.name && text(run.name).toLowerCase(),
      cell: (run) => (
        <a href={runLink(run)} title={run.name ?? undefined}>
          {run.name ? text(run.name) : "(no name)"}
        </a>
      ),
    },
    { key: "id", label: "Id", order: (run) => run.id, cell: (run) => text(run.id) },
    {
      key: "where",
      label: "Where",
      order: (run) => where(run, host),
      cell: (run) => <span title={run.place || where(run, host)}>{where(run, host)}</span>,
    },
    {
      key: "age",
      label: "Age",
      order: age,
      cell: (run) => <span title={moment(run.started ?? run.created)}>{span(age(run))}</span>,
    },
    {
      key: "took",
      label: "Time",
      order: took,
      cell: (run) => <span title={duration(took(run))}>{span(took(run))}</span>,
    },
    {
      key: "attempt",
      label: "Attempt",
      order: (run) => run.attempt,
      cell: (run) => text(run.attempt),
    },
    { key: "sync", label: "Sync", order: lag, cell: sync },
    {
      key: "message",
      label: "Message",
      order: message,
      cell: (run) => <span title={message(run)}>{message(run)}</span>,
    },
  ];
}

function matches(run: Run, words: string[], host: string): boolean {
  if (!words.length) return true;
  const all =
    `${run.name ?? ""} ${run.id ?? ""} ${where(run, host)} ${run.place ?? ""} ${message(run)} ${run.output ?? ""}`.toLowerCase();

  return words.every((word) => all.includes(word));
}

export function RunsPage({ about }: { about: About | null }) {
  const runs = usePoll<Run[]>("list the runs", "/api/runs", 1000, merge);
  const failures = usePoll<{ place?: string; error?: string }[]>(
    "list the places",
    "/api/failures",
    5000,
  );
  const [filter, setFilter] = useState(kept.filter);
  const [state, setState] = useState(kept.state);
  const [sort, setSort] = useState(kept.sort);
  const [chosen, setChosen] = useState(kept.chosen);
  const all = useMemo(() => list<Run>(runs.data), [runs.data]);
  const host = about?.host ?? "";

  Object.assign(kept, { filter, state, sort, chosen });
  useChanges(runs.data ? all : null);
  useTick(all.some((run) => isLive(run.state)));

  const shown = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);

    return all.filter((run) => (!state || run.state === state) && matches(run, words, host));
  }, [all, filter, state, host]);
  const states = useMemo(() => countStates(all), [all]);
  const columns = useMemo(
    () =>
      columnsOf(host, chosen, (run) => {
        const next = new Map(chosen);

        if (!next.delete(run.id ?? "")) next.set(run.id ?? "", run.place ?? null);
        setChosen(next);
      }),
    [host, chosen],
  );

  return (
    <section class="page full" aria-labelledby="runs-title">
      <div class="bar">
        <h1 id="runs-title">Runs</h1>
        <input
          type="search"
          class="grow"
          data-filter
          aria-label="Filter the runs"
          placeholder="Filter by name, id, place or message ( / )"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <select
          aria-label="State"
          value={state}
          onChange={(event) => setState(event.currentTarget.value)}
        >
          <option value="">all states</option>
          {states.map(([name, n]) => (
            <option key={name} value={name}>
              {name} ({n})
            </option>
          ))}
        </select>
        {chosen.size > 0 && (
          <>
            {chosen.size > 1 ? (
              <a
                class="button primary"
                href={link("compare", [...chosen.keys()].join(","), Object.fromEntries(chosen))}
              >
                Compare {chosen.size} runs
              </a>
            ) : (
              <span class="quiet">Choose a second run to compare</span>
            )}
            <button type="button" onClick={() => setChosen(new Map())}>
              Clear
            </button>
          </>
        )}
      </div>
      <Failure text={runs.error} />
      {list<{ place?: string; error?: string }>(failures.data).map((one) => (
        <Failure key={one.place} text={`cannot list ${text(one.place)}: ${text(one.error)}`} />
      ))}
      {!runs.data && !runs.error && <Waiting what="Loading the runs…" />}
      {runs.data && all.length === 0 && (
        <Empty>
          There are no runs yet. <code>penstock run workflow.yaml</code> starts one.
        </Empty>
      )}
      {all.length > 0 && !shown.length && <Empty>No run matches the filter.</Empty>}
      {shown.length > 0 && (
        <>
          <Table
            fill
            label="List of runs"
            rows={shown}
            columns={columns}
            rowKey={identity}
            sort={sort}
            onSort={setSort}
            onOpen={(run) => void (location.hash = runLink(run))}
          />
          <p class="quiet foot" role="status">
            {shown.length === all.length
              ? many(all.length, "run")
              : `${many(shown.length, "run")} of ${all.length.toLocaleString("en-US")}`}
          </p>
        </>
      )}
    </section>
  );
}

function countStates(runs: Run[]): [string, number][] {
  const counts = new Map<string, number>();

  for (const run of runs) {
    const name = String(run.state ?? "unknown");

    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
}
