// SPDX-License-Identifier: Apache-2.0
/** Objects whose destructors are functions of the client: the hand-written commands. */
import type { Command } from "../schema.ts";

export const userObjectCommands: readonly Command[] = [
  {
    name: "UserObjectCreate",
    doc: "Creates a user object, whose destructor is a function of the client.",
    left: "trace",
    fields: [
      ["data", "echo"],
      ["destroy", "echo"],
      ["references", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [["object", "u64"]] },
  },
  {
    name: "UserObjectCount",
    doc: "Changes the references to a user object. `what`: 0 retain, 1 release, 2 retain by a graph, 3 release by a graph.",
    left: "trace",
    fields: [
      ["object", "handle"],
      ["graph", "handle"],
      ["count", "u32"],
      ["what", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [] },
  },
];
