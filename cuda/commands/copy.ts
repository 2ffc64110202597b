// SPDX-License-Identifier: Apache-2.0
/** Copies: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

/** One of the two ends of a copy in several dimensions. */
const boxEnd = (end: "src" | "dst") =>
  [
    [`${end}Array`, "handle"],
    [`${end}Address`, "address"],
    [`${end}Pitch`, "number"],
    [`${end}Rows`, "number"],
    [`${end}X`, "number"],
    [`${end}Y`, "number"],
    [`${end}Z`, "number"],
  ] as const;

export const copyCommands: readonly Command[] = [
  {
    name: "CopyToDevice",
    doc: "A piece of a copy of `total` bytes from client memory: `data` goes to `address` + `offset`. `completion`: see protocol/completion.h.",
    left: "books",
    fields: [
      ["address", "address"],
      ["stream", "handle"],
      ["offset", "number"],
      ["total", "number"],
      ["completion", "u32"],
    ],
    tails: ["data"],
  },
  {
    name: "SynchronousCopy",
    doc: "Stands before (`isOver` 0) and behind (1) the commands of a synchronous copy from client memory that are several; as one they would have the `completion` of protocol/completion.h before other streams. `copy`: tells those of several threads apart.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["copy", "number"],
      ["isOver", "u32"],
    ],
  },
  {
    name: "CopyFromDevice",
    doc: "A copy to client memory; the answer comes behind the last byte.",
    left: "books",
    work: true,
    fields: [
      ["address", "address"],
      ["bytes", "number"],
      ["stream", "handle"],
    ],
    reply: { fields: [["bytes", "u64"]] },
  },
  {
    name: "CopyHostShared",
    doc: "A copy between device memory and pinned memory that both processes map. `direction`: 1 to the device, 2 from it.",
    left: "books",
    work: true,
    fields: [
      ["deviceAddress", "address"],
      ["hostAddress", "address"],
      ["bytes", "number"],
      ["stream", "handle"],
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
      ["width", "number"],
      ["height", "number"],
      ["depth", "number"],
      ["stream", "handle"],
    ],
  },
  {
    name: "LandFromDevice",
    doc: "A copy to memory of the client that is not shared, where the bytes land by themselves. `landing`: its number, higher than those before; `landed`: all lower than that are over, and will not be named again. `isHeld` 1: the program may hold up the stream, and the memory may be mirrored before the bytes are there; then they go to the worker's, in the order of the stream.",
    left: "books",
    work: true,
    fields: [
      ["address", "address"],
      ["bytes", "number"],
      ["stream", "handle"],
      ["hostAddress", "echo"],
      ["landing", "number"],
      ["landed", "number"],
      ["isHeld", "u32"],
    ],
  },
  {
    name: "CopyFromLanding",
    doc: "A copy to the device from bytes at `hostAddress` of the client that the landing of that number brings there: from where the worker has them.",
    left: "books",
    work: true,
    fields: [
      ["address", "address"],
      ["bytes", "number"],
      ["stream", "handle"],
      ["hostAddress", "echo"],
      ["landing", "number"],
      ["landed", "number"],
    ],
  },
  {
    name: "LandingAwait",
    doc: "Answered when the landing of that number is over.",
    left: "books",
    fields: [["landing", "number"]],
    reply: { fields: [] },
  },
  {
    name: "LandingsOver",
    doc: "All landings of lower numbers than `landed` are over, and will not be named again.",
    left: "books",
    fields: [["landed", "number"]],
  },
];
