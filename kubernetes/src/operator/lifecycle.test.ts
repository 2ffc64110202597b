// SPDX-License-Identifier: Apache-2.0

// Pods from their creation to their end, on a simulated API server: the behaviour that needs no real Kubernetes.

import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { asMergePatch } from "../cluster/cluster.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";

const GiB = 1n << 30n;
const half = { "millpond.dev/vgpu": "1", "millpond.dev/memory": "8Gi" };
const patience = { timeout: 120_000 };

async function start(nodes: Record<string, readonly bigint[]> = { "gpu-a": [16n * GiB] }) {
  const cluster = await PlayedCluster.start(nodes);
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  await cluster.startOperator();
  return cluster;
}

const idOf = async (cluster: PlayedCluster, name: string) =>
  (await cluster.pod(name))?.metadata?.annotations?.["millpond.dev/id"] ?? "";

test("a pod waits behind its gate until the pool grants it, has its token and devices, and returns them", async () => {
  const cluster = await start();
  await cluster.createPod("first", half);
  await expect.poll(() => cluster.bound("first"), patience).toBe("True Bound");
  const pod = await cluster.pod("first");
  expect(pod?.spec?.schedulingGates ?? []).toEqual([]);
  const id = await idOf(cluster, "first");
  const claim = cluster.server.store.get("resource.k8s.io/resourceclaims", "default", `millpond-${id}-0`);
  expect(JSON.stringify(claim["spec"])).toContain('"memory":"8Gi"');
  const secret = cluster.server.store.get("/secrets", "default", `millpond-${id}`);
  expect(Object.keys(secret["data"] as object).sort()).toEqual(["ca", "controller", "token-0"]);

  await cluster.createPod("second", half);
  await cluster.createPod("third", half);
  await expect.poll(() => cluster.bound("second"), patience).toBe("True Bound");
  await expect.poll(() => cluster.bound("third"), patience).toBe("False Waiting");
  expect(() => cluster.server.bind("default", "third", "worker-1")).toThrow("gates");
  cluster.server.bind("default", "first", "worker-1");
  cluster.server.setPodStatus("default", "first", { phase: "Succeeded" });
  await expect.poll(() => cluster.bound("third"), patience).toBe("True Bound");
  // The objects of the pod are deleted with it.
  await cluster.core.deleteNamespacedPod({ namespace: "default", name: "first" });
  expect(cluster.server.store.find("/secrets", "default", `millpond-${id}`)).toBeUndefined();
  expect(cluster.server.denied).toEqual([]);
});

test("a pod that another gate holds back has no claim until that gate is open", async () => {
  const cluster = await start();
  const whole = { "millpond.dev/vgpu": "1" };
  const gate = { name: "example.org/quota" };
  await cluster.createPod("held", whole, { spec: { schedulingGates: [gate] } });
  await expect.poll(() => cluster.bound("held"), patience).toBe("False Gated");
  await cluster.createPod("free", whole);
  await expect.poll(() => cluster.bound("free"), patience).toBe("True Bound");
  const others = (await cluster.pod("held"))?.spec?.schedulingGates?.filter(({ name }) => name !== gate.name);
  const body = { spec: { schedulingGates: others } };
  await cluster.core.patchNamespacedPod({ namespace: "default", name: "held", body }, asMergePatch);
  await expect.poll(() => cluster.bound("held"), patience).toBe("False Waiting");
  await cluster.core.deleteNamespacedPod({ namespace: "default", name: "free" });
  await expect.poll(() => cluster.bound("held"), patience).toBe("True Bound");
});

