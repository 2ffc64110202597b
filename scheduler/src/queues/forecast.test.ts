// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import type { Snapshot } from "../snapshot.ts";
import { type Job, QueueHistory, plainJob } from "../testing/queue-history.ts";
import { forecast } from "./forecast.ts";

const GiB = 1n << 30n;
const queues = [
  { name: "q", parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} },
  { name: "r", parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} },
] as const;

function pool(devices: number): Snapshot {
  const uuids = Array.from({ length: devices }, (_, index) => index);
  return {
    nodes: [
      {
        name: "node",
        isReady: true,
        isCordoned: false,
        devices: uuids.map((index) => ({
          uuid: `GPU-${index}`,
          index,
          memoryBytes: 8n * GiB,
          isHealthy: true,
          grants: [],
        })),
      },
    ],
  };
}

function job(claim: string, change: Partial<Job> & { readonly percent?: number } = {}): Job {
  const { percent = 100, ...rest } = change;
  return {
    ...plainJob,
    request: { claim, gpus: 1, memoryBytes: 0n, memoryPercent: percent, computePercent: 0 },
    ...rest,
  };
}

function forecastOf(history: QueueHistory, claim: string) {
  const decision = history.decide();
  return forecast(history.snapshot(), decision, claim);
}

test("what one gives back is promised once, to whom it is enough for in the order of the queue", () => {
  const history = new QueueHistory({ pool: pool(1), queues });
  history.arrive(job("ends", { timeLimitSeconds: 100 }));
  history.arrive(
    job("half", { percent: 50, timeLimitSeconds: 500 }),
    job("other-half", { percent: 50 }),
    job("third", { percent: 50 }),
    job("fourth", { percent: 50 }),
  );
  const of = (claim: string) => forecastOf(history, claim);
  expect(of("half")).toEqual({ waitsFor: ["ends"], startsAt: history.now + 100 });
  expect(of("other-half")).toEqual({ waitsFor: ["ends"], startsAt: history.now + 100 });
  expect(of("third")).toEqual({ waitsFor: ["ends", "half"], startsAt: history.now + 600 });
  expect(of("fourth")).toEqual({ waitsFor: ["ends", "half", "other-half"], startsAt: null });
  expect(of("ends")).toBeUndefined();
});

test("who comes first in another queue gets it first, however long it has waited", () => {
  const history = new QueueHistory({ pool: pool(2), queues });
  history.arrive(job("ends", { timeLimitSeconds: 100 }), job("stays"));
  history.now += 1;
  history.arrive(job("late", { queue: "q" }));
  history.pass(70);
  history.arrive(job("early", { queue: "r" }));
  expect(history.decide().order).toEqual(["early", "late"]);
  expect(forecastOf(history, "early")).toEqual({
    waitsFor: ["ends"],
    startsAt: history.now + 29,
  });
  expect(forecastOf(history, "late")).toEqual({ waitsFor: ["stays"], startsAt: null });
});

test("what one notice gives back is told to one of two who wait, and the other takes back for itself", () => {
  const idle = { queue: "r", isBestEffort: true, isPreemptible: true };
  const history = new QueueHistory({ pool: pool(2), queues });
  history.arrive(job("a", idle), job("b", idle));
  const first = history.arrive(job("one", { queue: "q" }));
  expect(first.preemptions).toMatchObject([{ claim: "a", beneficiary: "claim one" }]);
  history.now += 10;
  const second = history.arrive(job("two", { queue: "r" }), job("three", { queue: "r" }));
  expect(second.preemptions).toMatchObject([{ claim: "b", beneficiary: "claim two" }]);
  expect(second.blocked.get("one")).toMatchObject({ obstacle: "preempting", expectedAt: history.now + 20 });
  expect(second.blocked.get("two")).toMatchObject({ obstacle: "preempting", expectedAt: history.now + 30 });
  expect(forecastOf(history, "one")).toEqual({ waitsFor: ["a"], startsAt: history.now + 20 });
  expect(forecastOf(history, "two")).toEqual({ waitsFor: ["b"], startsAt: history.now + 30 });
  expect(forecastOf(history, "three")?.startsAt).toBeNull();
});

test("what is told of those far behind is nothing", () => {
  const history = new QueueHistory({ pool: pool(1), queues });
  history.arrive(job("ends", { timeLimitSeconds: 100 }));
  const alike = Array.from({ length: 70 }, (_, n) => job(`alike-${n}`, { timeLimitSeconds: 10 }));
  history.arrive(...alike);
  expect(forecastOf(history, "alike-63")?.startsAt).toBe(history.now + 100 + 63 * 10);
  expect(forecastOf(history, "alike-64")).toBeUndefined();
  const several = new QueueHistory({ pool: pool(1), queues });
  several.arrive(job("ends", { timeLimitSeconds: 100 }));
  several.arrive(...Array.from({ length: 9 }, (_, n) => job(`w${n}`, { percent: 100 - n })));
  expect(forecastOf(several, "w7")).toBeDefined();
  expect(forecastOf(several, "w8")).toBeUndefined();
});
