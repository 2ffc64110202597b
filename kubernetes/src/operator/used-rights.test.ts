// SPDX-License-Identifier: Apache-2.0

// Least privilege without a real Kubernetes: the simulated API server refuses rights that the manifests do not grant,
// and records the used ones. `rights.test.ts` compares both with the audit log of a real one.

import { DeviceHealth } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { connectCluster } from "../cluster/cluster.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";
import { CertificateStore } from "../webhook/serving-certificate.ts";

const GiB = 1n << 30n;
const patience = { timeout: 120_000 };
const namespace = "default";
const half = { "millpond.dev/vgpu": "1", "millpond.dev/memory": "8Gi" };

/**
 * These need half a minute, or an agent that is silent for that long: they are covered on a real control plane and by
 * separate tests.
 */
const slow = [
  // A repeated event of a pod, after 30 s.
  "/events patch",
  // A node of the pool is removed.
  "resource.k8s.io/resourceslices delete",
];

test("the operator has each right that it uses, and uses each that it has", async () => {
  const cluster = await PlayedCluster.start({ "gpu-a": [16n * GiB, 16n * GiB], "gpu-b": [16n * GiB] });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  const { server, core } = cluster;
  const { resource } = server.cluster;
  await cluster.startOperator();
  const slices = () => server.store.list("resource.k8s.io/resourceslices");
  await expect.poll(() => slices().length, patience).toBe(2);

  // A device becomes unhealthy, so its slice changes.
  const [agent] = cluster.pool.agents;
  if (agent === undefined) throw new Error("there is no agent");
  agent.devices = agent.devices.map((device, index) =>
    index === 0 ? device : { ...device, health: DeviceHealth.UNHEALTHY, healthReason: "test" },
  );
  await expect
    .poll(() => slices().map(({ spec }) => (spec as { devices: unknown[] }).devices.length), patience)
    .toEqual([1, 1]);

  // A pod is deleted when its claim is released; a claim without a pod is ended.
  await cluster.createPod("ended", half);
  await expect.poll(() => cluster.bound("ended"), patience).toBe("True Bound");
  const pool = cluster.pool.connect().claims;
  const [claim] = (await pool.listClaims({})).claims;
  if (claim === undefined) throw new Error("there is no claim");
  const orphan = "pod-11111111-2222-3333-4444-555555555555";
  const { labels } = claim;
  await pool.createClaim({
    claim: {
      name: orphan,
      gpus: 1,
      memoryBytes: GiB,
      owner: "pod default/gone main",
      labels,
      leaseSeconds: 300,
    },
  });
  await pool.releaseClaim({ name: claim.name });
  await expect.poll(() => cluster.pod("ended"), patience).toBeUndefined();
  const stateOf = async () => (await pool.getClaim({ name: orphan })).claim?.allocation;
  await expect.poll(stateOf, patience).toBeUndefined();

  // Gangs of a Job and of a JobSet, which specify their sizes.
  const template = {
    metadata: { annotations: { "millpond.dev/gang-size": "all" } },
    spec: { containers: [{ name: "main", resources: { limits: half } }] },
  };
  const job = server.store.create("batch/jobs", namespace, {
    metadata: { name: "train" },
    spec: { parallelism: 1, template },
  });
  server.store.create("jobset.x-k8s.io/jobsets", namespace, {
    metadata: { name: "set" },
    spec: { replicatedJobs: [{ replicas: 1, template: { spec: { parallelism: 1, template } } }] },
  });
  const owner = {
    apiVersion: "batch/v1",
    kind: "Job",
    name: "train",
    uid: job.metadata.uid,
    controller: true,
  };
  const all = { annotations: template.metadata.annotations };
  await cluster.createPod("train-0", half, { metadata: { ...all, ownerReferences: [owner] } });
  const ofSet = { "jobset.sigs.k8s.io/jobset-name": "set" };
  await cluster.createPod("set-0", half, { metadata: { ...all, labels: ofSet } });
  for (const name of ["train-0", "set-0"])
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
  for (const name of ["train-0", "set-0"]) await core.deleteNamespacedPod({ namespace, name });

  // A user has created a ResourceClaim with the name that the operator will use.
  const whole = { "millpond.dev/vgpu": "1" };
  await cluster.createPod("first", whole);
  await cluster.createPod("second", whole);
  await cluster.createPod("third", whole);
  await expect.poll(() => cluster.bound("third"), patience).toBe("False Waiting");
  const id = (await cluster.pod("third"))?.metadata?.annotations?.["millpond.dev/id"] ?? "";
  const name = `millpond-${id}-0`;
  await resource.createNamespacedResourceClaim({ namespace, body: { metadata: { name }, spec: {} } });
  await core.deleteNamespacedPod({ namespace, name: "first" });
  await expect.poll(() => cluster.bound("third"), patience).toBe("True Bound");
  const made = server.store.get("resource.k8s.io/resourceclaims", namespace, name);
  expect(made.metadata.annotations?.["millpond.dev/epoch"]).toMatch(/^[1-9]/);
  for (const other of ["second", "third"]) await core.deleteNamespacedPod({ namespace, name: other });

  // A ResourceClaim of a user, for which Kubernetes' scheduler has chosen a device.
  const device = { name: "gpu", exactly: { deviceClassName: "millpond.dev" } };
  const spec = { devices: { requests: [device] } };
  await resource.createNamespacedResourceClaimTemplate({
    namespace,
    body: { metadata: { name: "own" }, spec: { spec } },
  });
  await resource.createNamespacedResourceClaim({ namespace, body: { metadata: { name: "mine" }, spec } });
  const using = (claimed: object) => ({
    spec: {
      containers: [{ name: "main", image: "x", resources: { claims: [{ name: "gpu" }] } }],
      resourceClaims: [{ name: "gpu", ...claimed }],
    },
  });
  await cluster.createPod("by-template", {}, using({ resourceClaimTemplateName: "own" }));
  await cluster.createPod("by-name", {}, using({ resourceClaimName: "mine" }));
  const size = { cores: "20", memory: "2Gi" };
  const result = {
    request: "gpu",
    driver: "millpond.dev",
    pool: "gpu-a",
    device: "gpu-0",
    consumedCapacity: size,
  };
  const user = await cluster.pod("by-name");
  const reservedFor = [{ resource: "pods", name: "by-name", uid: user?.metadata?.uid ?? "" }];
  const allocation = { devices: { results: [result] } };
  const mine = server.store.get("resource.k8s.io/resourceclaims", namespace, "mine");
  server.store.replace("resource.k8s.io/resourceclaims", mine, {
    ...mine,
    status: { allocation, reservedFor },
  });
  await expect.poll(() => cluster.bound("by-name"), patience).toBe("True Bound");

  // The webhooks' certificate, of whose lifetime a third is left.
  const store = new CertificateStore({
    cluster: connectCluster(server.configFor("millpond-operator")),
    namespace: "millpond-system",
    name: "millpond",
    serviceNames: ["127.0.0.1"],
  });
  await store.read(new Date(Date.now() + 80 * 86_400_000));

  expect(server.denied).toEqual([]);
  expect(server.rights.unused("millpond-operator")).toEqual(slow);
});
