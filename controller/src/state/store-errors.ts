// SPDX-License-Identifier: Apache-2.0

import { errorCodeOf, millpondError } from "@millpond/api";

/** The error for a write by a controller that is no longer the leader. */
export function termIsOver(term: number) {
  return millpondError(
    "MILLPOND_E_NOT_LEADER",
    `another controller has begun to lead since this one did (term ${term})`,
  );
}

/** Whether the writer no longer knows the stored state, or may no longer write. */
export function isLoss(error: unknown): boolean {
  const code = errorCodeOf(error);
  return code === "MILLPOND_E_NOT_LEADER" || code === "MILLPOND_E_STORE_UNREACHABLE";
}
