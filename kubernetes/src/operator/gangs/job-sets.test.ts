// SPDX-License-Identifier: Apache-2.0

// JobSets, whose controller this test simulates: it creates the pods of their Jobs.

import { expect, onTestFinished, test } from "vitest";
import { PlayedCluster } from "../../testing/played/played-cluster.ts";

const GiB = 1n << 30n;
const namespace = "default";
const patience = { timeout: 120_000 };
const limits = { "millpond.dev/vgpu": "1", "millpond.dev/memory": "8Gi" };
const annotations = { "millpond.dev/gang-size": "all" };

interface Part {
  readonly name: string;
  readonly replicas: number;
  readonly parallelism: number;
}

const parts: readonly Part[] = [
  { name: "leader", replicas: 1, parallelism: 1 },
  { name: "workers", replicas: 2, parallelism: 2 },
];

/** A cluster for six pods, with a JobSet of five. */
async function start(spec: object): Promise<PlayedCluster> {
  const devices = [16n * GiB, 16n * GiB, 16n * GiB];
  const cluster = await PlayedCluster.start({ "gpu-a": devices });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  await cluster.startOperator();
  const template = {
    metadata: { annotations },
    spec: { containers: [{ name: "main", image: "x", resources: { limits } }] },
  };
  const replicatedJobs = parts.map(({ name, replicas, parallelism }) => ({
    name,
    replicas,
    template: { spec: { parallelism, completions: parallelism, template } },
  }));
  cluster.server.store.create("jobset.x-k8s.io/jobsets", namespace, {
    metadata: { name: "set" },
    spec: { replicatedJobs, ...spec },
  });
  return cluster;
}

/** Creates the pods of one part, as the Jobs of a JobSet do. */
async function make(cluster: PlayedCluster, { name, replicas, parallelism }: Part): Promise<string[]> {
  const made: string[] = [];
  for (let replica = 0; replica < replicas; replica += 1) {
    for (let index = 0; index < parallelism; index += 1) {
      const pod = `set-${name}-${replica}-${index}`;
      const labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/jobset-uid": "5a8c7a0e",
        "jobset.sigs.k8s.io/replicatedjob-name": name,
        "jobset.sigs.k8s.io/restart-attempt": "0",
      };
      await cluster.createPod(pod, limits, { metadata: { annotations, labels } });
      made.push(pod);
    }
  }
  return made;
}

const boundOf = (cluster: PlayedCluster, pods: readonly string[]) =>
  Promise.all(pods.map((name) => cluster.bound(name)));
const all = (count: number, text: string) => Array.from({ length: count }, () => text);

test("all Jobs of a JobSet with several replicas are bound together or not at all", async () => {
  const cluster = await start({});
  const [leader, workers] = parts as [Part, Part];
  await cluster.createPod("one", limits);
  await cluster.createPod("two", limits);
  for (const name of ["one", "two"])
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
  const first = await make(cluster, leader);
  const pods = [...first, ...(await make(cluster, workers))];
  await expect.poll(() => boundOf(cluster, pods), patience).toEqual(all(5, "False Waiting"));
  const { claims } = await cluster.pool.connect().claims.listClaims({});
  expect(claims.filter(({ gangSize }) => gangSize === 5).map(({ gang }) => gang)).toEqual(
    all(5, claims.find(({ gangSize }) => gangSize === 5)?.gang ?? ""),
  );
  await cluster.core.deleteNamespacedPod({ namespace, name: "one" });
  await expect.poll(() => boundOf(cluster, pods), patience).toEqual(all(5, "True Bound"));
});

test("a JobSet whose Jobs start in order does not wait for Jobs that wait for it", async () => {
  const cluster = await start({ startupPolicy: { startupPolicyOrder: "InOrder" } });
  const [leader, workers] = parts as [Part, Part];
  const first = await make(cluster, leader);
  await expect.poll(() => boundOf(cluster, first), patience).toEqual(["True Bound"]);
  // The leader is ready, so its controller creates the others, of which only four fit beside one more.
  await cluster.createPod("one", limits);
  await cluster.createPod("two", limits);
  for (const name of ["one", "two"])
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
  const others = await make(cluster, workers);
  await expect.poll(() => boundOf(cluster, others), patience).toEqual(all(4, "False Waiting"));
  await cluster.core.deleteNamespacedPod({ namespace, name: "two" });
  await expect.poll(() => boundOf(cluster, others), patience).toEqual(all(4, "True Bound"));
});