test("a pod that is deleted before it is placed returns its claim, also while a finalizer keeps it", async () => {
  const cluster = await start();
  const whole = { "millpond.dev/vgpu": "1" };
  await cluster.createPod("kept", whole, { metadata: { finalizers: ["example.org/slow"] } });
  await expect.poll(() => cluster.bound("kept"), patience).toBe("True Bound");
  await cluster.createPod("next", whole);
  await cluster.core.deleteNamespacedPod({ namespace: "default", name: "kept" });
  await expect.poll(() => cluster.bound("next"), patience).toBe("True Bound");
  expect((await cluster.pod("kept"))?.metadata?.deletionTimestamp).toBeDefined();
  // A running pod keeps it until its programs have ended.
  cluster.server.bind("default", "next", "worker-1");
  cluster.server.setPodStatus("default", "next", { phase: "Running" });
  const claims = await cluster.claims();
  await cluster.core.deleteNamespacedPod({ namespace: "default", name: "next" });
  await cluster.createPod("last", whole);
  await expect.poll(() => cluster.bound("last"), patience).toBe("False Waiting");
  expect(await cluster.claims()).toEqual(expect.arrayContaining(claims));
  const gone = { namespace: "default", name: "next", body: { gracePeriodSeconds: 0 } };
  await cluster.core.deleteNamespacedPod(gone);
  await expect.poll(() => cluster.bound("last"), patience).toBe("True Bound");
});

test("a pod's Secret that is deleted while it runs is made again for a container that cannot start without it", async () => {
  const cluster = await start();
  await cluster.createPod("p", half);
  await expect.poll(() => cluster.bound("p"), patience).toBe("True Bound");
  const name = `millpond-${await idOf(cluster, "p")}`;
  cluster.server.bind("default", "p", "worker-1");
  const status = (state: object) => ({
    phase: "Running",
    containerStatuses: [{ name: "main", image: "x", imageID: "x", ready: false, restartCount: 1, state }],
  });
  cluster.server.setPodStatus("default", "p", status({ running: {} }));
  await cluster.core.deleteNamespacedSecret({ namespace: "default", name });
  cluster.server.setPodStatus("default", "p", {
    ...status({ waiting: { reason: "CreateContainerConfigError" } }),
    // As after a first start.
    initContainerStatuses: [
      {
        name: "init",
        image: "x",
        imageID: "x",
        ready: true,
        restartCount: 0,
        state: { terminated: { exitCode: 0 } },
      },
    ],
  });
  await expect.poll(() => cluster.server.store.find("/secrets", "default", name), patience).toBeDefined();
});

test("a ResourceClaim that is deleted before its pod is placed is made again, and one that is there is left alone", async () => {
  const cluster = await start();
  await cluster.createPod("early", half);
  await expect.poll(() => cluster.bound("early"), patience).toBe("True Bound");
  const name = `millpond-${await idOf(cluster, "early")}-0`;
  const uid = () =>
    (
      cluster.server.store.find("resource.k8s.io/resourceclaims", "default", name)?.["metadata"] as
        | { uid: string }
        | undefined
    )?.uid;
  const first = uid();
  expect(first).toBeDefined();
  // The operator's copy of these objects may be some seconds old.
  await delay(5500);
  await cluster.core.patchNamespacedPod(
    { namespace: "default", name: "early", body: { metadata: { labels: { changed: "true" } } } },
    asMergePatch,
  );
  await delay(500);
  expect(uid()).toBe(first);
  await cluster.server.cluster.resource.deleteNamespacedResourceClaim({ namespace: "default", name });
  await expect.poll(uid, patience).toBeDefined();
  expect(uid()).not.toBe(first);
});

test("a pod whose objects a quota refuses says so, and goes on when there is room in it", async () => {
  const cluster = await start();
  for (const kind of ["/secrets", "resource.k8s.io/resourceclaims"]) {
    cluster.server.exhausted.add(kind);
    const name = `kept-by-${kind.length}`;
    await cluster.createPod(name, half);
    await expect.poll(() => cluster.bound(name), patience).toBe("False ClusterRefuses");
    const { conditions = [] } = (await cluster.pod(name))?.status ?? {};
    const said = conditions.find(({ type }) => type === "millpond.dev/Bound")?.message;
    expect(said).toContain(`exceeded quota: count/${kind}`);
    expect((await cluster.pod(name))?.spec?.schedulingGates).toHaveLength(1);
    cluster.server.exhausted.clear();
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
    await cluster.core.deleteNamespacedPod({ namespace: "default", name });
  }
});

