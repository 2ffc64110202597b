// SPDX-License-Identifier: Apache-2.0

// Jobs that run fewer pods at a time than before, whose controller this test simulates: none of the remaining pods waits for
// others that never come.

import { expect, onTestFinished, test } from "vitest";
import { PlayedCluster } from "../../testing/played/played-cluster.ts";

const GiB = 1n << 30n;
const namespace = "default";
const patience = { timeout: 120_000 };
const limits = { "millpond.dev/vgpu": "1", "millpond.dev/memory": "10Gi" };
const annotations = { "millpond.dev/gang-size": "all" };
const uid = "11111111-2222-3333-4444-555555555555";

async function start(devices: number) {
  const cluster = await PlayedCluster.start({ "gpu-a": Array.from({ length: devices }, () => 16n * GiB) });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  await cluster.startOperator();
  const containers = [{ name: "main", image: "x", resources: { limits } }];
  const jobOf = (parallelism: number, succeeded: number) => ({
    metadata: { name: "job", uid },
    spec: { parallelism, completions: 5, template: { metadata: { annotations }, spec: { containers } } },
    status: { succeeded },
  });
  const { store } = cluster.server;
  let job = store.create("batch/jobs", namespace, jobOf(2, 0));
  return {
    cluster,
    setJob: (parallelism: number, succeeded: number) => {
      const next = jobOf(parallelism, succeeded);
      job = store.replace("batch/jobs", job, { ...job, ...next, metadata: { ...job.metadata } });
    },
    makePod: async (name: string) => {
      const owner = { apiVersion: "batch/v1", kind: "Job", name: "job", uid, controller: true };
      await cluster.createPod(name, limits, { metadata: { annotations, ownerReferences: [owner] } });
    },
    remove: async (name: string) => {
      await cluster.core.deleteNamespacedPod({ namespace, name, body: { gracePeriodSeconds: 0 } });
    },
  };
}

test("the last pod of a Job runs although the pod beside which it was made has succeeded meanwhile", async () => {
  const { cluster, setJob, makePod, remove } = await start(2);
  await cluster.createPod("other", limits);
  await expect.poll(() => cluster.bound("other"), patience).toBe("True Bound");
  setJob(2, 3);
  await makePod("fourth");
  await expect.poll(() => cluster.bound("fourth"), patience).toBe("False Waiting");
  // Its partner has succeeded before it was bound, and the Job makes no other.
  setJob(2, 4);
  await expect.poll(() => cluster.bound("fourth"), patience).toBe("True Bound");
  await remove("fourth");
  await expect.poll(async () => (await cluster.claims()).length, patience).toBe(1);
});

test("pods of a Job whose parallelism is reduced while they wait are bound together in its new size", async () => {
  const { cluster, setJob, makePod, remove } = await start(3);
  setJob(4, 0);
  await cluster.createPod("other", limits);
  await expect.poll(() => cluster.bound("other"), patience).toBe("True Bound");
  for (const name of ["a", "b", "c"]) await makePod(name);
  for (const name of ["a", "b", "c"])
    await expect.poll(() => cluster.bound(name), patience).toBe("False Waiting");
  setJob(3, 0);
  const sizes = async () =>
    (await cluster.pool.connect().claims.listClaims({})).claims.map(({ gangSize }) => gangSize);
  await expect.poll(async () => (await sizes()).sort((a, b) => a - b), patience).toEqual([0, 3, 3, 3]);
  // Two of the three would fit.
  for (const name of ["a", "b", "c"]) expect(await cluster.bound(name)).toBe("False Waiting");
  await remove("other");
  for (const name of ["a", "b", "c"])
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
});
