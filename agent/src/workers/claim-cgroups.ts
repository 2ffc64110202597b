// SPDX-License-Identifier: Apache-2.0

/**
 * Control groups for claims: the kernel limits the host memory, processors and processes of all workers of an
 * allocation together. So a worker that leaks, or was compromised, takes memory only from its own claim.
 * Supports v2, and v1 if its memory controller is mounted.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { maxSessionsPerDevice } from "@millpond/api";
import { errorText } from "../process/error-text.ts";

/** Limits of the workers of one allocation together. */
export interface ClaimLimits {
  readonly memoryBytes: number;
  /** Processes and threads. */
  readonly processes: number;
  /** CPU weight under contention; 100: that of an ordinary group. */
  readonly cpuWeight: number;
}

/** Threads of a worker: its own, the driver's, and on a software GPU one for each processor. */
const threadsOfWorker = 256;

/** Returns the limits of an allocation of this number of vGPUs. */
export function limitsOf(memoryBytes: number, devices: number): ClaimLimits {
  return {
    memoryBytes,
    // Sessions that end count as well.
    processes: 2 * threadsOfWorker * maxSessionsPerDevice * devices,
    cpuWeight: Math.min(100 * devices, 10_000),
  };
}

/**
 * Returns the part of an allocation's host memory that its workers account for; they refuse requests beyond it. The
 * rest is for the processes themselves, above all their drivers. Only the kernel limits that rest, by killing.
 */
export function countedHostBytes(memoryBytes: number): number {
  return Math.floor((memoryBytes / 3) * 2);
}

/** One directory per claim, in a hierarchy that has some of the controllers. */
interface Hierarchy {
  readonly base: string;
  /**
   * Creates the base directory.
   *
   * @throws Error when the kernel refuses
   */
  readonly make: () => void;
  readonly files: (limits: ClaimLimits) => readonly (readonly [name: string, value: string])[];
}

const controllers = ["memory", "pids", "cpu"] as const;
type Controller = (typeof controllers)[number];

const filesOfV2 = {
  // Without swap: a claim that pages would slow down the disk of all others.
  memory: ({ memoryBytes }) => [
    ["memory.max", String(memoryBytes)],
    ["memory.swap.max", "0"],
  ],
  pids: ({ processes }) => [["pids.max", String(processes)]],
  cpu: ({ cpuWeight }) => [["cpu.weight", String(cpuWeight)]],
} as const satisfies Record<Controller, Hierarchy["files"]>;

const filesOfV1 = {
  memory: ({ memoryBytes }) => [
    // The limit with swap must never be below the limit without, not even while both are being changed.
    ["memory.memsw.limit_in_bytes", "-1"],
    ["memory.limit_in_bytes", String(memoryBytes)],
    ["memory.memsw.limit_in_bytes", String(memoryBytes)],
  ],
  pids: ({ processes }) => [["pids.max", String(processes)]],
  // 1024 in v1 corresponds to 100 in v2.
  cpu: ({ cpuWeight }) => [["cpu.shares", String(Math.round((cpuWeight * 1024) / 100))]],
} as const satisfies Record<Controller, Hierarchy["files"]>;

/** Files that a kernel without swap accounting does not have. */
const optionalFiles: ReadonlySet<string> = new Set(["memory.swap.max", "memory.memsw.limit_in_bytes"]);

export class ClaimCgroups {
  readonly #hierarchies: readonly Hierarchy[];
  /** The limits that this host does not support, one sentence each. */
  readonly gaps: readonly string[];

  private constructor(hierarchies: readonly Hierarchy[], gaps: readonly string[]) {
    this.#hierarchies = hierarchies;
    this.gaps = gaps;
  }

  /** No limits: for agents that do not contain their workers. */
  static none(): ClaimCgroups {
    return new ClaimCgroups([], []);
  }

  /**
   * Finds where this process may create groups, and creates there the parent of this agent's groups. `name`:
   * distinguishes it from other agents of the host. `root`: where the hierarchies are mounted. `own`: text of
   * `/proc/self/cgroup`.
   */
  static open({
    name,
    root = "/sys/fs/cgroup",
    own = readFileSync("/proc/self/cgroup", "utf8"),
  }: {
    readonly name: string;
    readonly root?: string;
    readonly own?: string;
  }): ClaimCgroups {
    const found = new Map<Controller, Hierarchy>();
    const reasons: string[] = [];
    const unified = existsSync(join(root, "cgroup.controllers")) ? root : join(root, "unified");
    for (const base of basesOfV2(unified, own, name)) {
      const made = attempt(() => makeV2(base), reasons);
      for (const each of made ?? []) {
        if (!found.has(each))
          found.set(each, { base, make: () => void makeV2(base), files: filesOfV2[each] });
      }
      if (found.size > 0) break;
      removeEmpty(base);
    }
    for (const each of controllers) {
      if (found.has(each)) continue;
      const base = baseOfV1(root, own, each, name);
      if (base === undefined) continue;
      const make = () => void mkdirSync(base, { recursive: true });
      const isMade = attempt(() => {
        make();
        return true;
      }, reasons);
      if (isMade === true) found.set(each, { base, make, files: filesOfV1[each] });
    }
    const missing = controllers.filter((each) => !found.has(each));
    const why = reasons[0] === undefined ? "this host offers none to the agent" : reasons[0];
    const gaps =
      missing.length === 0
        ? []
        : [
            `claims have no control group that limits their workers' ${missing.map(subject).join(", ")}: ${why}`,
          ];
    return new ClaimCgroups([...found.values()], gaps);
  }

