// SPDX-License-Identifier: Apache-2.0

import type { V1Pod } from "@kubernetes/client-node";
import fc from "fast-check";
import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { filterNodes, preemptOnNodes, prioritizeNodes } from "./scheduler-extender.ts";

const names = makeResourceNames();

interface Answer {
  readonly NodeNames?: string[];
  readonly Nodes?: { readonly items: unknown[] };
  readonly FailedNodes: Record<string, string>;
  readonly FailedAndUnresolvableNodes: Record<string, string>;
}

function makePod(annotations: Record<string, string>, message?: string): V1Pod {
  const conditions = [{ type: "millpond.dev/Bound", status: "False", message: message ?? "" }];
  return { metadata: { annotations }, status: message === undefined ? {} : { conditions } };
}

const prepared = { "millpond.dev/request": "[]", "millpond.dev/id": "0123456789abcdef" };
const granted = { ...prepared, "millpond.dev/gpu-node": "gpu-a" };
const nodes = ["worker-1", "worker-2"];
const filter = (Pod: V1Pod): Answer => filterNodes(names, { Pod, NodeNames: nodes }) as Answer;

test("a pod that waits for the pool fits no node, for the pool's reason", () => {
  const answer = filter(makePod(prepared, "waits in queue default: all 3 GPUs are taken"));
  expect(answer.NodeNames).toEqual([]);
  expect(answer.FailedNodes["worker-2"]).toBe("waits in queue default: all 3 GPUs are taken");
  expect(answer.FailedAndUnresolvableNodes).toEqual(answer.FailedNodes);
  expect(filter(makePod(prepared)).FailedNodes["worker-1"]).toMatch(/not granted/);
  expect(filter(makePod({})).FailedNodes["worker-1"]).toMatch(/webhook has not prepared/);
});

test("a pod that has its vGPUs fits every node, and that of its GPUs best", () => {
  const pod = makePod({ ...granted, "millpond.dev/host": "worker-2" });
  expect(filter(pod)).toMatchObject({ NodeNames: nodes, FailedNodes: {} });
  const scores = prioritizeNodes(names, { Pod: pod, NodeNames: nodes });
  expect(scores).toEqual([
    { Host: "worker-1", Score: 0 },
    { Host: "worker-2", Score: 10 },
  ]);
  const anywhere = makePod({ ...pod.metadata?.annotations, "millpond.dev/locality": "any" });
  expect(JSON.stringify(prioritizeNodes(names, { Pod: anywhere, NodeNames: nodes }))).not.toContain("10");
});

test("a pod that must be beside its GPUs fits their node and no other", () => {
  const annotations = { ...granted, "millpond.dev/host": "worker-2", "millpond.dev/locality": "local-only" };
  const answer = filter(makePod(annotations));
  expect(answer.NodeNames).toEqual(["worker-2"]);
  expect(Object.keys(answer.FailedNodes)).toEqual(["worker-1"]);
});

test("schedulers that send whole nodes get them back", () => {
  const items = nodes.map((name) => ({ metadata: { name }, status: { capacity: { cpu: "4" } } }));
  const answer = filterNodes(names, { Pod: makePod(granted), Nodes: { items }, NodeNames: null }) as Answer;
  expect(answer.Nodes?.items).toEqual(items);
  expect(answer.NodeNames).toBeUndefined();
});

test("no pod is evicted for one that waits for the pool", () => {
  const victims = { "worker-1": { Pods: [{ UID: "u-1" }], NumPDBViolations: 1 } };
  const full = { "worker-1": { Pods: [{ metadata: { uid: "u-1" } }], NumPDBViolations: 1 } };
  const waits = makePod(prepared);
  expect(preemptOnNodes(names, { Pod: waits, NodeNameToMetaVictims: victims })).toEqual({
    NodeNameToMetaVictims: {},
  });
  const has = makePod(granted);
  const answer = { NodeNameToMetaVictims: victims };
  expect(preemptOnNodes(names, { Pod: has, NodeNameToMetaVictims: victims })).toEqual(answer);
  expect(preemptOnNodes(names, { Pod: has, NodeNameToVictims: full })).toEqual(answer);
});

test("anything else is refused, and every question has an answer of every node", () => {
  for (const body of [null, 1, [], {}, { Pod: {} }, { Pod: {}, Nodes: {} }, { NodeNames: [] }]) {
    expect(() => filterNodes(names, body), JSON.stringify(body)).toThrow(/not a request of a scheduler/);
  }
  const annotations = fc.subarray(Object.entries({ ...granted, "millpond.dev/host": "b" }));
  const property = fc.property(fc.uniqueArray(fc.string({ maxLength: 5 })), annotations, (asked, given) => {
    const pod = makePod(Object.fromEntries(given));
    const { NodeNames = [], FailedNodes } = filterNodes(names, { Pod: pod, NodeNames: asked }) as Answer;
    expect([...NodeNames, ...Object.keys(FailedNodes)].sort()).toEqual([...asked].sort());
    const has = new Set(given.map(([key]) => key));
    const isGranted = has.has("millpond.dev/request") && has.has("millpond.dev/gpu-node");
    expect(NodeNames.length).toBe(isGranted ? asked.length : 0);
  });
  fc.assert(property);
});
