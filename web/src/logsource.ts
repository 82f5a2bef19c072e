/*
 * Lines of a log of any length, by number. The server's index divides the log into blocks of whole
 * lines; the blocks that were used last are in memory. While the attempt runs, its new output is
 * appended.
 *
 *   const source = new LogSource({ run: id, attempt: 1 }, redraw);
 *   source.start();
 *   source.want(1000, 1060);          // loads the blocks of these lines
 *   source.line(1000);                // undefined until its block is there
 *   source.stop();
 */
import { type Params, address, getBytes, getJson, messageOf, open } from "./api";

const BLOCK_BYTES = 256 * 1024;
const BLOCK_LINES = 4096;
const LONGEST_BLOCK = 16 * 1024 * 1024; // bytes; the rest of a longer block is not shown
const PIECE = 1024 * 1024; // bytes of one request
const KEPT = 24; // blocks in memory
const BEHIND = 8 * 1024 * 1024; // bytes; if more are unread, the index is read instead
const RETRY_MS = 2000;

interface Block {
  line: number; // first
  count: number;
  offset: number;
  bytes: number;
}

interface Content {
  data: Uint8Array[];
  bytes: number;
  lines: string[] | null; // decoded from `data`
}

interface Index {
  size?: number;
  lines?: number;
  every?: number;
  offsets?: number[];
}

/* Divides the log at places of the index. */
export function blocksOf(index: Index): Block[] {
  const { size = 0, lines = 0, every = 1, offsets = [] } = index;
  const blocks: Block[] = [];

  for (let i = 0; i < offsets.length; i++) {
    const line = i * every;
    const count = Math.min(lines, line + every) - line;
    const bytes = (offsets[i + 1] ?? size) - offsets[i]!;
    const last = blocks[blocks.length - 1];

    if (last && last.bytes + bytes <= BLOCK_BYTES && last.count + count <= BLOCK_LINES) {
      last.count += count;
      last.bytes += bytes;
    } else {
      blocks.push({ line, count, offset: offsets[i]!, bytes });
    }
  }
  return blocks;
}

function decode(content: Content): string[] {
  const all = new Uint8Array(content.bytes);
  let at = 0;

  for (const piece of content.data) {
    all.set(piece, at);
    at += piece.length;
  }
  content.data = [all];
  const text = new TextDecoder().decode(all);
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}

export class LogSource {
  lines = 0;
  size = 0;
  live = false;
  ready = false; // the first reply has arrived
  error: string | null = null;

  private blocks: Block[] = [];
  private contents = new Map<Block, Content>(); // in the order of the last use
  private unfinished = false; // the last line has no end yet
  private stale = false; // the index has to be read again
  private wanted: [number, number] = [0, 0];
  private loading = false;
  private stopping = new AbortController();

  constructor(
    private readonly params: Params,
    private readonly changed: () => void,
  ) {}

  start(): void {
    void this.run();
  }

  stop(): void {
    this.stopping.abort();
  }

  line(n: number): string | undefined {
    const block = this.blockOf(n);
    const content = block && this.contents.get(block);

    if (!block || !content) return undefined;
    this.contents.delete(block);
    this.contents.set(block, content);
    content.lines ??= decode(content);
    return content.lines[n - block.line];
  }

  want(first: number, last: number): void {
    this.wanted = [first, last];
    if (!this.loading) void this.load();
  }

  private blockOf(n: number): Block | undefined {
    let low = 0;
    let high = this.blocks.length;

    while (low < high) {
      const middle = (low + high) >> 1;

      if (this.blocks[middle]!.line <= n) low = middle + 1;
      else high = middle;
    }
    const block = this.blocks[low - 1];
    return block && n < block.line + block.count ? block : undefined;
  }

  /* ---- reading wanted blocks ---- */

  private missing(): Block | undefined {
    for (let n = this.wanted[0]; n < this.wanted[1];) {
      const block = this.blockOf(n);

      if (!block) return undefined;
      if (!this.contents.has(block)) return block;
      n = block.line + block.count;
    }
    return undefined;
  }

  private async load(): Promise<void> {
    this.loading = true;
    for (
      let block = this.missing();
      block && !this.stopping.signal.aborted;
      block = this.missing()
    ) {
      try {
        this.keep(block, await this.read(block));
        this.error = null;
      } catch (error) {
        if (this.stopping.signal.aborted) break;
        this.error = messageOf("cannot read the log", error);
        this.changed();
        await this.pause(RETRY_MS);
      }
      this.changed();
    }
    this.loading = false;
  }

