// SPDX-License-Identifier: Apache-2.0

import { ClaimState } from "@millpond/api";
import type { V1Pod } from "@kubernetes/client-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { asMergePatch, statusOf } from "../cluster/cluster.ts";
import type { Operator } from "./operator.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { TestCluster } from "../testing/test-cluster.ts";

const GiB = 1n << 30n;

const quarter = { "millpond.dev/vgpu": "1", "millpond.dev/compute": "25", "millpond.dev/memory": "4Gi" };
const whole = { "pool.kubernetes.io/gpu": "1" };

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  let cluster: TestCluster;
  let operator: Operator;
  beforeAll(async () => {
    cluster = await TestCluster.start({ "gpu-a": [16n * GiB], "gpu-b": [16n * GiB] });
    operator = await cluster.startOperator();
    await cluster.addNode("worker-1");
    if (!cluster.isGated) await cluster.useExtender(operator);
  });
  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]();
  });

  afterEach(async () => {
    await cluster.core.deleteCollectionNamespacedPod({ namespace: "default", gracePeriodSeconds: 0 });
    await cluster.until(
      "no claim is left",
      async () => (await cluster.pool.connect().claims.listClaims({})).claims.length === 0,
    );
  });

  const claims = () => cluster.pool.connect().claims;
  const claimOf = async (pod: V1Pod) =>
    (
      await claims()
        .getClaim({ name: `pod-${pod.metadata?.uid}` })
        .catch(() => undefined)
    )?.claim;
  const boundCondition = async (name: string) =>
    (await cluster.pod(name))?.status?.conditions?.find(({ type }) => type === "millpond.dev/Bound");
  const isBound = async (name: string) => {
    const isScheduled = (await cluster.pod(name))?.spec?.nodeName === "worker-1";
    return isScheduled && (await boundCondition(name))?.status === "True";
  };
  const remove = async (pod: V1Pod) => {
    await cluster.core.deleteNamespacedPod({ name: pod.metadata?.name ?? "", namespace: "default" });
    await cluster.until("its claim has ended", async () => {
      const claim = await claimOf(pod);
      return claim === undefined || claim.state === ClaimState.RELEASED;
    });
  };

  test("a pod is bound when the pool has granted its slice, and its claim ends with it", async () => {
    const pod = await cluster.createPod("one", quarter);
    expect(pod.spec?.containers[0]?.resources?.limits ?? {}).not.toHaveProperty("millpond.dev/memory");
    await cluster.until("the pod is bound", () => isBound("one"));
    expect(await claimOf(pod)).toMatchObject({
      state: ClaimState.BOUND,
      computePercent: 25,
      memoryBytes: 4n * GiB,
      tenant: "default",
      owner: "pod default/one main",
    });
    await cluster.until("it says so", async () => (await boundCondition("one"))?.status === "True");
    const id = pod.metadata?.annotations?.["millpond.dev/id"];
    const secret = await cluster.core.readNamespacedSecret({ name: `millpond-${id}`, namespace: "default" });
    const token = Buffer.from(secret.data?.["token-0"] ?? "", "base64").toString();
    expect(token).toMatch(/^mp-claim-pod-/);
    await remove(pod);
    await cluster.until("its Secret is collected", async () => {
      const left = await cluster.core.listNamespacedSecret({ namespace: "default" });
      return !left.items.some(({ metadata }) => metadata?.name === `millpond-${id}`);
    });
  });

  test("a pod waits behind its gate with the pool's reason, and goes on when there is room", async () => {
    const first = await cluster.createPod("first", whole);
    const second = await cluster.createPod("second", whole);
    // When pods are created concurrently, any of them may be the one that waits.
    await cluster.until("two are bound", async () => (await isBound("first")) && (await isBound("second")));
    const third = await cluster.createPod("third", whole);
    await cluster.until("the third says why it waits", async () => {
      const condition = await boundCondition("third");
      return condition?.reason === "Waiting" && /waits in queue default: .*\d/.test(condition.message ?? "");
    });
    const events = await cluster.core.listNamespacedEvent({ namespace: "default" });
    expect(
      events.items
        .filter(({ involvedObject }) => involvedObject.name === "third")
        .map(({ reason }) => reason),
    ).toContain("MillpondWaiting");
    expect((await cluster.pod("third"))?.spec?.nodeName ?? "").toBe("");
    await remove(first);
    await cluster.until("the third is bound", () => isBound("third"));
    await remove(second);
    await remove(third);
  });

  test("claims of pods that end by themselves end, too", async () => {
    const pod = await cluster.createPod("short", quarter);
    await cluster.until("it is bound", () => isBound("short"));
    await cluster.playKubelet("short", "Running");
    await cluster.playKubelet("short", "Succeeded");
    await cluster.until(
      "its claim has ended",
      async () => (await claimOf(pod))?.state === ClaimState.RELEASED,
    );
    await remove(pod);
  });

  test("a pod whose claim has ended is ended, and says why", async () => {
    const pod = await cluster.createPod("robbed", quarter);
    await cluster.until("it is bound", () => isBound("robbed"));
    await cluster.playKubelet("robbed", "Running");
    await claims().releaseClaim({ name: `pod-${pod.metadata?.uid}` });
    await cluster.until(
      "it is gone",
      async () =>
        (await cluster.pod("robbed")) === undefined ||
        (await cluster.pod("robbed"))?.metadata?.deletionTimestamp !== undefined,
    );
    const events = await cluster.core.listNamespacedEvent({ namespace: "default" });
    const told = events.items.find(
      ({ involvedObject, reason }) => involvedObject.name === "robbed" && reason === "MillpondClaimEnded",
    );
    expect(told?.message).toContain("has ended");
    await cluster.core
      .deleteNamespacedPod({ name: "robbed", namespace: "default", gracePeriodSeconds: 0 })
      .catch(() => undefined);
  });

  test("a preemptible pod gets notice, and ends when another needs its place", async () => {
    // Longer than the test may be delayed on a busy machine.
    const annotations = { "millpond.dev/preemptible": "true", "millpond.dev/grace": "50s" };
    const low = await cluster.createPod("low", whole, { annotations });
    const other = await cluster.createPod("other", whole, { annotations });
    await cluster.until("both are bound", async () => (await isBound("low")) && (await isBound("other")));
    await cluster.playKubelet("low", "Running");
    await cluster.playKubelet("other", "Running");
    const high = await cluster.createPod("high", whole, {
      spec: { priorityClassName: "system-cluster-critical" },
    });
    await cluster.until("one of them is told", async () => {
      const told = [await boundCondition("low"), await boundCondition("other")];
      return told.some(
        (condition) => condition?.reason === "Preempted" && /in \d+s/.test(condition.message ?? ""),
      );
    });
    await cluster.until("it ends", async () => {
      const both = [await cluster.pod("low"), await cluster.pod("other")];
      return both.some((pod) => pod?.metadata?.deletionTimestamp !== undefined);
    });
    // No kubelet is running that would end it.
    for (const name of ["low", "other"]) {
      const told = await cluster.pod(name);
      if (told?.metadata?.deletionTimestamp === undefined) continue;
      // This tells a Job with a pod failure policy that the pod did not fail.
      expect(told.status?.conditions?.find(({ type }) => type === "DisruptionTarget")).toMatchObject({
        status: "True",
        reason: "PreemptionByMillpond",
      });
      await cluster.core.deleteNamespacedPod({ name, namespace: "default", gracePeriodSeconds: 0 });
    }
    await cluster.until("the other has its place", () => isBound("high"));
    await remove(high);
    for (const pod of [low, other]) await remove(pod).catch(() => undefined);
  });

  test("pods of a gang are bound together or not at all", async () => {
    const annotations = { "millpond.dev/gang": "crew", "millpond.dev/gang-size": "2" };
    const one = await cluster.createPod("crew-0", whole, { annotations });
    await cluster.until("it waits for the other", async () =>
      /gang/.test((await boundCondition("crew-0"))?.message ?? ""),
    );
    const two = await cluster.createPod("crew-1", whole, { annotations });
    await cluster.until("both are bound", async () => (await isBound("crew-0")) && (await isBound("crew-1")));
    await remove(one);
    await remove(two);
  });

  test("all pods of a Job are bound together, and together again after a preemption", async () => {
    const annotations = {
      "millpond.dev/gang-size": "all",
      "millpond.dev/preemptible": "true",
      // The replacement pods wait for the gang's end until this is over.
      "millpond.dev/grace": "50s",
    };
    const kind = { group: "batch", version: "v1", plural: "jobs", namespace: "default" };
    const container = { name: "main", image: "example.org/none", resources: { limits: whole } };
    const makeJob = (name: string, pods: number) =>
      cluster.plane.cluster.objects.createNamespacedCustomObject({
        ...kind,
        body: {
          apiVersion: "batch/v1",
          kind: "Job",
          metadata: { name },
          spec: {
            parallelism: pods,
            completions: pods,
            completionMode: "Indexed",
            backoffLimit: 20,
            template: {
              metadata: { annotations },
              spec: { restartPolicy: "Never", terminationGracePeriodSeconds: 0, containers: [container] },
            },
          },
        },
      });
    const podsOf = async (job: string) => {
      const pods = await cluster.core.listNamespacedPod({
        namespace: "default",
        labelSelector: `job-name=${job}`,
      });
      return pods.items.filter(({ metadata }) => metadata?.deletionTimestamp === undefined);
    };
    const namesOf = async (job: string) => (await podsOf(job)).map(({ metadata }) => metadata?.name ?? "");
    const areBound = async (job: string, pods: number) => {
      const names = await namesOf(job);
      const bound = await Promise.all(names.map((name) => isBound(name)));
      return bound.length === pods && bound.every(Boolean);
    };
    const endJob = async (name: string) => {
      const body = { propagationPolicy: "Background" };
      await cluster.plane.cluster.objects.deleteNamespacedCustomObject({ ...kind, name, body });
      await cluster.until("its pods have gone", async () => (await namesOf(name)).length === 0);
    };
    const allWait = async (job: string, pods: number, why: RegExp) => {
      const conditions = await Promise.all((await namesOf(job)).map((name) => boundCondition(name)));
      if (conditions.length === pods && conditions.every((each) => why.test(each?.message ?? "")))
        return true;
      const { items } = await cluster.core.listNamespacedPod({ namespace: "default" });
      throw new Error(
        JSON.stringify(
          items.map(({ metadata, status, spec }) => [
            metadata?.name,
            metadata?.deletionTimestamp,
            spec?.nodeName,
            status?.phase,
            status?.conditions?.find(({ type }) => type === "millpond.dev/Bound")?.message,
          ]),
        ),
      );
    };

    await makeJob("three", 3);
    await cluster.until("all wait", () => allWait("three", 3, /^waits in queue/));
    await cluster.until("the gang is whole", async () => {
      const { claims: all } = await claims().listClaims({});
      return all.filter(({ gangSize }) => gangSize === 3).length === 3;
    });
    expect((await podsOf("three")).filter(({ spec }) => (spec?.nodeName ?? "") !== "")).toEqual([]);
    await endJob("three");

    await makeJob("crew", 2);
    await cluster.until("both are bound", () => areBound("crew", 2));
    for (const name of await namesOf("crew")) await cluster.playKubelet(name, "Running");
    const high = await cluster.createPod("high", whole, {
      spec: { priorityClassName: "system-cluster-critical" },
    });
    await cluster.until("others follow, and wait for the gang's end", () =>
      allWait("crew", 2, /until its previous gang has ended/),
    );
    // No kubelet is running that would end the earlier pods.
    const { items } = await cluster.core.listNamespacedPod({ namespace: "default" });
    for (const { metadata } of items.filter((pod) => pod.metadata?.deletionTimestamp !== undefined)) {
      const name = metadata?.name ?? "";
      await cluster.core.deleteNamespacedPod({ name, namespace: "default", gracePeriodSeconds: 0 });
    }
    await cluster.until("the other has its place", () => isBound("high"));
    await cluster.until("both wait again, though there is room for one", () =>
      allWait("crew", 2, /^waits in queue/),
    );
    expect((await podsOf("crew")).filter(({ spec }) => (spec?.nodeName ?? "") !== "")).toEqual([]);
    await remove(high);
    await cluster.until("both are bound again", () => areBound("crew", 2));
    await endJob("crew");
  });

  test("a running pod is resized by an annotation, and refused with numbers where there is no room", async () => {
    const pod = await cluster.createPod("grows", quarter);
    await cluster.until("it is bound", () => isBound("grows"));
    await cluster.playKubelet("grows", "Running");
    const annotate = (text: string) =>
      cluster.core.patchNamespacedPod(
        {
          name: "grows",
          namespace: "default",
          body: { metadata: { annotations: { "millpond.dev/resize": text } } },
        },
        asMergePatch,
      );
    await annotate("memory=8Gi,compute=50");
    await cluster.until("the claim has it", async () => (await claimOf(pod))?.memoryBytes === 8n * GiB);
    expect((await claimOf(pod))?.computePercent).toBe(50);
    await annotate("memory=40Gi");
    await cluster.until("it is refused", async () => {
      const condition = (await cluster.pod("grows"))?.status?.conditions?.find(
        ({ type }) => type === "millpond.dev/Resized",
      );
      return condition?.status === "False" && /40 GiB|16 GiB/.test(condition.message ?? "");
    });
    expect((await claimOf(pod))?.memoryBytes).toBe(8n * GiB);
    await expect(annotate("gpus=3")).rejects.toThrow(/is not a size/);
    await remove(pod);
  });

  test("each container that asks has a claim of its own, and an init container shares one", async () => {
    const container = (name: string, limits: Record<string, string>) => ({
      name,
      image: "example.org/none",
      resources: { limits },
    });
    const half = { "millpond.dev/compute": "50", "millpond.dev/memory": "2Gi" };
    const pod = await cluster.createPod("several", quarter, {
      spec: {
        initContainers: [container("prepare", quarter)],
        containers: [container("main", quarter), container("plain", {}), container("other", half)],
      },
    });
    await cluster.until("it is bound", () => isBound("several"));
    const uid = pod.metadata?.uid;
    const second = (await claims().getClaim({ name: `pod-${uid}-1` })).claim;
    expect(second).toMatchObject({
      state: ClaimState.BOUND,
      computePercent: 50,
      owner: "pod default/several other",
    });
    expect((await claimOf(pod))?.owner).toBe("pod default/several main,prepare");
    const names = (list: typeof pod.spec) =>
      [...(list?.initContainers ?? []), ...(list?.containers ?? [])].map(
        ({ env }) => env?.find(({ name }) => name === "MILLPOND_CLAIM")?.value,
      );
    const first = "pod-$(MILLPOND_POD_UID)";
    expect(names(pod.spec)).toEqual([first, first, undefined, `${first}-1`]);
    const id = pod.metadata?.annotations?.["millpond.dev/id"];
    const { data } = await cluster.core.readNamespacedSecret({
      name: `millpond-${id}`,
      namespace: "default",
    });
    expect(Object.keys(data ?? {}).sort()).toEqual(["ca", "controller", "token-0", "token-1"]);
  });

  test("a lazy pod runs and holds nothing", async () => {
    const pod = await cluster.createPod("idle", whole, { annotations: { "millpond.dev/lazy": "true" } });
    await cluster.until("it is bound", () => isBound("idle"));
    expect((await claimOf(pod))?.state).toBe(ClaimState.DORMANT);
    expect((await boundCondition("idle"))?.reason).toBe("Lazy");
    const others = ["busy-0", "busy-1"];
    for (const name of others) await cluster.createPod(name, whole);
    await cluster.until(
      "others have all there is",
      async () => (await isBound("busy-0")) && (await isBound("busy-1")),
    );
  });

  test("an operator that comes later ends claims whose pods have gone meanwhile", async () => {
    const pod = await cluster.createPod("orphan", quarter);
    await cluster.until("it is bound", () => isBound("orphan"));
    await operator[Symbol.asyncDispose]();
    await cluster.core.deleteNamespacedPod({ name: "orphan", namespace: "default", gracePeriodSeconds: 0 });
    expect((await claimOf(pod))?.state).toBe(ClaimState.BOUND);
    // While the webhook does not answer, pods that request the pool are refused, and no others. Without match conditions
    // they are created unprepared: they have no access to the pool.
    const made: unknown = await cluster.createPod("nobody", quarter).catch((error: unknown) => error);
    if (cluster.minor >= 28) expect(String(made)).toContain("failed calling webhook");
    else {
      const { metadata, spec } = made as V1Pod;
      expect(metadata?.annotations ?? spec?.containers[0]?.env).toBeUndefined();
      await cluster.core.deleteNamespacedPod({ name: "nobody", namespace: "default" });
    }
    const plain = await cluster.createPod("unheeded", { cpu: "1" });
    expect(plain.metadata?.uid).toBeDefined();
    operator = await cluster.startOperator();
    await cluster.until(
      "its claim has ended",
      async () => (await claimOf(pod))?.state === ClaimState.RELEASED,
    );
    // An API server learns the webhooks' address a moment after it was written.
    const { reviews } = operator;
    await cluster.until("it is asked", async () => {
      await cluster.createPod("nobody", quarter).catch(() => undefined);
      return operator.reviews > reviews;
    });
  });

  test("namespaces are tenants, with the queues that they may use", async () => {
    await cluster.core.createNamespace({
      body: {
        metadata: {
          name: "team-a",
          annotations: { "millpond.dev/tenant": "research", "millpond.dev/queues": "vision" },
        },
      },
    });
    await cluster.pool.connect().queues.putQueue({ queue: { name: "vision" } });
    const refused = async (annotations: Record<string, string>) =>
      await cluster.createPod("x", quarter, { namespace: "team-a", annotations }).then(
        () => "",
        (error: unknown) => String(error),
      );
    await cluster.until("the webhook knows the namespace", async () =>
      (await refused({ "millpond.dev/queue": "default" })).includes("Use one of its own: vision"),
    );
    const pod = await cluster.createPod("mine", quarter, { namespace: "team-a" });
    await cluster.until("its claim is there", async () => (await claimOf(pod)) !== undefined);
    expect(await claimOf(pod)).toMatchObject({ tenant: "research", queue: "vision" });
    await cluster.core.deleteNamespacedPod({ name: "mine", namespace: "team-a" });
  });

  test("pods that ask for nothing are refused where they reach for what is Millpond's, and not looked at otherwise", async (context) => {
    if (cluster.minor < 28) context.skip("webhooks have no match conditions");
    const { reviews } = operator;
    const refused = async (spec: Partial<V1Pod["spec"]>) =>
      await cluster.createPod("reaches", { cpu: "1" }, { spec }).then(
        () => "",
        (error: unknown) => String(error),
      );
    const secret = "millpond-0123456789abcdef";
    for (const spec of [
      { volumes: [{ name: "v", hostPath: { path: "/run//millpond/workers" } }] },
      { volumes: [{ name: "v", hostPath: { path: "/var/lib/kubelet/plugins/millpond.dev" } }] },
      { volumes: [{ name: "v", secret: { secretName: secret } }] },
      { volumes: [{ name: "v", projected: { sources: [{ secret: { name: secret } }] } }] },
      { initContainers: [{ name: "i", image: "x", envFrom: [{ secretRef: { name: secret } }] }] },
      {
        containers: [
          {
            name: "main",
            image: "x",
            env: [{ name: "T", valueFrom: { secretKeyRef: { name: secret, key: "token-0" } } }],
          },
        ],
      },
    ]) {
      expect(await refused(spec), JSON.stringify(spec)).toMatch(/MILLPOND_E_(INVALID|FORBIDDEN)/);
    }
    expect(operator.reviews).toBe(reviews + 6);
    expect(
      await refused({
        volumes: [
          { name: "root", hostPath: { path: "/" } },
          { name: "own", secret: { secretName: "mine", optional: true } },
          { name: "none", emptyDir: {} },
        ],
      }),
    ).toBe("");
    expect(operator.reviews).toBe(reviews + 6);
  });

  test("a ResourceClaim that says it is the pool's is refused, and one of the operator's stays as it is", async (context) => {
    if (operator.allocation !== "dra") context.skip("there are no ResourceClaims");
    const { resource } = cluster.plane.cluster;
    const request = { name: "gpu", exactly: { deviceClassName: "millpond.dev" } };
    const forged = {
      metadata: { name: "forged", annotations: { "millpond.dev/claim": "pod-of-another" } },
      spec: { devices: { requests: [request] } },
    };
    await expect(
      resource.createNamespacedResourceClaim({ namespace: "default", body: forged }),
    ).rejects.toThrow(/MILLPOND_E_FORBIDDEN/);
    const pod = await cluster.createPod("pictured", quarter);
    await cluster.until("the pod is bound", () => isBound("pictured"));
    const name = `millpond-${pod.metadata?.annotations?.["millpond.dev/id"]}-0`;
    const body = { metadata: { annotations: { "millpond.dev/claim": "pod-of-another" } } };
    await expect(
      resource.patchNamespacedResourceClaim({ name, namespace: "default", body }, asMergePatch),
    ).rejects.toThrow(/MILLPOND_E_FORBIDDEN/);
  });

  test("wrong pods are refused, others are not looked at, and nothing is left of either", async () => {
    for (const limits of [
      { "millpond.dev/vgpu": "0" },
      { "millpond.dev/memory": "64Gi" },
      { "millpond.dev/compute": "200" },
    ]) {
      const error: unknown = await cluster.createPod("wrong", limits).catch((reason: unknown) => reason);
      expect([statusOf(error), String(error)]).toEqual([
        expect.any(Number),
        expect.stringMatching(/MILLPOND_E_/),
      ]);
    }
    const { reviews } = operator;
    const plain = await cluster.createPod("plain", { cpu: "1" });
    expect(operator.reviews).toBe(reviews);
    expect(plain.metadata?.labels).toBeUndefined();
    expect(await cluster.pod("wrong")).toBeUndefined();
    await cluster.core.deleteNamespacedPod({ name: "plain", namespace: "default" });
    expect(
      (await claims().listClaims({})).claims.filter(({ owner }) => owner.startsWith("pod default/")),
    ).toEqual([]);
  });
});
