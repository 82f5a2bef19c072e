/* Points of metrics as columns for a plot, and their summary as text. */
import uPlot from "uplot";
import { isNumber, list, size, value } from "./format";
import type { Metric, Point } from "./types";

const PAUSE_S = 10; // seconds without a sample
const PAUSE_FACTOR = 5;
const ROOM_S = 30;
const ROOM_STEPS = 1;

export type Axis = "step" | "time";

export interface Series {
  xs: number[]; // steps, or seconds since 1970
  ys: (number | null)[]; // null: a gap
}

/* Returns a function that formats values of the metric; metrics of usage have units. */
export function unitOf(name: string): (n: unknown) => string {
  const kind = name.startsWith("usage/") ? name.slice(name.lastIndexOf("/") + 1) : "";

  if (kind === "memory" || kind === "gpu_memory") return size;
  if (kind === "received" || kind === "sent") return (n) => `${size(n)}/s`;
  return value;
}

function pointsOf(metric: Metric): Point[] {
  return list<Point>(metric.points).filter((point) => Array.isArray(point));
}

function numberOf(point: Point): number | null {
  return isNumber(point[2]) ? point[2] : null;
}

function has(metric: Metric, axis: Axis): boolean {
  return pointsOf(metric).some((point) => isNumber(point[axis === "step" ? 0 : 1]));
}

/* Returns `wanted`, or the other axis if the metric has values only for the other axis. */
export function axisOf(metric: Metric, wanted: Axis): Axis {
  const other = wanted === "step" ? "time" : "step";

  return has(metric, wanted) || !has(metric, other) ? wanted : other;
}

/*
 * Returns the range of an axis that shows `min` to `max` of the places `xs`. A single place gets a
 * small range around it, because uPlot would show years of time.
 */
export function rangeOf(
  xs: ArrayLike<number>,
  axis: Axis,
  min: number,
  max: number,
): uPlot.Range.MinMax {
  const only = xs[0];
  const room = axis === "time" ? ROOM_S : ROOM_STEPS;

  return only !== undefined && only === xs[xs.length - 1] ? [only - room, only + room] : [min, max];
}

type Row = [number, number | null];

/*
 * Adds a gap to the samples of usage where samples are missing, such as between two attempts.
 * Samples get rarer with the age of an attempt, so only a time that is long compared with the time
 * between the previous two samples is a gap.
 */
function withPauses(rows: Row[]): Row[] {
  const all: Row[] = [];

  rows.forEach((row, i) => {
    const pause = i > 0 ? row[0] - rows[i - 1]![0] : 0;
    const before = i > 1 ? rows[i - 1]![0] - rows[i - 2]![0] : 1;

    if (pause > PAUSE_S && pause > PAUSE_FACTOR * before) all.push([row[0] - pause / 2, null]);
    all.push(row);
  });
  return all;
}

/* Columns in the order of `axis`. If points have the same place, the last one is used. */
export function seriesOf(metric: Metric, axis: Axis, logarithmic = false): Series {
  const at = axis === "step" ? 0 : 1;
  const rows: Row[] = [];

  pointsOf(metric).forEach((point, i) => {
    const x = isNumber(point[at]) ? point[at] : has(metric, axis) ? null : i;
    const y = numberOf(point);

    if (x !== null)
      rows.push([axis === "time" ? x / 1000 : x, logarithmic && y !== null && y <= 0 ? null : y]);
  });
  if (rows.some((row, i) => i > 0 && row[0] < rows[i - 1]![0])) rows.sort((a, b) => a[0] - b[0]);
  const kept = rows.filter((row, i) => row[0] !== rows[i + 1]?.[0]);
  const whole = (metric.name ?? "").startsWith("usage/") ? withPauses(kept) : kept;

  return { xs: whole.map((row) => row[0]), ys: whole.map((row) => row[1]) };
}

export interface Summary {
  last: number | string | null;
  lastStep: number | null;
  min: number | null;
  max: number | null;
  gaps: number; // values that are not numbers
  points: number;
}

export function summaryOf(metric: Metric): Summary {
  const summary: Summary = { last: null, lastStep: null, min: null, max: null, gaps: 0, points: 0 };

  for (const point of pointsOf(metric)) {
    const n = numberOf(point);

    summary.points++;
    summary.last = point[2] ?? "NaN";
    summary.lastStep = isNumber(point[0]) ? point[0] : null;
    if (n === null) summary.gaps++;
    else {
      summary.min = summary.min === null ? n : Math.min(summary.min, n);
      summary.max = summary.max === null ? n : Math.max(summary.max, n);
    }
  }
  return summary;
}

/* "last 0.5, min 0.5, max 0.9, 2 points are not numbers" */
export function summaryText(metric: Metric): string {
  const { last, min, max, gaps, points } = summaryOf(metric);
  const unit = unitOf(metric.name ?? "");

  if (!points) return "no points";
  const lost = gaps
    ? `, ${gaps} ${gaps === 1 ? "point is not a number" : "points are not numbers"}`
    : "";
  const thinned = (metric.every ?? 1) > 1 ? `, one point of ${metric.every} is shown` : "";
  return `last ${unit(last)}, min ${unit(min)}, max ${unit(max)}${lost}${thinned}`;
}

/* Several series with one common column of places. */
export function joined(all: Series[]): uPlot.AlignedData {
  if (all.length === 1) return [all[0]!.xs, all[0]!.ys];
  return uPlot.join(all.map(({ xs, ys }) => [xs, ys] as uPlot.AlignedData));
}
