// SPDX-License-Identifier: Apache-2.0

// Kubernetes' kinds of workloads on a real node: pods of several containers, Jobs, Deployments and StatefulSets. Some are
// preempted, resized or evicted while they run, or lose their node.

import { execFile, spawnSync } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import {
  AppsV1Api,
  BatchV1Api,
  CoordinationV1Api,
  SchedulingV1Api,
  type V1Container,
  V1MicroTime,
  type V1PodTemplateSpec,
} from "@kubernetes/client-node";
import { type Claim, ClaimState } from "@millpond/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { asMergePatch } from "./cluster/cluster.ts";
import { podOfClaim } from "./request/pod-claims.ts";
import {
  exampleContainer,
  missingCluster,
  type RealCluster,
  startRealCluster,
} from "./testing/real-cluster.ts";
import type { TestCluster } from "./testing/test-cluster.ts";

const missing =
  missingCluster() ??
  (spawnSync("kubectl", ["version", "--client"]).status === 0 ? undefined : "there is no kubectl");
const namespace = "default";
const once = ["/usr/bin/vectoradd"];
/** Does not end by itself before the test does. */
const forever = ["/usr/bin/vectoradd", "1000", "--repeat", "100000000"];

const share = (compute: number) => ({
  "millpond.dev/vgpu": "1",
  "millpond.dev/compute": String(compute),
  "millpond.dev/memory": "256Mi",
});

/** A node without a kubelet whose heartbeats the test sends. */
async function keepAlive(cluster: TestCluster, name: string): Promise<AsyncDisposable> {
  const leases = cluster.plane.cluster.config.makeApiClient(CoordinationV1Api);
  const beat = () => ({
    metadata: { name },
    spec: { holderIdentity: name, leaseDurationSeconds: 40, renewTime: new V1MicroTime() },
  });
  const at = "kube-node-lease";
  await leases.createNamespacedLease({ namespace: at, body: beat() });
  const stop = new AbortController();
  const beating = (async () => {
    while (!stop.signal.aborted) {
      await leases.patchNamespacedLease({ name, namespace: at, body: beat() }, asMergePatch);
      await delay(1000);
    }
  })();
  await cluster.addNode(name);
  return {
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await beating;
    },
  };
}

describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
  `workloads on a real node, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  (allocation) => {
    let real: RealCluster;
    let cluster: TestCluster;
    let apps: AppsV1Api;
    let batch: BatchV1Api;
    beforeAll(async () => {
      const subnet = allocation === "dra" ? 4 : 5;
      const up = ["--devices", "2", "--device-memory", "4Gi"];
      real = await startRealCluster({ allocation, subnet, up, nodeLossSeconds: 25 });
      ({ cluster } = real);
      apps = cluster.plane.cluster.config.makeApiClient(AppsV1Api);
      batch = cluster.plane.cluster.config.makeApiClient(BatchV1Api);
    });
    afterAll(async () => {
      await real?.[Symbol.asyncDispose]();
    });

    /** This process connects the kubelet to the API server, so it must keep serving while it waits for a command. */
    const kubectl = (...args: readonly string[]) =>
      promisify(execFile)("kubectl", ["--kubeconfig", cluster.plane.kubeconfig, ...args]);
    const liveClaims = async (): Promise<Claim[]> => {
      const { claims } = await real.pool.claims.listClaims({});
      return claims.filter(({ state }) => state !== ClaimState.RELEASED && state !== ClaimState.FAILED);
    };
    const bound = async () => (await liveClaims()).filter(({ state }) => state === ClaimState.BOUND);
    const noneLeft = () =>
      cluster.until("no claim is left", async () => (await liveClaims()).length === 0, 120_000);
    const template = (
      name: string,
      containers: V1Container[],
      more: Partial<V1PodTemplateSpec["spec"]> = {},
      annotations: Record<string, string> = {},
    ): V1PodTemplateSpec => ({
      metadata: { labels: { app: name }, annotations },
      spec: { terminationGracePeriodSeconds: 0, containers, ...more },
    });
    const podsOf = async (app: string) =>
      (await cluster.core.listNamespacedPod({ namespace, labelSelector: `app=${app}` })).items;
    const running = async (app: string) =>
      (await podsOf(app)).filter(
        ({ metadata, status }) => status?.phase === "Running" && metadata?.deletionTimestamp === undefined,
      );
    const ended = (name: string) =>
      cluster.until(
        `${name} has ended`,
        async () => {
          const status = (await cluster.pod(name))?.status;
          if (status?.phase === "Failed") throw new Error(JSON.stringify(status.containerStatuses));
          return status?.phase === "Succeeded";
        },
        120_000,
      );
    const logOf = (name: string, container: string) =>
      cluster.core.readNamespacedPodLog({ name, namespace, container });
    /** Both agree: each pod that runs has a bound claim, and each claim a pod. */
    const expectAgreement = async (): Promise<void> => {
      const { items } = await cluster.core.listNamespacedPod({ namespace });
      const uids = new Set(items.map(({ metadata }) => metadata?.uid));
      const claims = await liveClaims();
      expect(claims.filter(({ name }) => !uids.has(podOfClaim(name)?.uid))).toEqual([]);
      const boundPods = new Set((await bound()).map(({ name }) => podOfClaim(name)?.uid));
      const unbacked = items.filter(
        ({ metadata, status }) => status?.phase === "Running" && !boundPods.has(metadata?.uid ?? ""),
      );
      expect(unbacked.map(({ metadata }) => metadata?.name)).toEqual([]);
    };

    test("containers, an init container and a sidecar of one pod compute, each in its claim", async () => {
      const check = ["/bin/sh", "-c", "/usr/bin/vectoradd"];
      await cluster.core.createNamespacedPod({
        namespace,
        body: {
          metadata: { name: "several" },
          spec: {
            restartPolicy: "Never",
            terminationGracePeriodSeconds: 0,
            initContainers: [
              exampleContainer("prepare", check, share(10)),
              { ...exampleContainer("beside", forever, share(20)), restartPolicy: "Always" },
            ],
            containers: [
              exampleContainer("one", check, share(10)),
              exampleContainer("two", check, share(30)),
            ],
          },
        },
      });
      await ended("several");
      for (const container of ["prepare", "beside", "one", "two"])
        expect(await logOf("several", container)).toMatch(/OK/);
      await cluster.core.deleteNamespacedPod({ name: "several", namespace });
      await noneLeft();
    });

    test("a container that fails is started again in place, with the same claim", async () => {
      const script = "test -e /state/failed && exec /usr/bin/vectoradd; touch /state/failed; exit 3";
      const container = exampleContainer("main", ["/bin/sh", "-c", script], share(25));
      await cluster.createPod("again", share(25), {
        spec: {
          restartPolicy: "OnFailure",
          volumes: [{ name: "state", emptyDir: {} }],
          containers: [{ ...container, volumeMounts: [{ name: "state", mountPath: "/state" }] }],
        },
      });
      await cluster.until("it has a claim", async () => (await bound()).length === 1);
      const [claim] = await bound();
      await ended("again");
      const pod = await cluster.pod("again");
      expect(pod?.status?.containerStatuses?.[0]?.restartCount).toBe(1);
      expect(claim?.name).toBe(`pod-${pod?.metadata?.uid}`);
      expect(await logOf("again", "main")).toMatch(/OK/);
      await noneLeft();
    });

    test("the pods of a Job are bound together or not at all", async () => {
      const job = (name: string, command: readonly string[]) =>
        batch.createNamespacedJob({
          namespace,
          body: {
            metadata: { name },
            spec: {
              parallelism: 2,
              completions: 2,
              completionMode: "Indexed",
              backoffLimit: 0,
              template: template(
                name,
                [exampleContainer("main", command, share(60))],
                { restartPolicy: "Never" },
                { "millpond.dev/gang-size": "all" },
              ),
            },
          },
        });
      await cluster.createPod("in-the-way", share(60), {
        spec: { containers: [exampleContainer("main", forever, share(60))] },
      });
      await cluster.until(
        "it runs",
        async () => (await cluster.pod("in-the-way"))?.status?.phase === "Running",
      );
      await job("gang", once);
      // One of its two pods alone would fit.
      await cluster.until("both wait, and say why", async () => {
        const conditions = (await podsOf("gang")).flatMap(({ status }) =>
          (status?.conditions ?? []).filter(({ type }) => type === "millpond.dev/Bound"),
        );
        return conditions.length === 2 && conditions.every(({ message = "" }) => /\d/.test(message));
      });
      expect((await podsOf("gang")).map(({ spec }) => spec?.nodeName)).toEqual([undefined, undefined]);
      await cluster.core.deleteNamespacedPod({ name: "in-the-way", namespace });
      await cluster.until(
        "the Job is done",
        async () => (await batch.readNamespacedJob({ namespace, name: "gang" })).status?.succeeded === 2,
        120_000,
      );
      await batch.deleteNamespacedJob({ namespace, name: "gang", propagationPolicy: "Background" });
      await noneLeft();
    });

    test("a Deployment that is scaled takes as much as it runs, and a StatefulSet has its pods again", async () => {
      const containers = [exampleContainer("main", forever, share(20))];
      const selector = (app: string) => ({ matchLabels: { app } });
      await apps.createNamespacedDeployment({
        namespace,
        body: {
          metadata: { name: "web" },
          spec: { replicas: 1, selector: selector("web"), template: template("web", containers) },
        },
      });
      const scale = (replicas: number) =>
        apps.patchNamespacedDeployment(
          { namespace, name: "web", body: { spec: { replicas } } },
          asMergePatch,
        );
      for (const replicas of [1, 4, 2, 0, 3]) {
        await scale(replicas);
        await cluster.until(
          `${replicas} run`,
          async () => (await running("web")).length === replicas && (await liveClaims()).length === replicas,
          120_000,
        );
        await expectAgreement();
      }
      await apps.deleteNamespacedDeployment({ namespace, name: "web" });
      await noneLeft();
      await apps.createNamespacedStatefulSet({
        namespace,
        body: {
          metadata: { name: "db" },
          spec: {
            serviceName: "db",
            replicas: 2,
            selector: selector("db"),
            template: template("db", containers),
          },
        },
      });
      await cluster.until("both run", async () => (await running("db")).length === 2, 120_000);
      const before = (await cluster.pod("db-0"))?.metadata?.uid;
      await cluster.core.deleteNamespacedPod({ name: "db-0", namespace });
      await cluster.until(
        "it is there again",
        async () => {
          const names = (await running("db")).map(({ metadata }) => [metadata?.name, metadata?.uid]);
          return names.length === 2 && names.every(([, uid]) => uid !== before);
        },
        120_000,
      );
      await cluster.until("with claims of its own", async () => (await bound()).length === 2);
      await expectAgreement();
      await apps.deleteNamespacedStatefulSet({ namespace, name: "db" });
      await noneLeft();
    });

    test("a Deployment replaces its pods one by one beyond their number, also while the pool has room for no more", async () => {
      const roll = (revision: string, compute: number) => ({
        ...template("rolling", [exampleContainer("main", forever, share(compute))], {}, { revision }),
      });
      await apps.createNamespacedDeployment({
        namespace,
        body: {
          metadata: { name: "rolling" },
          spec: {
            replicas: 3,
            strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
            selector: { matchLabels: { app: "rolling" } },
            template: roll("1", 50),
          },
        },
      });
      const revisions = async () =>
        (await running("rolling")).map(({ metadata }) => metadata?.annotations?.["revision"]).join(" ");
      await cluster.until("three run", async () => (await revisions()) === "1 1 1", 120_000);
      // Four halves fit on two GPUs: pods go one at a time, and each waits for the claim of one that has ended.
      await apps.patchNamespacedDeployment(
        { namespace, name: "rolling", body: { spec: { template: roll("2", 50) } } },
        asMergePatch,
      );
      await cluster.until("three others run", async () => (await revisions()) === "2 2 2", 180_000);
      await cluster.until("with their claims alone", async () => (await liveClaims()).length === 3);
      await expectAgreement();
      await apps.deleteNamespacedDeployment({ namespace, name: "rolling" });
      await noneLeft();
    });

    test("a pod of higher priority takes the place of a preemptible one, which is told before it ends", async () => {
      const scheduling = cluster.plane.cluster.config.makeApiClient(SchedulingV1Api);
      await scheduling.createPriorityClass({ body: { metadata: { name: "urgent" }, value: 500 } });
      for (const name of ["low-0", "low-1"]) {
        await cluster.createPod(name, share(100), {
          annotations: { "millpond.dev/preemptible": "true", "millpond.dev/grace": "3s" },
          spec: { restartPolicy: "Never", containers: [exampleContainer("main", forever, share(100))] },
        });
      }
      const phase = async (name: string) => (await cluster.pod(name))?.status?.phase;
      await cluster.until(
        "both run",
        async () => (await phase("low-0")) === "Running" && (await phase("low-1")) === "Running",
        120_000,
      );
      await cluster.createPod("high", share(100), {
        spec: {
          restartPolicy: "Never",
          priorityClassName: "urgent",
          containers: [exampleContainer("main", once, share(100))],
        },
      });
      let told = "";
      await cluster.until("one is told", async () => {
        for (const name of ["low-0", "low-1"]) {
          const conditions = (await cluster.pod(name))?.status?.conditions ?? [];
          told = conditions.find(({ type }) => type === "DisruptionTarget")?.message ?? told;
        }
        return told !== "";
      });
      expect(told).toMatch(/\d/);
      await ended("high");
      await cluster.until("one of the two is gone", async () => {
        const left = await Promise.all(["low-0", "low-1"].map((name) => cluster.pod(name)));
        return left.filter((pod) => pod !== undefined).length === 1;
      });
      for (const name of ["low-0", "low-1", "high"])
        await cluster.core.deleteNamespacedPod({ name, namespace }).catch(() => undefined);
      await noneLeft();
    });

    test("a pod that runs is resized by an annotation", async () => {
      await cluster.createPod("elastic", share(25), {
        spec: { containers: [exampleContainer("main", forever, share(25))] },
      });
      await cluster.until("it runs", async () => (await cluster.pod("elastic"))?.status?.phase === "Running");
      const annotations = { "millpond.dev/resize": "memory=512Mi,compute=50" };
      await cluster.core.patchNamespacedPod(
        { name: "elastic", namespace, body: { metadata: { annotations } } },
        asMergePatch,
      );
      await cluster.until("its claim has the new size", async () => {
        const [claim] = await bound();
        return claim?.memoryBytes === 512n << 20n && claim.computePercent === 50;
      });
      expect((await cluster.pod("elastic"))?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
      await cluster.core.deleteNamespacedPod({ name: "elastic", namespace });
      await noneLeft();
    });

    test("pods that are evicted from their node give back what they held", async () => {
      await cluster.createPod("evicted", share(25), {
        spec: { containers: [exampleContainer("main", forever, share(25))] },
      });
      await cluster.until("it runs", async () => (await cluster.pod("evicted"))?.status?.phase === "Running");
      await cluster.core.createNamespacedPodEviction({
        name: "evicted",
        namespace,
        body: { metadata: { name: "evicted", namespace } },
      });
      await noneLeft();
      expect(await cluster.pod("evicted")).toBeUndefined();
    });

    test("a node that kubectl drains gives back what its pods held, and what replaces them runs when it is there again", async () => {
      const containers = [exampleContainer("main", forever, share(40))];
      await apps.createNamespacedDeployment({
        namespace,
        body: {
          metadata: { name: "drained" },
          spec: {
            replicas: 2,
            selector: { matchLabels: { app: "drained" } },
            template: template("drained", containers),
          },
        },
      });
      await cluster.until("both run", async () => (await running("drained")).length === 2, 120_000);
      const before = new Set((await podsOf("drained")).map(({ metadata }) => metadata?.uid));
      await kubectl("drain", "worker-a", "--ignore-daemonsets", "--timeout=120s");
      const remaining = (await podsOf("drained")).filter(({ metadata }) => before.has(metadata?.uid));
      expect(remaining).toEqual([]);
      await cluster.until("only those that replace them have claims", async () => {
        const uids = new Set((await podsOf("drained")).map(({ metadata }) => metadata?.uid));
        const claims = await liveClaims();
        return claims.length === 2 && claims.every(({ name }) => uids.has(podOfClaim(name)?.uid));
      });
      expect(await running("drained")).toEqual([]);
      await kubectl("uncordon", "worker-a");
      await cluster.until("both run again", async () => (await running("drained")).length === 2, 120_000);
      await expectAgreement();
      await apps.deleteNamespacedDeployment({ namespace, name: "drained" });
      await noneLeft();
    });

    test("claims of pods on a node that is lost and removed end, and not before that", async () => {
      await cluster.createPod("lost", share(25), {
        spec: {
          // Without a grace period the pod would be deleted without its kubelet.
          terminationGracePeriodSeconds: 30,
          containers: [exampleContainer("main", forever, share(25))],
          tolerations: ["not-ready", "unreachable"].map((taint) => ({
            key: `node.kubernetes.io/${taint}`,
            operator: "Exists",
            effect: "NoExecute",
            tolerationSeconds: 1,
          })),
        },
      });
      await cluster.until("it runs", async () => (await cluster.pod("lost"))?.status?.phase === "Running");
      // When no node answers, Kubernetes assumes that it is itself disconnected.
      await using _ = await keepAlive(cluster, "worker-b");
      real.node.stopKubelet();
      await cluster.until(
        "it is to be deleted",
        async () => (await cluster.pod("lost"))?.metadata?.deletionTimestamp !== undefined,
        120_000,
      );
      // Its program may still be running, so its claim must not be given to others.
      expect(await bound()).toHaveLength(1);
      await cluster.core.deleteNode({ name: "worker-a" });
      await cluster.until("it is gone", async () => (await cluster.pod("lost")) === undefined, 180_000);
      await noneLeft();
      real.node.resumeKubelet();
    });
  },
);
