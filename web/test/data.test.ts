/* Readers of metrics, archives, times and routes, with missing and invalid values. */
import assert from "node:assert/strict";
import test from "node:test";
import { readSafetensors, readTorch, readZip } from "../src/archive";
import { duration, flatten, size, span, value, webAddress } from "../src/format";
import { placesOf } from "../src/lanes";
import { versionsOf } from "../src/listing";
import { lossOf } from "../src/loss";
import { readPickle } from "../src/pickle";
import { parseRoute } from "../src/route";
import { axisOf, rangeOf, seriesOf, summaryText } from "../src/series";
import type { Source } from "../src/source";
import { costText, isPartial, lostText, lostTime, segmentsOf } from "../src/timeline";
import type { Checkpoint, Metric, ObjectInfo, Version } from "../src/types";
import { actionsOf, effectOf, lockOf } from "../src/versions";

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

test("only web addresses are links", () => {
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
    { name: "a", packed: 7, size: 2 ** 32 + 1, offset: 0 },
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

test("the time between a success and a new start is not lost", () => {
  const at = (min: number) => `2026-01-01T00:0${min}:00Z`;
  const segments = segmentsOf(
    {
      attempts: [
        { state: "succeeded", started: at(0), ended: at(1) },
        { state: "failed", started: at(4), ended: at(5) },
        { state: "succeeded", started: at(7), ended: at(8) },
      ],
    },
    Date.parse(at(9)),
  );

  assert.equal(segments.length, 5);
  assert.equal(lostTime(segments), 2 * 60_000);
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

test("a launch is next to the steps until the one that waits for it", () => {
  const run = { kind: "run" };
  const steps = [
    { kind: "launch", handle: "A" },
    run,
    { kind: "launch", handle: "B" },
    { kind: "launch" },
    run,
    { kind: "group", steps: [{ kind: "run", depends_on: ["a"] }] },
    { kind: "launch", handle: "C" },
    { kind: "run", depends_on: ["C", "B"] },
  ];

  assert.deepEqual(
    placesOf(steps).map(({ lane, row, rows, joins }) => [lane, row, rows, joins]),
    [
      [1, 1, 2, true],
      [0, 1, 1, false],
      [2, 2, 2, true],
      [3, 2, 3, false],
      [0, 2, 1, false],
      [0, 3, 1, false],
      [1, 4, 1, true],
      [0, 4, 1, false],
    ],
  );
  assert.deepEqual(placesOf([{ kind: "launch" }]).map(({ row, rows }) => [row, rows]), [[1, 1]]);
});

/* {"epoch": 3, "model": OrderedDict(a=-5, b=2.5), "big": 2**70, "t": (1, None, True),
 *  "l": [1, 2, {"x": "y"}]} by Python, in the protocols 0, 2 and 4. */
const PICKLES = [
  "286470300a5665706f63680a70310a49330a73566d6f64656c0a70320a63636f6c6c656374696f6e730a4f726465726564446963740a70330a28745270340a56610a70350a492d350a7356620a70360a46322e350a7373566269670a70370a4c313138303539313632303731373431313330333432344c0a7356740a70380a2849310a4e4930310a7470390a73566c0a7031300a286c7031310a49310a6149320a6128647031320a56780a7031330a56790a7031340a7361732e",
  "80027d710028580500000065706f636871014b0358050000006d6f64656c710263636f6c6c656374696f6e730a4f726465726564446963740a7103295271042858010000006171054afbffffff580100000062710647400400000000000075580300000062696771078a0900000000000000004058010000007471084b014e8887710958010000006c710a5d710b284b014b027d710c580100000078710d580100000079710e7365752e",
  "80049582000000000000007d94288c0565706f6368944b038c056d6f64656c948c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294288c0161944afbffffff8c016294474004000000000000758c03626967948a090000000000000000408c0174944b014e8887948c016c945d94284b014b027d948c0178948c0179947365752e",
];

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g)!, (byte) => parseInt(byte, 16));
}

test("pickles of all protocols are read, and damaged ones are refused", () => {
  for (const [i, hex] of PICKLES.entries()) {
    const bytes = bytesOf(hex);

    assert.deepEqual(readPickle(bytes), {
      kind: "dict",
      items: [
        ["epoch", 3],
        [
          "model",
          {
            kind: "made",
            of: "collections.OrderedDict",
            args: [],
            items: [
              ["a", -5],
              ["b", 2.5],
            ],
            state: null,
          },
        ],
        ["big", i ? 2n ** 70n : 2 ** 70],
        ["t", [1, null, true]],
        ["l", [1, 2, { kind: "dict", items: [["x", "y"]] }]],
      ],
    });
    for (let n = 0; n < bytes.length; n++) {
      assert.throws(() => readPickle(bytes.subarray(0, n)));
      const damaged = bytes.slice();

      damaged[n] = damaged[n]! ^ 255;
      try {
        readPickle(damaged);
      } catch (error) {
        assert.ok(error instanceof Error && !(error instanceof TypeError), String(error));
      }
    }
  }
});

/* A zip whose only member is the pickle, as torch.save() writes it. */
function torchFile(pickle: Uint8Array): { source: Source; member: Parameters<typeof readTorch>[1][0] } {
  const name = "a/data.pkl";
  const file = new Uint8Array(30 + name.length + pickle.length);

  new DataView(file.buffer).setUint16(26, name.length, true);
  file.set(pickle, 30 + name.length);
  return {
    source: sourceOf(file),
    member: { name, size: pickle.length, packed: pickle.length, offset: 0 },
  };
}

test("a file of torch has tensors with names, and values next to them", async () => {
  const text = (value: string) => `X${String.fromCharCode(value.length)}\0\0\0${value}`;
  const storage = `(${text("storage")}ctorch\nHalfStorage\n${text("0")}${text("cpu")}K\x06tQ`;
  const tensor = `ctorch._utils\n_rebuild_tensor_v2\n(${storage}K\0K\x02K\x03\x86K\x03K\x01\x86\x89}tR`;
  const pickle = `\x80\x02}(${text("model")}}(${text("w")}${tensor}${text("bias")}ctorch._utils\n_rebuild_parameter\n(${tensor}\x88NtRu${text("epoch")}K\x07u.`;
  const { source, member } = torchFile(Uint8Array.from(pickle, (char) => char.charCodeAt(0)));

  assert.deepEqual(await readTorch(source, [member]), {
    tensors: [
      { name: "model.w", dtype: "float16", shape: [2, 3], bytes: 12 },
      { name: "model.bias", dtype: "float16", shape: [2, 3], bytes: 12 },
    ],
    metadata: [["epoch", "7"]],
    parameters: 12,
  });
  assert.equal(await readTorch(source, [{ ...member, name: "data.pkl" }]), null);
});

test("a pickle that repeats itself endlessly is refused", async () => {
  const twice = "](h\0h\0eq\0".repeat(40);
  const { source, member } = torchFile(
    Uint8Array.from(`\x80\x02]q\0${twice}.`, (char) => char.charCodeAt(0)),
  );

  await assert.rejects(readTorch(source, [member]));
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

test("only a retention in the mode GOVERNANCE can be bypassed, and not under a legal hold", () => {
  const now = Date.parse("2026-11-28T16:25:30Z");
  const until = "2026-11-29T16:25:30Z";
  const lock = (info: ObjectInfo) => lockOf(info, now);

  assert.equal(lock({}), null);
  assert.equal(lock({ retention: { mode: "GOVERNANCE", until: "2026-11-27T00:00:00Z" } }), null);
  assert.equal(lock({ retention: { mode: "GOVERNANCE" } }), null);
  assert.equal(lock({ retention: { mode: "GOVERNANCE", until } })?.bypass, true);
  assert.equal(lock({ retention: { mode: "COMPLIANCE", until } })?.bypass, false);
  assert.equal(lock({ retention: { mode: "GOVERNANCE", until }, legal_hold: true })?.bypass, false);
  assert.match(lock({ retention: { mode: "COMPLIANCE", until } })!.effect, /COMPLIANCE.*2026/);
});
