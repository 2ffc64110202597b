// SPDX-License-Identifier: Apache-2.0
/** Graphs and their nodes: the hand-written commands. */
import type { Command } from "../schema.ts";

export const graphCommands: readonly Command[] = [
  {
    name: "GraphCreate",
    doc: "Creates an empty graph.",
    left: "books",
    fields: [["flags", "u32"]],
    reply: { fields: [["graph", "u64"]] },
  },
  {
    name: "GraphDestroy",
    doc: "Destroys a graph and its nodes.",
    left: "books",
    fields: [["graph", "handle"]],
  },
  {
    name: "GraphClone",
    doc: "Clones a graph.",
    left: "books",
    fields: [["graph", "handle"]],
    reply: { fields: [["clone", "u64"]] },
  },
  {
    name: "GraphFindInClone",
    doc: "Returns the node of a clone that corresponds to `node` of the original.",
    left: "books",
    fields: [
      ["node", "handle"],
      ["clone", "handle"],
    ],
    reply: { fields: [["found", "u64"]] },
  },
  {
    name: "GraphList",
    doc: "Returns at most 1,024 nodes or edges, beginning at index `first`. `what`: 0 the nodes, 1 the root nodes, 2 the edges of a graph; 3 the dependencies, 4 the dependents of a node. An edge has the same index in `nodes`, `others` (its other end) and `edges`.",
    left: "books",
    fields: [
      ["object", "handle"],
      ["what", "u32"],
      ["first", "u32"],
    ],
    reply: { fields: [["total", "u32"]], tails: ["nodes", "others", "edges"] },
  },
  {
    name: "GraphDepend",
    doc: "Adds edges to a graph, or removes them (`remove` 1).",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["remove", "u32"],
      ["hasEdges", "u32"],
    ],
    tails: ["from", "to", "edges"],
    reply: { fields: [] },
  },
  {
    name: "GraphDot",
    doc: "Returns at most 32 KiB of the description of a graph in the DOT language, beginning at `offset`. The first request must have offset 0.",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["flags", "u32"],
      ["offset", "u32"],
    ],
    reply: { fields: [["total", "u32"]], tails: ["text"] },
  },
  {
    name: "GraphMemory",
    doc: "Manages the memory of the allocation nodes of a device. `what`: 0 gets an attribute, 1 sets one, 2 releases what no graph uses.",
    left: "trace",
    fields: [
      ["device", "i32"],
      ["what", "u32"],
      ["attribute", "u32"],
      ["value", "number"],
    ],
    reply: { fields: [["value", "u64"]] },
  },
  {
    name: "GraphAddNode",
    doc: "Adds a node with dependencies. `params`: a graph::NodeRecord (native/cuda/graph_node.h) and the data that follow it. `value`: the result of the node, such as the address of an allocation. `graphs`: the bodies of a conditional node.",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["hasEdges", "u32"],
    ],
    tails: ["nodes", "edges", "params"],
    reply: {
      fields: [
        ["node", "u64"],
        ["value", "u64"],
      ],
      tails: ["graphs"],
    },
  },
  {
    name: "GraphSetNode",
    doc: "Sets the parameters of a node of its graph, or of an executable graph if `exec` is not 0. Then the answer has the fields of GraphInstantiate.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["node", "handle"],
    ],
    tails: ["params"],
    reply: {
      fields: [
        ["hostFunctions", "u32"],
        ["hostCopies", "u32"],
        ["sourceCount", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphGetNode",
    doc: "Returns the parameters of a node in the form of GraphAddNode, and its child graph.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [["root", "u64"]], tails: ["params"] },
  },
  {
    name: "GraphNodeType",
    doc: "Returns the CUgraphNodeType of a node.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [["type", "u32"]] },
  },
  {
    name: "GraphNodeAttribute",
    doc: "Gets (`what` 0) or sets (1) an attribute of a kernel node, a CUlaunchAttributeValue, or copies all attributes of the node `value` (2).",
    left: "books",
    fields: [
      ["node", "handle"],
      ["other", "handle"],
      ["what", "u32"],
      ["attribute", "u32"],
      ["value", { bytes: 64, of: "CUlaunchAttributeValue" }],
    ],
    reply: { fields: [["value", { bytes: 64 }]] },
  },
  {
    name: "GraphDestroyNode",
    doc: "Destroys a node.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [] },
  },
  {
    name: "GraphConditional",
    doc: "Creates a handle for the condition of conditional nodes of a graph.",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["initial", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [["handle", "u64"]] },
  },
];
