// SPDX-License-Identifier: Apache-2.0
/** Streams. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const stream = { kind: "stream" } as const;
const word = (bytes: 4 | 8) =>
  ({
    style: "async",
    left: "books",
    precondition: "word",
    arguments: {
      stream,
      addr: { kind: "address", extent: { bytes } },
      value: { kind: "value" },
      flags: { kind: "value" },
    },
  }) as const;
const attribute = {
  style: "hand",
  why: "the attribute determines which member of the value is used",
} as const;

export const streams = {
  cuStreamCreate: {
    style: "async",
    left: { makes: "phStream" },
    arguments: {
      phStream: { kind: "creates", of: "stream", traits: { flags: "Flags" } },
      Flags: { kind: "value", bits: 0x1 },
    },
  },
  cuStreamCreateWithPriority: {
    style: "async",
    left: { makes: "phStream" },
    arguments: {
      phStream: { kind: "creates", of: "stream", traits: { flags: "flags", priority: "priority" } },
      flags: { kind: "value", bits: 0x1 },
      priority: { kind: "value" },
    },
  },
  cuStreamDestroy: { style: "same", as: "cuStreamDestroy_v2" },
  cuStreamDestroy_v2: {
    style: "async",
    left: "books",
    arguments: { hStream: { kind: "destroys", of: "stream" } },
  },
  cuStreamWaitEvent: {
    style: "async",
    left: "books",
    precondition: "awaitedEvent",
    arguments: {
      hStream: stream,
      hEvent: { kind: "handle", of: "event" },
      Flags: { kind: "value", bits: 0x1 },
    },
  },
  cuStreamQuery: {
    style: "wait",
    left: "books",
    precondition: "streamAnswer",
    arguments: { hStream: stream },
  },
  cuStreamSynchronize: {
    style: "wait",
    command: "StreamSync",
    precondition: "streamAnswer",
    arguments: { hStream: stream },
  },

  cuStreamWaitValue32: { style: "same", as: "cuStreamWaitValue32_v2" },
  cuStreamWaitValue32_v2: { ...word(4), effect: "awaitsWord" },
  cuStreamWaitValue64: { style: "same", as: "cuStreamWaitValue64_v2" },
  cuStreamWaitValue64_v2: { ...word(8), effect: "awaitsWord" },
  cuStreamWriteValue32: { style: "same", as: "cuStreamWriteValue32_v2" },
  cuStreamWriteValue32_v2: { ...word(4), effect: "writesWord" },
  cuStreamWriteValue64: { style: "same", as: "cuStreamWriteValue64_v2" },
  cuStreamWriteValue64_v2: { ...word(8), effect: "writesWord" },
  cuStreamBatchMemOp: { style: "same", as: "cuStreamBatchMemOp_v2" },
  cuStreamBatchMemOp_v2: {
    style: "async",
    left: "books",
    effect: "batchesWords",
    arguments: {
      stream,
      count: { kind: "value" },
      paramArray: { kind: "array", count: "count" },
      flags: { kind: "value" },
    },
  },
  cuStreamSetAttribute: attribute,
  cuStreamGetAttribute: attribute,
  cuStreamCopyAttributes: {
    style: "async",
    left: "trace",
    arguments: { dstStream: stream, srcStream: stream },
  },

  cuStreamGetFlags: local,
  cuStreamGetPriority: local,
  cuStreamGetId: local,
  cuStreamGetCtx: local,
  cuStreamGetCtx_v2: local,
  cuStreamGetDevice: local,
} as const satisfies Group;
