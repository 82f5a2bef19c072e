/*
 * Page that compares runs: a table of their parameters, and their metrics in common plots. The
 * address of the page has the ids, "#/compare/ID,ID", and the place of a run of another machine:
 * "?ID=s3://…".
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { address } from "./api";
import { duration, flatten, list, moment, text, value } from "./format";
import { Empty, Failure, State, isLive } from "./parts";
import { type PlotGroup, Plots } from "./plots";
import { usePoll } from "./poll";
import { type Route, link } from "./route";
import { took } from "./runs";
import { summaryOf } from "./series";
import type { Attempt, Metric, RunDetails } from "./types";
import { useWorkflow } from "./workflow";

const MOST = 8;

interface Compared {
  id: string;
  run: RunDetails | null;
  metrics: Metric[] | null;
  workflow: string | null;
  error: string | null;
}

interface Row {
  name: string;
  values: string[];
  differs: boolean;
}

/* ---- rows ---- */

function parametersOf({ run, workflow }: Compared): Map<string, string> {
  const all = new Map<string, string>();
  const notes = list<Attempt>(run?.attempts).at(-1)?.provenance;

  if (!run) return all;
  all.set("state", text(run.state));
  all.set("attempt", text(run.attempt));
  all.set("started", moment(run.started));
  all.set("time", duration(took(run)));
  all.set("exit code", text(run.step_exit_code ?? run.exit_code));
  all.set("class", text(run.class));
  all.set("message", text(run.message));
  all.set("host", text(notes?.host));
  all.set("penstock", text(notes?.penstock));
  all.set("workflow file", text(run.workflow));
  all.set("output", text(run.output));
  (Array.isArray(notes?.overrides) ? notes.overrides : []).forEach((override) => {
    const [name = "", ...rest] = text(override).split("=");

    all.set(`override ${name}`, rest.length ? rest.join("=") : "given");
  });
  if (run.resources) flatten(run.resources, "resources", all);
  try {
    if (workflow) flatten(JSON.parse(workflow), "workflow", all);
  } catch {
    // A workflow that is YAML or incomplete is compared only by its file name and overrides.
  }
  return all;
}

function metricsOf({ metrics }: Compared): Map<string, string> {
  const named = list<Metric>(metrics).filter(
    (one) => typeof one.name === "string" && !one.name.startsWith("usage/"),
  );

  return new Map(named.map((one) => [`last ${one.name}`, value(summaryOf(one).last)]));
}

function rowsOf(runs: Compared[], read: (run: Compared) => Map<string, string>): Row[] {
  const maps = runs.map(read);
  const names = new Set(maps.flatMap((map) => [...map.keys()]));

  return [...names].map((name) => {
    const values = maps.map((map) => map.get(name) ?? "–");

    return { name, values, differs: new Set(values).size > 1 };
  });
}

function groupsOf(runs: Compared[]): PlotGroup[] {
  const groups = new Map<string, PlotGroup>();

  for (const { id, run, metrics } of runs) {
    const label = `${run?.name ?? "run"} ${id.slice(0, 6)}`;

    for (const metric of list<Metric>(metrics)) {
      if (typeof metric.name !== "string") continue;
      const group = groups.get(metric.name) ?? { name: metric.name, curves: [] };

      group.curves.push({ label, metric });
      groups.set(metric.name, group);
    }
  }
  return [...groups.values()];
}

/* ---- parts ---- */

/* Reads one run, and reports what it has read. Draws only a failure. */
function Reader({
  id,
  place,
  onRead,
}: {
  id: string;
  place: string | null;
  onRead: (compared: Compared) => void;
}) {
  const params = { run: id, place };
  const run = usePoll<RunDetails>("show the run", address("/api/run", params), 3000);
  const every = isLive(run.data?.state) ? 10_000 : 0;
  const metrics = usePoll<Metric[]>("read the metrics", address("/api/metrics", params), every);
  const { workflow } = useWorkflow(params);
  const error = run.error ?? metrics.error ?? metrics.warning;

  useEffect(() => {
    onRead({ id, run: run.data, metrics: metrics.data, workflow, error });
  }, [run.data, metrics.data, workflow, error]);
  return <Failure text={error && `${id}: ${error}`} />;
}

function Parameters({ runs }: { runs: Compared[] }) {
  const [differing, setDiffering] = useState(true);
  const rows = [...rowsOf(runs, parametersOf), ...rowsOf(runs, metricsOf)];
  const shown = differing ? rows.filter((row) => row.differs) : rows;

  return (
    <>
      <div class="bar">
        <h2 class="grow">Parameters</h2>
        <label class="group">
          <input
            type="checkbox"
            checked={differing}
            onChange={(event) => setDiffering(event.currentTarget.checked)}
          />
          Only those that differ
        </label>
      </div>
      {!shown.length && <Empty>All parameters are equal.</Empty>}
      <div class="table-box" tabIndex={0} role="region" aria-label="Parameters">
        <table class="parameters" aria-label="Parameters">
          <thead>
            <tr>
              <th scope="col">Parameter</th>
              {runs.map(({ id, run }) => (
                <th scope="col" key={id}>
                  <a href={link("run", id, { place: run?.place })}>{run?.name ?? "run"}</a>{" "}
                  <code>{id.slice(0, 6)}</code> {run && <State state={run.state} />}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.name} class={row.differs ? "differs" : ""}>
                <th scope="row">
                  {row.name}
                  {row.differs && <span class="hidden"> (differs)</span>}
                </th>
                {row.values.map((one, i) => (
                  <td key={i}>{one.length > 300 ? `${one.slice(0, 300)}…` : one}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export function ComparePage({ route }: { route: Route }) {
  const ids = [...new Set(route.rest.split(",").filter(Boolean))].slice(0, MOST);
  const [read, setRead] = useState<Map<string, Compared>>(new Map());
  const runs = ids.map(
    (id) => read.get(id) ?? { id, run: null, metrics: null, workflow: null, error: null },
  );
  const groups = useMemo(() => groupsOf(runs), [read, route.rest]);

  return (
    <section class="page" aria-labelledby="compare-title">
      <h1 id="compare-title">Comparison of {ids.length} runs</h1>
      {!ids.length && (
        <Empty>
          Choose runs in the <a href="#/runs">list of runs</a>.
        </Empty>
      )}
      {ids.map((id) => (
        <Reader
          key={id}
          id={id}
          place={route.query.get(id)}
          onRead={(one) => setRead((old) => new Map(old).set(id, one))}
        />
      ))}
      {ids.length > 0 && <Parameters runs={runs} />}
      {ids.length > 0 && <Plots groups={groups} />}
    </section>
  );
}
