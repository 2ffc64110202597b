// SPDX-License-Identifier: Apache-2.0

import { type Changes, merge, Overlay, read } from "./overlay.ts";
import type { AllocationRecord } from "./store/store.ts";

/** Allocations by epoch, and who finds them by claim, by node, and among those that are being given back. */
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

  /** What a claim is bound to. */
  ofClaim(claim: string): AllocationRecord | undefined {
    return this.heldBy(claim).find(({ releasedRevision }) => releasedRevision === null);
  }

  /** What a claim is bound to, and what was taken back from it and may still be in use. */
  heldBy(claim: string): AllocationRecord[] {
    return this.#list(this.#byClaim.get(claim));
  }

  onNode(node: string): AllocationRecord[] {
    return this.#list(this.#byNode.get(node));
  }

  /** What was taken back and may still be in use. */
  releasing(): AllocationRecord[] {
    return this.#list(this.#releasing);
  }

  /** Another number whenever what is on the node is something else, or one of the claims there. */
  versionOf(node: string): number {
    return this.#versions.get(node) ?? 0;
  }

  /** To be told of claims that are something else now. */
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

/** An index with changes that have not been made yet. */
export class AllocationView {
  readonly changes = new Overlay<number, AllocationRecord>();
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

  /** As `AllocationIndex.versionOf`, of a node without changes that have not been made yet. */
  versionOf(node: string): number {
    return this.#base.versionOf(node);
  }

  /** The nodes that have changes that have not been made yet. */
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
