// SPDX-License-Identifier: Apache-2.0
/** A small fictitious API with one of everything, for tests of the generator. */
import type { Abi, Command, FunctionVariant, Group, Parameter, WorkerPart } from "@millpond/cuda";

type ParameterText = readonly [type: string, name: string];

function fn(
  symbol: string,
  version: number,
  parameters: readonly ParameterText[],
  twin?: "ptds" | "ptsz",
): FunctionVariant[] {
  const base = symbol.replace(/_v\d$/, "");
  const list: Parameter[] = parameters.map(([type, name]) => ({ type, name }));
  const plain: FunctionVariant = {
    base,
    symbol,
    version,
    flavour: "none",
    returns: "CUresult",
    parameters: list,
    header: "cuda",
  };
  return twin
    ? [plain, { ...plain, symbol: `${symbol}_${twin}`, version: Math.max(version, 7000), flavour: twin }]
    : [plain];
}

export const sampleAbi: Abi = {
  cudaVersion: 13000,
  constants: [],
  types: [
    { kind: "alias", name: "CUdeviceptr", type: "unsigned long long" },
    { kind: "alias", name: "CUdevice", type: "int" },
    { kind: "handle", name: "CUstream", tag: "CUstream_st" },
    { kind: "handle", name: "CUevent", tag: "CUevent_st" },
    { kind: "handle", name: "CUfunction", tag: "CUfunc_st" },
    { kind: "handle", name: "CUkernel", tag: "CUkern_st" },
    {
      kind: "enum",
      name: "CUresult",
      values: [
        ["CUDA_SUCCESS", 0],
        ["CUDA_ERROR_INVALID_VALUE", 1],
        ["CUDA_ERROR_NOT_INITIALIZED", 3],
        ["CUDA_ERROR_DEVICE_UNAVAILABLE", 46],
        ["CUDA_ERROR_INVALID_DEVICE", 101],
        ["CUDA_ERROR_INVALID_CONTEXT", 201],
        ["CUDA_ERROR_INVALID_HANDLE", 400],
        ["CUDA_ERROR_NOT_SUPPORTED", 801],
        ["CUDA_ERROR_UNKNOWN", 999],
      ],
    },
    {
      kind: "enum",
      name: "CUdriverProcAddressQueryResult",
      values: [
        ["CU_GET_PROC_ADDRESS_SUCCESS", 0],
        ["CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND", 1],
        ["CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT", 2],
      ],
    },
    {
      kind: "enum",
      name: "CUdriverProcAddress_flags",
      values: [
        ["CU_GET_PROC_ADDRESS_DEFAULT", 0],
        ["CU_GET_PROC_ADDRESS_LEGACY_STREAM", 1],
        ["CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM", 2],
      ],
    },
    { kind: "enum", name: "CUcolour", values: [["CU_RED", 1]] },
    {
      kind: "struct",
      name: "CUextent",
      members: [
        { name: "width", type: "size_t" },
        { name: "depth", type: "unsigned char", dimensions: [3] },
      ],
    },
    { kind: "struct", name: "CUlinked", members: [{ name: "next", type: "void*" }] },
    {
      kind: "union",
      name: "CUnested",
      members: [
        {
          name: "inner",
          record: {
            kind: "struct",
            members: [
              { name: "small", type: "char" },
              { name: "wide", type: "double", align: 16 },
            ],
          },
        },
        { record: { kind: "struct", members: [{ name: "loose", type: "CUcolour" }] } },
      ],
    },
  ],
  functions: [
    ...fn(
      "cuCopy",
      4000,
      [
        ["CUdeviceptr", "to"],
        ["CUdeviceptr", "from"],
        ["size_t", "bytes"],
      ],
      "ptds",
    ),
    ...fn(
      "cuCopyAsync",
      4000,
      [
        ["CUdeviceptr", "to"],
        ["CUdeviceptr", "from"],
        ["size_t", "bytes"],
        ["CUstream", "hStream"],
      ],
      "ptsz",
    ),
    ...fn("cuStreamMake", 2000, [
      ["CUstream*", "phStream"],
      ["unsigned int", "flags"],
      ["int", "priority"],
    ]),
    ...fn("cuStreamEnd", 2000, [["CUstream", "hStream"]]),
    ...fn("cuStreamEnd_v2", 4000, [["CUstream", "hStream"]]),
    ...fn(
      "cuStreamWait",
      2000,
      [
        ["CUstream", "hStream"],
        ["CUevent", "hEvent"],
      ],
      "ptsz",
    ),
    ...fn("cuPaint", 3000, [
      ["CUcolour", "colour"],
      ["const CUextent*", "extent"],
      ["const CUextent*", "limit"],
    ]),
    ...fn("cuWrite", 3000, [
      ["const char*", "text"],
      ["const unsigned int*", "values"],
      ["size_t", "count"],
    ]),
    ...fn("cuAsk", 3000, [
      ["int*", "answer"],
      ["CUcolour*", "colour"],
      ["CUextent*", "extent"],
      ["CUdevice", "dev"],
    ]),
    ...fn("cuFuncAsk", 3000, [
      ["int*", "answer"],
      ["CUfunction", "func"],
      ["int", "what"],
    ]),
    ...fn("cuFuncTell", 3000, [
      ["CUfunction", "func"],
      ["int", "what"],
      ["int", "value"],
    ]),
    ...fn("cuBound", 3000, [
      ["CUevent*", "event"],
      ["size_t*", "offset"],
      ["int*", "now"],
      ["int*", "wanted"],
    ]),
    ...fn("cuFollow", 3000, [["const CUlinked*", "list"]]),
    ...fn("cuStreamSync", 2000, [["CUstream", "hStream"]], "ptsz"),
    ...fn("cuWatch", 2000, [["CUevent", "hEvent"]]),
    ...fn("cuCollide", 2000, [["int", "wire"]]),
    ...fn("cuGraphics", 2000, [["unsigned int", "buffer"]]),
    ...fn("cuHost", 2000, [["void*", "p"]]),
  ],
};

