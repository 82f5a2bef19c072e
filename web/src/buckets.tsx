/* Page of the stores: the buckets of a store, or the objects of a prefix. */
import { useState } from "preact/hooks";
import { address } from "./api";
import { list, moment, text } from "./format";
import { type Place, placeOf, urlOf } from "./listing";
import { Objects } from "./objects";
import { Empty, Failure, Waiting } from "./parts";
import { usePoll } from "./poll";
import { type Route, link } from "./route";
import { type Column, Table } from "./table";
import type { About, Bucket, BucketInfo } from "./types";
import { UploadList } from "./uploadlist";

function Breadcrumb({ place, store }: { place: Place | null; store: string | null }) {
  const parts = place
    ? place.prefix.split("/").filter((_, i, all) => i < all.length - 1 || all[i])
    : [];

  return (
    <nav aria-label="Place" class="breadcrumb">
      <a href={link("buckets", "", { store })} aria-current={place ? undefined : "page"}>
        buckets
      </a>
      {place && (
        <a
          href={link("buckets", `${place.bucket}/`, { store })}
          aria-current={parts.length ? undefined : "page"}
        >
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
      {!buckets.data && !buckets.error && <Waiting what="Loading the buckets…" />}
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

function Stores({ place, store }: { place: Place | null; store: string | null }) {
  const stores = usePoll<{ name?: string }[]>("list the stores", "/api/stores", 0);
  const names = list<{ name?: string }>(stores.data)
    .map((one) => one.name)
    .filter(Boolean) as string[];
  const current = store ?? names[0] ?? "default";

  return (
    <>
      <label class="group">
        Store
        <select
          value={current}
          onChange={(event) =>
            void (location.hash = link("buckets", "", { store: event.currentTarget.value }))
          }
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
  const [deleted, setDeleted] = useState(false);
  const bucket = usePoll<BucketInfo[]>(
    "read the bucket",
    place && address("/api/stat", { url: place.bucket, store }),
    0,
  );
  const versioning = list<BucketInfo>(bucket.data)[0]?.versioning ?? null;
  // Some stores allow listing versions, but not reading the configuration of the bucket.
  const keeps =
    !route.rest.startsWith("gs:") && (versioning ? versioning !== "off" : bucket.error !== null);

  return (
    <section class="page full" aria-labelledby="buckets-title">
      <div class="bar">
        <h1 id="buckets-title">Buckets</h1>
        <Stores place={place} store={store} />
      </div>
      {route.rest && !place && <Failure text={`'${text(route.rest)}' is not a place of a store`} />}
      {place ? (
        <Objects
          key={`${store} ${place.bucket} ${place.prefix}`}
          place={place}
          store={store}
          readOnly={about?.readOnly ?? true}
          versioning={versioning}
          deleted={deleted && keeps}
          onDeleted={keeps ? setDeleted : null}
        />
      ) : (
        <BucketList store={store} key={store} />
      )}
      <UploadList />
    </section>
  );
}
