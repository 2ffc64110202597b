// SPDX-License-Identifier: Apache-2.0

import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { AllocationIndex } from "./allocation-index.ts";
import type { AuditedCall, AuditSink } from "./audit.ts";
import { type Change, ChangeQueue, type Rules } from "./change-queue.ts";
import { ClaimIndex } from "./claim-index.ts";
import type { Clock } from "../timers/clock.ts";
import { unixSeconds } from "../timers/clock.ts";
import { absent, merge, present } from "./write-set.ts";
import { partOf, Totals } from "./totals.ts";
import { isLoss, termIsOver } from "./store-errors.ts";
import { type Base, Transaction } from "./transaction.ts";
import type { Restoration, Store, StoreChanges, StoredState } from "./store.ts";
import type {
  ClaimRecord,
  LoginRecord,
  NodeRecord,
  RemovedNodeRecord,
  SigningKeyRecord,
  TokenRecord,
} from "../domain/records.ts";

/**
 * The committed state in memory, always equal to the store. It changes by transactions, one after the other; the effects of
 * a transaction become visible when it is durable.
 */
export class Ledger<C, S> implements Base {
  readonly identity: string;
  /** How the state was last restored; undefined: never. */
  readonly restoration: Restoration | undefined;
  readonly claimIndex: ClaimIndex;
  readonly allocations: AllocationIndex;
  #totals = new Totals();
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #nodes: Map<string, NodeRecord>;
  #sortedNodes: readonly NodeRecord[] | undefined;
  readonly #removedNodes: Map<string, RemovedNodeRecord>;
  readonly #queues: Map<string, QueueSpec>;
  readonly #tenants: Map<string, TenantSpec>;
  readonly #tokens: Map<string, TokenRecord>;
  readonly #tokensByHash: Map<string, TokenRecord>;
  readonly #signingKeys: Map<string, SigningKeyRecord>;
  readonly #logins: Map<string, LoginRecord>;
  readonly #changes: ChangeQueue<C, S>;
  #revision: number;
  #epoch: number;
  #lastEvent: number;
  /** The term under which it may be changed; 0: it is read-only. */
  #term = 0;
  /** Why this controller may no longer write: another one leads, or the database did not take a change. */
  #loss: Error | undefined;
  readonly #onLost: () => void;
  readonly #auditSink: AuditSink | undefined;

