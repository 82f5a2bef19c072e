/* Preview of a file or an object: an image, text, JSON, tensors, or the members of an archive. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "./api";
import { type Member, type Tensors, readSafetensors, readTorch, readZip } from "./archive";
import { count, many, size } from "./format";
import { Facts, Failure, Waiting } from "./parts";
import { type Source, baseName } from "./source";
import { type Column, Table } from "./table";

const IMAGES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  svg: "image/svg+xml",
};
const ARCHIVES = ["zip", "pt", "pth", "ckpt", "npz", "whl", "jar", "bin"];
const LARGEST_IMAGE = 64 * 1024 * 1024;
const LARGEST_JSON = 4 * 1024 * 1024;
const TEXT_BYTES = 256 * 1024;
const DUMP_BYTES = 512;

export function extension(name: string): string {
  const last = baseName(name);

  return last.includes(".") ? last.slice(last.lastIndexOf(".") + 1).toLowerCase() : "";
}

/* ---- kinds ---- */

/* The browser draws the blob as an image, so scripts of an SVG do not run. */
function Image({ url, name }: { url: string; name: string }) {
  const [failed, setFailed] = useState(false);

  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  if (failed) return <Failure text="cannot show the image: its data is invalid" />;
  return <img class="preview-image" src={url} alt={name} onError={() => setFailed(true)} />;
}

function Text({ text, cut }: { text: string; cut: string | null }) {
  return (
    <>
      <pre tabIndex={0} aria-label="Contents">
        {text}
      </pre>
      {cut && <p class="quiet">{cut}</p>}
    </>
  );
}

const TENSOR_COLUMNS: Column<Tensors["tensors"][number]>[] = [
  { key: "name", label: "Tensor", cell: (one) => one.name },
  { key: "dtype", label: "Type", cell: (one) => one.dtype },
  { key: "shape", label: "Shape", cell: (one) => one.shape.join(" × ") || "scalar" },
  { key: "size", label: "Size", cell: (one) => size(one.bytes) },
];

function TensorList({ tensors }: { tensors: Tensors }) {
  return (
    <>
      <p>
        {many(tensors.tensors.length, "tensor")}, {many(tensors.parameters, "parameter")}
      </p>
      <Facts facts={tensors.metadata} />
      <Table
        label="Tensors"
        rows={tensors.tensors}
        columns={TENSOR_COLUMNS}
        rowKey={(one) => one.name}
      />
    </>
  );
}

const MEMBER_COLUMNS: Column<Member & { n: number }>[] = [
  { key: "path", label: "Member", cell: (one) => one.name },
  { key: "size", label: "Size", cell: (one) => size(one.size) },
  { key: "packed", label: "Packed", cell: (one) => size(one.packed) },
];

function MemberList({ members }: { members: Member[] }) {
  const sum = members.reduce((all, member) => all + member.size, 0);

  return (
    <>
      <p>
        {many(members.length, "member")}, {size(sum)}
      </p>
      <Table
        label="Members of the archive"
        rows={members.map((member, n) => ({ ...member, n }))}
        columns={MEMBER_COLUMNS}
        rowKey={(one) => String(one.n)}
      />
    </>
  );
}

/* ---- reading ---- */

/* If the pickle is damaged, only the list of members is shown. */
async function readArchive(source: Source): Promise<ComponentChildren> {
  const members = await readZip(source);
  const tensors = await readTorch(source, members).catch(() => null);

  return (
    <>
      {tensors && <TensorList tensors={tensors} />}
      <MemberList members={members} />
    </>
  );
}

function dump(data: Uint8Array): string {
  const lines: string[] = [];

  for (let at = 0; at < data.length; at += 16) {
    const bytes = [...data.subarray(at, at + 16)];
    const hex = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const plain = bytes
      .map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."))
      .join("");

    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${plain}`);
  }
  return lines.join("\n");
}

function isBinary(data: Uint8Array): boolean {
  return data.subarray(0, 4096).includes(0);
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // not one JSON value, such as a file with an object on each line
  }
}

async function readText(source: Source, signal: AbortSignal): Promise<ComponentChildren> {
  const json =
    extension(source.name) === "json" && source.size !== null && source.size <= LARGEST_JSON;
  const wanted = json ? source.size! : Math.min(source.size ?? TEXT_BYTES, TEXT_BYTES);
  const data = await source.read(0, wanted, signal);
  const whole = source.size !== null && data.length >= source.size;
  const first = `The first ${count(data.length)} bytes of ${source.size === null ? "the file" : count(source.size)}.`;

  if (!data.length) return <p class="empty">The file is empty.</p>;
  if (isBinary(data)) {
    const part = data.subarray(0, DUMP_BYTES);

    return <Text text={dump(part)} cut={`The first ${part.length} bytes of a binary file.`} />;
  }
  const text = new TextDecoder().decode(data);
  return <Text text={json ? pretty(text) : text} cut={whole ? null : first} />;
}

async function readImage(
  source: Source,
  type: string,
  signal: AbortSignal,
): Promise<ComponentChildren> {
  if ((source.size ?? 0) > LARGEST_IMAGE)
    throw new Error(`the image is larger than ${size(LARGEST_IMAGE)}`);
  const data = await source.read(0, source.size ?? LARGEST_IMAGE, signal);

  return (
    <Image url={URL.createObjectURL(new Blob([data as BlobPart], { type }))} name={source.name} />
  );
}

async function readPreview(source: Source, signal: AbortSignal): Promise<ComponentChildren> {
  const kind = extension(source.name);

  if (IMAGES[kind]) return readImage(source, IMAGES[kind]!, signal);
  if (kind === "safetensors") return <TensorList tensors={await readSafetensors(source)} />;
  if (ARCHIVES.includes(kind)) {
    const magic = await source.read(0, 4, signal);

    if (magic[0] === 0x50 && magic[1] === 0x4b) return readArchive(source);
  }
  return readText(source, signal);
}

export function Preview({ source }: { source: Source }) {
  const [content, setContent] = useState<ComponentChildren>(null);
  const [failure, setFailure] = useState<string | null>(null);

  useEffect(() => {
    const abort = new AbortController();

    setContent(null);
    setFailure(null);
    readPreview(source, abort.signal).then(
      (made) => abort.signal.aborted || setContent(made),
      (error: unknown) =>
        abort.signal.aborted || setFailure(messageOf("cannot show the contents", error)),
    );
    return () => abort.abort();
  }, [source.name, source.download]);

  return (
    <div class="preview">
      <Failure text={failure} />
      {content ?? (!failure && <Waiting what="Loading the contents…" />)}
    </div>
  );
}
