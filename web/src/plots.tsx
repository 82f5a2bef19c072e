/* Plots of metrics: one figure each, drawn when it comes into view. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { list, moment, value } from "./format";
import { Empty, Failure, Waiting } from "./parts";
import { type Axis, axisOf, joined, rangeOf, seriesOf, summaryText, unitOf } from "./series";
import { useTheme } from "./theme";
import type { Metric } from "./types";

const HEIGHT = 220;
const DATE_WIDTH = 80; // a label may have a date
const COLORS = 8; // --series-1 … of the style

export interface Curve {
  label: string;
  metric: Metric;
}

interface FigureProps {
  name: string;
  curves: Curve[];
  axis: Axis;
  logarithmic: boolean;
}

function style(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/* Labels of a time axis: hours and minutes, seconds if the ticks are close, and the date at the
 * first tick of a day. */
function clocks(_: uPlot, ticks: number[]): string[] {
  const close = ticks.length > 1 && ticks[1]! - ticks[0]! < 60;
  let day = "";

  return ticks.map((tick) => {
    const [date = "", time = ""] = moment(1000 * tick).split(" ");
    const label = close ? time : time.slice(0, 5);
    const first = date !== day;

    day = date;
    return first ? `${label}\n${date}` : label;
  });
}

function optionsOf(props: FigureProps, axis: Axis, width: number): uPlot.Options {
  const { name, curves, logarithmic } = props;
  const unit = unitOf(name);
  const line = {
    stroke: style("--quiet"),
    grid: { stroke: style("--line"), width: 1 },
    ticks: { show: false },
  };

  return {
    width,
    height: HEIGHT,
    cursor: { sync: { key: `penstock-${axis}` }, drag: { x: true, y: false } },
    legend: { live: true },
    scales: {
      x: {
        time: axis === "time",
        range: ({ data }, min, max) => rangeOf(data[0], axis, min, max),
      },
      y: { distr: logarithmic ? 3 : 1 },
    },
    axes: [
      axis === "time"
        ? { ...line, size: 40, space: DATE_WIDTH, values: clocks }
        : { ...line, size: 40 },
      { ...line, size: 68, values: (_, ticks) => ticks.map((n) => (n === null ? "" : unit(n))) },
    ],
    series: [
      axis === "time" ? { label: "time" } : { label: "step", value: (_, n) => value(n) },
      ...curves.map((curve, i) => ({
        label: curve.label,
        stroke: style(`--series-${(i % COLORS) + 1}`),
        width: 1.5,
        dash: i >= COLORS ? [6, 4] : undefined,
        spanGaps: false,
        points: { size: 4 },
        value: (_: uPlot, n: number | null) => (n === null || n === undefined ? "–" : unit(n)),
      })),
    ],
  };
}

/* Returns true once the element was in view, or less than 300 pixels away from the view. */
function useSeen(element: { current: Element | null }): boolean {
  const [seen, setSeen] = useState(false);

  useEffect(() => {
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && setSeen(true),
      { rootMargin: "300px" },
    );

    observer.observe(element.current!);
    return () => observer.disconnect();
  }, []);
  return seen;
}

export function Figure(props: FigureProps) {
  const { name, curves, logarithmic } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const seen = useSeen(box);
  const theme = useTheme();
  const axis = axisOf(curves[0]?.metric ?? {}, props.axis);
  const labels = curves.map((curve) => curve.label).join("\n");
  const data = useMemo(
    () => (seen ? joined(curves.map((curve) => seriesOf(curve.metric, axis, logarithmic))) : null),
    [seen, curves, axis, logarithmic],
  );

  useEffect(() => {
    if (!seen || !data) return;
    const element = box.current!;
    const made = new uPlot(optionsOf(props, axis, element.clientWidth || 300), data, element);
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: HEIGHT }),
    );

    plot.current = made;
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [seen, name, labels, axis, logarithmic, theme]);
  useEffect(() => {
    if (data) plot.current?.setData(data);
  }, [data]);

  const summary = curves.map((curve) =>
    curves.length > 1 ? `${curve.label}: ${summaryText(curve.metric)}` : summaryText(curve.metric),
  );

  return (
    <figure class="plot">
      <figcaption>
        <h3>{name}</h3>
        {summary.map((line, i) => (
          <span key={i} class="quiet">
            {line}
          </span>
        ))}
      </figcaption>
      <div
        ref={box}
        class="canvas"
        role="img"
        aria-label={`${name} over ${axis}: ${summary.join("; ")}`}
      />
    </figure>
  );
}

export interface PlotGroup {
  name: string;
  curves: Curve[];
}

/* Figures of groups, below a filter and the choices of axis and scale. */
export function Plots({ groups }: { groups: PlotGroup[] }) {
  const [axis, setAxis] = useState<Axis>("step");
  const [logarithmic, setLogarithmic] = useState(false);
  const [filter, setFilter] = useState("");
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = groups.filter(({ name }) =>
    words.every((word) => name.toLowerCase().includes(word)),
  );
  const isUsage = ({ name }: PlotGroup) => name.startsWith("usage/");

  if (!groups.length)
    return (
      <Empty>
        There are no metrics yet. Event files, metrics*.jsonl and metrics.csv of the output are
        read, and the tracked run at MLflow.
      </Empty>
    );
  return (
    <>
      <div class="bar">
        <input
          type="search"
          class="grow"
          data-filter
          aria-label="Filter the metrics"
          placeholder="Filter by name ( / )"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <label class="group">
          Over
          <select value={axis} onChange={(event) => setAxis(event.currentTarget.value as Axis)}>
            <option value="step">steps</option>
            <option value="time">time</option>
          </select>
        </label>
        <label class="group">
          <input
            type="checkbox"
            checked={logarithmic}
            onChange={(event) => setLogarithmic(event.currentTarget.checked)}
          />
          Logarithmic
        </label>
      </div>
      <p class="quiet">Drag over a plot to enlarge a part; a double click shows all of it.</p>
      {[
        ["Metrics", shown.filter((group) => !isUsage(group))] as const,
        ["Usage", shown.filter(isUsage)] as const,
      ].map(([title, part]) =>
        part.length ? (
          <section key={title} aria-label={title}>
            <h2>{title}</h2>
            <div class="plots">
              {part.map((group) => (
                <Figure
                  key={group.name}
                  name={group.name}
                  curves={group.curves}
                  axis={axis}
                  logarithmic={logarithmic && !isUsage(group)}
                />
              ))}
            </div>
          </section>
        ) : null,
      )}
    </>
  );
}

/* Plots of one run. */
export function RunPlots({ metrics, error }: { metrics: Metric[] | null; error: string | null }) {
  const groups = useMemo(
    () =>
      list<Metric>(metrics)
        .filter((metric) => typeof metric.name === "string")
        .map((metric) => ({
          name: metric.name!,
          curves: [{ label: metric.name!.split("/").pop()!, metric }],
        })),
    [metrics],
  );

  return (
    <>
      <Failure text={error} />
      {metrics ? (
        <Plots groups={groups} />
      ) : (
        !error && <Waiting what="Loading the metrics…" />
      )}
    </>
  );
}
