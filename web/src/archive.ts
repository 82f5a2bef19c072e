/*
 * Contents of files without reading them whole: the header of .safetensors, the tensors of a
 * torch.save file, and the list of members of a zip. Files of type .pt, .pth and .npz are zips,
 * too.
 */
import { type Value, readPickle } from "./pickle";
import type { Source } from "./source";

const LONGEST_HEADER = 16 * 1024 * 1024;
const END_MOST = 22 + 65535; // bytes of the end of a zip, with the longest comment
const END = 0x06054b50;
const END64_PLACE = 0x07064b50;
const END64 = 0x06064b50;
const MEMBER = 0x02014b50;
const IN_64 = 0xffffffff; // the value is in the extra field

export interface Tensor {
  name: string;
  dtype: string;
  shape: number[];
  bytes: number;
}

export interface Tensors {
  tensors: Tensor[];
  metadata: [string, string][];
  parameters: number;
}

export interface Member {
  name: string;
  size: number;
  packed: number;
  offset: number; // offset of its local header
}

function viewOf(data: Uint8Array): DataView {
  return new DataView(data.buffer, data.byteOffset, data.byteLength);
}

/* Reads all of the range, or throws. */
async function readAll(source: Source, offset: number, length: number): Promise<Uint8Array> {
  if (length > LONGEST_HEADER)
    throw new Error(`the header has ${length} bytes, more than are shown`);
  const data = await source.read(offset, length);

  if (data.length < length) throw new Error("the file ends early");
  return data;
}

/* ---- safetensors ---- */

function tensorOf(name: string, value: unknown): Tensor {
  const { dtype, shape, data_offsets: range } = (value ?? {}) as Record<string, unknown>;
  const dimensions = Array.isArray(shape) ? shape.map(Number) : [];
  const bytes = Array.isArray(range) ? Number(range[1]) - Number(range[0]) : NaN;

  return { name, dtype: String(dtype ?? "?"), shape: dimensions, bytes };
}

function tensorsOf(tensors: Tensor[], metadata: [string, string][]): Tensors {
  const parameters = tensors.map((tensor) => tensor.shape.reduce((product, n) => product * n, 1));

  return { tensors, metadata, parameters: parameters.reduce((sum, n) => sum + n, 0) };
}

export async function readSafetensors(source: Source): Promise<Tensors> {
  const head = viewOf(await readAll(source, 0, 8));
  const length = head.getUint32(0, true) + head.getUint32(4, true) * 2 ** 32;

  if (source.size !== null && length + 8 > source.size)
    throw new Error("the length of the header is invalid");
  const header: unknown = JSON.parse(new TextDecoder().decode(await readAll(source, 8, length)));

  if (!header || typeof header !== "object") throw new Error("the header is not an object");
  const { __metadata__: metadata, ...rest } = header as Record<string, unknown>;
  const tensors = Object.entries(rest).map(([name, value]) => tensorOf(name, value));

  return tensorsOf(
    tensors,
    Object.entries((metadata ?? {}) as object).map(([name, value]) => [name, String(value)]),
  );
}

/* ---- zip ---- */

function big(view: DataView, at: number): number {
  return view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
}

interface Directory {
  offset: number;
  size: number;
}

/* Finds the central directory from the end of the file. */
async function findDirectory(source: Source, fileSize: number): Promise<Directory> {
  const length = Math.min(fileSize, END_MOST);
  const from = fileSize - length;
  const view = viewOf(await readAll(source, from, length));

  for (let at = length - 22; at >= 0; at--) {
    if (view.getUint32(at, true) !== END) continue;
    const found = { offset: view.getUint32(at + 16, true), size: view.getUint32(at + 12, true) };

    // Beyond 4 GiB, or with very many members, another record has the values.
    if (at < 20 || view.getUint32(at - 20, true) !== END64_PLACE) return found;
    const end = viewOf(await readAll(source, big(view, at - 12), 56));

    if (end.getUint32(0, true) !== END64) throw new Error("the end of the archive is damaged");
    return { offset: big(end, 48), size: big(end, 40) };
  }
  throw new Error("the file is not a zip archive");
}

/* The sizes and the place of a member beyond 4 GiB are in field 1 of its extra fields. */
function longSizes(view: DataView, at: number, end: number, member: Member): void {
  while (at + 4 <= end) {
    const kind = view.getUint16(at, true);
    const next = at + 4 + view.getUint16(at + 2, true);

    if (kind === 1) {
      let place = at + 4;

      for (const key of ["size", "packed", "offset"] as const) {
        if (member[key] !== IN_64 || place + 8 > Math.min(next, end)) continue;
        member[key] = big(view, place);
        place += 8;
      }
    }
    at = next;
  }
}

