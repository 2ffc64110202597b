// SPDX-License-Identifier: Apache-2.0

import type { Reason } from "@millpond/api";
import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { type AllocationIndex, AllocationView } from "./allocation-index.ts";
import { byEnd, type ClaimIndex } from "./claim-index.ts";
import { NodeView, RecordView } from "./record-view.ts";
import { WriteSet, present, read, readAll } from "./write-set.ts";
import { partOf, Totals } from "./totals.ts";
import type { StoreChanges } from "./store.ts";
import type {
  AllocationRecord,
  AuditEntry,
  ClaimRecord,
  EventRecord,
  LoginRecord,
  NodeRecord,
  RemovedNodeRecord,
  SigningKeyRecord,
  TokenRecord,
  UsageRecord,
} from "../domain/records.ts";

/** The durable state in memory. */
export interface Base {
  readonly claimIndex: ClaimIndex;
  readonly allocations: AllocationIndex;
  /** Sums over the bound claims. */
  readonly totals: Totals;
  readonly nodes: ReadonlyMap<string, NodeRecord>;
  /** Sorted by name. */
  readonly sortedNodes: readonly NodeRecord[];
  readonly removedNodes: ReadonlyMap<string, RemovedNodeRecord>;
  readonly queues: ReadonlyMap<string, QueueSpec>;
  readonly tenants: ReadonlyMap<string, TenantSpec>;
  readonly tokens: ReadonlyMap<string, TokenRecord>;
  /** By id, in order of their creation. */
  readonly signingKeys: ReadonlyMap<string, SigningKeyRecord>;
  /** By id, in order of their creation. */
  readonly logins: ReadonlyMap<string, LoginRecord>;
  /** Revision of the last change. */
  readonly revision: number;
  /** The last epoch that was assigned. */
  readonly epoch: number;
  /** Id of the last event. */
  readonly lastEvent: number;
}

/** A position in a transaction to roll back to. */
export interface Savepoint {
  readonly revision: number;
  readonly epoch: number;
  readonly marks: readonly number[];
}

/** The records that a transaction changed, for the calls that wait for them. */
export interface Changed {
  readonly claims: ReadonlySet<string>;
  /** Epochs. */
  readonly allocations: ReadonlySet<number>;
  readonly nodes: ReadonlySet<string>;
  readonly events: readonly EventRecord[];
}

/** Pending changes: reads see the durable state with the changes so far. */
export class Transaction {
  /** Unix seconds. */
  readonly now: number;
  readonly claims = new WriteSet<string, ClaimRecord>();
  readonly allocations: AllocationView;
  readonly nodes: NodeView;
  /** Including nodes that have joined again. */
  readonly removedNodes: RecordView<string, RemovedNodeRecord>;
  readonly queues: RecordView<string, QueueSpec>;
  readonly tenants: RecordView<string, TenantSpec>;
  readonly tokens: RecordView<string, TokenRecord>;
  readonly signingKeys: RecordView<string, SigningKeyRecord>;
  readonly logins: RecordView<string, LoginRecord>;
  /** Audit records of calls that change nothing else. */
  readonly audit: AuditEntry[] = [];
  readonly events: EventRecord[] = [];
  readonly usage: UsageRecord[] = [];
  readonly #base: Base;
  #revision: number;
  #epoch: number;

  constructor(base: Base, now: number) {
    this.#base = base;
    this.now = now;
    this.allocations = new AllocationView(base.allocations);
    this.nodes = new NodeView(base.nodes, base.sortedNodes);
    this.removedNodes = new RecordView(base.removedNodes);
    this.queues = new RecordView(base.queues);
    this.tenants = new RecordView(base.tenants);
    this.tokens = new RecordView(base.tokens);
    this.signingKeys = new RecordView(base.signingKeys);
    this.logins = new RecordView(base.logins);
    this.#revision = base.revision;
    this.#epoch = base.epoch;
  }

