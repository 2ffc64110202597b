// SPDX-License-Identifier: Apache-2.0
/** Resources of devices, and the green contexts that have them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const greenCommands: readonly Command[] = [
  {
    name: "DeviceResource",
    doc: "Returns a CUdevResource of a device, or of the frame's context if `device` is -1.",
    left: "trace",
    fields: [
      ["device", "i32"],
      ["type", "i32"],
    ],
    reply: { fields: [["resource", { bytes: 144 }]] },
  },
  {
    name: "ResourceSplit",
    doc: "cuDevSmResourceSplitByCount of a resource that the session has received. `groups`: the number of groups requested; 0 returns only how many there would be.",
    left: "trace",
    fields: [
      ["input", { bytes: 144, of: "CUdevResource" }],
      ["groups", "u32"],
      ["flags", "u32"],
      ["minimum", "u32"],
    ],
    reply: {
      fields: [
        ["groups", "u32"],
        ["remaining", { bytes: 144 }],
      ],
      tails: ["result"],
    },
  },
  {
    name: "ResourceDescribe",
    doc: "cuDevResourceGenerateDesc of resources that the session has received. The client chooses the number of the descriptor.",
    left: "trace",
    fields: [["descriptor", "handle"]],
    tails: ["resources"],
    reply: { fields: [] },
  },
  {
    name: "GreenCreate",
    doc: "Creates a green context on a device, with a number as in ContextCreate. ContextDestroy destroys it.",
    left: "trace",
    fields: [
      ["context", "u32"],
      ["device", "i32"],
      ["descriptor", "handle"],
      ["flags", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "GreenStream",
    doc: "Creates a stream in the frame's context, which is a green context.",
    left: "trace",
    fields: [
      ["stream", "handle"],
      ["flags", "u32"],
      ["priority", "i32"],
    ],
  },
];
