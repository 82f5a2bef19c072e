/*
 * Contents of a file of an output, or of an object, read by ranges.
 *
 *   const source = fileSource({ run: id, place: null }, "model.pt", 1000);
 *   const head = await source.read(0, 8);
 */
import { type Params, address, getBytes } from "./api";

export interface Source {
  name: string;
  size: number | null; // null if it is unknown
  read: (offset: number, length: number, signal?: AbortSignal) => Promise<Uint8Array>;
  download: string; // address
}

function sourceOf(api: string, params: Params, name: string, size: number | null): Source {
  return {
    name,
    size,
    read: (offset, length, signal) =>
      length > 0
        ? getBytes(api, { ...params, offset, length }, signal)
        : Promise.resolve(new Uint8Array()),
    download: address(api, { ...params, download: 1 }),
  };
}

export function fileSource(params: Params, path: string, size: number | null): Source {
  return sourceOf("/api/file", { ...params, path }, path, size);
}

/* The current version is read if `version` is null. */
export function objectSource(
  url: string,
  store: string | null,
  size: number | null,
  version: string | null = null,
): Source {
  return sourceOf("/api/object", { url, store, version }, url, size);
}

/* Last part of a path or key. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
