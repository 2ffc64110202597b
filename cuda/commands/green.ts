// SPDX-License-Identifier: Apache-2.0
/** Resources of devices, and the green contexts that have them: the hand-written commands. */
import type { Command } from "../schema.ts";

export const greenCommands: readonly Command[] = [
  {
    name: "DeviceResource",
    doc: "A CUdevResource of a device, or of the frame's context with `device` -1.",
    left: "trace",
    fields: [
      ["device", "i32"],
      ["type", "i32"],
    ],
    reply: { fields: [["resource", { bytes: 144 }]] },
  },
  {
    name: "ResourceSplit",
    doc: "cuDevSmResourceSplitByCount of a resource that the session was given. `groups`: how many are wanted, 0 for none but their number.",
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
    doc: "cuDevResourceGenerateDesc of resources that the session was given, under a number of the client's.",
    left: "trace",
    fields: [["descriptor", "handle"]],
    tails: ["resources"],
    reply: { fields: [] },
  },
  {
    name: "GreenCreate",
    doc: "A green context on a device, under a number as with ContextCreate; ended with ContextDestroy.",
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
    doc: "A stream of the frame's context, which is a green one.",
    left: "trace",
    fields: [
      ["stream", "handle"],
      ["flags", "u32"],
      ["priority", "i32"],
    ],
  },
];