test("a pod for which a policy of the cluster refuses an object or its release says so, and goes on without the policy", async () => {
  const cluster = await start();
  for (const [index, what] of [
    "create /secrets",
    "create resource.k8s.io/resourceclaims",
    "patch /pods",
  ].entries()) {
    cluster.server.policies.set(what, "objects need the label team");
    const name = `refused-${index}`;
    await cluster.createPod(name, half);
    await expect.poll(() => cluster.bound(name), patience).toBe("False ClusterRefuses");
    const { conditions = [] } = (await cluster.pod(name))?.status ?? {};
    const said = conditions.find(({ type }) => type === "millpond.dev/Bound")?.message;
    expect(said).toContain("denied by a policy: objects need the label team");
    expect((await cluster.pod(name))?.spec?.schedulingGates).toHaveLength(1);
    cluster.server.policies.clear();
    await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
    await cluster.core.deleteNamespacedPod({ namespace: "default", name });
  }
});

test("claims outlast an API server that does not respond for longer than their lease", async () => {
  const cluster = await PlayedCluster.start({ "gpu-a": [16n * GiB] });
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  await cluster.startOperator({ silence: { patienceMs: 1000, periodMs: 100 } });
  await cluster.createPod("runs", half);
  await expect.poll(() => cluster.bound("runs"), patience).toBe("True Bound");
  const { claims } = cluster.pool.connect();
  const mine = async () => (await claims.listClaims({})).claims[0];
  const stranger = await claims.createClaim({
    claim: { name: "stranger", memoryBytes: GiB, leaseSeconds: 600 },
  });
  const leases = async () =>
    Promise.all(
      [(await mine())?.name ?? "", "stranger"].map(
        async (name) => (await claims.getClaim({ name })).claim?.leaseExpiresAt ?? 0n,
      ),
    );
  const [before = 0n] = await leases();
  await cluster.server.stop();
  // No leader renews it this soon.
  await expect.poll(async () => (await leases())[0], patience).toBeGreaterThan(before + 5n);
  expect((await leases())[1]).toBe(stranger.claim?.leaseExpiresAt);
  await cluster.server.resume();
  await cluster.core.deleteNamespacedPod({ namespace: "default", name: "runs" });
  await expect.poll(() => cluster.claims(), patience).toEqual(["stranger"]);
});

test("a kubelet that could not prepare a pod looks again at once, and one that has is left alone", async () => {
  const cluster = await start();
  await cluster.createPod("slow", half);
  await expect.poll(() => cluster.bound("slow"), patience).toBe("True Bound");
  cluster.server.bind("default", "slow", "worker-1");
  const conditions = async (status: string) => [
    ...((await cluster.pod("slow"))?.status?.conditions ?? []).filter(
      ({ type }) => type !== "PodReadyToStartContainers",
    ),
    { type: "PodReadyToStartContainers", status },
  ];
  const setSandbox = async (status: string) =>
    cluster.server.setPodStatus("default", "slow", {
      phase: "Pending",
      conditions: JSON.parse(JSON.stringify(await conditions(status))) as unknown,
    });
  const retries = async () => (await cluster.pod("slow"))?.metadata?.annotations?.["millpond.dev/retries"];
  await setSandbox("False");
  await expect.poll(retries, patience).toBe("1");
  await setSandbox("True");
  await delay(9000);
  expect(await retries()).toBe("1");
});

