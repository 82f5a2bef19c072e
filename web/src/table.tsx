/*
 * Table of any number of rows: only those in view are in the document. The table scrolls by itself
 * and sorts by its headings.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Column<T> {
  key: string; // the class of the cells, too
  label: string;
  cell: (row: T) => ComponentChildren;
  order?: (row: T) => string | number | null | undefined; // without it there is no sorting
  hideLabel?: boolean;
}

export interface Sort {
  key: string;
  down: boolean;
}

interface TableProps<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  rowClass?: (row: T) => string;
  sort?: Sort | null;
  onSort?: (sort: Sort) => void;
  onEnd?: () => void; // the last row comes into view
  onOpen?: (row: T) => void; // a click on the row, but not on a link or button
  fill?: boolean; // takes the height that is left
}

const AROUND = 12; // rows above and below the view
const WHOLE = 60; // rows of a table that is drawn whole

function compare(a: unknown, b: unknown): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : 1;
}

/* Rows in the order of `sort`; missing values are last in both directions. */
export function sorted<T>(rows: T[], columns: Column<T>[], sort: Sort | null | undefined): T[] {
  const order = columns.find((column) => column.key === sort?.key)?.order;

  if (!order || !sort) return rows;
  const keyed = rows.map((row) => ({ row, key: order(row) }));
  const missing = (key: unknown) => key === null || key === undefined;

  keyed.sort((a, b) => {
    if (missing(a.key) || missing(b.key)) return compare(a.key, b.key);
    return sort.down ? compare(b.key, a.key) : compare(a.key, b.key);
  });
  return keyed.map(({ row }) => row);
}

function Heading<T>({
  column,
  sort,
  onSort,
}: { column: Column<T> } & Pick<TableProps<T>, "sort" | "onSort">) {
  const here = sort?.key === column.key;
  const ariaSort =
    !column.order || !onSort
      ? undefined
      : here
        ? sort!.down
          ? "descending"
          : "ascending"
        : "none";

  return (
    <th scope="col" class={column.key} aria-sort={ariaSort}>
      {column.order && onSort ? (
        <button
          type="button"
          onClick={() => onSort({ key: column.key, down: here ? !sort!.down : false })}
        >
          {column.label}
          <span aria-hidden="true">{here ? (sort!.down ? "\u00a0↓" : "\u00a0↑") : ""}</span>
        </button>
      ) : (
        <span class={column.hideLabel ? "hidden" : ""}>{column.label}</span>
      )}
    </th>
  );
}

export function Table<T>(props: TableProps<T>) {
  const { label, columns, rowKey, rowClass, sort, onSort, onEnd, onOpen } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800, row: 37 });
  const rows = useMemo(
    () => sorted(props.rows, columns, onSort && sort),
    [props.rows, sort, columns, onSort],
  );

  useLayoutEffect(() => {
    const element = box.current!;
    let frame = 0;

    function look() {
      frame = 0;
      const row = parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 37;
      const next = { top: element.scrollTop, height: element.clientHeight, row };

      setView((old) =>
        old.top === next.top && old.height === next.height && old.row === row ? old : next,
      );
    }
    function later() {
      frame ||= requestAnimationFrame(look);
    }
    const observer = new ResizeObserver(later);

    look();
    observer.observe(element);
    element.addEventListener("scroll", later, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(frame);
    };
  }, []);

  const whole = rows.length <= WHOLE;
  const first = whole
    ? 0
    : Math.max(0, Math.min(rows.length - 1, Math.floor(view.top / view.row) - AROUND));
  const last = whole
    ? rows.length
    : Math.min(rows.length, Math.ceil((view.top + view.height) / view.row) + AROUND);

  useEffect(() => {
    if (last >= rows.length) onEnd?.();
  }, [last, rows.length, onEnd]);

  function clicked(event: MouseEvent, row: T) {
    const target = event.target as Element;

    if (onOpen && !target.closest("a, button, input, label") && !getSelection()?.toString())
      onOpen(row);
  }

  return (
    <div
      ref={box}
      class={`table-box${props.fill ? " fill" : ""}`}
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <table aria-rowcount={rows.length + 1} aria-label={label}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Heading key={column.key} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && (
            <Space rows={first} height={view.row} columns={columns.length} key=" before" />
          )}
          {rows.slice(first, last).map((row, i) => (
            <tr
              key={rowKey(row)}
              aria-rowindex={first + i + 2}
              class={`${rowClass?.(row) ?? ""}${onOpen ? " opens" : ""}`}
              onClick={(event) => clicked(event, row)}
            >
              {columns.map((column) => (
                <td key={column.key} class={column.key}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {last < rows.length && (
            <Space
              rows={rows.length - last}
              height={view.row}
              columns={columns.length}
              key=" after"
            />
          )}
        </tbody>
      </table>
    </div>
  );
}

function Space({ rows, height, columns }: { rows: number; height: number; columns: number }) {
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={columns} style={{ height: `${rows * height}px` }} />
    </tr>
  );
}
