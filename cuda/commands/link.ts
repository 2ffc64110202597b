// SPDX-License-Identifier: Apache-2.0
/** The linker: the hand-written commands. */
import { jitReply } from "./jit.ts";
import type { Command } from "../schema.ts";

export const linkCommands: readonly Command[] = [
  {
    name: "LinkCreate",
    doc: "cuLinkCreate. `options`: JitOptionRecord.",
    left: "books",
    fields: [["handle", "handle"]],
    tails: ["options"],
    reply: { fields: [] },
  },
  {
    name: "LinkAdd",
    doc: "cuLinkAddData of the image whose parts have arrived for this handle. `type`: CUjitInputType.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["type", "u32"],
    ],
    tails: ["name", "options"],
    reply: jitReply,
  },
  {
    name: "LinkComplete",
    doc: "cuLinkComplete: what was linked is read with LinkRead, `wallTimeMs` and the logs are those of the whole link.",
    left: "books",
    fields: [["handle", "handle"]],
    reply: jitReply,
  },
  {
    name: "LinkRead",
    doc: "A piece of what was linked, from `offset`; `total` is the length of the whole.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["offset", "number"],
    ],
    reply: { fields: [["total", "u64"]], tails: ["data"] },
  },
  { name: "LinkDestroy", doc: "The end of a LinkCreate.", left: "books", fields: [["handle", "handle"]] },
];
