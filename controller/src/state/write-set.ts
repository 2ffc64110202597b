// SPDX-License-Identifier: Apache-2.0

/** Pending changes of a map: new values by key; null: removed. They can be rolled back. */
export class WriteSet<K, V> extends Map<K, V | null> {
  /** The previous values, in the order of the changes. */
  readonly #undo: { readonly key: K; readonly before: V | null | undefined }[] = [];

  override set(key: K, value: V | null): this {
    this.#undo.push({ key, before: this.get(key) });
    return super.set(key, value);
  }

  /** The number of changes so far. */
  get mark(): number {
    return this.#undo.length;
  }

  /** Rolls back the changes since then. */
  rollback(mark: number): void {
    for (const { key, before } of this.#undo.splice(mark).reverse()) {
      if (before === undefined) {
        this.delete(key);
      } else {
        super.set(key, before);
      }
    }
  }
}

/** Read-only pending changes. */
export type Changes<K, V> = ReadonlyMap<K, V | null>;

/** The value with the changes applied. */
export function read<K, V>(changes: Changes<K, V>, base: ReadonlyMap<K, V>, key: K): V | undefined {
  const value = changes.get(key);
  return value === undefined ? base.get(key) : (value ?? undefined);
}

/** All values with the changes applied, in no particular order. */
export function readAll<K, V>(changes: Changes<K, V>, base: ReadonlyMap<K, V>): V[] {
  const values: V[] = [];
  for (const [key, value] of base) {
    if (!changes.has(key)) {
      values.push(value);
    }
  }
  for (const value of changes.values()) {
    if (value !== null) {
      values.push(value);
    }
  }
  return values;
}

/** Applies the changes. */
export function merge<K, V>(base: Map<K, V>, changes: Changes<K, V>): void {
  for (const [key, value] of changes) {
    if (value === null) {
      base.delete(key);
    } else {
      base.set(key, value);
    }
  }
}

export function present<K, V>(changes: Changes<K, V>): V[] {
  return [...changes.values()].filter((value) => value !== null);
}

export function absent<K, V>(changes: Changes<K, V>): K[] {
  return [...changes].filter(([, value]) => value === null).map(([key]) => key);
}
