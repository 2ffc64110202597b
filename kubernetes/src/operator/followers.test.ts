// SPDX-License-Identifier: Apache-2.0

import type { V1Pod } from "@kubernetes/client-node";
import { describe, expect, onTestFinished, test } from "vitest";
import { asMergePatch } from "../cluster/cluster.ts";
import { keysOf, makeResourceNames } from "../request/resource-names.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { install } from "../testing/manifests.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";
import { TestCluster } from "../testing/test-cluster.ts";
import { testLog } from "../testing/test-pool.ts";
import { followerOf, formatOriginal, nextName } from "../webhook/original-pod.ts";
import { Followers } from "./followers.ts";
import { PodWriter } from "./pod-writer.ts";

const GiB = 1n << 30n;
const namespace = "default";
const patience = { timeout: 120_000 };
const whole = { "millpond.dev/vgpu": "1" };
const annotations = {
  "millpond.dev/requeue": "true",
  "millpond.dev/preemptible": "true",
  "millpond.dev/grace": "2s",
  "example.org/kept": "yes",
};
const names = makeResourceNames();

async function start(folders = ["base", "requeue"]): Promise<PlayedCluster> {
  const cluster = await PlayedCluster.start({ "gpu-a": [16n * GiB] }, folders);
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  await cluster.startOperator();
  return cluster;
}

/** As a kubelet that has started the pod. */
function run(cluster: PlayedCluster, name: string): void {
  cluster.server.bind(namespace, name, "worker-1");
  const containerStatuses = [{ name: "main", state: { running: {} } }];
  cluster.server.setPodStatus(namespace, name, { phase: "Running", containerStatuses });
}

/** As a kubelet that has ended a pod that is being deleted. */
async function end(cluster: PlayedCluster, name: string): Promise<void> {
  const asked = async () => (await cluster.pod(name))?.metadata?.deletionTimestamp;
  await expect.poll(asked, patience).toBeDefined();
  await cluster.core.deleteNamespacedPod({ namespace, name, body: { gracePeriodSeconds: 0 } });
}

test("a preempted pod that asks for it is followed by another, which waits and runs again", async () => {
  const cluster = await start();
  await cluster.createPod("train", whole, { metadata: { annotations, labels: { app: "x" } } });
  await expect.poll(() => cluster.bound("train"), patience).toBe("True Bound");
  run(cluster, "train");
  // Another pod has the name that the replacement would have.
  await cluster.createPod("train-r1", {});
  await cluster.createPod("urgent", whole, { spec: { priority: 500 } });
  await expect.poll(() => cluster.bound("train-r2"), patience).toBe("False Waiting");
  await end(cluster, "train");
  await expect.poll(() => cluster.bound("urgent"), patience).toBe("True Bound");
  const follower = await cluster.pod("train-r2");
  expect(follower?.metadata?.labels).toEqual({ app: "x", "millpond.dev/managed": "true" });
  expect(follower?.metadata?.annotations).toMatchObject(annotations);
  expect(follower?.spec?.schedulingGates).toEqual([{ name: "millpond.dev/queue" }]);
  expect((await cluster.pod("train-r3"))?.metadata?.name).toBeUndefined();
  // The replacement is itself replaced.
  await cluster.core.deleteNamespacedPod({ namespace, name: "urgent" });
  await expect.poll(() => cluster.bound("train-r2"), patience).toBe("True Bound");
  run(cluster, "train-r2");
  await cluster.createPod("urgent", whole, { spec: { priority: 500 } });
  await expect.poll(() => cluster.bound("train-r3"), patience).toBe("False Waiting");
  await end(cluster, "train-r2");
  // A pod that its user deletes is not replaced.
  for (const name of ["train-r3", "urgent"]) await cluster.core.deleteNamespacedPod({ namespace, name });
  await expect.poll(() => cluster.claims(), patience).toEqual([]);
  const { items } = await cluster.core.listNamespacedPod({ namespace });
  expect(items.map(({ metadata }) => metadata?.name)).toEqual(["train-r1"]);
});

test("a follower that its user deletes is not made again while the pod before it still ends", async () => {
  const cluster = await start();
  await cluster.createPod("train", whole, { metadata: { annotations } });
  await expect.poll(() => cluster.bound("train"), patience).toBe("True Bound");
  const account = await cluster.connectAs("millpond-operator");
  const writer = new PodWriter(account, keysOf(names), testLog);
  const followers = new Followers({ cluster: account, names, writer });
  const before = await cluster.pod("train");
  if (before === undefined) throw new Error("there is no pod train");
  expect(await followers.make(before)).toBe("train-r1");
  await cluster.core.deleteNamespacedPod({ namespace, name: "train-r1", body: { gracePeriodSeconds: 0 } });
  // As a reconciliation whose copy of the pod is older than the pod's end.
  expect(await followers.make(before)).toBe("train-r1");
  expect(await cluster.pod("train-r1")).toBeUndefined();
});

