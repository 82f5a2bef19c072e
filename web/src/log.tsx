/* Log of an attempt: any length, live, with colours and search. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, messageOf, type Params } from "./api";
import { count, many, size } from "./format";
import { LogSource } from "./logsource";
import { spansOf, splitAt } from "./logtext";
import { useLongScroll } from "./longscroll";
import { Empty, Failure, Waiting } from "./parts";

const ROW = 19; // pixels, as in the style
const WANT_MS = 60; // pause of the scrolling before blocks are loaded

interface Match {
  offset?: number;
  line?: number;
}

interface Search {
  text: string;
  matches: Match[];
  next: number | null; // offset of the part that is not searched yet
  at: number; // index of the current match
  busy: boolean;
  error: string | null;
}

const NO_SEARCH: Search = { text: "", matches: [], next: null, at: -1, busy: false, error: null };

function Line({ text, word, found }: { text: string; word: string; found: boolean }) {
  const spans = useMemo(() => spansOf(text), [text]);

  return (
    <div class={`line${found ? " found" : ""}`}>
      {spans.map((span, i) => (
        <span
          key={i}
          class={span.class}
          style={{ color: span.color, backgroundColor: span.background }}
        >
          {word
            ? splitAt(span.text, word).map((piece, k) =>
                k % 2 ? <mark key={k}>{piece}</mark> : piece,
              )
            : span.text}
        </span>
      ))}
    </div>
  );
}

/* Returns the source of the lines. Redraws the component after changes, at most once for each
 * frame. */
function useSource(params: Params): LogSource {
  const [, redraw] = useState(0);
  const key = JSON.stringify(params);
  const frame = useRef(0);
  const source = useMemo(
    () =>
      new LogSource(params, () => {
        frame.current ||= requestAnimationFrame(() => {
          frame.current = 0;
          redraw((n) => n + 1);
        });
      }),
    [key],
  );

  useEffect(() => {
    source.start();
    return () => source.stop();
  }, [source]);
  return source;
}

function useSearch(params: Params, show: (line: number) => void) {
  const [search, setSearch] = useState(NO_SEARCH);
  const latest = useRef(search);

  function set(next: Search) {
    latest.current = next;
    setSearch(next);
  }

  async function read(text: string, offset: number, before: Match[]) {
    set({ ...NO_SEARCH, text, matches: before, busy: true });
    try {
      let next: number | null = offset;
      let matches = before;

      // Parts of the log without a match are skipped.
      while (next !== null && matches.length === before.length) {
        const reply: { matches?: Match[]; next?: number | null } = await getJson(
          "/api/log-search",
          {
            ...params,
            text,
            offset: next,
          },
        );

        if (latest.current.text !== text) return;
        matches = matches.concat(reply.matches ?? []);
        next = reply.next ?? null;
      }
      set({ text, matches, next, at: -1, busy: false, error: null });
      if (matches.length) go(before.length);
    } catch (error) {
      set({ ...latest.current, busy: false, error: messageOf("cannot search the log", error) });
    }
  }

  function go(to: number) {
    const now = latest.current;
    const n = now.matches.length;

    if (to >= n && now.next !== null) return void read(now.text, now.next, now.matches);
    if (!n) return;
    const at = (to + n) % n;

    set({ ...now, at });
    show(now.matches[at]!.line ?? 0);
  }

  function start(text: string) {
    if (!text) set(NO_SEARCH);
    else if (text === latest.current.text) go(latest.current.at + 1);
    else void read(text, 0, []);
  }

  return { search, start, next: () => go(search.at + 1), previous: () => go(search.at - 1) };
}

function SearchBar({ search, start, next, previous }: ReturnType<typeof useSearch>) {
  const [text, setText] = useState("");
  const n = search.matches.length;
  const all = `${count(n)}${search.next !== null ? "+" : ""}`;
  const result = search.busy
    ? "searching"
    : !search.text
      ? ""
      : n
        ? `${count(search.at + 1)} of ${all}`
        : "no match";

  return (
    <form
      class="group grow"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        start(text);
      }}
    >
      <input
        type="search"
        class="grow"
        data-filter
        aria-label="Search the log"
        placeholder="Search ( / ), Enter for the next"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          if (!event.currentTarget.value) start("");
        }}
      />
      <button type="button" aria-label="Previous match" disabled={!n} onClick={previous}>
        ↑
      </button>
      <button type="button" aria-label="Next match" disabled={!n} onClick={next}>
        ↓
      </button>
      <span class="quiet count" role="status">
        {result}
      </span>
    </form>
  );
}

interface LogProps {
  params: Params; // run and place
  attempts: number[];
  attempt: number;
  onAttempt: (attempt: number) => void;
}

export function Log({ params, attempts, attempt, onAttempt }: LogProps) {
  const wanted = { ...params, attempt };
  const source = useSource(wanted);
  const [follow, setFollow] = useState(true);
  const scroll = useLongScroll(source.lines, ROW, setFollow);
  const finder = useSearch(wanted, (line) => {
    setFollow(false);
    scroll.toRow(line);
  });
  const { first, shown } = scroll;

  useEffect(() => {
    const timer = setTimeout(() => source.want(first, first + shown), WANT_MS);

    return () => clearTimeout(timer);
  }, [source, first, shown, source.lines]);
  useEffect(() => {
    if (follow) scroll.toEnd();
  }, [follow, source.lines, scroll.view]);

  const current = finder.search.matches[finder.search.at]?.line;
  const numbers = Array.from({ length: Math.max(0, shown) }, (_, i) => first + i);

  return (
    <section class="log-page fill" aria-label="Log">
      <div class="bar">
        <label class="group">
          Attempt
          <select
            value={attempt}
            onChange={(event) => onAttempt(Number(event.currentTarget.value))}
          >
            {attempts.map((n) => (
              <option key={n} value={n}>
                {n}
              </option>
            ))}
          </select>
        </label>
        <SearchBar {...finder} />
        <label class="group">
          <input
            type="checkbox"
            checked={follow}
            onChange={(event) => setFollow(event.currentTarget.checked)}
          />
          Follow
        </label>
        <button type="button" onClick={() => (setFollow(false), scroll.toRow(0))}>
          Start
        </button>
        <button type="button" onClick={() => setFollow(true)}>
          End
        </button>
      </div>
      <Failure text={source.error ?? finder.search.error} />
      {!source.ready && !source.error && <Waiting what="Loading the log…" />}
      {source.ready && source.lines === 0 && (
        <Empty>{source.live ? "Nothing is printed yet." : "The log is empty."}</Empty>
      )}
      <div
        class="log fill"
        ref={scroll.box}
        tabIndex={0}
        role="region"
        aria-label={`Log of attempt ${attempt}`}
      >
        <div class="log-space" style={{ height: `${scroll.height}px` }}>
          <div class="log-view" style={{ height: `${scroll.view}px` }}>
            <div style={{ transform: `translateY(${-scroll.shift}px)` }}>
              {numbers.map((n) => (
                <div class="row" key={n}>
                  <span class="number" aria-hidden="true">
                    {n + 1}
                  </span>
                  <Line
                    text={source.line(n) ?? ""}
                    word={finder.search.text}
                    found={n === current}
                  />
                </div>
              ))}
            </div>
          </div>
        </div>
      </div>
      <p class="quiet foot">
        {many(source.lines, "line")}, {size(source.size)}
        {source.live ? ", live" : ""}
      </p>
    </section>
  );
}
