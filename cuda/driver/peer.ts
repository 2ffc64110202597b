// SPDX-License-Identifier: Apache-2.0
/** Access by one device to another's memory, and by one process to another's. */
import type { Group } from "../schema.ts";

const betweenSessions = {
  style: "hand",
  why: "handles are the worker's own, valid for the sessions of one claim",
} as const;

export const peers = {
  cuCtxEnablePeerAccess: { style: "hand", why: "contexts are the client's" },
  cuCtxDisablePeerAccess: { style: "hand", why: "contexts are the client's" },
  cuIpcGetMemHandle: betweenSessions,
  cuIpcOpenMemHandle: { style: "same", as: "cuIpcOpenMemHandle_v2" },
  cuIpcOpenMemHandle_v2: betweenSessions,
  cuIpcCloseMemHandle: betweenSessions,
  cuIpcGetEventHandle: betweenSessions,
  cuIpcOpenEventHandle: betweenSessions,
} as const satisfies Group;
