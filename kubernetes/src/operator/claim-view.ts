// SPDX-License-Identifier: Apache-2.0

// This operator's view of the pool's claims for pods of this cluster: updated by the pool's events, and
// regularly compared with the full list, because events can be missed.

import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Claim, type ClaimSchema, ClaimState, errorCodeOf } from "@millpond/api";
import type { Connection } from "@millpond/cli";
import type { Logger } from "pino";
import { resourceClaimOfClaim } from "../request/user-claims.ts";
import { clusterLabel, leaseSeconds, podOfClaim } from "../request/pod-claims.ts";

export interface ClaimViewOptions {
  readonly pool: Pick<Connection, "claims" | "pool">;
  /** Value of the cluster's label. */
  readonly cluster: string;
  /** Called for each new, changed or deleted claim. */
  readonly onChange: (name: string) => void;
  readonly log: Logger;
  /** Interval between reads of the pool's events. Default 300 ms. */
  readonly pollMs?: number;
  /** Interval between reads of all claims. Default 5000 ms. */
  readonly compareMs?: number;
}

const leastAheadMs = 3000;

export class ClaimView {
  readonly #options: ClaimViewOptions;
  readonly #claims = new Map<string, Claim>();
  /** Changes of this operator's own, so that an older list does not undo them. */
  #writes = 0;
  #lastEvent = 0n;
  /** When this operator last renewed leases, on its own monotonic clock, because the clock of the pool's machine may differ. */
  readonly #renewedAtMs = new Map<string, number>();
  /** By how much the clock of the pool's controller is ahead of this machine's, in milliseconds. */
  #aheadMs = 0;
  #comparedAtMs = Number.NEGATIVE_INFINITY;
  #isCompared = false;

  constructor(options: ClaimViewOptions) {
    this.#options = options;
  }

  /** Whether all claims of the cluster have been read since the start. */
  get isCompared(): boolean {
    return this.#isCompared;
  }

  get claims(): ReadonlyMap<string, Claim> {
    return this.#claims;
  }

