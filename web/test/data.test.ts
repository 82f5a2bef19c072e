/* Readers of metrics, archives, times and routes, with missing and invalid values. */
import assert from "node:assert/strict";
import test from "node:test";
import { readSafetensors, readZip } from "../src/archive";
import { duration, flatten, size, span, value, webAddress } from "../src/format";
import { versionsOf } from "../src/listing";
import { lossOf } from "../src/loss";
import { parseRoute } from "../src/route";
import { axisOf, rangeOf, seriesOf, summaryText } from "../src/series";
import type { Source } from "../src/source";
import { costText, isPartial, lostText, lostTime, segmentsOf } from "../src/timeline";
import type { Checkpoint, Metric, Version } from "../src/types";
import { actionsOf, effectOf } from "../src/versions";

function sourceOf(data: Uint8Array): Source {
  return {
    name: "file",
    size: data.length,
    download: "",
    read: async (offset, length) => data.slice(offset, offset + length),
  };
}

test("sizes and times have the form of the verbs", () => {
  assert.equal(size(999), "999 B");
  assert.equal(size(1234567), "1.2 MB");
  assert.equal(size(null), "–");
  assert.equal(duration(65_000), "1 min 5 s");
  assert.equal(span(3 * 86_400_000), "3 d");
  assert.equal(value(0.30000000000000004), "0.3");
  assert.equal(value("NaN"), "NaN");
});

test("only addresses of the web are links", () => {
  assert.equal(webAddress("http://127.0.0.1:5000/#/runs/1"), "http://127.0.0.1:5000/#/runs/1");
  assert.equal(webAddress("javascript:alert(1)"), null);
  assert.equal(webAddress("//mlflow.example/"), null);
  assert.equal(webAddress(null), null);
  assert.equal(webAddress({}), null);
});

test("values that are not numbers are gaps", () => {
  const metric: Metric = {
    name: "loss",
    points: [
      [1, null, 0.5],
      [2, null, "NaN"],
      [3, null, null],
      [4, null, "Infinity"],
      [5, null, 0.1],
    ],
  };

  assert.deepEqual(seriesOf(metric, "step"), {
    xs: [1, 2, 3, 4, 5],
    ys: [0.5, null, null, null, 0.1],
  });
  assert.equal(axisOf(metric, "time"), "step");
  assert.equal(summaryText(metric), "last 0.1, min 0.1, max 0.5, 3 points are not numbers");
  assert.equal(summaryText({}), "no points");
});

test("usage, which has no steps, is plotted over time in seconds", () => {
  const metric: Metric = {
    name: "usage/train/cpu",
    points: [
      [null, 2000, 1],
      [null, 1000, 0.5],
    ],
  };

  assert.equal(axisOf(metric, "step"), "time");
  assert.deepEqual(seriesOf(metric, "time"), { xs: [1, 2], ys: [0.5, 1] });
});

test("usage has a gap between two attempts", () => {
  const points: Metric["points"] = [0, 1, 2, 60, 61].map((s) => [null, s * 1000, 1]);

  assert.deepEqual(seriesOf({ name: "usage/train/cpu", points }, "time").ys, [1, 1, 1, null, 1, 1]);
  assert.deepEqual(seriesOf({ name: "loss", points }, "time").ys, [1, 1, 1, 1, 1]);
});

test("a single place of a plot has room around it", () => {
  const day = 86_400_000; // the range that uPlot suggests for one time

  assert.deepEqual(rangeOf([1000], "time", 1000, 1000 + day), [970, 1030]);
  assert.deepEqual(rangeOf([7], "step", 0, 10), [6, 8]);
  assert.deepEqual(rangeOf([7, 7], "step", 0, 10), [6, 8]);
  assert.deepEqual(rangeOf([1000, 2000, 3000], "time", 1200, 1300), [1200, 1300]);
  assert.deepEqual(rangeOf([], "time", 0, 1), [0, 1]);
});

test("the header of safetensors is read from the first bytes", async () => {
  const header = new TextEncoder().encode(
    '{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}',
  );
  const file = new Uint8Array(8 + header.length + 24);

  new DataView(file.buffer).setUint32(0, header.length, true);
  file.set(header, 8);
  const tensors = await readSafetensors(sourceOf(file));

  assert.equal(tensors.parameters, 6);
  assert.deepEqual(tensors.tensors, [{ name: "w", dtype: "F32", shape: [2, 3], bytes: 24 }]);
  await assert.rejects(readSafetensors(sourceOf(new Uint8Array(100).fill(255))));
  await assert.rejects(readSafetensors(sourceOf(new Uint8Array(3))));
});

