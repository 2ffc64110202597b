// SPDX-License-Identifier: Apache-2.0

// Leader election among operators: the leader holds a Lease of coordination.k8s.io. An instance judges its expiry by the
// time since it last saw the Lease change, on its own monotonic clock, so the clocks of other machines do not matter.

import { setTimeout as delay } from "node:timers/promises";
import type { V1Lease } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { asMergePatch, type Cluster, describeFailure, statusOf, unlessStatus } from "./cluster.ts";

export interface LeaderElectionOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  /** Name of the Lease. */
  readonly name: string;
  /**
   * Identifies this process among the candidates. A restarted process with the same identity need not wait for its own
   * Lease.
   */
  readonly identity: string;
  readonly log: Logger;
  /** Time without a renewal after which another instance may take over. Default 15. */
  readonly leaseSeconds?: number;
  /** Default 2000. */
  readonly retryMs?: number;
}

export class LeaderElection {
  readonly #options: Required<LeaderElectionOptions>;
  #seen = "";
  #seenAtMs = 0;
  #leads = false;
  #heardAtMs = performance.now();

  constructor(options: LeaderElectionOptions) {
    this.#options = { leaseSeconds: 15, retryMs: 2000, ...options };
  }

  get leads(): boolean {
    return this.#leads;
  }

  /** Time since the API server last answered about the Lease, in milliseconds. */
  get silentMs(): number {
    return performance.now() - this.#heardAtMs;
  }

  /**
   * Waits until this instance is the leader, runs `work`, and repeats, until `signal` is aborted. The signal of `work` is
   * aborted when the Lease was not renewed for two thirds of its duration: before another instance may take over.
   */
  async run(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { log, retryMs } = this.#options;
    while (!signal.aborted) {
      if (await this.#tryAcquire()) {
        log.info({ identity: this.#options.identity }, "leads");
        await this.#lead(signal, work);
      } else {
        await delay(retryMs * (0.8 + 0.4 * Math.random()), undefined, { signal }).catch(() => undefined);
      }
    }
  }

  async #lead(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { leaseSeconds, retryMs, log } = this.#options;
    const lost = new AbortController();
    const stop = AbortSignal.any([signal, lost.signal]);
    this.#leads = true;
    const done = new AbortController();
    const renewing = (async () => {
      const patienceMs = (leaseSeconds * 1000 * 2) / 3;
      let renewedAtMs = performance.now();
      for (;;) {
        await delay(retryMs, undefined, { signal: done.signal }).catch(() => undefined);
        if (done.signal.aborted) return;
        // A server that accepts the call and does not answer must not keep this instance the leader.
        const isOver = new AbortController();
        const askedAtMs = performance.now();
        const over = delay(Math.max(0, renewedAtMs + patienceMs - askedAtMs), false, {
          signal: AbortSignal.any([isOver.signal, done.signal]),
        });
        const isRenewed = await Promise.race([this.#tryAcquire(), over.catch(() => false)]);
        isOver.abort();
        if (isRenewed) renewedAtMs = askedAtMs;
        else if (performance.now() - renewedAtMs >= patienceMs) {
          log.warn("no longer the leader: the lease could not be renewed");
          lost.abort();
          return;
        }
      }
    })();
    try {
      await work(stop);
    } finally {
      done.abort();
      await renewing;
      this.#leads = false;
      if (!lost.signal.aborted) await this.#release();
    }
  }

  /** Acquires or renews the Lease. Returns false when another instance holds it, or the server does not answer. */
  async #tryAcquire(): Promise<boolean> {
    const { cluster, namespace, name, leaseSeconds, log } = this.#options;
    try {
      const lease = await unlessStatus(cluster.coordination.readNamespacedLease({ name, namespace }), 404);
      this.#heardAtMs = performance.now();
      if (lease === undefined) {
        await cluster.coordination.createNamespacedLease({
          namespace,
          body: { metadata: { name }, spec: this.#spec(undefined) },
        });
        return true;
      }
      const { holderIdentity = "", renewTime } = lease.spec ?? {};
      const mark = `${lease.metadata?.resourceVersion} ${String(renewTime)}`;
      if (mark !== this.#seen) {
        this.#seen = mark;
        this.#seenAtMs = performance.now();
      }
      const isFree =
        holderIdentity === "" ||
        holderIdentity === this.#options.identity ||
        performance.now() - this.#seenAtMs > (lease.spec?.leaseDurationSeconds ?? leaseSeconds) * 1000;
      if (!isFree) return false;
      await cluster.coordination.patchNamespacedLease(
        {
          namespace,
          name,
          body: {
            // The server refuses this if another instance has written in the meantime.
            metadata: { resourceVersion: lease.metadata?.resourceVersion },
            spec: this.#spec(lease),
          },
        },
        asMergePatch,
      );
      return true;
    } catch (error) {
      if (statusOf(error) !== 409)
        log.debug({ failure: describeFailure(error) }, "the lease cannot be acquired");
      return false;
    }
  }

  #spec(lease: V1Lease | undefined): Record<string, unknown> {
    const now = new Date().toISOString().replace("Z", "000Z");
    const isOurs = lease?.spec?.holderIdentity === this.#options.identity;
    return {
      holderIdentity: this.#options.identity,
      leaseDurationSeconds: this.#options.leaseSeconds,
      renewTime: now,
      ...(isOurs ? {} : { acquireTime: now, leaseTransitions: (lease?.spec?.leaseTransitions ?? -1) + 1 }),
    };
  }

  /** Releases the Lease, so that the next instance need not wait for its expiry. */
  async #release(): Promise<void> {
    const { cluster, namespace, name, log } = this.#options;
    try {
      const lease = await cluster.coordination.readNamespacedLease({ name, namespace });
      if (lease.spec?.holderIdentity !== this.#options.identity) return;
      const body = {
        metadata: { resourceVersion: lease.metadata?.resourceVersion },
        spec: { holderIdentity: "", leaseDurationSeconds: 1 },
      };
      await cluster.coordination.patchNamespacedLease({ namespace, name, body }, asMergePatch);
    } catch (error) {
      log.debug({ failure: describeFailure(error) }, "the lease could not be released and will expire");
    }
  }
}
