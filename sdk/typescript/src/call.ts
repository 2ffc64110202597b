// SPDX-License-Identifier: Apache-2.0

import type { Services } from "./gen/api.ts";

export interface CallOptions {
  /** For each attempt; default: 20 s. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Recorded in the audit with a change. */
  readonly reason?: string;
}

/** An error from the controller, or the lack of an answer. */
export class MillpondError extends Error {
  /** One of docs/reference/errors.md: `MILLPOND_E_NO_CAPACITY`; empty if it has no code. */
  readonly code: string;
  /** HTTP status; 0: there was no answer. */
  readonly status: number;
  /** URL of the leader, if the controller is a follower. */
  readonly leader: string;

  constructor(message: string, at: { status: number; code?: string; leader?: string; cause?: unknown }) {
    super(message, { cause: at.cause });
    this.name = "MillpondError";
    this.code = /\[(MILLPOND_E_[A-Z_]+)\]$/.exec(message)?.[1] ?? at.code ?? "";
    this.status = at.status;
    this.leader = at.leader ?? "";
  }
}

export type Method<S extends keyof Services, M extends keyof Services[S]> = Services[S][M] extends {
  readonly request: infer Request;
  readonly answer: infer Answer;
}
  ? { readonly request: Request; readonly answer: Answer }
  : never;

/** Makes calls of the API. */
export interface Caller {
  /** Base URL of the controller, or of several, separated by commas. */
  readonly controller: string;
  call<S extends keyof Services, M extends keyof Services[S] & string>(
    service: S,
    method: M,
    request: Method<S, M>["request"],
    options?: CallOptions,
  ): Promise<Method<S, M>["answer"]>;
}
