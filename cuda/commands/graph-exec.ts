// SPDX-License-Identifier: Apache-2.0
/** Executable graphs: the hand-written commands. */
import type { Command } from "../schema.ts";

export const graphExecCommands: readonly Command[] = [
  {
    name: "GraphInstantiate",
    doc: "Instantiates a graph. `sources`: the client memory that its launches read or write, as graph::Source, the first page of `sourceCount` (GraphSources returns the others); `hostFunctions`: the number of client functions that one launch runs; `hostCopies`: how many of them copy between memory of the client; `kept`: the number of allocations that outlive a launch. `hasUpload`: the graph is also uploaded, in the order of `stream`.",
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
        ["hostCopies", "u32"],
        ["kept", "u32"],
        ["sourceCount", "u32"],
        ["status", "i32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphExecDestroy",
    doc: "Destroys an executable graph when its launches are done.",
    left: "books",
    fields: [["exec", "handle"]],
  },
  {
    name: "GraphExecUpdate",
    doc: "Updates an executable graph with the parameters of a graph of the same topology. Answers with a CUgraphExecUpdateResultInfo and the fields of GraphInstantiate.",
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
        ["hostCopies", "u32"],
        ["sourceCount", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphSources",
    doc: "Returns one page of the client memory that launches of an executable graph read or write, as graph::Source, beginning at index `first`.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["first", "u32"],
    ],
    reply: { fields: [], tails: ["sources"] },
  },
  {
    name: "GraphUpdateNode",
    doc: "Same as GraphSetNode with `exec`, for nodes that do not affect the client memory or functions of a launch: no copies, host functions or child graphs.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["node", "handle"],
    ],
    tails: ["params"],
  },
  {
    name: "GraphEnableNode",
    doc: "Sets whether a node of an executable graph runs (`enable` 0 or 1), or only returns it (2).",
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
    doc: "Sends client memory that a launch reads: `data` is at `address` of the client, in the source with that number.",
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
    doc: "Launches an executable graph. `landing`: the number of the landing of what it copies to client memory, as in LandFromDevice; 0 if it copies nothing there.",
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
