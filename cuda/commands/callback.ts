// SPDX-License-Identifier: Apache-2.0
/** Functions of the client: the hand-written commands. */
import type { Command } from "../schema.ts";

export const callbackCommands: readonly Command[] = [
  {
    name: "HostFunction",
    doc: "Enqueues a function of the client in a stream. `kind`: 0 host function, 1 stream callback; `handle`: the stream's handle in the program.",
    left: "trace",
    fields: [
      ["stream", "handle"],
      ["function", "echo"],
      ["data", "echo"],
      ["handle", "echo"],
      ["kind", "u32"],
    ],
  },
  {
    name: "CallbackNext",
    doc: "Answered when a stream of the context reaches a function of the client. `kind`: as in HostFunction; 2 is the destructor of a user object, 3 means that the work failed and there is nothing to run. `sources`: the client memory that the graph reads after the function, as graph::Source, the first page of `sourceCount`. The client sends its bytes as GraphSource before CallbackDone.",
    left: "trace",
    fields: [],
    reply: {
      fields: [
        ["number", "u64"],
        ["function", "u64"],
        ["data", "u64"],
        ["handle", "u64"],
        ["kind", "u32"],
        ["status", "i32"],
        ["sourceCount", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "CallbackSources",
    doc: "Returns one page of the sources of the answer to CallbackNext with that number, beginning at index `first`.",
    left: "trace",
    fields: [
      ["number", "handle"],
      ["first", "u32"],
    ],
    reply: { fields: [], tails: ["sources"] },
  },
  {
    name: "CallbackDone",
    doc: "Reports that the function has returned, so that the stream continues.",
    left: "trace",
    fields: [["number", "handle"]],
  },
];
