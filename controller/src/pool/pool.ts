// SPDX-License-Identifier: Apache-2.0

import { mayKnowAll, type Reason, reason, renderReason } from "@millpond/api";
import type { QueueDecision } from "@millpond/scheduler";
import type { Logger } from "pino";
import type { CancelTimer, Clock } from "../timers/clock.ts";
import { Activity } from "../agents/activity.ts";
import { limitNoticeAt, nodeLossAfterSeconds } from "../reconcile/claim-lifecycle.ts";
import type { Rules } from "../state/change-queue.ts";
import { Deadlines } from "../timers/deadlines.ts";
import { Ledger } from "../state/ledger.ts";
import { isLoss } from "../state/store-errors.ts";
import { Leases } from "../timers/leases.ts";
import type { ClaimTraces, TracedPool } from "./claim-traces.ts";
import { Counters } from "./counters.ts";
import { type AllocationRecord, isLive } from "../domain/records.ts";
import { nodeLostAfterMs, NodeLiveness, ticketMemoryMs } from "../agents/node-liveness.ts";
import { resizeEvents } from "../reconcile/resize.ts";
import {
  idleSeconds,
  illSeconds,
  type ObservedState,
  openableUntilMs,
  silentSeconds,
} from "../domain/observed-state.ts";
import { reconcile, type Scope } from "../reconcile/reconcile.ts";
import type { ReconcileContext } from "../reconcile/reconcile-context.ts";
import { SchedulerView } from "../scheduling/scheduler-view.ts";
import type { Changed, Transaction } from "../state/transaction.ts";
import { PendingReasons } from "../scheduling/pending-reasons.ts";
import type { AuditSink } from "../state/audit.ts";
import type { Store, StoreChanges, StoredState } from "../state/store.ts";
import { Watchers } from "../timers/watchers.ts";

/**
 * After a restore nothing is granted for this long: agents call at least every two seconds and report the running
 * sessions.
 */
const gatheringMs = 15_000;

/** Controllers that become the leader within this time know no more than the first one. */
const gatheringTerms = 3;

/** After a restart a claim lives at least this long without renewal: clients then call every second or more often. */
const restartGraceSeconds = 15;

/** Delay before a failed timed change is tried again. */
const retryAfterMs = 1000;

/** How often the active time of claims is recorded: what is newer is lost together with an agent's host. */
const noteActivityEveryMs = 300_000;

/** The decisions about the waiting claims. */
export interface Conclusion {
  /** Undefined: no claim waits. */
  readonly decision: QueueDecision | undefined;
}

/** Why a resize was abandoned. */
export interface ResizeRefusal {
  readonly kind: (typeof resizeEvents)[keyof typeof resizeEvents];
  readonly reason: Reason;
}

export interface PoolOptions {
  readonly store: Store;
  readonly state: StoredState;
  readonly clock: Clock;
  readonly log: Logger;
  /**
   * Called when this pool can no longer be changed: another controller is the leader, or the outcome of a write is
   * unknown.
   */
  readonly onLost?: () => void;
  /** Where audit records are written besides the store. Default: nowhere. */
  readonly auditSink?: AuditSink | undefined;
  /** Traces the life of claims. Default: no tracing. */
  readonly traces?: ClaimTraces | undefined;
}

/**
 * The pool: its durable state, the reports of agents and the demand for claims, with the rule that every change and all
 * its consequences are one transaction. Consequences of the passing of time are applied by an alarm that is set for the
 * next deadline, so an idle pool costs nothing.
 */
