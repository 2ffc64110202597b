// SPDX-License-Identifier: Apache-2.0
/** Green contexts: a primary context with a part of its device's resources. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const resource = {
  style: "hand",
  why: "the layout of a resource is private to the driver: the worker accepts only resources that it has returned",
} as const;
const ofContext = { style: "hand", why: "takes a context other than the current one" } as const;

export const greenContexts = {
  cuDeviceGetDevResource: resource,
  cuCtxGetDevResource: resource,
  cuGreenCtxGetDevResource: resource,
  cuDevSmResourceSplitByCount: resource,
  cuDevResourceGenerateDesc: resource,
  cuGreenCtxCreate: { style: "hand", why: "the client assigns the context's number" },
  cuGreenCtxDestroy: { style: "hand", why: "its streams end with it" },
  cuCtxFromGreenCtx: local,
  cuGreenCtxGetId: local,
  cuGreenCtxRecordEvent: ofContext,
  cuGreenCtxWaitEvent: ofContext,
  cuGreenCtxStreamCreate: ofContext,
  cuStreamGetGreenCtx: local,
} as const satisfies Group;