  /** A transaction with changes that were committed by another controller. */
  static of(base: Base, changes: StoreChanges): Transaction {
    const transaction = new Transaction(base, 0);
    transaction.#revision = changes.revision;
    transaction.#epoch = changes.epoch;
    const { removedNodes } = changes;
    putAll(
      transaction.nodes.changes,
      changes.nodes,
      ({ name }) => name,
      removedNodes.map(({ name }) => name),
    );
    putAll(transaction.removedNodes.changes, removedNodes, ({ name }) => name, []);
    putAll(transaction.claims, changes.claims, ({ name }) => name, changes.forgottenClaims);
    putAll(
      transaction.allocations.changes,
      changes.allocations,
      ({ epoch }) => epoch,
      changes.removedAllocations,
    );
    putAll(transaction.queues.changes, changes.queues, ({ name }) => name, changes.removedQueues);
    putAll(transaction.tenants.changes, changes.tenants, ({ name }) => name, changes.removedTenants);
    putAll(transaction.tokens.changes, changes.tokens, ({ name }) => name, changes.removedTokens);
    putAll(transaction.signingKeys.changes, changes.signingKeys, ({ id }) => id, []);
    putAll(transaction.logins.changes, changes.logins, ({ id }) => id, changes.removedLogins);
    transaction.events.push(...changes.events);
    return transaction;
  }

  /** Revision of the present change. Changed records carry it, and it defines the order of arrivals. */
  get revision(): number {
    return this.#revision;
  }

  get epoch(): number {
    return this.#epoch;
  }

  /** Begins the next change. */
  beginChange(): void {
    this.#revision += 1;
  }

  get hasChanges(): boolean {
    return this.hasChangedSince(origin);
  }

  hasChangedSince({ marks }: Savepoint): boolean {
    return this.#marks().some((mark, position) => mark !== (marks[position] ?? 0));
  }

