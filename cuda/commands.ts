// SPDX-License-Identifier: Apache-2.0
/**
 * The wire commands whose two ends are written by hand. Sizes and offsets are bytes, addresses are the worker's, handles
 * are the numbers that the client invented (`function` takes functions and kernels), `stream` is a stream's number or
 * one of the default streams. The context of a command is in its frame's header.
 */
import { arrayCommands } from "./commands/array.ts";
import { textureReferenceCommands } from "./commands/texture-reference.ts";
import type { Command } from "./schema.ts";

/** The outputs of the just-in-time compiler and of the linker. */
const jitReply: Command["reply"] = {
  fields: [
    ["threadsPerBlock", "u32"],
    ["wallTimeMs", "f32"],
    ["infoLogBytes", "u32"],
    ["errorLogBytes", "u32"],
  ],
  tails: ["info", "error"],
};

export const commands: readonly Command[] = [
  {
    name: "Marker",
    doc: "An empty round trip: answered when everything before it was issued.",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "ContextCreate",
    doc: "A context on a device, under a number above those of the primary contexts that the client chose. `affinity`: CUexecAffinityParam records.",
    fields: [
      ["context", "u32"],
      ["flags", "u32"],
      ["device", "i32"],
    ],
    tails: ["affinity"],
    reply: { fields: [] },
  },
  {
    name: "ContextDestroy",
    doc: "The end of a ContextCreate, when the context's work is done.",
    fields: [["context", "u32"]],
  },
  {
    name: "ContextReset",
    doc: "Makes a primary context, in which the client has ended everything, as new; one that has failed works again.",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "ContextSetCacheConfig",
    doc: "cuCtxSetCacheConfig.",
    fields: [["config", "i32"]],
  },
  {
    name: "ContextRecordEvent",
    doc: "Records an event behind all work of the frame's context.",
    fields: [["event", "u64"]],
  },
  {
    name: "ContextWaitEvent",
    doc: "Lets all later work of the frame's context wait for an event.",
    fields: [["event", "u64"]],
  },
  {
    name: "ContextSetLimit",
    doc: "cuCtxSetLimit, until the context is reset.",
    fields: [
      ["limit", "i32"],
      ["value", "u64"],
    ],
    reply: { fields: [] },
  },
  {
    name: "MemAlloc",
    doc: "Allocates device memory within the session's limit.",
    fields: [
      ["bytes", "u64"],
      ["flags", "u32"],
    ],
    reply: { fields: [["address", "u64"]] },
  },
  {
    name: "MemFree",
    doc: "Frees device memory, when the device is done with it. `isLeft`: 1 for what ends with its context, since the program did not free it.",
    fields: [
      ["address", "u64"],
      ["isLeft", "u32"],
    ],
  },
  {
    name: "MemGetInfo",
    doc: "Free and total memory of the vGPU of the current context.",
    fields: [],
    reply: {
      fields: [
        ["freeBytes", "u64"],
        ["totalBytes", "u64"],
      ],
    },
  },
  {
    name: "VmReserve",
    doc: "Reserves addresses, at `hint` if it is not 0 and they are free there.",
    fields: [
      ["bytes", "u64"],
      ["alignment", "u64"],
      ["hint", "u64"],
    ],
    reply: { fields: [["address", "u64"]] },
  },
  {
    name: "VmUnreserve",
    doc: "The end of a VmReserve.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
    ],
  },
  {
    name: "VmGranularity",
    doc: "What sizes and addresses of mapped memory are multiples of. The properties as in CUmemAllocationProp.",
    fields: [
      ["device", "i32"],
      ["option", "i32"],
      ["compression", "u32"],
      ["rdma", "u32"],
      ["usage", "u32"],
    ],
    reply: { fields: [["bytes", "u64"]] },
  },
  {
    name: "VmCreate",
    doc: "Memory without an address, within the session's limit. `memory`: a number of the client's.",
    fields: [
      ["memory", "u64"],
      ["bytes", "u64"],
      ["device", "i32"],
      ["compression", "u32"],
      ["rdma", "u32"],
      ["usage", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "VmRelease",
    doc: "The end of a VmCreate; what is mapped stays until it is unmapped.",
    fields: [["memory", "u64"]],
  },
  {
    name: "VmMap",
    doc: "Maps memory at reserved addresses.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
      ["offset", "u64"],
      ["memory", "u64"],
    ],
  },
  {
    name: "VmUnmap",
    doc: "Unmaps whole mappings, when the device is done with what it was given before.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
    ],
  },
  {
    name: "VmSetAccess",
    doc: "Who may touch whole mappings. `access`: per device its ordinal and CUmemAccess_flags (i32 each).",
    fields: [
      ["address", "u64"],
      ["size", "u64"],
    ],
    tails: ["access"],
  },
  {
    name: "PoolCreate",
    doc: "A pool of stream-ordered memory of a device, at most `maxBytes` (0: any). `pool`: a handle of the client's.",
    fields: [
      ["pool", "u64"],
      ["maxBytes", "u64"],
      ["device", "i32"],
    ],
  },
  {
    name: "PoolDestroy",
    doc: "The end of a pool; its blocks in use stay until they are freed.",
    fields: [["pool", "u64"]],
  },
  {
    name: "PoolSetThreshold",
    doc: "How much the pool keeps when the program synchronises.",
    fields: [
      ["pool", "u64"],
      ["bytes", "u64"],
    ],
  },
  {
    name: "PoolResetHigh",
    doc: "The highest amount reserved (`ofReserved` 1) or used so far is the one of now.",
    fields: [
      ["pool", "u64"],
      ["ofReserved", "u32"],
    ],
  },
  {
    name: "PoolHigh",
    doc: "Of a pool that is made again: the highest amounts reserved and used so far.",
    fields: [
      ["pool", "u64"],
      ["reserved", "u64"],
      ["used", "u64"],
    ],
    reply: { fields: [] },
  },
  {
    name: "PoolTrim",
    doc: "Gives back what nobody uses until the pool has at most `bytes`.",
    fields: [
      ["pool", "u64"],
      ["bytes", "u64"],
    ],
  },
  {
    name: "PoolUsage",
    doc: "What a pool has and what of it is in use, now and at most so far.",
    fields: [["pool", "u64"]],
    reply: {
      fields: [
        ["reserved", "u64"],
        ["reservedHigh", "u64"],
        ["used", "u64"],
        ["usedHigh", "u64"],
      ],
    },
  },
  {
    name: "PoolAlloc",
    doc: "Memory of a pool, for use in the order of the stream. `ofGraph` 1: the stream is captured, so a node of the graph makes the memory with each launch.",
    fields: [
      ["pool", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
    ],
    reply: {
      fields: [
        ["address", "u64"],
        ["ofGraph", "u32"],
      ],
    },
  },
  {
    name: "PoolFree",
    doc: "The end of a PoolAlloc, of a MemAlloc, or of memory that a graph left, in the order of the stream.",
    fields: [
      ["address", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "HostAlloc",
    doc: "Pinned host memory at `address`: of a client on the same host, as a file that both map there; `isPrivate` 1: of the worker alone, for kernels that are given addresses of memory which the client mirrors.",
    fields: [
      ["bytes", "u64"],
      ["address", "u64"],
      ["flags", "u32"],
      ["isPrivate", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "HostKeep",
    doc: "The client keeps the file of that pinned memory. In a session that goes on for one that was parked, it sent the file before this command, and has the memory from there.",
    fields: [
      ["bytes", "u64"],
      ["address", "u64"],
    ],
  },
  { name: "HostFree", doc: "The end of a HostAlloc.", fields: [["address", "u64"]], reply: { fields: [] } },
  {
    name: "CopyToDevice",
    doc: "A piece of a copy of `total` bytes from client memory: `data` goes to `address` + `offset`.",
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
    fields: [
      ["deviceAddress", "u64"],
      ["hostAddress", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
      ["direction", "u32"],
    ],
  },
  {
    name: "ImageOffer",
    doc: "Asks whether the worker's host has an image, by its SHA-256; if so, no parts follow.",
    fields: [
      ["handle", "u64"],
      ["total", "u64"],
      ["hash", { bytes: 32 }],
    ],
    reply: { fields: [["known", "u32"]] },
  },
  {
    name: "CopyBox",
    doc: "A copy in up to three dimensions between two ends within the worker's reach: an array, or an address of the first byte (device memory, or host memory that both sides map) with its pitch in bytes and rows in a slice. Offsets are of arrays.",
    fields: [
      ["srcArray", "u64"],
      ["srcAddress", "u64"],
      ["srcPitch", "u64"],
      ["srcRows", "u64"],
      ["srcX", "u64"],
      ["srcY", "u64"],
      ["srcZ", "u64"],
      ["dstArray", "u64"],
      ["dstAddress", "u64"],
      ["dstPitch", "u64"],
      ["dstRows", "u64"],
      ["dstX", "u64"],
      ["dstY", "u64"],
      ["dstZ", "u64"],
      ["width", "u64"],
      ["height", "u64"],
      ["depth", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "ArrayCreate",
    doc: "An array, or with `levels` a mipmapped one, of the current device, within the session's limit.",
    fields: [
      ["handle", "u64"],
      ["width", "u64"],
      ["height", "u64"],
      ["depth", "u64"],
      ["format", "i32"],
      ["channels", "u32"],
      ["flags", "u32"],
      ["levels", "u32"],
      ["elementBytes", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "ArrayDestroy",
    doc: "The end of an array, when the device is done with it. A level ends with its mipmapped array.",
    fields: [["handle", "u64"]],
  },
  {
    name: "ArrayLevel",
    doc: "A level of a mipmapped array, as an array.",
    fields: [
      ["mipmapped", "u64"],
      ["level", "u32"],
      ["handle", "u64"],
    ],
    reply: {
      fields: [
        ["width", "u64"],
        ["height", "u64"],
        ["depth", "u64"],
      ],
    },
  },
  {
    name: "ArrayRequirements",
    doc: "What an array takes of a device's memory, as the driver says.",
    fields: [
      ["handle", "u64"],
      ["device", "i32"],
    ],
    reply: {
      fields: [
        ["bytes", "u64"],
        ["alignment", "u64"],
      ],
    },
  },
  {
    name: "TextureCreate",
    doc: "A texture or surface object. Of the resource, `handle` is the array, mipmapped array or address; the structures as they lie in memory, `view` only with `hasView`.",
    fields: [
      ["handle", "u64"],
      ["isSurface", "u32"],
      ["hasView", "u32"],
      ["resource", { bytes: 144 }],
      ["texture", { bytes: 104 }],
      ["view", { bytes: 112 }],
    ],
    reply: { fields: [["object", "u64"]] },
  },
  {
    name: "TextureDestroy",
    doc: "The end of a texture or surface object, when the device is done with it.",
    fields: [["object", "u64"]],
  },
  ...arrayCommands,
  ...textureReferenceCommands,
  {
    name: "PeerAccess",
    doc: "Kernels of the current context may (`enable` 1) or may not touch the memory of context `peer`.",
    fields: [
      ["peer", "u32"],
      ["enable", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "ImagePart",
    doc: "A piece of the image of `total` bytes that a ModuleLoad or LinkAdd of this handle will use.",
    fields: [
      ["handle", "u64"],
      ["offset", "u64"],
      ["total", "u64"],
    ],
    tails: ["data"],
  },
  {
    name: "ModuleLoad",
    doc: "Loads the image whose parts have arrived. `kind`: 0 module, 1 library. `options`: JitOptionRecord; `places`: where in the image its fatbins begin, when there are several (u64 each). `isKept`: 1 where the client can send the image again. The logs come back with a failure too.",
    fields: [
      ["handle", "u64"],
      ["kind", "u32"],
      ["isKept", "u32"],
    ],
    tails: ["options", "places"],
    reply: jitReply,
  },
  {
    name: "LinkCreate",
    doc: "cuLinkCreate. `options`: JitOptionRecord.",
    fields: [["handle", "u64"]],
    tails: ["options"],
    reply: { fields: [] },
  },
  {
    name: "LinkAdd",
    doc: "cuLinkAddData of the image whose parts have arrived for this handle. `type`: CUjitInputType.",
    fields: [
      ["handle", "u64"],
      ["type", "u32"],
    ],
    tails: ["name", "options"],
    reply: jitReply,
  },
  {
    name: "LinkComplete",
    doc: "cuLinkComplete: what was linked is read with LinkRead, `wallTimeMs` and the logs are those of the whole link.",
    fields: [["handle", "u64"]],
    reply: jitReply,
  },
  {
    name: "LinkRead",
    doc: "A piece of what was linked, from `offset`; `total` is the length of the whole.",
    fields: [
      ["handle", "u64"],
      ["offset", "u64"],
    ],
    reply: { fields: [["total", "u64"]], tails: ["data"] },
  },
  { name: "LinkDestroy", doc: "The end of a LinkCreate.", fields: [["handle", "u64"]] },
  {
    name: "FunctionNames",
    doc: "The names of the functions of a module or the kernels of a library, each ended by a zero.",
    fields: [["owner", "u64"]],
    reply: { fields: [["count", "u32"]], tails: ["names"] },
  },
  {
    name: "LibraryGetModule",
    doc: "The module that a library is in the current context, under a new handle.",
    fields: [
      ["library", "u64"],
      ["handle", "u64"],
    ],
    reply: { fields: [] },
  },
  {
    name: "ModuleUnload",
    doc: "The end of a module or library and of all that came from it.",
    fields: [["handle", "u64"]],
  },
  {
    name: "GetFunction",
    doc: "A function of a module or kernel of a library, with all that launches need to know: per parameter offset and size (u32 each), and the attributes by number (i32 each).",
    fields: [
      ["owner", "u64"],
      ["handle", "u64"],
    ],
    tails: ["name"],
    reply: { fields: [["paramCount", "u32"]], tails: ["layout", "attributes"] },
  },
  {
    name: "GetGlobal",
    doc: "Address and size of a variable of a module or library. `managed` 1: only of one that is managed, which fails, because host code could not reach it.",
    fields: [
      ["owner", "u64"],
      ["managed", "u32"],
    ],
    tails: ["name"],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
      ],
    },
  },
  {
    name: "Launch",
    doc: "A kernel launch. `flags`: 1 cooperative. `attributes`: CUlaunchAttribute records; `params`: the packed parameters.",
    fields: [
      ["function", "u64"],
      ["stream", "u64"],
      ["gridX", "u32"],
      ["gridY", "u32"],
      ["gridZ", "u32"],
      ["blockX", "u32"],
      ["blockY", "u32"],
      ["blockZ", "u32"],
      ["sharedBytes", "u32"],
      ["flags", "u32"],
    ],
    tails: ["attributes", "params"],
  },
  {
    name: "LaunchLimits",
    doc: "What a launch of a function must keep within in the current context, and the blocks of a cluster that it was compiled for, 0 for none.",
    fields: [["function", "u64"]],
    reply: {
      fields: [
        ["threads", "i32"],
        ["dynamicSharedBytes", "i32"],
        ["registers", "i32"],
        ["clusterX", "u32"],
        ["clusterY", "u32"],
        ["clusterZ", "u32"],
      ],
    },
  },
  {
    name: "ClusterOccupancy",
    doc: "How many clusters of a launch can run at once or, with `asksSize`, how large a cluster can be.",
    fields: [
      ["function", "u64"],
      ["stream", "u64"],
      ["gridX", "u32"],
      ["gridY", "u32"],
      ["gridZ", "u32"],
      ["blockX", "u32"],
      ["blockY", "u32"],
      ["blockZ", "u32"],
      ["sharedBytes", "u32"],
      ["asksSize", "u32"],
    ],
    tails: ["attributes"],
    reply: { fields: [["count", "i32"]] },
  },
  {
    name: "SmTopology",
    doc: "What the driver's hidden table tells of each pair of multiprocessors of the current context's device: its place within its cluster of processors, and which cluster that is.",
    fields: [],
    reply: { fields: [], tails: ["places", "clusters"] },
  },
  {
    name: "TensorMapEncode",
    doc: "Encodes a tensor map. `form`: 0 tiled, 1 im2col, 2 im2col wide. `box`: the box's extents, or the lower and then the upper corner (three i32 each; wide: one each).",
    fields: [
      ["form", "u32"],
      ["dataType", "u32"],
      ["rank", "u32"],
      ["interleave", "u32"],
      ["swizzle", "u32"],
      ["promotion", "u32"],
      ["fill", "u32"],
      ["mode", "u32"],
      ["channels", "u32"],
      ["pixels", "u32"],
      ["address", "u64"],
      ["extents", { bytes: 40 }],
      ["strides", { bytes: 32 }],
      ["box", { bytes: 24 }],
      ["elementStrides", { bytes: 24 }],
    ],
    reply: { fields: [["map", { bytes: 128 }]] },
  },
  {
    name: "TensorMapReplaceAddress",
    doc: "Another address in a tensor map.",
    fields: [
      ["address", "u64"],
      ["map", { bytes: 128 }],
    ],
    reply: { fields: [["map", { bytes: 128 }]] },
  },
  {
    name: "StreamSetAttribute",
    doc: "cuStreamSetAttribute: numbers and device addresses alone.",
    fields: [
      ["stream", "u64"],
      ["attribute", "u32"],
      ["value", { bytes: 64 }],
    ],
  },
  {
    name: "StreamGetAttribute",
    doc: "cuStreamGetAttribute.",
    fields: [
      ["stream", "u64"],
      ["attribute", "u32"],
    ],
    reply: { fields: [["value", { bytes: 64 }]] },
  },
  {
    name: "AtomicCapabilities",
    doc: "Which atomic operations work from a device on another one's memory, or on the host's (`peer` -1). `operations`: CUatomicOperation (u32 each); `capabilities`: as many u32.",
    fields: [
      ["device", "i32"],
      ["peer", "i32"],
    ],
    tails: ["operations"],
    reply: { fields: [["count", "u32"]], tails: ["capabilities"] },
  },
  {
    name: "StreamSync",
    doc: "Answered when the stream is done.",
    fields: [["stream", "u64"]],
    reply: { fields: [] },
  },
  {
    name: "EventSync",
    doc: "Answered when the event has happened.",
    fields: [["event", "u64"]],
    reply: { fields: [] },
  },
  {
    name: "ContextSync",
    doc: "Answered when all streams of the context are done.",
    fields: [],
    reply: { fields: [] },
  },
  {
    name: "HostFunction",
    doc: "A function of the client in the order of a stream. `kind`: 0 host function, 1 stream callback; `handle`: the stream as the program named it.",
    fields: [
      ["stream", "u64"],
      ["function", "u64"],
      ["data", "u64"],
      ["handle", "u64"],
      ["kind", "u32"],
    ],
  },
  {
    name: "CallbackNext",
    doc: "Answered when a stream of the context has come to a function of the client. `kind`: as in HostFunction, 2 the destructor of a user object, 3 nothing to run: what was asked for failed.",
    fields: [],
    reply: {
      fields: [
        ["number", "u64"],
        ["function", "u64"],
        ["data", "u64"],
        ["handle", "u64"],
        ["kind", "u32"],
        ["status", "i32"],
      ],
    },
  },
  {
    name: "CallbackDone",
    doc: "That function has returned: the stream goes on.",
    fields: [["number", "u64"]],
  },
  {
    name: "CaptureBegin",
    doc: "A stream is captured from here on, into `graph` behind `nodes` where that is not 0. `hasEdges`: `edges` has a CUgraphEdgeData for each.",
    fields: [
      ["stream", "u64"],
      ["graph", "u64"],
      ["hasEdges", "u32"],
    ],
    tails: ["nodes", "edges"],
    reply: { fields: [] },
  },
  {
    name: "CaptureEnd",
    doc: "The end of a capture, and its graph.",
    fields: [["stream", "u64"]],
    reply: { fields: [["graph", "u64"]] },
  },
  {
    name: "CaptureInfo",
    doc: "How a stream stands in a capture: what its next node waits for, `edges` with a CUgraphEdgeData for each.",
    fields: [["stream", "u64"]],
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
    fields: [
      ["stream", "u64"],
      ["flags", "u32"],
      ["hasEdges", "u32"],
    ],
    tails: ["nodes", "edges"],
    reply: { fields: [] },
  },
  {
    name: "CaptureInvalidate",
    doc: "A call that a capture forbids was made: its graph is lost.",
    fields: [["stream", "u64"]],
  },
  {
    name: "CaptureCopy",
    doc: "A copy between device memory and memory of the client, on a captured stream. `direction`: 1 to the device, 2 from it.",
    fields: [
      ["stream", "u64"],
      ["deviceAddress", "u64"],
      ["hostAddress", "u64"],
      ["bytes", "u64"],
      ["direction", "u32"],
    ],
  },
  {
    name: "GraphCreate",
    doc: "An empty graph.",
    fields: [["flags", "u32"]],
    reply: { fields: [["graph", "u64"]] },
  },
  { name: "GraphDestroy", doc: "The end of a graph and of its nodes.", fields: [["graph", "u64"]] },
  {
    name: "GraphClone",
    doc: "A copy of a graph.",
    fields: [["graph", "u64"]],
    reply: { fields: [["clone", "u64"]] },
  },
  {
    name: "GraphFindInClone",
    doc: "The node of a clone that was made from `node`.",
    fields: [
      ["node", "u64"],
      ["clone", "u64"],
    ],
    reply: { fields: [["found", "u64"]] },
  },
  {
    name: "GraphAddNode",
    doc: "A node behind others. `params`: a graph::NodeRecord (native/cuda/graph_node.h) and what follows it. `value`: what the kind of node gives, the address of an allocation. `graphs`: the bodies of a conditional node.",
    fields: [
      ["graph", "u64"],
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
    doc: "Other parameters for a node, of its graph, or of an executable one (`exec` not 0); then what its launches need anew, as with GraphInstantiate.",
    fields: [
      ["exec", "u64"],
      ["node", "u64"],
    ],
    tails: ["params"],
    reply: { fields: [["hostFunctions", "u32"]], tails: ["sources"] },
  },
  {
    name: "GraphGetNode",
    doc: "Parameters of a node as GraphAddNode takes them, and the graph that it ends with.",
    fields: [["node", "u64"]],
    reply: { fields: [["root", "u64"]], tails: ["params"] },
  },
  {
    name: "GraphNodeType",
    doc: "CUgraphNodeType of a node.",
    fields: [["node", "u64"]],
    reply: { fields: [["type", "u32"]] },
  },
  {
    name: "GraphList",
    doc: "Nodes or edges, from the `first` on, at most 1024. `what`: 0 nodes and 1 root nodes of a graph, 2 its edges, 3 dependencies and 4 dependents of a node. An edge is in `nodes`, `others` (its other end) and `edges` at the same place.",
    fields: [
      ["object", "u64"],
      ["what", "u32"],
      ["first", "u32"],
    ],
    reply: { fields: [["total", "u32"]], tails: ["nodes", "others", "edges"] },
  },
  {
    name: "GraphDepend",
    doc: "Adds edges to a graph, or removes them (`remove` 1).",
    fields: [
      ["graph", "u64"],
      ["remove", "u32"],
      ["hasEdges", "u32"],
    ],
    tails: ["from", "to", "edges"],
    reply: { fields: [] },
  },
  { name: "GraphDestroyNode", doc: "The end of a node.", fields: [["node", "u64"]], reply: { fields: [] } },
  {
    name: "GraphInstantiate",
    doc: "An executable graph. `sources`: memory of the client that its launches read, as graph::Source; `hostFunctions`: how many functions of the client one launch runs; `kept`: how many allocations outlive a launch. `hasUpload`: it is uploaded in the order of `stream`.",
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
    fields: [["exec", "u64"]],
  },
  {
    name: "GraphExecUpdate",
    doc: "Takes over the parameters of a graph of the same shape; answers as CUgraphExecUpdateResultInfo, and as GraphInstantiate does.",
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
    name: "GraphLaunch",
    doc: "Launches an executable graph.",
    fields: [
      ["exec", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "GraphUpload",
    doc: "Uploads an executable graph.",
    fields: [
      ["exec", "u64"],
      ["stream", "u64"],
    ],
  },
  {
    name: "GraphSource",
    doc: "Bytes of the client's that the next launch reads: `data` at `offset` of the source of that number.",
    fields: [
      ["source", "u64"],
      ["offset", "u64"],
    ],
    tails: ["data"],
  },
  {
    name: "GraphEnableNode",
    doc: "Whether a node of an executable graph runs: `enable` 0 or 1 sets it, 2 only asks.",
    fields: [
      ["exec", "u64"],
      ["node", "u64"],
      ["enable", "u32"],
    ],
    reply: { fields: [["enabled", "u32"]] },
  },
  {
    name: "GraphNodeAttribute",
    doc: "An attribute of a kernel node, a CUlaunchAttributeValue. `what`: 0 get, 1 set, 2 copy all of the node `value`.",
    fields: [
      ["node", "u64"],
      ["other", "u64"],
      ["what", "u32"],
      ["attribute", "u32"],
      ["value", { bytes: 64 }],
    ],
    reply: { fields: [["value", { bytes: 64 }]] },
  },
  {
    name: "GraphConditional",
    doc: "A handle for the condition of conditional nodes of a graph.",
    fields: [
      ["graph", "u64"],
      ["initial", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [["handle", "u64"]] },
  },
  {
    name: "GraphDot",
    doc: "The description of a graph in the DOT language, from `offset` on, at most 32 KiB. Asked with offset 0 first.",
    fields: [
      ["graph", "u64"],
      ["flags", "u32"],
      ["offset", "u32"],
    ],
    reply: { fields: [["total", "u32"]], tails: ["text"] },
  },
  {
    name: "GraphMemory",
    doc: "Memory of the allocation nodes of a device. `what`: 0 get and 1 set an attribute, 2 give back what no graph uses.",
    fields: [
      ["device", "i32"],
      ["what", "u32"],
      ["attribute", "u32"],
      ["value", "u64"],
    ],
    reply: { fields: [["value", "u64"]] },
  },
  {
    name: "UserObjectCreate",
    doc: "An object whose destructor is a function of the client.",
    fields: [
      ["data", "u64"],
      ["destroy", "u64"],
      ["references", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [["object", "u64"]] },
  },
  {
    name: "UserObjectCount",
    doc: "References to a user object. `what`: 0 retain, 1 release, 2 retain by a graph, 3 release by a graph.",
    fields: [
      ["object", "u64"],
      ["graph", "u64"],
      ["count", "u32"],
      ["what", "u32"],
      ["flags", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "LandFromDevice",
    doc: "A copy to memory of a client on another host, where the bytes land by themselves.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
      ["stream", "u64"],
      ["hostAddress", "u64"],
    ],
  },
  {
    name: "ShareMemory",
    doc: "A handle by which other sessions of the claim open an allocation of MemAlloc. `bytes`: what the program asked for.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenMemory",
    doc: "Memory of another session of the claim, by its handle; ended with MemFree.",
    fields: [["handle", { bytes: 64 }]],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
        ["device", "i32"],
      ],
    },
  },
  {
    name: "ShareEvent",
    doc: "A handle by which other sessions of the claim open an event.",
    fields: [["event", "u64"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "OpenEvent",
    doc: "An event of another session of the claim, by its handle.",
    fields: [
      ["event", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: { fields: [] },
  },
  {
    name: "VmShare",
    doc: "A handle by which other sessions of the claim open the memory of a VmCreate.",
    fields: [["memory", "u64"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "VmOpen",
    doc: "Memory of another session's VmCreate, by its handle, under a number of the client's; ended with VmRelease.",
    fields: [
      ["memory", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: {
      fields: [
        ["bytes", "u64"],
        ["device", "i32"],
      ],
    },
  },
  {
    name: "PoolShare",
    doc: "A handle by which other sessions of the claim open a pool.",
    fields: [["pool", "u64"]],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpen",
    doc: "Another session's pool, by its handle, under a handle of the client's, or the one under which it is open already; ended with PoolDestroy.",
    fields: [
      ["pool", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: {
      fields: [
        ["pool", "u64"],
        ["device", "i32"],
      ],
    },
  },
  {
    name: "PoolSharePointer",
    doc: "A handle by which sessions that have opened a pool, which must have been shared, open an allocation of it. `bytes`: what the program asked for.",
    fields: [
      ["address", "u64"],
      ["bytes", "u64"],
    ],
    reply: { fields: [["handle", { bytes: 64 }]] },
  },
  {
    name: "PoolOpenPointer",
    doc: "An allocation of a pool that was opened, by its handle; ended with one PoolFree or MemFree, however often it was opened.",
    fields: [
      ["pool", "u64"],
      ["handle", { bytes: 64 }],
    ],
    reply: {
      fields: [
        ["address", "u64"],
        ["bytes", "u64"],
      ],
    },
  },
  {
    name: "DeviceResource",
    doc: "A CUdevResource of a device, or of the frame's context with `device` -1.",
    fields: [
      ["device", "i32"],
      ["type", "i32"],
    ],
    reply: { fields: [["resource", { bytes: 144 }]] },
  },
  {
    name: "ResourceSplit",
    doc: "cuDevSmResourceSplitByCount of a resource that the session was given. `groups`: how many are wanted, 0 for none but their number.",
    fields: [
      ["input", { bytes: 144 }],
      ["groups", "u32"],
      ["flags", "u32"],
      ["minimum", "u32"],
    ],
    reply: {
      fields: [
        ["groups", "u32"],
        ["remaining", { bytes: 144 }],
      ],
      tails: ["result"],
    },
  },
  {
    name: "ResourceDescribe",
    doc: "cuDevResourceGenerateDesc of resources that the session was given, under a number of the client's.",
    fields: [["descriptor", "u64"]],
    tails: ["resources"],
    reply: { fields: [] },
  },
  {
    name: "GreenCreate",
    doc: "A green context on a device, under a number as with ContextCreate; ended with ContextDestroy.",
    fields: [
      ["context", "u32"],
      ["device", "i32"],
      ["descriptor", "u64"],
      ["flags", "u32"],
    ],
    reply: { fields: [] },
  },
  {
    name: "GreenStream",
    doc: "A stream of the frame's context, which is a green one.",
    fields: [
      ["stream", "u64"],
      ["flags", "u32"],
      ["priority", "i32"],
    ],
  },
  {
    name: "GraphUpdateNode",
    doc: "As GraphSetNode with `exec`, for nodes that change nothing of what launches need: not copies, functions and graphs.",
    fields: [
      ["exec", "u64"],
      ["node", "u64"],
    ],
    tails: ["params"],
  },
  {
    name: "EventHappened",
    doc: "Of an event that is made again: it had happened `afterMs` (a double) after the moment `unixNs`.",
    fields: [
      ["event", "u64"],
      ["unixNs", "u64"],
      ["afterMs", { bytes: 8 }],
    ],
    reply: { fields: [] },
  },
  {
    name: "SessionRestored",
    doc: "What a parked session had is made again: from here on it is the program that speaks.",
    fields: [],
    reply: { fields: [] },
  },
];
