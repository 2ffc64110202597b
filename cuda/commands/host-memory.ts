// SPDX-License-Identifier: Apache-2.0
/** Pinned host memory: the hand-written commands. */
import type { Command } from "../schema.ts";

export const hostMemoryCommands: readonly Command[] = [
  {
    name: "HostAlloc",
    doc: "Allocates pinned host memory at `address`. For a client on the same host it is a file that both processes map there. `isPrivate` 1: only the worker maps it, for kernels that receive addresses of memory which the client mirrors.",
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
    doc: "Reports that the client keeps the file of that pinned memory. In a session that continues a parked one, the client has sent the file before this command, and the worker maps it.",
    left: { makes: "address", kind: "hostMemory" },
    fields: [
      ["bytes", "number"],
      ["address", "place"],
    ],
  },
  {
    name: "HostFree",
    doc: "Frees memory of HostAlloc.",
    left: "books",
    fields: [["address", "place"]],
    reply: { fields: [] },
  },
  {
    name: "HostMirror",
    doc: "Sets where the current bytes of client memory are for which the worker has pages by HostAlloc. `state` 0: only at the client. 1: also in these pages, which both processes mirror, so what graphs write there is no longer sent to the client. 2: same, and HostContents has sent all of it, so functions of the program see there what the mirror brings.",
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
    doc: "Sends the client's bytes at `address`, for memory in state 1 of HostMirror. Bytes that launches of graphs write there meanwhile are newer and are kept.",
    left: "books",
    fields: [["address", "echo"]],
    tails: ["data"],
  },
];
