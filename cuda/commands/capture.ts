// SPDX-License-Identifier: Apache-2.0
/** Stream capture: the hand-written commands. */
import type { Command } from "../schema.ts";

export const captureCommands: readonly Command[] = [
  {
    name: "CaptureBegin",
    doc: "A stream is captured from here on, into `graph` behind `nodes` where that is not 0. `hasEdges`: `edges` has a CUgraphEdgeData for each.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["graph", "handle"],
      ["hasEdges", "u32"],
    ],
    tails: ["nodes", "edges"],
    reply: { fields: [] },
  },
  {
    name: "CaptureEnd",
    doc: "The end of a capture, and its graph.",
    left: "books",
    fields: [["stream", "handle"]],
    reply: { fields: [["graph", "u64"]] },
  },
  {
    name: "CaptureInfo",
    doc: "How a stream stands in a capture: what its next node waits for, `edges` with a CUgraphEdgeData for each.",
    left: "books",
    fields: [["stream", "handle"]],
    reply: {
      fields: [
        ["id", "u64"],
        ["graph", "u64"],
        ["status", "u32"],
      ],
      tails: ["nodes", "edges"],
    },
  },
  {
    name: "CaptureDepend",
    doc: "Changes what the next node of a captured stream waits for. `flags`: CUstreamUpdateCaptureDependencies_flags.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["flags", "u32"],
      ["hasEdges", "u32"],
    ],
    tails: ["nodes", "edges"],
    reply: { fields: [] },
  },
  {
    name: "CaptureInvalidate",
    doc: "A call that a capture forbids was made: its graph is lost.",
    left: "books",
    fields: [["stream", "handle"]],
  },
  {
    name: "CaptureCopy",
    doc: "A copy between device memory and memory of the client, on a captured stream. `direction`: 1 to the device, 2 from it.",
    left: "books",
    fields: [
      ["stream", "handle"],
      ["deviceAddress", "address"],
      ["hostAddress", "echo"],
      ["bytes", "number"],
      ["direction", "u32"],
    ],
  },
];
