// SPDX-License-Identifier: Apache-2.0

import { mayKnowAll, type Reason, renderReason } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { explainImpossible, explainWaiting } from "./explain.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import type { DeviceState, NodeState, Snapshot } from "./snapshot.ts";
import { applyStatement } from "./statement.ts";

const GiB = 1n << 30n;

function request(claim: string, ask: Partial<ClaimRequest> = {}): ClaimRequest {
  return { claim, gpus: 1, memoryBytes: 0n, memoryPercent: 0, computePercent: 0, ...ask };
}

function node(name: string, memories: readonly bigint[], change: Partial<NodeState> = {}): NodeState {
  const devices = memories.map(
    (memoryBytes, index): DeviceState => ({
      uuid: `GPU-${index}`,
      index,
      memoryBytes,
      isHealthy: true,
      grants: [],
    }),
  );
  return { name, isReady: true, isCordoned: false, devices, ...change };
}

function inWords(reason: Reason): string {
  return renderReason(reason, mayKnowAll);
}

function placeAll(snapshot: Snapshot, requests: readonly ClaimRequest[]): Snapshot {
  return requests.reduce((current, each) => {
    const statement = place(current, each);
    if (statement === undefined) {
      throw new Error(inWords(explainWaiting(current, each)));
    }
    return applyStatement(current, statement);
  }, snapshot);
}

function where(snapshot: Snapshot, ask: ClaimRequest): string | undefined {
  const statement = place(snapshot, ask);
  return statement && `${statement.node}/${statement.devices.map(({ index }) => index).join(",")}`;
}

describe("shares", () => {
  const pool = { nodes: [node("node-a", [16n * GiB])] };

  test.each([
    ["the whole device", {}, 16n * GiB, 100],
    ["memory in proportion", { memoryBytes: 4n * GiB }, 4n * GiB, 25],
    ["memory rounded up to a percent", { memoryBytes: 4n * GiB + 1n }, 4n * GiB + 1n, 26],
    ["at least one percent", { memoryBytes: 1n << 20n }, 1n << 20n, 1],
    ["memory in percent", { memoryPercent: 50 }, 8n * GiB, 50],
    ["both given", { memoryBytes: 4n * GiB, computePercent: 80 }, 4n * GiB, 80],
    ["all memory, part of the compute", { computePercent: 30 }, 16n * GiB, 30],
  ] as const)("%s", (_what, ask, memoryBytes, computePercent) => {
    expect(place(pool, request("a", ask))?.devices).toEqual([
      { uuid: "GPU-0", index: 0, memoryBytes, computePercent },
    ]);
  });

  test("a claim of a whole device needs an empty one", () => {
    const used = placeAll(pool, [request("a", { memoryBytes: 1n << 20n })]);
    expect(place(used, request("b"))).toBeUndefined();
    expect(place(used, request("b", { memoryBytes: 15n * GiB }))).toBeDefined();
  });
});

describe("best fit", () => {
  test("takes the device on which least is left", () => {
    const pool = placeAll({ nodes: [node("node-a", [16n * GiB, 16n * GiB])] }, [
      request("a", { memoryPercent: 50 }),
    ]);
    expect(where(pool, request("b", { memoryPercent: 50 }))).toBe("node-a/0");
    expect(where(pool, request("b", { memoryPercent: 60 }))).toBe("node-a/1");
  });

  test("takes the smaller of two empty devices", () => {
    const pool = { nodes: [node("node-a", [80n * GiB, 16n * GiB])] };
    expect(where(pool, request("a", { memoryBytes: 8n * GiB }))).toBe("node-a/1");
  });

  test("fills a node before it opens another", () => {
    const pool = placeAll({ nodes: [node("node-a", [GiB, GiB]), node("node-b", [GiB, GiB])] }, [
      request("a"),
    ]);
    expect(where(pool, request("b"))).toBe("node-a/1");
  });

  test("ties go to the first name and the lowest ordinals, whatever the order of the nodes", () => {
    const nodes = [node("node-c", [GiB, GiB]), node("node-a", [GiB, GiB]), node("node-b", [GiB, GiB])];
    expect(where({ nodes }, request("a"))).toBe("node-a/0");
    expect(where({ nodes: nodes.toReversed() }, request("a"))).toBe("node-a/0");
  });

  test("several vGPUs go on distinct devices of one node, in order of their ordinals", () => {
    const pool = placeAll({ nodes: [node("node-a", [GiB, GiB, GiB])] }, [
      request("a", { memoryPercent: 50 }),
      request("b", { memoryPercent: 20 }),
    ]);
    // Device 0, which a and b share, has the least left over; devices are listed by ordinal.
    expect(where(pool, request("c", { gpus: 2, memoryPercent: 30 }))).toBe("node-a/0,1");
    expect(where(pool, request("c", { gpus: 4, memoryPercent: 30 }))).toBeUndefined();
  });
});

