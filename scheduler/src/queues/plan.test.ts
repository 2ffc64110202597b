// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from "vitest";
import { job, pool, queue, running } from "../testing/plain-queue.ts";
import { type Job, QueueHistory } from "../testing/queue-history.ts";
import { planQueues } from "./plan.ts";
import { withoutGrants } from "./reservation.ts";

const GiB = 1n << 30n;

describe("fair share", () => {
  test("queues have the pool in the proportion of their weights", () => {
    const history = new QueueHistory({ pool: pool(8), queues: [queue("a", { weight: 3 }), queue("b")] });
    history.arrive(
      ...Array.from({ length: 8 }, (_, n) => job(`a${n}`, { queue: "a" })),
      ...Array.from({ length: 8 }, (_, n) => job(`b${n}`, { queue: "b" })),
    );
    const names = running(history);
    expect(names.filter((name) => name.startsWith("a"))).toHaveLength(6);
    expect(names.filter((name) => name.startsWith("b"))).toHaveLength(2);
  });

  test("of queues that have the same, the one goes first whose first claim has waited longest", () => {
    const history = new QueueHistory({ pool: pool(1), queues: [queue("a"), queue("b"), queue("other")] });
    history.arrive(job("runs", { queue: "other", runSeconds: 30 }));
    history.arrive(job("early", { queue: "b" }));
    history.pass(10);
    history.arrive(job("late", { queue: "a" }));
    history.pass(20);
    expect(running(history)).toEqual(["early"]);
  });

  test("a group of queues has its share, however many its parts are", () => {
    const queues = [queue("top"), queue("x", { parent: "top" }), queue("y", { parent: "top" }), queue("c")];
    const history = new QueueHistory({ pool: pool(4), queues });
    const jobs = ["x", "y", "c"].flatMap((name) =>
      [0, 1, 2, 3].map((n) => job(`${name}${n}`, { queue: name })),
    );
    history.arrive(...jobs);
    expect(running(history)).toEqual(["c0", "c1", "x0", "y0"]);
  });

  test("a guarantee comes before others' shares", () => {
    const queues = [queue("a", { guaranteed: { gpuMilli: 3000 } }), queue("b", { weight: 100 })];
    const history = new QueueHistory({ pool: pool(6), queues });
    history.arrive(
      ...["b", "a"].flatMap((name) => [0, 1, 2, 3].map((n) => job(`${name}${n}`, { queue: name }))),
    );
    expect(running(history)).toEqual(["a0", "a1", "a2", "a3", "b0", "b1"]);
  });

  test("limits of queues and tenants are said with their numbers", () => {
    const queues = [queue("q", { limit: { gpuMilli: 1000 } }), queue("r")];
    const history = new QueueHistory({
      pool: pool(4),
      queues,
      tenants: [{ name: "u", limit: { memoryBytes: 8n * GiB } }],
    });
    const { blocked } = history.arrive(
      job("a"),
      job("b"),
      job("c", { queue: "r", tenant: "u" }),
      job("d", { queue: "r", tenant: "u" }),
    );
    expect(running(history)).toEqual(["a", "c"]);
    expect(blocked.get("b")).toMatchObject({
      obstacle: "quota",
      reason: "queue q is at its limit: this would bring it to 2 of 1 GPU",
    });
    expect(blocked.get("d")?.reason).toBe(
      "tenant u is at its limit: this would bring it to 16 GiB of 8 GiB of memory",
    );
  });

  test("where devices differ, a claim goes where its quotas allow it", () => {
    const { nodes } = pool(1, 1);
    const mixed = {
      nodes: nodes.map((node, position) => ({
        ...node,
        devices: node.devices.map((each) => ({
          ...each,
          memoryBytes: position === 0 ? 8n * GiB : 16n * GiB,
        })),
      })),
    };
    const tenants = [{ name: "t", limit: { memoryBytes: 8n * GiB } }];
    const whole = new QueueHistory({ pool: mixed, queues: [queue("q")], tenants });
    whole.arrive(job("large", { tenant: "u", isPreemptible: true, runSeconds: 50 }));
    whole.pass(50);
    whole.arrive(job("a"));
    expect(whole.running.map(({ statement }) => statement.node)).toEqual(["node-0"]);

    // The same number of bytes is a greater share of a small device.
    const small = { claim: "b", gpus: 1, memoryBytes: 4n * GiB, memoryPercent: 0, computePercent: 0 };
    const queues = [queue("q", { limit: { gpuMilli: 250 } })];
    const part = new QueueHistory({ pool: mixed, queues });
    part.arrive({ ...job("b"), request: small });
    expect(part.running.map(({ statement }) => statement.node)).toEqual(["node-1"]);

    // The allowed device is taken: it is reserved for the claim until it becomes free.
    const busy = new QueueHistory({ pool: mixed, queues: [queue("q"), queue("r")], tenants });
    const firstNode = { constraints: { onlyNodes: ["node-0"] } };
    const there = job("there", { tenant: "u", queue: "r", runSeconds: 100, timeLimitSeconds: 100 });
    busy.arrive({ ...there, request: { ...there.request, ...firstNode } });
    const { blocked } = busy.arrive(job("waits"));
    expect(blocked.get("waits")?.reason).toBe(
      "tenant t is at its limit: this would bring it to 16 GiB of 8 GiB of memory",
    );
    busy.pass(60);
    const next = job("next", { tenant: "u", queue: "r" });
    const { blocked: later } = busy.arrive({ ...next, request: { ...next.request, ...firstNode } });
    expect(later.get("waits")?.reason).toMatch(/of memory; capacity that becomes free is reserved for it$/);
    busy.pass(40);
    expect(running(busy)).toEqual(["waits"]);
  });

  test("guarantees in memory or compute count as those in GPUs do", () => {
    const queues = [
      queue("a", { guaranteed: { memoryBytes: 16n * GiB } }),
      queue("b", { guaranteed: { computePercent: 100 }, weight: 100 }),
      queue("c", { guaranteed: { gpuMilli: 1000 } }),
    ];
    const history = new QueueHistory({ pool: pool(4), queues });
    history.arrive(
      ...["b", "a", "c"].flatMap((name) =>
        [0, 1, 2, 3].map((n) => job(`${name}${n}`, { queue: name, isPreemptible: true })),
      ),
    );
    expect(running(history)).toEqual(["a0", "a1", "b0", "c0"]);
    // None of them has borrowed.
    expect(history.preempted).toBe(0);
  });

  test("who may not borrow stays within the guarantee", () => {
    const queues = [queue("q", { guaranteed: { gpuMilli: 1000 }, borrowing: "preemptible" })];
    const history = new QueueHistory({ pool: pool(4), queues });
    const { blocked } = history.arrive(job("a"), job("b"), job("c", { isPreemptible: true }));
    expect(running(history)).toEqual(["a", "c"]);
    expect(blocked.get("b")?.reason).toBe(
      "queue q borrows for preemptible claims only: this would bring the others to 2 of 1 GPU",
    );
    // Claims on borrowed capacity block no other queue.
    const other = new QueueHistory({ pool: pool(4), queues });
    const may = { isPreemptible: true } as const;
    other.arrive(job("x", may), job("y", may), job("z", may));
    other.arrive(job("firm"));
    expect(running(other)).toEqual(["firm", "x", "y", "z"]);
  });
});

