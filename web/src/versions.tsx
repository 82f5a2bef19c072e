/* Versions of an object: the contents of each, restoring one, and deleting one permanently. */
import { useState } from "preact/hooks";
import { ApiError, address, send, serverNow } from "./api";
import { Confirm, Dialog } from "./dialog";
import { isNumber, list, moment, ms, size, text } from "./format";
import { Failure } from "./parts";
import { usePoll } from "./poll";
import { Preview } from "./preview";
import { baseName, objectSource } from "./source";
import { type Column, Table } from "./table";
import type { ObjectInfo, Version } from "./types";

export type VersionAction = "restore" | "delete";

const DENIED = 77; // exit code of the verb

const VERBS: Record<VersionAction, string> = { restore: "Restore", delete: "Delete permanently" };

/* To restore a version is to make it the current one, by a copy or by removing the newest delete
 * marker. */
export function actionsOf(one: Version): VersionAction[] {
  return Boolean(one.latest) === Boolean(one.deleted) ? ["restore", "delete"] : ["delete"];
}

/* Sentences about the effect of an action. */
export function effectOf(action: VersionAction, one: Version, versioning: string | null): string[] {
  const before = "The version before it, if there is one, becomes the current one.";

  if (action === "restore" && one.deleted)
    return ["The delete marker is removed.", before, "All other versions stay."];
  if (action === "restore")
    return [
      "The store copies this version over the current one.",
      versioning === "enabled"
        ? "All versions stay."
        : `${versioning === "suspended" ? "V" : "If v"}ersioning is suspended: the copy gets the ` +
          "id 'null', and permanently replaces the version with this id.",
    ];
  return [
    one.deleted
      ? "The delete marker is removed."
      : "The contents of this version are lost: nothing can bring them back.",
    ...(one.latest ? [before] : []),
  ];
}

/* "GOVERNANCE until 2026-11-28 16:25:30" */
export function retentionText(retention: NonNullable<ObjectInfo["retention"]>): string {
  return `${text(retention.mode)} until ${moment(retention.until)}`;
}

/* A sentence about the Object Lock of a version; null if it may be deleted. */
export function lockOf(info: ObjectInfo, now: number): { effect: string; bypass: boolean } | null {
  const { retention } = info;
  const kept = (ms(retention?.until) ?? 0) > now;
  const bypass = kept && retention!.mode === "GOVERNANCE";

  if (info.legal_hold)
    return { effect: "A legal hold protects this version: the store keeps it.", bypass: false };
  if (!kept) return null;
  return {
    effect:
      `Its retention is ${retentionText(retention!)}: the store keeps this version ` +
      (bypass ? "unless you bypass the retention." : "until then."),
    bypass,
  };
}

function ActionDialog({
  action,
  one,
  url,
  store,
  versioning,
  onDone,
  onFailed,
  onClose,
}: {
  action: VersionAction;
  one: Version;
  url: string;
  store: string | null;
  versioning: string | null;
  onDone: () => void;
  onFailed: (text: string) => void;
  onClose: () => void;
}) {
  const restore = action === "restore";
  const request = restore && !one.deleted ? "/api/restore" : "/api/remove-version";
  const lockable = !restore && !one.deleted;
  const [bypass, setBypass] = useState(false);
  const [denied, setDenied] = useState(false);
  const stat = usePoll<ObjectInfo[]>(
    "read the lock of the version",
    lockable ? address("/api/stat", { url, store, version: one.version }) : null,
    0,
  );
  const lock = lockOf(list<ObjectInfo>(stat.data)[0] ?? {}, serverNow());
  // A user who may not read the retention learns of it only when the store refuses to delete.
  const offered = lock ? lock.bypass : lockable && denied;

  async function act() {
    const params = { url, store, version: one.version, bypass: bypass ? 1 : null };

    try {
      await send("POST", request, params);
    } catch (error) {
      if (error instanceof ApiError && error.code === DENIED) setDenied(true);
      throw error;
    }
  }

  return (
    <Confirm
      title={restore ? "Restore a version" : "Delete a version permanently"}
      verb={VERBS[action]}
      busy={restore ? "The store is restoring the version." : "The store is deleting the version."}
      danger={!restore}
      act={act}
      onDone={onDone}
      onFailed={onFailed}
      onClose={onClose}
    >
      <p>
        <code class="break">{url}</code>
      </p>
      <p>
        Version <code class="break">{one.version}</code> of {moment(one.modified)},{" "}
        {one.deleted ? "a delete marker" : size(one.size)}
      </p>
      <p>{effectOf(action, one, versioning).join(" ")}</p>
      <Failure text={stat.error} />
      {lock && <p>{lock.effect}</p>}
      {offered && (
        <label class="group">
          <input
            type="checkbox"
            required={lock !== null}
            checked={bypass}
            onChange={(event) => setBypass(event.currentTarget.checked)}
          />
          Bypass the retention (needs the right s3:BypassGovernanceRetention)
        </label>
      )}
    </Confirm>
  );
}

