// SPDX-License-Identifier: Apache-2.0

import type { V1Node, V1NodeSystemInfo } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { cordonReason, cordonsToChange, findHost, hostLabelOf, type PoolNode } from "./cluster-nodes.ts";

function clusterNode(name: string, bootID: string, unschedulable?: boolean): V1Node {
  return {
    metadata: { name, labels: { "kubernetes.io/hostname": `host-of-${name}` } },
    spec: unschedulable === undefined ? {} : { unschedulable },
    status: { nodeInfo: { bootID } as V1NodeSystemInfo },
  };
}

function poolNode(name: string, bootId: string, more: Partial<PoolNode> = {}): PoolNode {
  return { name, bootId, cordoned: false, cordonReason: "", ...more };
}

test("a node of the pool is found by its machine, and among several on one machine by its name", () => {
  const nodes = [
    clusterNode("a.example.org", "boot-1"),
    clusterNode("b", "boot-2"),
    clusterNode("c", "boot-2"),
  ];
  const hostOf = (name: string, bootId: string) => findHost({ name, bootId }, nodes)?.metadata?.name;
  expect(hostOf("a", "boot-1")).toBe("a.example.org");
  expect(hostOf("b", "boot-2")).toBe("b");
  expect(hostOf("c", "boot-2")).toBe("c");
  expect(hostOf("d", "boot-2")).toBe("c");
  // A node with the same name on another machine is a different machine.
  expect(hostOf("b", "boot-3")).toBeUndefined();
  expect(hostOf("b", "")).toBeUndefined();
  expect(findHost({ name: "x", bootId: "" }, [clusterNode("x", "")])).toBeUndefined();
  expect(nodes.map(hostLabelOf)).toEqual(["host-of-a.example.org", "host-of-b", "host-of-c"]);
});

test("cordons of the cluster become cordons of the pool, and end with them", () => {
  const both = [clusterNode("a", "boot-1", true), clusterNode("b", "boot-2")];
  expect(
    cordonsToChange([poolNode("a", "boot-1"), poolNode("b", "boot-2"), poolNode("c", "boot-3")], both),
  ).toEqual([{ name: "a", cordoned: true, reason: cordonReason("a") }]);
  const followed = poolNode("a", "boot-1", { cordoned: true, cordonReason: cordonReason("a") });
  expect(cordonsToChange([followed], both)).toEqual([]);
  expect(cordonsToChange([followed], [clusterNode("a", "boot-1", false)])).toEqual([
    { name: "a", cordoned: false, reason: "" },
  ]);
  const byHand = poolNode("a", "boot-1", { cordoned: true, cordonReason: "fan" });
  expect(cordonsToChange([byHand], [clusterNode("a", "boot-1")])).toEqual([]);
  expect(cordonsToChange([byHand], both)).toEqual([]);
});
