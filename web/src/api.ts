/*
 * Requests to the server, and the state of the connection to it.
 *
 *   const run = await getJson<Run>("/api/run", { run: id });
 *   await send("POST", "/api/stop", { run: id, grace: "30s" });
 */

export type Params = Record<string, string | number | null | undefined>;

/* Failure that the server reports. `status` is the HTTP status, `code` the verb's exit code. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: number | null,
  ) {
    super(message);
  }
}

/* Failure without a reply: the server has ended, or the network fails. */
export class LostError extends Error {}

export interface Connection {
  lost: boolean;
  refused: boolean; // the cookie is missing
  retryAt: number; // milliseconds, of Date.now()
}

let connection: Connection = { lost: false, refused: false, retryAt: 0 };
let skew = 0; // milliseconds by which the server's clock is ahead
const listeners = new Set<() => void>();

export function connectionNow(): Connection {
  return connection;
}

export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function setConnection(next: Connection): void {
  const same = next.lost === connection.lost && next.refused === connection.refused;
  const later = next.retryAt === connection.retryAt;

  connection = next;
  if (!same || !later) listeners.forEach((listener) => listener());
}

/* Shows the time of the next try in the banner. */
export function announceRetry(at: number): void {
  if (connection.lost) setConnection({ ...connection, retryAt: at });
}

/* Lets all requests that wait for their next try start now. */
export function retryNow(): void {
  window.dispatchEvent(new Event("penstock-retry"));
}

/* Time of the server's machine, in milliseconds. */
export function serverNow(): number {
  return Date.now() + skew;
}

function noteClock(response: Response): void {
  const date = Date.parse(response.headers.get("Date") ?? "");

  // The header has whole seconds, so small differences mean nothing.
  if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 5000) skew = date - Date.now();
  else skew = 0;
}

/* One line that the server adds to a good reply; null if it is missing. */
export function warningOf(response: Response): string | null {
  const text = response.headers.get("X-Penstock-Warning");

  return text ? decodeURIComponent(text) : null;
}

export function address(path: string, params: Params = {}): string {
  const query = Object.entries(params)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`)
    .join("&");

  return query ? `${path}?${query}` : path;
}

async function failureOf(response: Response): Promise<ApiError> {
  let text = `the server replied ${response.status}`;
  let code: number | null = null;

  try {
    const body: unknown = await response.json();
    const { error, code: exit } = (body ?? {}) as { error?: unknown; code?: unknown };

    if (typeof error === "string" && error) text = error;
    if (typeof exit === "number") code = exit;
  } catch {
    // The reply is not JSON, such as that of a proxy.
  }
  return new ApiError(text, response.status, code);
}

/* Fetches an address. Throws ApiError, LostError, or AbortError if `init.signal` aborts the
 * request. */
export async function open(url: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;

  try {
    response = await fetch(url, { cache: "no-cache", credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    setConnection({ ...connection, lost: true });
    throw new LostError("there is no connection to penstock ui");
  }
  noteClock(response);
  setConnection({ lost: false, refused: response.status === 401, retryAt: 0 });
  if (!response.ok) throw await failureOf(response);
  return response;
}

export async function getJson<T>(path: string, params?: Params, signal?: AbortSignal): Promise<T> {
  return (await open(address(path, params), { signal })).json() as Promise<T>;
}

export async function getBytes(
  path: string,
  params: Params,
  signal?: AbortSignal,
): Promise<Uint8Array> {
  return new Uint8Array(await (await open(address(path, params), { signal })).arrayBuffer());
}

/* Sends a request that changes something. Returns null if the reply has no JSON. */
export async function send<T>(
  method: "POST" | "PUT" | "DELETE",
  path: string,
  params: Params,
  body?: Blob,
  signal?: AbortSignal,
): Promise<T | null> {
  const headers = { "X-Penstock": "1" };
  const response = await open(address(path, params), { method, headers, body, signal });

  // The action is done; a reply without JSON has nothing to add.
  return response.json().catch(() => null) as Promise<T | null>;
}

/* One line for a failure: what failed, and why. */
export function messageOf(what: string, error: unknown): string {
  return `${what}: ${error instanceof Error ? error.message : String(error)}`;
}
