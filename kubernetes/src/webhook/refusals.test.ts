// SPDX-License-Identifier: Apache-2.0

// Invalid requests on a simulated API server: refused when they are created, with an error message in the usual form,
// and nothing has changed.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { asMergePatch, connectCluster, describeFailure } from "../cluster/cluster.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";

const GiB = 1n << 30n;
let cluster: PlayedCluster;

beforeAll(async () => {
  cluster = await PlayedCluster.start({ "gpu-a": [16n * GiB, 16n * GiB] });
  await cluster.core.createNamespace({
    body: { metadata: { name: "team-a", annotations: { "millpond.dev/queues": "default" } } },
  });
  await cluster.pool.connect().queues.putQueue({ queue: { name: "team-b" } });
  await cluster.pool.connect().queues.putQueue({ queue: { name: "team-c" } });
  for (const [name, annotations] of Object.entries({
    "team-c": { "millpond.dev/queues": "team-c" },
    misspelt: { "millpond.dev/queues": "Team C" },
    emptied: { "millpond.dev/queues": "" },
    "odd-tenant": { "millpond.dev/tenant": "team_c" },
  }))
    await cluster.core.createNamespace({ body: { metadata: { name, annotations } } });
  await cluster.startOperator();
  // The queues and the sizes of the pool are read a moment after the start.
  const at = { namespace: "default", name: "probe" };
  const knowsSizes = async () => {
    const failure = await refusal(cluster.createPod(at.name, { "millpond.dev/vgpu": "9" }));
    if (failure === "it was taken") await cluster.core.deleteNamespacedPod(at);
    expect(failure).toContain("MILLPOND_E_IMPOSSIBLE");
  };
  await vi.waitFor(knowsSizes, { timeout: 120_000 });
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
});

const refusal = (attempt: Promise<unknown>) =>
  attempt.then(
    () => "it was taken",
    (error: unknown) => describeFailure(error),
  );
const one = { "millpond.dev/vgpu": "1" };
const annotated = (annotations: object) => ({ metadata: { annotations } });
const container = (more: object) => ({ spec: { containers: [{ name: "main", image: "x", ...more }] } });
const env = (name: string) => container({ resources: { limits: one }, env: [{ name, value: "x" }] });
const volume = (path: string) => ({
  spec: {
    containers: [{ name: "main", image: "x", resources: { limits: one } }],
    volumes: [{ name: "v", hostPath: { path } }],
  },
});

