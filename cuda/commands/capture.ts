// SPDX-License-Identifier: Apache-2.0
/** Stream capture: the hand-written commands. */
import type { Command } from "../schema.ts";

export const captureCommands: readonly Command[] = [
  {
    name: "CaptureBegin",
    doc: "Begins the capture of a stream; if `graph` is not 0, into that graph, with `nodes` as the first dependencies. `hasEdges`: `edges` has a CUgraphEdgeData for each of them.",
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
    doc: "Ends a capture and returns its graph.",
    left: "books",
    fields: [["stream", "handle"]],
    reply: { fields: [["graph", "u64"]] },
  },
  {
    name: "CaptureInfo",
    doc: "Returns the capture state of a stream: the dependencies of its next node, with a CUgraphEdgeData for each in `edges`.",
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
    doc: "Changes the dependencies of the next node of a captured stream. `flags`: CUstreamUpdateCaptureDependencies_flags.",
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
    doc: "Invalidates a capture, because the program made a call that a capture forbids.",
    left: "books",
    fields: [["stream", "handle"]],
  },
  {
    name: "CaptureCopy",
    doc: "Captures a copy between device memory and client memory. `direction`: 1 to the device, 2 from it.",
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
