// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { type Job, plainJob, QueueHistory } from "../testing/queue-history.ts";

const device = { memoryBytes: 1n << 33n, isHealthy: true, grants: [] };
const pool = {
  nodes: [
    {
      name: "node",
      isReady: true,
      isCordoned: false,
      devices: Array.from({ length: 8 }, (_, index) => ({ ...device, uuid: `GPU-${index}`, index })),
    },
  ],
};
const queue = { name: "q", parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} } as const;
const tenants = [
  {
    name: "t",
    limit: { gpuMilli: 4000 },
    userLimit: { gpuMilli: 2000 },
    userLimits: new Map([["bob", {}]]),
  },
];

function job(claim: string, user: string, gpus = 1): Job {
  return {
    ...plainJob,
    user,
    request: { claim, gpus, memoryBytes: 0n, memoryPercent: 0, computePercent: 0 },
  };
}

test("a claim that waits for its user's limit reserves quota of that user only", () => {
  const history = new QueueHistory({ pool, queues: [queue], tenants });
  history.arrive(job("runs", "ann"));
  const { blocked } = history.arrive(job("large", "ann", 2));
  expect(blocked.get("large")?.reason).toBe(
    "user ann of tenant t is at its limit: this would bring it to 3 of 2 GPUs",
  );
  history.pass(60);
  const others = ["b1", "b2", "b3"].map((name) => job(name, "bob"));
  const { blocked: later } = history.arrive(job("small", "ann"), ...others);
  const running = history.running.map(({ statement }) => statement.claim);
  expect(running.toSorted()).toEqual(["b1", "b2", "b3", "runs"]);
  expect(later.get("small")?.reason).toMatch(/^the remaining quota of user ann is reserved for claim large/);
  // Claims of an earlier release are charged to no user.
  expect(history.arrive(job("old", "")).blocked.get("old")?.reason).toMatch(/^tenant t is at its limit/);
});
