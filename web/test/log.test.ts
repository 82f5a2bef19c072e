/* Lines of logs as a terminal shows them, and the blocks of an index. */
import assert from "node:assert/strict";
import test from "node:test";
import { LogSource, blocksOf } from "../src/logsource";
import { settle, spansOf, splitAt } from "../src/logtext";

test("a carriage return overwrites from the beginning of the line", () => {
  assert.equal(settle("a\rb\rc"), "c");
  assert.equal(settle("abcdef\rXY"), "XYcdef");
  assert.equal(settle(" 10%|#  |\r100%|###|"), "100%|###|");
});

test("a backspace and the erasing of a line are carried out", () => {
  assert.equal(settle("abc\b\bX"), "aXc");
  assert.equal(settle("old text\r\x1b[Knew"), "new");
  assert.equal(settle("old\x1b[2K\rnew"), "new");
  assert.equal(settle("\x1b[38;5;0mab\rc"), "\x1b[0m\x1b[38;5;0mcb");
});

test("sequences that are not colours leave no trace", () => {
  assert.equal(settle("\x1b]0;title\x07text\x1b[3Aend"), "textend");
  assert.equal(settle("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "link");
});

test("colours become classes, and those of the palette and of 24 bits colours", () => {
  const spans = spansOf("\x1b[31mred\x1b[0m \x1b[38;5;208mpalette\x1b[0m\x1b[48;2;1;2;3mtrue");

  assert.deepEqual(
    spans.map(({ text, class: name }) => [text, name]),
    [
      ["red", "ansi-red"],
      [" ", ""],
      ["palette", ""],
      ["true", ""],
    ],
  );
  assert.equal(spans[2]!.color, "rgb(255,135,0)");
  assert.match(spans[3]!.background!, /^rgb\(1, ?2, ?3\)$/);
});

test("markup in a log stays text", () => {
  assert.deepEqual(spansOf("<img src=x onerror=alert(1)>&amp;"), [
    { text: "<img src=x onerror=alert(1)>&amp;", class: "" },
  ]);
  assert.equal(spansOf("\x1b[1m<b>\x1b[0m")[0]!.text, "<b>");
});

test("a long line is cut", () => {
  assert.ok(spansOf("x".repeat(3_000_000))[0]!.text.length < 25_000);
});

test("occurrences are every second piece", () => {
  assert.deepEqual(splitAt("a Loss b loss", "LOSS"), ["a ", "Loss", " b ", "loss", ""]);
});

test("blocks cover all lines and bytes of an index", () => {
  const offsets = Array.from({ length: 10_000 }, (_, i) => i * 50_000);
  const blocks = blocksOf({ size: 500_000_000, lines: 9_999_500, every: 1000, offsets });
  let line = 0;
  let offset = 0;

  for (const block of blocks) {
    assert.equal(block.line, line);
    assert.equal(block.offset, offset);
    line += block.count;
    offset += block.bytes;
  }
  assert.equal(line, 9_999_500);
  assert.equal(offset, 500_000_000);
  assert.deepEqual(blocksOf({}), []);
});

/* Replies with a log of one line that has ended. Requests for the index get the sizes in turn; the
 * log has the last size. Returns a function that counts the requests. */
function serve(...sizes: number[]): () => number {
  const size = sizes[sizes.length - 1]!;
  let requests = 0;

  globalThis.document = { hidden: false } as Document;
  globalThis.fetch = ((url: string) => {
    const query = new URL(url, "http://host").searchParams;
    const left = Math.min(Number(query.get("length")), size - Number(query.get("offset")));
    const headers = { "X-Log-Size": String(size), "X-Log-Live": "0" };

    requests++;
    if (!url.includes("/api/log-lines"))
      return Promise.resolve(new Response(new Uint8Array(left).fill(97), { headers }));
    const found = sizes.shift() ?? size;
    const offsets = found ? [0] : [];

    return Promise.resolve(
      Response.json({ size: found, lines: offsets.length, every: 1, offsets }),
    );
  }) as typeof fetch;
  return () => requests;
}

test("a line of many megabytes is known without reading it", async () => {
  const size = 20 * 1024 * 1024;
  const requests = serve(size);
  const source = await new Promise<LogSource>((resolve) => {
    const made = new LogSource({ run: "id" }, () => resolve(made));

    made.start();
  });

  assert.deepEqual([source.size, source.lines, source.error], [size, 1, null]);
  assert.equal(requests(), 3); // the index, the last byte of the log, and new output
});

test("a log that has grown by many megabytes and ended is known to its end", async () => {
  const size = 20 * 1024 * 1024;

  serve(0, size);
  const source = await new Promise<LogSource>((resolve) => {
    const made = new LogSource({ run: "id" }, () => made.size >= size && resolve(made));

    made.start();
  });

  assert.deepEqual([source.lines, source.error], [1, null]);
});