  savepoint(): Savepoint {
    return { revision: this.#revision, epoch: this.#epoch, marks: this.#marks() };
  }

  /** Rolls back the changes since then. */
  rollback({ revision, epoch, marks }: Savepoint): void {
    this.#revision = revision;
    this.#epoch = epoch;
    for (const [position, writeSet] of this.#writeSets().entries()) {
      writeSet.rollback(marks[position] ?? 0);
    }
    for (const [position, log] of this.#logs().entries()) {
      log.length = marks[this.#writeSets().length + position] ?? 0;
    }
  }

  changed(): Changed {
    return {
      claims: new Set(this.claims.keys()),
      allocations: new Set(this.allocations.changes.keys()),
      nodes: new Set(this.nodes.changes.keys()),
      events: this.events,
    };
  }

  nextEpoch(): number {
    this.#epoch += 1;
    return this.#epoch;
  }

  claim(name: string): ClaimRecord | undefined {
    return read(this.claims, this.#base.claimIndex.byName, name);
  }

  /** In order of arrival. */
  allClaims(): ClaimRecord[] {
    return readAll(this.claims, this.#base.claimIndex.byName).sort((a, b) => a.arrival - b.arrival);
  }

  /** The claims that wait, in order of arrival. */
  pendingClaims(): ClaimRecord[] {
    const pending = this.#unchanged(this.#base.claimIndex.pending);
    pending.push(...present(this.claims).filter(({ state }) => state === "pending"));
    return pending.sort((a, b) => a.arrival - b.arrival);
  }

  /** The dormant claims, in no particular order. */
  dormantClaims(): ClaimRecord[] {
    const dormant = this.#unchanged(this.#base.claimIndex.dormant);
    dormant.push(...present(this.claims).filter(({ state }) => state === "dormant"));
    return dormant;
  }

  /** The claims of a gang that have not ended, in order of arrival. */
  gangClaims(gang: string): ClaimRecord[] {
    const members = this.#unchanged(this.#base.claimIndex.ofGang(gang));
    members.push(...present(this.claims).filter((claim) => claim.gang === gang && claim.endedAt === null));
    return members.sort((a, b) => a.arrival - b.arrival);
  }

  /** The ended claims that hold nothing, except the last `kept`; oldest first. */
  endedClaimsBefore(kept: number): string[] {
    const { ended } = this.#base.claimIndex;
    const holding = new Set(this.allocations.releasing().map(({ claim }) => claim));
    const isLate = (name: string) => !this.claims.has(name) && !holding.has(name);
    const changed = present(this.claims).filter(
      ({ name, endedAt }) => endedAt !== null && !holding.has(name),
    );
    const out = [...new Set([...this.claims.keys(), ...holding])].filter((name) => ended.has(name));
    let left = ended.size - out.length + changed.length - kept;
    const names: string[] = [];
    for (const name of ended) {
      if (left <= 0) {
        return names;
      }
      if (isLate(name)) {
        names.push(name);
        left -= 1;
      }
    }
    const newest = changed.sort(byEnd).map(({ name }) => name);
    return [...names, ...newest.slice(0, Math.max(0, left))];
  }

  /** Writes a claim; its version becomes the revision of this change. */
  putClaim(claim: ClaimRecord): ClaimRecord {
    const stamped = { ...claim, version: this.revision };
    this.claims.set(claim.name, stamped);
    return stamped;
  }

  forgetClaim(name: string): void {
    this.claims.set(name, null);
  }

  /** The allocation that a claim is bound to. */
  allocation(claim: string): AllocationRecord | undefined {
    return this.allocations.ofClaim(claim);
  }

  /** Writes an allocation, which changes the desired allocations of its node. */
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

  /** Sums over the bound claims. */
  totals(): Totals {
    const base = this.#base;
    const totals = new Totals(base.totals);
    for (const epoch of this.#epochsWithOtherParts()) {
      const [before, after] = [base.allocations.byEpoch.get(epoch), this.allocations.get(epoch)];
      const removed =
        before && partOf(before, base.claimIndex.byName.get(before.claim), base.nodes.get(before.node));
      const added = after && partOf(after, this.claim(after.claim), this.nodes.get(after.node));
      if (removed !== undefined) {
        totals.remove(removed);
      }
      if (added !== undefined) {
        totals.add(added);
      }
    }
    return totals;
  }

  /** The nodes with pending changes: of their allocations, or of claims that hold them. */
  nodesOfChanges(): ReadonlySet<string> {
    const nodes = this.allocations.changedNodes();
    for (const name of this.claims.keys()) {
      for (const { node } of this.allocations.heldBy(name)) {
        nodes.add(node);
      }
    }
    return nodes;
  }

  /** Deletes a node that holds nothing, and records its removal. */
  removeNode({ name }: NodeRecord): void {
    this.nodes.changes.set(name, null);
    this.removedNodes.set(name, { name, removedAt: this.now, revision: this.revision });
  }

  addEvent(kind: string, subject: string, detail: Reason): void {
    const id = this.#base.lastEvent + this.events.length + 1;
    this.events.push({ id, at: this.now, kind, subject, detail });
  }

  #stampNode(name: string): void {
    const node = this.nodes.get(name);
    if (node !== undefined) {
      this.nodes.put({ ...node, revision: this.revision });
    }
  }

  /** The unchanged ones among them. */
  #unchanged(names: Iterable<string>): ClaimRecord[] {
    const claims: ClaimRecord[] = [];
    for (const name of names) {
      const claim = this.claims.has(name) ? undefined : this.#base.claimIndex.byName.get(name);
      if (claim !== undefined) {
        claims.push(claim);
      }
    }
    return claims;
  }

  /** Epochs that were changed, or are on a node with changed devices, which determine the shares. */
  #epochsWithOtherParts(): ReadonlySet<number> {
    const epochs = new Set(this.allocations.changes.keys());
    for (const [name, node] of this.nodes.changes) {
      if (node?.devices !== this.#base.nodes.get(name)?.devices) {
        for (const { epoch } of this.#base.allocations.onNode(name)) {
          epochs.add(epoch);
        }
      }
    }
    return epochs;
  }

  #writeSets(): readonly Pick<WriteSet<never, never>, "mark" | "rollback">[] {
    const { allocations, nodes, removedNodes, queues, tenants, tokens, signingKeys, logins } = this;
    const views = [allocations, nodes, removedNodes, queues, tenants, tokens, signingKeys, logins];
    return [this.claims, ...views.map(({ changes }) => changes)];
  }

  #logs(): readonly { length: number }[] {
    return [this.events, this.usage, this.audit];
  }

  #marks(): number[] {
    return [...this.#writeSets().map(({ mark }) => mark), ...this.#logs().map(({ length }) => length)];
  }
}

function putAll<K, V>(
  into: WriteSet<K, V>,
  values: readonly V[],
  keyOf: (value: V) => K,
  removed: readonly K[],
): void {
  for (const key of removed) {
    into.set(key, null);
  }
  for (const value of values) {
    into.set(keyOf(value), value);
  }
}

/** The beginning of every transaction. */
const origin: Savepoint = { revision: 0, epoch: 0, marks: [] };
