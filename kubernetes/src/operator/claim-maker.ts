// SPDX-License-Identifier: Apache-2.0

// Makes the claims of pods in the pool.

import type { V1Pod } from "@kubernetes/client-node";
import { type Claim, errorCodeOf } from "@millpond/api";
import {
  claimName,
  gangName,
  groupOf,
  podOfClaim,
  type PodIdentity,
  toClaimPriority,
  toClaims,
  type WholeGang,
} from "../request/pod-claims.ts";
import type { PodRequest } from "../request/pod-request.ts";
import { checkQueue, type Tenancy } from "../request/tenancy.ts";
import { type ClaimView, hasEnded } from "./claim-view.ts";
import type { JobGang } from "./gangs/job-size.ts";
import { isPassing, messageOf } from "./pool-errors.ts";
import { nameOf, uidOf } from "./pod-writer.ts";

export interface ClaimMakerOptions {
  readonly cluster: string;
  readonly claims: ClaimView;
  /** Finds a pod by UID; undefined: there is none. */
  readonly findPod: (uid: string) => V1Pod | undefined;
  /** As of now. @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND */
  readonly tenancyOf: (namespace: string) => Promise<Tenancy>;
  readonly jobGangOf: (pod: V1Pod) => Promise<JobGang>;
  /** Makes a tenant where there is none of the name. */
  readonly ensureTenant: (tenant: string) => Promise<void>;
}

/** The claims of a pod, or why it has none: for now, or because the pool refuses them. */
export type Made =
  | { readonly kind: "claims"; readonly claims: readonly Claim[] }
  | { readonly kind: "later"; readonly why: string; readonly againMs: number }
  | { readonly kind: "refused"; readonly why: string; readonly againMs: number };

/** Time after which a refused request of a pod is repeated. Only pods that have not begun ask again for claims that ended. */
const refusedAgainMs = 15_000;
/** Time after which a pod whose gang is ending looks at it again. */
const gangAgainMs = 500;

export class ClaimMaker {
  readonly #options: ClaimMakerOptions;
  /** Tenants known to exist. If one is deleted meanwhile, its next claim fails. */
  readonly #tenants = new Set<string>(["default"]);

  constructor(options: ClaimMakerOptions) {
    this.#options = options;
  }

  /** Returns the pod's claims, created where they are missing. */
  async make(pod: V1Pod, request: PodRequest): Promise<Made> {
    const { claims, cluster } = this.#options;
    const own = request.slices.flatMap((_, index) => claims.claims.get(claimName(uidOf(pod), index)) ?? []);
    if (own.length === request.slices.length) return { kind: "claims", claims: own };
    try {
      const found: Claim[] = [];
      for (const wanted of toClaims(request, await this.#identify(pod, request), cluster)) {
        const known = claims.claims.get(wanted.name ?? "");
        if (known === undefined) {
          const ending = this.#countEnding(pod, wanted.gang ?? "");
          if (ending > 0) {
            const why = `waits until its gang of before has ended: ${ending} of its claims are left`;
            return { kind: "later", why, againMs: gangAgainMs };
          }
          await this.#haveTenant(wanted.tenant ?? "");
        }
        found.push(known ?? (await claims.create(wanted)));
      }
      return { kind: "claims", claims: found };
    } catch (error) {
      const code = errorCodeOf(error);
      if (code === undefined || isPassing(code)) throw error;
      if (code === "MILLPOND_E_NOT_FOUND") this.#tenants.clear();
      return { kind: "refused", why: messageOf(error), againMs: refusedAgainMs };
    }
  }

  /**
   * Number of claims of a gang that end. When a gang was preempted or deleted as a whole, the pods that follow are bound
   * together: none of them may be bound alone in the place of one that has ended before the others.
   */
  #countEnding(pod: V1Pod, gang: string): number {
    const { findPod } = this.#options;
    if (gang === "") return 0;
    return this.#membersOf(gang, uidOf(pod)).filter(
      ({ name, preemptAt }) =>
        preemptAt !== 0n || findPod(podOfClaim(name)?.uid ?? "")?.metadata?.deletionTimestamp !== undefined,
    ).length;
  }

  async #haveTenant(tenant: string): Promise<void> {
    if (this.#tenants.has(tenant)) return;
    await this.#options.ensureTenant(tenant);
    this.#tenants.add(tenant);
  }

  /** @throws MILLPOND_E_FORBIDDEN: whether it may use its queue was only known for an earlier time when it was admitted */
  async #identify(pod: V1Pod, { isWholeJob, slices, options }: PodRequest): Promise<PodIdentity> {
    const { namespace, name } = nameOf(pod);
    const tenancy = await this.#options.tenancyOf(namespace);
    checkQueue(tenancy, options.queue ?? tenancy.queue);
    return {
      namespace,
      name,
      uid: uidOf(pod),
      tenant: tenancy.tenant,
      queue: tenancy.queue,
      priority: toClaimPriority(pod.spec?.priority),
      group: groupOf(pod),
      ...(isWholeJob === true ? { wholeGang: await this.#wholeGang(pod, slices.length) } : {}),
    };
  }

  /**
   * The gang in which the claims of a pod are bound; of one claim: the pod is bound alone. That is so beside a gang that runs
   * and will not have its size again, because some of its pods have succeeded, and beyond one that has it.
   */
  async #wholeGang(pod: V1Pod, slices: number): Promise<WholeGang> {
    const { claims, jobGangOf } = this.#options;
    const uid = uidOf(pod);
    // The size does not matter any more for a pod that has its claims.
    const known = claims.claims.get(claimName(uid, 0));
    if (known !== undefined) return { name: known.gang, claims: known.gangSize };
    const { size, part } = await jobGangOf(pod);
    const group = groupOf(pod) ?? uid;
    const name = gangName(nameOf(pod).namespace, part === undefined ? group : `${group}/${part}`);
    const others = this.#membersOf(name, uid);
    const [member] = others;
    if (member === undefined) return { name, claims: size };
    if (this.#countEnding(pod, name) > 0) return { name, claims: member.gangSize };
    const canJoin = member.gangSize <= size && others.length + slices <= member.gangSize;
    return { name, claims: canJoin ? member.gangSize : 1 };
  }

  /** The claims of a gang, but those of one pod, that have not ended. */
  #membersOf(gang: string, besides: string): Claim[] {
    return [...this.#options.claims.claims.values()].filter(
      (claim) => claim.gang === gang && podOfClaim(claim.name)?.uid !== besides && !hasEnded(claim),
    );
  }
}
