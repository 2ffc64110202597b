// SPDX-License-Identifier: Apache-2.0

// How much of the pool somebody has, and how much he may have.

import { formatBytes, formatNeed } from "@millpond/api";
import type { Placement } from "../statement.ts";

/** A part of the pool. */
export interface Amount {
  /** Thousandths of a device: a vGPU counts as the greater of its shares of memory and compute. */
  readonly gpuMilli: number;
  /** 100 is the compute of one device. */
  readonly computePercent: number;
  readonly memoryBytes: bigint;
}

/** Bounds of an amount; one that is absent is not set. */
export interface Quota {
  readonly gpuMilli?: number;
  readonly computePercent?: number;
  readonly memoryBytes?: bigint;
}

export const nothing: Amount = { gpuMilli: 0, computePercent: 0, memoryBytes: 0n };

export function add(a: Amount, b: Amount): Amount {
  return {
    gpuMilli: a.gpuMilli + b.gpuMilli,
    computePercent: a.computePercent + b.computePercent,
    memoryBytes: a.memoryBytes + b.memoryBytes,
  };
}

export function subtract(a: Amount, b: Amount): Amount {
  return {
    gpuMilli: a.gpuMilli - b.gpuMilli,
    computePercent: a.computePercent - b.computePercent,
    memoryBytes: a.memoryBytes - b.memoryBytes,
  };
}

/** A vGPU, in relation to the device that it is on. */
export interface Part extends Pick<Placement, "memoryBytes" | "computePercent"> {
  readonly deviceMemoryBytes: bigint;
}

/** What vGPUs are together. */
export function amountOf(parts: readonly Part[]): Amount {
  let amount = nothing;
  for (const { memoryBytes, computePercent, deviceMemoryBytes } of parts) {
    const ofMemory = Number((memoryBytes * 1000n + deviceMemoryBytes - 1n) / deviceMemoryBytes);
    const gpuMilli = Math.min(1000, Math.max(ofMemory, computePercent * 10));
    amount = add(amount, { gpuMilli, computePercent, memoryBytes });
  }
  return amount;
}

/** Which bound an amount passes, and by how much, in words; undefined: none. */
export function describeExcess(amount: Amount, limit: Quota): string | undefined {
  if (limit.gpuMilli !== undefined && amount.gpuMilli > limit.gpuMilli) {
    return `${formatGpus(amount.gpuMilli)} of ${formatGpus(limit.gpuMilli)} GPUs`;
  }
  if (limit.computePercent !== undefined && amount.computePercent > limit.computePercent) {
    return `${amount.computePercent}% of ${limit.computePercent}% compute`;
  }
  if (limit.memoryBytes !== undefined && amount.memoryBytes > limit.memoryBytes) {
    return `${formatNeed(amount.memoryBytes)} of ${formatBytes(limit.memoryBytes)} of memory`;
  }
  return undefined;
}

/** Whether an amount is within all the bounds that are set, and at least one is. */
export function isWithinGuarantee(amount: Amount, guaranteed: Quota): boolean {
  const isSet =
    guaranteed.gpuMilli !== undefined ||
    guaranteed.computePercent !== undefined ||
    guaranteed.memoryBytes !== undefined;
  return isSet && describeExcess(amount, guaranteed) === undefined;
}

/** How much of a guarantee an amount is, by the bound that it comes nearest to; from 1 on all of it. */
export function partOfGuarantee(amount: Amount, { gpuMilli, computePercent, memoryBytes }: Quota): number {
  const part = (used: number, bound: number | undefined) =>
    bound === undefined ? 0 : bound === 0 ? 1 : used / bound;
  const isSet = [gpuMilli, computePercent, memoryBytes].some((bound) => bound !== undefined);
  return isSet
    ? Math.max(
        part(amount.gpuMilli, gpuMilli),
        part(amount.computePercent, computePercent),
        part(Number(amount.memoryBytes), memoryBytes === undefined ? undefined : Number(memoryBytes)),
      )
    : 1;
}

/** `1.5`: GPUs from their thousandths. */
export function formatGpus(gpuMilli: number): string {
  return String(Number((gpuMilli / 1000).toFixed(3)));
}
