// SPDX-License-Identifier: Apache-2.0

// What nodes hold in the course of a pass over the queues: as in the snapshot, with the notices that the pass gives.

import type { Snapshot } from "../snapshot.ts";
import type { Holdings, QueueSnapshot, RunningClaim, WaitingClaim } from "./claim.ts";
import { type EndingsOn, holdingsOf, outlookOf } from "./holdings.ts";
import type { Amount } from "./quota.ts";
import type { QueueTree } from "./tree.ts";
import { amountOn } from "./unit.ts";

export class PassHoldings {
  readonly #snapshot: QueueSnapshot;
  /** Read only when a unit does not fit, because there may be many holdings. */
  #given: ((node: string) => Holdings) | undefined;
  /** Nodes with claims that have received notice in this pass. */
  readonly #changed = new Map<string, Holdings>();

  constructor(snapshot: QueueSnapshot) {
    this.#snapshot = snapshot;
  }

  readonly of = (node: string): Holdings => {
    this.#given ??= holdingsOf(this.#snapshot);
    return this.#changed.get(node) ?? this.#given(node);
  };

  readonly endings: EndingsOn = (node) => outlookOf(this.of(node)).endings;

  /** Expected ends of released allocations and of claims with notice. */
  readonly noticed: EndingsOn = (node) => outlookOf(this.of(node)).noticed;

  /** The claims of a node with notice. */
  ending(node: string): readonly RunningClaim[] {
    return outlookOf(this.of(node)).ending;
  }

  /** Treats the claims as claims with notice for the rest of the pass. */
  giveNotice(victims: readonly RunningClaim[]): void {
    for (const [node, own] of Map.groupBy(victims, ({ statement }) => statement.node)) {
      const { running, leftovers } = this.of(node);
      const changed = running.map((each) => {
        if (!own.includes(each)) {
          return each;
        }
        const endsAt = this.#snapshot.now + each.graceSeconds;
        return { ...each, isEnding: true, endsAt: Math.min(each.endsAt ?? endsAt, endsAt) };
      });
      this.#changed.set(node, { running: changed, leftovers });
    }
  }

  /** When the claims with notice have released enough for the quotas of a claim; undefined: they do not release enough. */
  allowedAt(
    tree: QueueTree,
    nodes: Snapshot["nodes"],
    { claim, amount }: { readonly claim: WaitingClaim; readonly amount: Amount },
  ): number | undefined {
    const ending = nodes
      .flatMap((node) =>
        this.ending(node.name).map((each) => ({
          claim: each,
          endsAt: each.endsAt ?? this.#snapshot.now,
          amount: amountOn(node, each.statement),
        })),
      )
      .sort((a, b) => a.endsAt - b.endsAt);
    let count = 0;
    let isAllowed = false;
    while (!isAllowed && count < ending.length) {
      const next = ending[count];
      if (next !== undefined) {
        tree.refund(next.claim, next.amount);
      }
      count += 1;
      isAllowed = tree.refusal(claim, amount) === undefined;
    }
    for (const each of ending.slice(0, count)) {
      tree.charge(each.claim, each.amount);
    }
    return isAllowed ? ending[count - 1]?.endsAt : undefined;
  }
}
