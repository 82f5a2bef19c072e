/* Objects of a prefix: opening, deleting, and uploading by a button or by dropping files. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { messageOf, send } from "./api";
import { Confirm } from "./dialog";
import { count, moment, size } from "./format";
import { MOST_ROWS, type Place, type Row, below, urlOf, useListing } from "./listing";
import { ObjectDialog } from "./object";
import { Empty, Failure, Waiting } from "./parts";
import { link } from "./route";
import { type Column, Table } from "./table";
import { useUploads } from "./uploadlist";
import { droppedFiles, startUpload } from "./uploads";

function RemoveDialog({
  url,
  store,
  recursive,
  onDone,
  onFailed,
  onClose,
}: {
  url: string;
  store: string | null;
  recursive: boolean;
  onDone: () => void;
  onFailed: (text: string) => void;
  onClose: () => void;
}) {
  return (
    <Confirm
      title={recursive ? "Delete all objects below" : "Delete the object"}
      verb="Delete"
      busy="The store is deleting."
      danger
      act={() => send("POST", "/api/remove", { url, store, recursive: recursive ? 1 : null })}
      onDone={onDone}
      onFailed={onFailed}
      onClose={onClose}
    >
      <p>
        <code class="break">{url}</code>
      </p>
      <p>
        {recursive
          ? "All objects whose key begins with this are deleted. "
          : "The object is deleted. "}
        A bucket with versions keeps the old ones; any other keeps nothing.
      </p>
    </Confirm>
  );
}

function startUploads(
  files: { file: File; path: string }[],
  place: Place,
  store: string | null,
): void {
  for (const { file, path } of files) startUpload(file, urlOf(place, place.prefix + path), store);
}

function UploadButton({ place, store }: { place: Place; store: string | null }) {
  const input = useRef<HTMLInputElement>(null);

  return (
    <>
      <button type="button" onClick={() => input.current?.click()}>
        Upload files
      </button>
      <input
        ref={input}
        type="file"
        multiple
        class="hidden"
        tabIndex={-1}
        aria-label="Files to upload"
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])];

          startUploads(
            files.map((file) => ({ file, path: file.name })),
            place,
            store,
          );
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function objectColumns(
  place: Place,
  store: string | null,
  open: (row: Row) => void,
  remove: ((row: Row) => void) | null,
): Column<Row>[] {
  const columns: Column<Row>[] = [
    {
      key: "path",
      label: "Key",
      cell: (row) =>
        row.object ? (
          <button type="button" class="linklike" title={row.key} onClick={() => open(row)}>
            <Key place={place} row={row} />
          </button>
        ) : (
          <a href={link("buckets", urlOf(place, row.key), { store })} title={row.key}>
            {below(place, row.key)}
          </a>
        ),
    },
    {
      key: "size",
      label: "Size",
      cell: (row) =>
        !row.object ? "directory" : row.object.deleted ? "deleted" : size(row.object.size),
    },
    {
      key: "time",
      label: "Modified",
      cell: (row) => (row.object ? moment(row.object.modified) : ""),
    },
  ];

  if (remove)
    columns.push({
      key: "act",
      label: "Delete",
      hideLabel: true,
      cell: (row) =>
        !row.object?.deleted && (
          <button
            type="button"
            class="plain"
            aria-label={`Delete ${row.key}`}
            onClick={() => remove(row)}
          >
            Delete
          </button>
        ),
    });
  return columns;
}

/* Text of a key; the key of a deleted object is struck through. */
function Key({ place, row }: { place: Place; row: Row }) {
  return row.object?.deleted ? <s>{below(place, row.key)}</s> : <>{below(place, row.key)}</>;
}

