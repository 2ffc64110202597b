// SPDX-License-Identifier: Apache-2.0

// Invariants for every pool, queue tree and history: see the checks of QueueHistory.

import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { NodeState, Snapshot } from "../snapshot.ts";
import { type Job, QueueHistory } from "../testing/queue-history.ts";
import { defaultPlanSettings, type PlanSettings, type QueueSnapshot } from "./claim.ts";
import { planQueues } from "./plan.ts";
import type { QueueSpec } from "./queue.ts";

const GiB = 1n << 30n;

const pools: fc.Arbitrary<Snapshot> = fc
  .array(fc.array(fc.constantFrom(8n * GiB, 16n * GiB), { minLength: 1, maxLength: 3 }), {
    minLength: 1,
    maxLength: 3,
  })
  .map((nodes) => ({
    nodes: nodes.map(
      (devices, position): NodeState => ({
        name: `node-${position}`,
        isReady: true,
        isCordoned: false,
        bootId: `boot-${position}`,
        devices: devices.map((memoryBytes, index) => ({
          uuid: `GPU-${index}`,
          index,
          memoryBytes,
          isHealthy: true,
          grants: [],
        })),
      }),
    ),
  }));

const limits = fc.oneof(
  { weight: 3, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 6000 }) },
);

const guarantees = fc.oneof(
  { weight: 2, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.constantFrom(1000, 2000, 3000) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 6000 }) },
);

/** A tree: `top` with the leaves `a` and `b`, and `c` beside it. */
const trees: fc.Arbitrary<readonly QueueSpec[]> = fc
  .tuple(
    ...["top", "a", "b", "c"].map(() =>
      fc.tuple(
        fc.integer({ min: 1, max: 5 }),
        guarantees,
        limits,
        fc.constantFrom("any", "any", "preemptible", "none"),
      ),
    ),
  )
  .map((settings) =>
    ["top", "a", "b", "c"].map((name, position) => {
      const [weight = 1, guaranteed, limit, borrowing = "any"] = settings[position] ?? [];
      return {
        name,
        parent: name === "a" || name === "b" ? "top" : "",
        weight,
        borrowing,
        guaranteed: guaranteed === undefined ? {} : { gpuMilli: guaranteed },
        limit: limit === undefined ? {} : { gpuMilli: limit },
      };
    }),
  );

const asks = fc.record({
  gpus: fc.oneof({ weight: 4, arbitrary: fc.constant(1) }, fc.integer({ min: 2, max: 3 })),
  percent: fc.constantFrom(25, 50, 100, 100),
  queue: fc.constantFrom("a", "b", "c"),
  tenant: fc.constantFrom("t", "u"),
  user: fc.constantFrom("", "ann", "bob"),
  priority: fc.constantFrom(-5, 0, 0, 5),
  isPreemptible: fc.integer({ min: 0, max: 3 }).map((value) => value > 0),
  isBestEffort: fc.integer({ min: 0, max: 5 }).map((value) => value === 0),
  gangSize: fc.constantFrom(0, 0, 0, 2, 3),
  isSameNode: fc.boolean(),
  timeLimitSeconds: fc.constantFrom(0, 0, 50, 100, 200, 500),
  runSeconds: fc.integer({ min: 10, max: 900 }),
  preferredHost: fc.constantFrom("", "boot-0", "boot-9"),
});

type Ask = typeof asks extends fc.Arbitrary<infer T> ? T : never;

function jobsOf(ask: Ask, number: number): Job[] {
  const { gpus, percent, gangSize, ...rest } = ask;
  return Array.from({ length: Math.max(1, gangSize) }, (_, member) => ({
    ...rest,
    isPreemptible: rest.isPreemptible || rest.isBestEffort,
    gang: gangSize === 0 ? "" : `g${number}`,
    gangSize,
    request: {
      claim: `c${number}-${member}`,
      gpus,
      memoryBytes: 0n,
      memoryPercent: percent,
      computePercent: 0,
    },
    graceSeconds: 20,
  }));
}

