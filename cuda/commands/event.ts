// SPDX-License-Identifier: Apache-2.0
/** Events: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const eventCommands: readonly Command[] = [
  {
    name: "EventSync",
    doc: "Answered when the event has happened.",
    left: "books",
    fields: [["event", "u64"]],
    reply: { fields: [] },
  },
  {
    name: "EventHappened",
    doc: "Of an event that is made again: it had happened `afterMs` (a double) after the moment `unixNs`.",
    left: { tells: "event" },
    fields: [
      ["event", "u64"],
      ["unixNs", "u64"],
      ["afterMs", { bytes: 8 }],
    ],
    reply: { fields: [] },
  },
  {
    name: "ShareEvent",
    doc: "A handle by which other sessions of the claim open an event.",
    left: "trace",
    fields: [["event", "u64"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenEvent",
    doc: "An event of another session of the claim, by its handle.",
    left: "trace",
    fields: [
      ["event", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: { fields: [] },
  },
];
