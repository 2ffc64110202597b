// SPDX-License-Identifier: Apache-2.0
/** Streams: the hand-written commands. */
import type { Command } from "../schema.ts";

export const streamCommands: readonly Command[] = [
  {
    name: "StreamSync",
    doc: "Answered when the stream is done.",
    left: "books",
    fields: [["stream", "handle"]],
    reply: { fields: [] },
  },
  {
    name: "StreamSetAttribute",
    doc: "cuStreamSetAttribute, for attributes that consist of numbers and device addresses.",
    left: { sets: "value", of: "stream" },
    fields: [
      ["stream", "handle"],
      ["attribute", "u32"],
      ["value", { bytes: 64, of: "CUlaunchAttributeValue" }],
    ],
  },
  {
    name: "StreamGetAttribute",
    doc: "cuStreamGetAttribute.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["attribute", "u32"],
    ],
    reply: { fields: [["value", { bytes: 64 }]] },
  },
];
