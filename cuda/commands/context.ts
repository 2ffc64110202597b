// SPDX-License-Identifier: Apache-2.0
/** Contexts: the hand-written commands. */
import type { Command } from "../schema.ts";

export const contextCommands: readonly Command[] = [
  {
    name: "ContextCreate",
    doc: "A context on a device, under a number above those of the primary contexts that the client chose. `affinity`: CUexecAffinityParam records.",
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
    doc: "The end of a ContextCreate, when the context's work is done.",
    left: "books",
    fields: [["context", "u32"]],
  },
  {
    name: "ContextReset",
    doc: "Makes a primary context, in which the client has ended everything, as new; one that has failed works again.",
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
    doc: "cuCtxSetLimit, until the context is reset.",
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
    doc: "Lets all later work of the frame's context wait for an event.",
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
    doc: "Kernels of the current context may (`enable` 1) or may not touch the memory of context `peer`.",
    left: "trace",
    fields: [
      ["peer", "u32"],
      ["enable", "u32"],
    ],
    reply: { fields: [] },
  },
];