/** Many similar requests to one queue with different rights, mostly such that other queues may reclaim. */
const crowds = fc.record({
  ask: asks,
  priorities: fc.array(fc.constantFrom(-5, 0, 5), { minLength: 2, maxLength: 6 }),
  isPreemptible: fc.constantFrom(true, true, false),
});

const histories = fc.array(
  fc.oneof(
    {
      weight: 2,
      arbitrary: crowds.map((crowd) => ({ kind: "crowd", ...crowd }) as const),
    },
    { weight: 3, arbitrary: asks.map((ask) => ({ kind: "arrive", ask }) as const) },
    { weight: 1, arbitrary: asks.map((ask) => ({ kind: "part", ask }) as const) },
    {
      weight: 3,
      arbitrary: fc.constantFrom(1, 20, 70, 400, 2000).map((seconds) => ({ kind: "pass", seconds }) as const),
    },
  ),
  { minLength: 5, maxLength: 40 },
);

type Step = typeof histories extends fc.Arbitrary<(infer T)[]> ? T : never;

/** Small enough that the bounds are reached. */
const bounds = fc.record({ maxVictims: fc.constantFrom(1, 2, 16), maxCandidates: fc.constantFrom(2, 64) });

function play(
  pool: Snapshot,
  queues: readonly QueueSpec[],
  steps: readonly Step[],
  settings: Partial<PlanSettings> = {},
): QueueHistory {
  const tenants = [
    { name: "t", limit: { gpuMilli: 3000 } },
    {
      name: "u",
      limit: {},
      userLimit: { gpuMilli: 2000 },
      userLimits: new Map([["bob", { gpuMilli: 1500 }]]),
    },
  ];
  const history = new QueueHistory({
    pool,
    queues,
    tenants,
    settings: { ...defaultPlanSettings, ...settings },
  });
  for (const [number, step] of steps.entries()) {
    switch (step.kind) {
      case "arrive":
        history.arrive(...jobsOf(step.ask, 100 * number));
        break;
      case "crowd": {
        const alone = { gpus: 1, gangSize: 0, timeLimitSeconds: 0, runSeconds: 900 } as const;
        const each = { ...step.ask, ...alone, isPreemptible: step.isPreemptible };
        const jobs = step.priorities.map((priority, member) =>
          jobsOf({ ...each, priority }, 100 * number + member),
        );
        history.arrive(...jobs.flat());
        break;
      }
      case "part":
        // The last member of a gang is late, or never arrives.
        history.arrive(...jobsOf({ ...step.ask, gangSize: 3 }, 100 * number).slice(0, 2));
        break;
      case "pass":
        history.pass(step.seconds);
    }
  }
  return history;
}

test("no history over-allocates, splits a gang, breaks a quota, turns a priority round or takes from who may keep", () => {
  let preempted = 0;
  let reclaimed = 0;
  fc.assert(
    fc.property(pools, trees, histories, bounds, (pool, queues, steps, settings) => {
      const history = play(pool, queues, steps, settings);
      preempted += history.preempted;
      reclaimed += history.reclaimed;
      expect(history.broken).toEqual([]);
    }),
    { numRuns: 300 },
  );
  // At least some of the histories include preemptions.
  expect(preempted).toBeGreaterThan(5);
  expect(reclaimed).toBeGreaterThan(5);
});

/** A pool after its history, with one more claim, about which no decision has been made. */
const undecided = fc.tuple(pools, trees, histories, asks).map(([pool, queues, steps, ask]): QueueSnapshot => {
  const before = play(pool, queues, steps).snapshot();
  const last = jobsOf({ ...ask, priority: 5, isBestEffort: false }, 10_000);
  const arrivals = last.map((job, member) => ({
    ...job,
    arrival: 10_000 + member,
    waitingSince: before.now,
  }));
  return { ...before, waiting: [...before.waiting, ...arrivals] };
});

