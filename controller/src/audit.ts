// SPDX-License-Identifier: Apache-2.0

// What was changed through the API, by whom, and why. The record of a change is written with the change itself, so that
// neither is there without the other.

import { AsyncLocalStorage } from "node:async_hooks";
import { errorCodeOf, millpondError } from "@millpond/api";
import type { Caller } from "./callers.ts";
import type { AuditEntry } from "./store/store.ts";
import { isLoss } from "./store/store-errors.ts";

/** Why somebody changes something: UTF-8, percent-encoded as in URLs. */
export const reasonHeader = "millpond-reason";

const maxReasonLength = 256;

/** A call under way that is to change something. */
export class AuditedCall {
  readonly #entry: Omit<AuditEntry, "at" | "result">;
  #subject: string;
  /** Whether a change of this call is durable, and its record with it. */
  isWritten = false;
  /** Whether it has been answered: what its timers do later is not its doing. */
  isOver = false;

  constructor(
    caller: Caller,
    call: { readonly what: string; readonly subject: string; readonly why: string },
  ) {
    const { name: who, role, tenant } = caller;
    this.#entry = { who, role, tenant, ...call };
    this.#subject = call.subject;
  }

  /** Says what the call is about, where the request does not. */
  name(subject: string): void {
    this.#subject = subject;
  }

  toEntry(at: number, result: string): AuditEntry {
    return { ...this.#entry, subject: this.#subject, at, result };
  }
}

const underWay = new AsyncLocalStorage<AuditedCall | undefined>();

/** The call on whose behalf this code runs; undefined: none, or one that is not to change anything. */
export function currentCall(): AuditedCall | undefined {
  const call = underWay.getStore();
  return call?.isOver === true ? undefined : call;
}

/** Runs what is nobody's call, whoever happens to begin it. */
export function outsideCalls<T>(run: () => T): T {
  return underWay.run(undefined, run);
}

/**
 * Runs a call. What it changes is recorded with the change; when it changed nothing or was refused, that is recorded
 * by `write`, and the call fails where that cannot be done.
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

/** @throws MILLPOND_E_INVALID */
export function parseReason(header: string | null): string {
  if (header === null) {
    return "";
  }
  let text: string;
  try {
    text = decodeURIComponent(header);
  } catch {
    throw millpondError("MILLPOND_E_INVALID", "the header Millpond-Reason is not percent-encoded UTF-8");
  }
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  if (line.length > maxReasonLength) {
    throw millpondError("MILLPOND_E_INVALID", `the reason is longer than ${maxReasonLength} characters`);
  }
  return line;
}
