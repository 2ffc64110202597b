// SPDX-License-Identifier: Apache-2.0

import { type Changes, merge, WriteSet, read } from "./write-set.ts";
import type { AllocationRecord } from "../domain/records.ts";

/** Allocations by epoch, with indexes by claim, by node, and of those that are being released. */
export class AllocationIndex {
  readonly #byEpoch = new Map<number, AllocationRecord>();
  readonly #byClaim = new Map<string, Set<number>>();
  readonly #byNode = new Map<string, Set<number>>();
  readonly #releasing = new Set<number>();
  /** Number of changes, by node. */
  readonly #versions = new Map<string, number>();

  constructor(allocations: readonly AllocationRecord[]) {
    this.merge(new Map(allocations.map((allocation) => [allocation.epoch, allocation])));
  }

  get byEpoch(): ReadonlyMap<number, AllocationRecord> {
    return this.#byEpoch;
  }

  /** The allocation that a claim is bound to. */
  ofClaim(claim: string): AllocationRecord | undefined {
    return this.heldBy(claim).find(({ releasedRevision }) => releasedRevision === null);
  }

  /** All allocations of a claim: the bound one, and released ones that may still be in use. */
  heldBy(claim: string): AllocationRecord[] {
    return this.#list(this.#byClaim.get(claim));
  }

  onNode(node: string): AllocationRecord[] {
    return this.#list(this.#byNode.get(node));
  }

  /** Released allocations that may still be in use. */
  releasing(): AllocationRecord[] {
    return this.#list(this.#releasing);
  }

  /** Changes whenever the node's allocations, or a claim that holds one, change. */
  versionOf(node: string): number {
    return this.#versions.get(node) ?? 0;
  }

  /** Call it when a claim has changed. */
  touchClaim(name: string): void {
    for (const { node } of this.heldBy(name)) {
      this.#touch(node);
    }
  }

  merge(changes: Changes<number, AllocationRecord>): void {
    for (const [epoch, change] of changes) {
      const known = change ?? this.#byEpoch.get(epoch);
      if (known !== undefined) {
        this.#touch(known.node);
        mark(this.#byClaim, known.claim, epoch, change !== null);
        mark(this.#byNode, known.node, epoch, change !== null);
      }
      if (change !== null && change.releasedRevision !== null) {
        this.#releasing.add(epoch);
      } else {
        this.#releasing.delete(epoch);
      }
    }
    merge(this.#byEpoch, changes);
  }

  #touch(node: string): void {
    this.#versions.set(node, this.versionOf(node) + 1);
  }

  #list(epochs: ReadonlySet<number> | undefined): AllocationRecord[] {
    const found: AllocationRecord[] = [];
    for (const epoch of epochs ?? []) {
      const allocation = this.#byEpoch.get(epoch);
      if (allocation !== undefined) {
        found.push(allocation);
      }
    }
    return found;
  }
}

/** An index with pending changes. */
export class AllocationView {
  readonly changes = new WriteSet<number, AllocationRecord>();
  readonly #base: AllocationIndex;

  constructor(base: AllocationIndex) {
    this.#base = base;
  }

  get(epoch: number): AllocationRecord | undefined {
    return read(this.changes, this.#base.byEpoch, epoch);
  }

  ofClaim(claim: string): AllocationRecord | undefined {
    return this.heldBy(claim).find(({ releasedRevision }) => releasedRevision === null);
  }

  /** As `AllocationIndex.versionOf`, for a node without pending changes. */
  versionOf(node: string): number {
    return this.#base.versionOf(node);
  }

  /** The nodes with pending changes. */
  changedNodes(): Set<string> {
    const nodes = new Set<string>();
    for (const [epoch, change] of this.changes) {
      const node = (change ?? this.#base.byEpoch.get(epoch))?.node;
      if (node !== undefined) {
        nodes.add(node);
      }
    }
    return nodes;
  }

  heldBy(claim: string): AllocationRecord[] {
    return this.#select(this.#base.heldBy(claim), (each) => each.claim === claim);
  }

  onNode(node: string): AllocationRecord[] {
    return this.#select(this.#base.onNode(node), (each) => each.node === node);
  }

  releasing(): AllocationRecord[] {
    return this.#select(this.#base.releasing(), (each) => each.releasedRevision !== null);
  }

  all(): AllocationRecord[] {
    return this.#select([...this.#base.byEpoch.values()], () => true);
  }

  #select(
    base: readonly AllocationRecord[],
    isMeant: (allocation: AllocationRecord) => boolean,
  ): AllocationRecord[] {
    const found = base.filter(({ epoch }) => !this.changes.has(epoch));
    for (const change of this.changes.values()) {
      if (change !== null && isMeant(change)) {
        found.push(change);
      }
    }
    return found;
  }
}

function mark(index: Map<string, Set<number>>, key: string, epoch: number, isThere: boolean): void {
  const epochs = index.get(key) ?? new Set();
  if (isThere) {
    index.set(key, epochs.add(epoch));
  } else {
    epochs.delete(epoch);
    if (epochs.size === 0) {
      index.delete(key);
    }
  }
}
