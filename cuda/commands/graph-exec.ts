// SPDX-License-Identifier: Apache-2.0
/** Executable graphs: those commands whose two ends are written by hand. */
import type { Command } from "../schema.ts";

export const graphExecCommands: readonly Command[] = [
  {
    name: "GraphInstantiate",
    doc: "An executable graph. `sources`: memory of the client that its launches read, as graph::Source; `hostFunctions`: how many functions of the client one launch runs; `kept`: how many allocations outlive a launch. `hasUpload`: it is uploaded in the order of `stream`.",
    left: "books",
    fields: [
      ["graph", "u64"],
      ["flags", "u64"],
      ["stream", "u64"],
      ["hasUpload", "u32"],
    ],
    reply: {
      fields: [
        ["exec", "u64"],
        ["errorNode", "u64"],
        ["result", "u32"],
        ["hostFunctions", "u32"],
        ["kept", "u32"],
        ["status", "i32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphExecDestroy",
    doc: "The end of an executable graph, when it is done.",
    left: "books",
    fields: [["exec", "u64"]],
  },
  {
    name: "GraphExecUpdate",
    doc: "Takes over the parameters of a graph of the same shape; answers as CUgraphExecUpdateResultInfo, and as GraphInstantiate does.",
    left: "books",
    fields: [
      ["exec", "u64"],
      ["graph", "u64"],
    ],
    reply: {
      fields: [
        ["errorNode", "u64"],
        ["errorFromNode", "u64"],
        ["result", "u32"],
        ["status", "i32"],
        ["hostFunctions", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphUpdateNode",
    doc: "As GraphSetNode with `exec`, for nodes that change nothing of what launches need: not copies, functions and graphs.",
    left: "books",
    fields: [
      ["exec", "u64"],
      ["node", "u64"],
    ],
    tails: ["params"],
  },
  {
    name: "GraphEnableNode",
    doc: "Whether a node of an executable graph runs: `enable` 0 or 1 sets it, 2 only asks.",
    left: "books",
    fields: [
      ["exec", "u64"],
      ["node", "u64"],
      ["enable", "u32"],
    ],
    reply: { fields: [["enabled", "u32"]] },
  },
  {
    name: "GraphSource",
    doc: "Bytes of the client's that the next launch reads: `data` at `offset` of the source of that number.",
    left: "books",
    fields: [
      ["source", "u64"],
      ["offset", "u64"],
    ],
    tails: ["data"],
  },
  {
    name: "GraphUpload",
    doc: "Uploads an executable graph.",
    left: "books",
    fields: [
      ["exec", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "GraphLaunch",
    doc: "Launches an executable graph.",
    left: "books",
    work: true,
    fields: [
      ["exec", "u64"],
      ["stream", "u64"],
    ],
  },
];
