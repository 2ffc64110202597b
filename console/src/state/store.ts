// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from "preact/hooks";

/** A value that components follow. */
export class Store<T> {
  #value: T;
  readonly #followers = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get(): T {
    return this.#value;
  }

  set(value: T): void {
    this.#value = value;
    for (const follower of this.#followers) {
      follower(value);
    }
  }

  follow(follower: (value: T) => void): () => void {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.get());
  useEffect(() => {
    // It may have changed between the first drawing and this.
    setValue(() => store.get());
    return store.follow((next) => setValue(() => next));
  }, [store]);
  return value;
}
