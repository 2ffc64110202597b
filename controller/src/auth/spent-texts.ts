// SPDX-License-Identifier: Apache-2.0

import { hashOf } from "./tokens.ts";

/** Beyond it the oldest is forgotten. */
const maxKept = 10_000;

/** Texts that are good once, by their hashes, since this controller started. */
export class SpentTexts {
  readonly #hashes = new Set<string>();

  /** Returns whether it is there for the first time. */
  add(text: string): boolean {
    const hash = hashOf(text);
    if (this.#hashes.has(hash)) {
      return false;
    }
    const [oldest] = this.#hashes;
    if (oldest !== undefined && this.#hashes.size >= maxKept) {
      this.#hashes.delete(oldest);
    }
    this.#hashes.add(hash);
    return true;
  }
}
