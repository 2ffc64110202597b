// SPDX-License-Identifier: Apache-2.0

// Errors whose message is a reason. Until the reader is known, the message names neither claims nor gangs, so a path that
// bypasses the API edge discloses too little, never too much.

import type { ConnectError } from "@connectrpc/connect";
import { type ErrorCode, type ErrorDetail, millpondError } from "../errors.ts";
import type { Reason } from "./args.ts";
import { toReasonMessage } from "./message.ts";
import { type MayKnow, mayKnowNone } from "./render.ts";

interface Refusal {
  readonly code: ErrorCode;
  readonly reason: Reason;
  readonly detail: ErrorDetail;
}

const refusals = new WeakMap<ConnectError, Refusal>();

/** Creates the error to throw for a reason. */
export function refusal(code: ErrorCode, reason: Reason, detail: ErrorDetail = {}): ConnectError {
  return make({ code, reason, detail }, mayKnowNone);
}

/** The error for a reader with more access; other errors are returned as they are. */
export function refusalFor(error: unknown, mayKnow: MayKnow): unknown {
  const known = typeof error === "object" && error !== null ? refusals.get(error as ConnectError) : undefined;
  return known === undefined ? error : make(known, mayKnow);
}

function make(refused: Refusal, mayKnow: MayKnow): ConnectError {
  const { code, reason, detail } = refused;
  const message = toReasonMessage(reason, mayKnow);
  const error = millpondError(code, message.text, { ...detail, reason: message });
  refusals.set(error, refused);
  return error;
}