export function Objects({
  place,
  store,
  readOnly,
  versioning,
  deleted,
  onDeleted,
}: {
  place: Place;
  store: string | null;
  readOnly: boolean;
  versioning: string | null; // null if it is unknown
  deleted: boolean; // deleted objects are shown
  onDeleted: ((on: boolean) => void) | null; // null if the bucket keeps no deleted objects
}) {
  const [start, setStart] = useState("");
  const [typed, setTyped] = useState("");
  const [opened, setOpened] = useState<Row | null>(null);
  const [removed, setRemoved] = useState<Row | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [dragging, setDragging] = useState(false);
  const found = useListing(place, store, start, deleted);
  const done = useUploads().filter((one) => one.state === "done").length;
  const columns = useMemo(
    () => objectColumns(place, store, setOpened, readOnly ? null : remove),
    [place.bucket, place.prefix, store, readOnly],
  );

  useEffect(() => {
    if (done) found.reload();
  }, [done]);

  function remove(row: Row) {
    setFailure(null);
    setRemoved(row);
  }
  function openRow(row: Row) {
    if (row.object) setOpened(row);
    else location.hash = link("buckets", urlOf(place, row.key), { store });
  }
  async function dropped(event: DragEvent) {
    event.preventDefault();
    setDragging(false);
    setFailure(null);
    if (!event.dataTransfer || readOnly) return;
    try {
      startUploads(await droppedFiles(event.dataTransfer), place, store);
    } catch (error) {
      setFailure(messageOf("cannot read the dropped files", error)); // such as a broken link
    }
  }

  return (
    <div
      class={`drop fill${dragging ? " dragging" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setDragging(!readOnly);
      }}
      onDragLeave={() => setDragging(false)}
      onDrop={dropped}
    >
      <div class="bar">
        <form
          class="group grow"
          onSubmit={(event) => {
            event.preventDefault();
            setStart(typed ? place.prefix + typed : "");
          }}
        >
          <input
            type="search"
            class="grow"
            data-filter
            aria-label="List the keys after"
            placeholder="List the keys after … ( / )"
            value={typed}
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              if (!event.currentTarget.value) setStart("");
            }}
          />
          <button type="submit">Go</button>
        </form>
        {onDeleted && (
          <label class="group">
            <input
              type="checkbox"
              checked={deleted}
              onChange={(event) => onDeleted(event.currentTarget.checked)}
            />
            Show deleted
          </label>
        )}
        {!readOnly && <UploadButton place={place} store={store} />}
        <button type="button" onClick={found.reload}>
          Reload
        </button>
      </div>
      {!readOnly && <p class="quiet">Files that are dropped here are uploaded.</p>}
      <Failure text={failure ?? found.error} />
      {!found.begun && <Waiting what="Loading the objects…" />}
      {found.begun && !found.error && !found.rows.length && (
        <Empty>There are no objects here.</Empty>
      )}
      {found.rows.length > 0 && (
        <Table
          fill
          label="Objects"
          rows={found.rows}
          columns={columns}
          rowKey={(row) => row.key}
          onEnd={found.more}
          onOpen={openRow}
        />
      )}
      {found.rows.length > 0 && (
        <p class="quiet foot" role="status">
          {count(found.rows.length)} rows
          {found.next === null
            ? ""
            : found.rows.length < MOST_ROWS
              ? ", more follow"
              : "; list the keys after the last one to see more"}
        </p>
      )}
      {opened?.object && (
        <ObjectDialog
          object={opened.object}
          url={urlOf(place, opened.key)}
          store={store}
          versioning={place.bucket.startsWith("gs:") ? "off" : versioning}
          readOnly={readOnly}
          onRemove={() => {
            remove(opened);
            setOpened(null);
          }}
          onChanged={found.reload}
          onClose={() => setOpened(null)}
        />
      )}
      {removed && (
        <RemoveDialog
          url={urlOf(place, removed.key)}
          store={store}
          recursive={!removed.object}
          onDone={found.reload}
          onFailed={setFailure}
          onClose={() => setRemoved(null)}
        />
      )}
    </div>
  );
}
