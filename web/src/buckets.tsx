/* Page of the stores: buckets, then the objects of a prefix, page by page. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, getJson, messageOf, send } from "./api";
import { Confirm } from "./dialog";
import { count, list, moment, size, strings, text } from "./format";
import { ObjectDialog } from "./object";
import { Empty, Failure, Waiting } from "./parts";
import { usePoll } from "./poll";
import { type Route, link } from "./route";
import { type Column, Table } from "./table";
import type { About, Bucket, Listing, StoredObject } from "./types";
import { UploadList, useUploads } from "./uploadlist";
import { droppedFiles, startUpload } from "./uploads";

const PAGE = 1000; // rows of a request
const MOST_ROWS = 200_000; // in memory

/* ---- places ---- */

export interface Place {
  bucket: string; // with its scheme: "s3://bucket"
  prefix: string; // of keys, "" or "a/b/"
}

export function placeOf(url: string): Place | null {
  const found = /^((?:s3|gs):\/\/[^/]+)\/?(.*)$/s.exec(url);

  return found ? { bucket: found[1]!, prefix: found[2]! } : null;
}

function urlOf(place: Place, key: string): string {
  return `${place.bucket}/${key}`;
}

/* Name of a key below the prefix. */
function below(place: Place, key: string): string {
  return key.startsWith(place.prefix) && key.length > place.prefix.length ? key.slice(place.prefix.length) : key;
}

