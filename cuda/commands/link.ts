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
    doc: "cuLinkComplete. LinkRead reads the result; `wallTimeMs` and the logs are those of the whole link.",
    left: "books",
    fields: [["handle", "handle"]],
    reply: jitReply,
  },
  {
    name: "LinkRead",
    doc: "Returns a piece of the linked image, beginning at `offset`. `total`: the length of the image.",
    left: "books",
    fields: [
      ["handle", "handle"],
      ["offset", "number"],
    ],
    reply: { fields: [["total", "u64"]], tails: ["data"] },
  },
  {
    name: "LinkDestroy",
    doc: "Destroys the linker of a LinkCreate.",
    left: "books",
    fields: [["handle", "handle"]],
  },
];
