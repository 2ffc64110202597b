// SPDX-License-Identifier: Apache-2.0

/**
 * Environment and user of processes that load a driver: workers, probes and device watchers. Tenants' code reaches such a
 * process, so it counts as compromised: it gets an environment of its own and, from an agent that runs as root, a user of
 * its own. It drops its other rights itself (native/worker/process).
 */

import { readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { millpondError, quote } from "@millpond/api";

export interface WorkerContainment {
  /** User and group id of workers; undefined: those of the agent. */
  readonly user: number | undefined;
  /** The process keeps all rights, for debugging on a host without tenants. */
  readonly isOff: boolean;
  /** Devices whose kernels can address pageable memory of their worker (HMM, ATS) are served. */
  readonly trustsPageableAccess: boolean;
}

/** Beyond all ranges that distributions use for people, services, containers and subordinate users. */
export const defaultWorkerUser = 1_900_000_000;
const workerUserName = "millpond-worker";
const largestUser = 4_294_967_294;

/** Arguments of the worker program. Without `containment`, it drops all rights that need no change of user. */
export function containmentArguments(containment: WorkerContainment | undefined): string[] {
  if (containment === undefined) return [];
  const { user, isOff, trustsPageableAccess } = containment;
  return [
    ...(user === undefined ? [] : ["--user", String(user)]),
    ...(isOff ? ["--no-containment"] : []),
    ...(trustsPageableAccess ? ["--trust-pageable-access"] : []),
  ];
}

/** Variables that configure drivers and workers. Tokens and other variables of the agent are not among them. */
const inherited =
  /^(LD_LIBRARY_PATH|XDG_RUNTIME_DIR|TZ|LANG|LC_ALL|MILLPOND_LOG|MILLPOND_CUPTI|MILLPOND_SOFTGPU_[A-Z_]+|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|CACHE_MAXSIZE|DISABLE_PTX_JIT|FORCE_PTX_JIT|MODULE_LOADING)|(A|T|UB|L)SAN_OPTIONS)$/;

/**
 * Returns the environment of a process that loads a driver. `jitCache`: directory of the code that its driver compiles;
 * undefined: the driver keeps none.
 */
export function workerEnvironment(own: NodeJS.ProcessEnv, jitCache: string | undefined): NodeJS.ProcessEnv {
  const kept = Object.entries(own).filter(([name]) => inherited.test(name));
  return {
    ...Object.fromEntries(kept),
    // All processes of a user share the user's cache: one session could plant code that others run.
    ...(jitCache === undefined ? { CUDA_CACHE_DISABLE: "1" } : { CUDA_CACHE_PATH: jitCache }),
  };
}

/**
 * Chooses the user for workers. `wanted`: an id or a name, `none` for the agent's own, or undefined: for an agent that
 * runs as root, millpond-worker or an unused id, if that user can enter the run directory.
 *
 * @returns the user and, where workers share the agent's user, the reason as `gap`
 * @throws MILLPOND_E_INVALID
 */
export function chooseWorkerUser(
  wanted: string | undefined,
  { runDirectory, isRoot }: { readonly runDirectory: string; readonly isRoot: boolean },
): { readonly user: number | undefined; readonly gap?: string } {
  if (wanted === "none")
    return { user: undefined, gap: "workers run as the agent's user, as --worker-user requires" };
  if (!isRoot) {
    if (wanted === undefined)
      return { user: undefined, gap: "only an agent that is root can give workers another user" };
    throw millpondError(
      "MILLPOND_E_INVALID",
      `workers cannot run as ${quote(wanted)}: this agent is not root, and only root can change users`,
    );
  }
  const user = wanted === undefined ? (userByName(workerUserName) ?? defaultWorkerUser) : parseUser(wanted);
  const closed = firstClosed(runDirectory);
  if (closed === undefined) return { user };
  const why = `the user ${user} cannot enter ${closed}, in which the run directory is`;
  if (wanted === undefined) return { user: undefined, gap: `workers run as root: ${why}` };
  throw millpondError("MILLPOND_E_INVALID", `workers cannot run as ${quote(wanted)}: ${why}`, {
    remedy: "Give the agent a run directory that every user can enter, such as /run/millpond.",
  });
}

function parseUser(text: string): number {
  const user = /^\d{1,10}$/.test(text) ? Number(text) : userByName(text);
  if (user === undefined || user < 1 || user > largestUser) {
    throw millpondError("MILLPOND_E_INVALID", `there is no user ${quote(text)} that workers could run as`);
  }
  return user;
}

function userByName(name: string): number | undefined {
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((each) => each.startsWith(`${name}:`));
  return line === undefined ? undefined : Number(line.split(":")[2]);
}

/** The first folder on the way to a path that other users cannot enter. */
function firstClosed(path: string): string | undefined {
  const parent = dirname(path);
  const above = parent === path ? undefined : firstClosed(parent);
  if (above !== undefined) return above;
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0o1;
  return (mode & 0o1) === 0 ? path : undefined;
}
