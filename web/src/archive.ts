/*
 * Contents of files without reading them whole: the header of .safetensors, and the list of members
 * of a zip, which .pt, .pth and .npz files are too.
 */
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

export async function readSafetensors(source: Source): Promise<Tensors> {
  const head = viewOf(await readAll(source, 0, 8));
  const length = head.getUint32(0, true) + head.getUint32(4, true) * 2 ** 32;

  if (source.size !== null && length + 8 > source.size)
    throw new Error("the length of the header is invalid");
  const header: unknown = JSON.parse(new TextDecoder().decode(await readAll(source, 8, length)));

  if (!header || typeof header !== "object") throw new Error("the header is no object");
  const { __metadata__: metadata, ...rest } = header as Record<string, unknown>;
  const tensors = Object.entries(rest).map(([name, value]) => tensorOf(name, value));

  return {
    tensors,
    metadata: Object.entries((metadata ?? {}) as object).map(([name, value]) => [
      name,
      String(value),
    ]),
    parameters: tensors.reduce(
      (sum, tensor) => sum + tensor.shape.reduce((product, n) => product * n, 1),
      0,
    ),
  };
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
  throw new Error("the file is no zip archive");
}

/* The sizes of a member beyond 4 GiB are in field 1 of its extra fields. */
function longSizes(view: DataView, at: number, end: number, member: Member): void {
  while (at + 4 <= end) {
    const kind = view.getUint16(at, true);
    const next = at + 4 + view.getUint16(at + 2, true);

    if (kind === 1) {
      let place = at + 4;

      for (const key of ["size", "packed"] as const) {
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
    };

    longSizes(view, nameEnd, Math.min(extraEnd, data.length), member);
    members.push(member);
    at = extraEnd + view.getUint16(at + 32, true);
  }
  return members;
}
