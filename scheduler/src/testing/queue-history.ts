// SPDX-License-Identifier: Apache-2.0

// A pool in simulated time: claims arrive, run, end and are preempted, as under the controller.

import { formatExcess, mayKnowAll, type Reason, renderReason } from "@millpond/api";
import {
  type Blocked,
  defaultPlanSettings,
  type PlanSettings,
  type Preemption,
  type QueueDecision,
  type QueueSnapshot,
  type RunningClaim,
  type WaitingClaim,
} from "../queues/claim.ts";
import { refuseGrowth } from "../queues/growth.ts";
import { planQueues } from "../queues/plan.ts";
import { limitOfUser, type QueueSpec, type TenantSpec } from "../queues/queue.ts";
import { withoutGrants } from "../queues/reservation.ts";
import { amountOfStatements } from "../queues/unit.ts";
import { add, excessOf, nothing, partOfGuarantee } from "../queues/quota.ts";
import { shareOf } from "../request.ts";
import type { Snapshot } from "../snapshot.ts";
import { applyStatement, rollbackStatement } from "../statement.ts";

export interface Job extends Omit<WaitingClaim, "arrival" | "waitingSince"> {
  /** Run time in seconds unless it is preempted. */
  readonly runSeconds: number;
  readonly graceSeconds: number;
}

/** Defaults of the jobs in tests. */
export const plainJob: Omit<Job, "request"> = {
  queue: "q",
  tenant: "t",
  user: "",
  priority: 0,
  isPreemptible: false,
  isBestEffort: false,
  gang: "",
  gangSize: 0,
  isSameNode: false,
  timeLimitSeconds: 0,
  preferredHost: "",
  runSeconds: 1000,
  graceSeconds: 30,
};

interface Running extends RunningClaim {
  readonly job: Job;
  readonly arrival: number;
  readonly doneAt: number;
}

export interface HistoryOptions {
  readonly pool: Snapshot;
  readonly queues: readonly QueueSpec[];
  readonly tenants?: readonly TenantSpec[];
  readonly settings?: PlanSettings;
}

/** A decision with its reasons as text. */
export interface DecisionInWords extends Omit<QueueDecision, "blocked" | "preemptions"> {
  readonly blocked: ReadonlyMap<string, Omit<Blocked, "reason"> & { readonly reason: string }>;
  readonly preemptions: readonly (Omit<Preemption, "reason"> & { readonly reason: string })[];
}

export function inWords({ blocked, preemptions, ...rest }: QueueDecision): DecisionInWords {
  const word = <T extends { readonly reason: Reason }>(each: T) => ({
    ...each,
    reason: renderReason(each.reason, mayKnowAll),
  });
  return {
    ...rest,
    blocked: new Map([...blocked].map(([claim, why]) => [claim, word(why)])),
    preemptions: preemptions.map(word),
  };
}

export class QueueHistory {
  readonly #options: HistoryOptions;
  readonly #settings: PlanSettings;
  #pool: Snapshot;
  #waiting: (WaitingClaim & { readonly job: Job })[] = [];
  #running: Running[] = [];
  #arrivals = 0;
  now = 1000;
  /** Violated rules, as text. */
  readonly broken: string[] = [];
  /** When claims were first granted, and when they arrived. */
  readonly waits = new Map<string, { readonly from: number; to: number | undefined }>();
  preempted = 0;
  /** The claims that were preempted because their queues had borrowed. */
  reclaimed = 0;

  constructor(options: HistoryOptions) {
    this.#options = options;
    this.#settings = options.settings ?? defaultPlanSettings;
    this.#pool = options.pool;
  }

  get running(): readonly RunningClaim[] {
    return this.#running;
  }

  get waiting(): readonly WaitingClaim[] {
    return this.#waiting;
  }

