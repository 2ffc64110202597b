// SPDX-License-Identifier: Apache-2.0

import type { Excess } from "@millpond/api";
import type { Blocked, QueueTree } from "@millpond/scheduler";
import type { ClaimRecord } from "../domain/records.ts";

export interface QuotaHolders {
  /** Claims whose end returns quota, in the order of `claims`. */
  readonly names: readonly string[];
  /** The claim alone exceeds the limit, so the end of other claims does not help. */
  readonly isBeyondLimit: boolean;
}

/**
 * Finds the claims that hold the quota for which a claim waits; undefined for a claim that waits for something else.
 *
 * @param holders the claims with allocations
 */
export function quotaHolders(
  claim: ClaimRecord,
  blocked: Blocked | undefined,
  tree: QueueTree,
  holders: readonly ClaimRecord[],
): QuotaHolders | undefined {
  const limit = limitOf(claim, blocked, tree);
  if (limit === undefined) {
    return undefined;
  }
  const { excess, used, isCharged } = limit;
  const isBeyondLimit = excess.amount - used > excess.limit;
  return { names: isBeyondLimit ? [] : holders.filter(isCharged).map(({ name }) => name), isBeyondLimit };
}

interface Limit {
  readonly excess: Excess;
  /** The excess, in its unit. */
  readonly used: number;
  readonly isCharged: (other: ClaimRecord) => boolean;
}

function limitOf(
  { tenant, user }: ClaimRecord,
  blocked: Blocked | undefined,
  tree: QueueTree,
): Limit | undefined {
  const why = blocked?.reason;
  switch (why?.code) {
    case "queue-at-limit": {
      const { queue, excess } = why.args;
      return {
        excess,
        used: Number(tree.used(queue)[excess.resource]),
        isCharged: (other) => tree.chain(other.queue).some(({ name }) => name === queue),
      };
    }
    case "tenant-at-limit": {
      const { excess } = why.args;
      return {
        excess,
        used: Number(tree.usedByTenant(tenant)[excess.resource]),
        isCharged: (other) => other.tenant === tenant,
      };
    }
    case "user-at-limit": {
      const { excess } = why.args;
      return {
        excess,
        used: Number(tree.usedByUser({ tenant, user })[excess.resource]),
        isCharged: (other) => other.tenant === tenant && other.user === user,
      };
    }
    default:
      return undefined;
  }
}
