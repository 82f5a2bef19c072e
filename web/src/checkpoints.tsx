/* Checkpoints of a run, newest first, with their metrics. */
import { address } from "./api";
import { count, list, ms, moment, size, text, value } from "./format";
import { Empty, Failure, Waiting } from "./parts";
import { usePoll } from "./poll";
import { link } from "./route";
import { type Column, Table } from "./table";
import type { RunParams } from "./run";
import type { Checkpoint } from "./types";

const COMMITTED: Column<Checkpoint>[] = [
  { key: "step", label: "Step", cell: (one) => count(one.step) },
  { key: "attempt", label: "Attempt", cell: (one) => text(one.attempt) },
  { key: "time", label: "Time", cell: (one) => moment(one.time) },
  { key: "files", label: "Files", cell: (one) => count(one.files) },
  { key: "size", label: "Size", cell: (one) => size(one.bytes) },
  {
    key: "message",
    label: "Metrics",
    cell: (one) => <span title={metricsOf(one)}>{metricsOf(one)}</span>,
  },
];

const FILES: Column<Checkpoint>[] = [
  { key: "size", label: "Size", cell: (one) => size(one.bytes) },
  { key: "time", label: "Time", cell: (one) => moment(one.time) },
];

function metricsOf(one: Checkpoint): string {
  if (one.why) return `unreadable: ${one.why}`;
  return (
    Object.entries(one.metrics ?? {})
      .map(([name, n]) => `${name} ${value(n)}`)
      .join(", ") || "–"
  );
}

/* The name leads to the files, which have previews and downloads. */
function nameColumn(params: RunParams): Column<Checkpoint> {
  return {
    key: "name",
    label: "Name",
    cell: (one) => {
      const filter = one.file ?? `${text(one.name)}/`;

      return (
        <a href={link("run", `${params.run}/files`, { place: params.place, filter })}>
          {text(one.file ?? one.name)}
        </a>
      );
    },
  };
}

export function Checkpoints({ params, live }: { params: RunParams; live: boolean }) {
  const found = usePoll<Checkpoint[]>(
    "list the checkpoints",
    address("/api/checkpoints", params),
    live ? 5000 : 0,
  );
  const rows = list<Checkpoint>(found.data);
  const committed = rows.some((one) => one.name);

  return (
    <>
      <Failure text={found.error} />
      {!found.data && !found.error && <Waiting what="Loading the checkpoints…" />}
      {found.data && !rows.length && <Empty>The run has committed no checkpoint.</Empty>}
      {rows.length > 0 && !committed && (
        <p>The run has committed no checkpoint. It continues from these files of its output.</p>
      )}
      {rows.length > 0 && (
        <Table
          label="Checkpoints"
          rows={rows}
          columns={[nameColumn(params), ...(committed ? COMMITTED : FILES)]}
          rowKey={(one) => `${one.name ?? one.file} ${ms(one.time)}`}
        />
      )}
    </>
  );
}
