// SPDX-License-Identifier: Apache-2.0
/** Access of one device to another's memory, and of one process to another's. */
import type { Group } from "../schema.ts";

const betweenProcesses = {
  style: "refused",
  why: "memory and events of one session cannot be opened in another",
} as const;

export const peers = {
  cuCtxEnablePeerAccess: { style: "hand", why: "contexts are the client's" },
  cuCtxDisablePeerAccess: { style: "hand", why: "contexts are the client's" },
  cuIpcGetMemHandle: betweenProcesses,
  cuIpcOpenMemHandle: betweenProcesses,
  cuIpcOpenMemHandle_v2: betweenProcesses,
  cuIpcCloseMemHandle: betweenProcesses,
  cuIpcGetEventHandle: betweenProcesses,
  cuIpcOpenEventHandle: betweenProcesses,
} as const satisfies Group;
