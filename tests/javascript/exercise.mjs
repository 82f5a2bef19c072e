/* Tests a store with the SDK for JavaScript. Endpoint and keys come from the environment. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createReadStream, writeFileSync } from "node:fs";
import { Readable } from "node:stream";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListPartsCommand,
  NoSuchKey,
  NotFound,
  PutBucketVersioningCommand,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
  UploadPartCopyCommand,
  paginateListBuckets,
  paginateListObjectsV2,
  waitUntilObjectExists,
  waitUntilObjectNotExists,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const MIB = 1024 * 1024;
const KEYS = 1005;
const ODD = "dir//../%2F+ ü😀?&=#~\"'<>";
const ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"];
const Bucket = "javascript";
const s3 = new S3Client({ forcePathStyle: true, maxAttempts: 1 });

const send = (Command, input, client = s3) => client.send(new Command({ Bucket, ...input }));
const put = (Key, Body, more) => send(PutObjectCommand, { Key, Body, ...more });
const get = (Key, more) => send(GetObjectCommand, { Key, ...more });
const head = (Key, more) => send(HeadObjectCommand, { Key, ...more });
const bytes = async (got) => Buffer.from(await got.Body.transformToByteArray());
const sign = (Command, input, options) => getSignedUrl(s3, new Command({ Bucket, ...input }), { expiresIn: 60, ...options });

/* Returns name and status of a request's error. The request must fail. */
async function failure(request) {
  try {
    await request;
  } catch (error) {
    return [error.name, error.$metadata?.httpStatusCode];
  }
  throw new Error("the request succeeded, but must fail");
}

/* Returns the entries of all pages, and the number of pages. */
async function listed(paginate, member, input, pageSize) {
  const entries = [];
  let pages = 0;
  for await (const page of paginate({ client: s3, pageSize }, { Bucket, ...input })) {
    entries.push(...(page[member] ?? []));
    pages++;
  }
  return [entries, pages];
}

async function putAndRead() {
  const body = randomBytes(300_000);
  const more = { ContentType: "text/x", CacheControl: "no-cache", Metadata: { a: "b" }, Tagging: "t=u%20v" };
  for (const Key of ["plain", ODD, "x".repeat(1024)]) {
    const stored = await put(Key, body, more);
    // The SDK adds this checksum by default.
    assert.equal(Buffer.from(stored.ChecksumCRC32, "base64").length, 4);
    const got = await get(Key);
    assert.deepEqual(await bytes(got), body);
    assert.deepEqual([got.ContentType, got.CacheControl, got.Metadata], ["text/x", "no-cache", { a: "b" }]);
    assert.equal(got.ChecksumCRC32, stored.ChecksumCRC32);
    assert.equal((await head(Key)).ContentLength, body.length);
    assert.deepEqual((await send(GetObjectTaggingCommand, { Key })).TagSet, [{ Key: "t", Value: "u v" }]);
  }
  await put("empty", "");
  assert.equal((await bytes(await get("empty"))).length, 0);
}

/* A stream is sent in chunks with a trailer, and after the store's 100 Continue if it is long. */
async function streams() {
  const body = randomBytes(7 * MIB + 3);
  writeFileSync("body", body);
  assert.ok((await put("file", createReadStream("body"))).ChecksumCRC32);
  await put("stream", Readable.from([body.subarray(0, 5), body.subarray(5)]), { ContentLength: body.length });

  for (const key of ["file", "stream"]) {
    const chunks = [];
    for await (const chunk of (await get(key)).Body) chunks.push(chunk);
    assert.deepEqual(Buffer.concat(chunks), body);
  }
  const web = new Response((await get("file")).Body.transformToWebStream());
  assert.deepEqual(Buffer.from(await web.arrayBuffer()), body);
}

async function ranges() {
  const body = Buffer.from(Array.from({ length: 256_000 }, (_, i) => i & 255));
  await put("ranged", body);
  const end = body.length;
  const wanted = { "0-0": [0, 1], "5-99": [5, 100], "-7": [end - 7, end], "255990-": [255_990, end] };
  for (const [range, [from, to]] of Object.entries(wanted)) {
    const got = await get("ranged", { Range: `bytes=${range}` });
    assert.deepEqual([got.$metadata.httpStatusCode, got.ContentRange], [206, `bytes ${from}-${to - 1}/${end}`]);
    assert.deepEqual(await bytes(got), body.subarray(from, to));
  }
  assert.deepEqual(await failure(get("ranged", { Range: "bytes=256000-" })), ["InvalidRange", 416]);
}