test("a pod that its kubelet refuses is followed, and one whose program fails is not", async () => {
  const cluster = await start();
  for (const name of ["refused", "failed", "late"]) {
    await cluster.createPod(name, { ...whole, "millpond.dev/memory": "1Gi" }, { metadata: { annotations } });
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
  }
  run(cluster, "failed");
  cluster.server.bind(namespace, "refused", "worker-1");
  cluster.server.setPodStatus(namespace, "refused", { phase: "Failed", reason: "UnexpectedAdmissionError" });
  const containerStatuses = [{ name: "main", state: { terminated: { exitCode: 1 } } }];
  cluster.server.setPodStatus(namespace, "failed", { phase: "Failed", containerStatuses });
  // At its deadline its container waits to be started again.
  const crashed = {
    name: "main",
    state: { waiting: { reason: "CrashLoopBackOff" } },
    lastState: { terminated: { exitCode: 1 } },
  };
  cluster.server.bind(namespace, "late", "worker-1");
  cluster.server.setPodStatus(namespace, "late", {
    phase: "Failed",
    reason: "DeadlineExceeded",
    containerStatuses: [crashed],
  });
  await expect.poll(() => cluster.bound("refused-r1"), patience).toBe("True Bound");
  await expect.poll(() => cluster.pod("refused"), patience).toBeUndefined();
  await expect.poll(async () => (await cluster.claims()).length, patience).toBe(1);
  for (const name of ["failed", "late"]) {
    expect((await cluster.pod(name))?.status?.phase).toBe("Failed");
    expect(await cluster.pod(`${name}-r1`)).toBeUndefined();
  }
});

test("nobody but the operator says what follows, and without the right to make pods nothing is promised", async () => {
  const cluster = await start();
  const refusal = async (of: PlayedCluster, more: Record<string, string>) =>
    String(
      await of
        .createPod("wrong", whole, { metadata: { annotations: more } })
        .catch((error: unknown) => error),
    );
  const original = JSON.stringify({
    labels: {},
    annotations: {},
    spec: { containers: [], hostNetwork: true },
  });
  for (const key of ["original", "follows"])
    expect(await refusal(cluster, { [`millpond.dev/${key}`]: original })).toMatch(/is unknown/);
  expect(await refusal(cluster, { "millpond.dev/requeue": "yes" })).toMatch(/neither true nor false/);
  expect(await refusal(cluster, { "millpond.dev/requeue": "true", large: "x".repeat(120_000) })).toMatch(
    /bytes/,
  );
  await cluster.createPod("right", whole, { metadata: { annotations } });
  const patch = { metadata: { annotations: { "millpond.dev/original": original } } };
  const change = cluster.core.patchNamespacedPod({ namespace, name: "right", body: patch }, asMergePatch);
  await expect(change).rejects.toThrow(/Millpond's/);

  const other = await start(["base"]);
  expect(await refusal(other, annotations)).toMatch(/deploy\/requeue/);
  // The controller of such a pod creates the replacement itself.
  const owner = { apiVersion: "batch/v1", kind: "Job", name: "j", uid: "u", controller: true };
  await other.createPod("of-job", whole, { metadata: { annotations, ownerReferences: [owner] } });
  expect((await other.pod("of-job"))?.metadata?.annotations).not.toHaveProperty("millpond.dev/original");
});

test("a follower is what its author wrote, without what the API server computes", () => {
  const pod: V1Pod = {
    metadata: { name: "a", namespace, uid: "u-1", annotations: { x: "y" }, labels: { l: "m" } },
    spec: { priority: 7, preemptionPolicy: "Never", priorityClassName: "c", nodeName: "n", containers: [] },
  };
  const text = formatOriginal(names, pod);
  const prepared: V1Pod = {
    ...pod,
    metadata: { ...pod.metadata, annotations: { "millpond.dev/original": text, "millpond.dev/id": "1" } },
  };
  expect(followerOf(names, prepared, "a-r1")).toEqual({
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: "a-r1",
      namespace,
      labels: { l: "m" },
      annotations: { x: "y", "millpond.dev/follows": "u-1" },
    },
    spec: { priorityClassName: "c", containers: [] },
  });
  expect(followerOf(names, pod, "a-r1")).toBeUndefined();
  expect([nextName("a"), nextName("a-r1"), nextName("a-r9"), nextName("r1")]).toEqual([
    "a-r1",
    "a-r2",
    "a-r10",
    "r1-r1",
  ]);
  expect(nextName(`${"a".repeat(250)}-bc`)).toBe(`${"a".repeat(250)}-r1`);
});

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test("a preempted pod is followed by another of the same spec", async () => {
    await using cluster = await TestCluster.start({ "gpu-a": [16n * GiB] });
    const annotationsHere = { ...annotations };
    await cluster.startOperator();
    await cluster.addNode("worker-1");
    await expect(cluster.createPod("train", whole, { annotations: annotationsHere })).rejects.toThrow(
      /deploy\/requeue/,
    );
    await install(cluster.plane.cluster, "requeue");
    await cluster.until("it is taken", async () => {
      await cluster.createPod("train", whole, { annotations: annotationsHere });
      return true;
    });
    const runs = async (name: string) => (await cluster.pod(name))?.spec?.nodeName === "worker-1";
    await cluster.until("it is placed", () => runs("train"));
    await cluster.playKubelet("train", "Running");
    await cluster.createPod("high", whole, { spec: { priorityClassName: "system-cluster-critical" } });
    await cluster.until("another waits in its place", async () => {
      const { spec } = (await cluster.pod("train-r1")) ?? {};
      return spec?.schedulingGates?.[0]?.name === "millpond.dev/queue";
    });
    await cluster.core
      .deleteNamespacedPod({ namespace, name: "train", gracePeriodSeconds: 0 })
      .catch(() => undefined);
    await cluster.until("the other has its place", () => runs("high"));
    await cluster.core.deleteNamespacedPod({ namespace, name: "high" });
    await cluster.until("it runs again", () => runs("train-r1"));
    expect((await cluster.pod("train-r1"))?.spec?.serviceAccountName).toBe("default");
  });
});
