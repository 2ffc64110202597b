// SPDX-License-Identifier: Apache-2.0
/** Functions of the client: the hand-written commands. */
import type { Command } from "../schema.ts";

export const callbackCommands: readonly Command[] = [
  {
    name: "HostFunction",
    doc: "A function of the client in the order of a stream. `kind`: 0 host function, 1 stream callback; `handle`: the stream as the program named it.",
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
    doc: "Answered when a stream of the context has come to a function of the client. `kind`: as in HostFunction, 2 the destructor of a user object, 3 nothing to run: what was asked for failed. `sources`: what the graph reads of the client behind the function, as graph::Source, the first page of `sourceCount`; it is sent as GraphSource before CallbackDone.",
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
    doc: "The sources of CallbackNext's answer for that number from the `first` on: one page.",
    left: "trace",
    fields: [
      ["number", "handle"],
      ["first", "u32"],
    ],
    reply: { fields: [], tails: ["sources"] },
  },
  {
    name: "CallbackDone",
    doc: "That function has returned: the stream goes on.",
    left: "trace",
    fields: [["number", "handle"]],
  },
];