async function lists() {
  const keys = Array.from({ length: KEYS }, (_, i) => `many/${i % 3}/${String(i).padStart(5, "0")} ü`).sort();
  for (let i = 0; i < KEYS; i += 50) await Promise.all(keys.slice(i, i + 50).map((key) => put(key, "x")));
  const Prefix = "many/";

  const [entries, pages] = await listed(paginateListObjectsV2, "Contents", { Prefix }, 300);
  assert.deepEqual([entries.map(({ Key }) => Key), pages], [keys, 4]);
  assert.ok(entries[0].LastModified instanceof Date && entries[0].ETag.startsWith('"'));
  const [encoded] = await listed(paginateListObjectsV2, "Contents", { Prefix, EncodingType: "url" });
  assert.deepEqual(encoded.map(({ Key }) => decodeURIComponent(Key.replaceAll("+", " "))), keys);
  const [folders] = await listed(paginateListObjectsV2, "CommonPrefixes", { Prefix, Delimiter: "/" }, 2);
  assert.deepEqual(folders, ["many/0/", "many/1/", "many/2/"].map((folder) => ({ Prefix: folder })));
  const [after] = await listed(paginateListObjectsV2, "Contents", { Prefix, StartAfter: keys[1000] });
  assert.deepEqual(after.map(({ Key }) => Key), keys.slice(1001));

  for (const name of ["b", "c"]) await send(CreateBucketCommand, { Bucket: `${Bucket}-${name}` });
  const [buckets] = await listed(paginateListBuckets, "Buckets", { Prefix: Bucket }, 1);
  assert.deepEqual(buckets.map(({ Name }) => Name), [Bucket, `${Bucket}-b`, `${Bucket}-c`]);
  for (const name of ["b", "c"]) await send(DeleteBucketCommand, { Bucket: `${Bucket}-${name}` });
}

