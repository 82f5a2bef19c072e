/* Lists of which the server sends the changes. */
import assert from "node:assert/strict";
import test from "node:test";
import { merge } from "../src/changes";

test("changes turn the old list into the new one", () => {
  const old = [{ id: "a" }, { id: "b" }, { id: "c" }];
  const made = merge(old, { removed: [1], changed: [[0, { id: "d" }], [3, { id: "e" }]] });

  assert.deepEqual(
    made.map((one) => one.id),
    ["d", "a", "c", "e"],
  );
  assert.equal(made[1], old[0]);
  assert.deepEqual(old.length, 3);
});

test("an entry that changed keeps its place", () => {
  const made = merge(["a", "b", "c"], { removed: [1], changed: [[1, "B"]] });

  assert.deepEqual(made, ["a", "B", "c"]);
});

test("a list is whole, or has no changes", () => {
  assert.deepEqual(merge(["a"], ["b"]), ["b"]);
  assert.deepEqual(merge<string>(null, []), []);
  assert.deepEqual(merge(["a"], { removed: [], changed: [] }), ["a"]);
  assert.deepEqual(merge(["a"], { removed: [0], changed: [] }), []);
});

test("changes of another list are refused", () => {
  assert.throws(() => merge<string>(null, { removed: [], changed: [] }));
  assert.throws(() => merge(["a"], { removed: [], changed: [[2, "b"]] }));
  assert.throws(() => merge(["a"], { error: "x" }));
  assert.throws(() => merge(["a"], null));
});
