// SPDX-License-Identifier: Apache-2.0

// No claim starves: against endless streams of claims, each kind of claim gets its turn within a bound.

import { expect, test } from "vitest";
import type { Constraints } from "../constraints.ts";
import type { Labels } from "../labels.ts";
import type { Snapshot } from "../snapshot.ts";
import { type Job, QueueHistory, plainJob } from "../testing/queue-history.ts";
import type { QueueSpec } from "./queue.ts";

const GiB = 1n << 30n;
const runSeconds = 200;
const settings = {
  reserveAfterSeconds: 60,
  ageAfterSeconds: 600,
  maxReservations: 8,
  maxVictims: 16,
  maxCandidates: 64,
} as const;

const spec = { parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} } as const;

const pool: Snapshot = {
  nodes: ["node-a", "node-b"].map((name, node) => ({
    name,
    isReady: true,
    isCordoned: false,
    devices: [0, 1].map((index) => ({
      uuid: `GPU-${index}`,
      index,
      memoryBytes: 8n * GiB,
      isHealthy: true,
      computeCapability: node === 0 ? "8.0" : "9.0",
      grants: [],
    })),
  })),
};

interface Ask extends Partial<Omit<Job, "request">> {
  readonly gpus?: number;
  readonly percent?: number;
  readonly constraints?: Constraints;
  readonly labels?: Labels;
}

function job(claim: string, ask: Ask): Job {
  const { gpus = 1, percent = 100, constraints, labels, ...rest } = ask;
  return {
    ...plainJob,
    request: {
      claim,
      gpus,
      memoryBytes: 0n,
      memoryPercent: percent,
      computePercent: 0,
      ...(rest.isBestEffort === true ? { isBestEffort: true } : {}),
      ...(constraints === undefined ? {} : { constraints }),
      ...(labels === undefined ? {} : { labels }),
    },
    queue: "a",
    runSeconds,
    graceSeconds: 20,
    ...rest,
  };
}

interface Siege {
  /** Each arrives repeatedly, so that some of it always wait. */
  readonly streams: readonly Ask[];
  /** The members of one claim or gang, which arrives when the pool is full. */
  readonly asked: readonly Ask[];
  readonly queues?: readonly QueueSpec[];
  readonly tenantLimit?: number;
  /** Upper bound on the rounds of running claims for which it waits. */
  readonly rounds: number;
}

const share: Ask = { percent: 50 };
const a: QueueSpec = { ...spec, name: "a" };
const b: QueueSpec = { ...spec, name: "b" };
const gang = { gang: "g" } as const;
const apart = { labels: { app: "x" }, constraints: { antiAffinity: { app: "x" } } };

