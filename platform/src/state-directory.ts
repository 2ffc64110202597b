// SPDX-License-Identifier: Apache-2.0

import { homedir } from "node:os";
import { join } from "node:path";

/** Where a user's programs keep their state: `$XDG_STATE_HOME/millpond`, or `~/.local/state/millpond`. */
export function userStateDirectory(environment: NodeJS.ProcessEnv): string {
  const base = environment["XDG_STATE_HOME"];
  return join(base === undefined || base === "" ? join(homedir(), ".local", "state") : base, "millpond");
}

/** Where a controller keeps its state unless it is started by a service manager. */
export function controllerStateDirectory(environment: NodeJS.ProcessEnv): string {
  return join(userStateDirectory(environment), "controller");
}
