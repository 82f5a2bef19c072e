/* Uploads over a connection that fails. */
import assert from "node:assert/strict";
import test from "node:test";
import { allUploads, onUploads, startUpload, type Upload } from "../src/uploads";

function ended(url: string): Promise<Upload> {
  return new Promise((resolve) => {
    const stop = onUploads(() => {
      const upload = allUploads().find((one) => one.url === url)!;

      if (upload.state === "sending") return;
      stop();
      resolve(upload);
    });
  });
}

test("a part whose reply was lost has been sent", async () => {
  const puts = [
    () => Promise.reject(new TypeError("the connection was closed")),
    () => Promise.resolve(Response.json({ error: "the next part is number 2" }, { status: 409 })),
  ];
  const reply = (url: string) =>
    Response.json(url.includes("/finish") ? {} : { id: "4-0-id", part: 4, done: [] });

  globalThis.fetch = ((url: string, { method }: RequestInit) =>
    method === "PUT" ? puts.shift()!() : Promise.resolve(reply(url))) as typeof fetch;
  startUpload(new Blob(["data"]) as File, "s3://bucket/key", null);
  const upload = await ended("s3://bucket/key");

  assert.equal(upload.error, null);
  assert.equal(upload.state, "done");
  assert.equal(puts.length, 0);
});

for (const [code, state] of [
  [undefined, "done"],
  [66, "failed"], // the store has no such bucket
] as const)
  test(`a file whose last reply was lost is ${state} if the code is ${code}`, async () => {
    const url = `s3://bucket/${state}`;
    const finishes = [
      () => Promise.reject(new TypeError("the connection was closed")),
      () => Promise.resolve(Response.json({ error: "cannot open it", code }, { status: 404 })),
    ];
    const begun = () => Promise.resolve(Response.json({ id: "0-0-id", part: 4, done: [] }));

    globalThis.fetch = ((target: string) =>
      target.includes("/finish") ? finishes.shift()!() : begun()) as typeof fetch;
    startUpload(new Blob([]) as File, url, null);
    const upload = await ended(url);

    assert.equal(upload.state, state);
    assert.equal(finishes.length, 0);
  });
