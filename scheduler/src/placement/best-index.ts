// SPDX-License-Identifier: Apache-2.0

/**
 * Scores of all rooms for one shape, with the best of them in constant time: a tournament tree. Ties go to the first room.
 */
export class BestIndex {
  readonly #scores: Float64Array;
  /** Winner of each match: 1 is the final, and the matches that feed n are 2n and 2n + 1. */
  readonly #winners: Int32Array;
  readonly #leaves: number;

  constructor(count: number) {
    this.#leaves = 1 << Math.ceil(Math.log2(Math.max(2, count)));
    this.#scores = new Float64Array(this.#leaves).fill(Number.NEGATIVE_INFINITY);
    this.#winners = new Int32Array(this.#leaves);
    this.rebuild();
  }

  /** Sets a score without replaying the matches; call `rebuild` afterwards. */
  setQuietly(room: number, score: number): void {
    this.#scores[room] = score;
  }

  rebuild(): void {
    for (let match = this.#leaves - 1; match >= 1; match--) {
      this.#play(match);
    }
  }

  set(room: number, score: number): void {
    if (this.#scores[room] === score) {
      return;
    }
    this.#scores[room] = score;
    for (let match = (this.#leaves + room) >> 1; match >= 1; match >>= 1) {
      this.#play(match);
    }
  }

  /** The room with the best score; -1 when every score is minus infinity. */
  best(): number {
    const winner = this.#winners[1] as number;
    return this.#scores[winner] === Number.NEGATIVE_INFINITY ? -1 : winner;
  }

  #play(match: number): void {
    const left = this.#entrant(2 * match);
    const right = this.#entrant(2 * match + 1);
    this.#winners[match] = (this.#scores[right] as number) > (this.#scores[left] as number) ? right : left;
  }

  #entrant(place: number): number {
    return place >= this.#leaves ? place - this.#leaves : (this.#winners[place] as number);
  }
}