const sieges: Readonly<Record<string, Siege>> = {
  "a gang of whole cards against shares of the same queue": {
    streams: [share],
    asked: Array.from({ length: 4 }, () => ({ ...gang, gangSize: 4 })),
    rounds: 3,
  },
  "a claim of a whole node against shares and whole cards": {
    streams: [share, {}],
    asked: [{ gpus: 2 }],
    rounds: 3,
  },
  "a queue of little weight against one of much, with more priority there": {
    streams: [{ ...share, priority: 9 }],
    queues: [{ ...a, weight: 1000 }, b],
    asked: [{ queue: "b", gpus: 2 }],
    rounds: 3,
  },
  "a gang in a group of little weight, beside a small one of its own queue": {
    streams: [share, { ...share, queue: "b" }],
    queues: [
      { ...a, weight: 100 },
      { ...spec, name: "top" },
      { ...b, parent: "top" },
    ],
    asked: [0, 1].map(() => ({ ...gang, gangSize: 2, gpus: 2, queue: "b" })),
    rounds: 4,
  },
  "exclusive cards against shares of cards": {
    streams: [{ percent: 10 }, { percent: 30, queue: "b" }],
    asked: [{ gpus: 2, constraints: { isExclusive: true } }],
    rounds: 4,
  },
  "a gang whose members stay apart, against others": {
    streams: [share, { queue: "b" }],
    asked: [0, 1].map(() => ({ ...gang, gangSize: 2, ...apart })),
    rounds: 4,
  },
  "a claim that stays apart from what keeps coming": {
    streams: [{ percent: 25, labels: { app: "web" } }],
    asked: [{ percent: 25, constraints: { antiAffinity: { app: "web" } } }],
    rounds: 4,
  },
  "a claim that needs the newer half of the cards": {
    streams: [share, { queue: "b" }],
    asked: [{ gpus: 2, constraints: { minComputeCapability: "9.0" } }],
    rounds: 4,
  },
  "lazy claims that wake again and again before one of a whole node": {
    streams: [{ ...share, runSeconds: 20 }],
    asked: [{ gpus: 2 }],
    rounds: 2,
  },
  "one of the same priority that comes last": {
    streams: [{ priority: 5 }],
    asked: [{ priority: 5 }],
    rounds: 3,
  },
  "one of less priority against a stream of more": {
    streams: [{ priority: 5 }],
    asked: [{ priority: -5 }],
    rounds: 6,
  },
  "a preemptible claim against a stream that may take it back": {
    streams: [{ ...share, priority: 5 }],
    asked: [{ isPreemptible: true, gpus: 2 }],
    rounds: 6,
  },
  "a claim against best-effort ones": {
    streams: [{ isBestEffort: true, isPreemptible: true }],
    asked: [{ gpus: 2, queue: "b" }],
    rounds: 1,
  },
  "best effort beside what others ask of compute": {
    streams: [share],
    asked: [{ queue: "b", isBestEffort: true, isPreemptible: true, percent: 25 }],
    queues: [{ ...a, limit: { gpuMilli: 3500 } }, b],
    rounds: 1,
  },
  "a large claim at the limit of its queue, against small ones of it": {
    streams: [share],
    queues: [{ ...a, limit: { gpuMilli: 2000 } }, b],
    asked: [{ gpus: 2 }],
    rounds: 4,
  },
  "a large claim at the limit of its group, against small ones of another queue of it": {
    streams: [{ ...share, queue: "b" }],
    queues: [
      { ...spec, name: "top", limit: { gpuMilli: 2000 } },
      { ...a, parent: "top" },
      { ...b, parent: "top" },
    ],
    asked: [{ gpus: 2 }],
    rounds: 4,
  },
  "a large claim that may not be taken back, where only such as may be may borrow": {
    streams: [share],
    queues: [{ ...a, borrowing: "preemptible", guaranteed: { gpuMilli: 2000 } }, b],
    asked: [{ gpus: 2 }],
    rounds: 4,
  },
  "a large claim at the limit of its tenant, against small ones of him": {
    streams: [share, { ...share, queue: "b" }],
    tenantLimit: 2000,
    asked: [{ gpus: 2 }],
    rounds: 4,
  },
};

test.each(Object.entries(sieges))("%s", (_name, siege) => {
  const { streams, asked, queues = [a, b], tenantLimit, rounds } = siege;
  const history = new QueueHistory({
    pool,
    queues,
    settings,
    tenants: tenantLimit === undefined ? [] : [{ name: "t", limit: { gpuMilli: tenantLimit } }],
  });
  const names = asked.map((_, member) => `asked-${member}`);
  let arrivals = 0;
  for (let second = 0; second < 6000; second += 10) {
    for (const [number, ask] of streams.entries()) {
      const name = `s${number}-`;
      if (history.waiting.filter(({ request }) => request.claim.startsWith(name)).length < 3) {
        history.arrive(job(`${name}${arrivals}`, ask));
        arrivals += 1;
      }
    }
    if (second === 600) {
      history.arrive(...asked.map((ask, member) => job(names[member] ?? "", ask)));
    }
    history.pass(10);
  }
  expect(history.broken).toEqual([]);
  // The streams make progress, too.
  expect(arrivals).toBeGreaterThan(50);
  const bound = settings.reserveAfterSeconds + rounds * runSeconds;
  for (const name of names) {
    const { from = 0, to = Number.POSITIVE_INFINITY } = history.waits.get(name) ?? {};
    expect(to - from).toBeLessThanOrEqual(bound);
  }
});
