// SPDX-License-Identifier: Apache-2.0

// Validates what a ResourceClaim or ResourceClaimTemplate of a user requests of the pool. Kubernetes' scheduler would leave
// one that nothing can meet waiting forever, and the pool grants no part of a percent.

import type { ResourceV1ResourceClaim } from "@kubernetes/client-node";
import { countOf, formatBytes, millpondError, quote } from "@millpond/api";
import { parseWholeQuantity } from "../request/quantity.ts";
import { requestsForPool } from "../request/user-claims.ts";
import type { PoolLimits } from "./pool-limits.ts";

type DeviceRequests = ResourceV1ResourceClaim["spec"]["devices"];
type Asked = ReturnType<typeof requestsForPool>[number]["asked"];

export interface ClaimChecks {
  readonly domain: string;
  /** Whether a class of this name has only devices of the pool. */
  readonly isOurs: (className: string) => boolean;
  /** Undefined: unknown at present, so sizes are not compared with those of the pool. */
  readonly limits: PoolLimits | undefined;
}

/**
 * An alternative (`firstAvailable`) may be larger than the pool if another one is not.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_IMPOSSIBLE
 */
export function validateRequests({ domain, isOurs, limits }: ClaimChecks, devices: DeviceRequests): void {
  const tooLarge = new Map<string, Error[]>();
  for (const { name, asked } of requestsForPool(domain, devices, isOurs)) {
    if ("adminAccess" in asked && asked.adminAccess) {
      throw refuse(
        name,
        "asks for adminAccess, and devices of the pool are used only through its vGPUs",
        "Leave adminAccess out: administrators see the pool by `millpond get nodes`.",
      );
    }
    for (const [key, amount] of Object.entries(asked.capacity?.requests ?? {}))
      checkCapacity(name, withoutDomain(domain, key), amount);
    const found = findImpossible(domain, name, asked, limits);
    if (found === undefined) continue;
    const [request = name] = name.split("/");
    tooLarge.set(request, [...(tooLarge.get(request) ?? []), found]);
  }
  for (const { name, firstAvailable } of devices?.requests ?? []) {
    const [first, ...others] = tooLarge.get(name) ?? [];
    if (first !== undefined && 1 + others.length === (firstAvailable?.length ?? 1)) throw first;
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

function withoutDomain(domain: string, key: string): string {
  return key.startsWith(`${domain}/`) ? key.slice(domain.length + 1) : key;
}

/** Why no node of the pool can ever meet a request; undefined: one can, or the pool is not known. */
function findImpossible(
  domain: string,
  name: string,
  asked: Asked,
  limits: PoolLimits | undefined,
): Error | undefined {
  if (limits === undefined || limits.mostDevices === 0) return undefined;
  for (const [key, amount] of Object.entries(asked.capacity?.requests ?? {})) {
    if (withoutDomain(domain, key) !== "memory") continue;
    if (parseWholeQuantity(amount, `memory of the request ${quote(name)}`) <= limits.largestDeviceBytes)
      continue;
    return impossible(
      name,
      `${quote(amount)} of memory on one device, and the largest device of the pool has ${formatBytes(limits.largestDeviceBytes)}`,
      "Request less memory of each device, or more devices.",
    );
  }
  const { count = 1 } = asked;
  if (count <= limits.mostDevices) return undefined;
  return impossible(
    name,
    `${countOf(count, "device")}, and no node of the pool has more than ${limits.mostDevices}`,
    "Request fewer: the devices of a claim are on one node of the pool.",
  );
}

/** @throws MILLPOND_E_INVALID */
function checkCapacity(name: string, key: string, amount: string): void {
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
  if (memory >= 1n << 20n) return;
  throw refuse(
    name,
    `asks for ${quote(amount)} of memory, which is less than 1Mi`,
    "Write a size such as 8Gi, or leave it out for the whole device.",
  );
}

function refuse(name: string, what: string, remedy: string): Error {
  return millpondError("MILLPOND_E_INVALID", `the request ${quote(name)} ${what}`, { remedy });
}

function impossible(name: string, what: string, remedy: string): Error {
  return millpondError("MILLPOND_E_IMPOSSIBLE", `the request ${quote(name)} asks for ${what}`, { remedy });
}
