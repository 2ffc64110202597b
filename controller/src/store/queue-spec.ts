// SPDX-License-Identifier: Apache-2.0

import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { readMembers, writeMembers } from "../domain/members.ts";

/** As stored: bounds in thousandths of a device, percent and bytes; -1: none is set. */
interface Stored {
  readonly parent: string;
  readonly weight: number;
  readonly borrowing: QueueSpec["borrowing"];
  readonly guaranteedGpuMilli: number;
  readonly guaranteedComputePercent: number;
  readonly guaranteedMemoryBytes: number;
  readonly limitGpuMilli: number;
  readonly limitComputePercent: number;
  readonly limitMemoryBytes: number;
}

const defaults: Stored = {
  parent: "",
  weight: 1,
  borrowing: "any",
  guaranteedGpuMilli: -1,
  guaranteedComputePercent: -1,
  guaranteedMemoryBytes: -1,
  limitGpuMilli: -1,
  limitComputePercent: -1,
  limitMemoryBytes: -1,
};

type Quota = QueueSpec["limit"];

export function writeQueueSpec({ parent, weight, borrowing, guaranteed, limit }: QueueSpec): string {
  return writeMembers<Stored>(
    {
      parent,
      weight,
      borrowing,
      guaranteedGpuMilli: guaranteed.gpuMilli ?? -1,
      guaranteedComputePercent: guaranteed.computePercent ?? -1,
      guaranteedMemoryBytes: Number(guaranteed.memoryBytes ?? -1n),
      limitGpuMilli: limit.gpuMilli ?? -1,
      limitComputePercent: limit.computePercent ?? -1,
      limitMemoryBytes: Number(limit.memoryBytes ?? -1n),
    },
    defaults,
  );
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readQueueSpec(name: string, text: string): QueueSpec {
  const stored = readMembers(text, defaults);
  const { parent, weight, borrowing } = stored;
  const guaranteed = toQuota(
    stored.guaranteedGpuMilli,
    stored.guaranteedComputePercent,
    stored.guaranteedMemoryBytes,
  );
  return { name, parent, weight, borrowing, guaranteed, limit: limitOf(stored) };
}

export function writeTenantSpec({ limit }: TenantSpec): string {
  return writeMembers<Stored>(
    {
      ...defaults,
      limitGpuMilli: limit.gpuMilli ?? -1,
      limitComputePercent: limit.computePercent ?? -1,
      limitMemoryBytes: Number(limit.memoryBytes ?? -1n),
    },
    defaults,
  );
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readTenantSpec(name: string, text: string): TenantSpec {
  return { name, limit: limitOf(readMembers(text, defaults)) };
}

function limitOf(stored: Stored): Quota {
  return toQuota(stored.limitGpuMilli, stored.limitComputePercent, stored.limitMemoryBytes);
}

function toQuota(gpuMilli: number, computePercent: number, memoryBytes: number): Quota {
  return {
    ...(gpuMilli < 0 ? {} : { gpuMilli }),
    ...(computePercent < 0 ? {} : { computePercent }),
    ...(memoryBytes < 0 ? {} : { memoryBytes: BigInt(memoryBytes) }),
  };
}
