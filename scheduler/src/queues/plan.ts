// SPDX-License-Identifier: Apache-2.0

// One pass over the queues: which claims are granted, which are preempted, and why the others wait.

import { type HolderRef, type Reason, reason } from "@millpond/api";
import type { Snapshot } from "../snapshot.ts";
import { applyStatement, type Statement } from "../statement.ts";
import {
  type Blocked,
  type QueueDecision,
  defaultPlanSettings,
  type PlanSettings,
  type Preemption,
  type QueueSnapshot,
  type WaitingClaim,
} from "./claim.ts";
import { onAllowedSizes } from "./allowed-sizes.ts";
import { PassHoldings } from "./pass-holdings.ts";
import { findVictims, type PreemptionPlan } from "./preemption.ts";
import { ownerOfReservation, reserve, type Reservation, withHolds, withoutGrants } from "./reservation.ts";
import type { Amount } from "./quota.ts";
import { type Room, RoomObstacles } from "./room-obstacles.ts";
import { QueueTree } from "./tree.ts";
import { mayReserve, takeTurns } from "./turns.ts";
import {
  amountOfStatements,
  amountOn,
  makeUnits,
  placeUnit,
  shapeOfUnit,
  totalsOf,
  type Unit,
} from "./unit.ts";

/**
 * Decides about the waiting claims.
 *
 * Queues take turns by weighted fair share, guarantees first. Within a queue higher priority goes first, then earlier
 * arrival, but a claim that has waited for `ageAfterSeconds` goes before all others. A claim that does not fit is overtaken
 * by others that do (backfill), until it is the first of its queue and has waited for `reserveAfterSeconds`: then the room
 * that will be free first is reserved for it, and other claims only get capacity that does not delay it. Best-effort claims
 * come last.
 */
export function planQueues(
  snapshot: QueueSnapshot,
  settings: PlanSettings = defaultPlanSettings,
): QueueDecision {
  return new Planner(snapshot, settings).run();
}

/** The capacity that a claim could get if it were requested now. */
export interface Availability {
  /** With the grants of the claims ahead of it carried out. */
  readonly pool: Snapshot;
  readonly tree: QueueTree;
  /** Reservations of the claims ahead, which it may not delay. */
  readonly reservations: readonly Reservation[];
}

/** The capacity open to a claim that is requested now and does not wait: after the waiting claims that are ahead of it. */
export function availableTo(
  snapshot: QueueSnapshot,
  claim: WaitingClaim,
  settings: PlanSettings = defaultPlanSettings,
): Availability {
  return new Planner(snapshot, settings).availableTo(claim);
}

/**
 * Places a bound claim as if its allocation were released and it were requested now.
 *
 * @returns why this is impossible, if it is
 */
export function placeAnew(
  snapshot: QueueSnapshot,
  claim: WaitingClaim,
  held: Statement,
  settings: PlanSettings = defaultPlanSettings,
): Statement | Pick<Blocked, "obstacle" | "reason"> {
  return new Planner(snapshot, settings).placeAnew(claim, held);
}

/** The queues with the usage of their claims. */
export function makeQueueTree(snapshot: Omit<QueueSnapshot, "waiting">): QueueTree {
  return new QueueTree(snapshot.queues, snapshot.tenants, totalsOf(snapshot));
}

/** Where a unit would be placed, now or later. */
interface Found<T> {
  readonly found: T;
  readonly amount: Amount;
  /** Why its quotas do not allow this placement. */
  readonly refusal: Reason | undefined;
  /** Whether its quotas allow the unit on devices of another size. */
  readonly isAllowedElsewhere: boolean;
}

class Planner {
  readonly #snapshot: QueueSnapshot;
  readonly #settings: PlanSettings;
  readonly #tree: QueueTree;
  #pool: Snapshot;
  readonly #holdings: PassHoldings;
  readonly #reservations: Reservation[] = [];
  /** Queues whose first claim without room has been considered. */
  readonly #headed = new Set<string>();
  /** Shapes that fit nowhere: within a pass the pool only becomes fuller. */
  readonly #hopeless = new Set<string>();
  /** Why claims of a given shape and account exceed a quota: within a pass usage only grows. */
  readonly #excessive = new Map<string, Reason>();
  /** Queues, tenants and users with a claim for which quota is reserved. */
  readonly #keeping = new Set<string>();
  #isLeavingNoted = false;
  /** The number of searches for claims whose preemption would free quota. */
  #quotaLooks = 0;
  readonly #obstacles = new RoomObstacles();
  readonly #grants: Statement[] = [];
  readonly #preemptions: Preemption[] = [];
  readonly #blocked = new Map<string, Blocked>();
  readonly #order: string[] = [];

