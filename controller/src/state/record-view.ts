// SPDX-License-Identifier: Apache-2.0

import type { NodeRecord } from "../domain/records.ts";
import { present, read, readAll, WriteSet } from "./write-set.ts";

/** The durable records of one kind, by key, with pending changes applied. */
export class RecordView<K, V> {
  readonly changes = new WriteSet<K, V>();
  readonly #base: ReadonlyMap<K, V>;

  constructor(base: ReadonlyMap<K, V>) {
    this.#base = base;
  }

  get(key: K): V | undefined {
    return read(this.changes, this.#base, key);
  }

  /** In no particular order. */
  all(): V[] {
    return readAll(this.changes, this.#base);
  }

  set(key: K, value: V): void {
    this.changes.set(key, value);
  }

  delete(key: K): void {
    this.changes.set(key, null);
  }
}

/** The nodes by name, with pending changes applied. */
export class NodeView {
  readonly changes = new WriteSet<string, NodeRecord>();
  readonly #base: ReadonlyMap<string, NodeRecord>;
  readonly #sorted: readonly NodeRecord[];

  /** @param sorted The same nodes, sorted by name. */
  constructor(base: ReadonlyMap<string, NodeRecord>, sorted: readonly NodeRecord[]) {
    this.#base = base;
    this.#sorted = sorted;
  }

  get(name: string): NodeRecord | undefined {
    return read(this.changes, this.#base, name);
  }

  /** Sorted by name. */
  all(): readonly NodeRecord[] {
    const { changes } = this;
    if (changes.size === 0) {
      return this.#sorted;
    }
    if ([...changes].every(([name, node]) => node !== null && this.#base.has(name))) {
      const all = [...this.#sorted];
      for (const node of present(changes)) {
        all[positionOf(this.#sorted, node.name)] = node;
      }
      return all;
    }
    return readAll(changes, this.#base).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  put(node: NodeRecord): void {
    this.changes.set(node.name, node);
  }
}

/** Position of a node in the sorted list. */
function positionOf(sorted: readonly NodeRecord[], name: string): number {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle]?.name ?? "") < name) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
