// SPDX-License-Identifier: Apache-2.0

/**
 * Directories through which the processes of one user share the memory of software GPUs: one for each user of workers.
 */

import { chmodSync, lchownSync, lstatSync, mkdirSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { millpondError } from "@millpond/api";
import { firstInaccessible } from "./inaccessible-folders.ts";

/**
 * The directory of a user's processes. Undefined: the one in the agent's environment, which the driver creates itself.
 */
export function softgpuState(own: NodeJS.ProcessEnv, user: number | undefined): string | undefined {
  const state = own["MILLPOND_SOFTGPU_STATE"];
  // The software GPU refuses a directory of another user.
  return user === undefined || state === undefined ? undefined : `${state}-${user}`;
}

/**
 * Creates the directory of a user without the right to write to the agent's folders. Only an agent that is root has
 * other users for workers.
 *
 * @throws MILLPOND_E_INVALID when the user could not use it
 */
export function makeSoftgpuState(own: NodeJS.ProcessEnv, user: number | undefined): void {
  const path = softgpuState(own, user);
  if (path === undefined || user === undefined) return;
  const closed = firstInaccessible(dirname(path));
  if (closed !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `workers cannot run as other users: they cannot enter ${closed}, in which the state of software GPUs is`,
      {
        remedy:
          "Set MILLPOND_SOFTGPU_STATE to a path in a folder that every user can enter, or start the agent with --worker-user none.",
      },
    );
  }
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  // Never through a link, which another user may have placed in a world-writable folder.
  const found = lstatSync(path);
  if (found.isDirectory() && found.uid === user) return;
  if (!found.isDirectory() || found.uid !== process.getuid?.()) {
    throw millpondError("MILLPOND_E_INVALID", `${path} is not a directory of user ${user}`, {
      remedy: "Remove it, or set MILLPOND_SOFTGPU_STATE to another path.",
    });
  }
  chmodSync(path, 0o700);
  lchownSync(path, user, user);
}

/** Removes the directory of a user without processes. */
export function removeSoftgpuState(own: NodeJS.ProcessEnv, user: number | undefined): void {
  const path = softgpuState(own, user);
  if (path !== undefined) rmSync(path, { recursive: true, force: true });
}
