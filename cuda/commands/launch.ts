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
    doc: "Launches a kernel. `flags`: 1 is a cooperative launch. `attributes`: CUlaunchAttribute records; `params`: the packed parameters.",
    left: "books",
    work: true,
    fields: [...launchFields, ["flags", "u32"]],
    tails: ["attributes", "params"],
  },
  {
    name: "LaunchLimits",
    doc: "Returns the limits of launches of a function in the current context, and the cluster size in blocks for which it was compiled, 0 for none.",
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
    doc: "Returns how many clusters of a launch can run concurrently or, if `asksSize` is set, the maximum size of a cluster.",
    left: "trace",
    fields: [...launchFields, ["asksSize", "u32"]],
    tails: ["attributes"],
    reply: { fields: [["count", "i32"]] },
  },
];
