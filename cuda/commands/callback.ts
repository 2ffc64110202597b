// SPDX-License-Identifier: Apache-2.0
/** Functions of the client: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const callbackCommands: readonly Command[] = [
  {
    name: "HostFunction",
    doc: "A function of the client in the order of a stream. `kind`: 0 host function, 1 stream callback; `handle`: the stream as the program named it.",
    left: "trace",
    fields: [
      ["stream", "u64"],
      ["function", "u64"],
      ["data", "u64"],
      ["handle", "u64"],
      ["kind", "u32"],
    ],
  },
  {
    name: "CallbackNext",
    doc: "Answered when a stream of the context has come to a function of the client. `kind`: as in HostFunction, 2 the destructor of a user object, 3 nothing to run: what was asked for failed.",
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
      ],
    },
  },
  {
    name: "CallbackDone",
    doc: "That function has returned: the stream goes on.",
    left: "trace",
    fields: [["number", "u64"]],
  },
];