test("the same snapshot gives the same decision, in whatever order it is listed", () => {
  fc.assert(
    fc.property(undecided, (snapshot) => {
      const turned = {
        ...snapshot,
        pool: { nodes: snapshot.pool.nodes.toReversed() },
        queues: snapshot.queues.toReversed(),
        waiting: snapshot.waiting.toReversed(),
        running: snapshot.running.toReversed(),
      };
      const { blocked, ...decision } = planQueues(snapshot);
      // Among equal claims, a reason names the first: the order affects nothing else.
      const { blocked: turnedBlocked, ...again } = planQueues(turned);
      expect(again).toEqual(decision);
      expect([...turnedBlocked.keys()].sort()).toEqual([...blocked.keys()].sort());
      expect(planQueues(structuredClone(snapshot))).toEqual({ ...decision, blocked });
    }),
    { numRuns: 150 },
  );
  // In such snapshots some decisions preempt. How many varies much from seed to seed.
  const preempted = fc
    .sample(undecided, { numRuns: 500, seed: 1 })
    .reduce((sum, snapshot) => sum + planQueues(snapshot).preemptions.length, 0);
  expect(preempted).toBeGreaterThan(5);
});

test("nobody starves: while others keep coming, each claim's turn comes within a bound", () => {
  const runSeconds = 300;
  const settings = { reserveAfterSeconds: 60, ageAfterSeconds: 600 };
  const pool = {
    nodes: ["node-a", "node-b"].map((name) => ({
      name,
      isReady: true,
      isCordoned: false,
      devices: [0, 1].map((index) => ({
        uuid: `GPU-${index}`,
        index,
        memoryBytes: 8n * GiB,
        isHealthy: true,
        grants: [],
      })),
    })),
  };
  const queue = { parent: "", borrowing: "any", guaranteed: {}, limit: {} } as const;
  const queues: readonly QueueSpec[] = [
    { ...queue, name: "a", weight: 100 },
    { ...queue, name: "b", weight: 1 },
  ];
  const small: Ask = {
    gpus: 1,
    percent: 50,
    queue: "a",
    tenant: "t",
    user: "",
    priority: 5,
    isPreemptible: false,
    isBestEffort: false,
    gangSize: 0,
    isSameNode: false,
    timeLimitSeconds: 0,
    runSeconds,
    preferredHost: "",
  };
  const larges = fc.record({
    gpus: fc.constantFrom(1, 2),
    gangSize: fc.constantFrom(0, 2),
    queue: fc.constantFrom("a", "b"),
    priority: fc.constantFrom(-5, 5),
    at: fc.integer({ min: 0, max: 100 }),
  });
  fc.assert(
    fc.property(fc.array(larges, { minLength: 1, maxLength: 3 }), (asked) => {
      const history = new QueueHistory({
        pool,
        queues,
        settings: { maxReservations: 8, maxVictims: 16, maxCandidates: 64, ...settings },
      });
      const ahead = new Map<string, number>();
      const waitingIn = (name: string) => history.waiting.filter((claim) => claim.queue === name).length;
      for (let step = 0; step < 600; step++) {
        // More than the pool can hold: 8 halves of a device run for 300 s each, and some claims always wait.
        const stream = step % 2 === 0 ? "a" : "b";
        if (waitingIn(stream) < 6) {
          history.arrive(...jobsOf({ ...small, queue: stream }, step));
        }
        for (const [number, { at, ...large }] of asked.entries()) {
          if (at === step) {
            const jobs = jobsOf({ ...small, ...large, percent: 100 }, 1000 + number);
            for (const { request } of jobs) {
              ahead.set(request.claim, waitingIn(large.queue));
            }
            history.arrive(...jobs);
          }
        }
        history.pass(10);
      }
      expect(history.broken).toEqual([]);
      expect(ahead.size).toBeGreaterThan(0);
      // Its wait is bounded by the time to outrank later claims of its queue, by the claims ahead of it, by the running
      // claims when it gets its reservation, and by the earlier reservations.
      const { ageAfterSeconds, reserveAfterSeconds } = settings;
      for (const [name, before] of ahead) {
        const bound = ageAfterSeconds + reserveAfterSeconds + (before + 2 * asked.length) * runSeconds;
        const { from = 0, to = Number.POSITIVE_INFINITY } = history.waits.get(name) ?? {};
        expect(to - from).toBeLessThanOrEqual(bound);
      }
    }),
    { numRuns: 15 },
  );
});

