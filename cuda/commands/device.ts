// SPDX-License-Identifier: Apache-2.0
/** Devices: the hand-written commands. */
import type { Command } from "../schema.ts";

export const deviceCommands: readonly Command[] = [
  {
    name: "AtomicCapabilities",
    doc: "Which atomic operations work from a device on another one's memory, or on the host's (`peer` -1). `operations`: CUatomicOperation (u32 each); `capabilities`: as many u32.",
    left: "trace",
    fields: [
      ["device", "i32"],
      ["peer", "i32"],
    ],
    tails: ["operations"],
    reply: { fields: [["count", "u32"]], tails: ["capabilities"] },
  },
  {
    name: "SmTopology",
    doc: "What the driver's hidden table tells of each pair of multiprocessors of the current context's device: its place within its cluster of processors, and which cluster that is.",
    left: "trace",
    fields: [],
    reply: { fields: [], tails: ["places", "clusters"] },
  },
];
