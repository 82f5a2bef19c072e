/*
 * Scrolling through more rows than an element can have: browsers limit the height of an element to
 * about 17 million pixels. The element has at most LONGEST pixels. A small movement scrolls the
 * rows by the same number of pixels; a large movement, such as of the scroll bar, goes to the same
 * fraction of the rows.
 */
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";
import type { RefObject } from "preact";

const LONGEST = 6_000_000;
const SETTLE_MS = 200;

export interface LongScroll {
  box: RefObject<HTMLDivElement | null>;
  height: number; // height in pixels of the element in the box
  view: number; // height of the box
  first: number; // row
  shown: number; // rows, the last may be partly visible
  shift: number; // pixels of the first row that are above the view
  atEnd: () => boolean;
  toRow: (row: number) => void;
  toEnd: () => void;
}

export function useLongScroll(
  rows: number,
  rowHeight: number,
  onScroll: (atEnd: boolean) => void,
): LongScroll {
  const box = useRef<HTMLDivElement>(null);
  const place = useRef({ top: 0, last: 0, view: 400, rows, timer: 0 });
  const heard = useRef(onScroll);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const now = place.current;

  heard.current = onScroll;
  now.rows = rows;

  const whole = () => now.rows * rowHeight;
  const real = () => Math.min(whole(), LONGEST);
  const most = () => Math.max(0, whole() - now.view);
  const mostReal = () => Math.max(0, real() - now.view);
  const atEnd = () => now.top >= most() - rowHeight / 2;

  /* Moves the scroll bar to the position of the first row in view. */
  function settle(): void {
    const element = box.current;

    now.timer = 0;
    if (!element) return;
    element.scrollTop = most() ? (now.top / most()) * mostReal() : 0;
    now.last = element.scrollTop;
  }

  function moveTo(top: number): void {
    now.top = Math.max(0, Math.min(top, most()));
    redraw(0);
  }

  useLayoutEffect(() => {
    const element = box.current!;

    function scrolled() {
      const at = element.scrollTop;
      const moved = at - now.last;

      if (Math.abs(moved) < 1) return;
      now.last = at;
      if (whole() <= LONGEST) moveTo(at);
      else if (Math.abs(moved) <= 1.2 * now.view) moveTo(now.top + moved);
      else moveTo(mostReal() ? (at / mostReal()) * most() : 0);
      clearTimeout(now.timer);
      now.timer = window.setTimeout(settle, SETTLE_MS);
      heard.current(atEnd());
    }
    function resized() {
      if (now.view === element.clientHeight) return;
      const end = atEnd();

      now.view = element.clientHeight;
      moveTo(end ? most() : now.top);
    }
    const observer = new ResizeObserver(resized);

    observer.observe(element);
    resized();
    element.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      observer.disconnect();
      clearTimeout(now.timer);
      element.removeEventListener("scroll", scrolled);
    };
  }, []);

  const top = Math.min(now.top, most());
  const first = Math.floor(top / rowHeight);

  return {
    box,
    height: real(),
    view: now.view,
    first,
    shown: Math.min(rows - first, Math.ceil(now.view / rowHeight) + 1),
    shift: top - first * rowHeight,
    atEnd,
    toRow(row) {
      moveTo(row * rowHeight - now.view / 3);
      settle();
    },
    toEnd() {
      moveTo(most());
      settle();
    },
  };
}