async function uploads() {
  const body = randomBytes(17 * MIB + 5);
  const upload = (Key, more) =>
    new Upload({ client: s3, partSize: 5 * MIB, params: { Bucket, Key, Body: Readable.from(body), ...more } });
  const sent = [];
  const running = upload("parts", { ContentType: "a/b" });
  running.on("httpUploadProgress", ({ loaded }) => sent.push(loaded));
  assert.match((await running.done()).ETag, /-4"$/);
  assert.equal(Math.max(...sent), body.length);
  const got = await get("parts");
  assert.equal(got.ContentType, "a/b");
  assert.deepEqual(await bytes(got), body);
  const second = await get("parts", { PartNumber: 2 });
  assert.deepEqual([await bytes(second), second.PartsCount], [body.subarray(5 * MIB, 10 * MIB), 4]);

  for (const ChecksumAlgorithm of ALGORITHMS) {
    const summed = await upload("parts-summed", { ChecksumAlgorithm }).done();
    assert.ok(summed[`Checksum${ChecksumAlgorithm}`], ChecksumAlgorithm);
    assert.deepEqual(await bytes(await get("parts-summed")), body);
  }
  assert.deepEqual(await failure(upload("parts", { IfNoneMatch: "*" }).done()), ["PreconditionFailed", 412]);
  const aborted = upload("aborted");
  aborted.on("httpUploadProgress", () => aborted.abort());
  await assert.rejects(aborted.done(), { name: "AbortError" });

  // The SDK aborts an upload in the background, and keeps an upload whose completion was refused.
  const left = async () => (await send(ListMultipartUploadsCommand)).Uploads ?? [];
  while ((await left()).some(({ Key }) => Key === "aborted"));
  const [{ Key, UploadId }, ...others] = await left();
  assert.deepEqual([Key, others], ["parts", []]);
  await send(AbortMultipartUploadCommand, { Key, UploadId });
}

async function parts() {
  const whole = await bytes(await get("parts"));
  const { UploadId } = await send(CreateMultipartUploadCommand, { Key: "copied", ChecksumAlgorithm: "CRC32" });
  const at = { Key: "copied", UploadId };
  const source = { CopySource: `${Bucket}/parts`, CopySourceRange: `bytes=1-${6 * MIB}` };
  const one = await send(UploadPartCopyCommand, { ...at, PartNumber: 1, ...source });
  const two = await send(UploadPartCommand, { ...at, PartNumber: 2, Body: "end" });

  // paginateListParts() ignores IsTruncated and would never end, because AWS's last page has a
  // marker, too.
  const first = await send(ListPartsCommand, { ...at, MaxParts: 1 });
  const last = await send(ListPartsCommand, { ...at, PartNumberMarker: first.NextPartNumberMarker });
  assert.deepEqual([first.IsTruncated, last.IsTruncated], [true, false]);
  assert.deepEqual([...first.Parts, ...last.Parts].map(({ Size }) => Size), [6 * MIB, 3]);
  const Parts = [one.CopyPartResult, two].map(({ ETag, ChecksumCRC32 }, i) => ({ ETag, ChecksumCRC32, PartNumber: i + 1 }));
  await send(CompleteMultipartUploadCommand, { ...at, MultipartUpload: { Parts } });
  assert.deepEqual(await bytes(await get("copied")), Buffer.concat([whole.subarray(1, 6 * MIB + 1), Buffer.from("end")]));
}

async function presigned() {
  // fetch() would remove a "..".
  for (const Key of ["signed/plain", ODD.replace("..", "signed")]) {
    const up = await fetch(await sign(PutObjectCommand, { Key }), { method: "PUT", body: `by url ${Key}` });
    assert.equal(up.status, 200, await up.text());
    const down = await fetch(await sign(GetObjectCommand, { Key, ResponseContentType: "a/b" }));
    assert.deepEqual([await down.text(), down.headers.get("content-type")], [`by url ${Key}`, "a/b"]);
  }

  const Key = "signed/typed";
  const signed = { signableHeaders: new Set(["content-type"]), unhoistableHeaders: new Set(["x-amz-meta-a"]) };
  const url = await sign(PutObjectCommand, { Key, ContentType: "text/x", Metadata: { a: "b" } }, signed);
  const headers = { "content-type": "text/x", "x-amz-meta-a": "b" };
  assert.equal((await fetch(url, { method: "PUT", body: "typed", headers })).status, 200);
  headers["content-type"] = "text/y";
  assert.equal((await fetch(url, { method: "PUT", body: "typed", headers })).status, 403);
  const stored = await get(Key);
  const text = await stored.Body.transformToString();
  assert.deepEqual([stored.ContentType, stored.Metadata, text], ["text/x", { a: "b" }, "typed"]);

  const { UploadId } = await send(CreateMultipartUploadCommand, { Key: "signed/parts" });
  const at = { Key: "signed/parts", UploadId };
  const part = await fetch(await sign(UploadPartCommand, { ...at, PartNumber: 1 }), { method: "PUT", body: "part" });
  const Parts = [{ ETag: part.headers.get("etag"), PartNumber: 1 }];
  await send(CompleteMultipartUploadCommand, { ...at, MultipartUpload: { Parts } });
  assert.equal(await (await get("signed/parts")).Body.transformToString(), "part");

  assert.equal((await fetch(await sign(DeleteObjectCommand, { Key }), { method: "DELETE" })).status, 204);
  const gone = await fetch(await sign(GetObjectCommand, { Key }));
  assert.deepEqual([gone.status, /<Code>NoSuchKey</.test(await gone.text())], [404, true]);
}

async function conditions() {
  const first = await put("conditional", "one", { IfNoneMatch: "*" });
  assert.deepEqual(await failure(put("conditional", "two", { IfNoneMatch: "*" })), ["PreconditionFailed", 412]);
  const second = await put("conditional", "two", { IfMatch: first.ETag });
  assert.deepEqual(await failure(put("conditional", "three", { IfMatch: first.ETag })), ["PreconditionFailed", 412]);
  assert.deepEqual(await failure(put("none", "x", { IfMatch: first.ETag })), ["NoSuchKey", 404]);
  assert.deepEqual(await failure(get("conditional", { IfMatch: first.ETag })), ["PreconditionFailed", 412]);
  const { LastModified } = await head("conditional", { IfMatch: second.ETag });
  for (const unchanged of [{ IfNoneMatch: second.ETag }, { IfModifiedSince: LastModified }]) {
    assert.equal((await failure(get("conditional", unchanged)))[1], 304);
  }

  const source = { CopySource: `${Bucket}/${encodeURIComponent(ODD)}`, MetadataDirective: "REPLACE", Metadata: { c: "d" } };
  const copied = await send(CopyObjectCommand, { Key: ODD + "copy", ...source });
  assert.ok(copied.CopyObjectResult.LastModified instanceof Date);
  assert.deepEqual((await head(ODD + "copy")).Metadata, { c: "d" });
}

async function checksums() {
  for (const ChecksumAlgorithm of ALGORITHMS) {
    const name = `Checksum${ChecksumAlgorithm}`;
    const stored = await put("summed", "123456789", { ChecksumAlgorithm });
    const got = await get("summed", { ChecksumMode: "ENABLED" });
    assert.deepEqual([got[name], await got.Body.transformToString()], [stored[name], "123456789"]);
    const streamed = await put("summed", Readable.from(["1234", "56789"]), { ChecksumAlgorithm, ContentLength: 9 });
    assert.equal(streamed[name], stored[name]);
  }
  assert.deepEqual(await failure(put("summed", "1", { ChecksumCRC32: "AAAAAA==" })), ["BadDigest", 400]);
}

async function errors() {
  await assert.rejects(get("none"), NoSuchKey);
  await assert.rejects(head("none"), NotFound);
  await assert.rejects(send(HeadBucketCommand, { Bucket: "none-such" }), NotFound);
  assert.deepEqual(await failure(get("k", { Bucket: "none-such" })), ["NoSuchBucket", 404]);
  assert.deepEqual(await failure(send(DeleteBucketCommand)), ["BucketNotEmpty", 409]);
  assert.deepEqual(await failure(send(CreateBucketCommand, { Bucket: "No" })), ["InvalidBucketName", 400]);
  const MultipartUpload = { Parts: [{ PartNumber: 1, ETag: '"x"' }] };
  const completion = send(CompleteMultipartUploadCommand, { Key: "plain", UploadId: "none", MultipartUpload });
  assert.deepEqual(await failure(completion), ["NoSuchUpload", 404]);

  const wrong = (accessKeyId) => {
    const credentials = { accessKeyId, secretAccessKey: "wrong" };
    const client = new S3Client({ forcePathStyle: true, maxAttempts: 1, credentials });
    return failure(send(GetObjectCommand, { Key: "plain" }, client));
  };
  assert.deepEqual(await wrong(process.env.AWS_ACCESS_KEY_ID), ["SignatureDoesNotMatch", 403]);
  assert.deepEqual(await wrong("NONE"), ["InvalidAccessKeyId", 403]);
}

async function deletes() {
  const waiting = [{ client: s3, maxWaitTime: 30 }, { Bucket, Key: "waited" }];
  await put("waited", "x");
  assert.equal((await waitUntilObjectExists(...waiting)).state, "SUCCESS");
  await send(DeleteObjectCommand, { Key: "waited" });
  assert.equal((await waitUntilObjectNotExists(...waiting)).state, "SUCCESS");

  const keys = (await listed(paginateListObjectsV2, "Contents"))[0].map(({ Key }) => ({ Key }));
  assert.ok(keys.length > KEYS);
  const all = await send(DeleteObjectsCommand, { Delete: { Objects: keys.slice(0, 1000) } });
  assert.deepEqual([all.Deleted.length, all.Errors], [1000, undefined]);
  const quiet = await send(DeleteObjectsCommand, { Delete: { Objects: keys.slice(1000), Quiet: true } });
  assert.deepEqual([quiet.Deleted, quiet.Errors], [undefined, undefined]);
  assert.deepEqual(await listed(paginateListObjectsV2, "Contents"), [[], 1]);

  await send(PutBucketVersioningCommand, { VersioningConfiguration: { Status: "Enabled" } });
  const { VersionId } = await put("version", "x");
  const marker = await send(DeleteObjectCommand, { Key: "version" });
  assert.equal(marker.DeleteMarker, true);
  const versions = [VersionId, marker.VersionId];
  const Objects = versions.map((id) => ({ Key: "version", VersionId: id }));
  const done = await send(DeleteObjectsCommand, { Delete: { Objects } });
  assert.deepEqual(new Set(done.Deleted.map((one) => one.VersionId)), new Set(versions));
  await send(DeleteBucketCommand);
}

await send(CreateBucketCommand);
const steps = [putAndRead, streams, ranges, lists, uploads, parts, presigned, conditions, checksums, errors, deletes];
for (const step of steps) {
  await step();
  console.log(step.name, "ok");
}
console.log("done");
