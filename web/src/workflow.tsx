/* Text of the workflow as it was read, and the notes of the attempt about it. */
import { useEffect, useState } from "preact/hooks";
import { address, messageOf, open } from "./api";
import { list, text } from "./format";
import { Copy, Facts, Failure, Waiting } from "./parts";
import type { RunParams } from "./run";
import type { Attempt, RunDetails } from "./types";

const KNOWN = ["overrides", "penstock", "host", "kernel", "inputs", "tracking"];

/* Text of the workflow of a run; null while it is read. */
export function useWorkflow(params: RunParams): { workflow: string | null; error: string | null } {
  const [state, setState] = useState<{ workflow: string | null; error: string | null }>({
    workflow: null,
    error: null,
  });

  useEffect(() => {
    const abort = new AbortController();

    open(address("/api/workflow", params), { signal: abort.signal })
      .then((response) => response.text())
      .then((workflow) => setState({ workflow, error: null }))
      .catch((error: unknown) => {
        if (!abort.signal.aborted)
          setState({ workflow: null, error: messageOf("cannot read the workflow", error) });
      });
    return () => abort.abort();
  }, [params.run, params.place]);
  return state;
}

function lines(values: unknown) {
  if (!Array.isArray(values) || !values.length) return null;
  return (
    <ul class="names">
      {values.map((value, i) => (
        <li key={i}>{text(value)}</li>
      ))}
    </ul>
  );
}

export function Workflow({ run, params }: { run: RunDetails; params: RunParams }) {
  const { workflow, error } = useWorkflow(params);
  const notes = list<Attempt>(run.attempts).at(-1)?.provenance ?? {};
  const others = Object.entries(notes).filter(([name]) => !KNOWN.includes(name));

  return (
    <>
      <Facts
        facts={[
          ["File", run.workflow ? <code>{text(run.workflow)}</code> : null],
          ["Overrides", lines(notes.overrides)],
          ["Inputs", lines(notes.inputs)],
          ["Resources", run.resources ? <code>{text(run.resources)}</code> : null],
          ["penstock", text(notes.penstock)],
          ["Host", text(notes.host)],
          ["Kernel", text(notes.kernel)],
          ...others.map(([name, value]): [string, string] => [name, text(value)]),
        ]}
      />
      <Failure text={error} />
      {workflow !== null ? (
        <>
          <p class="buttons start">
            <Copy text={workflow} />
          </p>
          <pre tabIndex={0} aria-label="Workflow">
            {workflow}
          </pre>
        </>
      ) : (
        !error && <Waiting what="Loading the workflow…" />
      )}
    </>
  );
}
