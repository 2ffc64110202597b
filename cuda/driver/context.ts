// SPDX-License-Identifier: Apache-2.0
/**
 * Contexts. The client keeps each thread's stack and the list of contexts. On the worker's side, primary contexts exist from
 * the start, and others are created when the program creates them.
 */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const create = {
  style: "hand",
  why: "the client assigns the context's number and makes it current",
} as const;
const ofContext = { style: "hand", why: "takes a context other than the current one" } as const;

export const context = {
  cuDevicePrimaryCtxRetain: local,
  cuDevicePrimaryCtxRelease: { style: "same", as: "cuDevicePrimaryCtxRelease_v2" },
  cuDevicePrimaryCtxRelease_v2: local,
  cuDevicePrimaryCtxSetFlags: { style: "same", as: "cuDevicePrimaryCtxSetFlags_v2" },
  cuDevicePrimaryCtxSetFlags_v2: local,
  cuDevicePrimaryCtxGetState: local,
  cuDevicePrimaryCtxReset: { style: "same", as: "cuDevicePrimaryCtxReset_v2" },
  cuDevicePrimaryCtxReset_v2: local,
  cuCtxCreate: { style: "same", as: "cuCtxCreate_v2" },
  cuCtxCreate_v2: create,
  cuCtxCreate_v3: create,
  cuCtxCreate_v4: create,
  cuCtxDestroy: { style: "same", as: "cuCtxDestroy_v2" },
  cuCtxDestroy_v2: { style: "hand", why: "everything in the context ends with it" },
  cuCtxAttach: local,
  cuCtxDetach: local,
  cuCtxGetCurrent: local,
  cuCtxSetCurrent: local,
  cuCtxPushCurrent: { style: "same", as: "cuCtxPushCurrent_v2" },
  cuCtxPushCurrent_v2: local,
  cuCtxPopCurrent: { style: "same", as: "cuCtxPopCurrent_v2" },
  cuCtxPopCurrent_v2: local,
  cuCtxGetDevice: local,
  cuCtxGetDevice_v2: local,
  cuCtxGetFlags: local,
  cuCtxSetFlags: local,
  cuCtxGetApiVersion: local,
  cuCtxGetId: local,
  cuCtxGetStreamPriorityRange: local,
  cuCtxGetCacheConfig: local,
  cuCtxSetCacheConfig: { style: "hand", why: "the client keeps the value that was set" },
  cuCtxGetSharedMemConfig: local,
  cuCtxSetSharedMemConfig: local,
  cuCtxGetLimit: {
    style: "wait",
    left: "books",
    arguments: { pvalue: { kind: "out" }, limit: { kind: "value" } },
  },
  cuCtxSetLimit: {
    style: "wait",
    command: "ContextSetLimit",
    arguments: { limit: { kind: "value" }, value: { kind: "value" } },
  },
  cuCtxSynchronize: { style: "wait", arguments: {}, command: "ContextSync" },
  cuCtxSynchronize_v2: ofContext,
  cuCtxRecordEvent: ofContext,
  cuCtxWaitEvent: ofContext,
  cuCtxResetPersistingL2Cache: { style: "async", left: "books", arguments: {} },
  cuCtxGetExecAffinity: {
    style: "wait",
    left: "books",
    arguments: { pExecAffinity: { kind: "out" }, type: { kind: "value" } },
  },
} as const satisfies Group;
