// SPDX-License-Identifier: Apache-2.0

import { defaultPlanSettings, type Holdings, type QueueDecision, type QueueSnapshot } from "./claim.ts";
import { compareEndings, type Ending, type EndingsOn, holdingsOf, outlookOf } from "./holdings.ts";
import { reserve, type Reservation } from "./reservation.ts";
import { makeUnits, shapeOfUnit, totalsOf, type Unit } from "./unit.ts";

/** What must happen before a claim gets room, if the claims ahead of it stay the same. */
export interface Forecast {
  /** Claims whose capacity it gets, in the order in which they are expected to end. */
  readonly waitsFor: readonly string[];
  /** The latest time, Unix seconds; null: unknown. */
  readonly startsAt: number | null;
}

/** The next expected release of a claim. */
export interface NextRelease {
  readonly claim: string;
  /** The latest time, Unix seconds. */
  readonly at: number;
}

/** The decision about the claims that wait on this snapshot. */
type Decided = Pick<QueueDecision, "order" | "blocked">;

/**
 * Claims ahead of this one get freed capacity first, once each, and release it again.
 *
 * @returns undefined when the claim does not wait for room, when it fits nowhere, or when too many are ahead of it
 */
export function forecast(
  snapshot: QueueSnapshot,
  decided: Decided,
  claim: string,
  settings = defaultPlanSettings,
): Forecast | undefined {
  const units = unitsForRoom(snapshot, decided);
  const position = units.findIndex(({ members }) => members.some(({ request }) => request.claim === claim));
  const those = units.slice(0, position + 1);
  // Looking ahead is expensive, so it is done once for all claims with the same request.
  const shapes = new Set(those.map((unit) => (unit.members.length > 1 ? unit.name : shapeOfUnit(unit))));
  if (those.length > settings.maxCandidates || shapes.size > settings.maxReservations) {
    return undefined;
  }
  const holdings = holdingsOf(snapshot);
  const before: Reservation[] = [];
  let last: Reservation | undefined;
  for (const unit of those) {
    last = reserve(snapshot.pool, unit, endingsWith(holdings, before, snapshot.now), before);
    before.push(...(last === undefined ? [] : [last]));
  }
  return last && toForecast(last, snapshot.now);
}

/** When quotas or gangs free a claim is unknown, so such claims have no forecast. */
function unitsForRoom(snapshot: QueueSnapshot, { order, blocked }: Decided): Unit[] {
  const byFirst = new Map(
    makeUnits(snapshot.waiting, totalsOf(snapshot)).map((unit) => [unit.first.request.claim, unit]),
  );
  return order
    .filter((name) => !["gang", "quota", undefined].includes(blocked.get(name)?.obstacle))
    .map((name) => byFirst.get(name))
    .filter((unit) => unit !== undefined);
}

/** The ends of the claims that hold devices, and of those that will. */
function endingsWith(
  holdings: (node: string) => Holdings,
  before: readonly Reservation[],
  now: number,
): EndingsOn {
  const later = Map.groupBy(
    before.flatMap((each) => endingsOf(each, now)),
    ({ statement }) => statement.node,
  );
  return (node) => {
    const { endings } = outlookOf(holdings(node));
    const own = later.get(node);
    return own === undefined ? endings : [...endings, ...own].sort(compareEndings);
  };
}

function endingsOf({ unit, startsAt, statements }: Reservation, now: number): Ending[] {
  const beganAt = startsAt === null ? Number.MAX_SAFE_INTEGER : Math.max(startsAt, now);
  return statements.map((statement) => {
    const member = unit.members.find(({ request }) => request.claim === statement.claim);
    const limit = member?.timeLimitSeconds ?? 0;
    return { statement, beganAt, endsAt: startsAt === null || limit === 0 ? null : beganAt + limit };
  });
}

function toForecast({ statements, ended, startsAt }: Reservation, now: number): Forecast {
  const devices = new Set(
    statements.flatMap(({ node, devices: placed }) => placed.map(({ uuid }) => `${node}/${uuid}`)),
  );
  const waitsFor = ended
    .filter(({ statement }) => statement.devices.some(({ uuid }) => devices.has(`${statement.node}/${uuid}`)))
    .map(({ statement }) => statement.claim);
  return { waitsFor, startsAt: startsAt === null ? null : Math.max(startsAt, now) };
}

/** The first expected end among the running claims. */
export function nextRelease({ running }: Pick<QueueSnapshot, "running">): NextRelease | undefined {
  let next: NextRelease | undefined;
  for (const { statement, endsAt } of running) {
    if (endsAt !== null && (next === undefined || endsAt < next.at)) {
      next = { claim: statement.claim, at: endsAt };
    }
  }
  return next;
}
