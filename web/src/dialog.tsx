/*
 * Dialogs on the browser's own <dialog>, which keeps the focus inside, closes on Escape and returns
 * the focus.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { messageOf } from "./api";
import { Failure } from "./parts";

interface DialogProps {
  title: string;
  wide?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, wide, onClose, children }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();

  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current!;

    dialog.showModal();
    window.addEventListener("hashchange", onClose); // such as "back" of the browser
    return () => {
      window.removeEventListener("hashchange", onClose);
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);

  return (
    <dialog
      ref={box}
      class={wide ? "wide" : ""}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" class="plain" aria-label="Close" onClick={onClose}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  verb: string; // on the button: "Stop"
  busy: string; // while the request is in flight
  danger?: boolean;
  act: () => Promise<unknown>;
  onDone: () => void;
  onFailed: (text: string) => void; // after the dialog was closed
  onClose: () => void;
  children: ComponentChildren;
}

/* Explains an action, and does it after the button is pressed. */
export function Confirm({
  title,
  verb,
  busy,
  danger,
  act,
  onDone,
  onFailed,
  onClose,
  children,
}: ConfirmProps) {
  const [acting, setActing] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const open = useRef(true);

  useEffect(() => () => void (open.current = false), []);

  async function submit(event: Event) {
    event.preventDefault();
    if (acting) return;
    setActing(true);
    setFailure(null);
    try {
      await act();
      onDone();
      if (open.current) onClose();
    } catch (error) {
      const text = messageOf(`cannot ${verb.toLowerCase()}`, error);

      if (open.current) setFailure(text);
      else onFailed(text);
    }
    setActing(false);
  }

  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submit}>
        {children}
        <Failure text={failure} />
        <p role="status" class="quiet">
          {acting ? busy : ""}
        </p>
        <div class="buttons">
          <button type="button" onClick={onClose}>
            {acting ? "Close" : "Cancel"}
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={acting}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
