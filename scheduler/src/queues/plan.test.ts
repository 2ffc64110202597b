// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from "vitest";
import type { Snapshot } from "../snapshot.ts";
import { inWords, type Job, QueueHistory, plainJob } from "../testing/queue-history.ts";
import { defaultPlanSettings } from "./claim.ts";
import { planQueues } from "./plan.ts";
import type { QueueSpec } from "./queue.ts";
import { withoutGrants } from "./reservation.ts";

const GiB = 1n << 30n;

function pool(...devices: number[]): Snapshot {
  return {
    nodes: devices.map((count, position) => ({
      name: `node-${position}`,
      isReady: true,
      isCordoned: false,
      devices: Array.from({ length: count }, (_, index) => ({
        uuid: `GPU-${index}`,
        index,
        memoryBytes: 8n * GiB,
        isHealthy: true,
        grants: [],
      })),
    })),
  };
}

function queue(name: string, change: Partial<QueueSpec> = {}): QueueSpec {
  return { name, parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {}, ...change };
}

function job(claim: string, change: Partial<Job> & { readonly gpus?: number } = {}): Job {
  const { gpus = 1, ...rest } = change;
  return {
    ...plainJob,
    request: { claim, gpus, memoryBytes: 0n, memoryPercent: 0, computePercent: 0 },
    ...rest,
  };
}

function running(history: QueueHistory): string[] {
  return history.running.map(({ statement }) => statement.claim).sort();
}

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
      reason: "queue q is at its limit: with it, it would have 2 of 1 GPUs",
    });
    expect(blocked.get("d")?.reason).toBe(
      "tenant u is at its limit: with it, it would have 16 GiB of 8 GiB of memory",
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
      "tenant t is at its limit: with it, it would have 16 GiB of 8 GiB of memory",
    );
    busy.pass(60);
    const next = job("next", { tenant: "u", queue: "r" });
    const { blocked: later } = busy.arrive({ ...next, request: { ...next.request, ...firstNode } });
    expect(later.get("waits")?.reason).toMatch(/of memory; what becomes free is kept for it$/);
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
      "queue q borrows for preemptible claims only: with it, those that are not would have 2 of 1 GPUs",
    );
    // Claims that have borrowed block no other queue.
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
      reason: "what is free is kept for gang g, which has waited 1m",
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
      reason: "what queue q may still have is kept for claim large, which has waited 1m",
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

