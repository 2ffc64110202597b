// SPDX-License-Identifier: Apache-2.0

// Whether a claim may grow on its devices. Its present allocation stays; the increase is treated like a new claim: it comes
// from free capacity that is not reserved for claims ahead of it.

import { type Reason, reason } from "@millpond/api";
import { type DeviceState, freeOf, growthOf, type Snapshot } from "../snapshot.ts";
import type { Placement, Statement } from "../statement.ts";
import { type Blocked, defaultPlanSettings, type QueueSnapshot, type WaitingClaim } from "./claim.ts";
import { availableTo } from "./plan.ts";
import { ownerOfReservation, holdsOf, withHolds } from "./reservation.ts";
import { amountOfStatements } from "./unit.ts";

export interface Growth {
  /** The claim as it would request devices now; it does not wait. */
  readonly claim: WaitingClaim;
  readonly held: Statement;
  /** The new sizes: on the same devices, in the same order. */
  readonly to: readonly Placement[];
}

/** Why a claim may not grow; undefined: it may. A decrease is always allowed. */
export function refuseGrowth(
  snapshot: QueueSnapshot,
  growth: Growth,
  settings = defaultPlanSettings,
): Pick<Blocked, "obstacle" | "reason"> | undefined {
  const { claim, held, to } = growth;
  const { tree, pool, reservations } = availableTo(snapshot, claim, settings);
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
          reason: reason("rest-kept-for", {
            reason: first.reason,
            ...ownerOfReservation(hold.keeper, snapshot.now),
          }),
        };
  }
  tree.refund(claim, amountOfStatements(pool, [held]));
  const refusal = tree.refusal(claim, amountOfStatements(pool, [{ ...held, devices: to }]));
  return refusal && { obstacle: "quota", reason: refusal };
}

interface Crowded {
  readonly device: DeviceState;
  /** Whether the capacity exists but is reserved. */
  readonly isKept: boolean;
  readonly reason: Reason;
}

/** @param open the pool without reserved capacity */
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
  const roomOf = had === undefined ? freeOf : growthOf;
  const left = roomOf(kept);
  const memory = asked.memoryBytes - own.memoryBytes;
  if (memory > 0n && memory > left.memoryBytes) {
    return {
      device,
      isKept: memory <= roomOf(device).memoryBytes,
      reason: reason("device-memory-left", {
        asksBytes: asked.memoryBytes,
        moreBytes: memory,
        device: where,
        leftBytes: left.memoryBytes,
      }),
    };
  }
  const compute = asked.computePercent - own.computePercent;
  if (compute > 0 && compute > left.computePercent) {
    return {
      device,
      isKept: compute <= roomOf(device).computePercent,
      reason: reason("device-compute-left", {
        asksPercent: asked.computePercent,
        morePercent: compute,
        device: where,
        leftPercent: left.computePercent,
      }),
    };
  }
  return undefined;
}