  snapshot(): QueueSnapshot {
    return {
      now: this.now,
      pool: this.#pool,
      queues: this.#options.queues,
      tenants: this.#options.tenants ?? [],
      waiting: this.#waiting,
      running: this.#running,
      leftovers: [],
    };
  }

  arrive(...jobs: readonly Job[]): DecisionInWords {
    for (const job of jobs) {
      this.#arrivals += 1;
      this.#waiting.push({ ...job, job, arrival: this.#arrivals, waitingSince: this.now });
      this.waits.set(job.request.claim, { from: this.now, to: undefined });
    }
    return inWords(this.decide());
  }

  /** Advances the time: claims end, and preempted ones return to the queue. */
  pass(seconds: number): DecisionInWords {
    this.now += seconds;
    const ended = this.#running.filter(({ doneAt }) => doneAt <= this.now);
    const taken = this.#running.filter(
      ({ doneAt, isEnding, endsAt }) => doneAt > this.now && isEnding && (endsAt ?? 0) <= this.now,
    );
    this.#pool = withoutGrants(this.#pool, [...ended, ...taken]);
    this.#running = this.#running.filter((each) => !ended.includes(each) && !taken.includes(each));
    for (const { job, arrival } of taken) {
      this.#waiting.push({ ...job, job, arrival, waitingSince: this.now });
    }
    return inWords(this.decide());
  }

  /** Resizes a running claim on its devices, and decides. Returns why this is refused; undefined: it is done. */
  resize(claim: string, memoryPercent: number): string | undefined {
    const running = this.#running.find(({ statement }) => statement.claim === claim);
    if (running === undefined || running.isEnding) {
      return "it does not run, or has had notice";
    }
    const { job, statement, endsAt } = running;
    const request = { ...job.request, memoryPercent };
    const node = this.#pool.nodes.find(({ name }) => name === statement.node);
    const to = statement.devices.map((own) => {
      const device = node?.devices.find(({ uuid }) => uuid === own.uuid);
      return { ...own, ...shareOf(request, device ?? own) };
    });
    this.#arrivals += 1;
    const asking = {
      ...job,
      request,
      gang: "",
      gangSize: 0,
      arrival: this.#arrivals,
      waitingSince: this.now,
      timeLimitSeconds: endsAt === null ? 0 : endsAt - this.now,
    };
    const refusal = refuseGrowth(this.snapshot(), { claim: asking, held: statement, to }, this.#settings);
    if (refusal === undefined) {
      const resized = { ...statement, devices: to };
      this.#pool = applyStatement(withoutGrants(this.#pool, [running]), resized);
      this.#running = this.#running.map((each) =>
        each === running ? { ...each, statement: resized, job: { ...job, request } } : each,
      );
    }
    this.decide();
    return refusal && renderReason(refusal.reason, mayKnowAll);
  }

  decide(): QueueDecision {
    const snapshot = this.snapshot();
    const decision = planQueues(snapshot, this.#settings);
    this.#check(snapshot, decision);
    for (const statement of decision.grants) {
      const claim = this.#waiting.find(({ request }) => request.claim === statement.claim);
      if (claim === undefined) {
        continue;
      }
      this.#pool = applyStatement(this.#pool, statement);
      const { job, arrival } = claim;
      const wait = this.waits.get(statement.claim);
      if (wait !== undefined && wait.to === undefined) {
        wait.to = this.now;
      }
      const limit = job.timeLimitSeconds;
      const seconds = limit > 0 ? Math.min(limit, job.runSeconds) : job.runSeconds;
      this.#running.push({
        ...job,
        job,
        arrival,
        statement,
        boundAt: this.now,
        endsAt: limit > 0 ? this.now + limit : null,
        isEnding: false,
        doneAt: this.now + seconds,
      });
    }
    const granted = new Set(decision.grants.map(({ claim }) => claim));
    this.#waiting = this.#waiting.filter(({ request }) => !granted.has(request.claim));
    const victims = new Set(decision.preemptions.map(({ claim }) => claim));
    this.preempted += victims.size;
    this.#running = this.#running.map((each) =>
      victims.has(each.statement.claim)
        ? { ...each, isEnding: true, endsAt: this.now + each.graceSeconds }
        : each,
    );
    return decision;
  }

  #check(snapshot: QueueSnapshot, decision: QueueDecision): void {
    const say = (text: string) => this.broken.push(`at ${this.now}: ${text}`);
    this.#checkRollback(snapshot, decision, say);
    this.#checkOrder(snapshot, decision, say);
    this.#checkQuotas(snapshot, decision, say);
    this.#checkGangs(snapshot, decision, say);
    this.#checkPriorities(snapshot, decision, say);
    this.#checkVictims(snapshot, decision, say);
    this.#checkGuarantees(snapshot, decision, say);
  }

  #checkRollback({ pool }: QueueSnapshot, { grants }: QueueDecision, say: (text: string) => void): void {
    let current = pool;
    for (const statement of grants) {
      current = applyStatement(current, statement);
    }
    for (const node of current.nodes) {
      for (const device of node.devices) {
        const memory = device.grants.reduce((sum, grant) => sum + grant.memoryBytes, 0n);
        const compute = device.grants.reduce((sum, grant) => sum + grant.computePercent, 0);
        if (memory > device.memoryBytes || compute > 100) {
          say(`${node.name}/${device.index} is over-allocated`);
        }
      }
    }
    const back = grants.toReversed().reduce(rollbackStatement, current);
    const show = (state: Snapshot) =>
      JSON.stringify(state, (_key, value: unknown) => (typeof value === "bigint" ? `${value}` : value));
    if (show(back) !== show(pool)) {
      say("rollback is not the identity");
    }
  }

  #checkOrder(
    { waiting }: QueueSnapshot,
    { grants, blocked, order }: QueueDecision,
    say: (text: string) => void,
  ) {
    const names = waiting.map(({ request }) => request.claim).sort();
    const decided = [...grants.map(({ claim }) => claim), ...blocked.keys()].sort();
    if (names.join() !== decided.join()) {
      say(`decided about ${decided.join()} instead of ${names.join()}`);
    }
    if (order.toSorted().join() !== names.join()) {
      say("the order is not of all who wait");
    }
    for (const { reason } of blocked.values()) {
      const words = renderReason(reason, mayKnowAll);
      if (words.length < 10) {
        say(`a reason is "${words}"`);
      }
    }
  }

  #checkQuotas(
    { pool, queues, tenants, running, waiting }: QueueSnapshot,
    { grants }: QueueDecision,
    say: (text: string) => void,
  ) {
    const all = [
      ...running,
      ...grants.flatMap((statement) => {
        const claim = waiting.find(({ request }) => request.claim === statement.claim);
        return claim === undefined ? [] : [{ ...claim, statement }];
      }),
    ];
    const sumOf = (isMeant: (claim: (typeof all)[number]) => boolean) =>
      all
        .filter(isMeant)
        .reduce((sum, { statement }) => add(sum, amountOfStatements(pool, [statement])), nothing);
    const isWithin = (queue: string, ancestor: string): boolean =>
      queue === ancestor ||
      queues.some(({ name, parent }) => name === queue && parent !== "" && isWithin(parent, ancestor));
    for (const { name, limit, guaranteed, borrowing } of grants.length === 0 ? [] : queues) {
      const own = Object.keys(guaranteed).length === 0 ? { gpuMilli: 0 } : guaranteed;
      const excess =
        excessOf(
          sumOf(({ queue }) => isWithin(queue, name)),
          borrowing === "none" ? own : limit,
        ) ??
        excessOf(
          sumOf(({ queue, isPreemptible }) => isWithin(queue, name) && !isPreemptible),
          borrowing === "preemptible" ? own : limit,
        );
      if (excess !== undefined) {
        say(`queue ${name} has ${formatExcess(excess)}`);
      }
    }
    for (const spec of grants.length === 0 ? [] : tenants) {
      const { name, limit } = spec;
      const excess = excessOf(
        sumOf(({ tenant }) => tenant === name),
        limit,
      );
      if (excess !== undefined) {
        say(`tenant ${name} has ${formatExcess(excess)}`);
      }
      for (const user of new Set(waiting.map((each) => each.user))) {
        const ofUser = excessOf(
          sumOf((each) => each.tenant === name && each.user === user),
          limitOfUser(spec, user),
        );
        if (ofUser !== undefined) {
          say(`user ${user} of tenant ${name} has ${formatExcess(ofUser)}`);
        }
      }
    }
  }

  #checkGangs(
    { waiting, running }: QueueSnapshot,
    { grants }: QueueDecision,
    say: (text: string) => void,
  ): void {
    const granted = new Set(grants.map(({ claim }) => claim));
    for (const [gang, members] of Map.groupBy(waiting, (each) => each.gang)) {
      const count = members.filter(({ request }) => granted.has(request.claim)).length;
      const others = running.filter((each) => each.gang === gang).length;
      const size = members[0]?.gangSize ?? 0;
      if (gang !== "" && count > 0 && (count < members.length || count + others < size)) {
        say(`gang ${gang} got ${count} of ${members.length} claims, with ${others} running, of ${size}`);
      }
    }
  }

  #checkPriorities(
    { waiting, now }: QueueSnapshot,
    { grants, blocked }: QueueDecision,
    say: (text: string) => void,
  ) {
    const granted = new Set(grants.map(({ claim }) => claim));
    const isFresh = (claim: WaitingClaim) => now - claim.waitingSince < this.#settings.ageAfterSeconds;
    const likeness = ({
      request,
      preferredHost,
      timeLimitSeconds,
      tenant,
      user,
      queue,
      isPreemptible,
      isBestEffort,
      gang,
    }: WaitingClaim) =>
      gang === ""
        ? JSON.stringify(
            [
              { ...request, claim: "" },
              preferredHost,
              timeLimitSeconds,
              tenant,
              user,
              queue,
              isPreemptible,
              isBestEffort,
            ],
            (_key, value: unknown) => (typeof value === "bigint" ? `${value}` : value),
          )
        : `gang ${gang}`;
    for (const alike of Map.groupBy(waiting.filter(isFresh), likeness).values()) {
      for (const winner of alike.filter(({ request }) => granted.has(request.claim))) {
        const loser = alike.find(
          (each) =>
            blocked.has(each.request.claim) &&
            (each.priority > winner.priority ||
              (each.priority === winner.priority && each.arrival < winner.arrival)),
        );
        if (loser !== undefined && winner.gang === "") {
          say(
            `${winner.request.claim} went before ${loser.request.claim}, which asks the same with more right`,
          );
        }
      }
    }
  }

  /** When a claim is preempted because its queue has borrowed, the queue keeps its guarantee, whatever else is preempted. */
  #checkGuarantees(
    { running, waiting, pool, queues }: QueueSnapshot,
    { grants, preemptions }: QueueDecision,
    say: (text: string) => void,
  ): void {
    const parents = new Map(queues.map(({ name, parent }) => [name, parent]));
    const chainOf = (queue: string): string[] =>
      queue === "" ? [] : [queue, ...chainOf(parents.get(queue) ?? "")];
    const granted = grants.flatMap((statement) => {
      const claim = waiting.find(({ request }) => request.claim === statement.claim);
      return claim === undefined ? [] : [{ ...claim, statement }];
    });
    /** What the beneficiaries get, by the levels of their queues. */
    const promised = new Map<string, number>();
    const leaving = new Set(running.flatMap((each) => (each.isEnding ? each.statement.claim : [])));
    for (const [beneficiary, list] of Map.groupBy(preemptions, (each) => each.beneficiary)) {
      const taker = waiting.find(
        ({ gang, request }) => `gang ${gang}` === beneficiary || `claim ${request.claim}` === beneficiary,
      );
      const above = new Set(chainOf(taker?.queue ?? ""));
      for (const { claim } of list) {
        leaving.add(claim);
      }
      const reclaimed = running.filter(
        ({ statement, queue, isBestEffort }) =>
          queue !== taker?.queue && !isBestEffort && list.some(({ claim }) => claim === statement.claim),
      );
      this.reclaimed += reclaimed.length;
      const asked = waiting
        .filter(({ gang, request }) => [`gang ${gang}`, `claim ${request.claim}`].includes(beneficiary))
        .reduce((sum, { request }) => sum + request.gpus * (request.memoryPercent || 100) * 10, 0);
      for (const level of above) {
        promised.set(level, (promised.get(level) ?? 0) + asked);
      }
      const isCovered = ({ queue: victim }: RunningClaim) =>
        [...above].some((level) => {
          const { gpuMilli } = queues.find(({ name }) => name === level)?.guaranteed ?? {};
          const used = running.filter(
            ({ queue, statement }) =>
              chainOf(queue).includes(level) && list.every(({ claim }) => claim !== statement.claim),
          );
          const { gpuMilli: has } = amountOfStatements(
            pool,
            used.map(({ statement }) => statement),
          );
          return !chainOf(victim).includes(level) && has + (promised.get(level) ?? 0) <= (gpuMilli ?? 0);
        });
      if (!reclaimed.every(isCovered)) {
        say(`${beneficiary} takes for a queue more than that is guaranteed`);
      }
      for (const level of new Set(reclaimed.flatMap(({ queue }) => chainOf(queue)))) {
        const { guaranteed } = queues.find(({ name }) => name === level) ?? { guaranteed: {} };
        const left = amountOfStatements(
          pool,
          [...running, ...granted]
            .filter(({ queue, statement }) => chainOf(queue).includes(level) && !leaving.has(statement.claim))
            .map(({ statement }) => statement),
        );
        if (!above.has(level) && partOfGuarantee(left, guaranteed) < 1) {
          say(`${beneficiary} leaves queue ${level} ${left.gpuMilli} thousandths, less than its guarantee`);
        }
      }
    }
  }

  #checkVictims(
    { running, waiting }: QueueSnapshot,
    { preemptions }: QueueDecision,
    say: (text: string) => void,
  ): void {
    const names = new Set(preemptions.map(({ claim }) => claim));
    for (const { gang, statement, isEnding } of running) {
      const isTaken = (each: RunningClaim) => names.has(each.statement.claim);
      const isSpared = gang !== "" && !isEnding && !names.has(statement.claim);
      if (isSpared && running.some((each) => each.gang === gang && isTaken(each))) {
        say(`gang ${gang} is taken without ${statement.claim}`);
      }
    }
    for (const [beneficiary, list] of Map.groupBy(preemptions, (each) => each.beneficiary)) {
      if (list.length > this.#settings.maxVictims) {
        say(`${list.length} claims are taken for ${beneficiary}`);
      }
      const claim = waiting.find(
        ({ gang, request }) => `gang ${gang}` === beneficiary || `claim ${request.claim}` === beneficiary,
      );
      for (const { claim: name } of list) {
        const victim = running.find(({ statement }) => statement.claim === name);
        if (claim === undefined || victim === undefined) {
          say(`${name} is taken for ${beneficiary}, and one of them is not there`);
        } else if (!victim.isPreemptible || victim.isEnding) {
          say(`${name} is taken though it may not`);
        } else if (
          victim.queue === claim.queue &&
          !victim.isBestEffort &&
          victim.priority >= claim.priority
        ) {
          say(`${name} is taken for one of no greater priority`);
        }
      }
    }
  }
}
