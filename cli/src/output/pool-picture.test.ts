// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { ClaimSchema, ClaimState, DeviceHealth, NodeSchema, NodeState } from "@millpond/api";
import { planConsolidation } from "@millpond/scheduler";
import { expect, test } from "vitest";
import { planText } from "../commands/plans/defrag.ts";
import { PoolFixture } from "../../test/fixture.ts";
import { boundRequests, type PoolPicture, toExport, toSnapshot } from "./pool-picture.ts";

const GiB = 1n << 30n;

/** Two devices; a claim of half a device on each; on the first also the remainder of a third claim that was released. */
function picture(leftover = 0n): PoolPicture {
  const device = (index: number, allocated: bigint) => ({
    uuid: `GPU-${index}`,
    index,
    name: "Test GPU",
    memoryBytes: 16n * GiB,
    health: DeviceHealth.HEALTHY,
    allocatedMemoryBytes: allocated,
    allocatedComputePercent: Number((allocated * 100n) / (16n * GiB)),
  });
  const claim = (name: string, index: number, state: ClaimState) =>
    create(ClaimSchema, {
      name,
      gpus: 1,
      memoryPercent: 50,
      computePercent: 50,
      state,
      allocation: {
        claim: name,
        node: "node-a",
        devices: [{ uuid: `GPU-${index}`, memoryBytes: 8n * GiB, computePercent: 50 }],
      },
    });
  return {
    nodes: [
      create(NodeSchema, {
        name: "node-a",
        state: NodeState.READY,
        devices: [device(0, 8n * GiB + leftover), device(1, 8n * GiB)],
      }),
    ],
    claims: [claim("a", 0, ClaimState.BOUND), claim("b", 1, ClaimState.BOUND)],
  };
}

test("what the controller shows is enough to plan moves", () => {
  const pool = picture();
  const options = { goal: "device", maxMoves: 8 } as const;
  const steps = planConsolidation(toSnapshot(pool), boundRequests(pool), options);
  const [step] = steps;
  expect(planText("device", steps)).toMatch(
    /^FREES +CLAIM +FROM +TO\nnode-a\/0 +a +node-a\/0 +node-a\/1\n1 move frees 1 device; nothing has been moved\n$/,
  );
  expect(step).toMatchObject({ node: "node-a", devices: [0], moves: [{ to: { claim: "a" } }] });
  expect(planConsolidation(toSnapshot(pool), new Map(), options)).toEqual([]);
});

test("a plan for whole nodes says which node it frees", () => {
  const { nodes, claims } = picture();
  const [second] = picture().nodes;
  if (second === undefined) throw new Error("the picture has no node");
  second.name = "node-b";
  Object.assign(second.devices[1] ?? {}, { allocatedMemoryBytes: 0n, allocatedComputePercent: 0 });
  for (const device of second.devices) device.uuid = `other-${device.uuid}`;
  const [claim] = picture().claims;
  if (claim?.allocation?.devices[0] === undefined) throw new Error("the picture has no claim");
  claim.name = "c";
  claim.allocation.node = "node-b";
  claim.allocation.devices[0].uuid = "other-GPU-0";
  const pool = { nodes: [...nodes, second], claims: [...claims, claim] };
  const steps = planConsolidation(toSnapshot(pool), boundRequests(pool), { goal: "node", maxMoves: 8 });
  expect(planText("node", steps)).toMatch(
    /^FREES +CLAIM +FROM +TO\nnode-b +c +node-b\/0 +node-a\/[01]\n1 move frees 1 node; nothing has been moved\n$/,
  );
});

