// SPDX-License-Identifier: Apache-2.0

import type { SessionRecord } from "../run-directory/run-directory.ts";

/** The data by which a worker admits processes to its session, and its place among the sessions of the node. */
export interface SessionAssignment {
  readonly ticket: string;
  /** Unix seconds. */
  readonly expires: number;
  /** Secret for encrypting TCP traffic, 64 hexadecimal digits; empty: no encryption, on loopback. */
  readonly linkSecret: string;
  /** Secret that it shares with the other sessions of its claim on this node. */
  readonly group: string;
  /** Directory of the budgets that the sessions of its allocation share. */
  readonly claimDirectory: string;
  /** Secret of the claim's tenant on this node, 64 hexadecimal digits. */
  readonly tenant: string;
  /**
   * Memory of a session's context on each of its devices, in bytes, in their order. The claim gets it once in addition
   * to its own memory; further contexts are charged to the claim.
   */
  readonly overheadBytes: readonly number[];
  /** Memory, on each of its devices, of a context whose kernels print and of one whose kernels allocate memory, in bytes. */
  readonly printsBytes: readonly number[];
  readonly allocatesBytes: readonly number[];
  /** Most host memory that the sessions of its allocation may have together, in bytes. */
  readonly claimHostBytes: number;
  /** Revision of the sizes of its devices. */
  readonly sizeRevision: number;
  /** Priority of its claim: the order in which sessions of one service class get the device. */
  readonly priority: number;
  /** Time without a command after which the session is parked, if it holds nothing; 0: never. */
  readonly parkAfterMs: number;
}

/** A worker's answer to a change of its session's sizes. */
export interface SizeAnswer {
  /** Revision of the change. */
  readonly revision: number;
  /** Why it keeps the old sizes; empty: it has applied the new ones. */
  readonly refusal: string;
}

/** Sizes for the devices of a session. */
export interface WantedSizes {
  /** Increases with every change of the sizes. */
  readonly revision: number;
  readonly devices: SessionRecord["devices"];
}

/** Whether a session already has these sizes. */
export function hasSizes({ devices }: SessionRecord, wanted: WantedSizes): boolean {
  return wanted.devices.every(({ uuid, memoryBytes, computePercent }, ordinal) => {
    const own = devices[ordinal];
    return own?.uuid === uuid && own.memoryBytes === memoryBytes && own.computePercent === computePercent;
  });
}