describe("preemption", () => {
  const may = { isPreemptible: true } as const;

  test("takes nobody where enough has been taken back and is in use for a moment longer", () => {
    const history = new QueueHistory({ pool: pool(2), queues: [queue("q")] });
    history.arrive(job("low", may), job("gone", may));
    const snapshot = history.snapshot();
    const [low, gone] = snapshot.running;
    const leftovers = gone === undefined ? [] : [{ statement: gone.statement, endsAt: snapshot.now }];
    const { blocked, preemptions } = inWords(
      planQueues({
        ...snapshot,
        running: low === undefined ? [] : [low],
        leftovers,
        waiting: [{ ...job("urgent", { priority: 5 }), arrival: 9, waitingSince: snapshot.now }],
      }),
    );
    expect(preemptions).toEqual([]);
    expect(blocked.get("urgent")).toMatchObject({
      obstacle: "preempting",
      reason: "what it needs has been taken back and is in use for a moment longer",
    });
  });

  test("takes few, of low priority, young, and none that may not be taken", () => {
    const history = new QueueHistory({ pool: pool(4), queues: [queue("q")] });
    history.arrive(job("keeps"), job("low-old", { ...may, priority: -1 }));
    history.now += 5;
    history.arrive(job("low-young", { ...may, priority: -1 }), job("middle", { ...may, priority: 1 }));
    const decision = history.arrive(job("urgent", { priority: 5 }));
    expect(decision.preemptions).toEqual([
      {
        claim: "low-young",
        beneficiary: "claim urgent",
        reason: "taken back for claim urgent: its priority -1 is lower than 5",
      },
    ]);
    expect(decision.blocked.get("urgent")).toMatchObject({
      obstacle: "preempting",
      reason: "claim low-young gives back what it needs",
      expectedAt: 1035,
    });
    // A second pass preempts no more, and no other claim takes the capacity.
    expect(history.arrive(job("other")).preemptions).toEqual([]);
    history.pass(30);
    expect(running(history)).toEqual(["keeps", "low-old", "middle", "urgent"]);
    expect(history.waiting.map(({ request }) => request.claim)).toEqual(["other", "low-young"]);
  });

  test("takes nobody whose room is kept for another that waits", () => {
    const history = new QueueHistory({ pool: pool(2, 1), queues: [queue("q"), queue("r")] });
    const on = (name: string, node: number, change: Partial<Job>) => {
      const { request, ...rest } = job(name, change);
      return { ...rest, request: { ...request, constraints: { onlyNodes: [`node-${node}`] } } };
    };
    history.arrive(on("old", 1, { ...may, queue: "r" }));
    history.now += 5;
    history.arrive(on("young", 0, { ...may, queue: "r" }), on("ends", 0, { timeLimitSeconds: 500 }));
    history.now += 5;
    history.arrive(job("large", { gpus: 2 }));
    history.pass(60);
    // For its own guarantee it preempts the claim with the higher cost: room of the other one would not count as its own.
    expect(history.arrive(job("urgent", { queue: "r", priority: 5 })).preemptions).toMatchObject([
      { claim: "old" },
    ]);
    expect(history.arrive(job("more", { queue: "r", priority: 4 })).preemptions).toEqual([]);
    history.pass(30);
    expect(running(history)).toEqual(["ends", "urgent", "young"]);
    expect(history.decide().preemptions).toEqual([]);
  });

  test("takes what a quota is used up by, though there is room", () => {
    const queues = [queue("q", { limit: { gpuMilli: 3000 } }), queue("other")];
    const history = new QueueHistory({ pool: pool(8), queues });
    history.arrive(job("keeps"), job("low", may), job("middle", { ...may, priority: 1 }));
    history.arrive(job("elsewhere", { ...may, queue: "other", priority: -9 }));
    expect(history.arrive(job("equal")).preemptions).toEqual([]);
    const { preemptions, blocked } = history.arrive(job("urgent", { priority: 5 }));
    expect(preemptions).toMatchObject([{ claim: "low", beneficiary: "claim urgent" }]);
    expect(blocked.get("urgent")).toEqual({
      obstacle: "preempting",
      reason:
        "queue q is at its limit: with it, it would have 4 of 3 GPUs; what it needs is given back within 30s",
      expectedAt: history.now + 30,
    });
    expect(blocked.get("equal")?.obstacle).toBe("quota");
    // A second pass preempts no more, and freed capacity is not promised twice.
    const again = history.arrive(job("late", { priority: 5 }));
    expect(again.preemptions).toEqual([]);
    expect([again.blocked.get("urgent")?.obstacle, again.blocked.get("late")?.obstacle]).toEqual([
      "preempting",
      "quota",
    ]);
    history.pass(30);
    expect(running(history)).toEqual(["elsewhere", "keeps", "middle", "urgent"]);
    // Now the other queue gets its turn, from the last claim that may be preempted.
    history.pass(30);
    expect(running(history)).toEqual(["elsewhere", "keeps", "late", "urgent"]);
  });

  test("takes what a tenant's quota is used up by from its own queue only", () => {
    const tenants = [{ name: "t", limit: { gpuMilli: 2000 } }];
    const history = new QueueHistory({ pool: pool(8), queues: [queue("q"), queue("r")], tenants });
    history.arrive(job("far", { ...may, queue: "r" }), job("near", may));
    expect(history.arrive(job("urgent", { priority: 5 })).preemptions.map(({ claim }) => claim)).toEqual([
      "near",
    ]);
    expect(history.arrive(job("large", { priority: 9, gpus: 3 })).preemptions).toEqual([]);
  });

  test("takes one large claim rather than several small ones", () => {
    const half = { memoryBytes: 4n * GiB, memoryPercent: 0, computePercent: 0, gpus: 1 };
    const history = new QueueHistory({ pool: pool(1, 1), queues: [queue("q")] });
    history.arrive(
      { ...job("s1", may), request: { claim: "s1", ...half } },
      { ...job("s2", may), request: { claim: "s2", ...half } },
      job("large", may),
    );
    const { preemptions } = history.arrive(job("urgent", { priority: 1 }));
    expect(preemptions.map(({ claim }) => claim)).toEqual(["large"]);
  });

  test("gets back what others have borrowed, and not what they are guaranteed", () => {
    const queues = [
      queue("a", { guaranteed: { gpuMilli: 2000 } }),
      queue("b", { guaranteed: { gpuMilli: 1000 } }),
    ];
    const history = new QueueHistory({ pool: pool(3), queues });
    history.arrive(...[0, 1, 2].map((n) => job(`b${n}`, { queue: "b", ...may })));
    const first = history.arrive(
      job("a0", { queue: "a" }),
      job("a1", { queue: "a" }),
      job("a2", { queue: "a" }),
    );
    expect(first.preemptions).toHaveLength(1);
    expect(first.preemptions[0]?.reason).toContain("queue b has borrowed what queue a is guaranteed");
    history.pass(30);
    history.pass(30);
    history.pass(30);
    expect(running(history).map((name) => name.charAt(0))).toEqual(["a", "a", "b"]);
    expect(history.preempted).toBe(2);
  });

  test("what a queue has borrowed is taken from it once, whoever calls for it", () => {
    const queues = [
      queue("a", { guaranteed: { gpuMilli: 1000 } }),
      queue("b", { guaranteed: { gpuMilli: 1000 } }),
      queue("c", { guaranteed: { gpuMilli: 2000 } }),
    ];
    const history = new QueueHistory({ pool: pool(1, 1, 1), queues });
    const on = (name: string, node: number) => {
      const { request, ...rest } = job(`${name}${node}`, { queue: name });
      return { ...rest, request: { ...request, constraints: { onlyNodes: [`node-${node}`] } } };
    };
    history.arrive(...[0, 1, 2].map((n) => job(`c${n}`, { queue: "c", ...may, runSeconds: 100_000 })));
    expect(history.arrive(on("a", 0), on("b", 1)).preemptions).toHaveLength(1);
    expect(history.pass(10).preemptions).toEqual([]);
    history.pass(20);
    expect(running(history).filter((name) => name.startsWith("c"))).toHaveLength(2);
    expect(history.broken).toEqual([]);
  });

  test("a group keeps what it is guaranteed, however its parts share it", () => {
    const queues = [
      queue("a", { guaranteed: { gpuMilli: 2000 } }),
      queue("top", { guaranteed: { gpuMilli: 3000 } }),
      queue("x", { parent: "top" }),
      queue("y", { parent: "top" }),
    ];
    const history = new QueueHistory({ pool: pool(4), queues });
    history.arrive(...["x", "y", "x", "y"].map((name, n) => job(`${name}${n}`, { queue: name, ...may })));
    expect(history.arrive(job("a0", { queue: "a", gpus: 2 })).preemptions).toEqual([]);
    expect(history.arrive(job("a1", { queue: "a", priority: 1 })).preemptions).toHaveLength(1);
    history.pass(30);
    expect(running(history)).toHaveLength(4);
    expect(history.broken).toEqual([]);
  });

  test("what a group is guaranteed is taken from others, not from another part of it", () => {
    const queues = [
      queue("top", { guaranteed: { gpuMilli: 4000 } }),
      queue("x", { parent: "top", guaranteed: { gpuMilli: 1000 } }),
      queue("y", { parent: "top" }),
    ];
    const history = new QueueHistory({ pool: pool(3), queues });
    history.arrive(
      job("x0", { queue: "x" }),
      job("y0", { queue: "y", ...may }),
      job("y1", { queue: "y", ...may }),
    );
    expect(history.arrive(job("x1", { queue: "x" })).preemptions).toEqual([]);
    const other = new QueueHistory({ pool: pool(2), queues });
    other.arrive(job("y0", { queue: "y", ...may }), job("y1", { queue: "y", ...may }));
    // It asks for two GPUs, and one is guaranteed.
    expect(other.arrive(job("large", { queue: "x", gpus: 2 })).preemptions).toEqual([]);
    expect(other.arrive(job("small", { queue: "x", priority: 1 })).preemptions).toHaveLength(1);
  });

  test("what a group is guaranteed is called for once, whichever of its parts calls first", () => {
    const queues = [
      queue("top", { guaranteed: { gpuMilli: 1000 } }),
      queue("x", { parent: "top" }),
      queue("y", { parent: "top" }),
      queue("c"),
    ];
    const history = new QueueHistory({ pool: pool(1, 1, 1), queues });
    history.arrive(...[0, 1, 2].map((n) => job(`c${n}`, { queue: "c", ...may, runSeconds: 100_000 })));
    expect(history.arrive(job("x0", { queue: "x" }), job("y0", { queue: "y" })).preemptions).toHaveLength(1);
    expect(history.pass(10).preemptions).toEqual([]);
    expect(history.pass(20).preemptions).toEqual([]);
    expect(running(history).filter((name) => name.startsWith("c"))).toHaveLength(2);
    expect(history.broken).toEqual([]);
  });

  test("looks for victims where it could be, however many others there are", () => {
    const settings = { ...defaultPlanSettings, maxCandidates: 2 };
    const history = new QueueHistory({ pool: pool(1, 1, 1, 1), queues: [queue("q")], settings });
    const on = (name: string, node: number, change: Partial<Job>) => {
      const { request, ...rest } = job(name, change);
      return { ...rest, request: { ...request, constraints: { onlyNodes: [`node-${node}`] } } };
    };
    history.arrive(...[3, 2, 1, 0].map((node) => on(`low${node}`, node, { ...may, priority: -node })));
    expect(history.arrive(on("urgent", 0, { priority: 5 })).preemptions).toMatchObject([{ claim: "low0" }]);
  });

  test("looks for what makes a quota free first", () => {
    const settings = { ...defaultPlanSettings, maxCandidates: 2 };
    const queues = [queue("q", { limit: { gpuMilli: 1000 } }), queue("r")];
    const history = new QueueHistory({ pool: pool(8), queues, settings });
    const idle = { isBestEffort: true, isPreemptible: true, queue: "r", tenant: "u" };
    history.arrive(job("low", may), ...[0, 1, 2].map((n) => job(`idle${n}`, idle)));
    expect(history.arrive(job("urgent", { priority: 5 })).preemptions).toMatchObject([{ claim: "low" }]);
  });

  test("takes best-effort claims for any other, and a gang as a whole", () => {
    const history = new QueueHistory({ pool: pool(2), queues: [queue("q"), queue("r")] });
    const idle = { isBestEffort: true, isPreemptible: true, gang: "g", gangSize: 2, priority: 100 };
    history.arrive(job("i1", idle), job("i2", idle));
    const { preemptions } = history.arrive(job("any", { queue: "r", priority: -100 }));
    expect(preemptions.map(({ claim }) => claim)).toEqual(["i1", "i2"]);
    history.pass(30);
    expect(running(history)).toEqual(["any"]);
  });
});
