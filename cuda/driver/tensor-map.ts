// SPDX-License-Identifier: Apache-2.0
/** Tensor maps: 128 opaque bytes that the driver computes from numbers only. */
import type { Group } from "../schema.ts";

const encode = {
  style: "hand",
  why: "the rank determines the length of the arrays; replies are cached",
} as const;

export const tensorMaps = {
  cuTensorMapEncodeTiled: encode,
  cuTensorMapEncodeIm2col: encode,
  cuTensorMapEncodeIm2colWide: encode,
  cuTensorMapReplaceAddress: { style: "hand", why: "reads and writes the tensor map in client memory" },
} as const satisfies Group;