  constructor(snapshot: QueueSnapshot, settings: PlanSettings) {
    this.#snapshot = snapshot;
    this.#settings = settings;
    this.#pool = snapshot.pool;
    this.#holdings = new PassHoldings(snapshot);
    this.#tree = makeQueueTree(snapshot);
  }

  run(): QueueDecision {
    for (const unit of this.#units(this.#snapshot.waiting)) {
      this.#decide(unit);
    }
    return {
      grants: this.#grants,
      preemptions: this.#preemptions,
      blocked: this.#blocked,
      order: this.#order,
    };
  }

  availableTo(claim: WaitingClaim): Availability {
    const unit = this.#decideBefore(claim);
    return { pool: this.#pool, tree: this.#tree, reservations: this.#obeyedBy(unit) };
  }

  placeAnew(claim: WaitingClaim, held: Statement): Statement | Pick<Blocked, "obstacle" | "reason"> {
    const unit = this.#decideBefore(claim);
    this.#tree.refund(claim, amountOfStatements(this.#pool, [held]));
    this.#pool = withoutGrants(this.#pool, [{ statement: held }]);
    // The cached results describe a pool in which the claim still has its allocation.
    this.#obstacles.forget();
    const placed = this.#place(unit);
    if (placed === undefined) {
      const shape = shapeOfUnit(unit);
      const obstacle = this.#obstacles.isKeptFrom(this.#room, unit, shape) ? "reserved" : "room";
      return { obstacle, reason: this.#obstacles.explain(this.#room, unit, shape) };
    }
    const [statement] = placed.found.statements;
    if (placed.refusal !== undefined) {
      return { obstacle: "quota", reason: placed.refusal };
    }
    if (statement === undefined) {
      throw new RangeError(`the claim ${claim.request.claim} was placed without an assignment`);
    }
    return statement;
  }

  /** Decides about the units ahead of the claim, which is treated as one more waiting claim. */
  #decideBefore(claim: WaitingClaim): Unit {
    for (const unit of this.#units([...this.#snapshot.waiting, claim])) {
      if (unit.first === claim) {
        return unit;
      }
      this.#decide(unit);
    }
    throw new RangeError(`the claim ${claim.request.claim} has no turn: it waits already, or has no queue`);
  }

  /** All units in the order of their turns, which depends on the decision about each previous one. */
  *#units(waiting: readonly WaitingClaim[]): Generator<Unit, void> {
    const { now } = this.#snapshot;
    const units = makeUnits(waiting, totalsOf(this.#snapshot));
    for (const isBestEffort of [false, true]) {
      this.#headed.clear();
      const ofClass = units.filter(({ first }) => first.isBestEffort === isBestEffort);
      const standings = { tree: this.#tree, nodes: this.#pool.nodes, holdings: this.#holdings.of, now };
      for (const unit of takeTurns(ofClass, { ...standings, settings: this.#settings })) {
        this.#order.push(...unit.members.map(({ request }) => request.claim));
        yield unit;
      }
    }
  }

  #mayReserve(unit: Unit): boolean {
    return mayReserve(unit, { now: this.#snapshot.now, settings: this.#settings });
  }

  #decide(unit: Unit): void {
    if (unit.missing > 0) {
      const { gangSize } = unit.first;
      this.#block(unit, {
        obstacle: "gang",
        reason: reason("gang-incomplete", {
          gang: unit.holder,
          present: gangSize - unit.missing,
          size: gangSize,
        }),
        expectedAt: null,
      });
      return;
    }
    const shape = shapeOfUnit(unit);
    const { queue, tenant, user, isPreemptible } = unit.first;
    const account = `${shape} ${queue} ${tenant} ${user} ${isPreemptible}`;
    const known = this.#excessive.get(account);
    if (known !== undefined) {
      this.#block(unit, { obstacle: "quota", reason: known, expectedAt: null });
      return;
    }
    // A unit with a time limit may use more of the pool than others of its shape.
    const isHopeless = unit.first.timeLimitSeconds === 0 && this.#hopeless.has(shape);
    const placed = isHopeless ? undefined : this.#place(unit);
    if (placed === undefined) {
      if (unit.first.timeLimitSeconds === 0) {
        this.#hopeless.add(shape);
      }
      this.#wait(unit, shape, { account, refusal: undefined });
      return;
    }
    const {
      found: { statements },
      amount,
      refusal,
    } = placed;
    if (refusal !== undefined && placed.isAllowedElsewhere) {
      this.#wait(unit, shape, { account, refusal });
      return;
    }
    if (refusal !== undefined) {
      this.#waitForQuota(unit, amount, { account, refusal });
      return;
    }
    for (const statement of statements) {
      this.#pool = applyStatement(this.#pool, statement);
    }
    this.#tree.charge(unit.first, amount);
    this.#grants.push(...statements);
  }

  /** Where the unit gets room now. */
  #place(unit: Unit): Found<{ readonly statements: readonly Statement[] }> | undefined {
    return this.#findAllowed(unit, withHolds(this.#pool, this.#obeyedBy(unit)), (pool) => {
      const statements = placeUnit(pool, unit);
      return statements && { statements };
    });
  }

