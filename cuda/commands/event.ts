// SPDX-License-Identifier: Apache-2.0
/** Events: the hand-written commands. */
import type { Command } from "../schema.ts";

export const eventCommands: readonly Command[] = [
  {
    name: "EventSync",
    doc: "Answered when the event has happened.",
    left: "books",
    fields: [["event", "handle"]],
    reply: { fields: [] },
  },
  {
    name: "EventHappened",
    doc: "Restores the time of an event that is recreated: it happened `afterMs` (a double) after the time `unixNs`.",
    left: { tells: "event" },
    fields: [
      ["event", "handle"],
      ["unixNs", "number"],
      ["afterMs", { bytes: 8, of: "numbers" }],
    ],
    reply: { fields: [] },
  },
  {
    name: "ShareEvent",
    doc: "Returns a handle by which other sessions of the claim open an event.",
    left: "trace",
    fields: [["event", "handle"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenEvent",
    doc: "Opens an event of another session of the claim by its handle.",
    left: "trace",
    fields: [
      ["event", "handle"],
      ["handle", { bytes: 64, of: "numbers" }],
    ],
    reply: { fields: [] },
  },
];
