// SPDX-License-Identifier: Apache-2.0
/** Sessions: the hand-written commands. */
import type { Command } from "../schema.ts";

export const sessionCommands: readonly Command[] = [
  {
    name: "Marker",
    doc: "Makes a round trip: answered when everything before it has been issued.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "SessionRestored",
    doc: "Reports that the state of a parked session is restored: all later commands come from the program.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "ProfileBegin",
    doc: "Starts the profile of the session's work on the devices. `commands`: the profile also notes the command of each record. `now`: the worker's clock, in ns since 1970, at the answer.",
    left: "trace",
    fields: [["commands", "u32"]],
    reply: { fields: [["now", "u64"]] },
  },
  {
    name: "ProfileRead",
    doc: "Returns the next lines of the profile (docs/reference/profile.md) as text. `flush`: first collects all complete records. `lost`: the number of records dropped since the start; `more`: there are further lines.",
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
    doc: "Stops the profile. Its lines can still be read.",
    left: "books",
    fields: [],
    reply: { fields: [] },
  },
];
