// SPDX-License-Identifier: Apache-2.0

// Renews the leases of a cluster's claims. While its API server does not respond, no replica is the leader, and none can know which
// pods still exist; but kubelets keep running them, so their claims must not end. Every replica then renews all of them. Two
// renewals of a lease do no harm, and the next leader ends a claim whose pod is gone.

import { setTimeout as delay } from "node:timers/promises";
import type { Connection } from "@millpond/cli";
import type { Logger } from "pino";
import { leaseSeconds } from "../../request/pod-claims.ts";
import { type ClaimView, hasEnded, isOfCluster } from "../claim-view.ts";

export interface LeaseKeeperOptions {
  readonly pool: Pick<Connection, "claims">;
  /** Value of the cluster's label. */
  readonly cluster: string;
  /** For how long the API server has not responded, in milliseconds. */
  readonly silentMs: () => number;
  readonly log: Logger;
  /** Silence that a leader survives. Default 30,000. */
  readonly patienceMs?: number;
  /** Interval between renewals. Default: a fifth of the lease. */
  readonly periodMs?: number;
}

const renewMs = 10_000;

/** Renews the leases of the claims that the leader sees, until `signal` is aborted. */
export async function renewLeases(claims: ClaimView, signal: AbortSignal, log: Logger): Promise<void> {
  while (!signal.aborted) {
    for (const name of claims.claims.keys()) {
      if (signal.aborted) return;
      try {
        await claims.renew(name);
      } catch (error) {
        log.warn({ err: error, claim: name }, "a lease could not be renewed");
      }
    }
    await delay(renewMs, undefined, { signal }).catch(() => undefined);
  }
}

/** Renews all leases of the cluster's claims whenever its API server does not respond, until `signal` is aborted. */
export async function keepLeases(options: LeaseKeeperOptions, signal: AbortSignal): Promise<void> {
  const { silentMs, log, patienceMs = 30_000, periodMs = (leaseSeconds * 1000) / 5 } = options;
  let isSilent = false;
  while (!signal.aborted) {
    const wasSilent = isSilent;
    isSilent = silentMs() > patienceMs;
    if (isSilent && !wasSilent)
      log.warn("the API server does not respond: claims of its pods are kept until it does");
    try {
      if (isSilent) await renewAll(options, signal);
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, "claims could not be renewed, and will be again");
    }
    await delay(periodMs, undefined, { signal }).catch(() => undefined);
  }
}

async function renewAll({ pool, cluster, log }: LeaseKeeperOptions, signal: AbortSignal): Promise<void> {
  const { claims } = await pool.claims.listClaims({}, { signal });
  for (const claim of claims) {
    if (!isOfCluster(claim, cluster) || hasEnded(claim)) continue;
    try {
      await pool.claims.waitClaim({ name: claim.name, timeoutSeconds: 0 }, { signal });
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error, claim: claim.name }, "a lease could not be renewed");
    }
  }
}
