// SPDX-License-Identifier: Apache-2.0

// An action that changes something: a button that asks for confirmation, explains the consequences and accepts a reason,
// which is recorded in the audit.

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { textOf } from "../state/calls.ts";
import { texts } from "../texts/texts.ts";

export interface Doing {
  /** The reason; empty: none given. */
  readonly reason: string;
  /** For the call. */
  readonly headers: Readonly<Record<string, string>>;
}

export function Action({
  label,
  accessibleName,
  title,
  command,
  children,
  onOpen,
  onDo,
}: {
  readonly label: string;
  /** The accessible name, if a page has several buttons with this label. It begins with the label. */
  readonly accessibleName?: string;
  /** The question in the dialog. */
  readonly title: string;
  readonly command: string;
  /** The consequences, and further inputs. */
  readonly children?: ComponentChildren;
  /** Called when the dialog opens: forms start again from the present values. */
  readonly onOpen?: () => void;
  /** Throws the controller's refusal. */
  readonly onDo: (doing: Doing) => Promise<void>;
}) {
  const t = texts();
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [trouble, setTrouble] = useState("");
  const [isBusy, setBusy] = useState(false);
  // Its contents may call the controller.
  const [isOpen, setOpen] = useState(false);
  const open = (): void => {
    setReason("");
    setTrouble("");
    onOpen?.();
    setOpen(true);
    dialog.current?.showModal();
  };
  const act = async (): Promise<void> => {
    setBusy(true);
    try {
      const said = reason.trim();
      await onDo({
        reason: said,
        headers: said === "" ? {} : { "millpond-reason": encodeURIComponent(said) },
      });
      dialog.current?.close();
    } catch (error) {
      setTrouble(textOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button
        type="button"
        onClick={open}
        {...(accessibleName === undefined ? {} : { "aria-label": accessibleName })}
      >
        {label}
      </button>
      <dialog ref={dialog} aria-label={title} onClose={() => setOpen(false)}>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void act();
          }}
        >
          <h2>{title}</h2>
          {isOpen && children}
          <label class="field">
            {t.reasonForAudit}
            <input
              type="text"
              maxLength={256}
              value={reason}
              onInput={({ currentTarget }) => setReason(currentTarget.value)}
            />
          </label>
          <p class="command">
            <code>{command}</code>
          </p>
          {trouble !== "" && (
            <p class="trouble" role="alert">
              {trouble}
            </p>
          )}
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              {t.cancel}
            </button>
            <button type="submit" class="main" disabled={isBusy}>
              {label}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
