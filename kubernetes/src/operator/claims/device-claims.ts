// SPDX-License-Identifier: Apache-2.0

// The ResourceClaims that keep Kubernetes' own accounting in step with the pool's: each names exactly the
// devices that the pool has granted.

import type { Claim } from "@millpond/api";
import type { ResourceV1ResourceClaim, V1Pod } from "@kubernetes/client-node";
import { briefly, type Cluster, unlessStatus } from "../../cluster/cluster.ts";
import { attributeText } from "../../inventory/resource-slices.ts";
import type { ResourceNames } from "../../request/resource-names.ts";
import { formatQuantity } from "../../request/quantity.ts";
import { keysOf } from "../../request/resource-names.ts";
import { nameOf, ownerReference } from "../pod-writer.ts";

/** Annotation of a ResourceClaim: the claim of the pool that it represents. */
export function claimKey({ domain }: ResourceNames): string {
  return `${domain}/claim`;
}

/** Annotation of a ResourceClaim that the operator has created: the allocation that it represents. */
export function epochKey(names: ResourceNames): string {
  return `${names.domain}/epoch`;
}

export class DeviceClaims {
  readonly #cluster: Cluster;
  readonly #names: ResourceNames;

  constructor(cluster: Cluster, names: ResourceNames) {
    this.#cluster = cluster;
    this.#names = names;
  }

  /**
   * Recreates ResourceClaims without an allocation: a scheduler that found no room for one while it recorded others
   * does not try again until something about it changes.
   *
   * @returns The number of recreated ones.
   */
  async remake(pod: V1Pod, baseName: string, claims: readonly Claim[]): Promise<number> {
    const { namespace } = nameOf(pod);
    const { resource } = this.#cluster;
    let count = 0;
    for (const [index, claim] of claims.entries()) {
      const name = `${baseName}-${index}`;
      const there = await unlessStatus(resource.readNamespacedResourceClaim({ namespace, name }), 404);
      if (there?.status?.allocation !== undefined) continue;
      if (there !== undefined) {
        const { uid = "", resourceVersion = "" } = there.metadata ?? {};
        const preconditions = { uid, resourceVersion };
        // Refused if it has been allocated in the meantime.
        const gone = resource.deleteNamespacedResourceClaim({ namespace, name, body: { preconditions } });
        if ((await unlessStatus(gone, 404, 409)) === undefined) continue;
      }
      const body = toResourceClaim(this.#names, pod, name, claim);
      await unlessStatus(resource.createNamespacedResourceClaim({ namespace, body }, briefly()), 409);
      count += 1;
    }
    return count;
  }

  /** Creates the pod's ResourceClaims. One of an earlier allocation that no pod uses yet is recreated. */
  async make(pod: V1Pod, baseName: string, claims: readonly Claim[]): Promise<void> {
    const { namespace } = nameOf(pod);
    for (const [index, claim] of claims.entries()) {
      const body = toResourceClaim(this.#names, pod, `${baseName}-${index}`, claim);
      const made = await unlessStatus(
        this.#cluster.resource.createNamespacedResourceClaim({ namespace, body }, briefly()),
        409,
      );
      if (made !== undefined) continue;
      const name = body.metadata?.name ?? "";
      const there = await this.#cluster.resource.readNamespacedResourceClaim({ namespace, name });
      const key = epochKey(this.#names);
      const isSame = there.metadata?.annotations?.[key] === body.metadata?.annotations?.[key];
      if (isSame || (there.status?.reservedFor ?? []).length > 0) continue;
      const preconditions = { uid: there.metadata?.uid ?? "" };
      await unlessStatus(
        this.#cluster.resource.deleteNamespacedResourceClaim({ namespace, name, body: { preconditions } }),
        404,
      );
      // Not until it is gone, which a finalizer may delay: the caller tries again.
      await this.#cluster.resource.createNamespacedResourceClaim({ namespace, body }, briefly());
    }
  }
}

/** Whether the scheduler has considered the pod and found no devices for its ResourceClaims. */
export function lacksDevices({ spec, status }: V1Pod): boolean {
  if (spec?.nodeName !== undefined) return false;
  const scheduled = status?.conditions?.find(({ type }) => type === "PodScheduled");
  return scheduled?.reason === "Unschedulable" && /allocate all claims/.test(scheduled.message ?? "");
}

/**
 * Whether a ResourceClaim of the pod names devices that the pod's claim has lost: the claim returned to its queue, and was
 * granted other devices. A resize can move a claim, too, and a lazy claim is allocated often: neither counts. A pure function.
 */
export function isOfLostDevices(
  names: ResourceNames,
  pod: V1Pod,
  { metadata, spec, status }: ResourceV1ResourceClaim,
  claim: Claim,
): boolean {
  const isPods = status?.reservedFor?.some(({ uid }) => uid === pod.metadata?.uid) ?? false;
  const epoch = metadata?.annotations?.[epochKey(names)];
  // A ResourceClaim that is not known to be older may be newer: the pool and the API server are read one after the
  // other.
  const isOlder = /^\d+$/.test(epoch ?? "") && (claim.allocation?.epoch ?? 0n) > BigInt(epoch ?? "");
  if (!isPods || !isOlder || claim.lazy || claim.requeues === 0) return false;
  const now = toResourceClaim(names, pod, metadata?.name ?? "", claim).spec;
  const devicesOf = (each: typeof spec): string =>
    (each.devices?.requests ?? [])
      .flatMap(({ exactly }) => exactly?.selectors ?? [])
      .map(({ cel }) => cel?.expression ?? "")
      .sort()
      .join("\n");
  return devicesOf(spec) !== devicesOf(now);
}

/** The ResourceClaim that represents a claim's allocation. */
export function toResourceClaim(
  names: ResourceNames,
  pod: V1Pod,
  name: string,
  claim: Claim,
): ResourceV1ResourceClaim {
  const { domain } = names;
  const { allocation } = claim;
  const attributes = `device.attributes[${quoteCel(domain)}]`;
  const shares =
    allocation === undefined
      ? // A lazy claim holds nothing yet. The ResourceClaim must still name a device of the driver, otherwise the pod does not get our library.
        [{ selectors: {}, cores: 0, memory: 0n }]
      : allocation.devices.map(({ uuid, computePercent, memoryBytes }) => ({
          selectors: {
            selectors: [
              {
                cel: {
                  expression:
                    `${attributes}.node == ${quoteCel(allocation.node)} && ` +
                    `${attributes}.uuid == ${quoteCel(attributeText(uuid))}`,
                },
              },
            ],
          },
          cores: computePercent,
          memory: memoryBytes,
        }));
  return {
    apiVersion: "resource.k8s.io/v1",
    kind: "ResourceClaim",
    metadata: {
      name,
      namespace: nameOf(pod).namespace,
      labels: { [keysOf(names).managed]: "true" },
      annotations: {
        [epochKey(names)]: String(allocation?.epoch ?? 0n),
        [claimKey(names)]: claim.name,
      },
      ownerReferences: [ownerReference(pod)],
    },
    spec: {
      devices: {
        requests: shares.map(({ selectors, cores, memory }, index) => ({
          name: `gpu-${index}`,
          exactly: {
            deviceClassName: domain,
            allocationMode: "ExactCount",
            count: 1,
            ...selectors,
            capacity: { requests: { cores: String(cores), memory: formatQuantity(memory) } },
          },
        })),
      },
    },
  };
}

function quoteCel(text: string): string {
  return JSON.stringify(text);
}
