// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import type { Constraints } from "./constraints.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import type { NodeState, Snapshot } from "./snapshot.ts";
import { applyStatement } from "./statement.ts";

const GiB = 1n << 30n;

function node(
  name: string,
  parts: Partial<NodeState> & { readonly model?: string; readonly capability?: string },
) {
  const { model = "NVIDIA H200", capability = "9.0", ...rest } = parts;
  return {
    name,
    isReady: true,
    isCordoned: false,
    devices: [0, 1].map((index) => ({
      uuid: `GPU-${index}`,
      index,
      memoryBytes: 8n * GiB,
      isHealthy: true,
      model,
      computeCapability: capability,
      grants: [],
    })),
    ...rest,
  };
}

const pool: Snapshot = {
  nodes: [
    node("node-a", { labels: { zone: "1" }, bootId: "boot-a" }),
    node("node-b", {
      labels: { zone: "2" },
      bootId: "boot-b",
      model: "NVIDIA A100-SXM4-80GB",
      capability: "8.0",
    }),
    node("node-c", { labels: { zone: "2", disk: "ssd" }, bootId: "boot-c", capability: "10.0" }),
  ],
};

function request(constraints: Constraints, more: Partial<ClaimRequest> = {}): ClaimRequest {
  return { claim: "x", gpus: 1, memoryBytes: GiB, memoryPercent: 0, computePercent: 0, constraints, ...more };
}

test.each<[string, Constraints, string | undefined]>([
  ["a model, by a part of its name", { models: ["a100"] }, "node-b"],
  ["one of several models", { models: ["B300", "a100"] }, "node-b"],
  ["a model that nobody has", { models: ["B300"] }, undefined],
  ["a capability, compared as numbers", { minComputeCapability: "9.1" }, "node-c"],
  ["labels of the node", { nodeLabels: { zone: "2", disk: "ssd" } }, "node-c"],
  ["a label with another value", { nodeLabels: { zone: "3" } }, undefined],
  ["nodes by name", { onlyNodes: ["node-b", "node-c"], notNodes: ["node-b"] }, "node-c"],
  ["a device by its UUID, of a node", { onlyDevices: ["GPU-1"], onlyNodes: ["node-c"] }, "node-c"],
  ["a device that nobody has", { onlyDevices: ["GPU-7"] }, undefined],
  ["the machine of the program", { onlyHost: "boot-b" }, "node-b"],
])("%s", (_what, constraints, where) => {
  expect(place(pool, request(constraints))?.node).toBe(where);
});

test("a claim for certain devices gets those and no others", () => {
  const onlyDevices = ["GPU-1"];
  expect(place(pool, request({ onlyDevices }))?.devices.map(({ uuid }) => uuid)).toEqual(["GPU-1"]);
  expect(place(pool, request({ onlyDevices }, { gpus: 2 }))).toBeUndefined();
});

test("a cordoned device takes nothing new", () => {
  const devices =
    pool.nodes[0]?.devices.map((device) => ({ ...device, isCordoned: device.index === 0 })) ?? [];
  const snapshot = { nodes: [node("node-a", { devices })] };
  expect(place(snapshot, request({}))?.devices.map(({ index }) => index)).toEqual([1]);
  expect(place(snapshot, request({}, { gpus: 2 }))).toBeUndefined();
});

test("who wants a device for itself gets one that nobody is on", () => {
  const first = place(pool, request({ onlyNodes: ["node-a"] }, { claim: "first" }));
  if (first === undefined) {
    throw new Error("nothing was placed");
  }
  const snapshot = applyStatement(pool, first);
  const wanted = request({ onlyNodes: ["node-a"], isExclusive: true });
  expect(place(snapshot, wanted)?.devices.map(({ index }) => index)).toEqual([1]);
  expect(place(snapshot, { ...wanted, gpus: 2 })).toBeUndefined();
});

test("claims go where their kind is, or where it is not; the first of a kind goes anywhere", () => {
  const web = { labels: { app: "web" } };
  const first = place(
    pool,
    request({ affinity: { app: "web" }, onlyNodes: ["node-b"] }, { claim: "first", ...web }),
  );
  if (first === undefined) {
    throw new Error("the first of its kind was not placed");
  }
  const snapshot = applyStatement(pool, first);
  expect(place(snapshot, request({ affinity: { app: "web" } }, web))?.node).toBe("node-b");
  expect(place(snapshot, request({ affinity: { app: "web" }, notNodes: ["node-b"] }))).toBeUndefined();
  expect(place(snapshot, request({ antiAffinity: { app: "web" } }))?.node).not.toBe("node-b");
  expect(place(snapshot, request({ antiAffinity: { app: "web" }, onlyNodes: ["node-b"] }))).toBeUndefined();
  expect(place(snapshot, request({ antiAffinity: { app: "db" }, onlyNodes: ["node-b"] }))?.node).toBe(
    "node-b",
  );
});
