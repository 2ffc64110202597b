// SPDX-License-Identifier: Apache-2.0

import { reason } from "@millpond/api";
import { amountOn, type Statement } from "@millpond/scheduler";
import { recordWait } from "./claim-lifecycle.ts";
import type { Transaction } from "../state/transaction.ts";

/** Binds a claim to its placement. */
export function bind(transaction: Transaction, statement: Statement): void {
  const { node, devices } = statement;
  const claim = transaction.claim(statement.claim);
  if (claim === undefined) {
    return;
  }
  transaction.putAllocation({
    claim: claim.name,
    node,
    epoch: transaction.nextEpoch(),
    grantedAt: transaction.now,
    activeSeconds: 0,
    countedMs: 0,
    releasedRevision: null,
    sizeRevision: 0,
    resizing: null,
    devices: devices.map(({ uuid, memoryBytes, computePercent }) => ({ uuid, memoryBytes, computePercent })),
  });
  recordWait(transaction, claim, amountOn(transaction.nodes.get(node), statement).gpuMilli);
  const { now } = transaction;
  transaction.putClaim({ ...claim, state: "bound", reason: undefined, boundAt: now, waitingSince: null });
  const names = devices.map(({ index }) => `${node}/${index}`);
  transaction.addEvent("ClaimBound", `claim/${claim.name}`, reason("bound-to", { devices: names }));
}
