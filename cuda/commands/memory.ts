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
    doc: "Frees device memory when the device is done with it. `isLeft` 1: the program has not freed it, and its context is being destroyed.",
    left: "books",
    fields: [
      ["address", "address"],
      ["isLeft", "u32"],
    ],
  },
  {
    name: "MemGetInfo",
    doc: "Returns the free and the total memory of the vGPU of the current context.",
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
    doc: "Returns a handle by which other sessions of the claim open an allocation of MemAlloc. `bytes`: the size that the program requested.",
    left: "trace",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenMemory",
    doc: "Opens memory of another session of the claim by its handle. MemFree closes it.",
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
