// SPDX-License-Identifier: Apache-2.0
/** Device memory: the hand-written commands. */
import type { Command } from "../schema.ts";

export const memoryCommands: readonly Command[] = [
  {
    name: "MemAlloc",
    doc: "Allocates device memory within the session's limit.",
    left: "books",
    fields: [
      ["bytes", "number"],
      ["flags", "u32"],
    ],
    reply: { fields: [["address", "u64"]] },
  },
  {
    name: "MemFree",
    doc: "Frees device memory, when the device is done with it. `isLeft`: 1 for what ends with its context, since the program did not free it.",
    left: "books",
    fields: [
      ["address", "address"],
      ["isLeft", "u32"],
    ],
  },
  {
    name: "MemGetInfo",
    doc: "Free and total memory of the vGPU of the current context.",
    left: "books",
    fields: [],
    reply: {
      fields: [
        ["freeBytes", "u64"],
        ["totalBytes", "u64"],
      ],
    },
  },
  {
    name: "ShareMemory",
    doc: "A handle by which other sessions of the claim open an allocation of MemAlloc. `bytes`: what the program asked for.",
    left: "trace",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenMemory",
    doc: "Memory of another session of the claim, by its handle; ended with MemFree.",
    left: "trace",
    fields: [["handle", { bytes: 64, of: "numbers" }]],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
        ["device", "i32"],
      ],
    },
  },
];
