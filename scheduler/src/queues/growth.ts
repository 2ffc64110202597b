// SPDX-License-Identifier: Apache-2.0

// Whether a claim may have more on the devices that it is on. What it has already is its own; the rest it gets as a claim
// would that is asked for now: of what is free, that which is not kept for those who wait with more right.

import { formatBytes, formatNeed } from "@millpond/api";
import { type DeviceState, freeOf, type Snapshot } from "../snapshot.ts";
import type { Placement, Statement } from "../statement.ts";
import { type Blocked, defaultPlanSettings, type QueueSnapshot, type WaitingClaim } from "./claim.ts";
import { openFor } from "./plan.ts";
import { describeKeeper, holdsOf, withHolds } from "./reservation.ts";
import { amountOfStatements } from "./unit.ts";

export interface Growth {
  /** As it would ask now; it does not wait. */
  readonly claim: WaitingClaim;
  readonly held: Statement;
  /** What it is to have instead: on the same devices, in the same order. */
  readonly to: readonly Placement[];
}

/** Why a claim does not get more; undefined: it does. What becomes less is in nobody's way. */
export function refuseGrowth(
  snapshot: QueueSnapshot,
  growth: Growth,
  settings = defaultPlanSettings,
): Pick<Blocked, "obstacle" | "reason"> | undefined {
  const { claim, held, to } = growth;
  const { tree, pool, reservations } = openFor(snapshot, claim, settings);
  const open = withHolds(pool, reservations);
  const crowded = to.map((asked, position) =>
    refuseOnDevice({ pool, open }, held.node, asked, held.devices[position]),
  );
  const first = crowded.find((each) => each !== undefined);
  if (first !== undefined) {
    const hold = holdsOf(pool, reservations).find(
      ({ node, uuid }) => node === held.node && uuid === first.device.uuid,
    );
    return hold === undefined || !first.isKept
      ? { obstacle: "room", reason: first.reason }
      : {
          obstacle: "reserved",
          reason: `${first.reason}; the rest is kept for ${describeKeeper(hold.keeper, snapshot.now)}`,
        };
  }
  tree.refund(claim, amountOfStatements(pool, [held]));
  const reason = tree.refusal(claim, amountOfStatements(pool, [{ ...held, devices: to }]));
  return reason === undefined ? undefined : { obstacle: "quota", reason };
}

interface Crowded {
  readonly device: DeviceState;
  /** Whether there would be enough if nothing were kept. */
  readonly isKept: boolean;
  readonly reason: string;
}

/** @param open The pool without what is kept. */
function refuseOnDevice(
  { pool, open }: { readonly pool: Snapshot; readonly open: Snapshot },
  node: string,
  asked: Placement,
  had: Placement | undefined,
): Crowded | undefined {
  const own = had ?? { memoryBytes: 0n, computePercent: 0 };
  const deviceOf = ({ nodes }: Snapshot) =>
    nodes.find(({ name }) => name === node)?.devices.find(({ uuid }) => uuid === asked.uuid);
  const [device, kept] = [deviceOf(pool), deviceOf(open)];
  if (device === undefined || kept === undefined) {
    throw new RangeError(`the snapshot has no device ${node}/${asked.uuid}`);
  }
  const where = `${node}/${device.index}`;
  const left = freeOf(kept);
  const memory = asked.memoryBytes - own.memoryBytes;
  if (memory > 0n && memory > left.memoryBytes) {
    return {
      device,
      isKept: memory <= freeOf(device).memoryBytes,
      reason: `${formatNeed(asked.memoryBytes)} is ${formatNeed(memory)} more than the claim has on ${where}, where ${formatBytes(left.memoryBytes)} is left`,
    };
  }
  const compute = asked.computePercent - own.computePercent;
  if (compute > 0 && compute > left.computePercent) {
    return {
      device,
      isKept: compute <= freeOf(device).computePercent,
      reason: `${asked.computePercent}% compute is ${compute}% more than the claim has on ${where}, where ${left.computePercent}% is left`,
    };
  }
  return undefined;
}
