// SPDX-License-Identifier: Apache-2.0

/**
 * Environment and user of processes that load a driver: workers, probes and device watchers. Tenants' code reaches such a
 * process, so it counts as compromised: it gets an environment of its own and, from an agent that runs as root, a user of
 * its own. It drops its other rights itself (native/worker/process).
 */

import { readFileSync } from "node:fs";
import { millpondError, quote } from "@millpond/api";
import { firstInaccessible } from "./inaccessible-folders.ts";
import { softgpuState } from "./softgpu-state.ts";
import {
  chooseRange,
  existsHere,
  formatRange,
  parseUserRange,
  type UserRange,
  WorkerUsers,
} from "./worker-users.ts";

export interface WorkerContainment {
  /**
   * User and group id of processes that load a driver; undefined: the agent's own. If there are `users`, workers run as
   * those instead.
   */
  readonly user: number | undefined;
  /** The range from which each claim's workers get an id; undefined: all workers run as `user`. */
  readonly users?: UserRange | undefined;
  /** The measures that keep workers apart and are missing on this host, a sentence each. */
  readonly gaps: readonly string[];
  /** The process keeps all rights, for debugging on a host without tenants. */
  readonly isOff: boolean;
  /** Devices whose kernels can address pageable memory of their worker (HMM, ATS) are served. */
  readonly trustsPageableAccess: boolean;
}

const largestUser = 4_294_967_294;

/** Arguments of the worker program. Without `containment`, it drops all rights that can be dropped without a change of user. */
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
 * Returns the environment of a process that loads a driver. `jitCache`: directory for the code that its driver
 * compiles; undefined: the driver caches none. `user`: the user of the process, if it is not the agent's.
 */
export function workerEnvironment(
  own: NodeJS.ProcessEnv,
  jitCache: string | undefined,
  user: number | undefined,
): NodeJS.ProcessEnv {
  const kept = Object.entries(own).filter(([name]) => inherited.test(name));
  const state = softgpuState(own, user);
  return {
    ...Object.fromEntries(kept),
    ...(state === undefined ? {} : { MILLPOND_SOFTGPU_STATE: state }),
    // All processes of a user share the user's cache: one session could plant code that others run.
    ...(jitCache === undefined ? { CUDA_CACHE_DISABLE: "1" } : { CUDA_CACHE_PATH: jitCache }),
  };
}

/** The users of workers, as in WorkerContainment. `gap`: why these users do not keep the workers of different claims apart. */
export interface ChosenUsers {
  readonly user: number | undefined;
  readonly users?: UserRange;
  readonly gap?: string;
}

/**
 * Chooses the users for workers. `workerUsers`: a range from which each claim gets an id. `workerUser`: an id or a name
 * for all workers, or `none` for the agent's own. With neither, an agent that runs as root uses the default range, if
 * other users can enter the run directory.
 *
 * @throws MILLPOND_E_INVALID
 */
export function chooseWorkerUsers(
  {
    workerUser,
    workerUsers,
  }: { readonly workerUser?: string | undefined; readonly workerUsers?: string | undefined },
  { runDirectory, isRoot }: { readonly runDirectory: string; readonly isRoot: boolean },
): ChosenUsers {
  if (workerUser !== undefined && workerUsers !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "workers have either one user, --worker-user, or a user for each claim, --worker-users",
    );
  }
  if (workerUser === "none")
    return { user: undefined, gap: "workers run as the agent's user, as --worker-user requires" };
  const wanted = workerUser ?? workerUsers;
  if (!isRoot) {
    if (wanted === undefined)
      return { user: undefined, gap: "only an agent that is root can give workers another user" };
    throw millpondError(
      "MILLPOND_E_INVALID",
      `workers cannot run as ${quote(wanted)}: this agent is not root, and only root can change users`,
    );
  }
  const closed = firstInaccessible(runDirectory);
  if (closed !== undefined) {
    const why = `other users cannot enter ${closed}, in which the run directory is`;
    if (wanted === undefined) return { user: undefined, gap: `workers run as root: ${why}` };
    throw millpondError("MILLPOND_E_INVALID", `workers cannot run as ${quote(wanted)}: ${why}`, {
      remedy: "Give the agent a run directory that every user can enter, such as /run/millpond.",
    });
  }
  if (workerUser !== undefined)
    return {
      user: parseUser(workerUser),
      gap: "workers of all claims have one user, as --worker-user requires",
    };
  const users = workerUsers === undefined ? chooseRange() : parseUserRange(workerUsers);
  if (users === undefined)
    return {
      user: undefined,
      gap: "workers run as root: the agent's user namespace has no user ids for them",
    };
  if (!existsHere(users)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `workers cannot have the user ids ${formatRange(users)}: they do not exist in the agent's user namespace`,
    );
  }
  return { user: WorkerUsers.ofWatchers(users), users };
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
