/* Uploads over a connection that fails. */
import assert from "node:assert/strict";
import test from "node:test";
import { allUploads, onUploads, startUpload } from "../src/uploads";

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
  await new Promise<void>((resolve) => {
    const stop = onUploads(() => {
      if (allUploads()[0]!.state === "sending") return;
      stop();
      resolve();
    });
  });

  assert.equal(allUploads()[0]!.error, null);
  assert.equal(allUploads()[0]!.state, "done");
  assert.equal(puts.length, 0);
});