export const sampleCommands: readonly Command[] = [
  {
    name: "Load",
    doc: "Loads something.",
    left: { makes: "handle" },
    fields: [
      ["kind", "u16"],
      ["handle", "handle"],
    ],
    tails: ["name", "image"],
    reply: { fields: [["count", "u32"]], tails: ["layout"] },
  },
  {
    name: "SyncStream",
    doc: "Answered when the stream is done.",
    left: "books",
    fields: [["stream", "handle"]],
    reply: { fields: [] },
  },
];

const copied = { kind: "address", extent: { elements: "bytes" } } as const;

/** The loopback worker is one class. */
export const sampleParts: readonly WorkerPart[] = [
  { member: "session", type: "LoopbackWorker", header: "worker/loopback_worker.h", commands: [] },
  { member: "addresses", type: "AddressGate", header: "worker/loopback_worker.h", commands: [] },
  { member: "objects", type: "LoopbackWorker", header: "worker/loopback_worker.h", commands: [] },
  { member: "functions", type: "LoopbackWorker", header: "worker/loopback_worker.h", commands: [] },
  { member: "operations", type: "LoopbackWorker", header: "worker/loopback_worker.h", commands: [] },
  {
    member: "things",
    type: "LoopbackWorker",
    header: "worker/loopback_worker.h",
    commands: ["Load", "SyncStream"],
  },
];

export const sampleGroups: { readonly [group: string]: Group } = {
  things: {
    cuCopy: {
      style: "async",
      left: "books",
      work: true,
      driverSymbol: "cuCopyAsync",
      arguments: { to: copied, from: copied, bytes: { kind: "value" } },
    },
    cuStreamMake: {
      style: "async",
      left: { makes: "phStream" },
      arguments: {
        phStream: { kind: "creates", of: "stream", traits: { flags: "flags", priority: "priority" } },
        flags: { kind: "value", bits: 1 },
        priority: { kind: "value" },
      },
    },
    cuStreamEnd: { style: "same", as: "cuStreamEnd_v2" },
    cuStreamEnd_v2: {
      style: "async",
      left: "books",
      arguments: { hStream: { kind: "destroys", of: "stream" } },
    },
    cuStreamWait: {
      style: "async",
      left: "books",
      arguments: { hStream: { kind: "stream" }, hEvent: { kind: "handle", of: "event", null: "allowed" } },
    },
    cuPaint: {
      style: "async",
      left: "books",
      arguments: {
        colour: { kind: "value" },
        extent: { kind: "struct" },
        limit: { kind: "struct", nullable: true },
      },
    },
    cuWrite: {
      style: "async",
      left: "books",
      arguments: {
        text: { kind: "string" },
        values: { kind: "array", count: "count" },
        count: { kind: "value" },
      },
    },
  },
  questions: {
    cuAsk: {
      style: "wait",
      left: "trace",
      context: "none",
      arguments: {
        answer: { kind: "out", nullable: true },
        colour: { kind: "out" },
        extent: { kind: "out" },
        dev: { kind: "device" },
      },
    },
    cuFuncAsk: {
      style: "wait",
      left: "books",
      cached: { invalidatedBy: ["cuFuncTell"] },
      arguments: { answer: { kind: "out" }, func: { kind: "functionOrKernel" }, what: { kind: "value" } },
    },
    cuFuncTell: {
      style: "async",
      left: { sets: "value", of: "func" },
      arguments: { func: { kind: "functionOrKernel" }, what: { kind: "value" }, value: { kind: "value" } },
    },
    cuBound: {
      style: "wait",
      left: "books",
      arguments: {
        event: { kind: "finds", of: "event" },
        offset: { kind: "out", nullable: true, isAsked: true },
        now: { kind: "out", elements: 4 },
        wanted: { kind: "struct", elements: 4 },
      },
    },
    cuStreamSync: { style: "wait", command: "SyncStream", arguments: { hStream: { kind: "stream" } } },
    cuWatch: { style: "local" },
    cuHost: { style: "hand", why: "memory of the client" },
    cuGraphics: { style: "refused", why: "no graphics here" },
  },
};
