// SPDX-License-Identifier: Apache-2.0

// Creates claims of the pool for devices that Kubernetes' scheduler has itself allocated, for ResourceClaims that users
// write, and ends them together with the ResourceClaims. The pool's answer is written onto the ResourceClaim: until the
// claim is granted, nodes prepare nothing.

import { type Claim, ClaimState, errorCodeOf, millpondError, type Node } from "@millpond/api";
import type { ResourceV1ResourceClaim, V1Pod } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { asMergePatch, type Cluster, unlessStatus } from "../../cluster/cluster.ts";
import { parseOwner, toClaimPriority } from "../../request/pod-claims.ts";
import { keysOf, type ResourceNames } from "../../request/resource-names.ts";
import type { Tenancy } from "../../request/tenancy.ts";
import {
  allocatedOf,
  requestOf,
  requestsOf,
  resourceClaimOf,
  resourceClaimOfClaim,
  toUserClaim,
  type UserClaim,
  userClaimName,
} from "../../request/user-claims.ts";
import { visibleKey } from "../../webhook/mutate-user-claims.ts";
import { type ClaimView, hasEnded } from "../claim-view.ts";
import { claimKey, epochKey } from "./device-claims.ts";

export interface UserClaimsOptions {
  readonly cluster: Cluster;
  readonly names: ResourceNames;
  /** Value of the cluster's label. */
  readonly clusterId: string;
  readonly claims: ClaimView;
  /** By UID. */
  readonly resourceClaims: ReadonlyMap<string, ResourceV1ResourceClaim>;
  /** Pods that use the pool, by UID. */
  readonly pods: ReadonlyMap<string, V1Pod>;
  /** Undefined: not known yet. */
  readonly nodes: () => readonly Node[] | undefined;
  /**
   * Reads the present state.
   *
   * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND
   */
  readonly tenancyOf: (namespace: string) => Promise<Tenancy>;
  readonly ensureTenant: (tenant: string) => Promise<void>;
  /** Called with the pods to be processed. */
  readonly onChange: (podUid: string) => void;
  readonly log: Logger;
}

/** Annotation of a ResourceClaim that a user has written: why the pool has not granted it yet. */
export function waitsKey({ domain }: ResourceNames): string {
  return `${domain}/waits`;
}

const nodesUnknownMs = 500;
const refusedAgainMs = 15_000;

export class UserClaims {
  readonly #options: UserClaimsOptions;
  /** By UID of the ResourceClaim. */
  readonly #refusals = new Map<string, string>();

  constructor(options: UserClaimsOptions) {
    this.#options = options;
  }

  /**
   * The claim of the pool for a pod's ResourceClaim, or the reason why the pool refuses it; undefined: nothing is
   * allocated yet.
   */
  find(namespace: string, name: string): Claim | string | undefined {
    const { resourceClaims, names, claims } = this.#options;
    for (const each of resourceClaims.values()) {
      if (each.metadata?.name !== name || each.metadata.namespace !== namespace) continue;
      const claimName = userClaimName(names.domain, each);
      if (claimName === undefined) return undefined;
      return claims.claims.get(claimName) ?? this.#refusals.get(each.metadata.uid ?? "");
    }
    return undefined;
  }

  /** Positions in the granted claim of the devices that each container sees which sees a part of them: `0,1`. */
  visibleOf(pod: V1Pod, { claim, containers }: UserClaim, { allocation }: Claim): Record<string, string> {
    const { resourceClaims, names, nodes } = this.#options;
    const { devices = [] } = nodes()?.find(({ name }) => name === allocation?.node) ?? {};
    const resourceClaim = [...resourceClaims.values()].find(
      ({ metadata }) =>
        metadata?.name === resourceClaimOf(pod, claim) && metadata?.namespace === pod.metadata?.namespace,
    );
    const results = resourceClaim === undefined ? [] : allocatedOf(names.domain, resourceClaim);
    const positionsOf = (requests: readonly string[]): string => {
      const own = results.filter((each) => requests.includes(requestOf(each)));
      const used = new Set(own.map(({ device }) => device));
      const seen = devices.filter(({ index }) => used.has(`gpu-${index}`));
      const uuids = new Set(seen.map(({ uuid }) => uuid));
      return (allocation?.devices ?? [])
        .flatMap(({ uuid }, position) => (uuids.has(uuid) ? [position] : []))
        .join(",");
    };
    return Object.fromEntries(
      containers.flatMap((container) => {
        const requests = requestsOf(pod, claim, container);
        return requests.length === 0 ? [] : [[visibleKey(container), positionsOf(requests)] as const];
      }),
    );
  }