/* One member without contents, whose sizes are in a field for more than 4 GiB. */
function longZip(): Uint8Array {
  const file = new Uint8Array(46 + 1 + 20 + 22);
  const view = new DataView(file.buffer);

  view.setUint32(0, 0x02014b50, true);
  view.setUint32(20, 0xffffffff, true);
  view.setUint32(24, 0xffffffff, true);
  view.setUint16(28, 1, true);
  view.setUint16(30, 20, true);
  file[46] = 97;
  view.setUint16(47, 1, true);
  view.setUint16(49, 16, true);
  view.setUint32(51, 1, true); // size 2^32 + 1
  view.setUint32(55, 1, true);
  view.setUint32(59, 7, true);
  view.setUint32(67, 0x06054b50, true);
  view.setUint32(79, 67, true);
  return file;
}

test("members of a zip are read from its end, also beyond 4 GiB", async () => {
  assert.deepEqual(await readZip(sourceOf(longZip())), [
    { name: "a", packed: 7, size: 2 ** 32 + 1 },
  ]);
  await assert.rejects(readZip(sourceOf(new Uint8Array(1000))));
  await assert.rejects(readZip(sourceOf(new Uint8Array(0))));
});

test("routes keep slashes and odd characters of keys", () => {
  const route = parseRoute("#/buckets/s3://b/a%3Fb%23c/%25?store=embedded");

  assert.equal(route.page, "buckets");
  assert.equal(route.rest, "s3://b/a?b#c/%");
  assert.equal(route.query.get("store"), "embedded");
  assert.equal(parseRoute("#/run/%E0%A4%A").rest, "%E0%A4%A");
  assert.equal(parseRoute("").page, "runs");
});

test("gaps between attempts are lost time, the wait for the first one is not", () => {
  const segments = segmentsOf(
    {
      created: "2026-01-01T00:00:00Z",
      attempts: [
        { state: "preempted", started: "2026-01-01T00:01:00Z", ended: "2026-01-01T00:02:00Z" },
        { state: "lost", started: "2026-01-01T00:05:00Z", heard: "2026-01-01T00:06:00Z" },
        { state: "running", started: "2026-01-01T00:10:00Z" },
        {},
      ],
    },
    Date.parse("2026-01-01T00:11:00Z"),
  );

  assert.equal(segments.length, 6);
  assert.equal(lostTime(segments), (3 + 4) * 60_000);
  assert.deepEqual(segmentsOf({}, 0), []);
});

test("no time is lost between attempts if others of another machine are unknown", () => {
  const at = (min: number) => `2026-01-01T00:0${min}:00Z`;
  const run = {
    attempt: 3,
    created: at(0),
    attempts: [
      { attempt: 1, state: "lost", started: at(1), heard: at(2) },
      { attempt: 3, state: "failed", started: at(5), ended: at(6) },
    ],
  };
  const segments = segmentsOf(run, 0);

  assert.equal(isPartial(run), true);
  assert.deepEqual(
    segments.map(({ attempt }) => attempt?.attempt),
    [1, 3],
  );
  assert.equal(lostTime(segments), 0);
  assert.equal(isPartial({ ...run, attempt: 2 }), false);
  assert.equal(isPartial({}), false);
});

test("a sum of costs names the attempts that it covers", () => {
  const loss = { ms: 60_000, exact: true, steps: 0 };

  const attempts = [{ cost: 1 }, {}, { cost: 1.49 }];

  assert.equal(costText({ cost: 2.49, attempts }), "2.49 for 2 of 3 attempts");
  assert.equal(costText({ cost: 2.49, attempt: 5, attempts }), "2.49 for 2 of 5 attempts");
  assert.equal(costText({ cost: 1, attempts: [{ cost: 1 }] }), "1.00");
  assert.equal(costText({ attempts: [{}] }), null);
  assert.equal(lostText([{ ...loss, cost: 1 }, { ...loss, cost: 1.5 }]), "2 min, 2.50");
  assert.equal(
    lostText([
      { ...loss, steps: 20, cost: 1 },
      { ...loss, exact: false, cost: null },
    ]),
    "20 steps, at most 2 min, 1.00 for 1 of 2 attempts",
  );
  assert.equal(lostText([{ ...loss, ms: 0, cost: null }]), null);
  assert.equal(lostText([]), null);
});