export function Versions({
  rows,
  url,
  store,
  versioning,
  readOnly,
  onEnd,
  onChanged,
}: {
  rows: Version[];
  url: string;
  store: string | null;
  versioning: string | null;
  readOnly: boolean;
  onEnd: () => void;
  onChanged: () => void;
}) {
  const [shown, setShown] = useState<Version | null>(null);
  const [asked, setAsked] = useState<{ action: VersionAction; one: Version } | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [done, setDone] = useState("");
  const sourceOf = (one: Version) =>
    objectSource(url, store, isNumber(one.size) ? one.size : null, one.version);

  function ask(action: VersionAction, one: Version) {
    setFailure(null);
    setDone("");
    setAsked({ action, one });
  }
  const columns: Column<Version>[] = [
    {
      key: "name",
      label: "Version",
      cell: (one) => <span title={one.version!}>{one.version}</span>,
    },
    { key: "latest", label: "State", cell: (one) => (one.latest ? "current" : "") },
    { key: "size", label: "Size", cell: (one) => (one.deleted ? "deleted" : size(one.size)) },
    { key: "time", label: "Modified", cell: (one) => moment(one.modified) },
    {
      key: "actions",
      label: "Actions",
      hideLabel: true,
      cell: (one) => (
        <div class="group">
          {!one.deleted && (
            <>
              <a
                href={sourceOf(one).download}
                download={baseName(url)}
                aria-label={`Download version ${one.version}`}
              >
                Download
              </a>
              <button
                type="button"
                class="plain"
                aria-label={`Preview version ${one.version}`}
                onClick={() => setShown(one)}
              >
                Preview
              </button>
            </>
          )}
          {!readOnly &&
            actionsOf(one).map((action) => (
              <button
                key={action}
                type="button"
                class="plain"
                aria-label={`${VERBS[action]} version ${one.version}`}
                onClick={() => ask(action, one)}
              >
                {VERBS[action]}
              </button>
            ))}
        </div>
      ),
    },
  ];

  return (
    <>
      <Failure text={failure} />
      <Table
        label="Versions"
        rows={rows}
        columns={columns}
        rowKey={(one) => one.version!}
        onEnd={onEnd}
      />
      <p role="status" class="quiet">
        {done}
      </p>
      {shown && (
        <Dialog
          wide
          title={`${baseName(url)}, version ${text(shown.version)}`}
          onClose={() => setShown(null)}
        >
          <p class="quiet">
            {size(shown.size)}, {moment(shown.modified)}
          </p>
          <Preview source={sourceOf(shown)} />
        </Dialog>
      )}
      {asked && (
        <ActionDialog
          {...asked}
          url={url}
          store={store}
          versioning={versioning}
          onDone={() => {
            setDone(`The version was ${asked.action}d.`);
            onChanged();
          }}
          onFailed={setFailure}
          onClose={() => setAsked(null)}
        />
      )}
    </>
  );
}
