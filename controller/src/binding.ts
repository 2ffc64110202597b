// SPDX-License-Identifier: Apache-2.0

import { amountOn, type Statement } from "@millpond/scheduler";
import { recordWait } from "./endings.ts";
import type { Transaction } from "./transaction.ts";

/** Gives a claim what was decided for it. */
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
  recordWait(transaction, claim, amountOn(transaction.node(node), statement).gpuMilli);
  const { now } = transaction;
  transaction.putClaim({ ...claim, state: "bound", reason: "", boundAt: now, waitingSince: null });
  const where = devices.map(({ index }) => `${node}/${index}`).join(", ");
  transaction.addEvent("ClaimBound", `claim/${claim.name}`, `bound to ${where}`);
}
