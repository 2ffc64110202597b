// SPDX-License-Identifier: Apache-2.0
/** Sessions: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const sessionCommands: readonly Command[] = [
  {
    name: "Marker",
    doc: "An empty round trip: answered when everything before it was issued.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "SessionRestored",
    doc: "What a parked session had is made again: from here on it is the program that speaks.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
];
