/* Page of one run: its header with the actions, and a tab for each kind of data. */
import { useEffect, useRef, useState } from "preact/hooks";
import { address, serverNow } from "./api";
import { Actions } from "./actions";
import { announce } from "./announce";
import { Checkpoints } from "./checkpoints";
import { Files } from "./files";
import { duration, list, moment, ms, size, strings, text, webAddress } from "./format";
import { Log } from "./log";
import { isBroken } from "./loss";
import { Copy, type Fact, Facts, Failure, State, Waiting, isLive, useTick } from "./parts";
import { RunPlots } from "./plots";
import { usePoll } from "./poll";
import { type Route, link } from "./route";
import { reasonOf } from "./runners";
import { message, sync, took } from "./runs";
import { Steps } from "./steps";
import { Timeline, costText, isPartial } from "./timeline";
import type {
  About,
  Attempt,
  Checkpoint,
  Claim,
  Metric,
  RunDetails,
  Runner,
  Tracked,
} from "./types";
import { Workflow } from "./workflow";

const TABS: [string, string][] = [
  ["", "Overview"],
  ["log", "Log"],
  ["plots", "Plots"],
  ["checkpoints", "Checkpoints"],
  ["files", "Files"],
  ["workflow", "Workflow"],
];

/* Parameters of all requests for a run. */
export interface RunParams extends Record<string, string | null> {
  run: string;
  place: string | null;
}

/* Output of a run; a link if a store of the page has it. */
function Output({ run, output }: { run: RunDetails; output: string }) {
  const { endpoint, place } = run;

  if (endpoint === "embedded")
    return <a href={link("buckets", output, { store: "embedded" })}>{output}</a>;
  if (place) {
    const store = place.endsWith(`:${output}`) ? place.slice(0, -output.length - 1) : null;

    return <a href={link("buckets", output, { store })}>{output}</a>;
  }
  return (
    <>
      <code>{output}</code>
      {endpoint ? <span class="quiet"> at {endpoint}</span> : null}
    </>
  );
}

/* Reason for which a queued run of this machine waits. */
function Queue({ run, about }: { run: RunDetails; about: About | null }) {
  const runners = usePoll<Runner[]>("read the machine", "/api/runners", 2000);
  const claims = usePoll<Claim[]>("read the claims", "/api/claims", 2000);
  const claim = list<Claim>(claims.data).find((one) => one.id === run.id && one.waiting);
  const machine = list<Runner>(runners.data)[0];

  if (!claim || !machine) return null;
  return (
    <p class="message-line">
      Waits: {reasonOf(claim, machine, about?.user ?? "")}.{" "}
      <a href={link("runners")}>Show the runners</a>
    </p>
  );
}

/* A run of an experiment tracker; a link if its page is known. */
function TrackedRun({ one }: { one: Tracked }) {
  const url = webAddress(one.url);

  if (url)
    return (
      <a href={url} rel="noreferrer">
        {url}
      </a>
    );
  if (!one.run) return <>{text(one.place)}</>;
  return (
    <>
      <code>{text(one.run)}</code>
      {one.place ? <span class="quiet"> in {text(one.place)}</span> : null}
    </>
  );
}

const TRACKERS: Record<string, string> = { mlflow: "MLflow", wandb: "Weights & Biases", aim: "Aim" };

function trackedFacts(run: RunDetails): Fact[] {
  return list<Tracked>(run.tracking)
    .filter((one) => one.url || one.run || one.place)
    .map((one) => [TRACKERS[text(one.tracker)] ?? text(one.tracker), <TrackedRun one={one} />]);
}

/*
 * Attempts, and the work that was lost with each. The lost work is not shown if the checkpoints
 * cannot be listed, such as for an HTTP output.
 */
function Attempts({ run, params }: { run: RunDetails; params: RunParams }) {
  const attempts = list<Attempt>(run.attempts);
  const broken = attempts.some(isBroken);
  // Each new value of `of` starts a new request.
  const asked = { ...params, of: `${attempts.length} ${run.state}` };
  const every = isLive(run.state) ? 30_000 : 0;
  const checkpoints = usePoll<Checkpoint[]>(
    "list the checkpoints",
    broken ? address("/api/checkpoints", asked) : null,
    every,
  );
  const metrics = usePoll<Metric[]>(
    "read the metrics",
    broken ? address("/api/metrics", { ...asked, points: "1" }) : null,
    every,
  );

  return (
    <Timeline
      run={run}
      checkpoints={checkpoints.data}
      metrics={metrics.data ?? (metrics.error ? [] : null)}
    />
  );
}