test("a gang that is to lie on one node is not torn apart", () => {
  const { nodes, claims } = picture();
  const [second] = picture().nodes;
  const nothing = { allocatedMemoryBytes: 0n, allocatedComputePercent: 0 };
  Object.assign(nodes[0]?.devices[1] ?? {}, nothing);
  Object.assign(second?.devices[0] ?? {}, nothing);
  Object.assign(second ?? {}, { name: "node-b" });
  Object.assign(claims[1]?.allocation ?? {}, { node: "node-b" });
  const options = { goal: "device", maxMoves: 8 } as const;
  const apart = { nodes: [...nodes, ...(second === undefined ? [] : [second])], claims };
  expect(planConsolidation(toSnapshot(apart), boundRequests(apart), options)).toHaveLength(1);
  for (const claim of claims) {
    Object.assign(claim, { gang: "g", sameNode: true });
  }
  expect(planConsolidation(toSnapshot(apart), boundRequests(apart), options)).toEqual([]);
});

test("where devices sit is known where their agent says it", () => {
  const pool = picture();
  const [first, second] = pool.nodes[0]?.devices ?? [];
  Object.assign(first ?? {}, { numaNode: "1", pcieSwitch: "0000:17:00.0" });
  const [node] = toSnapshot(pool).nodes;
  expect(node?.devices[0]?.topology).toEqual({ numaNode: "1", pcieSwitch: "0000:17:00.0" });
  expect(second?.numaNode).toBe("");
  expect(node?.devices[1]).not.toHaveProperty("topology");
});

test("what is given back and still in use stands in the way", () => {
  const pool = picture(4n * GiB);
  const [first] = toSnapshot(pool).nodes[0]?.devices ?? [];
  expect(first?.grants.map(({ claim, memoryBytes }) => [claim, memoryBytes])).toEqual([
    ["a", 8n * GiB],
    ["(released)", 4n * GiB],
  ]);
  const options = { goal: "device", maxMoves: 8 } as const;
  // Device 1 can no longer be combined with device 0, and device 0 cannot be emptied.
  expect(planConsolidation(toSnapshot(pool), boundRequests(pool), options)).toEqual([]);
});

test("an export names nodes and claims in the units of the file", () => {
  expect(toExport(picture(), new Date(0))).toEqual({
    format: "millpond-pool",
    version: 1,
    takenAt: "1970-01-01T00:00:00.000Z",
    nodes: [
      {
        name: "node-a",
        devices: [
          { model: "Test GPU", memoryMiB: 16_384 },
          { model: "Test GPU", memoryMiB: 16_384 },
        ],
      },
    ],
    claims: ["a", "b"].map((name) => ({
      name,
      gpus: 1,
      memoryMiB: 0,
      memoryPercent: 50,
      computePercent: 50,
    })),
  });
});

test("a live pool is exported and replayed, and asked what to move", async () => {
  await using pool = await PoolFixture.start();
  const { claims } = pool.connection;
  await claims.createClaim({ claim: { name: "half", memoryPercent: 50, leaseSeconds: 600 } });
  await claims.createClaim({ claim: { name: "whole", leaseSeconds: 600 } });

  const file = join(pool.home.directory, "monday.pool.json");
  expect(await pool.home.millpond(["snapshot", "--file", file])).toMatchObject({ code: 0, stdout: "" });
  expect(JSON.parse(readFileSync(file, "utf8"))).toMatchObject({
    claims: [
      { name: "half", memoryPercent: 50 },
      { name: "whole", memoryMiB: 0 },
    ],
  });
  const replayed = await pool.home.millpond(["simulate", "--data", pool.home.directory, "--trace", "monday"]);
  expect(replayed).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("monday   least-fragmentation"),
  });

  expect((await pool.home.millpond(["defrag", "--dry-run"])).stdout).toContain("nothing to gain");
  const plan = await pool.home.millpond(["defrag", "--dry-run", "--goal", "node", "-o", "json"]);
  expect(JSON.parse(plan.stdout)).toEqual({
    apiVersion: "millpond.v1",
    kind: "DefragPlan",
    goal: "node",
    steps: [],
  });
  expect(await pool.home.millpond(["defrag"])).toMatchObject({
    code: 118,
    stderr: expect.stringContaining("cannot be moved yet"),
  });
});
