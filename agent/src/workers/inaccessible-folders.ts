// SPDX-License-Identifier: Apache-2.0

import { statSync } from "node:fs";
import { dirname } from "node:path";

/** Returns the first folder of a path that other users cannot enter. */
export function firstInaccessible(path: string): string | undefined {
  const parent = dirname(path);
  const above = parent === path ? undefined : firstInaccessible(parent);
  if (above !== undefined) return above;
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0o1;
  return (mode & 0o1) === 0 ? path : undefined;
}