describe("order within a queue", () => {
  test("the greater priority, then who came first; best effort last", () => {
    const history = new QueueHistory({ pool: pool(1), queues: [queue("q")] });
    history.arrive(job("first", { runSeconds: 10 }));
    history.arrive(job("idle", { isBestEffort: true, isPreemptible: true, priority: 9 }));
    history.arrive(job("early"), job("urgent", { priority: 5 }), job("late"));
    expect(history.decide().order).toEqual(["urgent", "early", "late", "idle"]);
    history.pass(10);
    expect(running(history)).toEqual(["urgent"]);
  });

  test("who has waited too long goes before the greater priority", () => {
    const history = new QueueHistory({ pool: pool(1), queues: [queue("q")] });
    history.arrive(job("first", { runSeconds: 2000 }), job("old", { priority: -5 }));
    history.now += 1800;
    history.arrive(job("urgent", { priority: 5 }));
    expect(history.decide().order).toEqual(["old", "urgent"]);
  });
});

describe("gangs", () => {
  const member = (name: string, change: Partial<Job> = {}) =>
    job(name, { gang: "g", gangSize: 3, gpus: 2, ...change });

  test("wait for their last member, then go on as many nodes as it takes", () => {
    const history = new QueueHistory({ pool: pool(2, 2, 2), queues: [queue("q")] });
    const { blocked } = history.arrive(member("a"), member("b"));
    expect(blocked.get("a")?.reason).toBe("gang g has 2 of its 3 claims");
    expect(running(history)).toEqual([]);
    history.arrive(member("c"));
    expect(history.running.map(({ statement }) => statement.node).sort()).toEqual([
      "node-0",
      "node-1",
      "node-2",
    ]);
  });

  test("hold nothing while there is not room for all", () => {
    const history = new QueueHistory({ pool: pool(2, 2), queues: [queue("q")] });
    const { blocked } = history.arrive(member("a"), member("b"), member("c"));
    expect(running(history)).toEqual([]);
    expect(blocked.get("c")?.reason).toMatch(
      /^room for 2 of 3 claims of gang g; no device has all of its memory free/,
    );
  });

  test("fit where they fit at all, whatever devices would be best for the first of them", () => {
    const history = new QueueHistory({ pool: pool(3), queues: [queue("q")] });
    const part = (claim: string, memoryPercent: number) => ({
      ...job(claim),
      request: { claim, gpus: 2, memoryBytes: 0n, memoryPercent, computePercent: 0 },
    });
    history.arrive(part("there", 25));
    history.arrive(...["a", "b"].map((name) => ({ ...part(name, 50), gang: "g", gangSize: 2 })));
    expect(running(history)).toEqual(["a", "b", "there"]);
  });

  test("wait for room since their last member came, and take one back that was lost", () => {
    const history = new QueueHistory({ pool: pool(2), queues: [queue("q"), queue("r")] });
    history.arrive(job("ends", { runSeconds: 400, timeLimitSeconds: 400 }));
    history.arrive(job("a", { gang: "g", gangSize: 2 }));
    history.pass(100);
    history.arrive(job("b", { gang: "g", gangSize: 2 }));
    history.arrive(job("brief", { queue: "r", runSeconds: 100 }));
    expect(running(history)).toEqual(["brief", "ends"]);
    history.pass(300);
    expect(running(history)).toEqual(["a", "b"]);

    const { now, pool: full, running: members, ...rest } = history.snapshot();
    const [lost, kept] = members;
    const again = { ...job(lost?.statement.claim ?? "", { gang: "g", gangSize: 2 }), arrival: 9 };
    const { grants } = planQueues({
      ...rest,
      now,
      pool: withoutGrants(full, lost === undefined ? [] : [lost]),
      running: kept === undefined ? [] : [kept],
      waiting: [{ ...again, waitingSince: now }],
    });
    expect(grants.map(({ claim }) => claim)).toEqual([lost?.statement.claim]);
  });

  test("stay on one node when they want to", () => {
    const history = new QueueHistory({ pool: pool(2, 2, 6), queues: [queue("q")] });
    history.arrive(...["a", "b", "c"].map((name) => member(name, { isSameNode: true })));
    expect(history.running.map(({ statement }) => statement.node)).toEqual(["node-2", "node-2", "node-2"]);
  });

  test("nobody delays one that has a reservation, and who ends before it starts may go ahead", () => {
    const history = new QueueHistory({ pool: pool(2), queues: [queue("q")] });
    history.arrive(job("long", { runSeconds: 300, timeLimitSeconds: 300 }));
    history.arrive(...["a", "b"].map((name) => job(name, { gang: "g", gangSize: 2 })));
    history.pass(60);
    const { blocked } = history.arrive(
      job("small"),
      job("brief", { timeLimitSeconds: 200, runSeconds: 200 }),
    );
    expect(running(history)).toEqual(["brief", "long"]);
    expect(blocked.get("small")).toMatchObject({
      obstacle: "reserved",
      reason: "free capacity is reserved for gang g, which has waited 1m",
    });
    expect(blocked.get("a")).toMatchObject({ expectedAt: 1300 });
    history.pass(240);
    expect(running(history)).toEqual(["a", "b"]);
  });
});

