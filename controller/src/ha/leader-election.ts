// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { ConnectError } from "@connectrpc/connect";
import { leaderHeader, millpondError, reason } from "@millpond/api";
import type { Logger } from "pino";
import type { Clock } from "../timers/clock.ts";
import type { ClaimTraces } from "../pool/claim-traces.ts";
import { Pool } from "../pool/pool.ts";
import type { AuditSink } from "../state/audit.ts";
import type { Candidate, Leadership, Store, StoredState } from "../state/store.ts";

/** How often the leader renews its lease; a third of the lease. */
const renewEveryMs = 1_000;

/** How often a follower polls for changes and for the leader. */
const followEveryMs = 250;

export interface LeaderElectorOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called with the pool that replaces the previous one, of which this controller is no longer the leader. */
  readonly onPool: (pool: Pool) => void;
  /** Where the leader writes audit records besides the store. Default: nowhere. */
  readonly auditSink?: AuditSink | undefined;
  /** Traces the life of claims while this controller leads. Default: no tracing. */
  readonly traces?: ClaimTraces | undefined;
}

/** A pool for as long as this controller's copy of it is complete: from when it is read until another controller has led it. */
interface PoolReplica {
  readonly pool: Pool;
  /** The identity under which this controller stands for election. */
  readonly id: string;
  /** The term under which it leads; 0: it is a follower. */
  term: number;
  /** Until this time no other controller can become the leader, on the monotonic clock. */
  leadsUntilMs: number;
  /** The caches for its first decision are prepared. */
  isPrepared: boolean;
  /** The pool accepts reads and changes. */
  isReady: boolean;
  /** The pool has failed and must be read again. */
  isOver: boolean;
}

/**
 * Lease-based leader election among the controllers that share a store. A follower applies what the leader commits, so that
 * it has the pool in memory and can lead at once when the lease expires. Time is this process's monotonic clock: it decides
 * only when to stop leading or to ask again; the store decides which controller leads.
 */
export class LeaderElector implements AsyncDisposable {
  readonly #store: Store;
  readonly #log: Logger;
  readonly #onPool: (pool: Pool) => void;
  readonly #makePool: (state: StoredState) => Pool;
  readonly #stop = new AbortController();
  #replica: PoolReplica;
  #url = "";
  /** The leader when the store reported it, on the monotonic clock. */
  #leader = { url: "", askedMs: 0 };
  #failure: string | undefined;
  #work: Promise<void> = Promise.resolve();
  /** Preparation before it becomes the leader. */
  #leading: Promise<void> = Promise.resolve();

