// SPDX-License-Identifier: Apache-2.0

// Limits of calls by token and by tenant: their rate (a token bucket, as the generic cell rate algorithm of ATM) and the number
// in flight. Calls beyond the rate wait for their turn, so that honest bursts are slowed down and not refused; those beyond the
// longest wait are refused. Administrators are not limited, nor are agents with a shared token.

import { setTimeout as delay } from "node:timers/promises";
import { millpondError } from "@millpond/api";
import type { Caller } from "../domain/caller.ts";

export interface CallLimitOptions {
  /** Changes of a token per second. A tenant may make twice as many, and five times as many calls of all kinds. */
  readonly changesPerSecond: number;
  /** Calls of a token in flight; of a tenant, twice as many. */
  readonly inFlight: number;
  /** Reports that an account is at its limit, at most every ten seconds for each. */
  readonly tell?: (account: string, why: string) => void;
}

export const defaultChangesPerSecond = 100;
export const defaultCallsInFlight = 1024;

/** How many seconds' worth of calls an idle token may save up and then make without delay. */
const burstSeconds = 10;

/** Rate limit for all calls, as a multiple of the limit for changes. */
const callsPerChange = 5;

/** A tenant has this multiple of the limits of a token. */
const tokensPerTenant = 2;

/** The longest that a call waits for its rate: clients take a longer silence for a failure. */
const longestWaitMs = 2_500;

const tellAfterMs = 10_000;

/** Beyond this number of accounts, idle ones are forgotten. */
const manyAccounts = 4096;

/** Rate of one kind of calls of an account. */
class Bucket {
  readonly #intervalMs: number;
  readonly #toleranceMs: number;
  /** The theoretical arrival time of the next call, on the monotonic clock. */
  #nextMs = 0;

  constructor(perSecond: number) {
    this.#intervalMs = 1000 / perSecond;
    this.#toleranceMs = burstSeconds * 1000;
  }

  /** How long a call that comes now has to wait, in milliseconds. */
  delayMs(nowMs: number): number {
    return Math.max(0, this.#nextMs - this.#toleranceMs - nowMs);
  }

  take(nowMs: number): void {
    this.#nextMs = Math.max(this.#nextMs, nowMs) + this.#intervalMs;
  }

  isFull(nowMs: number): boolean {
    return this.#nextMs <= nowMs;
  }
}

class Account {
  readonly name: string;
  readonly changes: Bucket;
  readonly calls: Bucket;
  readonly most: number;
  inFlight = 0;
  toldMs = Number.NEGATIVE_INFINITY;

  constructor(name: string, { changesPerSecond, inFlight }: CallLimitOptions, multiple: number) {
    this.name = name;
    this.changes = new Bucket(multiple * changesPerSecond);
    this.calls = new Bucket(multiple * callsPerChange * changesPerSecond);
    this.most = multiple * inFlight;
  }

  isIdle(nowMs: number): boolean {
    return this.inFlight === 0 && this.changes.isFull(nowMs) && this.calls.isFull(nowMs);
  }
}

export class CallLimits {
  readonly #options: CallLimitOptions;
  readonly #accounts = new Map<string, Account>();

  constructor(options: CallLimitOptions) {
    this.#options = options;
  }

  /**
   * Waits until a call may proceed. The result is disposed of when the call is over.
   *
   * @throws MILLPOND_E_TOO_MANY_CALLS
   */
  async enter(
    caller: Pick<Caller, "name" | "role" | "tenant" | "node">,
    kind: "change" | "call",
  ): Promise<Disposable> {
    const accounts = this.#accountsOf(caller);
    const nowMs = performance.now();
    const buckets = accounts.flatMap((account) => {
      if (account.inFlight >= account.most) {
        this.#refuse(account, `${account.inFlight} of its calls are in flight`, 1);
      }
      const { calls, changes } = account;
      const own = kind === "change" ? [calls, changes] : [calls];
      const ownWaitMs = Math.max(...own.map((bucket) => bucket.delayMs(nowMs)));
      if (ownWaitMs > longestWaitMs) {
        const name = kind === "change" ? "changes" : "calls";
        this.#refuse(
          account,
          `its ${name} would wait ${Math.ceil(ownWaitMs)} ms for its rate`,
          ownWaitMs / 1000,
        );
      }
      return own;
    });
    const waitMs = Math.max(0, ...buckets.map((bucket) => bucket.delayMs(nowMs)));
    for (const bucket of buckets) {
      bucket.take(nowMs);
    }
    for (const account of accounts) {
      account.inFlight += 1;
    }
    if (waitMs > 0) {
      await delay(waitMs, undefined, { ref: false });
    }
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        for (const account of isOver ? [] : accounts) {
          account.inFlight -= 1;
        }
        isOver = true;
      },
    };
  }

  #accountsOf({ name, role, tenant, node }: Pick<Caller, "name" | "role" | "tenant" | "node">): Account[] {
    if (tenant !== "") {
      return [this.#account(`token ${name}`, 1), this.#account(`tenant ${tenant}`, tokensPerTenant)];
    }
    return role === "agent" && node !== undefined ? [this.#account(`token ${name}`, 1)] : [];
  }

  #account(name: string, multiple: number): Account {
    let account = this.#accounts.get(name);
    if (account === undefined) {
      this.#forgetIdle();
      account = new Account(name, this.#options, multiple);
      this.#accounts.set(name, account);
    }
    return account;
  }

  #forgetIdle(): void {
    if (this.#accounts.size < manyAccounts) {
      return;
    }
    const nowMs = performance.now();
    for (const [name, account] of this.#accounts) {
      if (account.isIdle(nowMs)) {
        this.#accounts.delete(name);
      }
    }
  }

  #refuse(account: Account, why: string, retrySeconds: number): never {
    const nowMs = performance.now();
    if (nowMs - account.toldMs >= tellAfterMs) {
      account.toldMs = nowMs;
      this.#options.tell?.(account.name, why);
    }
    const error = millpondError("MILLPOND_E_TOO_MANY_CALLS", `the ${account.name} is at its limit: ${why}`);
    error.metadata.set("retry-after", String(Math.max(1, Math.ceil(retrySeconds))));
    throw error;
  }
}