describe("reservations", () => {
  const part = (claim: string, memoryPercent: number, change: Partial<Job> = {}) => ({
    ...job(claim, change),
    request: { claim, gpus: 1, memoryBytes: 0n, memoryPercent, computePercent: 0 },
  });
  const queues = [queue("q"), queue("r"), queue("s")];

  test("keep of what is free only what is needed beside what others give back", () => {
    const history = new QueueHistory({ pool: pool(1), queues });
    history.arrive(part("ends", 60, { timeLimitSeconds: 500, runSeconds: 500 }));
    history.arrive(part("waits", 80));
    history.pass(60);
    history.arrive(part("too-much", 21, { queue: "r" }), part("beside", 20, { queue: "s" }));
    expect(running(history)).toEqual(["beside", "ends"]);
    history.pass(440);
    expect(running(history)).toEqual(["beside", "waits"]);
  });

  test("are for the first that has to wait for room, not for one that waits for its quota", () => {
    const tenants = [{ name: "u", limit: { gpuMilli: 500 } }];
    const history = new QueueHistory({ pool: pool(1), queues, tenants });
    history.arrive(job("ends", { timeLimitSeconds: 500 }));
    const { blocked } = history.arrive(job("poor", { tenant: "u" }), job("next"));
    expect(blocked.get("poor")?.obstacle).toBe("quota");
    expect(blocked.get("next")).toMatchObject({ obstacle: "room", expectedAt: history.now + 500 });
  });

  test("of quotas say for whom they are kept, and nothing is kept for one that is beyond them by itself", () => {
    const limited = [queue("q", { limit: { gpuMilli: 2000 } }), queue("r")];
    const history = new QueueHistory({ pool: pool(4), queues: limited });
    history.arrive(job("runs"), job("huge", { gpus: 3 }));
    history.pass(60);
    history.arrive(job("large", { gpus: 2 }));
    history.pass(60);
    const { blocked } = history.arrive(job("small"), job("elsewhere", { queue: "r" }));
    expect(running(history)).toEqual(["elsewhere", "runs"]);
    expect(blocked.get("small")).toMatchObject({
      obstacle: "quota",
      reason: "the remaining quota of queue q is reserved for claim large, which has waited 1m",
    });
    history.pass(1000);
    expect(running(history)).toContain("large");
  });

  test("of quotas are for one claim of a queue and tenant at a time", () => {
    const limited = [queue("q", { limit: { gpuMilli: 5000 } })];
    const tenants = [{ name: "u", limit: { gpuMilli: 2000 } }];
    const history = new QueueHistory({ pool: pool(8), queues: limited, tenants });
    const first = { gpus: 2, tenant: "u" };
    history.arrive(job("runs", { tenant: "u" }), job("one", first));
    history.arrive(job("two", { ...first, isPreemptible: true }));
    history.pass(60);
    history.arrive(job("of-another", { gpus: 2 }), job("of-u", { tenant: "u" }));
    expect(running(history)).toEqual(["of-another", "runs"]);
  });

  test("count on what another gives back once", () => {
    const history = new QueueHistory({ pool: pool(1), queues });
    history.arrive(part("ends", 70, { queue: "s", timeLimitSeconds: 500, runSeconds: 500 }));
    history.arrive(part("one", 60), part("other", 40, { queue: "r" }));
    history.pass(60);
    history.arrive(part("between", 20, { queue: "s" }));
    expect(running(history)).toEqual(["ends"]);
    history.pass(440);
    expect(running(history)).toEqual(["one", "other"]);
  });
});