  private constructor(options: LeaderElectorOptions, state: StoredState) {
    const { store, clock, log, auditSink, traces } = options;
    this.#store = store;
    this.#log = log;
    this.#onPool = options.onPool;
    this.#makePool = (each) =>
      new Pool({ store, state: each, clock, log, onLost: () => this.#end(), auditSink, traces });
    this.#replica = this.#begin(state);
  }

  /** Reads the state and begins to follow. */
  static async open(
    options: LeaderElectorOptions,
  ): Promise<{ readonly elector: LeaderElector; readonly state: StoredState }> {
    const state = await options.store.load();
    return { elector: new LeaderElector(options, state), state };
  }

  /**
   * Begins to take part in leader election; resolves once the leader is known.
   *
   * @param url Where this controller can be reached.
   */
  async start(url: string): Promise<void> {
    this.#url = url;
    await this.#beat();
    if (this.#isShared) {
      this.#work = this.#run();
    }
    await this.#leading;
  }

  get pool(): Pool {
    return this.#replica.pool;
  }

  /** Whether this controller is the leader, and its lease still excludes any other. */
  get isLeading(): boolean {
    const { term, isReady, isOver, leadsUntilMs } = this.#replica;
    return term > 0 && isReady && !isOver && performance.now() < leadsUntilMs;
  }

  /** Last known address of the leader; empty: there is none. */
  get leaderUrl(): string {
    if (this.isLeading) {
      return this.#url;
    }
    const { url, askedMs } = this.#leader;
    // Without the store, a follower knows only that no lease has been renewed for longer than its duration.
    return performance.now() < askedMs + this.#store.leaseMs ? url : "";
  }

  /** @throws MILLPOND_E_NOT_LEADER, with the address of the leader */
  requireLead(what: string): void {
    if (!this.isLeading) {
      throw notLeader(what, this.leaderUrl, this.#failure);
    }
  }

  /**
   * Gives up leadership when pending calls are done, so that another controller can take over immediately.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
    const { pool, term, id } = this.#replica;
    if (this.isLeading) {
      await pool.noteActivity().catch((error: unknown) => {
        this.#log.warn({ err: error }, "the usage of claims could not be recorded");
      });
    }
    await pool.close();
    if (term > 0) {
      await this.#store.resign({ id, url: this.#url }).catch((error: unknown) => {
        this.#log.warn({ err: error }, "the lease could not be released and will expire");
      });
    }
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const { term, isOver } = this.#replica;
      const pauseMs = term > 0 && !isOver ? renewEveryMs : followEveryMs;
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) {
        await this.#beat();
      }
    }
  }

  async #beat(): Promise<void> {
    try {
      if (this.#replica.isOver) {
        // Releases the lease, so that the next leader need not wait for its expiry.
        await this.#store.resign({ id: this.#replica.id, url: this.#url });
        this.#replace(await this.#store.load());
      }
      const replica = this.#replica;
      const askedMs = performance.now();
      const lead = await this.#store.campaign({ id: replica.id, url: this.#url } satisfies Candidate);
      this.#note(undefined);
      this.#leader = { url: lead.isOurs ? "" : lead.url, askedMs };
      if (lead.isOurs) {
        replica.leadsUntilMs = askedMs + this.#store.leaseMs;
      }
      if (replica.term === 0) {
        await this.#follow(replica, lead);
      } else if (!lead.isOurs || lead.term !== replica.term) {
        this.#log.warn({ leader: lead.url, term: lead.term }, "another controller is the leader");
        this.#end();
      }
    } catch (error) {
      if (!this.#isShared) {
        throw error;
      }
      this.#note(ConnectError.from(error).rawMessage);
    }
  }

  async #follow(replica: PoolReplica, lead: Leadership): Promise<void> {
    const changes = await this.#store.changesAfter(replica.pool.ledger.revision);
    if (changes === undefined) {
      this.#log.info("the change log has a gap: reloading the whole state");
      replica.isOver = true;
      return;
    }
    replica.pool.follow(changes);
    if (lead.isOurs) {
      replica.term = lead.term;
      // Not awaited: the lease has to be renewed meanwhile.
      this.#leading = this.#lead(replica);
    } else if (changes.length > 0 || !replica.isPrepared) {
      await replica.pool.prepare();
      replica.isPrepared = true;
    }
  }

  async #lead(replica: PoolReplica): Promise<void> {
    const { term, pool } = replica;
    try {
      pool.lead(term);
      // Calls that arrive meanwhile are batched with the changes that follow from the state.
      replica.isReady = this.#isShared;
      // Waiting claims have their reasons before the first read.
      await pool.mutate((transaction) => {
        if (this.#isShared) {
          const detail = reason("controller-leads", { url: this.#url, term });
          transaction.addEvent("ControllerLeads", "controller", detail);
        }
      });
      replica.isReady = true;
      this.#log.info({ term }, "this controller is the leader");
    } catch (error) {
      if (!this.#isShared) {
        throw error;
      }
      replica.isOver = true;
      this.#log.error({ err: error }, "this controller could not become the leader");
    }
  }

  get #isShared(): boolean {
    return Number.isFinite(this.#store.leaseMs);
  }

  /** Another controller leads the pool, or this one's state is unknown. */
  #end(): void {
    this.#replica.isOver = true;
  }

  #replace(state: StoredState): void {
    const before = this.#replica;
    this.#replica = this.#begin(state);
    this.#onPool(this.#replica.pool);
    before.pool.close().catch((error: unknown) => {
      this.#log.error({ err: error }, "the pool of the previous term could not be closed");
    });
  }

  #begin(state: StoredState): PoolReplica {
    const pool = this.#makePool(state);
    return {
      pool,
      id: randomUUID(),
      term: 0,
      leadsUntilMs: 0,
      isPrepared: false,
      isReady: false,
      isOver: false,
    };
  }

  /** Logs a failure once, and its end. */
  #note(failure: string | undefined): void {
    if (failure !== undefined && failure !== this.#failure) {
      this.#log.error({ reason: failure }, "the store cannot be asked for the leader");
    } else if (failure === undefined && this.#failure !== undefined) {
      this.#log.info("the store responds again");
    }
    this.#failure = failure;
  }
}

/** The message of an error; for one with an error code, including the remedy. */
function withoutCode(message: string): string {
  return message.replace(/ \[MILLPOND_E_[A-Z_]+\]$/, "");
}

function notLeader(what: string, leader: string, failure: string | undefined): ConnectError {
  if (leader !== "") {
    const error = millpondError(
      "MILLPOND_E_NOT_LEADER",
      `only the leader serves ${what}; it is at ${leader}`,
    );
    error.metadata.set(leaderHeader, leader);
    return error;
  }
  return millpondError(
    "MILLPOND_E_NOT_LEADER",
    `only the leader serves ${what}, and there is no leader now`,
    {
      remedy:
        failure === undefined
          ? "Try again in a few seconds: another controller becomes the leader."
          : `This controller reports: ${withoutCode(failure)}`,
    },
  );
}