  /** Whether a ResourceClaim was not created by the operator itself. */
  #isUsers({ metadata }: ResourceV1ResourceClaim): boolean {
    return metadata?.annotations?.[epochKey(this.#options.names)] === undefined;
  }

  /**
   * @param uid UID of a ResourceClaim.
   * @returns Milliseconds after which to process it again; undefined: when something changes.
   */
  async reconcile(uid: string): Promise<number | undefined> {
    const { resourceClaims, names, claims, onChange } = this.#options;
    const resourceClaim = resourceClaims.get(uid);
    const isUsed = resourceClaim !== undefined && resourceClaim.metadata?.deletionTimestamp === undefined;
    const wanted = isUsed ? userClaimName(names.domain, resourceClaim) : undefined;
    await this.#endOthers(uid, wanted, resourceClaim);
    if (resourceClaim === undefined || wanted === undefined || !this.#isUsers(resourceClaim))
      return undefined;
    let claim = claims.claims.get(wanted);
    let again: number | undefined;
    let refusal = "";
    this.#refusals.delete(uid);
    if (claim === undefined) {
      const nodes = this.#options.nodes();
      if (nodes === undefined) return nodesUnknownMs;
      try {
        claim = await this.#create(resourceClaim, nodes);
      } catch (error) {
        if (errorCodeOf(error) === undefined) throw error;
        refusal = error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
        this.#refusals.set(uid, refusal);
        again = refusedAgainMs;
      }
    }
    await this.#annotate(resourceClaim, claim, refusal);
    for (const { uid: pod } of resourceClaim.status?.reservedFor ?? []) onChange(pod);
    return again;
  }

  /**
   * The name of a pod that the webhook has not prepared, because its ResourceClaim or the template of that did not exist yet, or
   * because no operator responded: that webhook fails open, since it sees pods of all drivers;
   * undefined: there is none, or another pod of the same ResourceClaim is prepared.
   */
  async #findEarlyPod({ metadata, status }: ResourceV1ResourceClaim): Promise<string | undefined> {
    const { cluster, names, pods } = this.#options;
    const users = (status?.reservedFor ?? []).filter(({ resource }) => resource === "pods");
    if (users.some(({ uid }) => pods.has(uid))) return undefined;
    for (const { name, uid } of users) {
      const at = { namespace: metadata?.namespace ?? "", name };
      const pod = await unlessStatus(cluster.core.readNamespacedPod(at), 404);
      const isPrepared = pod?.metadata?.labels?.[keysOf(names).managed] !== undefined;
      if (pod?.metadata?.uid === uid && !isPrepared) return name;
    }
    return undefined;
  }

  async #create(resourceClaim: ResourceV1ResourceClaim, nodes: readonly Node[]): Promise<Claim> {
    const { names, claims, clusterId, tenancyOf, ensureTenant, pods } = this.#options;
    const early = await this.#findEarlyPod(resourceClaim);
    if (early !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the pod ${early} was created before its ResourceClaim or ResourceClaimTemplate, or while no operator responded, so it has no access to the pool: delete it and create it again`,
      );
    }
    const { tenant, queue } = await tenancyOf(resourceClaim.metadata?.namespace ?? "");
    const priorities = (resourceClaim.status?.reservedFor ?? []).flatMap(
      ({ uid }) => pods.get(uid)?.spec?.priority ?? [],
    );
    const priority = toClaimPriority(priorities.length === 0 ? 0 : Math.max(...priorities));
    const owner = { tenant, queue, priority, cluster: clusterId };
    const wanted = toUserClaim(names.domain, resourceClaim, nodes, owner);
    await ensureTenant(tenant);
    return await claims.create(wanted);
  }

  /** Read by the node plugin, and shown to users. */
  async #annotate(
    resourceClaim: ResourceV1ResourceClaim,
    claim: Claim | undefined,
    refusal: string,
  ): Promise<void> {
    const { cluster, names } = this.#options;
    const isBound = claim?.state === ClaimState.BOUND;
    const granted = isBound ? claim.name : undefined;
    const waits = isBound ? undefined : refusal === "" ? (claim?.reason ?? "") : refusal;
    const { annotations = {}, name = "", namespace = "", uid } = resourceClaim.metadata ?? {};
    if (annotations[claimKey(names)] === granted && annotations[waitsKey(names)] === waits) return;
    const body = {
      metadata: {
        uid,
        annotations: { [claimKey(names)]: granted ?? null, [waitsKey(names)]: waits ?? null },
      },
    };
    await unlessStatus(
      cluster.resource.patchNamespacedResourceClaim({ namespace, name, body }, asMergePatch),
      404,
      409,
    );
  }

  /** Ends the claims of a ResourceClaim that belong to another allocation than its present one. */
  async #endOthers(
    uid: string,
    wanted: string | undefined,
    known: ResourceV1ResourceClaim | undefined,
  ): Promise<void> {
    const { claims, cluster, names } = this.#options;
    const others = [...claims.claims.values()].filter(
      (claim) => resourceClaimOfClaim(claim.name) === uid && claim.name !== wanted,
    );
    for (const claim of others) {
      if (known === undefined && !hasEnded(claim)) {
        // A copy of the cluster's ResourceClaims may be older than a claim that another operator has made.
        const there = (await readOwners(cluster, claim.owner)).find(({ metadata }) => metadata?.uid === uid);
        if (there !== undefined && allocatedOf(names.domain, there).length > 0) continue;
      }
      await claims.release(claim.name);
    }
  }
}

/** The ResourceClaims that an owner may refer to: an owner holds only as much of a name as fits. */
async function readOwners({ resource }: Cluster, owner: string): Promise<ResourceV1ResourceClaim[]> {
  const { namespace, name } = parseOwner("resourceclaim", owner) ?? {};
  if (namespace === undefined) return [];
  if (name === undefined) return (await resource.listNamespacedResourceClaim({ namespace })).items;
  const found = await unlessStatus(resource.readNamespacedResourceClaim({ namespace, name }), 404);
  return found === undefined ? [] : [found];
}