test.each([
  ["a fraction", { "millpond.dev/vgpu": "0.5" }, {}, "INVALID"],
  ["a fraction in another form", { "millpond.dev/vgpu": "500m" }, {}, "INVALID"],
  ["none", { "millpond.dev/vgpu": "0" }, {}, "INVALID"],
  ["fewer than none", { "millpond.dev/vgpu": "-1" }, {}, "INVALID"],
  ["no memory", { ...one, "millpond.dev/memory": "0" }, {}, "INVALID"],
  ["more than all of the compute", { ...one, "millpond.dev/compute": "101" }, {}, "INVALID"],
  ["more memory than a device has", { ...one, "millpond.dev/memory": "17Gi" }, {}, "IMPOSSIBLE"],
  ["more vGPUs than a node has", { "millpond.dev/vgpu": "3" }, {}, "IMPOSSIBLE"],
  ["a queue that there is not", one, annotated({ "millpond.dev/queue": "no-such" }), "NOT_FOUND"],
  [
    "a label with such a queue",
    one,
    { metadata: { labels: { "millpond.dev/queue": "no-such" } } },
    "NOT_FOUND",
  ],
  [
    "a queue of another tenant",
    one,
    { namespace: "team-a", ...annotated({ "millpond.dev/queue": "team-b" }) },
    "FORBIDDEN",
  ],
  [
    "a queue that another namespace names as its own",
    one,
    annotated({ "millpond.dev/queue": "team-c" }),
    "FORBIDDEN",
  ],
  ["a namespace whose list of queues is misspelt", one, { namespace: "misspelt" }, "FORBIDDEN"],
  ["a namespace whose list of queues is empty", one, { namespace: "emptied" }, "FORBIDDEN"],
  ["a namespace whose tenant is misspelt", one, { namespace: "odd-tenant" }, "FORBIDDEN"],
  ["a misspelt annotation", one, annotated({ "millpond.dev/que": "default" }), "INVALID"],
  [
    "a forged request",
    one,
    annotated({ "millpond.dev/request": '[{"gpus":1,"containers":["main"]}]' }),
    "INVALID",
  ],
  ["a forged grant", one, annotated({ "millpond.dev/gpu-node": "gpu-a" }), "INVALID"],
  ["a wrong size in resize", one, annotated({ "millpond.dev/resize": "compute=400%" }), "INVALID"],
  ["the label and no request", {}, { metadata: { labels: { "millpond.dev/managed": "true" } } }, "INVALID"],
  ["a token", {}, env("MILLPOND_TOKEN"), "INVALID"],
  ["a size in its environment", {}, env("MILLPOND_MEMORY"), "INVALID"],
  ["the sockets", {}, volume("/run/millpond/sockets"), "INVALID"],
  ["all sockets of the host", {}, volume("/run"), "INVALID"],
  ["the host by its first process", {}, volume("/proc/1/cwd"), "INVALID"],
  ["the variables of other programs", {}, volume("/proc"), "INVALID"],
  ["those of one of them", {}, volume("//proc/./4711/"), "INVALID"],
  ["an open file of the kubelet", {}, volume("/dev/fd/7"), "INVALID"],
  [
    "a node of its own choice",
    one,
    { spec: { nodeName: "worker-1", ...container({ resources: { limits: one } }).spec } },
    "INVALID",
  ],
  [
    "a mirror pod's form",
    one,
    {
      ...annotated({ "kubernetes.io/config.mirror": "1" }),
      spec: { nodeName: "worker-1", ...container({ resources: { limits: one } }).spec },
    },
    "INVALID",
  ],
] as const)("a pod with %s is refused", async (_what, limits, more, code) => {
  const pods = cluster.server.store.list("/pods");
  expect(await refusal(cluster.createPod("wrong", limits, more))).toMatch(
    new RegExp(`denied the request: .*\\. .* \\[MILLPOND_E_${code}\\]$`),
  );
  expect(cluster.server.store.list("/pods")).toEqual(pods);
  expect((await cluster.claims()).filter((name) => name.includes("wrong"))).toEqual([]);
});

test("the queues of a namespace hold for the first pod that follows it", async () => {
  for (let round = 0; round < 20; round += 1) {
    const namespace = `new-${round}`;
    const annotations = { "millpond.dev/queues": "default" };
    await cluster.core.createNamespace({ body: { metadata: { name: namespace, annotations } } });
    const wrong = { namespace, ...annotated({ "millpond.dev/queue": "team-b" }) };
    expect(await refusal(cluster.createPod("wrong", one, wrong))).toContain("[MILLPOND_E_FORBIDDEN]");
  }
});