  /** Seconds until a time of the controller's clock, which may differ from this machine's by hours. */
  secondsUntil(unixSeconds: bigint): number {
    return Number(unixSeconds) - Math.floor((Date.now() + this.#aheadMs) / 1000);
  }

  /** Keeps the view current until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { log, pollMs = 300, compareMs = 5000 } = this.#options;
    let isReachable = true;
    while (!signal.aborted) {
      try {
        if (performance.now() - this.#comparedAtMs > compareMs) await this.#compare(signal);
        await this.#takeEvents(signal);
        if (!isReachable) log.info("the pool responds again");
        isReachable = true;
      } catch (error) {
        if (signal.aborted) return;
        if (isReachable) log.warn({ err: error }, "the pool does not answer; nothing is changed meanwhile");
        isReachable = false;
      }
      await delay(isReachable ? pollMs : 1000, undefined, { signal }).catch(() => undefined);
    }
  }

  async create(claim: MessageInitShape<typeof ClaimSchema>): Promise<Claim> {
    const { claims } = this.#options.pool;
    const atMs = performance.now();
    try {
      const answer = await claims.createClaim({ claim }, { timeoutMs: 20_000 });
      this.#renewedAtMs.set(claim.name ?? "", atMs);
      return this.#put(required(answer.claim));
    } catch (error) {
      if (errorCodeOf(error) !== "MILLPOND_E_ALREADY_EXISTS") throw error;
      const there = required((await claims.getClaim({ name: claim.name ?? "" })).claim);
      // An answer was lost, or the claim ended a short while ago: either way it belongs to this pod.
      if (isOfCluster(there, this.#options.cluster)) return this.#put(there);
      await claims.releaseClaim({ name: there.name }, { timeoutMs: 20_000 });
      throw new Error(
        `the tenant ${there.tenant} had taken the name ${there.name}: its claim has been ended`,
        { cause: error },
      );
    }
  }

  /** Ends a claim. Does nothing if the claim does not exist. */
  async release(name: string): Promise<void> {
    try {
      await this.#options.pool.claims.releaseClaim({ name }, { timeoutMs: 20_000 });
    } catch (error) {
      if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
    }
    this.#writes += 1;
    this.#forget(name);
  }

  /** Renews the lease when a third of it has passed since this operator last renewed it, or when it never has. */
  async renew(name: string): Promise<void> {
    const known = this.#claims.get(name);
    if (known === undefined || hasEnded(known)) return;
    const atMs = performance.now();
    const sinceMs = atMs - (this.#renewedAtMs.get(name) ?? Number.NEGATIVE_INFINITY);
    if (sinceMs < (leaseSeconds * 1000) / 3) return;
    const { claim } = await this.#options.pool.claims.waitClaim({ name, timeoutSeconds: 0 });
    this.#renewedAtMs.set(name, atMs);
    this.#put(required(claim));
  }

  /** Values of 0 leave the setting unchanged. */
  async resize(request: {
    readonly name: string;
    readonly memoryBytes: bigint;
    readonly memoryPercent: number;
    readonly computePercent: number;
  }): Promise<Claim> {
    const { claim } = await this.#options.pool.claims.resizeClaim(request, { timeoutMs: 20_000 });
    return this.#put(required(claim));
  }

  /** @param date The controller's time when it answered, in whole seconds: smaller differences are not measurable. */
  #compareClocks(date: string | null): void {
    const sentMs = Date.parse(date ?? "");
    const aheadMs = sentMs + 500 - Date.now();
    if (!Number.isNaN(sentMs)) this.#aheadMs = Math.abs(aheadMs) < leastAheadMs ? 0 : aheadMs;
  }

  /** Reads all claims and reports the differences. */
  async #compare(signal: AbortSignal): Promise<void> {
    const { pool, cluster, onChange } = this.#options;
    if (!this.#isCompared) {
      const { events } = await pool.pool.listEvents({ limit: 1 }, { signal });
      this.#lastEvent = events[0]?.id ?? 0n;
    }
    const writes = this.#writes;
    const onHeader = (header: Headers): void => this.#compareClocks(header.get("date"));
    const { claims } = await pool.claims.listClaims({}, { signal, onHeader });
    if (writes !== this.#writes) return;
    const found = new Set<string>();
    for (const claim of claims) {
      if (!isOfCluster(claim, cluster)) continue;
      found.add(claim.name);
      const known = this.#claims.get(claim.name);
      this.#claims.set(claim.name, claim);
      if (known === undefined || differs(known, claim)) onChange(claim.name);
    }
    for (const [name, claim] of this.#claims) {
      if (found.has(name) || hasEnded(claim)) continue;
      await this.#read(name, signal);
    }
    this.#comparedAtMs = performance.now();
    this.#isCompared = true;
  }

  async #takeEvents(signal: AbortSignal): Promise<void> {
    const { events } = await this.#options.pool.pool.listEvents(
      { after: this.#lastEvent, limit: 1000 },
      { signal },
    );
    const changed = new Set<string>();
    for (const { id, subject } of events) {
      this.#lastEvent = id;
      const name = subject.startsWith("claim/") ? subject.slice("claim/".length) : "";
      if (this.#claims.has(name)) changed.add(name);
    }
    for (const name of changed) await this.#read(name, signal);
    // Any of these events may change the reason of a waiting claim, so the next comparison comes soon.
  }

  async #read(name: string, signal: AbortSignal): Promise<void> {
    const { pool, onChange } = this.#options;
    try {
      const { claim } = await pool.claims.getClaim({ name }, { signal });
      const known = this.#claims.get(name);
      if (claim !== undefined) this.#put(claim);
      if (known === undefined || claim === undefined || differs(known, claim)) onChange(name);
    } catch (error) {
      if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
      this.#forget(name);
      onChange(name);
    }
  }

  #forget(name: string): void {
    this.#claims.delete(name);
    this.#renewedAtMs.delete(name);
  }

  #put(claim: Claim): Claim {
    const known = this.#claims.get(claim.name);
    if (known !== undefined && known.version > claim.version) return known;
    this.#writes += 1;
    this.#claims.set(claim.name, claim);
    return claim;
  }
}

/** Whether an operator of the cluster has created a claim: only administrators may write such names and labels. */
export function isOfCluster({ name, labels }: Pick<Claim, "name" | "labels">, cluster: string): boolean {
  const isOperators = podOfClaim(name) !== undefined || resourceClaimOfClaim(name) !== undefined;
  return isOperators && labels[clusterLabel] === cluster;
}

/** Whether the part of a claim that its pod shows has changed. */
function differs(a: Claim, b: Claim): boolean {
  return a.version !== b.version || a.reason !== b.reason || a.queuePosition !== b.queuePosition;
}

export function hasEnded({ state }: Pick<Claim, "state">): boolean {
  return state === ClaimState.RELEASED || state === ClaimState.FAILED;
}

function required(claim: Claim | undefined): Claim {
  if (claim === undefined) throw new Error("the controller's answer has no claim");
  return claim;
}