  /** @param more.onLost called when this ledger can no longer be changed */
  constructor(
    store: Store,
    state: StoredState,
    clock: Clock,
    rules: Rules<C, S>,
    more: { readonly onLost?: () => void; readonly auditSink?: AuditSink | undefined } = {},
  ) {
    this.#onLost = more.onLost ?? (() => undefined);
    this.#auditSink = more.auditSink;
    this.#store = store;
    this.#clock = clock;
    this.identity = state.identity;
    this.restoration = state.restoration;
    this.claimIndex = new ClaimIndex(state.claims);
    this.allocations = new AllocationIndex(state.allocations);
    this.#nodes = new Map(state.nodes.map((node) => [node.name, node]));
    this.#removedNodes = new Map(state.removedNodes.map((node) => [node.name, node]));
    this.#queues = new Map(state.queues.map((queue) => [queue.name, queue]));
    this.#tenants = new Map(state.tenants.map((tenant) => [tenant.name, tenant]));
    this.#tokens = new Map(state.tokens.map((token) => [token.name, token]));
    this.#tokensByHash = new Map(state.tokens.map((token) => [token.hash, token]));
    this.#signingKeys = new Map(state.signingKeys.map((key) => [key.id, key]));
    this.#logins = new Map(state.logins.map((login) => [login.id, login]));
    for (const allocation of state.allocations) {
      const { claim, node } = allocation;
      const part = partOf(allocation, this.claims.get(claim), this.#nodes.get(node));
      if (part !== undefined) {
        this.#totals.add(part);
      }
    }
    this.#revision = state.revision;
    this.#epoch = state.epoch;
    this.#lastEvent = state.lastEvent;
    this.#changes = new ChangeQueue(
      {
        begin: () => new Transaction(this, unixSeconds(this.#clock)),
        commit: (transaction, calls) => this.#commit(transaction, calls),
      },
      rules,
    );
  }

  /** Makes this ledger the only writer of the state. */
  lead(term: number): void {
    this.#term = term;
  }

  get term(): number {
    return this.#term;
  }

  get revision(): number {
    return this.#revision;
  }

  get epoch(): number {
    return this.#epoch;
  }

  get lastEvent(): number {
    return this.#lastEvent;
  }

  /** Sums over the bound claims. */
  get totals(): Totals {
    return this.#totals;
  }

  /** In order of arrival, except for reused names. */
  get claims(): ReadonlyMap<string, ClaimRecord> {
    return this.claimIndex.byName;
  }

  /** Names of the claims that wait. */
  get pending(): ReadonlySet<string> {
    return this.claimIndex.pending;
  }

  get nodes(): ReadonlyMap<string, NodeRecord> {
    return this.#nodes;
  }

  /** Sorted by name. */
  get sortedNodes(): readonly NodeRecord[] {
    this.#sortedNodes ??= [...this.#nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return this.#sortedNodes;
  }

  /** Including nodes that have joined again. */
  get removedNodes(): ReadonlyMap<string, RemovedNodeRecord> {
    return this.#removedNodes;
  }

  get queues(): ReadonlyMap<string, QueueSpec> {
    return this.#queues;
  }

  get tenants(): ReadonlyMap<string, TenantSpec> {
    return this.#tenants;
  }

  get tokens(): ReadonlyMap<string, TokenRecord> {
    return this.#tokens;
  }

  get signingKeys(): ReadonlyMap<string, SigningKeyRecord> {
    return this.#signingKeys;
  }

  get logins(): ReadonlyMap<string, LoginRecord> {
    return this.#logins;
  }

  /** @param hash SHA-256, hexadecimal. */
  tokenByHash(hash: string): TokenRecord | undefined {
    return this.#tokensByHash.get(hash);
  }

  /**
   * Makes a change, together with concurrent ones. When it is refused, or the store fails, the state is unchanged; a change
   * without effect is not written. The audit record of a call is written with its change.
   */
  async change<T>(change: Change<T, C, S>): Promise<T> {
    return await this.#changes.change(change);
  }

  /** Reads through a transaction that changes nothing, while no change is in progress. */
  async read<T>(look: (transaction: Transaction) => T): Promise<T> {
    return await this.#changes.read(look);
  }

  /** Resolves when the changes in progress are finished. */
  async settled(): Promise<void> {
    await this.#changes.settled();
  }

  async #commit(transaction: Transaction, calls: readonly AuditedCall[]): Promise<void> {
    const { revision, epoch, claims, allocations, nodes, removedNodes } = transaction;
    const { queues, tenants, tokens, signingKeys, logins, events, usage } = transaction;
    const firsts = calls.filter(({ isWritten }) => !isWritten);
    const changes: StoreChanges = {
      revision,
      epoch,
      nodes: present(nodes.changes),
      removedNodes: present(removedNodes.changes),
      claims: present(claims),
      forgottenClaims: absent(claims),
      allocations: present(allocations.changes),
      removedAllocations: absent(allocations.changes),
      queues: present(queues.changes),
      removedQueues: absent(queues.changes),
      tenants: present(tenants.changes),
      removedTenants: absent(tenants.changes),
      tokens: present(tokens.changes),
      // A changed token is removed and added again, because stores can only add tokens.
      removedTokens: [...tokens.changes.keys()].filter((name) => this.#tokens.has(name)),
      signingKeys: present(signingKeys.changes),
      logins: present(logins.changes),
      removedLogins: absent(logins.changes),
      audit: [...transaction.audit, ...firsts.map((call) => call.toEntry(transaction.now, "ok"))],
      usage,
      events,
    };
    if (changes.audit.length > 0) {
      await this.#auditSink?.write(changes.audit);
    }
    await this.#write(changes);
    for (const call of firsts) {
      call.isWritten = true;
    }
    this.#merge(transaction);
  }

  async #write(changes: StoreChanges): Promise<void> {
    if (this.#loss !== undefined) {
      throw this.#loss;
    }
    try {
      await this.#store.commit(changes, this.#term);
    } catch (error) {
      if (isLoss(error)) {
        this.#loss = error instanceof Error ? error : termIsOver(this.#term);
        this.#onLost();
      }
      throw error;
    }
  }

  /** Applies changes that the leader has committed. */
  follow(changes: StoreChanges): Transaction {
    const transaction = Transaction.of(this, changes);
    this.#merge(transaction);
    return transaction;
  }

  #merge(transaction: Transaction): void {
    const { revision, epoch, claims, allocations, queues, tenants, tokens, events } = transaction;
    this.#totals = transaction.totals();
    this.claimIndex.merge(claims);
    this.allocations.merge(allocations.changes);
    for (const name of claims.keys()) {
      this.allocations.touchClaim(name);
    }
    this.#mergeNodes(transaction);
    merge(this.#removedNodes, transaction.removedNodes.changes);
    merge(this.#queues, queues.changes);
    merge(this.#tenants, tenants.changes);
    for (const name of absent(tokens.changes)) {
      this.#tokensByHash.delete(this.#tokens.get(name)?.hash ?? "");
    }
    merge(this.#tokens, tokens.changes);
    for (const token of present(tokens.changes)) {
      this.#tokensByHash.set(token.hash, token);
    }
    merge(this.#signingKeys, transaction.signingKeys.changes);
    merge(this.#logins, transaction.logins.changes);
    this.#revision = revision;
    this.#epoch = epoch;
    this.#lastEvent = events.at(-1)?.id ?? this.#lastEvent;
  }

  #mergeNodes({ nodes }: Transaction): void {
    if (nodes.changes.size > 0) {
      this.#sortedNodes = nodes.all();
      merge(this.#nodes, nodes.changes);
    }
  }
}