  /**
   * Puts a worker into the group of its allocation; the group is created if it is missing and gets these limits. False:
   * the process no longer exists.
   *
   * @throws Error when the kernel refuses
   */
  place(pid: number, allocation: string, limits: ClaimLimits): boolean {
    for (const { base, make, files } of this.#hierarchies) {
      // Other parties, such as service managers and administrators, remove empty groups.
      if (!existsSync(base)) make();
      const group = join(base, allocation);
      mkdirSync(group, { recursive: true });
      for (const [name, value] of files(limits)) {
        const path = join(group, name);
        if (optionalFiles.has(name) && !existsSync(path)) continue;
        writeFileSync(path, value);
      }
      if (!moveProcess(join(group, "cgroup.procs"), pid)) return false;
    }
    return true;
  }

  /** Removes the groups of all other allocations that have no process left. */
  keepOnly(allocations: ReadonlySet<string>): void {
    for (const base of new Set(this.#hierarchies.map((each) => each.base))) {
      if (!existsSync(base)) continue;
      for (const entry of readdirSync(base, { withFileTypes: true })) {
        if (entry.isDirectory() && !allocations.has(entry.name)) removeEmpty(join(base, entry.name));
      }
    }
  }

  /** Removes this agent's groups that contain no worker. */
  close(): void {
    this.keepOnly(new Set());
    for (const { base } of this.#hierarchies) removeEmpty(base);
  }
}

function subject(controller: Controller): string {
  return { memory: "host memory", pids: "number of threads", cpu: "processor time" }[controller];
}

/**
 * The possible parents of v2 groups: the root, for an agent that may write there, and beside the agent's own group,
 * where a service manager has delegated the tree above it. Not the agent's own group itself: a group contains either
 * processes or groups with controllers.
 */
function basesOfV2(unified: string, own: string, name: string): string[] {
  if (!existsSync(join(unified, "cgroup.controllers"))) return [];
  const path = /^0::(\/.*)$/m.exec(own)?.[1];
  const parents = [unified, ...(path === undefined || path === "/" ? [] : [join(unified, dirname(path))])];
  return [...new Set(parents)].map((parent) => join(parent, "millpond", name));
}

function baseOfV1(root: string, own: string, controller: Controller, name: string): string | undefined {
  const mounted = join(root, controller);
  const path = new RegExp(`^\\d+:(?:[^:]*,)?${controller}(?:,[^:]*)?:(/.*)$`, "m").exec(own)?.[1];
  if (path === undefined || !existsSync(mounted)) return undefined;
  // Inside the agent's own group, whose limits then apply to its workers as well. In a container that is the root of
  // the mount.
  const inside = join(mounted, path);
  return join(existsSync(inside) ? inside : mounted, "millpond", name);
}

/**
 * Creates a group whose children have controllers, and returns these controllers.
 *
 * @throws Error when the kernel refuses
 */
function makeV2(base: string): Controller[] {
  const folders = [dirname(dirname(base)), dirname(base), base];
  mkdirSync(base, { recursive: true });
  let offered: readonly Controller[] = controllers;
  for (const folder of folders) {
    const known = readFileSync(join(folder, "cgroup.controllers"), "utf8").trim().split(" ");
    offered = offered.filter((each) => known.includes(each));
    for (const each of offered) writeFileSync(join(folder, "cgroup.subtree_control"), `+${each}`);
  }
  return [...offered];
}

/**
 * False: the process does not exist.
 *
 * @throws Error when the kernel refuses
 */
function moveProcess(file: string, pid: number): boolean {
  try {
    writeFileSync(file, String(pid));
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw error;
  }
}

function attempt<T>(make: () => T, reasons: string[]): T | undefined {
  try {
    return make();
  } catch (error) {
    reasons.push(errorText(error));
    return undefined;
  }
}

function removeEmpty(group: string): void {
  try {
    rmdirSync(group);
  } catch {
    // It contains a process that has not ended yet, so it is removed later.
  }
}
