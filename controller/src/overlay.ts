// SPDX-License-Identifier: Apache-2.0

/** Changes of a map that have not been made yet: new values by key; null: to be removed. */
export type Overlay<K, V> = Map<K, V | null>;

/** The value with the changes made. */
export function read<K, V>(overlay: Overlay<K, V>, base: ReadonlyMap<K, V>, key: K): V | undefined {
  const value = overlay.get(key);
  return value === undefined ? base.get(key) : (value ?? undefined);
}

/** All values with the changes made, in no particular order. */
export function readAll<K, V>(overlay: Overlay<K, V>, base: ReadonlyMap<K, V>): V[] {
  const values: V[] = [];
  for (const [key, value] of base) {
    if (!overlay.has(key)) {
      values.push(value);
    }
  }
  return [...values, ...present(overlay)];
}

/** Makes the changes. */
export function merge<K, V>(base: Map<K, V>, overlay: Overlay<K, V>): void {
  for (const [key, value] of overlay) {
    if (value === null) {
      base.delete(key);
    } else {
      base.set(key, value);
    }
  }
}

export function present<K, V>(overlay: Overlay<K, V>): V[] {
  return [...overlay.values()].filter((value) => value !== null);
}

export function absent<K, V>(overlay: Overlay<K, V>): K[] {
  return [...overlay].filter(([, value]) => value === null).map(([key]) => key);
}
