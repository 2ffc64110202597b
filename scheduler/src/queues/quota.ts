// SPDX-License-Identifier: Apache-2.0

// Amounts of the pool that queues and tenants use, and their bounds.

import type { Excess } from "@millpond/api";
import type { Placement } from "../statement.ts";

/** An amount of the pool's capacity. */
export interface Amount {
  /** Thousandths of a device: a vGPU counts as the greater of its shares of memory and compute. */
  readonly gpuMilli: number;
  /** 100 is the compute of one device. */
  readonly computePercent: number;
  readonly memoryBytes: bigint;
}

/** Bounds on an amount; an absent one is not set. */
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

/** A vGPU with the size of its device. */
export interface Part extends Pick<Placement, "memoryBytes" | "computePercent"> {
  readonly deviceMemoryBytes: bigint;
}

/** The total of the vGPUs. */
export function amountOf(parts: readonly Part[]): Amount {
  let amount = nothing;
  for (const { memoryBytes, computePercent, deviceMemoryBytes } of parts) {
    const ofMemory = Number((memoryBytes * 1000n + deviceMemoryBytes - 1n) / deviceMemoryBytes);
    const gpuMilli = Math.min(1000, Math.max(ofMemory, computePercent * 10));
    amount = add(amount, { gpuMilli, computePercent, memoryBytes });
  }
  return amount;
}

/** The bound that an amount exceeds, and by how much; undefined: none. */
export function excessOf(amount: Amount, limit: Quota): Excess | undefined {
  const { gpuMilli, computePercent, memoryBytes } = limit;
  if (gpuMilli !== undefined && amount.gpuMilli > gpuMilli) {
    return { resource: "gpuMilli", amount: amount.gpuMilli, limit: gpuMilli };
  }
  if (computePercent !== undefined && amount.computePercent > computePercent) {
    return { resource: "computePercent", amount: amount.computePercent, limit: computePercent };
  }
  if (memoryBytes !== undefined && amount.memoryBytes > memoryBytes) {
    return { resource: "memoryBytes", amount: Number(amount.memoryBytes), limit: Number(memoryBytes) };
  }
  return undefined;
}

/** Whether an amount is within all bounds that are set, of which there is at least one. */
export function isWithinGuarantee(amount: Amount, guaranteed: Quota): boolean {
  const isSet =
    guaranteed.gpuMilli !== undefined ||
    guaranteed.computePercent !== undefined ||
    guaranteed.memoryBytes !== undefined;
  return isSet && excessOf(amount, guaranteed) === undefined;
}

/** The used fraction of a guarantee, by the bound that is used most; from 1 on it is exhausted. */
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
