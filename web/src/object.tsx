/* Dialog of one object: what is known about it, its preview, links, download and removal. */
import { useEffect, useState } from "preact/hooks";
import { address, messageOf, send } from "./api";
import { Dialog } from "./dialog";
import { isNumber, list, moment, size, text } from "./format";
import { useVersions } from "./listing";
import { Copy, Facts, Failure } from "./parts";
import { usePoll } from "./poll";
import { Preview } from "./preview";
import { baseName, objectSource } from "./source";
import type { ObjectInfo, StoredObject } from "./types";
import { Versions, retentionText } from "./versions";

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

function pairs(value: unknown): [string, string][] {
  return value && typeof value === "object" && !Array.isArray(value)
    ? Object.entries(value).map(([name, one]) => [name, text(one)])
    : [];
}

interface ObjectProps {
  object: StoredObject;
  url: string;
  store: string | null;
  versioning: string | null; // null if it is unknown
  readOnly: boolean;
  onRemove: () => void;
  onChanged: () => void;
  onClose: () => void;
}

/* The current version in the store. */
function Current({
  info,
  url,
  store,
  readOnly,
  onRemove,
}: Pick<ObjectProps, "url" | "store" | "readOnly" | "onRemove"> & { info: ObjectInfo }) {
  const source = objectSource(url, store, isNumber(info.size) ? info.size : null);
  const labels = pairs(info.tags);

  return (
    <>
      <div class="buttons start">
        <a class="button" href={source.download} download={baseName(url)}>
          Download
        </a>
        {!readOnly && (
          <button type="button" class="danger" onClick={onRemove}>
            Delete
          </button>
        )}
      </div>
      <Facts
        facts={[
          ["URL", <code>{url}</code>],
          ["Size", size(info.size)],
          ["Modified", moment(info.modified)],
          ["ETag", info.etag ? <code>{info.etag}</code> : null],
          ["Type", text(info.content_type)],
          ["Class", text(info.storage_class)],
          ["Version", info.version ? <code>{info.version}</code> : null],
          ["Retention", info.retention ? retentionText(info.retention) : null],
          ["Legal hold", info.legal_hold ? "on" : null],
          ...pairs(info.metadata),
        ]}
      />
      <ExpiringLink url={url} store={store} />
      <h3>Contents</h3>
      <Preview key={info.etag} source={source} />
      <h3>Tags</h3>
      {labels.length ? <Facts facts={labels} /> : <p class="quiet">There are no tags.</p>}
    </>
  );
}

export function ObjectDialog(props: ObjectProps) {
  const { object, url, store, versioning, readOnly, onChanged, onClose } = props;
  const versions = useVersions(url, object.key!, store);
  const newest = versions.rows[0];
  const gone = versions.begun && !versions.error ? !newest || newest.deleted : object.deleted;
  const stat = usePoll<ObjectInfo[]>(
    "read the object",
    gone ? null : address("/api/stat", { url, store }),
    0,
  );

  // The list has a delete marker in place of the object.
  const info: ObjectInfo = list<ObjectInfo>(stat.data)[0] ?? (object.deleted ? {} : object);

  function changed() {
    versions.reload();
    stat.refresh();
    onChanged();
  }
  return (
    <Dialog wide title={text(object.key)} onClose={onClose}>
      <Failure text={stat.error} />
      {gone ? (
        <p>The object is deleted.</p>
      ) : (
        <Current {...props} info={info} />
      )}
      <h3>Versions</h3>
      <Failure text={versioning === "off" ? null : versions.error} />
      {versioning === "off" ? (
        <p class="quiet">The bucket keeps no versions.</p>
      ) : versions.rows.length ? (
        <Versions
          rows={versions.rows}
          url={url}
          store={store}
          versioning={versioning}
          readOnly={readOnly}
          onEnd={versions.more}
          onChanged={changed}
        />
      ) : (
        versions.begun && !versions.error && <p class="quiet">There are no versions.</p>
      )}
    </Dialog>
  );
}
