// SPDX-License-Identifier: Apache-2.0
/** Sessions: the hand-written commands. */
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
  {
    name: "ProfileBegin",
    doc: "From here on the worker notes what its devices do for the session. `commands`: and for which command. `now`: the worker's clock, in ns since 1970, at the answer.",
    left: "trace",
    fields: [["commands", "u32"]],
    reply: { fields: [["now", "u64"]] },
  },
  {
    name: "ProfileRead",
    doc: "The next lines of the profile (docs/reference/profile.md), as text. `flush`: first takes in all that is complete. `lost`: records that were dropped since the beginning; `more`: there are further lines.",
    left: "books",
    fields: [["flush", "u32"]],
    reply: {
      fields: [
        ["lost", "u64"],
        ["more", "u32"],
      ],
      tails: ["lines"],
    },
  },
  {
    name: "ProfileEnd",
    doc: "From here on nothing is noted. What was noted can still be read.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
];
