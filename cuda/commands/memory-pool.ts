// SPDX-License-Identifier: Apache-2.0
/** Pools of stream-ordered memory: the hand-written commands. */
import type { Command } from "../schema.ts";

export const memoryPoolCommands: readonly Command[] = [
  {
    name: "PoolCreate",
    doc: "A pool of stream-ordered memory of a device, at most `maxBytes` (0: any). `pool`: a handle of the client's.",
    left: { makes: "pool" },
    fields: [
      ["pool", "handle"],
      ["maxBytes", "number"],
      ["device", "i32"],
    ],
  },
  {
    name: "PoolDestroy",
    doc: "The end of a pool; its blocks in use stay until they are freed.",
    left: "books",
    fields: [["pool", "handle"]],
  },
  {
    name: "PoolSetThreshold",
    doc: "How much the pool keeps when the program synchronises.",
    left: { sets: "bytes", of: "pool" },
    fields: [
      ["pool", "handle"],
      ["bytes", "number"],
    ],
  },
  {
    name: "PoolResetHigh",
    doc: "The highest amount reserved (`ofReserved` 1) or used so far is the one of now.",
    left: "books",
    fields: [
      ["pool", "handle"],
      ["ofReserved", "u32"],
    ],
  },
  {
    name: "PoolHigh",
    doc: "Of a pool that is made again: the highest amounts reserved and used so far.",
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
    doc: "Gives back what nobody uses until the pool has at most `bytes`.",
    left: "books",
    fields: [
      ["pool", "handle"],
      ["bytes", "number"],
    ],
  },
  {
    name: "PoolUsage",
    doc: "What a pool has and what of it is in use, now and at most so far.",
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
    doc: "Memory of a pool, for use in the order of the stream. `ofGraph` 1: the stream is captured, so a node of the graph makes the memory with each launch.",
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
    doc: "The end of a PoolAlloc, of a MemAlloc, or of memory that a graph left, in the order of the stream.",
    left: "books",
    fields: [
      ["address", "address"],
      ["stream", "handle"],
    ],
  },
  {
    name: "PoolShare",
    doc: "A handle by which other sessions of the claim open a pool.",
    left: "trace",
    fields: [["pool", "handle"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpen",
    doc: "Another session's pool, by its handle, under a handle of the client's, or the one under which it is open already; ended with PoolDestroy.",
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
    doc: "A handle by which sessions that have opened a pool, which must have been shared, open an allocation of it. `bytes`: what the program asked for.",
    left: "trace",
    fields: [
      ["address", "address"],
      ["bytes", "number"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpenPointer",
    doc: "An allocation of a pool that was opened, by its handle; ended with one PoolFree or MemFree, however often it was opened.",
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