export class Pool {
  readonly ledger: Ledger<Conclusion, Scope>;
  readonly leases: Leases;
  /** Lazy claims whose devices a program waits for, without a ticket yet. */
  readonly wakes: Leases;
  readonly liveness: NodeLiveness;
  readonly activity: Activity;
  readonly waiting = new PendingReasons();
  readonly counters = new Counters();
  readonly claimWatchers: Watchers;
  readonly nodeWatchers: Watchers;
  readonly scheduler = new SchedulerView();
  readonly clock: Clock;
  readonly #log: Logger;
  /** Epochs of the allocations for which a ticket may have been issued. */
  readonly #ticketed = new Set<number>();
  /** When bound claims must be checked because of a date, in Unix milliseconds. */
  readonly #dates = new Deadlines();
  /** The same for durations, on the monotonic clock, which changes of the wall clock do not affect. */
  readonly #due = new Deadlines();
  /** Due claims and lost nodes whose consequences are not yet durable. */
  #overdue: { readonly claims: string[]; readonly nodes: string[] } = { claims: [], nodes: [] };
  #alarm: { readonly dueMs: number; readonly cancel: CancelTimer } | undefined;
  /** Until when tickets up to this epoch may be outstanding, on the monotonic clock. */
  #inherited = { epoch: 0, untilMs: 0 };
  /** Why the last resize of a claim was refused, until its caller has read it. */
  readonly #resizeRefusals = new Map<string, ResizeRefusal>();
  readonly #traces: ClaimTraces | undefined;
  readonly #tracedPool: TracedPool = {
    claim: (name) => this.ledger.claims.get(name),
    allocation: (claim) => this.ledger.allocations.ofClaim(claim),
    sessions: (node) => this.liveness.of(node)?.sessions.values() ?? [],
  };
  #isLeading = false;
  /** On the monotonic clock. */
  #gatheringUntilMs = 0;
  #order = 0;
  /** When the active time of claims is next recorded, on the monotonic clock. */
  #noteActivityAtMs = 0;

  constructor({ store, state, clock, log, onLost, auditSink, traces }: PoolOptions) {
    this.clock = clock;
    this.#log = log;
    this.leases = new Leases(clock);
    this.wakes = new Leases(clock);
    this.liveness = new NodeLiveness(clock);
    this.claimWatchers = new Watchers(clock);
    this.nodeWatchers = new Watchers(clock);
    this.activity = new Activity(clock);
    const rules: Rules<Conclusion, Scope> = {
      conclude: (transaction, scopes) => ({ decision: reconcile(transaction, this.context(), scopes) }),
      onDone: (changed, conclusion) => this.#onDone(changed, conclusion),
    };
    this.#traces = traces;
    this.ledger = new Ledger(store, state, clock, rules, { ...(onLost && { onLost }), auditSink });
  }

  /** What agents and clients report at this moment. */
  observe(): ObservedState {
    const { leases, wakes, liveness, activity } = this;
    return {
      nowMs: this.clock.monotonicMs(),
      listeningSinceMs: liveness.listeningSinceMs,
      gatheringUntilMs: this.#gatheringUntilMs,
      leases: leases.byClaim,
      wakes: wakes.byClaim,
      nodes: liveness.nodes,
      served: liveness.served,
      ticketed: this.#ticketed,
      tickets: liveness.unusedTickets,
      inherited: this.#inherited,
      activity: activity.byEpoch,
    };
  }

  /** The current observations that reconciling reads in addition to the transaction. */
  context(): ReconcileContext {
    return { observed: this.observe(), scheduler: this.scheduler };
  }

  /** Applies another controller's committed changes. */
  follow(changes: readonly StoreChanges[]): void {
    for (const each of changes) {
      this.ledger.follow(each);
    }
  }

  /** Prepares caches for the first decision: scanning a large pool takes seconds. */
  async prepare(): Promise<void> {
    await this.ledger.read((transaction) => {
      this.scheduler.snapshot(transaction, this.observe());
    });
  }

  /** Starts to accept changes. */
  lead(term: number): void {
    this.#isLeading = true;
    this.ledger.lead(term);
    // The past is unknown: outstanding tickets, connected clients, claims still in use.
    this.liveness.restart();
    const { restoration } = this.ledger;
    if (restoration !== undefined && term <= restoration.resumedAt + gatheringTerms) {
      this.#gatheringUntilMs = this.clock.monotonicMs() + gatheringMs;
    }
    for (const allocation of this.ledger.allocations.byEpoch.values()) {
      this.#ticketed.add(allocation.epoch);
      this.activity.begin(allocation);
    }
    this.#noteActivityAtMs = this.clock.monotonicMs() + noteActivityEveryMs;
    this.#inherited = { epoch: this.ledger.epoch, untilMs: this.clock.monotonicMs() + ticketMemoryMs };
    for (const claim of this.ledger.claims.values()) {
      if (isLive(claim)) {
        this.leases.renew(claim.name, Math.max(claim.leaseSeconds, restartGraceSeconds));
        if (claim.isLazy && claim.state !== "dormant") {
          this.wakes.renew(claim.name, restartGraceSeconds);
        }
        this.#noteDue(claim.name);
      }
    }
    this.#setAlarm();
  }

  /**
   * Changes the pool, with all consequences of the change. When one of the functions throws, the pool is unchanged.
   *
   * @param scope The claims that may have to end, in addition to those that the change touches.
   * @param verify Checks the outcome: the decision is undefined when no claim waits.
   */
  async mutate<T>(
    change: (transaction: Transaction) => T,
    scope: Scope = {},
    verify?: (transaction: Transaction, decision: QueueDecision | undefined) => void,
  ): Promise<T> {
    const startMs = performance.now();
    return await this.ledger.change({
      make: change,
      scope,
      verify: (transaction, { decision }) => verify?.(transaction, decision),
      onDurable: () => this.counters.changes.observe((performance.now() - startMs) / 1000),
    });
  }

  /** A position among the answers to agents and the tickets of this term: later ones are higher. */
  nextOrder(): number {
    this.#order += 1;
    return this.#order;
  }

  /** Records that a ticket was issued: from now on only the agent can report that no session of the claim is open. */
  markTicketed({ epoch, claim }: AllocationRecord): void {
    this.#ticketed.add(epoch);
    // A claim with a ticket no longer waits; its use will be observed.
    this.wakes.forget(claim);
    this.#noteDue(claim);
    this.#setAlarm();
  }

  /** Called when the validity of tickets for claims on a node becomes shorter or ends. */
  noteTicketsOf(node: string): void {
    for (const { claim } of this.ledger.allocations.onNode(node)) {
      if (this.ledger.claims.get(claim)?.isLazy) {
        this.#noteDue(claim);
      }
    }
  }

  /** Why the last resize of a claim was refused; undefined: it was not. Reading the reason clears it. */
  takeResizeRefusal(claim: string): ResizeRefusal | undefined {
    const refusal = this.#resizeRefusals.get(claim);
    this.#resizeRefusals.delete(claim);
    return refusal;
  }

  /** To be called when a lease or a node's silence may expire earlier than before, or has already expired. */
  touch(claim?: string): void {
    const record = claim === undefined ? undefined : this.ledger.claims.get(claim);
    if (record !== undefined && isLive(record) && this.leases.isExpired(record.name)) {
      this.#passTime();
    } else {
      this.#setAlarm();
    }
  }

  /** Whether some running sessions are still unknown, because the state was restored. */
  get isRecovering(): boolean {
    return this.clock.monotonicMs() < this.#gatheringUntilMs;
  }

  /** Whether this pool accepts changes. */
  get isLeading(): boolean {
    return this.#isLeading;
  }

  /** Records what is only in memory. To be called before a planned exit, while the pool accepts changes. */
  async noteActivity(): Promise<void> {
    await this.mutate((transaction) => this.#noteActivity(transaction));
  }

  /** Stops the alarm, and waits for pending transactions. */
  async close(): Promise<void> {
    this.#isLeading = false;
    this.#alarm?.cancel();
    await this.ledger.settled();
  }

  #noteActivity(transaction: Transaction): void {
    for (const [epoch, allocation] of this.ledger.allocations.byEpoch) {
      const { activeSeconds, countedMs } = this.activity.record(epoch);
      // Counts an allocation again that has just changed.
      const isKnown = transaction.allocations.get(epoch) === allocation;
      if (isKnown && allocation.releasedRevision === null && activeSeconds > allocation.activeSeconds) {
        transaction.putAllocation({ ...allocation, activeSeconds, countedMs });
      }
    }
  }

  #onDone(changed: Changed | undefined, conclusion: Conclusion | undefined): void {
    if (changed !== undefined) {
      this.#takeNote(changed);
    }
    if (conclusion !== undefined) {
      for (const name of this.waiting.learn(conclusion.decision, this.ledger.revision)) {
        this.claimWatchers.wake(name);
      }
    }
    for (const name of changed?.nodes ?? []) {
      this.nodeWatchers.wake(name);
    }
    this.#setAlarm();
  }

  #takeNote({ claims, allocations, nodes, events }: Changed): void {
    for (const { kind, subject, detail } of events) {
      this.counters.countEvent(kind);
      if (kind === resizeEvents.refused || kind === resizeEvents.unanswered) {
        this.#resizeRefusals.set(subject.replace(/^claim\//, ""), { kind, reason: detail });
      }
      this.#log.info({ kind, subject, reason: detail.code }, renderReason(detail, mayKnowAll));
    }
    for (const name of claims) {
      const claim = this.ledger.claims.get(name);
      if (claim === undefined || !isLive(claim)) {
        this.leases.forget(name);
        this.wakes.forget(name);
        this.#resizeRefusals.delete(name);
      }
      this.#noteDue(name);
      this.claimWatchers.wake(name);
    }
    if (this.#isLeading) {
      this.#traces?.learn(this.#tracedPool, claims);
    }
    for (const name of nodes) {
      if (!this.ledger.nodes.has(name)) {
        this.liveness.forgetNode(name);
      }
    }
    for (const epoch of allocations) {
      const allocation = this.ledger.allocations.byEpoch.get(epoch);
      if (allocation !== undefined) {
        this.#countWait(allocation);
        this.activity.begin(allocation);
      } else {
        this.#ticketed.delete(epoch);
        this.liveness.forgetAllocation(epoch);
        this.activity.forget(epoch);
      }
    }
  }

  /** How long a claim waited that has just been bound for the first time. */
  #countWait({ claim: name, epoch, releasedRevision, sizeRevision }: AllocationRecord): void {
    const claim = this.ledger.claims.get(name);
    const isNew = releasedRevision === null && sizeRevision === 0 && !this.#ticketed.has(epoch);
    if (claim?.requeues === 0 && isNew) {
      const seconds = Math.max(0, (claim.boundAt ?? claim.createdAt) - claim.createdAt);
      this.counters.waits.observe(seconds, { queue: claim.queue });
    }
  }

  #setAlarm(): void {
    const deadlines = [
      this.leases.nextDeadlineMs(),
      this.wakes.nextDeadlineMs(),
      this.liveness.nextDeadlineMs(),
      this.#nextDueMs(),
      this.ledger.allocations.byEpoch.size === 0 ? undefined : this.#noteActivityAtMs,
      this.isRecovering ? this.#gatheringUntilMs : undefined,
    ];
    const dueMs = Math.min(...deadlines.filter((deadline) => deadline !== undefined));
    this.#setAlarmFor(dueMs);
  }

  #setAlarmFor(dueMs: number): void {
    if (
      !this.#isLeading ||
      dueMs === Number.POSITIVE_INFINITY ||
      (this.#alarm !== undefined && this.#alarm.dueMs <= dueMs)
    ) {
      return;
    }
    this.#alarm?.cancel();
    const cancel = this.clock.after(Math.max(0, dueMs - this.clock.monotonicMs()), () => {
      this.#alarm = undefined;
      this.#passTime();
    });
    this.#alarm = { dueMs, cancel };
  }

  /** Notes when the passing of time next requires a check of a bound claim. */
  #noteDue(name: string): void {
    const claim = this.ledger.claims.get(name);
    const allocation = this.ledger.allocations.ofClaim(name);
    if (claim?.state !== "bound" || allocation === undefined) {
      this.#dates.delete(name);
      this.#due.delete(name);
      return;
    }
    const { boundAt, timeLimitSeconds, idleLimitSeconds, preemptAt, nodeLoss, isLazy } = claim;
    const end = ((boundAt ?? 0) + timeLimitSeconds) * 1000;
    note(
      this.#dates,
      name,
      earliest([
        ...(allocation.resizing === null ? [] : [allocation.resizing.until * 1000]),
        ...(preemptAt === null ? [] : [preemptAt * 1000]),
        ...(timeLimitSeconds === 0 ? [] : [preemptAt === null ? limitNoticeAt(claim) * 1000 : end]),
      ]),
    );
    const observed = this.observe();
    const { nowMs } = observed;
    const openUntilMs = openableUntilMs(observed, allocation.epoch);
    const lostSeconds = Math.max(silentSeconds(observed, allocation.node), illSeconds(observed, allocation));
    note(
      this.#due,
      name,
      earliest([
        ...(isLazy && openUntilMs > nowMs ? [openUntilMs] : []),
        ...(idleLimitSeconds === 0 || preemptAt !== null
          ? []
          : [nowMs + (idleLimitSeconds - idleSeconds(observed, allocation.epoch)) * 1000]),
        ...(nodeLoss === "keep" ? [] : [nowMs + (nodeLossAfterSeconds - lostSeconds) * 1000]),
      ]),
    );
  }

  /** On the monotonic clock. */
  #nextDueMs(): number | undefined {
    const date = this.#dates.next();
    const inMs = date === undefined ? undefined : Math.max(0, date - this.clock.unixMs());
    return earliest([this.#due.next(), inMs === undefined ? undefined : this.clock.monotonicMs() + inMs]);
  }

  /** Applies the consequences of passing time. */
  #passTime(): void {
    const overdue = this.#overdue;
    this.#overdue = { claims: [], nodes: [] };
    const silent = [...overdue.nodes, ...this.liveness.loseSilentNodes()];
    const lost = silent.filter((name) => this.ledger.nodes.has(name));
    const due = [...this.#dates.takeDue(this.clock.unixMs()), ...this.#due.takeDue(this.clock.monotonicMs())];
    const expired = [...this.leases.takeExpired(), ...this.wakes.takeExpired()];
    const claims = new Set([...overdue.claims, ...due, ...expired]);
    const nowMs = this.clock.monotonicMs();
    const isActivityDue = this.#noteActivityAtMs <= nowMs;
    if (isActivityDue) {
      this.#noteActivityAtMs = nowMs + noteActivityEveryMs;
    }
    const change = this.mutate(
      (transaction) => {
        if (isActivityDue) {
          this.#noteActivity(transaction);
        }
        for (const name of lost) {
          transaction.addEvent(
            "NodeLost",
            `node/${name}`,
            reason("node-silent", { seconds: nodeLostAfterMs / 1000 }),
          );
        }
      },
      { claims },
    );
    change.then(
      () => {
        for (const name of claims) {
          // A claim that still exists is due again later: its activity, its node or the clock may have postponed the
          // deadline.
          this.#noteDue(name);
        }
        this.#setAlarm();
      },
      (error: unknown) => {
        this.#overdue.nodes.push(...lost);
        this.#overdue.claims.push(...claims);
        // Leader election reports once that the store is unreachable.
        if (!isLoss(error)) this.#log.error({ err: error }, "reconciling failed and will be retried");
        this.#setAlarmFor(this.clock.monotonicMs() + retryAfterMs);
      },
    );
    this.#setAlarm();
  }
}

function note(deadlines: Deadlines, name: string, at: number | undefined): void {
  if (at === undefined) {
    deadlines.delete(name);
  } else {
    deadlines.set(name, at);
  }
}

function earliest(moments: readonly (number | undefined)[]): number | undefined {
  const known = moments.filter((moment) => moment !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}