describe("nodes and devices that take no claims", () => {
  test.each([
    ["a node that is not ready", node("node-a", [GiB], { isReady: false })],
    ["a cordoned node", node("node-a", [GiB], { isCordoned: true })],
    [
      "an unhealthy device",
      node("node-a", [], {
        devices: [{ uuid: "GPU-0", index: 0, memoryBytes: GiB, isHealthy: false, grants: [] }],
      }),
    ],
    ["a node without devices", node("node-a", [])],
  ])("%s", (_what, closed) => {
    expect(place({ nodes: [closed] }, request("a"))).toBeUndefined();
    expect(where({ nodes: [closed, node("node-b", [GiB])] }, request("a"))).toBe("node-b/0");
  });
});

function ofModel(name: string, model: string): NodeState {
  const one = node(name, [GiB]);
  return { ...one, devices: one.devices.map((device) => ({ ...device, model })) };
}

function withCordoned(one: NodeState, index: number): NodeState {
  const devices = one.devices.map((device) => ({ ...device, isCordoned: device.index === index }));
  return { ...one, devices };
}

describe("reasons", () => {
  const pool = placeAll(
    { nodes: [node("node-a", [80n * GiB, 80n * GiB]), node("node-b", [80n * GiB, 80n * GiB])] },
    [
      request("a"),
      request("b", { memoryBytes: 70n * GiB }),
      request("c", { memoryBytes: (80n << 30n) - (312n * GiB) / 10n - 1n, computePercent: 40 }),
    ],
  );

  test.each([
    ["an empty pool", { nodes: [] }, {}, "no node has joined the pool yet"],
    [
      "too little memory free",
      pool,
      { memoryBytes: 90n * GiB },
      "no device has 90 GiB: the largest, node-a/0, has 80 GiB",
    ],
    [
      "no more than that free",
      placeAll(pool, [request("d", { memoryBytes: 41n * GiB })]),
      { memoryBytes: 40n * GiB },
      "no device has 40 GiB free: largest free is 39 GiB on node-b/1; 4 of 4 devices are taken",
    ],
    [
      "compute taken",
      placeAll({ nodes: [node("node-a", [GiB])] }, [request("a", { memoryPercent: 10, computePercent: 90 })]),
      { memoryPercent: 50, computePercent: 20 },
      "no device has 50 % of its memory and 20 % of its compute free: of the devices with enough memory node-a/0 has the most compute free, 10 %; 1 of 1 device is taken",
    ],
    [
      "no device whole",
      placeAll({ nodes: [node("node-a", [GiB])] }, [request("a", { memoryPercent: 10 })]),
      {},
      "no device has all of its memory free: the most is 90 % on node-a/0; 1 of 1 device is taken",
    ],
    [
      "more devices than a node has, but not more than the pool has",
      { nodes: [node("node-a", [GiB, GiB]), node("node-b", [GiB])] },
      { gpus: 3 },
      "no node has 3 devices: the largest, node-a, has 2 (3 in the whole pool, but one claim cannot span nodes yet)",
    ],
    [
      "more devices than the pool has",
      { nodes: [node("node-a", [GiB, GiB]), node("node-b", [GiB])] },
      { gpus: 4 },
      "no node has 4 devices: the largest, node-a, has 2",
    ],
    [
      "large devices spread over nodes",
      { nodes: [node("node-a", [GiB, 2n * GiB]), node("node-b", [GiB, 2n * GiB])] },
      { gpus: 2, memoryBytes: 2n * GiB },
      "no node has 2 devices of 2 GiB: the most is 1 on node-a (2 in the whole pool, but one claim cannot span nodes yet)",
    ],
    [
      "free devices spread over nodes",
      placeAll({ nodes: [node("node-a", [GiB, GiB]), node("node-b", [GiB, GiB])] }, [
        request("a", { gpus: 2, memoryPercent: 60 }),
        request("b", { gpus: 2, memoryPercent: 60 }),
        request("c", { memoryPercent: 30 }),
        request("d", { memoryPercent: 30 }),
        request("e", { memoryPercent: 30 }),
      ]),
      { gpus: 2, memoryPercent: 20, computePercent: 20 },
      "no node has 2 devices with 20 % of its memory and 20 % of compute free: the most is 1 on node-b; 4 of 4 devices are taken",
    ],
    [
      "all nodes closed",
      { nodes: [node("node-a", [GiB], { isReady: false }), node("node-b", [GiB], { isCordoned: true })] },
      {},
      "no device of the pool takes claims now: 1 node not ready, 1 node cordoned",
    ],
    [
      "the only node that could is closed",
      { nodes: [node("node-a", [GiB]), node("node-b", [4n * GiB], { isReady: false })] },
      { memoryBytes: 2n * GiB },
      "no device has 2 GiB free: largest free is 1 GiB on node-a/0; 0 of 1 device are taken; not counted: 1 node not ready",
    ],
    [
      "labels that no node has",
      { nodes: [node("node-a", [GiB])] },
      { constraints: { nodeLabels: { zone: "b", pool: "x" } } },
      "no node has the labels zone=b,pool=x",
    ],
    [
      "another machine",
      { nodes: [node("node-a", [GiB])] },
      { constraints: { onlyHost: "elsewhere" } },
      "no node is on the machine of the program",
    ],
    [
      "a model that is not there",
      { nodes: [node("node-a", [GiB]), ofModel("node-b", "A100")] },
      { constraints: { models: ["H200", "B200"] } },
      "no device has the model H200 or B200; available: A100",
    ],
    [
      "a capability that is not there",
      { nodes: [node("node-a", [GiB])] },
      { constraints: { minComputeCapability: "9.0" } },
      "no device has compute capability 9.0",
    ],
    [
      "constraints that no device meets together",
      { nodes: [node("node-a", [GiB], { labels: { zone: "a" } }), ofModel("node-b", "A100")] },
      { constraints: { models: ["A100"], nodeLabels: { zone: "a" } } },
      "no device meets all of its constraints together",
    ],
    [
      "too little of what it may use, more elsewhere",
      { nodes: [node("node-a", [4n * GiB]), ofModel("node-b", "A100")] },
      { memoryBytes: 2n * GiB, constraints: { models: ["A100"] } },
      "no device that it may use has 2 GiB: the largest, node-b/0, has 1 GiB",
    ],
    [
      "what it may use is taken, more is free elsewhere",
      placeAll({ nodes: [node("node-a", [4n * GiB]), ofModel("node-b", "A100")] }, [
        request("a", { memoryPercent: 50, constraints: { models: ["A100"] } }),
      ]),
      { memoryBytes: GiB, constraints: { models: ["A100"] } },
      "no device has 1 GiB free: largest free is 512 MiB on node-b/0; 1 of 1 device is taken; not counted: 1 device that it may not use",
    ],
    [
      "others are where there would be room",
      placeAll({ nodes: [node("node-a", [4n * GiB]), node("node-b", [GiB])] }, [
        request("a", { memoryBytes: 2n * GiB, computePercent: 10, labels: { app: "noisy" } }),
      ]),
      { memoryBytes: 2n * GiB, computePercent: 10, constraints: { antiAffinity: { app: "noisy" } } },
      "no device has 2 GiB free: largest free is 1 GiB on node-b/0; 0 of 1 device are taken; not counted: 1 node that its affinity excludes",
    ],
    [
      "others are everywhere",
      placeAll({ nodes: [node("node-a", [GiB])] }, [
        request("a", { memoryPercent: 10, labels: { app: "noisy" } }),
      ]),
      { memoryPercent: 10, constraints: { antiAffinity: { app: "noisy" } } },
      "its affinity excludes 1 node that would otherwise do",
    ],
    [
      "the device that would do is cordoned",
      { nodes: [withCordoned(node("node-a", [GiB, 4n * GiB]), 1)] },
      { memoryBytes: 2n * GiB },
      "no device has 2 GiB free: largest free is 1 GiB on node-a/0; 0 of 1 device are taken; not counted: 1 device cordoned",
    ],
    [
      "nodes without devices",
      { nodes: [node("node-a", [])] },
      {},
      "no node has 1 device: the largest, node-a, has 0",
    ],
  ])("%s", (_what, snapshot: Snapshot, ask, reason) => {
    expect(place(snapshot, request("x", ask))).toBeUndefined();
    expect(inWords(explainWaiting(snapshot, request("x", ask)))).toBe(reason);
  });

  test("what a closed or busy node could hold is not impossible", () => {
    const busy = placeAll({ nodes: [node("node-a", [GiB])] }, [request("a")]);
    expect(explainImpossible(busy, request("b"))).toBeUndefined();
    expect(
      explainImpossible({ nodes: [node("n", [GiB], { isReady: false })] }, request("b")),
    ).toBeUndefined();
    expect(explainImpossible({ nodes: [] }, request("b"))).toBeUndefined();
    expect(explainImpossible(busy, request("b", { memoryBytes: 2n * GiB }))).toBeDefined();
  });
});
