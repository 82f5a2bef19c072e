/* List of the uploads with their progress. */
import { useEffect, useReducer } from "preact/hooks";
import { size } from "./format";
import {
  allUploads,
  cancelUpload,
  clearUploads,
  onUploads,
  retryUpload,
  type Upload,
} from "./uploads";

export function useUploads(): Upload[] {
  const [, redraw] = useReducer((n: number) => n + 1, 0);

  useEffect(() => onUploads(() => redraw(0)), []);
  return allUploads();
}

function stateOf(upload: Upload): string {
  if (upload.error) return upload.error;
  if (upload.state !== "sending") return upload.state;
  if (upload.sent === upload.file.size) return "being stored";
  return `${size(upload.sent)} of ${size(upload.file.size)}`;
}

export function UploadList() {
  const uploads = useUploads();
  const active = uploads.filter((one) => one.state === "waiting" || one.state === "sending").length;

  if (!uploads.length) return null;
  return (
    <section class="card uploads" aria-label="Uploads">
      <div class="bar">
        <h2 class="grow">Uploads</h2>
        <span class="quiet" role="status">
          {uploads.length - active} of {uploads.length} ended
        </span>
        <button type="button" onClick={clearUploads}>
          Clear the ended uploads
        </button>
      </div>
      <ul class="upload-list">
        {uploads.slice(-200).map((upload) => (
          <li key={`${upload.store} ${upload.url}`}>
            <span class="grow name">{upload.url}</span>
            <progress
              max={Math.max(1, upload.file.size)}
              value={upload.state === "done" ? Math.max(1, upload.file.size) : upload.sent}
              aria-label={`Upload of ${upload.file.name}`}
            />
            <span class={upload.error ? "failure" : "quiet"}>{stateOf(upload)}</span>
            {upload.state === "failed" && (
              <button type="button" onClick={() => retryUpload(upload)}>
                Retry
              </button>
            )}
            {(upload.state === "sending" ||
              upload.state === "waiting" ||
              upload.state === "failed") && (
              <button
                type="button"
                aria-label={`Cancel the upload of ${upload.file.name}`}
                onClick={() => cancelUpload(upload)}
              >
                Cancel
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