test("an attempt that was preempted lost the work since its last checkpoint", () => {
  const at = (s: number) => new Date(s * 1000).toISOString();
  const attempt = { attempt: 1, state: "preempted", provenance: { price: "3.6" } };
  const run = {
    steps: [
      { attempt: 1, ended: at(200) },
      { attempt: 2, ended: at(1000) },
    ],
  };
  const checkpoints = [
    { attempt: 1, time: at(500), readable: 1 },
    { attempt: 1, time: at(700), readable: 0 },
    { attempt: 2, time: at(1000), readable: 1 },
  ];
  const metrics: Metric[] = [
    { name: "loss", repeated: [[100, 119, 990_000], [5, 90, 4_000_000], [null, 2, null]] },
    { name: "odd", repeated: null },
  ];

  assert.deepEqual(lossOf(attempt, 100_000, 1_000_000, run, checkpoints, metrics), {
    ms: 500_000,
    exact: true,
    steps: 20,
    cost: 0.5,
  });
  assert.equal(lossOf({ state: "succeeded" }, 100_000, 1_000_000, run, [], []), null);
});

test("without a checkpoint of the attempt the work that was lost has an upper bound only", () => {
  const at = (s: number) => new Date(s * 1000).toISOString();
  const run = { steps: [{ attempt: 1, ended: at(200) }] };
  // The step may resume from this file.
  const files = [{ file: "model.pt", time: at(999) }];
  const loss = (attempt: number, checkpoints: Checkpoint[]) =>
    lossOf({ attempt, state: "preempted" }, 100_000, 1_000_000, run, checkpoints, []);
  const bound = { exact: false, steps: 0, cost: null };

  assert.deepEqual(loss(1, files), { ...bound, ms: 800_000 });
  assert.deepEqual(loss(2, files), { ...bound, ms: 900_000 });
  assert.deepEqual(loss(2, []), { ...bound, ms: 900_000 });
  // Retention may have removed checkpoints of this attempt.
  const other = { attempt: 1, time: at(500), readable: 1 };
  assert.deepEqual(loss(2, [other]), { ...bound, ms: 900_000 });
});

test("members of a list are compared by their names", () => {
  const of = (value: unknown) => {
    const all = new Map<string, string>();

    flatten(value, "env", all);
    return Object.fromEntries(all);
  };

  assert.deepEqual(of([{ key: "A", value: "1" }, { name: "b" }]), {
    "env.A.key": "A",
    "env.A.value": "1",
    "env.b.name": "b",
  });
  assert.deepEqual(of([{ key: "A" }, { key: "A" }]), { "env.0.key": "A", "env.1.key": "A" });
  assert.deepEqual(of(["x", 2]), { "env.0": "x", "env.1": "2" });
});

test("a page of versions has those of one key, and the place of the next page", () => {
  const page = (n: number, key: string): Version[] =>
    Array.from({ length: n }, (_, i) => ({ key, version: `v${i}` }));
  const full = page(1000, "a");

  assert.deepEqual(versionsOf(full, "a"), { rows: full, next: "v999" });
  assert.deepEqual(versionsOf([...page(2, "a"), ...page(998, "a/b")], "a"), {
    rows: page(2, "a"),
    next: null,
  });
  assert.deepEqual(versionsOf(page(3, "a"), "a").next, null);
  assert.deepEqual(versionsOf([{ key: "a" }, null, "x", { version: "v" }], "a").rows, []);
  assert.deepEqual(versionsOf(null, "a"), { rows: [], next: null });
});

test("versions are restored by a copy, deletions by the removal of the newest marker", () => {
  const version = { version: "1", latest: false, deleted: false };
  const marker = { version: "2", latest: true, deleted: true };

  assert.deepEqual(actionsOf(version), ["restore", "delete"]);
  assert.deepEqual(actionsOf(marker), ["restore", "delete"]);
  assert.deepEqual(actionsOf({ ...version, latest: true }), ["delete"]);
  assert.deepEqual(actionsOf({ ...marker, latest: false }), ["delete"]);
  assert.deepEqual(actionsOf({ version: "3" }), ["restore", "delete"]);
});

test("an action on a version says what is lost", () => {
  const text = (...of: Parameters<typeof effectOf>) => effectOf(...of).join(" ");
  const version = { version: "1", latest: false };
  const marker = { version: "2", latest: true, deleted: true };

  assert.match(text("restore", version, "enabled"), /copies.*All versions stay/);
  assert.match(text("restore", version, "suspended"), /is suspended.*'null'.*permanently/);
  assert.match(text("restore", version, null), /If.*'null'.*permanently/);
  assert.match(text("restore", marker, "enabled"), /marker is removed.*becomes the current/);
  assert.match(text("delete", version, null), /lost/);
  assert.doesNotMatch(text("delete", version, null), /becomes the current/);
  assert.match(text("delete", { ...version, latest: true }, null), /lost.*becomes the current/);
  assert.doesNotMatch(text("delete", marker, null), /lost/);
});
