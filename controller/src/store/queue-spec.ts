// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { readMembers, writeMembers } from "../domain/members.ts";
import { makeTenantSpec } from "../domain/tenant-spec.ts";

/** As stored: bounds in thousandths of a device, percent and bytes; -1: no bound. */
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

/** As stored. */
interface StoredTenant {
  readonly limitGpuMilli: number;
  readonly limitComputePercent: number;
  readonly limitMemoryBytes: number;
  /** The limits of each user. */
  readonly userLimitGpuMilli: number;
  readonly userLimitComputePercent: number;
  readonly userLimitMemoryBytes: number;
  /** Name and bounds: GPUs, compute, memory. */
  readonly userLimits: readonly (readonly [string, number, number, number])[];
}

const tenantDefaults: StoredTenant = {
  limitGpuMilli: -1,
  limitComputePercent: -1,
  limitMemoryBytes: -1,
  userLimitGpuMilli: -1,
  userLimitComputePercent: -1,
  userLimitMemoryBytes: -1,
  userLimits: [],
};

export function writeTenantSpec({ limit, userLimit = {}, userLimits = new Map() }: TenantSpec): string {
  const [limitGpuMilli, limitComputePercent, limitMemoryBytes] = fromQuota(limit);
  const [userLimitGpuMilli, userLimitComputePercent, userLimitMemoryBytes] = fromQuota(userLimit);
  return writeMembers<StoredTenant>(
    {
      limitGpuMilli,
      limitComputePercent,
      limitMemoryBytes,
      userLimitGpuMilli,
      userLimitComputePercent,
      userLimitMemoryBytes,
      userLimits: [...userLimits].map(([user, own]) => [user, ...fromQuota(own)] as const),
    },
    tenantDefaults,
  );
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readTenantSpec(name: string, text: string): TenantSpec {
  const stored = readMembers(text, tenantDefaults);
  const userLimit = toQuota(
    stored.userLimitGpuMilli,
    stored.userLimitComputePercent,
    stored.userLimitMemoryBytes,
  );
  const userLimits = new Map(stored.userLimits.map((own) => [own[0], toQuota(own[1], own[2], own[3])]));
  const areRead = [...userLimits].every(
    ([user, own]) => typeof user === "string" && Object.values(own).every((bound) => bound >= 0),
  );
  if (!areRead) {
    throw millpondError(
      "MILLPOND_E_STATE_BROKEN",
      `the state has limits of users that cannot be read: ${text}`,
    );
  }
  return makeTenantSpec({ name, limit: limitOf(stored), userLimit, userLimits });
}

function fromQuota({ gpuMilli, computePercent, memoryBytes }: Quota): [number, number, number] {
  return [gpuMilli ?? -1, computePercent ?? -1, Number(memoryBytes ?? -1n)];
}

function limitOf(stored: Pick<Stored, "limitGpuMilli" | "limitComputePercent" | "limitMemoryBytes">): Quota {
  return toQuota(stored.limitGpuMilli, stored.limitComputePercent, stored.limitMemoryBytes);
}

function toQuota(gpuMilli: number, computePercent: number, memoryBytes: number): Quota {
  return {
    ...(gpuMilli < 0 ? {} : { gpuMilli }),
    ...(computePercent < 0 ? {} : { computePercent }),
    ...(memoryBytes < 0 ? {} : { memoryBytes: BigInt(memoryBytes) }),
  };
}
