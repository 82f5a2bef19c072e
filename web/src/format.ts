/* Sizes, times and numbers as text, in the form of the verbs; values of the server, checked. */

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

export function size(bytes: unknown): string {
  if (!isNumber(bytes)) return "–";
  let value = bytes;
  let unit = 0;

  while (value >= 999.5 && unit + 1 < UNITS.length) {
    value /= 1000;
    unit++;
  }
  return `${unit && value < 99.95 ? value.toFixed(1) : value.toFixed(0)} ${UNITS[unit]}`;
}

/* "3 s", "4 min 10 s", "2 h 5 min", "5 d 3 h" */
export function duration(ms: unknown): string {
  if (!isNumber(ms) || ms < 0) return "–";
  const s = Math.floor(ms / 1000);

  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const min = Math.floor(s / 60);
  if (min < 48 * 60)
    return min % 60 ? `${Math.floor(min / 60)} h ${min % 60} min` : `${min / 60} h`;
  const h = Math.floor(min / 60);
  return h % 24 ? `${Math.floor(h / 24)} d ${h % 24} h` : `${h / 24} d`;
}

/* One unit, as in the list of runs: "3 s", "4 min", "2 h", "5 d" */
export function span(ms: unknown): string {
  if (!isNumber(ms) || ms < 0) return "–";
  const s = Math.floor(ms / 1000);

  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 48 * 3600 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/* Milliseconds of a time in ISO 8601; null if it is missing or invalid. */
export function ms(time: unknown): number | null {
  const value = typeof time === "string" ? Date.parse(time) : NaN;

  return Number.isNaN(value) ? null : value;
}

/* "2026-11-28 16:25:30", of this time zone */
export function moment(time: unknown): string {
  const value = typeof time === "number" ? time : ms(time);

  if (value === null) return "–";
  const date = new Date(value);
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/* Value of a metric: five significant digits. */
export function value(n: unknown): string {
  if (typeof n === "string") return n;
  if (!isNumber(n)) return "–";
  if (n === 0) return "0";
  const size = Math.abs(n);
  if (size >= 1e7 || size < 1e-4) return n.toExponential(3).replace("e+", "e");
  return String(Number(n.toPrecision(5)));
}

/* Two decimals, or four below 1. */
export function money(n: unknown): string {
  return isNumber(n) ? n.toFixed(n < 1 ? 4 : 2) : "–";
}

export function count(n: unknown): string {
  return isNumber(n) ? n.toLocaleString("en-US") : "–";
}

/* "1 file", "2 files" */
export function many(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/* " for 2 of 3 attempts", after a sum that does not cover all of them; else "" */
export function covered(n: number, all: number): string {
  return n < all ? ` for ${count(n)} of ${many(all, "attempt")}` : "";
}

export function text(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/* An address from the server that is safe as a link; null for any other value, such as a script. */
export function webAddress(value: unknown): string | null {
  return typeof value === "string" && /^https?:\/\//i.test(value) ? value : null;
}

/* Returns the objects in `value`; [] if it is not a list. */
export function list<T>(value: unknown): T[] {
  return Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object") : [];
}

/* Returns the strings in `value`; [] if it is not a list. */
export function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}

/* Name of a member of a list, such as a variable or a step; "" if the member has none. */
function nameOf(member: unknown): string {
  const { name, key } = (member ?? {}) as { name?: unknown; key?: unknown };

  return typeof name === "string" ? name : typeof key === "string" ? key : "";
}

/* Members of a value by path, such as "resources.gpus": "1". */
export function flatten(
  value: unknown,
  path: string,
  into: Map<string, string>,
  limit = 500,
): void {
  if (into.size >= limit) return;
  if (value === null || typeof value !== "object") {
    into.set(path, text(value));
    return;
  }
  const names = Array.isArray(value) ? value.map(nameOf) : [];
  const named = names.length > 0 && new Set(names).size === names.length && !names.includes("");

  for (const [key, member] of named
    ? (value as unknown[]).map((member, i) => [names[i]!, member] as const)
    : Object.entries(value))
    flatten(member, path ? `${path}.${key}` : key, into, limit);
}
