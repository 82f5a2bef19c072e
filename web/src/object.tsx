/* Dialog of one object: what is known about it, its preview, links, download and removal. */
import { useEffect, useState } from "preact/hooks";
import { address, messageOf, send } from "./api";
import { Dialog } from "./dialog";
import { isNumber, list, moment, size, text } from "./format";
import { Copy, Facts, Failure } from "./parts";
import { usePoll } from "./poll";
import { Preview } from "./preview";
import { baseName, objectSource } from "./source";
import { type Column, Table } from "./table";
import type { ObjectInfo, StoredObject, Version } from "./types";

const EXPIRIES: [string, string][] = [
  ["1h", "1 hour"],
  ["24h", "1 day"],
  ["168h", "7 days"],
];

function ExpiringLink({ url, store }: { url: string; store: string | null }) {
  const [expires, setExpires] = useState("1h");
  const [made, setMade] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);

  useEffect(() => setMade(null), [expires]);

  async function make() {
    try {
      const reply = await send<{ url?: string; out?: string }>("POST", "/api/link", {
        url,
        store,
        expires,
      });

      setMade(reply?.url ?? reply?.out ?? "");
      setFailure(null);
    } catch (error) {
      setFailure(messageOf("cannot make a link", error));
    }
  }
  return (
    <div>
      <div class="group wrap">
        <label class="group">
          Link that expires after
          <select value={expires} onChange={(event) => setExpires(event.currentTarget.value)}>
            {EXPIRIES.map(([code, name]) => (
              <option key={code} value={code}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={make}>
          Make a link
        </button>
        {made && <Copy text={made} />}
      </div>
      {made && (
        <input
          class="link-made"
          readOnly
          value={made}
          aria-label="Link"
          onFocus={(event) => event.currentTarget.select()}
        />
      )}
      {made && /^https?:\/\/(127\.|localhost|\[::1\])/.test(made) && (
        <p class="quiet">
          The link works on the machine of the store, while the store runs. The embedded store ends
          with its last user.
        </p>
      )}
      <Failure text={failure} />
    </div>
  );
}

const VERSION_COLUMNS: Column<Version>[] = [
  { key: "name", label: "Version", cell: (one) => text(one.version) },
  { key: "size", label: "Size", cell: (one) => (one.deleted ? "deleted" : size(one.size)) },
  { key: "time", label: "Modified", cell: (one) => moment(one.modified) },
  { key: "latest", label: "Latest", cell: (one) => (one.latest ? "latest" : "") },
];

function pairs(value: unknown): [string, string][] {
  return value && typeof value === "object" && !Array.isArray(value)
    ? Object.entries(value).map(([name, one]) => [name, text(one)])
    : [];
}

interface ObjectProps {
  object: StoredObject;
  url: string;
  store: string | null;
  readOnly: boolean;
  onRemove: () => void;
  onClose: () => void;
}

export function ObjectDialog({ object, url, store, readOnly, onRemove, onClose }: ObjectProps) {
  const stat = usePoll<ObjectInfo[]>("read the object", address("/api/stat", { url, store }), 0);
  const versions = usePoll<Version[]>(
    "list the versions",
    address("/api/versions", { url, store }),
    0,
  );
  const info: ObjectInfo = list<ObjectInfo>(stat.data)[0] ?? object;
  const known = isNumber(info.size) ? info.size : null;
  const source = objectSource(url, store, known);
  // The list has the keys that begin with this one.
  const all = list<Version>(versions.data).filter((one) => one.key === object.key);
  const labels = pairs(info.tags);

  return (
    <Dialog wide title={text(object.key)} onClose={onClose}>
      <div class="buttons start">
        <a class="button" href={source.download} download={baseName(object.key ?? "")}>
          Download
        </a>
        {!readOnly && (
          <button type="button" class="danger" onClick={onRemove}>
            Delete
          </button>
        )}
      </div>
      <Failure text={stat.error} />
      <Facts
        facts={[
          ["URL", <code>{url}</code>],
          ["Size", size(info.size)],
          ["Modified", moment(info.modified)],
          ["ETag", info.etag ? <code>{info.etag}</code> : null],
          ["Type", text(info.content_type)],
          ["Class", text(info.storage_class)],
          ["Version", info.version ? <code>{info.version}</code> : null],
          ...pairs(info.metadata),
        ]}
      />
      <ExpiringLink url={url} store={store} />
      <h3>Contents</h3>
      <Preview source={source} />
      <h3>Tags</h3>
      {labels.length ? <Facts facts={labels} /> : <p class="quiet">There are no tags.</p>}
      <h3>Versions</h3>
      <Failure text={versions.error} />
      {all.length ? (
        <Table
          label="Versions"
          rows={all}
          columns={VERSION_COLUMNS}
          rowKey={(one) => `${one.version} ${one.modified}`}
        />
      ) : (
        !versions.error && <p class="quiet">There are no versions.</p>
      )}
    </Dialog>
  );
}
