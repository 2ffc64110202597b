// SPDX-License-Identifier: Apache-2.0

// Pods on a real node that fail, are debugged, resized by Kubernetes, suspended, or deleted while they wait: whatever happens
// to them, each claim ends with its pod, and others are not affected.

import {
  BatchV1Api,
  type CoreV1Event,
  type V1Container,
  type V1PodTemplateSpec,
} from "@kubernetes/client-node";
import { ClaimState } from "@millpond/api";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { asJsonPatch, asMergePatch, asStrategicPatch } from "./cluster/cluster.ts";
import {
  exampleContainer,
  missingCluster,
  type RealCluster,
  startRealCluster,
} from "./testing/real-cluster.ts";
import { endlessCommand, RealPods, share } from "./testing/real-pods.ts";
import type { TestCluster } from "./testing/test-cluster.ts";

const missing = missingCluster();
const namespace = "default";
const patienceMs = 120_000;

describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
  `hard pods on a real node, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  (allocation) => {
    let real: RealCluster;
    let cluster: TestCluster;
    let pods: RealPods;
    let batch: BatchV1Api;
    beforeAll(async () => {
      const subnet = allocation === "dra" ? 6 : 7;
      real = await startRealCluster({ allocation, subnet, up: ["--devices", "2", "--device-memory", "4Gi"] });
      ({ cluster } = real);
      pods = new RealPods(real);
      batch = cluster.plane.cluster.config.makeApiClient(BatchV1Api);
    });
    afterAll(async () => {
      await real?.[Symbol.asyncDispose]();
    });

    afterEach(async () => {
      await cluster.core.deleteCollectionNamespacedPod({ namespace, gracePeriodSeconds: 0 });
      await pods.noneLeft();
    });

    const template = (app: string, containers: V1Container[], metadata: object = {}): V1PodTemplateSpec => ({
      metadata: { labels: { app }, ...metadata },
      spec: { restartPolicy: "Never", terminationGracePeriodSeconds: 0, containers },
    });

    test("a Job whose pods fail gets a claim for each attempt, and holds none when it has given up", async () => {
      const container = exampleContainer("main", ["/bin/sh", "-c", "/usr/bin/vectoradd; exit 7"], share(60));
      await batch.createNamespacedJob({
        namespace,
        body: {
          metadata: { name: "fails" },
          spec: { backoffLimit: 1, template: template("fails", [container]) },
        },
      });
      await cluster.until(
        "it has given up",
        async () => {
          const { status } = await batch.readNamespacedJob({ namespace, name: "fails" });
          return (
            status?.conditions?.some(({ type, status: is }) => type === "Failed" && is === "True") === true
          );
        },
        patienceMs,
      );
      const { items } = await cluster.core.listNamespacedPod({ namespace, labelSelector: "app=fails" });
      expect(items.map(({ status }) => status?.containerStatuses?.[0]?.state?.terminated?.exitCode)).toEqual([
        7, 7,
      ]);
      for (const { metadata } of items) expect(await pods.logOf(metadata?.name ?? "")).toMatch(/OK/);
      await pods.noneLeft();
      await batch.deleteNamespacedJob({ namespace, name: "fails", propagationPolicy: "Background" });
    });

    test("a Job that is suspended gives back what its pods held, and runs when it is resumed", async () => {
      const container = exampleContainer("main", endlessCommand, share(60));
      await batch.createNamespacedJob({
        namespace,
        body: {
          metadata: { name: "paused" },
          spec: {
            parallelism: 2,
            completions: 2,
            template: template("paused", [container], { annotations: { "millpond.dev/gang-size": "all" } }),
          },
        },
      });
      const bound = async () =>
        (await pods.liveClaims()).filter(({ state }) => state === ClaimState.BOUND).length;
      await cluster.until("both are bound", async () => (await bound()) === 2, patienceMs);
      const suspend = (isSuspended: boolean) =>
        batch.patchNamespacedJob(
          { namespace, name: "paused", body: { spec: { suspend: isSuspended } } },
          asMergePatch,
        );
      await suspend(true);
      await pods.noneLeft();
      await suspend(false);
      await cluster.until("both are bound again", async () => (await bound()) === 2, patienceMs);
      await batch.deleteNamespacedJob({ namespace, name: "paused", propagationPolicy: "Background" });
      await pods.noneLeft();
    });

    test("a namespace that is deleted takes its pods' claims with it, also of those that wait", async () => {
      const place = "doomed";
      await pods.makeNamespace(place);
      for (const name of ["a", "b", "c"])
        await pods.make(
          name,
          [exampleContainer("main", endlessCommand, share(100))],
          {},
          { namespace: place },
        );
      await cluster.until(
        "two run and one waits",
        async () => {
          const { items } = await cluster.core.listNamespacedPod({ namespace: place });
          const phases = items.map(({ status }) => status?.phase ?? "").sort();
          return phases.join(" ") === "Pending Running Running";
        },
        patienceMs,
      );
      await cluster.core.deleteNamespace({ name: place });
      await pods.noneLeft();
      await cluster.until(
        "it is gone",
        async () => {
          const { items } = await cluster.core.listNamespace();
          return !items.some(({ metadata }) => metadata?.name === place);
        },
        patienceMs,
      );
    });

    test("a pod that is deleted while it waits leaves nothing, and the next in the queue is not held up", async () => {
      for (const name of ["big-0", "big-1"])
        await pods.make(name, [exampleContainer("main", endlessCommand, share(100))]);
      for (const name of ["big-0", "big-1"]) await pods.hasPhase(name, "Running");
      const first = await pods.make("first", [exampleContainer("main", endlessCommand, share(100))]);
      await cluster.until("it waits", async () => /\d/.test(await pods.reasonOf("first")));
      await pods.make("second", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100))]);
      await cluster.until("the second waits behind it", async () => /\d/.test(await pods.reasonOf("second")));
      await pods.remove("first");
      await cluster.until("its claim has ended", async () => (await pods.claimOf(first)) === undefined);
      await pods.remove("big-0");
      await pods.hasPhase("second", "Succeeded");
      await pods.remove("big-1");
      await pods.remove("second");
      await pods.noneLeft();
    });

    test("a container that is added for debugging sees no vGPU, and the pod goes on", async () => {
      await pods.make("debugged", [exampleContainer("main", endlessCommand, share(25))]);
      await pods.hasPhase("debugged", "Running");
      const { resources: _, ...debug } = exampleContainer(
        "debug",
        ["/bin/sh", "-c", "ls /usr/lib/millpond 2>&1; env | grep -c MILLPOND; exit 0"],
        {},
      );
      await cluster.core.patchNamespacedPodEphemeralcontainers(
        { name: "debugged", namespace, body: { spec: { ephemeralContainers: [debug] } } },
        asStrategicPatch,
      );
      await cluster.until(
        "it has ended",
        async () =>
          (await cluster.pod("debugged"))?.status?.ephemeralContainerStatuses?.[0]?.state?.terminated !==
          undefined,
        patienceMs,
      );
      expect((await pods.logOf("debugged", "debug")).trim().split("\n").at(-1)).toBe("0");
      expect(await pods.logOf("debugged", "debug")).toMatch(/No such file/);
      const { status } = (await cluster.pod("debugged")) ?? {};
      expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
      await pods.remove("debugged");
      await pods.noneLeft();
    });

    test("containers with several vGPUs each see as many, and a wrong program of one does not touch the other", async () => {
      const look = (count: number) => [
        "/bin/sh",
        "-c",
        `/usr/bin/deviceinfo; /usr/bin/vectoradd; exit ${count}`,
      ];
      await pods.make("several", [
        exampleContainer("two", look(2), share(30, 2)),
        exampleContainer("one", look(1), share(20)),
      ]);
      await pods.hasPhase("several", "Failed");
      const devices = async (container: string) =>
        [...(await pods.logOf("several", container)).matchAll(/pci \S+/g)].length;
      expect([await devices("two"), await devices("one")]).toEqual([2, 1]);
      for (const container of ["two", "one"])
        expect(await pods.logOf("several", container)).toMatch(/vectoradd: OK/);
      await pods.noneLeft();
      await pods.remove("several");
    });

    test("a vGPU stays when Kubernetes resizes the CPU of its pod in place, or refuses to", async (context) => {
      if (cluster.minor < 33) context.skip("pods are not resized in place");
      const container = exampleContainer("main", endlessCommand, { ...share(25), cpu: "200m" });
      const pod = await pods.make("grows", [container]);
      await pods.hasPhase("grows", "Running");
      const before = await pods.claimOf(pod);
      const cpu = { cpu: "300m" };
      const containers = [{ name: "main", resources: { requests: cpu, limits: cpu } }];
      const resized = cluster.core.patchNamespacedPodResize(
        { name: "grows", namespace, body: { spec: { containers } } },
        asStrategicPatch,
      );
      // Kubernetes 1.36 resizes no container that has a ResourceClaim.
      if (allocation === "dra") await expect(resized).rejects.toThrow("only cpu and memory");
      else {
        await resized;
        await cluster.until("it has it", async () => {
          const found = (await cluster.pod("grows"))?.status?.containerStatuses?.[0];
          return String(found?.resources?.limits?.["cpu"]) === "300m";
        });
      }
      expect((await cluster.pod("grows"))?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
      expect((await pods.claimOf(pod))?.allocation?.epoch).toBe(before?.allocation?.epoch);
      await pods.remove("grows");
      await pods.noneLeft();
    });

    test("a pod at its deadline, and one with a finalizer, give back what they held", async () => {
      await pods.make("late", [exampleContainer("main", endlessCommand, share(25))], {
        activeDeadlineSeconds: 6,
      });
      await pods.hasPhase("late", "Failed");
      expect((await cluster.pod("late"))?.status?.reason).toBe("DeadlineExceeded");
      await pods.noneLeft();
      await pods.remove("late");
      const finalizers = ["example.org/archive"];
      await pods.make("kept", [exampleContainer("main", endlessCommand, share(25))], {}, { finalizers });
      await pods.hasPhase("kept", "Running");
      await pods.remove("kept");
      // Its object stays, and nothing of it runs.
      await pods.noneLeft();
      expect((await cluster.pod("kept"))?.metadata?.deletionTimestamp).toBeDefined();
      await cluster.core.patchNamespacedPod(
        { name: "kept", namespace, body: [{ op: "remove", path: "/metadata/finalizers" }] },
        asJsonPatch,
      );
      await cluster.until("it is gone", async () => (await cluster.pod("kept")) === undefined);
    });

    test("a pod that another gate holds back takes nothing from the pool until that gate is open", async (context) => {
      if (!cluster.isGated) context.skip("there are no gates");
      const schedulingGates = [{ name: "example.org/quota" }];
      await pods.make("held", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100))], {
        schedulingGates,
      });
      await pods.make("free", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100, 2))]);
      await pods.hasPhase("free", "Succeeded");
      expect((await cluster.pod("held"))?.status?.phase).toBe("Pending");
      await cluster.core.patchNamespacedPod(
        {
          name: "held",
          namespace,
          body: [
            {
              op: "replace",
              path: "/spec/schedulingGates",
              value: ((await cluster.pod("held"))?.spec?.schedulingGates ?? []).filter(
                ({ name }) => name !== "example.org/quota",
              ),
            },
          ],
        },
        asJsonPatch,
      );
      await pods.hasPhase("held", "Succeeded");
      for (const name of ["held", "free"]) await pods.remove(name);
      await pods.noneLeft();
    });

    test("events of a pod tell its whole way", async () => {
      await pods.make("told", [exampleContainer("main", ["/usr/bin/vectoradd"], share(25))]);
      await pods.hasPhase("told", "Succeeded");
      const { items } = await cluster.core.listNamespacedEvent({ namespace });
      const reasons = items
        .filter((event: CoreV1Event) => event.involvedObject.name === "told")
        .map(({ reason }) => reason);
      for (const reason of ["MillpondBound", "Scheduled", "Started"]) expect(reasons).toContain(reason);
      await pods.remove("told");
      await pods.noneLeft();
    });
  },
);
