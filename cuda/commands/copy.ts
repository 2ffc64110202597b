// SPDX-License-Identifier: Apache-2.0
/** Copies: the hand-written commands. */
import type { Command } from "../schema.ts";

/** One of the two ends of a multi-dimensional copy. */
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
    doc: "Copies one piece of a copy of `total` bytes from client memory: `data` goes to `address` + `offset`. `completion`: see protocol/completion.h.",
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
    doc: "Marks the begin (`isOver` 0) and the end (1) of a synchronous copy from client memory that takes several commands, so that other streams follow it as they follow a single command with kBeforeOtherStreams (protocol/completion.h). `copy`: distinguishes copies that several threads make at the same time.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["copy", "number"],
      ["isOver", "u32"],
    ],
  },
  {
    name: "CopyFromDevice",
    doc: "Copies to client memory. The answer follows the last byte.",
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
    doc: "Copies between device memory and pinned memory that both processes map. `direction`: 1 to the device, 2 from it.",
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
    doc: "Copies in up to three dimensions between two ends that the worker can access. An end is an array, with offsets, or the address of its first byte (in device memory, or in host memory that both processes map) with a pitch in bytes and a number of rows per slice.",
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
    doc: "Copies to client memory that is not shared, without an answer: the client stores the bytes when they arrive (a landing). `landing`: its number, which increases; `landed`: all landings with lower numbers are over and will not be named again. `isHeld` 1: the program may hold up the stream, and the memory may become mirrored before the bytes arrive; then they are written to the worker's pages in stream order.",
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
    doc: "Copies to the device the bytes that a landing brings to `hostAddress` of the client, from the worker's own copy of them.",
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
    doc: "Reports that all landings with numbers below `landed` are over and will not be named again.",
    left: "books",
    fields: [["landed", "number"]],
  },
];
