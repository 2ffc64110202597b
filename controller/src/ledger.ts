// SPDX-License-Identifier: Apache-2.0

import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { type AuditedCall, currentCall } from "./audit.ts";
import { AllocationIndex, AllocationView } from "./allocation-index.ts";
import type { Clock } from "./clock.ts";
import { unixSeconds } from "./clock.ts";
import { absent, merge, type Overlay, present, read, readAll } from "./overlay.ts";
import type {
  AllocationRecord,
  AuditEntry,
  ClaimRecord,
  EventRecord,
  NodeRecord,
  Store,
  StoredState,
  TokenRecord,
  UsageRecord,
} from "./store/store.ts";

/** What a transaction changed, for those who wait for it. */
export interface Changed {
  readonly claims: ReadonlySet<string>;
  /** Epochs. */
  readonly allocations: ReadonlySet<number>;
  readonly nodes: ReadonlySet<string>;
  readonly events: readonly EventRecord[];
}

/**
 * The durable state in memory, always what the store has. It changes by transactions, one after the other; what a
 * transaction did can be seen only when it is durable.
 */
export class Ledger {
  readonly identity: string;
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #claims: Map<string, ClaimRecord>;
  readonly #pending = new Set<string>();
  readonly #nodes: Map<string, NodeRecord>;
  #sortedNodes: readonly NodeRecord[] | undefined;
  readonly #queues: Map<string, QueueSpec>;
  readonly #tenants: Map<string, TenantSpec>;
  readonly #tokens: Map<string, TokenRecord>;
  readonly #tokensByHash: Map<string, TokenRecord>;
  readonly allocations: AllocationIndex;
  #revision: number;
  #epoch: number;
  #lastEvent: number;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(store: Store, state: StoredState, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.identity = state.identity;
    this.#claims = new Map(state.claims.map((claim) => [claim.name, claim]));
    this.#notePending(state.claims);
    this.allocations = new AllocationIndex(state.allocations);
    this.#nodes = new Map(state.nodes.map((node) => [node.name, node]));
    this.#queues = new Map(state.queues.map((queue) => [queue.name, queue]));
    this.#tenants = new Map(state.tenants.map((tenant) => [tenant.name, tenant]));
    this.#tokens = new Map(state.tokens.map((token) => [token.name, token]));
    this.#tokensByHash = new Map(state.tokens.map((token) => [token.hash, token]));
    this.#revision = state.revision;
    this.#epoch = state.epoch;
    this.#lastEvent = state.lastEvent;
  }

  get revision(): number {
    return this.#revision;
  }

  /** In order of arrival. */
  get claims(): ReadonlyMap<string, ClaimRecord> {
    return this.#claims;
  }

  /** Names of the claims that wait. */
  get pending(): ReadonlySet<string> {
    return this.#pending;
  }

  get nodes(): ReadonlyMap<string, NodeRecord> {
    return this.#nodes;
  }

  /** In order of their names. */
  get sortedNodes(): readonly NodeRecord[] {
    this.#sortedNodes ??= [...this.#nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return this.#sortedNodes;
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

  /** @param hash SHA-256, hexadecimal. */
  tokenByHash(hash: string): TokenRecord | undefined {
    return this.#tokensByHash.get(hash);
  }

  /**
   * Runs a transaction when those before it are over. When `change` or the store throws, nothing has happened; when it
   * changes nothing, nothing is written. With a change on behalf of a call, the call's audit record is written.
   *
   * @param onCommitted Is told what changed, before the next transaction begins.
   */
  transact<T>(change: (transaction: Transaction) => T, onCommitted: (changed: Changed) => void): Promise<T> {
    const call = currentCall();
    const run = async () => {
      const transaction = new Transaction(this, {
        revision: this.#revision + 1,
        epoch: this.#epoch,
        lastEvent: this.#lastEvent,
        now: unixSeconds(this.#clock),
      });
      const result = change(transaction);
      if (transaction.hasChanges) {
        await this.#commit(transaction, call);
        onCommitted(transaction.changed());
      }
      return result;
    };
    const outcome = this.#queue.then(run);
    this.#queue = outcome.catch(() => undefined);
    return outcome;
  }

  /** Is fulfilled when the transactions under way are over. */
  async settled(): Promise<void> {
    await this.#queue;
  }

  async #commit(transaction: Transaction, call: AuditedCall | undefined): Promise<void> {
    const { revision, epoch, claims, allocations, nodes, queues, tenants, tokens, events, usage } =
      transaction;
    const isFirst = call !== undefined && !call.isWritten && transaction.audit.length === 0;
    await this.#store.commit({
      revision,
      epoch,
      nodes: present(nodes),
      claims: present(claims),
      forgottenClaims: absent(claims),
      allocations: present(allocations.changes),
      removedAllocations: absent(allocations.changes),
      queues: present(queues),
      removedQueues: absent(queues),
      tenants: present(tenants),
      removedTenants: absent(tenants),
      tokens: present(tokens),
      removedTokens: absent(tokens),
      audit: isFirst ? [call.toEntry(transaction.now, "ok")] : transaction.audit,
      usage,
      events,
    });
    if (isFirst) {
      call.isWritten = true;
    }
    merge(this.#claims, claims);
    for (const name of absent(claims)) {
      this.#pending.delete(name);
    }
    this.#notePending(present(claims));
    this.allocations.merge(allocations.changes);
    merge(this.#nodes, nodes);
    if (nodes.size > 0) {
      this.#sortedNodes = undefined;
    }
    merge(this.#queues, queues);
    merge(this.#tenants, tenants);
    for (const name of absent(tokens)) {
      this.#tokensByHash.delete(this.#tokens.get(name)?.hash ?? "");
    }
    merge(this.#tokens, tokens);
    for (const token of present(tokens)) {
      this.#tokensByHash.set(token.hash, token);
    }
    this.#revision = revision;
    this.#epoch = epoch;
    this.#lastEvent = events.at(-1)?.id ?? this.#lastEvent;
  }

  #notePending(claims: readonly ClaimRecord[]): void {
    for (const { name, state } of claims) {
      if (state === "pending") {
        this.#pending.add(name);
      } else {
        this.#pending.delete(name);
      }
    }
  }
}

interface TransactionStart {
  readonly revision: number;
  readonly epoch: number;
  readonly lastEvent: number;
  /** Unix seconds. */
  readonly now: number;
}

/** A change in the making: reads see the ledger with what has been changed so far. */
export class Transaction {
  /** The revision that the change will have. */
  readonly revision: number;
  /** Unix seconds. */
  readonly now: number;
  readonly claims: Overlay<string, ClaimRecord> = new Map();
  readonly allocations: AllocationView;
  readonly nodes: Overlay<string, NodeRecord> = new Map();
  readonly queues: Overlay<string, QueueSpec> = new Map();
  readonly tenants: Overlay<string, TenantSpec> = new Map();
  readonly tokens: Overlay<string, TokenRecord> = new Map();
  /** What is recorded of a call that changes nothing else. */
  readonly audit: AuditEntry[] = [];
  readonly events: EventRecord[] = [];
  readonly usage: UsageRecord[] = [];
  readonly #ledger: Ledger;
  readonly #lastEvent: number;
  #epoch: number;

  constructor(ledger: Ledger, start: TransactionStart) {
    this.#ledger = ledger;
    this.allocations = new AllocationView(ledger.allocations);
    this.revision = start.revision;
    this.now = start.now;
    this.#lastEvent = start.lastEvent;
    this.#epoch = start.epoch;
  }

  get epoch(): number {
    return this.#epoch;
  }

  get hasChanges(): boolean {
    const { claims, allocations, nodes, queues, tenants, tokens } = this;
    const overlays = [claims, allocations.changes, nodes, queues, tenants, tokens];
    const logs = [this.events, this.usage, this.audit];
    return overlays.some(({ size }) => size > 0) || logs.some(({ length }) => length > 0);
  }

  changed(): Changed {
    return {
      claims: new Set(this.claims.keys()),
      allocations: new Set(this.allocations.changes.keys()),
      nodes: new Set(this.nodes.keys()),
      events: this.events,
    };
  }

  nextEpoch(): number {
    this.#epoch += 1;
    return this.#epoch;
  }

  claim(name: string): ClaimRecord | undefined {
    return read(this.claims, this.#ledger.claims, name);
  }

  /** In order of arrival. */
  allClaims(): ClaimRecord[] {
    return readAll(this.claims, this.#ledger.claims).sort((a, b) => a.arrival - b.arrival);
  }

  /** The claims that wait, in order of arrival. */
  pendingClaims(): ClaimRecord[] {
    const pending: ClaimRecord[] = [];
    for (const name of this.#ledger.pending) {
      const claim = this.claims.has(name) ? undefined : this.#ledger.claims.get(name);
      if (claim !== undefined) {
        pending.push(claim);
      }
    }
    pending.push(...present(this.claims).filter(({ state }) => state === "pending"));
    return pending.sort((a, b) => a.arrival - b.arrival);
  }

  /** Writes a claim; its version becomes the revision of this transaction. */
  putClaim(claim: ClaimRecord): ClaimRecord {
    const stamped = { ...claim, version: this.revision };
    this.claims.set(claim.name, stamped);
    return stamped;
  }

  forgetClaim(name: string): void {
    this.claims.set(name, null);
  }

  /** What a claim is bound to. */
  allocation(claim: string): AllocationRecord | undefined {
    return this.allocations.ofClaim(claim);
  }

  /** Writes an allocation; what should be on its node has changed. */
  putAllocation(allocation: AllocationRecord): void {
    this.allocations.changes.set(allocation.epoch, allocation);
    this.#stampNode(allocation.node);
  }

  removeAllocation({ epoch, node, releasedRevision }: AllocationRecord): void {
    this.allocations.changes.set(epoch, null);
    if (releasedRevision === null) {
      this.#stampNode(node);
    }
  }

  node(name: string): NodeRecord | undefined {
    return read(this.nodes, this.#ledger.nodes, name);
  }

  /** In order of their names. */
  allNodes(): readonly NodeRecord[] {
    return this.nodes.size === 0
      ? this.#ledger.sortedNodes
      : readAll(this.nodes, this.#ledger.nodes).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  putNode(node: NodeRecord): void {
    this.nodes.set(node.name, node);
  }

  queue(name: string): QueueSpec | undefined {
    return read(this.queues, this.#ledger.queues, name);
  }

  allQueues(): QueueSpec[] {
    return readAll(this.queues, this.#ledger.queues);
  }

  tenant(name: string): TenantSpec | undefined {
    return read(this.tenants, this.#ledger.tenants, name);
  }

  allTenants(): TenantSpec[] {
    return readAll(this.tenants, this.#ledger.tenants);
  }

  token(name: string): TokenRecord | undefined {
    return read(this.tokens, this.#ledger.tokens, name);
  }

  allTokens(): TokenRecord[] {
    return readAll(this.tokens, this.#ledger.tokens);
  }

  addEvent(kind: string, subject: string, message: string): void {
    const id = this.#lastEvent + this.events.length + 1;
    this.events.push({ id, at: this.now, kind, subject, message });
  }

  #stampNode(name: string): void {
    const node = this.node(name);
    if (node !== undefined) {
      this.putNode({ ...node, revision: this.revision });
    }
  }
}
