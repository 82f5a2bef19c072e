/* Actions on a run: stop, preempt, resume. A dialog explains an action before the action is
 * done. */
import { useState } from "preact/hooks";
import { send } from "./api";
import { announce } from "./announce";
import { Confirm } from "./dialog";
import { Failure, isLive } from "./parts";
import { link } from "./route";
import type { Run } from "./types";

type Action = "stop" | "preempt" | "resume";

const GRACE_S = 30;

/* Actions that fit the state. A run of another machine has a `place`, and can only be resumed. */
export function actionsOf(run: Run, place: string | null): Action[] {
  const state = String(run.state ?? "");

  if (place)
    return ["lost", "preempted", "failed", "stopped"].includes(state) ? ["resume"] : [];
  if (isLive(state))
    return state === "running" || state === "staging" ? ["stop", "preempt"] : ["stop"];
  if (state === "lost" || state === "preempted") return ["resume", "stop"];
  return state === "failed" || state === "stopped" ? ["resume"] : [];
}

function Explanation({
  action,
  live,
  place,
  grace,
}: {
  action: Action;
  live: boolean;
  place: string | null;
  grace: string;
}) {
  if (action === "resume" && place)
    return (
      <p>
        The run continues on the machine of this page, in the background. The machine runs the
        commands of the workflow in <code class="break">{place}</code>: finished steps are skipped,
        the output is restored to its last complete state, and the step that did not finish starts
        again.
      </p>
    );
  if (action === "resume")
    return (
      <p>
        The run continues in the background: finished steps are skipped, the output is restored to
        its last complete state, and the step that did not finish starts again. Changes of the code
        and of the workflow file take effect.
      </p>
    );
  if (action === "preempt")
    return (
      <p>
        The run gets a preemption notice, as from a cloud that takes the machine away in {grace} s.
        The steps find a file and get a signal, may save, and are killed at the deadline. Complete
        files are published, and the run ends as preempted. <code>penstock resume</code> continues
        it.
      </p>
    );
  if (!live)
    return (
      <p>
        Remaining processes of the run are ended. <code>penstock watch</code> no longer continues
        the run; <code>penstock resume</code> does.
      </p>
    );
  return (
    <p>
      The steps get SIGTERM and have {grace} s to end. Then the rest of the output is uploaded.{" "}
      <code>penstock resume</code> continues the run.
    </p>
  );
}

const BUSY: Record<Action, string> = {
  stop: "The run is being stopped. The dialog may be closed meanwhile.",
  preempt: "The run is notified and ends. The dialog may be closed meanwhile.",
  resume: "The run is being started.",
};

const VERB: Record<Action, string> = { stop: "Stop", preempt: "Preempt", resume: "Resume" };

export function Actions({
  run,
  place,
  onDone,
}: {
  run: Run;
  place: string | null;
  onDone: () => void;
}) {
  const [asked, setAsked] = useState<Action | null>(null);
  const [grace, setGrace] = useState(String(GRACE_S));
  const [failure, setFailure] = useState<string | null>(null);
  const live = isLive(run.state);
  const name = run.name || run.id || "";

  return (
    <div class="buttons">
      {actionsOf(run, place).map((action) => (
        <button key={action} type="button" onClick={() => (setFailure(null), setAsked(action))}>
          {VERB[action]}
        </button>
      ))}
      <Failure text={failure} />
      {asked && (
        <Confirm
          title={`${VERB[asked]} ${name}`}
          verb={VERB[asked]}
          busy={BUSY[asked]}
          danger={asked !== "resume"}
          act={() =>
            send("POST", `/api/${asked}`, {
              run: run.id,
              place,
              grace: asked === "resume" || !live ? null : `${grace}s`,
            })
          }
          onDone={() => {
            announce(`${VERB[asked]}: done`);
            if (place) location.hash = link("run", run.id ?? ""); // now a run of this machine
            else onDone();
          }}
          onFailed={setFailure}
          onClose={() => setAsked(null)}
        >
          <Explanation action={asked} live={live} place={place} grace={grace || "0"} />
          {asked !== "resume" && live && (
            <label class="group">
              Seconds to end
              <input
                type="number"
                min="1"
                max="86400"
                required
                value={grace}
                onInput={(event) => setGrace(event.currentTarget.value)}
              />
            </label>
          )}
        </Confirm>
      )}
    </div>
  );
}
