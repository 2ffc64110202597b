// SPDX-License-Identifier: Apache-2.0

import { describe, expect, test } from "vitest";
import { job, pool, queue, running } from "../testing/plain-queue.ts";
import { inWords, type Job, QueueHistory } from "../testing/queue-history.ts";
import { defaultPlanSettings } from "./claim.ts";
import { planQueues } from "./plan.ts";

const GiB = 1n << 30n;

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
      reason: "the capacity it needs is being released",
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
        reason: "preempted for claim urgent: its priority -1 is lower than 5",
      },
    ]);
    expect(decision.blocked.get("urgent")).toMatchObject({
      obstacle: "preempting",
      reason: "claim low-young is preempted for it",
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
    // To get its own guarantee it preempts the claim with the higher cost: capacity of the other one would not count towards
    // its guarantee.
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
        "queue q is at its limit: this would bring it to 4 of 3 GPUs; the capacity it needs is released within 30s",
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
    // Now the other queue has its turn, and gets the room of the last claim that may be preempted.
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
    expect(first.preemptions[0]?.reason).toContain("queue b has borrowed capacity guaranteed to queue a");
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
    // It requests two GPUs, and one is guaranteed.
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
