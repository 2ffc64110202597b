// SPDX-License-Identifier: Apache-2.0
/** Devices: the hand-written commands. */
import type { Command } from "../schema.ts";

export const deviceCommands: readonly Command[] = [
  {
    name: "AtomicCapabilities",
    doc: "Returns which atomic operations a device supports on the memory of another device, or of the host (`peer` -1). `operations`: CUatomicOperation (u32 each); `capabilities`: one u32 for each.",
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
    doc: "Returns what the driver's undocumented table reports for each pair of multiprocessors of the current context's device: its cluster of processors, and its place in the cluster.",
    left: "trace",
    fields: [],
    reply: { fields: [], tails: ["places", "clusters"] },
  },
];
