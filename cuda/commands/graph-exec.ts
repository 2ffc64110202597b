// SPDX-License-Identifier: Apache-2.0
/** Executable graphs: the hand-written commands. */
import type { Command } from "../schema.ts";

export const graphExecCommands: readonly Command[] = [
  {
    name: "GraphInstantiate",
    doc: "An executable graph. `sources`: memory of the client that its launches read or write, as graph::Source, the first page of `sourceCount` (GraphSources has the others); `hostFunctions`: how many functions of the client one launch runs; `kept`: how many allocations outlive a launch. `hasUpload`: it is uploaded in the order of `stream`.",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["flags", "number"],
      ["stream", "handle"],
      ["hasUpload", "u32"],
    ],
    reply: {
      fields: [
        ["exec", "u64"],
        ["errorNode", "u64"],
        ["result", "u32"],
        ["hostFunctions", "u32"],
        ["kept", "u32"],
        ["sourceCount", "u32"],
        ["status", "i32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphExecDestroy",
    doc: "The end of an executable graph, when it is done.",
    left: "books",
    fields: [["exec", "handle"]],
  },
  {
    name: "GraphExecUpdate",
    doc: "Takes over the parameters of a graph of the same shape; answers as CUgraphExecUpdateResultInfo, and as GraphInstantiate does.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["graph", "handle"],
    ],
    reply: {
      fields: [
        ["errorNode", "u64"],
        ["errorFromNode", "u64"],
        ["result", "u32"],
        ["status", "i32"],
        ["hostFunctions", "u32"],
        ["sourceCount", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphSources",
    doc: "Memory of the client that launches of an executable graph read or write, as graph::Source, from the `first` on: one page.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["first", "u32"],
    ],
    reply: { fields: [], tails: ["sources"] },
  },
  {
    name: "GraphUpdateNode",
    doc: "As GraphSetNode with `exec`, for nodes that change nothing of what launches need: not copies, functions and graphs.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["node", "handle"],
    ],
    tails: ["params"],
  },
  {
    name: "GraphEnableNode",
    doc: "Whether a node of an executable graph runs: `enable` 0 or 1 sets it, 2 only asks.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["node", "handle"],
      ["enable", "u32"],
    ],
    reply: { fields: [["enabled", "u32"]] },
  },
  {
    name: "GraphSource",
    doc: "Bytes of the client's that a launch reads: `data` at `address` of the client, in the source of that number.",
    left: "books",
    fields: [
      ["source", "handle"],
      ["address", "echo"],
    ],
    tails: ["data"],
  },
  {
    name: "GraphUpload",
    doc: "Uploads an executable graph.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["stream", "handle"],
    ],
  },
  {
    name: "GraphLaunch",
    doc: "Launches an executable graph. `landing`: the number of what it copies to the client's memory, as with LandFromDevice; 0 where it copies nothing there.",
    left: "books",
    work: true,
    fields: [
      ["exec", "handle"],
      ["stream", "handle"],
      ["landing", "number"],
      ["landed", "number"],
    ],
  },
];
