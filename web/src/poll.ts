/*
 * Data of the server that stays current: it is requested repeatedly while the tab is visible.
 *
 *   const runs = usePoll<Run[]>("list the runs", "/api/runs", 1000);
 *
 * The body of a reply is ignored if the reply has the ETag of the previous reply. With a merge
 * function, the request asks for the changes since that ETag. After failures the pauses between
 * requests grow.
 *
 *   const runs = usePoll<Run[]>("list the runs", "/api/runs", 1000, merge);
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { LostError, address, announceRetry, messageOf, open, warningOf } from "./api";

export interface Poll<T> {
  data: T | null; // data of this address; null before the first reply
  error: string | null; // one line
  warning: string | null; // one line: the data may be incomplete
  refresh: () => void;
}

const LONGEST_PAUSE = 15_000;
const BUSY_FACTOR = 4; // pause after a slow reply, as a multiple of its time

interface State<T> {
  url: string | null;
  data: T | null;
  error: string | null;
  warning: string | null;
}

const NOTHING = { url: null, data: null, error: null, warning: null };

/* Sends no request if `url` is null. If `every` is 0, sends one request, and another one only after
 * a lost connection. `merge` makes the new data from the previous data and the changes in a
 * reply. */
export function usePoll<T>(
  what: string,
  url: string | null,
  every: number,
  merge?: (old: T | null, reply: unknown) => T,
): Poll<T> {
  const [state, setState] = useState<State<T>>(NOTHING);
  const again = useRef<() => void>(() => {});

  useEffect(() => {
    if (!url) return;
    const abort = new AbortController();
    let timer = 0;
    let asking = false;
    let failures = 0;
    let tag: string | null = null;
    let last: T | null = null; // the data of the reply with this tag
    let answered = false;

    function wait(ms: number): void {
      clearTimeout(timer);
      timer = window.setTimeout(ask, ms);
    }

    async function ask(): Promise<void> {
      const began = performance.now();
      let pause = every;

      timer = 0;
      if (asking || document.hidden) return;
      asking = true;
      try {
        const since = merge && tag;
        // With a cache, the browser would keep a reply for each tag.
        const response = await (since
          ? open(address(url!, { since }), { signal: abort.signal, cache: "no-store" })
          : open(url!, { signal: abort.signal }));
        const now = response.headers.get("ETag");

        if (now && now === tag) {
          response.body?.cancel().catch(() => {});
          setState((old) => (old.error ? { ...old, error: null } : old));
        } else {
          const reply: unknown = await response.json();

          tag = null; // if merge() throws, request the whole list again
          last = merge ? merge(last, reply) : (reply as T);
          tag = now;
          setState({ url, data: last, error: null, warning: warningOf(response) });
        }
        failures = 0;
        answered = true;
      } catch (error) {
        if (abort.signal.aborted) return;
        pause = Math.min(LONGEST_PAUSE, 1000 * 2 ** failures++);
        if (error instanceof LostError) announceRetry(Date.now() + pause);
        else if (!every) pause = 0;
        else pause = Math.max(pause, every);
        setState((old) => ({
          url,
          data: old.url === url ? old.data : null,
          error: error instanceof LostError ? null : messageOf(`cannot ${what}`, error),
          warning: old.url === url ? old.warning : null,
        }));
      } finally {
        asking = false;
      }
      if (pause && !abort.signal.aborted)
        wait(Math.max(pause, Math.min(LONGEST_PAUSE, BUSY_FACTOR * (performance.now() - began))));
    }

    function now(): void {
      clearTimeout(timer);
      void ask();
    }

    function shown(): void {
      if (!document.hidden && (every || failures || !answered)) now();
    }

    again.current = now;
    document.addEventListener("visibilitychange", shown);
    window.addEventListener("penstock-retry", now);
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
      window.removeEventListener("penstock-retry", now);
    };
  }, [url, every, merge]);

  const refresh = useCallback(() => again.current(), []);

  const { data, error, warning } = state.url === url ? state : NOTHING;

  return { data, error, warning, refresh };
}
