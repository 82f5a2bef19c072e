/* Files of the output of a run: sizes, previews, downloads. */
import { useMemo, useState } from "preact/hooks";
import { address } from "./api";
import { Dialog } from "./dialog";
import { isNumber, list, many, size, text } from "./format";
import { Empty, Failure, Waiting } from "./parts";
import { usePoll } from "./poll";
import { Preview } from "./preview";
import type { RunParams } from "./run";
import { baseName, fileSource } from "./source";
import { type Column, type Sort, Table } from "./table";
import type { OutputFile, RunDetails } from "./types";

export function Files({
  run,
  params,
  live,
  wanted,
}: {
  run: RunDetails;
  params: RunParams;
  live: boolean;
  wanted: string; // first filter
}) {
  const found = usePoll<OutputFile[]>(
    "list the output",
    address("/api/files", params),
    live ? 5000 : 0,
  );
  const [filter, setFilter] = useState(wanted);
  const [sort, setSort] = useState<Sort>({ key: "path", down: false });
  const [shown, setShown] = useState<OutputFile | null>(null);
  const all = list<OutputFile>(found.data).filter((file) => typeof file.path === "string");
  const open = useMemo(
    () =>
      new Set(
        list<{ path?: string | null; open?: boolean }>(run.outputs)
          .filter((one) => one.open)
          .map((one) => one.path),
      ),
    [run.outputs],
  );
  const sourceOf = (file: OutputFile) =>
    fileSource(params, file.path!, isNumber(file.size) ? file.size : null);
  const rows = useMemo(
    () => all.filter((file) => file.path!.toLowerCase().includes(filter.toLowerCase())),
    [found.data, filter],
  );
  const columns = useMemo<Column<OutputFile>[]>(
    () => [
      {
        key: "path",
        label: "File",
        order: (file) => file.path,
        cell: (file) => (
          <button type="button" class="linklike" title={file.path!} onClick={() => setShown(file)}>
            {file.path}
          </button>
        ),
      },
      { key: "size", label: "Size", order: (file) => file.size, cell: (file) => size(file.size) },
      {
        key: "state-of",
        label: "State",
        cell: (file) => (open.has(file.path) ? "still written" : ""),
      },
      {
        key: "act",
        label: "Download",
        hideLabel: true,
        cell: (file) => (
          <a
            href={sourceOf(file).download}
            download={baseName(file.path!)}
            aria-label={`Download ${file.path}`}
          >
            Download
          </a>
        ),
      },
    ],
    [open, params.run, params.place],
  );

  return (
    <>
      <div class="bar">
        <input
          type="search"
          class="grow"
          data-filter
          aria-label="Filter the files"
          placeholder="Filter by path ( / )"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <span class="quiet">
          {many(rows.length, "file")}, {size(rows.reduce((sum, file) => sum + (file.size ?? 0), 0))}
        </span>
      </div>
      <Failure text={found.error} />
      {!found.data && !found.error && <Waiting what="Loading the output…" />}
      {found.data && !all.length && <Empty>The output has no files yet.</Empty>}
      {all.length > 0 && (
        <Table
          fill
          label="Files of the output"
          rows={rows}
          columns={columns}
          rowKey={(file) => file.path!}
          sort={sort}
          onSort={setSort}
          onOpen={setShown}
        />
      )}
      {shown && (
        <Dialog wide title={text(shown.path)} onClose={() => setShown(null)}>
          <p class="buttons start">
            <span class="quiet">{size(shown.size)}</span>
            <a class="button" href={sourceOf(shown).download} download={baseName(shown.path!)}>
              Download
            </a>
          </p>
          <Preview source={sourceOf(shown)} />
        </Dialog>
      )}
    </>
  );
}
