// SPDX-License-Identifier: Apache-2.0
/** Copies: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

/** One of the two ends of a copy in several dimensions. */
const boxEnd = (end: "src" | "dst") =>
  [
    [`${end}Array`, "u64"],
    [`${end}Address`, "u64"],
    [`${end}Pitch`, "u64"],
    [`${end}Rows`, "u64"],
    [`${end}X`, "u64"],
    [`${end}Y`, "u64"],
    [`${end}Z`, "u64"],
  ] as const;

export const copyCommands: readonly Command[] = [
  {
    name: "CopyToDevice",
    doc: "A piece of a copy of `total` bytes from client memory: `data` goes to `address` + `offset`.",
    left: "books",
    fields: [
      ["address", "u64"],
      ["stream", "u64"],
      ["offset", "u64"],
      ["total", "u64"],
    ],
    tails: ["data"],
  },
  {
    name: "CopyFromDevice",
    doc: "A copy to client memory; the answer comes behind the last byte.",
    left: "books",
    work: true,
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
    ],
    reply: { fields: [["bytes", "u64"]] },
  },
  {
    name: "CopyHostShared",
    doc: "A copy between device memory and pinned memory that both processes map. `direction`: 1 to the device, 2 from it.",
    left: "books",
    work: true,
    fields: [
      ["deviceAddress", "u64"],
      ["hostAddress", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
      ["direction", "u32"],
    ],
  },
  {
    name: "CopyBox",
    doc: "A copy in up to three dimensions between two ends within the worker's reach: an array, or an address of the first byte (device memory, or host memory that both sides map) with its pitch in bytes and rows in a slice. Offsets are of arrays.",
    left: "books",
    work: true,
    fields: [
      ...boxEnd("src"),
      ...boxEnd("dst"),
      ["width", "u64"],
      ["height", "u64"],
      ["depth", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "LandFromDevice",
    doc: "A copy to memory of a client on another host, where the bytes land by themselves.",
    left: "books",
    work: true,
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
      ["hostAddress", "u64"],
    ],
  },
];