test("an API server that begins again and has forgotten what was, and sends no bookmarks, loses no pod", async () => {
  const cluster = await start({ "gpu-a": Array.from({ length: 4 }, () => 16n * GiB) });
  cluster.server.hasBookmarks = false;
  const names = Array.from({ length: 6 }, (_, index) => `p-${index}`);
  for (const [index, name] of names.entries()) {
    await cluster.createPod(name, half);
    if (index % 2 === 0) await cluster.server.restart();
  }
  await expect
    .poll(async () => await Promise.all(names.map((name) => cluster.bound(name))), patience)
    .toEqual(names.map(() => "True Bound"));
  for (const name of names) await cluster.core.deleteNamespacedPod({ namespace: "default", name });
  await cluster.server.restart();
  const held = async () => {
    const { claims } = await cluster.pool.connect().claims.listClaims({});
    return claims.filter(({ allocation }) => allocation !== undefined).length;
  };
  await expect.poll(held, patience).toBe(0);
});

test("names may be as long as Kubernetes has them", async () => {
  const cluster = await start();
  const name = `${"a-".repeat(99)}a.${"b".repeat(53)}`;
  expect(name).toHaveLength(253);
  await cluster.createPod(name, half);
  await expect.poll(() => cluster.bound(name), patience).toBe("True Bound");
  const { items } = await cluster.core.listNamespacedEvent({ namespace: "default" });
  expect(items.length).toBeGreaterThan(0);
  for (const { metadata } of items)
    expect(metadata?.name).toMatch(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/);
});

test("pods of a namespace that ends leave nothing in the pool", async () => {
  const cluster = await start();
  await cluster.core.createNamespace({ body: { metadata: { name: "team" } } });
  await cluster.createPod("p", half, { namespace: "team" });
  await expect.poll(() => cluster.bound("p", "team"), patience).toBe("True Bound");
  await cluster.core.deleteNamespace({ name: "team" });
  await expect(cluster.createPod("late", half, { namespace: "team" })).rejects.toThrow("terminated");
  await cluster.core.deleteNamespacedPod({ namespace: "team", name: "p" });
  const held = async () =>
    (await cluster.pool.connect().claims.listClaims({})).claims.filter(
      (claim) => claim.allocation !== undefined,
    );
  await expect.poll(held, patience).toEqual([]);
});

test("the resize annotation changes the claim of a pod that runs, and a wrong one changes nothing", async () => {
  const cluster = await start();
  await cluster.createPod("p", half);
  await expect.poll(() => cluster.bound("p"), patience).toBe("True Bound");
  const annotate = (text: string) =>
    cluster.core.patchNamespacedPod(
      {
        namespace: "default",
        name: "p",
        body: { metadata: { annotations: { "millpond.dev/resize": text } } },
      },
      asMergePatch,
    );
  await expect(annotate("memory=lots")).rejects.toThrow("MILLPOND_E_INVALID");
  await annotate("memory=12Gi");
  const size = async () => (await cluster.pool.connect().claims.listClaims({})).claims[0]?.memoryBytes;
  await expect.poll(size, patience).toBe(12n * GiB);
});

test("pods at the end of a long queue are seldom written to while it moves, and those at its head often", async () => {
  const cluster = await start();
  const whole = { "millpond.dev/vgpu": "1" };
  const count = 70;
  for (let index = 0; index < count; index += 1) await cluster.createPod(`q-${index}`, whole);
  const last = [`q-${count - 2}`, `q-${count - 1}`];
  for (const name of last) {
    const saysWhy = async () => (await cluster.pod(name))?.status?.conditions?.[0]?.message ?? "";
    await expect.poll(saysWhy, patience).toMatch(/no device has/);
  }
  let writes = 0;
  const head = new Set<string>();
  const stop = cluster.server.store.onChange(({ kind, before, after }) => {
    if (kind !== "/pods" || before === undefined || after === undefined) return;
    const { name } = after.metadata;
    if (last.includes(name)) writes += 1;
    else head.add(name);
  });
  for (let index = 0; index < 12; index += 1) {
    await cluster.core.deleteNamespacedPod({ namespace: "default", name: `q-${index}` });
    await delay(1000);
  }
  stop();
  // Otherwise both would be written every 5 s.
  expect(writes).toBeLessThanOrEqual(2);
  expect(head.size).toBeGreaterThan(10);
});
