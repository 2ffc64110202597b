// SPDX-License-Identifier: Apache-2.0
/** Kernel launches and their limits: the hand-written commands. */
import type { Command } from "../schema.ts";

/** The function, the stream and the shape: fields that launches share with queries about a launch. */
const launchFields = [
  ["function", "handle"],
  ["stream", "handle"],
  ["gridX", "u32"],
  ["gridY", "u32"],
  ["gridZ", "u32"],
  ["blockX", "u32"],
  ["blockY", "u32"],
  ["blockZ", "u32"],
  ["sharedBytes", "u32"],
] as const;

export const launchCommands: readonly Command[] = [
  {
    name: "Launch",
    doc: "A kernel launch. `flags`: 1 cooperative. `attributes`: CUlaunchAttribute records; `params`: the packed parameters.",
    left: "books",
    work: true,
    fields: [...launchFields, ["flags", "u32"]],
    tails: ["attributes", "params"],
  },
  {
    name: "LaunchLimits",
    doc: "What a launch of a function must keep within in the current context, and the blocks of a cluster that it was compiled for, 0 for none.",
    left: "books",
    fields: [["function", "handle"]],
    reply: {
      fields: [
        ["threads", "i32"],
        ["dynamicSharedBytes", "i32"],
        ["registers", "i32"],
        ["clusterX", "u32"],
        ["clusterY", "u32"],
        ["clusterZ", "u32"],
      ],
    },
  },
  {
    name: "ClusterOccupancy",
    doc: "How many clusters of a launch can run at once or, with `asksSize`, how large a cluster can be.",
    left: "trace",
    fields: [...launchFields, ["asksSize", "u32"]],
    tails: ["attributes"],
    reply: { fields: [["count", "i32"]] },
  },
];
