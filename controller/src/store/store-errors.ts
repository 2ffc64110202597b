// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";

/** Somebody wrote who leads no longer. */
export function termIsOver(term: number) {
  return millpondError(
    "MILLPOND_E_NOT_LEADER",
    `another controller has begun to lead since this one did (term ${term})`,
  );
}
