// SPDX-License-Identifier: Apache-2.0

import { forecast, makeQueueTree, nextRelease } from "@millpond/scheduler";
import { nodeLossAfterSeconds } from "./endings.ts";
import { hideNames, seesAll, type Sight } from "./callers.ts";
import { requireClaim } from "./claims.ts";
import { waitingPositions } from "./convert.ts";
import type { Pool } from "./pool.ts";
import { toQueueSnapshot } from "./queue-snapshot.ts";
import type { ClaimRecord } from "./store/store.ts";

/** Why a claim is as it is, with the numbers of the moment. */
export interface Explanation {
  readonly claim: ClaimRecord;
  /** What is in its way; empty when it does not wait. */
  readonly obstacle: string;
  /** Number of claims that wait in its queue. */
  readonly queueLength: number;
  /** Claims that have to end before it gets room, when those before it have theirs; of others' only what the caller sees. */
  readonly waitsFor: readonly string[];
  /** How many it waits for that the caller does not see. */
  readonly waitsForHidden: number;
  /** Unix seconds, at the latest; 0: not known. */
  readonly expectedAt: number;
  /** The claim of the pool that ends next, as far as that is known. */
  readonly nextReleaseClaim: string;
  /** Unix seconds; 0: not known. */
  readonly nextReleaseAt: number;
  /** Sentences for people. */
  readonly facts: readonly string[];
}

/** @throws MILLPOND_E_NOT_FOUND */
export async function explainClaim(pool: Pool, name: string, sees: Sight = seesAll): Promise<Explanation> {
  return await pool.ledger.read((transaction) => {
    const claim = requireClaim(pool, name, sees);
    const isSeen = (each: string) => {
      const other = pool.ledger.claims.get(each);
      return other !== undefined && sees(other);
    };
    const snapshot = toQueueSnapshot(transaction, pool.facts);
    const tree = makeQueueTree(snapshot);
    const obstacle = pool.waiting.of(name)?.obstacle;
    const ahead = forecast(snapshot, pool.waiting, name);
    const next = nextRelease(snapshot);
    const positions = waitingPositions(pool);
    const inItsWay = ahead?.waitsFor ?? [];
    const waitsFor = inItsWay.filter(isSeen);
    return {
      claim,
      obstacle: hideNames(pool, obstacle ?? "", sees),
      queueLength: [...positions.keys()].filter((each) => pool.ledger.claims.get(each)?.queue === claim.queue)
        .length,
      waitsFor,
      waitsForHidden: inItsWay.length - waitsFor.length,
      expectedAt: ahead?.startsAt ?? 0,
      nextReleaseClaim: next !== undefined && isSeen(next.claim) ? next.claim : "",
      nextReleaseAt: next?.at ?? 0,
      facts: [
        ...describeLostNode(pool, claim, transaction.allocation(name)?.node),
        ...tree.chain(claim.queue).map((queue) => `queue ${queue.name}: ${tree.describe(queue.name)}`),
        `tenant ${claim.tenant}: ${tree.describeTenant(claim.tenant)}`,
        ...pool.presence
          .sessions()
          .filter(({ session }) => session.claim === name && session.notParked !== "")
          .map(({ session }) => `idle: ${session.program} is not parked, since ${session.notParked}`),
      ],
    };
  });
}

/** What becomes of a claim whose node is not in contact. */
function describeLostNode(pool: Pool, { nodeLoss }: ClaimRecord, node: string | undefined): string[] {
  if (node === undefined || pool.facts.isNodeReady(node)) {
    return [];
  }
  const policies = {
    keep: "the claim waits for it",
    requeue: `after ${nodeLossAfterSeconds} s the claim goes back to its queue`,
    fail: `after ${nodeLossAfterSeconds} s the claim ends`,
  } as const;
  const silent = Math.floor(pool.facts.silentSeconds(node));
  return [`node ${node}: no word from its agent for ${silent} s; ${policies[nodeLoss]}`];
}
