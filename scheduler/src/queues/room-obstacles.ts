// SPDX-License-Identifier: Apache-2.0

// Why a unit gets no capacity now: the pool has none for it, or reserves for others what it has.

import { type Reason, reason } from "@millpond/api";
import { explainWaiting } from "../explain.ts";
import type { Snapshot } from "../snapshot.ts";
import { applyStatement } from "../statement.ts";
import { ownerOfReservation, type Reservation } from "./reservation.ts";
import { placeUnit, type Unit } from "./unit.ts";

/** The capacity at a point of a pass over the queues. */
export interface Room {
  readonly pool: Snapshot;
  readonly reservations: readonly Reservation[];
  /** Unix time in seconds. */
  readonly now: number;
}

/** Answers for one pass, cached by shape: within a pass the pool only becomes fuller. */
export class RoomObstacles {
  /** Shapes that would not fit even without reservations. */
  readonly #full = new Set<string>();
  readonly #explanations = new Map<string, Reason>();

  /** Whether there is capacity for the unit that is reserved for others. */
  isKeptFrom({ pool, reservations }: Room, unit: Unit, shape: string): boolean {
    if (reservations.length === 0 || this.#full.has(shape)) {
      return false;
    }
    const fits = placeUnit(pool, unit) !== undefined;
    if (!fits) {
      this.#full.add(shape);
    }
    return fits;
  }

  explain(room: Room, unit: Unit, shape: string): Reason {
    const known = this.#explanations.get(shape);
    if (known !== undefined) {
      return known;
    }
    const keeper = this.isKeptFrom(room, unit, shape) ? room.reservations[0] : undefined;
    const why =
      keeper === undefined
        ? explainPool(room.pool, unit)
        : reason("kept-for", ownerOfReservation(keeper, room.now));
    this.#explanations.set(shape, why);
    return why;
  }

  /** Forgets earlier answers, because capacity has returned to the pool. */
  forget(): void {
    this.#full.clear();
    this.#explanations.clear();
  }
}

function explainPool(pool: Snapshot, unit: Unit): Reason {
  let current = pool;
  for (const [position, { request }] of unit.members.entries()) {
    const statement = placeUnit(current, { ...unit, members: unit.members.slice(position, position + 1) });
    if (statement?.[0] === undefined) {
      const why = explainWaiting(current, request);
      const members = unit.members.length;
      return members > 1
        ? reason("gang-in-part", { unit: unit.holder, placed: position, members, reason: why })
        : why;
    }
    current = applyStatement(current, statement[0]);
  }
  return reason("gang-needs-one-node", { unit: unit.holder });
}
