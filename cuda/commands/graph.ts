// SPDX-License-Identifier: Apache-2.0
/** Graphs and their nodes: the hand-written commands. */
import type { Command } from "../schema.ts";

export const graphCommands: readonly Command[] = [
  {
    name: "GraphCreate",
    doc: "An empty graph.",
    left: "books",
    fields: [["flags", "u32"]],
    reply: { fields: [["graph", "u64"]] },
  },
  {
    name: "GraphDestroy",
    doc: "The end of a graph and of its nodes.",
    left: "books",
    fields: [["graph", "handle"]],
  },
  {
    name: "GraphClone",
    doc: "A copy of a graph.",
    left: "books",
    fields: [["graph", "handle"]],
    reply: { fields: [["clone", "u64"]] },
  },
  {
    name: "GraphFindInClone",
    doc: "The node of a clone that was made from `node`.",
    left: "books",
    fields: [
      ["node", "handle"],
      ["clone", "handle"],
    ],
    reply: { fields: [["found", "u64"]] },
  },
  {
    name: "GraphList",
    doc: "Nodes or edges, from the `first` on, at most 1024. `what`: 0 nodes and 1 root nodes of a graph, 2 its edges, 3 dependencies and 4 dependents of a node. An edge is in `nodes`, `others` (its other end) and `edges` at the same place.",
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
    doc: "The description of a graph in the DOT language, from `offset` on, at most 32 KiB. Asked with offset 0 first.",
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
    doc: "Memory of the allocation nodes of a device. `what`: 0 get and 1 set an attribute, 2 give back what no graph uses.",
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
    doc: "A node behind others. `params`: a graph::NodeRecord (native/cuda/graph_node.h) and what follows it. `value`: what the kind of node gives, the address of an allocation. `graphs`: the bodies of a conditional node.",
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
    doc: "Other parameters for a node, of its graph, or of an executable one (`exec` not 0); then what its launches need, as with GraphInstantiate.",
    left: "books",
    fields: [
      ["exec", "handle"],
      ["node", "handle"],
    ],
    tails: ["params"],
    reply: {
      fields: [
        ["hostFunctions", "u32"],
        ["sourceCount", "u32"],
      ],
      tails: ["sources"],
    },
  },
  {
    name: "GraphGetNode",
    doc: "Parameters of a node as GraphAddNode takes them, and the graph that it ends with.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [["root", "u64"]], tails: ["params"] },
  },
  {
    name: "GraphNodeType",
    doc: "CUgraphNodeType of a node.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [["type", "u32"]] },
  },
  {
    name: "GraphNodeAttribute",
    doc: "An attribute of a kernel node, a CUlaunchAttributeValue. `what`: 0 get, 1 set, 2 copy all of the node `value`.",
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
    doc: "The end of a node.",
    left: "books",
    fields: [["node", "handle"]],
    reply: { fields: [] },
  },
  {
    name: "GraphConditional",
    doc: "A handle for the condition of conditional nodes of a graph.",
    left: "books",
    fields: [
      ["graph", "handle"],
      ["initial", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [["handle", "u64"]] },
  },
];
