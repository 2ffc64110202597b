// SPDX-License-Identifier: Apache-2.0

import { changing } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that change claims. */
export const claimCommands = {
  resize: {
    summary: "Change the size of a claim",
    description: `Memory and compute change immediately, also while programs of the claim run; memory cannot fall below their use. The
number of vGPUs can change while no program of the claim uses them: then the claim is placed again, and keeps its vGPUs
when there is no room. Omitted options keep their values.`,
    examples: [
      { command: "millpond resize claim-7f3a -m 16Gi", what: "more memory for a program that runs" },
      { command: "millpond resize notebook -n 16", what: "16 vGPUs for the next program of the claim" },
    ],
    arguments: [
      { name: "claim", description: "Name of the claim, or a unique prefix of it", names: "claims" },
    ],
    options: {
      gpus: { flags: "-n, --gpus <count>", type: "count", description: "Number of vGPUs, 1 to 64" },
      memory: {
        flags: "-m, --memory <size>",
        type: "memory",
        description: "Memory of each vGPU: 512Mi, 8G, 8192 (MiB), 50% or 0.5 of the device",
      },
      compute: {
        flags: "-c, --compute <percent>",
        type: "percent",
        description: "Compute share of each vGPU of its device: 50, 50% or 0.5; 1% to 100%",
      },
      wait: {
        flags: "--wait",
        type: "flag",
        description: "If the claim has to move and there is no room, release what it holds and wait",
      },
      ...changing,
    },
    group: "Operate",
  },
  prioritize: {
    summary: "Change the priority of a claim",
    description: `It counts from now on: for the order in its queue, for preemption, and for sessions that open later. Sessions that are open
keep the priority that they began with, and a notice that was given stands. All members of a gang get the same priority.`,
    examples: [
      { command: "millpond prioritize train --priority 10", what: "before the claims of its queue below 10" },
    ],
    arguments: [
      { name: "claim", description: "Name of the claim, or a unique prefix of it", names: "claims" },
    ],
    options: {
      priority: {
        // Not read from the environment, whose claim name refers to claims that are created in it.
        flags: "--priority <number>",
        type: "integer",
        description: "New priority, -1000 to 1000; higher is served first",
      },
      ...changing,
    },
    group: "Operate",
  },
  release: {
    summary: "End a claim and its sessions",
    description: `If no claim has the name, ends the job of that name on this machine: an array, or a program that waits for others.`,
    examples: [{ command: "millpond release claim-7f3a", what: "frees its vGPUs immediately" }],
    arguments: [
      {
        name: "claim",
        description: "Name of the claim; a unique prefix suffices if the name was generated",
        names: "claims",
      },
    ],
    options: { ...changing },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