  private async read(block: Block): Promise<Content> {
    const content: Content = { data: [], bytes: 0, lines: null };
    const left = () => Math.min(block.bytes, LONGEST_BLOCK) - content.bytes; // the block may grow

    while (left() > 0) {
      const offset = block.offset + content.bytes;
      const length = Math.min(PIECE, left());
      const piece = await getBytes(
        "/api/log",
        { ...this.params, offset, length },
        this.stopping.signal,
      );

      if (!piece.length) break; // the log was truncated
      content.data.push(piece);
      content.bytes += piece.length;
    }
    return content;
  }

  private keep(block: Block, content: Content): void {
    // The block may have grown meanwhile.
    if (
      content.bytes < Math.min(block.bytes, LONGEST_BLOCK) &&
      block === this.blocks[this.blocks.length - 1]
    )
      return;
    this.contents.set(block, content);
    this.keepFew();
  }

  /* ---- reading new output ---- */

  private async run(): Promise<void> {
    const { signal } = this.stopping;

    while (!signal.aborted) {
      try {
        await this.readIndex();
        while (await this.readMore());
        if (!this.live && !this.stale) return;
      } catch (error) {
        if (signal.aborted) return;
        this.error = messageOf("cannot read the log", error);
        this.changed();
        await this.pause(RETRY_MS);
      }
    }
  }

  /*
   * Reads the index. The last line of the last block may have no newline yet, so that block is read
   * again. If that block is too long, such as the line of a progress bar, only its last byte is
   * read, to find out if the line has ended.
   */
  private async readIndex(): Promise<void> {
    const { signal } = this.stopping;
    const blocks = blocksOf((await getJson<Index>("/api/log-lines", this.params, signal)) ?? {});
    const last = blocks[blocks.length - 1];

    if (last && last.bytes > BEHIND) {
      const offset = last.offset + last.bytes - 1;
      const byte = await getBytes("/api/log", { ...this.params, offset, length: 1 }, signal);

      this.unfinished = byte[0] !== 10;
      this.size = last.offset + last.bytes;
      this.lines = last.line + last.count;
    } else {
      blocks.pop();
      this.unfinished = false;
      this.size = last ? last.offset : 0;
      this.lines = last ? last.line : 0;
    }
    this.blocks = blocks;
    this.contents.clear();
  }

  /* Returns false if the log has ended, or if the index has to be read again. */
  private async readMore(): Promise<boolean> {
    const { signal } = this.stopping;

    await this.visible();
    const url = address("/api/log", {
      ...this.params,
      offset: this.size,
      length: PIECE,
      wait: this.ready ? 1 : null,
    });
    const response = await open(url, { signal });
    const data = new Uint8Array(await response.arrayBuffer());
    const total = Number(response.headers.get("X-Log-Size") ?? NaN);

    this.live = response.headers.get("X-Log-Live") === "1";
    this.append(data);
    this.error = null;
    this.ready = true;
    this.changed();
    this.stale = total - this.size > BEHIND || total < this.size;
    if (this.stale) return false;
    if (!this.live && !data.length) return false;
    if (this.live && !data.length) await this.pause(100);
    return this.live || !(this.size >= total);
  }

  private append(data: Uint8Array): void {
    let from = 0;

    while (from < data.length) {
      let block = this.blocks[this.blocks.length - 1];

      if (
        !block ||
        (!this.unfinished && (block.bytes >= BLOCK_BYTES || block.count >= BLOCK_LINES))
      ) {
        block = { line: this.lines, count: 0, offset: this.size, bytes: 0 };
        this.blocks.push(block);
        this.contents.set(block, { data: [], bytes: 0, lines: null });
      }
      from = this.grow(block, data, from);
    }
    this.keepFew();
  }

  /* Appends lines to a block while the block has room; the last line may be incomplete. Returns
   * the offset after these lines. */
  private grow(block: Block, data: Uint8Array, from: number): number {
    const content = this.contents.get(block);
    let at = from;

    do {
      const newline = data.indexOf(10, at);

      if (!this.unfinished) {
        block.count++;
        this.lines++;
      }
      this.unfinished = newline < 0;
      block.bytes -= at;
      at = newline < 0 ? data.length : newline + 1;
      block.bytes += at;
    } while (at < data.length && block.bytes < BLOCK_BYTES && block.count < BLOCK_LINES);
    this.size += at - from;
    if (content && content.bytes < LONGEST_BLOCK) {
      content.data.push(data.slice(from, at));
      content.bytes += at - from;
      content.lines = null;
    }
    return at;
  }

  private keepFew(): void {
    for (const old of this.contents.keys()) {
      if (this.contents.size <= KEPT) break;
      this.contents.delete(old);
    }
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  private visible(): Promise<void> {
    if (!document.hidden) return Promise.resolve();
    return new Promise((resolve) => {
      document.addEventListener("visibilitychange", () => resolve(), { once: true });
      this.stopping.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }
}
