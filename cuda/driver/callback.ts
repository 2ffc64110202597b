// SPDX-License-Identifier: Apache-2.0
/** Functions of the program that run in the order of a stream. */
import type { Group } from "../schema.ts";

const callback = {
  style: "hand",
  why: "the stream waits for a function of this process, which a thread of the client runs",
} as const;

export const callbacks = {
  cuLaunchHostFunc: callback,
  cuStreamAddCallback: callback,
} as const satisfies Group;
