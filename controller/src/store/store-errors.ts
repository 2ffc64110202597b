// SPDX-License-Identifier: Apache-2.0

import { errorCodeOf, millpondError } from "@millpond/api";

/** Somebody wrote who leads no longer. */
export function termIsOver(term: number) {
  return millpondError(
    "MILLPOND_E_NOT_LEADER",
    `another controller has begun to lead since this one did (term ${term})`,
  );
}

/** Whether whoever wrote does not know what is written any more, or may not write. */
export function isLoss(error: unknown): boolean {
  const code = errorCodeOf(error);
  return code === "MILLPOND_E_NOT_LEADER" || code === "MILLPOND_E_STORE_UNREACHABLE";
}