export async function readZip(source: Source): Promise<Member[]> {
  if (source.size === null) throw new Error("the size of the file is unknown");
  const directory = await findDirectory(source, source.size);
  const data = await readAll(source, directory.offset, directory.size);
  const view = viewOf(data);
  const members: Member[] = [];

  for (let at = 0; at + 46 <= data.length && view.getUint32(at, true) === MEMBER;) {
    const nameEnd = at + 46 + view.getUint16(at + 28, true);
    const extraEnd = nameEnd + view.getUint16(at + 30, true);
    const member = {
      name: new TextDecoder().decode(data.subarray(at + 46, nameEnd)),
      packed: view.getUint32(at + 20, true),
      size: view.getUint32(at + 24, true),
      offset: view.getUint32(at + 42, true),
    };

    longSizes(view, nameEnd, Math.min(extraEnd, data.length), member);
    members.push(member);
    at = extraEnd + view.getUint16(at + 32, true);
  }
  return members;
}

/* ---- files of torch.save ---- */

const TORCH_TYPES: Record<string, [string, number]> = {
  "torch.DoubleStorage": ["float64", 8],
  "torch.FloatStorage": ["float32", 4],
  "torch.HalfStorage": ["float16", 2],
  "torch.BFloat16Storage": ["bfloat16", 2],
  "torch.LongStorage": ["int64", 8],
  "torch.IntStorage": ["int32", 4],
  "torch.ShortStorage": ["int16", 2],
  "torch.CharStorage": ["int8", 1],
  "torch.ByteStorage": ["uint8", 1],
  "torch.BoolStorage": ["bool", 1],
  "torch.ComplexFloatStorage": ["complex64", 8],
  "torch.ComplexDoubleStorage": ["complex128", 16],
};
const DEEPEST = 64;
const MOST_VALUES = 200_000;
const MOST_SHOWN = 100; // values that are not tensors

function isA<K extends string>(value: Value | undefined, kind: K): value is Extract<Value, { kind: K }> {
  return !!value && typeof value === "object" && "kind" in value && value.kind === kind;
}

/* The tensor that torch builds from the arguments of `of`; null if it is not a tensor. */
function torchTensor(name: string, value: Value): Tensor | null {
  if (!isA(value, "made") || !value.of.startsWith("torch._utils._rebuild_")) return null;
  if (value.of.startsWith("torch._utils._rebuild_parameter"))
    return torchTensor(name, value.args[0] ?? null);
  const [storage, , shape] = value.args;
  const id = isA(storage, "kept") && Array.isArray(storage.id) ? storage.id : [];
  const dtype = value.args.find((one) => isA(one, "global") && one.name.startsWith("torch."));
  const type = isA(dtype, "global") ? dtype.name.slice("torch.".length) : null;
  const [known, bytes] = TORCH_TYPES[isA(id[1], "global") ? id[1].name : ""] ?? ["?", NaN];
  const dimensions = Array.isArray(shape)
    ? shape.map((n) => (typeof n === "number" ? n : NaN))
    : [];
  const all = dimensions.reduce((product, n) => product * n, bytes);

  return { name, dtype: type ?? known, shape: dimensions, bytes: type ? NaN : all };
}

/* Adds the tensors within a value, and the plain values next to them. A value may contain
 * itself, and may be part of several others. */
function collect(name: string, value: Value, depth: number, out: Tensors & { seen: number }): void {
  // A list may contain itself, so its text could be endless.
  const shown = (key: Value | number) => (typeof key === "object" ? "?" : String(key));
  const below = (key: Value | number) => (name ? `${name}.${shown(key)}` : shown(key));
  const tensor = torchTensor(name, value);

  if (++out.seen > MOST_VALUES) throw new Error("the file has more values than are shown");
  if (depth > DEEPEST) return;
  if (tensor) out.tensors.push(tensor);
  else if (Array.isArray(value))
    value.forEach((one, i) => collect(below(i), one, depth + 1, out));
  else if (isA(value, "dict") || isA(value, "made")) {
    for (const [key, one] of value.items) collect(below(key), one, depth + 1, out);
    if (isA(value, "made") && isA(value.state, "dict") && !value.items.length)
      collect(name, value.state, depth + 1, out);
  } else if (
    ["number", "bigint", "string", "boolean"].includes(typeof value) &&
    out.metadata.length < MOST_SHOWN
  )
    out.metadata.push([name, String(value)]);
}

/* Returns the tensors of a file that torch.save() wrote, and the numbers and texts next to them;
 * null if the zip is not such a file. */
export async function readTorch(source: Source, members: Member[]): Promise<Tensors | null> {
  const pickle = members.find((member) => /^[^/]+\/data\.pkl$/.test(member.name));

  if (!pickle || pickle.packed !== pickle.size) return null;
  const head = viewOf(await readAll(source, pickle.offset, 30));
  const from = pickle.offset + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const found = { tensors: [], metadata: [], parameters: 0, seen: 0 };

  collect("", readPickle(await readAll(source, from, pickle.size)), 0, found);
  return tensorsOf(found.tensors, found.metadata);
}
