// SPDX-License-Identifier: Apache-2.0

import type { SessionRecord } from "../run-directory/run-directory.ts";

/** By what a worker knows those who come to its session. */
export interface SessionPass {
  readonly ticket: string;
  /** Unix seconds. */
  readonly expires: number;
  /** 64 hexadecimal digits, by which what is said over TCP is encrypted; empty: it is not, on loopback. */
  readonly linkSecret: string;
  /** What it has in common with the other sessions of its claim on this node. */
  readonly group: string;
  /** Where the sessions of its allocation count what they have together. */
  readonly claimDirectory: string;
  /** Of the sizes of its devices. */
  readonly sizeRevision: number;
  /** Of its claim: which goes first among those of a class that compute. */
  readonly priority: number;
  /** The session is parked after so long without a command, if it holds nothing; 0: never. */
  readonly parkAfterMs: number;
}

/** What a worker said to a change of its session's sizes. */
export interface SizeAnswer {
  /** Of the change. */
  readonly revision: number;
  /** Why it keeps the sizes that it had; empty: it has the new ones. */
  readonly refusal: string;
}

/** Sizes for the devices of a session. */
export interface WantedSizes {
  /** Grows with every change of them. */
  readonly revision: number;
  readonly devices: SessionRecord["devices"];
}

/** Whether a session has the sizes already. */
export function hasSizes({ devices }: SessionRecord, wanted: WantedSizes): boolean {
  return wanted.devices.every(({ uuid, memoryBytes, computePercent }, ordinal) => {
    const own = devices[ordinal];
    return own?.uuid === uuid && own.memoryBytes === memoryBytes && own.computePercent === computePercent;
  });
}
