/*
 * Places of a store, the objects of a place, and the versions of an object, read page by page.
 *
 *   const place = placeOf("s3://bucket/runs/");
 *   const found = useListing(place, store, "", false);
 *                                      // found.rows; found.more() reads the next page
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, getJson, messageOf } from "./api";
import { list, strings } from "./format";
import type { Listing, StoredObject, Version } from "./types";

const PAGE = 1000; // rows of a request
const MISSING = 66; // exit code of `penstock ls` if a prefix has no objects, or the bucket is missing
export const MOST_ROWS = 200_000; // rows in memory

export interface Place {
  bucket: string; // with its scheme: "s3://bucket"
  prefix: string; // prefix of keys: "" or "a/b/"
}

export function placeOf(url: string): Place | null {
  const found = /^((?:s3|gs):\/\/[^/]+)\/?(.*)$/s.exec(url);

  return found ? { bucket: found[1]!, prefix: found[2]! } : null;
}

export function urlOf(place: Place, key: string): string {
  return `${place.bucket}/${key}`;
}

/* Name of a key below the prefix. */
export function below(place: Place, key: string): string {
  return key.startsWith(place.prefix) && key.length > place.prefix.length
    ? key.slice(place.prefix.length)
    : key;
}

export interface Row {
  key: string;
  object: StoredObject | null; // null: a directory
}

interface Page<T> {
  rows: T[];
  next: string | null; // the place of the next page
}

interface Loaded<T> extends Page<T> {
  begun: boolean; // a page has arrived
  error: string | null;
}

const NOTHING: Loaded<never> = { rows: [], next: null, begun: false, error: null };

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

/* Rows that `fetchPage` gets page by page. `more` reads the next page, `reload` starts again. */
function usePages<T>(
  what: string, // for messages: "list the objects"
  start: string | null,
  fetchPage: (after: string | null, signal: AbortSignal) => Promise<Page<T>>,
  keyOf: (row: T) => string,
) {
  const [loaded, setLoaded] = useState<Loaded<T>>(NOTHING);
  const state = useRef({ busy: false, loaded: NOTHING as Loaded<T>, abort: new AbortController() });

  const read = useCallback(
    async (after: string | null, before: T[]) => {
      const now = state.current;
      const { signal } = now.abort;

      now.busy = true;
      try {
        const page = await fetchPage(after, signal);
        const known = new Set(before.slice(-2 * PAGE).map(keyOf));
        const rows = before.concat(page.rows.filter((row) => !known.has(keyOf(row))));

        now.loaded = { rows, next: page.next, begun: true, error: null };
      } catch (error) {
        if (signal.aborted) return;
        now.loaded = { ...now.loaded, begun: true, error: messageOf(`cannot ${what}`, error) };
      }
      now.busy = false;
      setLoaded(now.loaded);
    },
    [fetchPage],
  );
  const reload = useCallback(() => {
    state.current.abort.abort();
    state.current = { busy: false, loaded: NOTHING, abort: new AbortController() };
    void read(start, []);
  }, [read, start]);
  const more = useCallback(() => {
    const { busy, loaded: now } = state.current;

    if (!busy && now.next !== null && !now.error && now.rows.length < MOST_ROWS)
      void read(now.next, now.rows);
  }, [read]);

  useEffect(() => {
    setLoaded(NOTHING);
    reload();
    return () => state.current.abort.abort();
  }, [reload]);
  return { ...loaded, more, reload };
}

/* Objects of a prefix, including deleted objects if `deleted` is true. */
export function useListing(place: Place, store: string | null, start: string, deleted: boolean) {
  const url = urlOf(place, place.prefix);
  const fetchPage = useCallback(
    async (after: string | null, signal: AbortSignal) => {
      const params = { url, store, after, limit: PAGE, deleted: deleted ? 1 : null };

      try {
        const listing = (await getJson<Listing | null>("/api/list", params, signal)) ?? {};

        return { rows: rowsOf(listing, place), next: listing.next ?? null };
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== MISSING || !place.prefix) throw error;
        // The prefix is empty, or the bucket is missing. A refusal shows that the bucket exists.
        const root = { url: urlOf(place, ""), store, limit: 1 };

        await getJson("/api/list", root, signal).catch((failure: unknown) => {
          if (!(failure instanceof ApiError) || failure.code === MISSING) throw failure;
        });
        return { rows: [], next: null };
      }
    },
    [url, store, deleted],
  );

  return usePages("list the objects", start || null, fetchPage, (row) => row.key);
}

/* Versions of one key in a page of the store's list of versions. Later rows of the page may have
 * longer keys that begin with this key. */
export function versionsOf(page: unknown, key: string): Page<Version> {
  const all = list<Version>(page);
  const last = all[all.length - 1];

  return {
    rows: all.filter((one) => one.key === key && one.version),
    next: all.length >= PAGE && last?.key === key ? (last.version ?? null) : null,
  };
}

/* Versions and delete markers of an object, newest first. */
export function useVersions(url: string, key: string, store: string | null) {
  const fetchPage = useCallback(
    async (version: string | null, signal: AbortSignal) => {
      const params = { url, store, version, after: version ? key : null };

      return versionsOf(await getJson<unknown>("/api/versions", params, signal), key);
    },
    [url, key, store],
  );

  return usePages("list the versions", null, fetchPage, (one) => one.version!);
}
