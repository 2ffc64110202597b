// SPDX-License-Identifier: Apache-2.0

import type { Candidate } from "../filter.ts";
import type { NodeState } from "../snapshot.ts";

/** The best offer of a node to a claim. */
export interface Offer {
  readonly taken: readonly Candidate[];
  /**
   * Ranks of the offer, most significant first, smaller is better: bytes of the largest device used, if the claim requests
   * bytes (so that a small claim leaves the large devices free); distance between the devices; the negated score.
   */
  readonly ranks: readonly [number, number, number];
}

export interface BestOffer {
  readonly node: NodeState;
  readonly offer: Offer;
}

/** Whether the first offer is better: by its ranks, then by the name of its node, so that there are no ties. */
export function isBetter({ node, offer }: BestOffer, than: BestOffer): boolean {
  const [a, b] = [offer.ranks, than.offer.ranks];
  const difference = a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  return difference < 0 || (difference === 0 && node.name < than.node.name);
}

/**
 * The offers of a pool's nodes to claims with the same request, and the best of them: a tournament tree, of which only the
 * matches of nodes that have changed since the last query are replayed. A changed node is another object.
 */
export class Ranking {
  #nodes: readonly NodeState[] = [];
  /** By position of the node; undefined: the node has no place. */
  #offers: (BestOffer | undefined)[] = [];
  /** Winner of each match: 1 is the final, the matches that feed n are 2n and 2n + 1, and the nodes come last. */
  #winners: (BestOffer | undefined)[] = [];

  best(nodes: readonly NodeState[], offerOf: (node: NodeState) => Offer | undefined): BestOffer | undefined {
    const isSame = nodes.length === this.#nodes.length;
    const changed: number[] = [];
    for (let position = 0; position < nodes.length; position++) {
      const node = nodes[position];
      if (node !== undefined && (!isSame || node !== this.#nodes[position])) {
        const offer = offerOf(node);
        this.#offers[position] = offer && { node, offer };
        changed.push(position);
      }
    }
    this.#offers.length = nodes.length;
    this.#nodes = nodes;
    // With more changes than this, replaying all matches once is cheaper than replaying those of each change.
    if (!isSame || changed.length * Math.log2(nodes.length) > nodes.length) {
      this.#playAll();
    } else {
      for (const position of changed) {
        this.#playFrom(position);
      }
    }
    return nodes.length === 1 ? this.#offers[0] : this.#winners[1];
  }

  #playAll(): void {
    this.#winners = Array.from({ length: this.#nodes.length }, () => undefined);
    for (let match = this.#nodes.length - 1; match >= 1; match--) {
      this.#play(match);
    }
  }

  #playFrom(position: number): void {
    for (let match = (this.#nodes.length + position) >> 1; match >= 1; match >>= 1) {
      this.#play(match);
    }
  }

  #play(match: number): void {
    const [left, right] = [this.#entrant(2 * match), this.#entrant(2 * match + 1)];
    const isRight = right !== undefined && (left === undefined || isBetter(right, left));
    this.#winners[match] = isRight ? right : left;
  }

  #entrant(place: number): BestOffer | undefined {
    const { length } = this.#nodes;
    return place >= length ? this.#offers[place - length] : this.#winners[place];
  }
}
