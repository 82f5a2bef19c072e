/*
 * Uploads of files to a store, in parts. Uploads continue while other pages are shown, and resume
 * if the same file is sent to the same key again.
 *
 *   startUpload(file, "s3://bucket/key", "embedded");
 *   const stop = onUploads(redraw);
 */
import { ApiError, messageOf, send } from "./api";

const TRIES = 6; // for each request of an upload
const AT_ONCE = 2; // files

export interface Upload {
  file: File;
  url: string;
  store: string | null;
  sent: number; // bytes
  state: "waiting" | "sending" | "done" | "failed" | "cancelled";
  error: string | null;
  id: string | null; // id from the server
  abort: AbortController;
}

interface Begun {
  id?: string;
  part?: number;
  done?: number[];
}

let uploads: Upload[] = [];
const listeners = new Set<() => void>();

export function allUploads(): Upload[] {
  return uploads;
}

export function onUploads(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

function changed(): void {
  uploads = [...uploads];
  listeners.forEach((listener) => listener());
}

export function startUpload(file: File, url: string, store: string | null): void {
  const known = uploads.find((one) => one.url === url && one.store === store);

  if (known && (known.state === "waiting" || known.state === "sending")) return;
  uploads = uploads.filter((one) => one !== known);
  uploads.push({
    file,
    url,
    store,
    sent: 0,
    state: "waiting",
    error: null,
    id: null,
    abort: new AbortController(),
  });
  startWaiting();
}

export function retryUpload(upload: Upload): void {
  Object.assign(upload, { state: "waiting", error: null, abort: new AbortController() });
  startWaiting();
}

/* Ends an upload; the server forgets its parts. */
export function cancelUpload(upload: Upload): void {
  upload.abort.abort();
  upload.state = "cancelled";
  if (upload.id)
    send("DELETE", "/api/upload", { url: upload.url, store: upload.store, id: upload.id }).catch(
      () => {},
    );
  changed();
  startWaiting();
}

export function clearUploads(): void {
  uploads = uploads.filter((one) => one.state === "waiting" || one.state === "sending");
  changed();
}

function startWaiting(): void {
  let active = uploads.filter((one) => one.state === "sending").length;

  for (const upload of uploads) {
    if (active >= AT_ONCE) break;
    if (upload.state !== "waiting") continue;
    upload.state = "sending";
    active++;
    void run(upload);
  }
  changed();
}

async function run(upload: Upload): Promise<void> {
  const { signal } = upload.abort;

  try {
    await transfer(upload, signal);
    upload.state = "done";
  } catch (error) {
    if (!signal.aborted) {
      upload.state = "failed";
      upload.error = messageOf("cannot upload", error);
    }
  }
  startWaiting();
}

async function transfer(upload: Upload, signal: AbortSignal): Promise<void> {
  const { file, url, store } = upload;
  const begin = { url, store, size: file.size, modified: file.lastModified };
  const begun = await again(signal, () =>
    send<Begun>("POST", "/api/upload", begin, undefined, signal),
  );
  const id = begun?.id ?? "";
  const part = begun?.part || file.size || 1;
  const done = new Set(begun?.done ?? []);

  upload.id = id;
  upload.sent = 0;
  for (let number = 1; (number - 1) * part < file.size; number++) {
    const piece = file.slice((number - 1) * part, number * part);

    if (!done.has(number))
      await again(signal, (attempt) =>
        send("PUT", "/api/upload", { url, store, id, number }, piece, signal).catch((error) => {
          // The server has the part if only its reply was lost.
          if (attempt === 1 || !(error instanceof ApiError) || error.status !== 409) throw error;
        }),
      );
    upload.sent += piece.size;
    changed();
  }
  await again(signal, (attempt) =>
    send("POST", "/api/upload/finish", { url, store, id }, undefined, signal).catch((error) => {
      const unknown = error instanceof ApiError && error.status === 404 && error.code === null;

      // The server replies 404 without a code if the upload is already complete: only its reply was
      // lost. A 404 of the store has a code.
      if (attempt === 1 || !unknown) throw error;
    }),
  );
}

/* Repeats a request after failures that may be temporary. */
async function again<T>(signal: AbortSignal, request: (attempt: number) => Promise<T>): Promise<T> {
  for (let i = 1; ; i++) {
    try {
      return await request(i);
    } catch (error) {
      const final = error instanceof ApiError && error.status < 500;

      if (signal.aborted || final || i >= TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** i));
      if (signal.aborted) throw error;
    }
  }
}

/* ---- dropped files ---- */

export interface Dropped {
  file: File;
  path: string; // with the names of its directories
}

function readEntries(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  return new Promise((resolve, reject) => reader.readEntries(resolve, reject));
}

async function walk(entry: FileSystemEntry, into: Dropped[]): Promise<void> {
  const path = entry.fullPath.replace(/^\//, "");

  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject),
    );

    into.push({ file, path });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();

  // A reader gives some hundred entries at a time, then none.
  for (let entries = await readEntries(reader); entries.length; entries = await readEntries(reader))
    for (const one of entries) await walk(one, into);
}

/* Files of a drop, including those in directories. */
export async function droppedFiles(data: DataTransfer): Promise<Dropped[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  const found: Dropped[] = [];

  if (entries.every((entry) => !entry))
    return [...data.files].map((file) => ({ file, path: file.name }));
  for (const entry of entries) if (entry) await walk(entry, found);
  return found;
}
