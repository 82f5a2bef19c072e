/*
 * Text of a log line as a terminal shows it: "a\rb\rc" is "c", colours become spans.
 *
 *   const spans = spansOf("\x1b[31mfailed\x1b[0m");   // [{ text: "failed", class: "ansi-red" }]
 */
import Anser from "anser";

export interface Span {
  text: string;
  class: string;
  color?: string;
  background?: string;
}

const LONGEST_LINE = 20_000; // characters that are shown
// Sequences of a terminal: CSI, OSC, other escapes of two characters.
const SEQUENCE = /\x1b\[([0-9;?<=>]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[^[\]]?/g;
const CONTROL = /[\r\b\x1b\x00-\x08\x0b-\x1f\x7f]/;

interface Cell {
  char: string;
  style: string; // the sequences in force
}

/* Writes a line into cells, as a terminal of any width does. */
class Row {
  private cells: Cell[] = [];
  private at = 0;
  private style = "";

  write(text: string): void {
    for (const char of text) {
      if (char === "\r") this.at = 0;
      else if (char === "\b") this.at = Math.max(0, this.at - 1);
      else if (char === "\t" || char >= " ") this.put(char);
    }
  }

  private put(char: string): void {
    while (this.cells.length < this.at) this.cells.push({ char: " ", style: "" });
    this.cells[this.at++] = { char, style: this.style };
  }

  sequence(words: string, end: string): void {
    const n = parseInt(words, 10);

    if (end === "m") this.style = this.styled(words);
    else if (end === "K" && words === "1")
      this.cells.fill({ char: " ", style: "" }, 0, this.at + 1);
    else if (end === "K" && words === "2") this.cells = [];
    else if (end === "K") this.cells.length = Math.min(this.cells.length, this.at);
    else if (end === "G") this.at = Math.min(LONGEST_LINE, Math.max(0, (n || 1) - 1));
    else if (end === "C") this.at = Math.min(LONGEST_LINE, this.at + (n || 1));
    else if (end === "D") this.at = Math.max(0, this.at - (n || 1));
  }

  /* Returns the sequences in effect after a further sequence. If these are very many, returns only
   * the further one. */
  private styled(words: string): string {
    const added = `\x1b[${words}m`;

    if (/^0*$/.test(words)) return "";
    return this.style.length > 200 ? added : this.style + added;
  }

  text(): string {
    let out = "";
    let style = "";

    for (const cell of this.cells) {
      if (cell.style !== style) out += `\x1b[0m${cell.style}`;
      style = cell.style;
      out += cell.char;
    }
    return out;
  }
}

/* The line after all overwriting, with only the sequences of colours. */
export function settle(line: string): string {
  if (!CONTROL.test(line)) return line;
  const row = new Row();
  let at = 0;

  for (const match of line.matchAll(SEQUENCE)) {
    row.write(line.slice(at, match.index));
    if (match[2]) row.sequence(match[1] ?? "", match[2]);
    at = match.index + match[0].length;
  }
  row.write(line.slice(at));
  return row.text();
}

const LEVELS = [0, 95, 135, 175, 215, 255];

/* Colour of "ansi-palette-N", or of a true colour; undefined if a CSS class sets the colour. */
function colorOf(name: string | null, truecolor: string | null): string | undefined {
  if (!name) return undefined;
  if (name === "ansi-truecolor") return truecolor ? `rgb(${truecolor})` : undefined;
  const n = name.startsWith("ansi-palette-") ? Number(name.slice("ansi-palette-".length)) : NaN;

  if (!(n >= 16 && n <= 255)) return undefined;
  if (n >= 232)
    return `rgb(${Array(3)
      .fill(8 + 10 * (n - 232))
      .join(",")})`;
  return `rgb(${[36, 6, 1].map((unit) => LEVELS[Math.floor((n - 16) / unit) % 6]).join(",")})`;
}

/* Fixed values of the colours that otherwise follow the theme of the page, for text on a background
 * that does not follow the theme. */
const PLAIN: Record<string, string> = {
  "ansi-black": "#000",
  "ansi-white": "#fff",
  "ansi-bright-white": "#fff",
};

function classOf(name: string | null, prefix: string): string {
  return name && !name.startsWith("ansi-palette-") && name !== "ansi-truecolor"
    ? ` ${name.replace("ansi-", prefix)}`
    : "";
}

export function spansOf(raw: string): Span[] {
  const cut = raw.length > LONGEST_LINE * 10 ? raw.slice(-LONGEST_LINE * 10) : raw;
  let line = settle(cut);

  if (line.length > LONGEST_LINE)
    line = `${line.slice(0, LONGEST_LINE)} … (the line has ${raw.length} characters)`;
  if (!line.includes("\x1b")) return [{ text: line, class: "" }];
  return Anser.ansiToJson(line, { json: true, remove_empty: true, use_classes: true }).map(
    (part) => {
      const background = colorOf(part.bg, part.bg_truecolor);
      const styles = part.decorations
        .filter((name) => name !== "reverse")
        .map((name) => ` ansi-${name}`);

      return {
        text: part.content,
        class:
          `${classOf(part.fg, "ansi-")}${classOf(part.bg, "ansi-on-")}${styles.join("")}`.trim(),
        color: colorOf(part.fg, part.fg_truecolor) ?? (background && PLAIN[part.fg]),
        background,
      };
    },
  );
}

/* Pieces of a text: every second one is an occurrence of `word`, in any case. */
export function splitAt(text: string, word: string): string[] {
  const pieces: string[] = [];
  const low = text.toLowerCase();
  const wanted = word.toLowerCase();
  let at = 0;

  if (!wanted || low.length !== text.length) return [text];
  for (let found = low.indexOf(wanted); found >= 0; found = low.indexOf(wanted, at)) {
    pieces.push(text.slice(at, found), text.slice(found, found + wanted.length));
    at = found + wanted.length;
  }
  pieces.push(text.slice(at));
  return pieces;
}
