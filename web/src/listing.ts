/*
 * Places of a store, and the objects of one, read page by page.
 *
 *   const place = placeOf("s3://bucket/runs/");
 *   const found = useListing(place, store, "");    // found.rows; found.more() reads the next page
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { getJson, messageOf } from "./api";
import { list, strings } from "./format";
import type { Listing, StoredObject } from "./types";

const PAGE = 1000; // rows of a request
export const MOST_ROWS = 200_000; // in memory

export interface Place {
  bucket: string; // with its scheme: "s3://bucket"
  prefix: string; // of keys, "" or "a/b/"
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
export function useListing(place: Place, store: string | null, start: string) {
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
        now.loaded = {
          ...now.loaded,
          begun: true,
          error: messageOf("cannot list the objects", error),
        };
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
