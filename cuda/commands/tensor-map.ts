// SPDX-License-Identifier: Apache-2.0
/** Tensor maps: the hand-written commands. */
import type { Command } from "../schema.ts";

export const tensorMapCommands: readonly Command[] = [
  {
    name: "TensorMapEncode",
    doc: "Encodes a tensor map. `form`: 0 tiled, 1 im2col, 2 im2col wide. `box`: the box's extents, or the lower and then the upper corner (three i32 each; wide: one each).",
    left: "books",
    fields: [
      ["form", "u32"],
      ["dataType", "u32"],
      ["rank", "u32"],
      ["interleave", "u32"],
      ["swizzle", "u32"],
      ["promotion", "u32"],
      ["fill", "u32"],
      ["mode", "u32"],
      ["channels", "u32"],
      ["pixels", "u32"],
      ["address", "address"],
      ["extents", { bytes: 40, of: "numbers" }],
      ["strides", { bytes: 32, of: "numbers" }],
      ["box", { bytes: 24, of: "numbers" }],
      ["elementStrides", { bytes: 24, of: "numbers" }],
    ],
    reply: { fields: [["map", { bytes: 128 }]] },
  },
  {
    name: "TensorMapReplaceAddress",
    doc: "Replaces the address in a tensor map.",
    left: "books",
    fields: [
      ["address", "address"],
      ["map", { bytes: 128, of: "CUtensorMap" }],
    ],
    reply: { fields: [["map", { bytes: 128 }]] },
  },
];
