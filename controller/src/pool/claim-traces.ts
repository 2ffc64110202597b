// SPDX-License-Identifier: Apache-2.0

// The life of claims as traces: how long each waited, how long it took until its program was attached, and until its
// first kernel.

import { createHash } from "node:crypto";
import { mayKnowAll, renderReason } from "@millpond/api";
import type { Span } from "@millpond/platform";
import { type AllocationRecord, type ClaimRecord, isLive } from "../domain/records.ts";
import type { SessionFacts } from "../domain/agent-report.ts";
import type { CancelTimer, Clock } from "../timers/clock.ts";

/** What tracing reads of the pool. */
export interface TracedPool {
  readonly claim: (name: string) => ClaimRecord | undefined;
  readonly allocation: (claim: string) => AllocationRecord | undefined;
  readonly sessions: (node: string) => Iterable<SessionFacts>;
}

/** A claim whose trace is not complete. Times are Unix milliseconds. */
interface Traced {
  readonly claim: ClaimRecord;
  readonly createdMs: number;
  waitingMs: number;
  /** Epoch of the allocation to which it is bound; 0: none. */
  epoch: number;
  boundMs: number;
  /** 0: no program has attached to this allocation. */
  attachedMs: number;
  hasStarted: boolean;
  /** Number of its spans so far. */
  spans: number;
}

/** How often sessions are checked while a bound claim has run no kernel. */
const lookMs = 250;
/** Claims beyond this number are not traced. */
const mostTraced = 20_000;
/** A claim that is first seen this long after its creation was created under another leader. */
const newMs = 2000;

export class ClaimTraces {
  readonly #add: (span: Span) => void;
  readonly #clock: Clock;
  readonly #traced = new Map<string, Traced>();
  /** Names of the bound claims that have run no kernel yet. */
  readonly #starting = new Set<string>();
  #pool: TracedPool | undefined;
  #timer: CancelTimer | undefined;

  constructor(add: (span: Span) => void, clock: Clock) {
    this.#add = add;
    this.#clock = clock;
  }

  /** Takes note of changed claims. The leader calls it; another `pool` object means a new term of leadership. */
  learn(pool: TracedPool, names: Iterable<string>): void {
    if (this.#pool !== pool) {
      this.#traced.clear();
      this.#starting.clear();
      this.#pool = pool;
    }
    const nowMs = this.#clock.unixMs();
    for (const name of names) {
      this.#learn(pool, name, nowMs);
    }
    this.#setTimer();
  }

  #learn(pool: TracedPool, name: string, nowMs: number): void {
    const claim = pool.claim(name);
    let traced = this.#traced.get(name);
    // A claim of the same name may have been created after the previous one ended.
    if (traced !== undefined && traced.claim.createdAt !== claim?.createdAt) {
      this.#forget(name);
      traced = undefined;
    }
    if (claim === undefined) {
      return;
    }
    if (traced === undefined) {
      if (!isLive(claim) || this.#traced.size >= mostTraced) {
        return;
      }
      const recordedMs = claim.createdAt * 1000;
      const createdMs = nowMs - recordedMs < newMs ? nowMs : recordedMs;
      traced = {
        claim,
        createdMs,
        waitingMs: createdMs,
        epoch: 0,
        boundMs: 0,
        attachedMs: 0,
        hasStarted: false,
        spans: 0,
      };
      this.#traced.set(name, traced);
    }
    const allocation = pool.allocation(name);
    if (allocation !== undefined && allocation.epoch !== traced.epoch) {
      this.#span(traced, claim, "wait", traced.waitingMs, nowMs, { "millpond.node": allocation.node });
      Object.assign(traced, { epoch: allocation.epoch, boundMs: nowMs, attachedMs: 0, hasStarted: false });
      this.#starting.add(name);
    } else if (allocation === undefined && traced.epoch !== 0) {
      Object.assign(traced, { epoch: 0, waitingMs: nowMs });
      this.#starting.delete(name);
    }
    if (!isLive(claim)) {
      const error =
        claim.state === "failed" && claim.reason ? renderReason(claim.reason, mayKnowAll) : undefined;
      this.#add({
        ...this.#root(traced),
        name: "claim",
        startMs: traced.createdMs,
        endMs: nowMs,
        attributes: { ...attributesOf(claim), "millpond.claim.state": claim.state },
        error,
      });
      this.#forget(name);
    }
  }

  #forget(name: string): void {
    this.#traced.delete(name);
    this.#starting.delete(name);
  }

  /** Sessions are known from agents' reports, so the precision of their times is the interval between two reports. */
  #look(): void {
    const nowMs = this.#clock.unixMs();
    for (const name of this.#starting) {
      const traced = this.#traced.get(name);
      const node = this.#pool?.allocation(name)?.node;
      if (traced === undefined || node === undefined) {
        continue;
      }
      for (const session of this.#pool?.sessions(node) ?? []) {
        if (session.epoch !== traced.epoch || !session.hasClient) {
          continue;
        }
        const attributes = {
          "millpond.node": node,
          "millpond.transport": session.transport,
          "process.pid": session.clientPid,
        };
        if (traced.attachedMs === 0) {
          traced.attachedMs = nowMs;
          this.#span(traced, traced.claim, "attach", traced.boundMs, nowMs, attributes);
        }
        if (session.launches > 0n) {
          this.#span(traced, traced.claim, "first kernel", traced.attachedMs, nowMs, attributes);
          this.#starting.delete(name);
          break;
        }
      }
    }
    this.#setTimer();
  }

  #setTimer(): void {
    if (this.#starting.size > 0) {
      this.#timer ??= this.#clock.after(lookMs, () => {
        this.#timer = undefined;
        this.#look();
      });
    }
  }

  #span(
    traced: Traced,
    claim: ClaimRecord,
    name: string,
    startMs: number,
    endMs: number,
    more: Span["attributes"],
  ): void {
    const { traceId, spanId: parentSpanId } = this.#root(traced);
    traced.spans += 1;
    const spanId = digest(`${traceId} ${traced.spans}`).slice(0, 16);
    const attributes = { ...attributesOf(claim), ...more };
    this.#add({ traceId, spanId, parentSpanId, name, startMs, endMs, attributes });
  }

  /** Every controller derives the same id, so that a trace continues after a takeover. */
  #root({ claim }: Traced): { readonly traceId: string; readonly spanId: string } {
    const hash = digest(`${claim.name} ${claim.createdAt}`);
    return { traceId: hash.slice(0, 32), spanId: hash.slice(32, 48) };
  }

  /** Ends tracing: pending spans are dropped. */
  [Symbol.dispose](): void {
    this.#timer?.();
    this.#starting.clear();
  }
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function attributesOf({ name, tenant, queue, gpus, owner }: ClaimRecord): Record<string, string | number> {
  return {
    "millpond.claim": name,
    "millpond.tenant": tenant,
    "millpond.queue": queue,
    "millpond.gpus": gpus,
    "millpond.owner": owner,
  };
}
