// SPDX-License-Identifier: Apache-2.0

import type { QueueSnapshot } from "./claim.ts";
import { holdingsOf, outlookOf } from "./holdings.ts";
import { reserve } from "./reservation.ts";
import { makeUnits, totalsOf } from "./unit.ts";

/** What has to happen before a claim gets room, if nobody comes before it. */
export interface Forecast {
  /** Claims whose room it gets, in the order in which they are expected to end. */
  readonly waitsFor: readonly string[];
  /** Unix seconds: at the latest then; null: that is not known. */
  readonly startsAt: number | null;
}

/** What a claim gives back next, as far as that is known. */
export interface NextRelease {
  readonly claim: string;
  /** Unix seconds, at the latest. */
  readonly at: number;
}

/** @returns undefined when the claim does not wait, when its gang is not complete, or when it fits nowhere. */
export function forecast(snapshot: QueueSnapshot, claim: string): Forecast | undefined {
  const unit = makeUnits(snapshot.waiting, totalsOf(snapshot)).find(({ members }) =>
    members.some(({ request }) => request.claim === claim),
  );
  if (unit === undefined || unit.missing > 0) {
    return undefined;
  }
  const holdings = holdingsOf(snapshot);
  const reservation = reserve(snapshot.pool, unit, (node) => outlookOf(holdings(node)).endings);
  if (reservation === undefined) {
    return undefined;
  }
  const devices = new Set(
    reservation.statements.flatMap(({ node, devices: placed }) =>
      placed.map(({ uuid }) => `${node}/${uuid}`),
    ),
  );
  const waitsFor = reservation.ended
    .filter(({ statement }) => statement.devices.some(({ uuid }) => devices.has(`${statement.node}/${uuid}`)))
    .map(({ statement }) => statement.claim);
  const { startsAt } = reservation;
  return { waitsFor, startsAt: startsAt === null ? null : Math.max(startsAt, snapshot.now) };
}

/** The first of the running claims whose end is known. */
export function nextRelease({ running }: Pick<QueueSnapshot, "running">): NextRelease | undefined {
  let next: NextRelease | undefined;
  for (const { statement, endsAt } of running) {
    if (endsAt !== null && (next === undefined || endsAt < next.at)) {
      next = { claim: statement.claim, at: endsAt };
    }
  }
  return next;
}
