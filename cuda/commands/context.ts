// SPDX-License-Identifier: Apache-2.0
/** Contexts: the hand-written commands. */
import type { Command } from "../schema.ts";

export const contextCommands: readonly Command[] = [
  {
    name: "ContextCreate",
    doc: "Creates a context on a device. The client chooses its number, which is above those of the primary contexts. `affinity`: CUexecAffinityParam records.",
    left: { makes: "context", kind: "context" },
    fields: [
      ["context", "u32"],
      ["flags", "u32"],
      ["device", "i32"],
    ],
    tails: ["affinity"],
    reply: { fields: [] },
  },
  {
    name: "ContextDestroy",
    doc: "Destroys a context made by ContextCreate when its work is done.",
    left: "books",
    fields: [["context", "u32"]],
  },
  {
    name: "ContextReset",
    doc: "Resets a primary context in which the client has destroyed everything. A context that has failed works again.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "ContextSetCacheConfig",
    doc: "cuCtxSetCacheConfig.",
    left: { sets: "config" },
    fields: [["config", "i32"]],
  },
  {
    name: "ContextSetLimit",
    doc: "cuCtxSetLimit; the limit holds until the context is reset.",
    left: { sets: "value" },
    fields: [
      ["limit", "i32"],
      ["value", "number"],
    ],
    reply: { fields: [] },
  },
  {
    name: "ContextRecordEvent",
    doc: "Records an event behind all work of the frame's context.",
    left: "trace",
    fields: [["event", "handle"]],
  },
  {
    name: "ContextWaitEvent",
    doc: "Makes all later work of the frame's context wait for an event.",
    left: "trace",
    fields: [["event", "handle"]],
  },
  {
    name: "ContextSync",
    doc: "Answered when all streams of the context are done.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "PeerAccess",
    doc: "Allows (`enable` 1) or forbids (0) that kernels of the current context access the memory of context `peer`.",
    left: "trace",
    fields: [
      ["peer", "u32"],
      ["enable", "u32"],
    ],
    reply: { fields: [] },
  },
];