function Breadcrumb({ place, store }: { place: Place | null; store: string | null }) {
  const parts = place ? place.prefix.split("/").filter((_, i, all) => i < all.length - 1 || all[i]) : [];

  return (
    <nav aria-label="Place" class="breadcrumb">
      <a href={link("buckets", "", { store })} aria-current={place ? undefined : "page"}>
        buckets
      </a>
      {place && (
        <a href={link("buckets", `${place.bucket}/`, { store })} aria-current={parts.length ? undefined : "page"}>
          {place.bucket.replace(/^s3:\/\//, "")}
        </a>
      )}
      {parts.map((part, i) => (
        <a
          key={i}
          href={link("buckets", urlOf(place!, `${parts.slice(0, i + 1).join("/")}/`), { store })}
          aria-current={i === parts.length - 1 ? "page" : undefined}
        >
          {part || "(empty)"}
        </a>
      ))}
    </nav>
  );
}

/* ---- buckets ---- */

function BucketList({ store }: { store: string | null }) {
  const buckets = usePoll<Bucket[]>("list the buckets", address("/api/buckets", { store }), 0);
  const rows = list<Bucket>(buckets.data).filter((one) => one.bucket);
  const columns: Column<Bucket>[] = [
    {
      key: "name",
      label: "Bucket",
      cell: (one) => <a href={link("buckets", `s3://${one.bucket}/`, { store })}>{one.bucket}</a>,
    },
    { key: "time", label: "Created", cell: (one) => moment(one.created) },
  ];

  return (
    <>
      <Failure text={buckets.error} />
      {!buckets.data && !buckets.error && <Waiting what="The buckets are being listed." />}
      {buckets.data && !rows.length && <Empty>The store has no buckets.</Empty>}
      {rows.length > 0 && (
        <Table
          fill
          label="List of buckets"
          rows={rows}
          columns={columns}
          rowKey={(one) => one.bucket!}
          onOpen={(one) => void (location.hash = link("buckets", `s3://${one.bucket}/`, { store }))}
        />
      )}
    </>
  );
}

/* ---- objects of a prefix ---- */

interface Row {
  key: string;
  object: StoredObject | null; // null: a directory
}

interface Loaded {
  rows: Row[];
  next: string | null;
  begun: boolean; // a page has arrived
  error: string | null;
}

const NOTHING: Loaded = { rows: [], next: null, begun: false, error: null };

function rowsOf(listing: Listing, place: Place): Row[] {
  const dirs = strings(listing.dirs).map((dir) => {
    const key = dir.startsWith(place.prefix) ? dir : place.prefix + dir;

    return { key, object: null };
  });
  const objects = list<StoredObject>(listing.objects)
    .filter((object) => typeof object.key === "string" && object.key !== place.prefix)
    .map((object) => ({ key: object.key!, object }));

  return [...dirs, ...objects];
}

/* Pages of a prefix. `more` reads the next one, `reload` starts again. */
function useListing(place: Place, store: string | null, start: string) {
  const url = urlOf(place, place.prefix);
  const [loaded, setLoaded] = useState(NOTHING);
  const state = useRef({ busy: false, loaded: NOTHING, abort: new AbortController() });

  const read = useCallback(
    async (after: string | null, before: Row[]) => {
      const now = state.current;
      const { signal } = now.abort;

      now.busy = true;
      try {
        const params = { url, store, after, limit: PAGE };
        const listing = (await getJson<Listing | null>("/api/list", params, signal)) ?? {};
        const known = new Set(before.slice(-2 * PAGE).map((row) => row.key));
        const rows = before.concat(rowsOf(listing, place).filter((row) => !known.has(row.key)));

        now.loaded = { rows, next: listing.next ?? null, begun: true, error: null };
      } catch (error) {
        if (signal.aborted) return;
        now.loaded = { ...now.loaded, begun: true, error: messageOf("cannot list the objects", error) };
      }
      now.busy = false;
      setLoaded(now.loaded);
    },
    [url, store],
  );
  const reload = useCallback(() => {
    state.current.abort.abort();
    state.current = { busy: false, loaded: NOTHING, abort: new AbortController() };
    void read(start || null, []);
  }, [read, start]);
  const more = useCallback(() => {
    const { busy, loaded: now } = state.current;

    if (!busy && now.next !== null && !now.error && now.rows.length < MOST_ROWS) void read(now.next, now.rows);
  }, [read]);

  useEffect(() => {
    setLoaded(NOTHING);
    reload();
    return () => state.current.abort.abort();
  }, [reload]);
  return { ...loaded, more, reload };
}

function RemoveDialog({ url, store, recursive, onDone, onClose }: {
  url: string;
  store: string | null;
  recursive: boolean;
  onDone: () => void;
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
      onClose={onClose}
    >
      <p>
        <code class="break">{url}</code>
      </p>
      <p>
        {recursive ? "All objects whose key begins with this are deleted. " : "The object is deleted. "}A bucket with
        versions keeps the old ones; any other keeps nothing.
      </p>
    </Confirm>
  );
}

function startUploads(files: { file: File; path: string }[], place: Place, store: string | null): void {
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

          startUploads(files.map((file) => ({ file, path: file.name })), place, store);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function objectColumns(place: Place, store: string | null, open: (row: Row) => void, remove: ((row: Row) => void) | null): Column<Row>[] {
  const columns: Column<Row>[] = [
    {
      key: "path",
      label: "Key",
      cell: (row) =>
        row.object ? (
          <button type="button" class="linklike" title={row.key} onClick={() => open(row)}>
            {below(place, row.key)}
          </button>
        ) : (
          <a href={link("buckets", urlOf(place, row.key), { store })} title={row.key}>
            {below(place, row.key)}
          </a>
        ),
    },
    { key: "size", label: "Size", cell: (row) => (row.object ? size(row.object.size) : "directory") },
    { key: "time", label: "Modified", cell: (row) => (row.object ? moment(row.object.modified) : "") },
  ];

  if (remove)
    columns.push({
      key: "act",
      label: "Delete",
      hideLabel: true,
      cell: (row) => (
        <button type="button" class="plain" aria-label={`Delete ${row.key}`} onClick={() => remove(row)}>
          Delete
        </button>
      ),
    });
  return columns;
}

function Objects({ place, store, readOnly }: { place: Place; store: string | null; readOnly: boolean }) {
  const [start, setStart] = useState("");
  const [typed, setTyped] = useState("");
  const [opened, setOpened] = useState<Row | null>(null);
  const [removed, setRemoved] = useState<Row | null>(null);
  const [dragging, setDragging] = useState(false);
  const found = useListing(place, store, start);
  const done = useUploads().filter((one) => one.state === "done").length;
  const columns = useMemo(
    () => objectColumns(place, store, setOpened, readOnly ? null : setRemoved),
    [place.bucket, place.prefix, store, readOnly],
  );

  useEffect(() => {
    if (done) found.reload();
  }, [done]);

  function openRow(row: Row) {
    if (row.object) setOpened(row);
    else location.hash = link("buckets", urlOf(place, row.key), { store });
  }
  async function dropped(event: DragEvent) {
    event.preventDefault();
    setDragging(false);
    if (event.dataTransfer && !readOnly) startUploads(await droppedFiles(event.dataTransfer), place, store);
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
        {!readOnly && <UploadButton place={place} store={store} />}
        <button type="button" onClick={found.reload}>
          Reload
        </button>
      </div>
      {!readOnly && <p class="quiet">Files that are dropped here are uploaded.</p>}
      <Failure text={found.error} />
      {!found.begun && <Waiting what="The objects are being listed." />}
      {found.begun && !found.error && !found.rows.length && <Empty>There are no objects here.</Empty>}
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
          {found.next === null ? "" : found.rows.length < MOST_ROWS ? ", more follow" : "; list the keys after the last one to see more"}
        </p>
      )}
      {opened?.object && (
        <ObjectDialog
          object={opened.object}
          url={urlOf(place, opened.key)}
          store={store}
          readOnly={readOnly}
          onRemove={() => {
            setRemoved(opened);
            setOpened(null);
          }}
          onClose={() => setOpened(null)}
        />
      )}
      {removed && (
        <RemoveDialog
          url={urlOf(place, removed.key)}
          store={store}
          recursive={!removed.object}
          onDone={found.reload}
          onClose={() => setRemoved(null)}
        />
      )}
    </div>
  );
}

/* ---- the page ---- */

function Stores({ place, store }: { place: Place | null; store: string | null }) {
  const stores = usePoll<{ name?: string }[]>("list the stores", "/api/stores", 0);
  const names = list<{ name?: string }>(stores.data).map((one) => one.name).filter(Boolean) as string[];
  const current = store ?? names[0] ?? "default";

  return (
    <>
      <label class="group">
        Store
        <select
          value={current}
          onChange={(event) => void (location.hash = link("buckets", "", { store: event.currentTarget.value }))}
        >
          {(names.includes(current) ? names : [current, ...names]).map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <Breadcrumb place={place} store={store} />
      <Failure text={stores.error} />
    </>
  );
}

export function BucketsPage({ route, about }: { route: Route; about: About | null }) {
  const store = route.query.get("store");
  const place = placeOf(route.rest);

  return (
    <section class="page full" aria-labelledby="buckets-title">
      <div class="bar">
        <h1 id="buckets-title">Buckets</h1>
        <Stores place={place} store={store} />
      </div>
      {route.rest && !place && <Failure text={`'${text(route.rest)}' is no place of a store`} />}
      {place ? (
        <Objects
          key={`${store} ${place.bucket} ${place.prefix}`}
          place={place}
          store={store}
          readOnly={about?.readOnly ?? true}
        />
      ) : (
        <BucketList store={store} key={store} />
      )}
      <UploadList />
    </section>
  );
}