  /** A placement for the unit; if a quota forbids it, on devices of the sizes that the quota allows. */
  #findAllowed<T extends { readonly statements: readonly Statement[] }>(
    unit: Unit,
    pool: Snapshot,
    find: (pool: Snapshot) => T | undefined,
  ): Found<T> | undefined {
    const refusalOf = (amount: Amount) => this.#tree.refusal(unit.first, amount);
    const check = (found: T, isAllowedElsewhere: boolean): Found<T> => {
      const amount = amountOfStatements(this.#pool, found.statements);
      return { found, amount, refusal: refusalOf(amount), isAllowedElsewhere };
    };
    const best = find(pool);
    const checked = best && check(best, false);
    if (best === undefined || checked?.refusal === undefined) {
      return checked;
    }
    const part = onAllowedSizes(pool, unit, (amount) => refusalOf(amount) === undefined);
    const other = part && find(part);
    const allowed = other && check(other, true);
    return allowed !== undefined && allowed.refusal === undefined ? allowed : check(best, part !== undefined);
  }

  /** The reservations that the unit could delay, because it would still run when they start. */
  #obeyedBy({ members }: Unit): Reservation[] {
    const limits = members.map(({ timeLimitSeconds }) => timeLimitSeconds);
    const endsAt = limits.includes(0) ? Number.POSITIVE_INFINITY : this.#snapshot.now + Math.max(...limits);
    return this.#reservations.filter(({ startsAt }) => startsAt === null || startsAt < endsAt);
  }

  /** @param about `refusal`: why it may not be placed where there is room, although it may be elsewhere */
  #wait(
    unit: Unit,
    shape: string,
    about: { readonly account: string; readonly refusal: Reason | undefined },
  ): void {
    const { account, refusal } = about;
    const { queue } = unit.first;
    const isHead = !this.#headed.has(queue);
    this.#headed.add(queue);
    // Looking ahead is expensive, so only the first unit of each queue does.
    const looksAhead = isHead && this.#reservations.length < this.#settings.maxReservations;
    const later = looksAhead
      ? this.#findAllowed(unit, this.#pool, (pool) =>
          reserve(pool, unit, this.#holdings.endings, this.#reservations),
        )
      : undefined;
    if (later?.refusal !== undefined) {
      if (!this.#waitForQuota(unit, later.amount, { account, refusal: later.refusal })) {
        this.#headed.delete(queue);
      }
      return;
    }
    const ahead = later?.found;
    // Capacity that is about to be released is reserved for the first unit for which it is sufficient.
    const noticed = ahead === undefined ? undefined : this.#reserveOfNoticed(unit);
    if (noticed !== undefined) {
      this.#promise(noticed);
      this.#block(unit, {
        obstacle: "preempting",
        reason: reason("being-given-back", { seconds: this.#secondsUntil(noticed.startsAt) }),
        expectedAt: noticed.startsAt,
      });
      return;
    }
    if (looksAhead && this.#preempt(unit)) {
      return;
    }
    const isReserved = ahead !== undefined && this.#mayReserve(unit);
    if (isReserved) {
      this.#reservations.push(ahead);
    }
    const why = refusal ?? this.#obstacles.explain(this.#room, unit, shape);
    this.#block(unit, {
      obstacle:
        refusal !== undefined
          ? "quota"
          : this.#obstacles.isKeptFrom(this.#room, unit, shape)
            ? "reserved"
            : "room",
      reason: isReserved ? reason("reserved-ahead", { reason: why }) : why,
      expectedAt: ahead?.startsAt ?? null,
    });
  }

  /**
   * A quota blocks the unit: it may preempt claims of that quota that have a weaker right.
   *
   * @returns whether enough is being released
   */
  #waitForQuota(
    unit: Unit,
    amount: Amount,
    { account, refusal }: { readonly account: string; readonly refusal: Reason },
  ): boolean {
    // Later units of this shape and account are refused too: the capacity that they would get is being released for this one.
    this.#excessive.set(account, refusal);
    let allowedAt = this.#allowedAt(unit, amount);
    if (allowedAt === undefined && this.#quotaLooks < this.#settings.maxReservations) {
      this.#quotaLooks += 1;
      const plan = this.#findVictims(unit, true);
      if (plan !== undefined) {
        this.#giveNotice(plan);
        allowedAt = this.#allowedAt(unit, amount);
      }
    }
    this.#keepQuota(unit, amount, allowedAt);
    if (allowedAt === undefined) {
      this.#block(unit, { obstacle: "quota", reason: refusal, expectedAt: null });
      return false;
    }
    const room = this.#reserveOfNoticed(unit);
    if (room !== undefined) {
      this.#promise(room);
    }
    this.#block(unit, {
      obstacle: "preempting",
      reason: reason("quota-being-given-back", { reason: refusal, seconds: this.#secondsUntil(allowedAt) }),
      expectedAt: allowedAt,
    });
    return true;
  }

  /**
   * Among units with the same quotas, the remaining quota is reserved for the first one that has waited long enough or has
   * preempted for it.
   */
  #keepQuota(unit: Unit, amount: Amount, allowedAt: number | undefined): void {
    const { queue, tenant, user } = unit.first;
    const isUsers = this.#tree.isBeyondUser(unit.first, amount);
    const account = isUsers ? `user ${tenant} ${user}` : `queue ${queue} ${tenant}`;
    if (this.#keeping.has(account) || (allowedAt === undefined && !this.#mayReserve(unit))) {
      return;
    }
    if (this.#tree.keep(unit.first, amount, ownerOfReservation({ unit }, this.#snapshot.now))) {
      this.#keeping.add(account);
    }
  }

  /** When the claims with notice have released enough for the quotas; undefined: they do not release enough. */
  #allowedAt({ first }: Unit, amount: Amount): number | undefined {
    return this.#holdings.allowedAt(this.#tree, this.#pool.nodes, { claim: first, amount });
  }

  /** A reservation of the room that claims with notice release, if there are any. */
  #reserveOfNoticed(unit: Unit): Reservation | undefined {
    return this.#pool.nodes.some(({ name }) => this.#holdings.noticed(name).length > 0)
      ? reserve(this.#pool, unit, this.#holdings.noticed, this.#reservations)
      : undefined;
  }

  #preempt(unit: Unit): boolean {
    const plan = this.#findVictims(unit, false);
    if (plan === undefined) {
      return false;
    }
    this.#giveNotice(plan);
    const reservation = this.#reserveOfNoticed(unit);
    if (reservation !== undefined) {
      this.#promise(reservation);
    }
    const victims = plan.victims.map(
      ({ statement, tenant }): HolderRef => ({
        kind: "claim",
        name: statement.claim,
        tenant,
      }),
    );
    this.#block(unit, {
      obstacle: "preempting",
      reason: reason("preempting", { victims }),
      expectedAt: reservation?.startsAt ?? null,
    });
    return true;
  }

  /** Records the capacity that others release for the reservation. */
  #promise(reservation: Reservation): void {
    this.#reservations.push(reservation);
    this.#tree.promise(reservation.unit.first, amountOfStatements(this.#pool, reservation.statements));
  }

  #findVictims(unit: Unit, isForQuota: boolean): PreemptionPlan | undefined {
    if (unit.first.isBestEffort) {
      return undefined;
    }
    this.#noteLeaving();
    return findVictims(this.#pool, unit, {
      holdings: this.#holdings.of,
      tree: this.#tree,
      reservations: this.#reservations,
      settings: this.#settings,
      isForQuota,
    });
  }

  /** At most once in a pass, and only when preemption may be needed. */
  #noteLeaving(): void {
    if (this.#isLeavingNoted) {
      return;
    }
    this.#isLeavingNoted = true;
    for (const node of this.#pool.nodes) {
      for (const claim of this.#holdings.ending(node.name)) {
        this.#tree.leave(claim, amountOn(node, claim.statement));
      }
    }
  }

  /** Treats the victims as claims with notice for the rest of this pass. */
  #giveNotice({ victims, preemptions }: PreemptionPlan): void {
    this.#preemptions.push(...preemptions);
    for (const claim of victims) {
      this.#tree.leave(claim, amountOfStatements(this.#pool, [claim.statement]));
    }
    this.#holdings.giveNotice(victims);
  }

  #secondsUntil(startsAt: number | null): number {
    return Math.max(0, (startsAt ?? this.#snapshot.now) - this.#snapshot.now);
  }

  /** The capacity at this point of the pass. */
  get #room(): Room {
    return { pool: this.#pool, reservations: this.#reservations, now: this.#snapshot.now };
  }

  #block(unit: Unit, blocked: Blocked): void {
    for (const { request } of unit.members) {
      this.#blocked.set(request.claim, blocked);
    }
  }
}
