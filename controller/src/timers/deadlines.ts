// SPDX-License-Identifier: Apache-2.0

interface Entry {
  readonly key: string;
  readonly at: number;
}

interface Known {
  at: number;
  /** Time of its valid entry: never later than the true time. */
  queuedAt: number;
}

/**
 * Times by key, in a heap. Postponing, the most frequent operation, is free until the earlier time has come: the entry stays
 * in place and is moved then.
 */
export class Deadlines {
  readonly #known = new Map<string, Known>();
  /** A binary min-heap. It may contain entries that are no longer valid. */
  readonly #heap: Entry[] = [];

  set(key: string, at: number): void {
    const known = this.#known.get(key);
    if (known !== undefined && known.queuedAt <= at) {
      known.at = at;
      return;
    }
    this.#known.set(key, { at, queuedAt: at });
    this.#push({ key, at });
  }

  delete(key: string): void {
    this.#known.delete(key);
    if (this.#known.size === 0) {
      this.#heap.length = 0;
    }
  }

  /** The earliest; undefined when there is none. */
  next(): number | undefined {
    return this.#first()?.at;
  }

  /** Removes the keys that are due, in the order of their times. */
  takeDue(now: number): string[] {
    const due: string[] = [];
    for (let first = this.#first(); first !== undefined && first.at <= now; first = this.#first()) {
      this.#pop();
      this.#known.delete(first.key);
      due.push(first.key);
    }
    return due;
  }

  /** The first valid entry, with its true time. */
  #first(): Entry | undefined {
    for (let first = this.#heap[0]; first !== undefined; first = this.#heap[0]) {
      const { key, at } = first;
      const known = this.#known.get(key);
      if (known !== undefined && known.queuedAt === at && known.at === at) {
        return first;
      }
      this.#pop();
      if (known !== undefined && known.queuedAt === at) {
        known.queuedAt = known.at;
        this.#push({ key, at: known.at });
      }
    }
    return undefined;
  }

  #push(entry: Entry): void {
    let position = this.#heap.length;
    while (position > 0) {
      const above = (position - 1) >> 1;
      const parent = this.#heap[above];
      if (parent === undefined || parent.at <= entry.at) {
        break;
      }
      this.#heap[position] = parent;
      position = above;
    }
    this.#heap[position] = entry;
  }

  #pop(): void {
    const last = this.#heap.pop();
    const { length } = this.#heap;
    if (last === undefined || length === 0) {
      return;
    }
    let position = 0;
    for (;;) {
      let below = 2 * position + 1;
      const [left, right] = [this.#heap[below], this.#heap[below + 1]];
      if (left === undefined) {
        break;
      }
      const isRight = right !== undefined && right.at < left.at;
      const child = isRight ? right : left;
      below += isRight ? 1 : 0;
      if (last.at <= child.at) {
        break;
      }
      this.#heap[position] = child;
      position = below;
    }
    this.#heap[position] = last;
  }
}
