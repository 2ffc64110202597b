// SPDX-License-Identifier: Apache-2.0

// The audit of changes through the API: token, method, subject and reason. The record is written in the same transaction as
// the change, so that neither exists without the other.

import { AsyncLocalStorage } from "node:async_hooks";
import { errorCodeOf } from "@millpond/api";
import { type Caller, userOf } from "../domain/caller.ts";
import type { AuditEntry } from "../domain/records.ts";
import { isLoss } from "./store-errors.ts";

/** A place outside of the store to which audit records are written before their changes are. */
export interface AuditSink {
  /** Rejects where the changes must not be made, because their records could not be written. */
  write(entries: readonly AuditEntry[]): Promise<void>;
}

/** A call in progress that asks for a change. */
export class AuditedCall {
  readonly #entry: Omit<AuditEntry, "at" | "result">;
  readonly #user: string;
  #subject: string;
  /** Whether a change of this call is durable, together with its audit record. */
  isWritten = false;
  /** Whether it has been answered: later actions of its timers are not attributed to it. */
  isOver = false;

  constructor(
    caller: Caller,
    call: { readonly what: string; readonly subject: string; readonly why: string },
  ) {
    const { name: who, role, tenant } = caller;
    this.#entry = { who, role, tenant, ...call };
    this.#user = userOf(caller);
    this.#subject = call.subject;
  }

  /** Sets the subject of the call, where the request does not name it. */
  name(subject: string): void {
    this.#subject = subject;
  }

  /** The author and the given reason, for affected users without access to the audit. */
  get author(): { readonly isAdministrator: boolean; readonly user: string; readonly why: string } {
    const { role, why } = this.#entry;
    return { isAdministrator: role === "admin", user: this.#user, why };
  }

  toEntry(at: number, result: string): AuditEntry {
    return { ...this.#entry, subject: this.#subject, at, result };
  }
}

const underWay = new AsyncLocalStorage<AuditedCall | undefined>();

/** The call on whose behalf this code runs; undefined: none, or a call that asks for no change. */
export function currentCall(): AuditedCall | undefined {
  const call = underWay.getStore();
  return call?.isOver === true ? undefined : call;
}

/** Runs code that belongs to no call, whichever call happens to trigger it. */
export function outsideCalls<T>(run: () => T): T {
  return underWay.run(undefined, run);
}

/**
 * Runs a call. Its changes are recorded with their transaction; when it changed nothing or was refused, `write` records
 * that, and the call fails when it cannot be recorded.
 */
export async function audited<T>(
  call: AuditedCall,
  run: () => Promise<T>,
  write: (result: string) => Promise<void>,
): Promise<T> {
  let answer: T;
  try {
    answer = await underWay.run(call, run);
  } catch (error) {
    if (!isLoss(error)) {
      await write(errorCodeOf(error) ?? "MILLPOND_E_INTERNAL");
    }
    throw error;
  } finally {
    call.isOver = true;
  }
  if (!call.isWritten) {
    await write("ok");
  }
  return answer;
}
