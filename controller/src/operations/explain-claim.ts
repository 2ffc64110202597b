// SPDX-License-Identifier: Apache-2.0

import { type Reason, reason } from "@millpond/api";
import { forecast, makeQueueTree, nextRelease, type QueueTree } from "@millpond/scheduler";
import { nodeLossAfterSeconds } from "../reconcile/claim-lifecycle.ts";
import { seesAll, type Visibility } from "../auth/visibility.ts";
import { waitingPositions } from "../pool/claim-views.ts";
import type { ClaimRecord } from "../domain/records.ts";
import { requireClaim } from "./claims.ts";
import { quotaHolders } from "../scheduling/quota-holders.ts";
import type { Pool } from "../pool/pool.ts";
import { silentSeconds } from "../domain/observed-state.ts";

export interface ExplainedFact {
  /** `queue research`, `tenant a`, `node node-1`, `idle`. */
  readonly subject: string;
  readonly reason: Reason;
  /** The obstacle concerns claims of other tenants too. */
  readonly isShared: boolean;
}

/** Why a claim is in its state, with current numbers. */
export interface Explanation {
  readonly claim: ClaimRecord;
  /** Obstacles; empty if it does not wait. */
  readonly obstacle: string;
  /** Number of claims that wait in its queue. */
  readonly queueLength: number;
  /**
   * Claims that must end before it fits, after those ahead of it have been bound; if it waits for a quota, the claims
   * that hold the quota. Of other tenants' claims only those visible to the caller.
   */
  readonly waitsFor: readonly string[];
  /** The number of such claims that the caller does not see. */
  readonly waitsForHidden: number;
  /** The latest start, in Unix seconds; 0: unknown. */
  readonly expectedAt: number;
  /** The claim of the pool that ends next, if that is known. */
  readonly nextReleaseClaim: string;
  /** Unix seconds; 0: unknown. */
  readonly nextReleaseAt: number;
  /** Usage of its node, its queues and its tenant. */
  readonly facts: readonly ExplainedFact[];
}

/** @throws MILLPOND_E_NOT_FOUND */
export async function explainClaim(
  pool: Pool,
  name: string,
  sees: Visibility = seesAll,
): Promise<Explanation> {
  return await pool.ledger.read((transaction) => {
    const claim = requireClaim(pool, name, sees);
    const isSeen = (each: string) => {
      const other = pool.ledger.claims.get(each);
      return other !== undefined && sees(other);
    };
    const snapshot = pool.scheduler.queueSnapshot(transaction, pool.observe());
    const tree = makeQueueTree(snapshot);
    const blocked = pool.waiting.of(name);
    const holders = quotaHolders(
      claim,
      blocked,
      tree,
      transaction.allClaims().filter((other) => transaction.allocation(other.name) !== undefined),
    );
    const ahead = forecast(snapshot, pool.waiting, name);
    const next = nextRelease(snapshot);
    const positions = waitingPositions(pool);
    const inItsWay = holders?.names ?? ahead?.waitsFor ?? [];
    const waitsFor = inItsWay.filter(isSeen);
    return {
      claim,
      obstacle: holders?.isBeyondLimit === true ? "limit" : (blocked?.obstacle ?? ""),
      queueLength: [...positions.keys()].filter((each) => pool.ledger.claims.get(each)?.queue === claim.queue)
        .length,
      waitsFor,
      waitsForHidden: inItsWay.length - waitsFor.length,
      expectedAt: ahead?.startsAt ?? 0,
      nextReleaseClaim: next !== undefined && isSeen(next.claim) ? next.claim : "",
      nextReleaseAt: next?.at ?? 0,
      facts: [
        ...explainLostNode(pool, claim, transaction.allocation(name)?.node),
        ...tree.chain(claim.queue).map((queue) => ({
          subject: `queue ${queue.name}`,
          reason: tree.use(queue.name),
          isShared: true,
        })),
        { subject: `tenant ${claim.tenant}`, reason: tree.useOfTenant(claim.tenant), isShared: true },
        ...explainUser(tree, claim),
        ...pool.liveness
          .sessions()
          .filter(({ session }) => session.claim === name && session.notParked !== "")
          .map(({ session: { program, notParked } }) => ({
            subject: "idle",
            reason: reason("not-parked", { program, why: notParked }),
            isShared: false,
          })),
      ],
    };
  });
}

/** Its user's usage, if the user has a limit. */
function explainUser(tree: QueueTree, claim: ClaimRecord): ExplainedFact[] {
  const use = tree.useOfUser(claim);
  return use === undefined ? [] : [{ subject: `user ${claim.user}`, reason: use, isShared: true }];
}

/** The outcome for a claim whose node has lost contact. */
function explainLostNode(pool: Pool, { nodeLoss }: ClaimRecord, node: string | undefined): ExplainedFact[] {
  if (node === undefined || pool.liveness.isReady(node)) {
    return [];
  }
  const seconds = Math.floor(silentSeconds(pool.observe(), node));
  const afterSeconds = nodeLossAfterSeconds;
  const policies = {
    keep: reason("node-silent-claim-keeps", { seconds }),
    requeue: reason("node-silent-claim-requeues", { seconds, afterSeconds }),
    fail: reason("node-silent-claim-fails", { seconds, afterSeconds }),
  } as const;
  return [{ subject: `node ${node}`, reason: policies[nodeLoss], isShared: false }];
}
