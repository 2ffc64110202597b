// SPDX-License-Identifier: Apache-2.0
/** Pinned host memory: the hand-written commands. */
import type { Command } from "../schema.ts";

export const hostMemoryCommands: readonly Command[] = [
  {
    name: "HostAlloc",
    doc: "Pinned host memory at `address`: of a client on the same host, as a file that both map there; `isPrivate` 1: of the worker alone, for kernels that are given addresses of memory which the client mirrors.",
    left: "books",
    fields: [
      ["bytes", "number"],
      ["address", "place"],
      ["flags", "u32"],
      ["isPrivate", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "HostKeep",
    doc: "The client keeps the file of that pinned memory. In a session that goes on for one that was parked, it sent the file before this command, and has the memory from there.",
    left: { makes: "address", kind: "hostMemory" },
    fields: [
      ["bytes", "number"],
      ["address", "place"],
    ],
  },
  {
    name: "HostFree",
    doc: "The end of a HostAlloc.",
    left: "books",
    fields: [["address", "place"]],
    reply: { fields: [] },
  },
  {
    name: "HostMirror",
    doc: "Where the bytes of that memory of the client are, of which the worker has pages by HostAlloc. `state` 1: also in these pages, which the two mirror, so nothing that graphs write there is sent to the client any more. 2: HostContents has brought all of it, and functions of the program see there what the mirror brings. 0: with the client alone.",
    left: "books",
    fields: [
      ["address", "echo"],
      ["bytes", "number"],
      ["state", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "HostContents",
    doc: "What the client has at `address`, for memory in state 1 of HostMirror; what launches of graphs write there meanwhile is newer, and stays.",
    left: "books",
    fields: [["address", "echo"]],
    tails: ["data"],
  },
];
