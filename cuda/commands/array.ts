// SPDX-License-Identifier: Apache-2.0
/** Planes of arrays, and the memory of sparse ones: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const arrayCommands: readonly Command[] = [
  {
    name: "ArrayPlane",
    doc: "A plane of an array of a format with several, as an array.",
    fields: [
      ["array", "u64"],
      ["plane", "u32"],
      ["handle", "u64"],
    ],
    reply: {
      fields: [
        ["width", "u64"],
        ["height", "u64"],
        ["depth", "u64"],
        ["format", "i32"],
        ["channels", "u32"],
      ],
    },
  },
  {
    name: "ArrayMap",
    doc: "Maps memory to parts of sparse arrays, or unmaps it. `entries`: CUarrayMapInfo records, in which the array, the memory and the devices are those of the session.",
    fields: [["stream", "u64"]],
    tails: ["entries"],
    reply: { fields: [] },
  },
];