test("who comes later in its queue, or grows, never delays a claim or gang with a reservation", () => {
  const later = fc.record({
    gpus: fc.constantFrom(1, 1, 2),
    percent: fc.constantFrom(25, 50, 100),
    priority: fc.constantFrom(-5, 0),
    timeLimitSeconds: fc.constantFrom(0, 50, 50, 500),
    runSeconds: fc.integer({ min: 10, max: 900 }),
  });
  const resize = fc.record({ which: fc.nat(), percent: fc.constantFrom(10, 50, 75, 100) });
  const crowd = fc.record({
    others: fc.array(later, { maxLength: 4 }),
    resizes: fc.array(resize, { maxLength: 3 }),
    seconds: fc.constantFrom(1, 10, 40),
  });
  const first = fc.record({
    gpus: fc.integer({ min: 1, max: 3 }),
    percent: fc.constantFrom(50, 100),
    gangSize: fc.constantFrom(0, 2, 3),
    isSameNode: fc.boolean(),
  });
  const queue = { name: "a", parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} } as const;
  const plain = {
    queue: "a",
    tenant: "u",
    user: "",
    isPreemptible: false,
    isBestEffort: false,
    preferredHost: "",
    gangSize: 0,
    isSameNode: false,
  } as const;
  let waited = 0;
  const resizes = { done: 0, refused: 0 };
  fc.assert(
    fc.property(
      pools,
      // When each device becomes free, known in advance for all devices. 0: free now.
      fc.array(fc.constantFrom(0, 100, 200, 500), { minLength: 9, maxLength: 9 }),
      first,
      fc.array(crowd, { minLength: 5, maxLength: 20 }),
      (pool, before, asked, after) => {
        const history = new QueueHistory({ pool, queues: [queue] });
        const devices = pool.nodes.flatMap((node) => node.devices);
        for (const [number, seconds] of before.slice(0, devices.length).entries()) {
          const whole = {
            ...plain,
            gpus: 1,
            percent: 100,
            priority: 0,
            timeLimitSeconds: seconds,
            runSeconds: seconds,
          } as const;
          history.arrive(...(seconds === 0 ? [] : jobsOf(whole, number)));
        }
        const job = { ...plain, ...asked, priority: 0, timeLimitSeconds: 0, runSeconds: 50 } as const;
        history.arrive(...jobsOf(job, 100));
        const { blocked } = history.pass(60);
        const promised = blocked.get("c100-0")?.expectedAt ?? null;
        if (promised === null) {
          return;
        }
        waited += 1;
        const pass = (seconds: number) => {
          history.pass(seconds);
          const isThere = history.waits.get("c100-0")?.to !== undefined;
          expect(isThere || history.now < promised).toBe(true);
        };
        for (const [number, { others, resizes: changes, seconds }] of after.entries()) {
          history.arrive(
            ...others.flatMap((ask, member) => jobsOf({ ...plain, ...ask }, 1000 + 10 * number + member)),
          );
          for (const { which, percent } of changes) {
            // A running claim other than this one.
            const running = history.running.filter(({ statement }) => statement.claim !== "c100-0");
            const claim = running[which % running.length]?.statement.claim;
            const isDone = claim !== undefined && history.resize(claim, percent) === undefined;
            resizes[isDone ? "done" : "refused"] += 1;
          }
          pass(seconds);
        }
        while (history.now < promised) {
          pass(50);
        }
        expect(history.broken).toEqual([]);
      },
    ),
    { numRuns: 100 },
  );
  expect(waited).toBeGreaterThan(20);
  expect(Math.min(resizes.done, resizes.refused)).toBeGreaterThan(20);
});
