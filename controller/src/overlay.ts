// SPDX-License-Identifier: Apache-2.0

/** Changes of a map that have not been made yet: new values by key; null: to be removed. They can be taken back. */
export class Overlay<K, V> extends Map<K, V | null> {
  /** What was there before each change, in their order. */
  readonly #undo: { readonly key: K; readonly before: V | null | undefined }[] = [];

  override set(key: K, value: V | null): this {
    this.#undo.push({ key, before: this.get(key) });
    return super.set(key, value);
  }

  /** How far the changes have come. */
  get mark(): number {
    return this.#undo.length;
  }

  /** Takes back what was changed since then. */
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

/** Changes that can only be read. */
export type Changes<K, V> = ReadonlyMap<K, V | null>;

/** The value with the changes made. */
export function read<K, V>(changes: Changes<K, V>, base: ReadonlyMap<K, V>, key: K): V | undefined {
  const value = changes.get(key);
  return value === undefined ? base.get(key) : (value ?? undefined);
}

/** All values with the changes made, in no particular order. */
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

/** Makes the changes. */
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
