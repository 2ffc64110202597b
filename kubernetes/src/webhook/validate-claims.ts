// SPDX-License-Identifier: Apache-2.0

// Validates what a ResourceClaim or ResourceClaimTemplate of a user requests of the pool. Kubernetes' scheduler would leave
// one that nothing can meet waiting forever, and the pool grants no part of a percent.

import type { ResourceV1ResourceClaim } from "@kubernetes/client-node";
import { countOf, formatBytes, millpondError, quote } from "@millpond/api";
import { parseWholeQuantity } from "../request/quantity.ts";
import { requestsForPool } from "../request/user-claims.ts";
import type { PoolLimits } from "./pool-limits.ts";

type DeviceRequests = ResourceV1ResourceClaim["spec"]["devices"];

export interface ClaimChecks {
  readonly domain: string;
  /** Whether a class of this name has only devices of the pool. */
  readonly isOurs: (className: string) => boolean;
  /** Undefined: unknown at present, so sizes are not compared with those of the pool. */
  readonly limits: PoolLimits | undefined;
}

/** @throws MILLPOND_E_INVALID, MILLPOND_E_IMPOSSIBLE */
export function validateRequests({ domain, isOurs, limits }: ClaimChecks, devices: DeviceRequests): void {
  for (const { name, asked } of requestsForPool(domain, devices, isOurs)) {
    if ("adminAccess" in asked && asked.adminAccess) {
      throw refuse(
        name,
        "asks for adminAccess, and devices of the pool are used only through its vGPUs",
        "Leave adminAccess out: administrators see the pool by `millpond get nodes`.",
      );
    }
    for (const [key, amount] of Object.entries(asked.capacity?.requests ?? {}))
      checkCapacity(name, key.startsWith(`${domain}/`) ? key.slice(domain.length + 1) : key, amount, limits);
    const { count = 1 } = asked;
    if (limits !== undefined && limits.mostDevices > 0 && count > limits.mostDevices) {
      throw impossible(
        name,
        `${countOf(count, "device")}, and no node of the pool has more than ${limits.mostDevices}`,
        "Request fewer: the devices of a claim are on one node of the pool.",
      );
    }
  }
  const parameters = devices?.config?.find(({ opaque }) => opaque?.driver === domain);
  if (parameters === undefined) return;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `the claim has parameters for the driver ${domain}, which takes none`,
    {
      remedy: "Leave its config out: capacity and selectors say what it gets.",
    },
  );
}

function checkCapacity(name: string, key: string, amount: string, limits: PoolLimits | undefined): void {
  if (key === "cores") {
    const cores = parseWholeQuantity(amount, `cores of the request ${quote(name)}`);
    if (cores >= 1n && cores <= 100n) return;
    throw refuse(
      name,
      `asks for ${quote(amount)} of cores, which is not within 1 and 100`,
      "Cores are percent of each device; leave them out for all.",
    );
  }
  if (key !== "memory") {
    throw refuse(
      name,
      `asks for ${quote(key)}, which devices of the pool do not have`,
      "Their capacity is cores and memory.",
    );
  }
  const memory = parseWholeQuantity(amount, `memory of the request ${quote(name)}`);
  if (memory < 1n << 20n) {
    throw refuse(
      name,
      `asks for ${quote(amount)} of memory, which is less than 1Mi`,
      "Write a size such as 8Gi, or leave it out for the whole device.",
    );
  }
  if (limits === undefined || limits.mostDevices === 0 || memory <= limits.largestDeviceBytes) return;
  throw impossible(
    name,
    `${quote(amount)} of memory on one device, and the largest device of the pool has ${formatBytes(limits.largestDeviceBytes)}`,
    "Request less memory of each device, or more devices.",
  );
}

function refuse(name: string, what: string, remedy: string): Error {
  return millpondError("MILLPOND_E_INVALID", `the request ${quote(name)} ${what}`, { remedy });
}

function impossible(name: string, what: string, remedy: string): Error {
  return millpondError("MILLPOND_E_IMPOSSIBLE", `the request ${quote(name)} asks for ${what}`, { remedy });
}
