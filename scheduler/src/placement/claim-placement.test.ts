// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { place } from "../place.ts";
import type { ClaimRequest } from "../request.ts";
import type { DeviceState, NodeState, Snapshot } from "../snapshot.ts";
import { applyStatement } from "../statement.ts";
import { learnWorkload, usualWorkload } from "./claim-workload.ts";

const GiB = 1n << 30n;

function request(claim: string, ask: Partial<ClaimRequest> = {}): ClaimRequest {
  return { claim, gpus: 1, memoryBytes: 0n, memoryPercent: 0, computePercent: 0, ...ask };
}

function node(
  name: string,
  count: number,
  change: (index: number) => Partial<DeviceState> = () => ({}),
): NodeState {
  const devices = Array.from(
    { length: count },
    (_, index): DeviceState => ({
      uuid: `GPU-${index}`,
      index,
      memoryBytes: 80n * GiB,
      isHealthy: true,
      grants: [],
      ...change(index),
    }),
  );
  return { name, isReady: true, isCordoned: false, devices };
}

function placeAll(
  snapshot: Snapshot,
  requests: readonly ClaimRequest[],
): { snapshot: Snapshot; where: string[] } {
  const where: string[] = [];
  let current = snapshot;
  for (const each of requests) {
    const statement = place(current, each);
    if (statement === undefined) {
      throw new Error(`${each.claim} found no place`);
    }
    where.push(`${statement.node}/${statement.devices.map(({ index }) => index).join(",")}`);
    current = applyStatement(current, statement);
  }
  return { snapshot: current, where };
}

const twoNodes: Snapshot = { nodes: [node("node-a", 4), node("node-b", 4)] };

test("shares gather on one device, so that whole devices and nodes stay free", () => {
  const shares = ["a", "b", "c", "d"].map((name) => request(name, { memoryPercent: 25 }));
  expect(placeAll(twoNodes, shares).where).toEqual(Array.from({ length: 4 }, () => "node-a/0"));
});

test("a whole device is taken from the node that is broken into already", () => {
  const { where } = placeAll(twoNodes, [
    request("share", { memoryPercent: 50 }),
    request("whole"),
    request("four", { gpus: 4 }),
  ]);
  expect(where).toEqual(["node-a/0", "node-a/1", "node-b/0,1,2,3"]);
});

test("spread takes the emptiest node and device, binpack the fullest with room", () => {
  const spread = (name: string) => request(name, { memoryPercent: 25, policy: "spread" });
  expect(placeAll(twoNodes, ["a", "b", "c"].map(spread)).where).toEqual(["node-a/0", "node-b/0", "node-a/1"]);
  const binpack = (name: string, gpus: number) => request(name, { gpus, policy: "binpack" });
  const { where } = placeAll(twoNodes, [binpack("a", 2), binpack("b", 1), binpack("c", 4), binpack("d", 1)]);
  expect(where).toEqual(["node-a/0,1", "node-a/2", "node-b/0,1,2,3", "node-a/3"]);
});

test("what has filled the pool so far decides what is kept together", () => {
  // Shares of 0.7 leave gaps of 0.3. If shares of 0.3 are common, these gaps are the best place for them.
  const common = placeAll({ nodes: [node("node-x", 60)] }, [
    ...Array.from({ length: 30 }, (_, index) => request(`large-${index}`, { memoryPercent: 70 })),
    ...Array.from({ length: 20 }, (_, index) => request(`small-${index}`, { memoryPercent: 30 })),
  ]);
  const learnt = learnWorkload(common.snapshot);
  expect(learnt.all[0]?.shape.gpuMilli).toBe(700);
  expect(usualWorkload.all[0]?.shape.gpuMilli).toBe(1000);
  const gap = { claim: "other", memoryBytes: 56n * GiB, computePercent: 70 };
  const pool: Snapshot = { nodes: [node("node-a", 2, (index) => ({ grants: index === 1 ? [gap] : [] }))] };
  expect(place({ ...pool, workload: learnt }, request("x", { memoryPercent: 30 }))?.devices[0]?.index).toBe(
    1,
  );
});

test("several devices are taken where they reach each other fastest", () => {
  const topologyOf = (index: number) => ({
    topology: { nvlinkDomain: `bridge-${[0, 1, 1, 0][index]}`, numaNode: index < 2 ? "0" : "1" },
  });
  const pool: Snapshot = { nodes: [node("node-a", 4, topologyOf)] };
  expect(placeAll(pool, [request("a", { gpus: 2 }), request("b", { gpus: 2 })]).where).toEqual([
    "node-a/0,3",
    "node-a/1,2",
  ]);
  const sockets = { nodes: [node("node-a", 4, (index) => ({ topology: { numaNode: `${index % 2}` } }))] };
  expect(placeAll(sockets, [request("a", { gpus: 2 })]).where).toEqual(["node-a/0,2"]);
});

test("a node where the devices are close is preferred to one where they are not", () => {
  const far = node("node-a", 2, (index) => ({ topology: { numaNode: `${index}` } }));
  const near = node("node-b", 2, () => ({ topology: { numaNode: "0", pcieSwitch: "s" } }));
  expect(placeAll({ nodes: [far, near] }, [request("a", { gpus: 2 })]).where).toEqual(["node-b/0,1"]);
});

test("a claim that asks for bytes leaves large devices alone, one that asks for a share need not", () => {
  const mixed: Snapshot = {
    nodes: [node("node-a", 1), node("node-b", 1, () => ({ memoryBytes: 24n * GiB }))],
  };
  expect(placeAll(mixed, [request("a", { memoryBytes: 8n * GiB })]).where).toEqual(["node-b/0"]);
  expect(placeAll(mixed, [request("a", { memoryBytes: 30n * GiB })]).where).toEqual(["node-a/0"]);
});
