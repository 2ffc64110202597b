// SPDX-License-Identifier: Apache-2.0

// Creates the claims of pods in the pool.

import type { V1Pod } from "@kubernetes/client-node";
import { type Claim, ClaimState, countOf, errorCodeOf } from "@millpond/api";
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
  /** Finds a pod by UID; undefined: it does not exist. */
  readonly findPod: (uid: string) => V1Pod | undefined;
  /**
   * Reads the present state.
   *
   * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_NOT_FOUND
   */
  readonly tenancyOf: (namespace: string) => Promise<Tenancy>;
  readonly jobGangOf: (pod: V1Pod) => Promise<JobGang>;
  /** Creates a tenant if there is none of the name. */
  readonly ensureTenant: (tenant: string) => Promise<void>;
}

/** The claims of a pod, or the reason why it has none: for now, or because the pool refuses them. */
export type Made =
  | { readonly kind: "claims"; readonly claims: readonly Claim[] }
  | { readonly kind: "later"; readonly why: string; readonly againMs: number }
  | { readonly kind: "refused"; readonly why: string; readonly againMs: number };

/**
 * Time after which a refused request of a pod is repeated. Only pods that have not started request claims again after
 * theirs have ended.
 */
const refusedAgainMs = 15_000;
/** Time after which a pod whose gang is ending checks it again. */
const gangAgainMs = 500;

export class ClaimMaker {
  readonly #options: ClaimMakerOptions;
  /** Tenants that are known to exist. If one is deleted in the meantime, its next claim fails. */
  readonly #tenants = new Set<string>(["default"]);

  constructor(options: ClaimMakerOptions) {
    this.#options = options;
  }

  /** Returns the pod's claims; creates those that are missing. */
  async make(pod: V1Pod, request: PodRequest): Promise<Made> {
    const { claims, cluster } = this.#options;
    const own = request.slices.flatMap((_, index) => claims.claims.get(claimName(uidOf(pod), index)) ?? []);
    const isWhole = own.length === request.slices.length;
    if (isWhole && !(await this.#isOutdated(pod, request, own))) return { kind: "claims", claims: own };
    if (isWhole) {
      for (const { name } of own) await claims.release(name);
      return { kind: "later", why: resizedGang, againMs: gangAgainMs };
    }
    try {
      const found: Claim[] = [];
      for (const wanted of toClaims(request, await this.#identify(pod, request), cluster)) {
        const known = claims.claims.get(wanted.name ?? "");
        if (known === undefined) {
          const ending = this.#countEnding(pod, wanted.gang ?? "");
          if (ending > 0) {
            const why = `waits until its previous gang has ended: ${countOf(ending, "claim")} of it ${ending === 1 ? "is" : "are"} left`;
            return { kind: "later", why, againMs: gangAgainMs };
          }
          await this.#haveTenant(wanted.tenant ?? "");
        }
        found.push(known ?? (await claims.create(wanted)));
      }
      return { kind: "claims", claims: found };
    } catch (error) {
      if (error instanceof GangIsResized) return { kind: "later", why: resizedGang, againMs: gangAgainMs };
      const code = errorCodeOf(error);
      if (code === undefined || isPassing(code)) throw error;
      if (code === "MILLPOND_E_NOT_FOUND") this.#tenants.clear();
      return { kind: "refused", why: messageOf(error), againMs: refusedAgainMs };
    }
  }

  /**
   * Number of claims of a gang that are ending. When a gang was preempted or deleted as a whole, its replacement pods
   * are bound together: none of them may be bound alone because it replaces a member that ended before the others.
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

  /** @throws MILLPOND_E_FORBIDDEN: at admission, the pod's right to its queue was checked with an earlier state */
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
   * The gang in which the claims of a pod are bound; a gang of one claim: the pod is bound alone. That is the case when
   * its gang is running and will not reach its size again because some of its pods have succeeded, and when the gang
   * already has its size.
   */
  async #wholeGang(pod: V1Pod, slices: number): Promise<WholeGang> {
    const { claims, jobGangOf } = this.#options;
    const uid = uidOf(pod);
    // The size no longer matters for a pod that has its claims.
    const known = claims.claims.get(claimName(uid, 0));
    if (known !== undefined) return { name: known.gang, claims: known.gangSize };
    const { size, part } = await jobGangOf(pod);
    const group = groupOf(pod) ?? uid;
    const name = gangName(nameOf(pod).namespace, part === undefined ? group : `${group}/${part}`);
    const others = this.#membersOf(name, uid);
    const [member] = others;
    if (member === undefined) return { name, claims: size };
    if (this.#countEnding(pod, name) > 0) return { name, claims: member.gangSize };
    // None of the gang runs: all of it is to be bound together in its new size.
    if (member.gangSize > size && others.every(isWaiting)) throw new GangIsResized();
    const canJoin = member.gangSize <= size && others.length + slices <= member.gangSize;
    return { name, claims: canJoin ? member.gangSize : 1 };
  }

  /**
   * Whether the claims of a pod wait in a gang that lacks members and never gets them, because its Job now runs fewer pods
   * at a time than when the claims were created: others have succeeded, or its parallelism was reduced.
   */
  async #isOutdated(pod: V1Pod, { isWholeJob }: PodRequest, own: readonly Claim[]): Promise<boolean> {
    const [{ gang, gangSize } = { gang: "", gangSize: 0 }] = own;
    if (isWholeJob !== true || gang === "" || !own.every(isWaiting)) return false;
    if (this.#membersOf(gang, "").length >= gangSize) return false;
    try {
      return (await this.#options.jobGangOf(pod)).size < gangSize;
    } catch (error) {
      // The Job is gone, and so is the pod soon.
      if (errorCodeOf(error) === undefined) throw error;
      return false;
    }
  }

  /** The claims of a gang that have not ended, except those of one pod. */
  #membersOf(gang: string, besides: string): Claim[] {
    return [...this.#options.claims.claims.values()].filter(
      (claim) => claim.gang === gang && podOfClaim(claim.name)?.uid !== besides && !hasEnded(claim),
    );
  }
}

/** Claims of a gang were created for more members than it gets. Their pods create them again, and others wait for that. */
class GangIsResized extends Error {}

const resizedGang = "waits until its gang has the size that its Job has now";

function isWaiting({ state }: Claim): boolean {
  return state === ClaimState.PENDING;
}
