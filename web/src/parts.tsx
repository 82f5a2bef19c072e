/* Small parts that many pages use: states, errors, facts, copying. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

const STATES = [
  "queued",
  "staging",
  "running",
  "flushing",
  "succeeded",
  "failed",
  "preempted",
  "stopped",
  "lost",
  "moved",
  "done",
  "ended",
  "to do",
  "waiting",
  "idle",
  "busy",
];

export const LIVE = ["queued", "staging", "running", "flushing"];

export function isLive(state: unknown): boolean {
  return LIVE.includes(String(state));
}

/* Name of the CSS class of a state. */
export function stateClass(state: unknown): string {
  const name = String(state ?? "unknown");

  return `state-${STATES.includes(name) ? name.replace(" ", "-") : "unknown"}`;
}

/* `cause` is the class of a failure; a class that repeats the state is left out. */
export function State({ state, cause }: { state: unknown; cause?: unknown }) {
  return (
    <span class={`state ${stateClass(state)}`}>
      <span class="dot" aria-hidden="true" />
      {String(state ?? "unknown")}
      {cause && cause !== state ? ` (${String(cause)})` : null}
    </span>
  );
}

export function Failure({ text }: { text: string | null | undefined }) {
  return text ? (
    <p class="failure" role="alert">
      {text}
    </p>
  ) : null;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/* Placeholder before the first reply; shown late, so that it does not flicker if the reply is
 * fast. */
export function Waiting({ what }: { what: string }) {
  return (
    <p class="empty late" role="status">
      {what}
    </p>
  );
}

export type Fact = [string, ComponentChildren];

/* List of names with values; names without a value are left out. */
export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts
        .filter(
          ([, value]) => value !== null && value !== undefined && value !== "–" && value !== "",
        )
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState("");

  function copy() {
    // Without TLS, browsers offer no clipboard unless the page comes from this machine.
    if (!navigator.clipboard) return setDone("Select the text to copy it");
    navigator.clipboard.writeText(text).then(
      () => setDone("Copied"),
      () => setDone("The browser refuses to copy"),
    );
  }
  return (
    <>
      <button type="button" onClick={copy}>
        {label}
      </button>
      <span role="status" class="quiet">
        {done}
      </span>
    </>
  );
}

/* Renders the component again each second while `on`, so that shown times advance. */
export function useTick(on: boolean): void {
  const [, setTick] = useState(0);

  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => document.hidden || setTick((n) => n + 1), 1000);

    return () => clearInterval(timer);
  }, [on]);
}
