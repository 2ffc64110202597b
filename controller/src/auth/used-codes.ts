// SPDX-License-Identifier: Apache-2.0

import { hashOf } from "./tokens.ts";

/** Beyond this number the oldest is forgotten. */
const maxKept = 10_000;

/** Single-use texts that have been used since this controller started, as hashes. */
export class UsedCodes {
  readonly #hashes = new Set<string>();

  /** Records a text; returns whether this is its first use. */
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