function Overview({ run, params }: { run: RunDetails; params: RunParams }) {
  const kept = list<{ path?: string; restore?: string }>(run.replaced);
  const partial = strings(run.partial);
  const deadline = ms(run.notice?.deadline);

  return (
    <>
      <Facts
        facts={[
          ["Id", <code>{text(run.id)}</code>],
          ["Started", moment(run.started)],
          ["Ended", moment(run.ended)],
          ["Last heard of", run.heard ? moment(run.heard) : null],
          ["Time", duration(took(run))],
          [isPartial(run) ? "Attempt" : "Attempts", text(run.attempt)],
          ["Cost", costText(run)],
          ["Host", text(run.host || list<Attempt>(run.attempts).at(-1)?.provenance?.host)],
          ["Exit code", text(run.step_exit_code ?? run.exit_code)],
          ["Sync", sync(run)],
          [
            "Published",
            run.sync_at
              ? `${text(run.sync_files_published)} files, ${size(run.sync_bytes_published)}`
              : null,
          ],
          ["Sync error", text(run.sync_error)],
          ["Output", run.output ? <Output run={run} output={run.output} /> : null],
          ...trackedFacts(run),
          ["Workflow", run.workflow ? <code>{text(run.workflow)}</code> : null],
          ["Directory", run.directory ? <code>{run.directory}</code> : null],
          ["Ports", Array.isArray(run.ports) ? run.ports.join(", ") : null],
          [
            "Deadline",
            deadline && isLive(run.state) ? `in ${duration(deadline - serverNow())}` : null,
          ],
        ]}
      />
      <h2>Steps</h2>
      <Steps run={run} />
      <h2>Attempts</h2>
      <Attempts run={run} params={params} />
      {partial.length > 0 && (
        <>
          <h2>Suspect files</h2>
          <p>These files were open for writing when their writer died. They are not restored.</p>
          <ul class="names">
            {partial.slice(0, 200).map((path, i) => (
              <li key={i}>{text(path)}</li>
            ))}
          </ul>
        </>
      )}
      {kept.length > 0 && (
        <>
          <h2>Replaced objects</h2>
          <p>The run kept these objects before it overwrote them. The command restores one.</p>
          <ul class="names">
            {kept.slice(0, 200).map((one, i) => (
              <li key={i}>
                {text(one.path)}{" "}
                {one.restore ? <Copy text={one.restore} label="Copy the command" /> : null}
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/* "2 min ago" */
function ended(run: RunDetails): string {
  const at = ms(run.ended);

  return at ? `${duration(serverNow() - at)} ago` : "at an unknown time";
}

function Tabs({ id, tab, place }: { id: string; tab: string; place: string | null }) {
  return (
    <nav class="tabs" aria-label="Parts of the run">
      {TABS.map(([name, label]) => (
        <a
          key={name}
          href={link("run", name ? `${id}/${name}` : id, { place })}
          aria-current={name === tab ? "page" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

function useStateChanges(run: RunDetails | null): void {
  const before = useRef<string | null>(null);

  useEffect(() => {
    const now = run ? String(run.state) : null;

    if (before.current && now && now !== before.current)
      announce(`${run!.name ?? run!.id}: ${now}`);
    before.current = now;
  }, [run?.state]);
}

const MOST_LOGS = 1000; // attempts whose logs can be chosen

function LogTab({ run, params }: { run: RunDetails; params: RunParams }) {
  const last = run.attempt ?? 1;
  const [chosen, setChosen] = useState<number | null>(null); // null: the newest
  // The logs of attempts on other machines are next to the output.
  const newest = Math.max(1, last);
  const attempts = Array.from({ length: Math.min(newest, MOST_LOGS) }, (_, i) => newest - i);

  return (
    <Log
      key={chosen ?? last}
      params={params}
      attempts={attempts}
      attempt={chosen ?? newest}
      onAttempt={(attempt) => setChosen(attempt === last ? null : attempt)}
    />
  );
}

function PlotsTab({ params, live }: { params: RunParams; live: boolean }) {
  const metrics = usePoll<Metric[]>(
    "read the metrics",
    address("/api/metrics", params),
    live ? 5000 : 0,
  );

  return <RunPlots metrics={metrics.data} error={metrics.error ?? metrics.warning} />;
}

function Tab({
  tab,
  run,
  params,
  wanted,
}: {
  tab: string;
  run: RunDetails;
  params: RunParams;
  wanted: string;
}) {
  const live = isLive(run.state);

  if (tab === "log") return <LogTab run={run} params={params} />;
  if (tab === "plots") return <PlotsTab params={params} live={live} />;
  if (tab === "checkpoints") return <Checkpoints params={params} live={live} />;
  if (tab === "files") return <Files run={run} params={params} live={live} wanted={wanted} />;
  if (tab === "workflow") return <Workflow run={run} params={params} />;
  return <Overview run={run} params={params} />;
}

export function RunPage({ route, about }: { route: Route; about: About | null }) {
  const [id = "", tab = ""] = route.rest.split("/", 2);
  const place = route.query.get("place");
  const params: RunParams = { run: id, place };
  const run = usePoll<RunDetails>("show the run", address("/api/run", params), 1000);
  const { data } = run;
  const live = isLive(data?.state);

  useStateChanges(data);
  useTick(live);
  useEffect(() => {
    if (data) document.title = `${data.name ?? id} – penstock`;
  }, [data?.name, id]);

  return (
    <section
      class={`page${tab === "log" || tab === "files" ? " full" : ""}`}
      aria-labelledby="run-title"
    >
      <div class="bar">
        <h1 id="run-title">{data?.name || id}</h1>
        {data && <State state={data.state} cause={data.class} />}
        {data && (
          <span class="quiet grow">
            {live
              ? `for ${duration(took(data))}`
              : `${duration(took(data))}, ended ${ended(data)}`}
          </span>
        )}
        {data && about && !about.readOnly && (
          <Actions run={data} place={place} onDone={run.refresh} />
        )}
      </div>
      {data && (data.message || data.notice) && (
        <p class="message-line">
          {message(data)}{" "}
          {tab !== "log" && <a href={link("run", `${id}/log`, { place })}>Show the log</a>}
        </p>
      )}
      {data?.state === "queued" && !place && <Queue run={data} about={about} />}
      {place && <p class="quiet">The run belongs to another machine: {place}</p>}
      <Failure text={run.error} />
      <Tabs id={id} tab={tab} place={place} />
      {data ? (
        <Tab tab={tab} run={data} params={params} wanted={route.query.get("filter") ?? ""} />
      ) : (
        !run.error && <Waiting what="Loading the run…" />
      )}
    </section>
  );
}
