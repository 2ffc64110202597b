// SPDX-License-Identifier: Apache-2.0
/** Pools of stream-ordered memory: the hand-written commands. */
import type { Command } from "../schema.ts";

export const memoryPoolCommands: readonly Command[] = [
  {
    name: "PoolCreate",
    doc: "Creates a pool of stream-ordered memory on a device, with at most `maxBytes` (0: no maximum). `pool`: the handle, chosen by the client.",
    left: { makes: "pool" },
    fields: [
      ["pool", "handle"],
      ["maxBytes", "number"],
      ["device", "i32"],
    ],
  },
  {
    name: "PoolDestroy",
    doc: "Destroys a pool. Its blocks in use stay until they are freed.",
    left: "books",
    fields: [["pool", "handle"]],
  },
  {
    name: "PoolSetThreshold",
    doc: "Sets how much memory the pool keeps when the program synchronises.",
    left: { sets: "bytes", of: "pool" },
    fields: [
      ["pool", "handle"],
      ["bytes", "number"],
    ],
  },
  {
    name: "PoolResetHigh",
    doc: "Resets the high-water mark of reserved (`ofReserved` 1) or used memory to the current amount.",
    left: "books",
    fields: [
      ["pool", "handle"],
      ["ofReserved", "u32"],
    ],
  },
  {
    name: "PoolHigh",
    doc: "Restores the high-water marks of a pool that is recreated.",
    left: { tells: "pool" },
    fields: [
      ["pool", "handle"],
      ["reserved", "number"],
      ["used", "number"],
    ],
    reply: { fields: [] },
  },
  {
    name: "PoolTrim",
    doc: "Releases unused memory until the pool has at most `bytes`.",
    left: "books",
    fields: [
      ["pool", "handle"],
      ["bytes", "number"],
    ],
  },
  {
    name: "PoolUsage",
    doc: "Returns the current amounts and the high-water marks of a pool's reserved and used memory.",
    left: "books",
    fields: [["pool", "handle"]],
    reply: {
      fields: [
        ["reserved", "u64"],
        ["reservedHigh", "u64"],
        ["used", "u64"],
        ["usedHigh", "u64"],
      ],
    },
  },
  {
    name: "PoolAlloc",
    doc: "Allocates memory of a pool in stream order. `ofGraph` 1: the stream is captured, so a node of the graph allocates the memory in each launch.",
    left: "books",
    fields: [
      ["pool", "handle"],
      ["bytes", "number"],
      ["stream", "handle"],
    ],
    reply: {
      fields: [
        ["address", "u64"],
        ["ofGraph", "u32"],
      ],
    },
  },
  {
    name: "PoolFree",
    doc: "Frees memory of PoolAlloc or MemAlloc, or that a graph has allocated, in stream order.",
    left: "books",
    fields: [
      ["address", "address"],
      ["stream", "handle"],
    ],
  },
  {
    name: "PoolShare",
    doc: "Returns a handle by which other sessions of the claim open a pool.",
    left: "trace",
    fields: [["pool", "handle"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpen",
    doc: "Opens another session's pool by its handle. The client chooses the handle of the opened pool; if it is open already, the answer has its existing handle. PoolDestroy closes it.",
    left: "trace",
    fields: [
      ["pool", "handle"],
      ["handle", { bytes: 64, of: "numbers" }],
    ],
    reply: {
      fields: [
        ["pool", "u64"],
        ["device", "i32"],
      ],
    },
  },
  {
    name: "PoolSharePointer",
    doc: "Returns a handle by which sessions that have opened a shared pool open an allocation of it. `bytes`: the size that the program requested.",
    left: "trace",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpenPointer",
    doc: "Opens an allocation of an opened pool by its handle. One PoolFree or MemFree closes it, however often it was opened.",
    left: "trace",
    fields: [
      ["pool", "handle"],
      ["handle", { bytes: 64, of: "numbers" }],
    ],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
      ],
    },
  },
];