test("a pod that waits stays as it was asked for, through whichever part of the API others change it", async () => {
  await cluster.createPod("big", { "millpond.dev/vgpu": "2" });
  await cluster.createPod("waits", { "millpond.dev/vgpu": "2" });
  await expect.poll(() => cluster.bound("waits"), { timeout: 120_000 }).toBe("False Waiting");
  const at = { namespace: "default", name: "waits" };
  const before = (await cluster.pod("waits"))?.metadata;
  const kubelet = connectCluster(cluster.server.configFor("system:node:worker-1"));
  for (const metadata of [
    { annotations: { "millpond.dev/gpu-node": "gpu-a" } },
    { annotations: { "millpond.dev/request": '[{"gpus":8,"containers":["main"]}]' } },
    { annotations: { "millpond.dev/id": null } },
    { labels: { "millpond.dev/managed": null } },
    { labels: { "millpond.dev/queue": "team-b" } },
  ]) {
    const body = { metadata };
    for (const attempt of [
      cluster.core.patchNamespacedPod({ ...at, body }, asMergePatch),
      kubelet.core.patchNamespacedPodStatus({ ...at, body }, asMergePatch),
    ])
      expect(await refusal(attempt)).toContain("[MILLPOND_E_FORBIDDEN]");
  }
  const opened = { spec: { schedulingGates: [] } };
  expect(await refusal(cluster.core.patchNamespacedPod({ ...at, body: opened }, asMergePatch))).toContain(
    "the scheduling gate millpond.dev/queue is Millpond's",
  );
  const now = (await cluster.pod("waits"))?.metadata;
  expect([now?.annotations, now?.labels]).toEqual([before?.annotations, before?.labels]);
  // Its owner may change everything else, without a call of a webhook.
  const { reviews } = cluster.operators[0] ?? {};
  await cluster.core.patchNamespacedPod(
    { ...at, body: { metadata: { finalizers: ["a.example/b"] } } },
    asMergePatch,
  );
  await kubelet.core.patchNamespacedPodStatus(
    { ...at, body: { status: { phase: "Pending" } } },
    asMergePatch,
  );
  expect(cluster.operators[0]?.reviews).toBe(reviews);
});

test("a container that is added for debugging gets nothing of the pool, nor another pod's token", async () => {
  await cluster.createPod("plain", {});
  const add = (more: object) =>
    cluster.core.patchNamespacedPodEphemeralcontainers(
      {
        namespace: "default",
        name: "plain",
        body: { spec: { ephemeralContainers: [{ name: "debug", image: "x", ...more }] } },
      },
      asMergePatch,
    );
  expect(await refusal(add({ resources: { limits: one } }))).toContain("[MILLPOND_E_INVALID]");
  const id = (await cluster.pod("waits"))?.metadata?.annotations?.["millpond.dev/id"];
  const secretRef = { name: `millpond-${id}` };
  expect(await refusal(add({ envFrom: [{ secretRef }] }))).toContain("[MILLPOND_E_FORBIDDEN]");
  expect(await refusal(add({}))).toBe("it was taken");
});

test("nobody but the operator says of a ResourceClaim that it is the pool's, by a template either", async () => {
  const forged = { annotations: { "millpond.dev/epoch": "1" } };
  const of = (user: string) => connectCluster(cluster.server.configFor(user)).resource;
  const claim = { metadata: { name: "forged", ...forged }, spec: {} };
  const template = { metadata: { name: "forged" }, spec: { metadata: forged, spec: {} } };
  const namespace = "default";
  const controller = "system:serviceaccount:kube-system:resource-claim-controller";
  for (const attempt of [
    of("ann").createNamespacedResourceClaim({ namespace, body: claim }),
    of("ann").createNamespacedResourceClaimTemplate({ namespace, body: template }),
    of(controller).createNamespacedResourceClaim({ namespace, body: claim }),
  ])
    expect(await refusal(attempt)).toContain("the annotation millpond.dev/epoch is Millpond's");
});

test("pods that ask for nothing cost no review, and are made while no operator answers", async () => {
  const [operator] = cluster.operators;
  const { reviews } = operator ?? {};
  const make = (prefix: string, count: number) =>
    Promise.all(
      Array.from({ length: count }, (_, index) => cluster.createPod(`${prefix}-${index}`, { cpu: "1" })),
    );
  await make("plain", 200);
  expect(operator?.reviews).toBe(reviews);
  await operator?.[Symbol.asyncDispose]();
  await make("alone", 3);
  // Pods that request the pool are not created unprepared.
  expect(await refusal(cluster.createPod("asks", one))).toContain("failed calling webhook");
});
