// SPDX-License-Identifier: Apache-2.0

// Pods on a real node that fail, are debugged, resized by Kubernetes, suspended, or deleted while they wait: whatever happens
// to them, each claim ends with its pod, and others are not affected.

import type { CoreV1Event, V1Container, V1PodTemplateSpec } from "@kubernetes/client-node";
import { ClaimState } from "@millpond/api";
import { expect, test } from "vitest";
import { asJsonPatch, asMergePatch, asStrategicPatch } from "../cluster/cluster.ts";
import { describeOnRealNode } from "../testing/on-real-node.ts";
import { exampleContainer } from "../testing/real-cluster.ts";
import { endlessCommand, share } from "../testing/real-pods.ts";

const namespace = "default";
const patienceMs = 120_000;

describeOnRealNode("hard pods on a real node", { subnet: 6 }, (on) => {
  const template = (app: string, containers: V1Container[], metadata: object = {}): V1PodTemplateSpec => ({
    metadata: { labels: { app }, ...metadata },
    spec: { restartPolicy: "Never", terminationGracePeriodSeconds: 0, containers },
  });

  test("a Job whose pods fail gets a claim for each attempt, and holds none when it has given up", async () => {
    const container = exampleContainer("main", ["/bin/sh", "-c", "/usr/bin/vectoradd; exit 7"], share(60));
    await on.batch.createNamespacedJob({
      namespace,
      body: {
        metadata: { name: "fails" },
        spec: { backoffLimit: 1, template: template("fails", [container]) },
      },
    });
    await on.cluster.until(
      "it has given up",
      async () => {
        const { status } = await on.batch.readNamespacedJob({ namespace, name: "fails" });
        return (
          status?.conditions?.some(({ type, status: is }) => type === "Failed" && is === "True") === true
        );
      },
      patienceMs,
    );
    const { items } = await on.cluster.core.listNamespacedPod({ namespace, labelSelector: "app=fails" });
    expect(items.map(({ status }) => status?.containerStatuses?.[0]?.state?.terminated?.exitCode)).toEqual([
      7, 7,
    ]);
    for (const { metadata } of items) expect(await on.pods.logOf(metadata?.name ?? "")).toMatch(/OK/);
    await on.pods.noneLeft();
    await on.batch.deleteNamespacedJob({ namespace, name: "fails", propagationPolicy: "Background" });
  });

  test("a Job that is suspended gives back what its pods held, and runs when it is resumed", async () => {
    const container = exampleContainer("main", endlessCommand, share(60));
    await on.batch.createNamespacedJob({
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
      (await on.pods.liveClaims()).filter(({ state }) => state === ClaimState.BOUND).length;
    await on.cluster.until("both are bound", async () => (await bound()) === 2, patienceMs);
    const suspend = (isSuspended: boolean) =>
      on.batch.patchNamespacedJob(
        { namespace, name: "paused", body: { spec: { suspend: isSuspended } } },
        asMergePatch,
      );
    await suspend(true);
    await on.pods.noneLeft();
    await suspend(false);
    await on.cluster.until("both are bound again", async () => (await bound()) === 2, patienceMs);
    await on.batch.deleteNamespacedJob({ namespace, name: "paused", propagationPolicy: "Background" });
    await on.pods.noneLeft();
  });

  test("a namespace that is deleted takes its pods' claims with it, also of those that wait", async () => {
    const place = "doomed";
    await on.pods.makeNamespace(place);
    for (const name of ["a", "b", "c"])
      await on.pods.make(
        name,
        [exampleContainer("main", endlessCommand, share(100))],
        {},
        { namespace: place },
      );
    await on.cluster.until(
      "two run and one waits",
      async () => {
        const { items } = await on.cluster.core.listNamespacedPod({ namespace: place });
        const phases = items.map(({ status }) => status?.phase ?? "").sort();
        return phases.join(" ") === "Pending Running Running";
      },
      patienceMs,
    );
    await on.cluster.core.deleteNamespace({ name: place });
    await on.pods.noneLeft();
    await on.cluster.until(
      "it is gone",
      async () => {
        const { items } = await on.cluster.core.listNamespace();
        return !items.some(({ metadata }) => metadata?.name === place);
      },
      patienceMs,
    );
  });

  test("a pod that is deleted while it waits leaves nothing, and the next in the queue is not held up", async () => {
    for (const name of ["big-0", "big-1"])
      await on.pods.make(name, [exampleContainer("main", endlessCommand, share(100))]);
    for (const name of ["big-0", "big-1"]) await on.pods.hasPhase(name, "Running");
    const first = await on.pods.make("first", [exampleContainer("main", endlessCommand, share(100))]);
    await on.cluster.until("it waits", async () => /\d/.test(await on.pods.reasonOf("first")));
    await on.pods.make("second", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100))]);
    await on.cluster.until("the second waits behind it", async () =>
      /\d/.test(await on.pods.reasonOf("second")),
    );
    await on.pods.remove("first");
    await on.cluster.until("its claim has ended", async () => (await on.pods.claimOf(first)) === undefined);
    await on.pods.remove("big-0");
    await on.pods.hasPhase("second", "Succeeded");
    await on.pods.remove("big-1");
    await on.pods.remove("second");
    await on.pods.noneLeft();
  });

  test("a container that is added for debugging sees no vGPU, and the pod goes on", async () => {
    await on.pods.make("debugged", [exampleContainer("main", endlessCommand, share(25))]);
    await on.pods.hasPhase("debugged", "Running");
    const { resources: _, ...debug } = exampleContainer(
      "debug",
      ["/bin/sh", "-c", "ls /usr/lib/millpond 2>&1; env | grep -c MILLPOND; exit 0"],
      {},
    );
    await on.cluster.core.patchNamespacedPodEphemeralcontainers(
      { name: "debugged", namespace, body: { spec: { ephemeralContainers: [debug] } } },
      asStrategicPatch,
    );
    await on.cluster.until(
      "it has ended",
      async () =>
        (await on.cluster.pod("debugged"))?.status?.ephemeralContainerStatuses?.[0]?.state?.terminated !==
        undefined,
      patienceMs,
    );
    expect((await on.pods.logOf("debugged", "debug")).trim().split("\n").at(-1)).toBe("0");
    expect(await on.pods.logOf("debugged", "debug")).toMatch(/No such file/);
    const { status } = (await on.cluster.pod("debugged")) ?? {};
    expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
    await on.pods.remove("debugged");
    await on.pods.noneLeft();
  });

  test("containers with several vGPUs each see as many, and a wrong program of one does not touch the other", async () => {
    const look = (count: number) => [
      "/bin/sh",
      "-c",
      `/usr/bin/deviceinfo; /usr/bin/vectoradd; exit ${count}`,
    ];
    await on.pods.make("several", [
      exampleContainer("two", look(2), share(30, 2)),
      exampleContainer("one", look(1), share(20)),
    ]);
    await on.pods.hasPhase("several", "Failed");
    const devices = async (container: string) =>
      [...(await on.pods.logOf("several", container)).matchAll(/pci \S+/g)].length;
    expect([await devices("two"), await devices("one")]).toEqual([2, 1]);
    for (const container of ["two", "one"])
      expect(await on.pods.logOf("several", container)).toMatch(/vectoradd: OK/);
    await on.pods.noneLeft();
    await on.pods.remove("several");
  });

  test("a vGPU stays when Kubernetes resizes the CPU of its pod in place, or refuses to", async (context) => {
    if (on.cluster.minor < 33) context.skip("pods are not resized in place");
    const container = exampleContainer("main", endlessCommand, { ...share(25), cpu: "200m" });
    const pod = await on.pods.make("grows", [container]);
    await on.pods.hasPhase("grows", "Running");
    const before = await on.pods.claimOf(pod);
    const cpu = { cpu: "300m" };
    const containers = [{ name: "main", resources: { requests: cpu, limits: cpu } }];
    const resized = on.cluster.core.patchNamespacedPodResize(
      { name: "grows", namespace, body: { spec: { containers } } },
      asStrategicPatch,
    );
    // Kubernetes 1.36 resizes no container that has a ResourceClaim.
    if (on.allocation === "dra") await expect(resized).rejects.toThrow("only cpu and memory");
    else {
      await resized;
      await on.cluster.until("it has it", async () => {
        const found = (await on.cluster.pod("grows"))?.status?.containerStatuses?.[0];
        return String(found?.resources?.limits?.["cpu"]) === "300m";
      });
    }
    expect((await on.cluster.pod("grows"))?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
    expect((await on.pods.claimOf(pod))?.allocation?.epoch).toBe(before?.allocation?.epoch);
    await on.pods.remove("grows");
    await on.pods.noneLeft();
  });

  test("a pod at its deadline, and one with a finalizer, give back what they held", async () => {
    await on.pods.make("late", [exampleContainer("main", endlessCommand, share(25))], {
      activeDeadlineSeconds: 6,
    });
    await on.pods.hasPhase("late", "Failed");
    expect((await on.cluster.pod("late"))?.status?.reason).toBe("DeadlineExceeded");
    await on.pods.noneLeft();
    await on.pods.remove("late");
    const finalizers = ["example.org/archive"];
    await on.pods.make("kept", [exampleContainer("main", endlessCommand, share(25))], {}, { finalizers });
    await on.pods.hasPhase("kept", "Running");
    await on.pods.remove("kept");
    // Its object stays, and nothing of it runs.
    await on.pods.noneLeft();
    expect((await on.cluster.pod("kept"))?.metadata?.deletionTimestamp).toBeDefined();
    await on.cluster.core.patchNamespacedPod(
      { name: "kept", namespace, body: [{ op: "remove", path: "/metadata/finalizers" }] },
      asJsonPatch,
    );
    await on.cluster.until("it is gone", async () => (await on.cluster.pod("kept")) === undefined);
  });

  test("a pod that another gate holds back takes nothing from the pool until that gate is open", async (context) => {
    if (!on.cluster.isGated) context.skip("there are no gates");
    const schedulingGates = [{ name: "example.org/quota" }];
    await on.pods.make("held", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100))], {
      schedulingGates,
    });
    await on.pods.make("free", [exampleContainer("main", ["/usr/bin/vectoradd"], share(100, 2))]);
    await on.pods.hasPhase("free", "Succeeded");
    expect((await on.cluster.pod("held"))?.status?.phase).toBe("Pending");
    await on.cluster.core.patchNamespacedPod(
      {
        name: "held",
        namespace,
        body: [
          {
            op: "replace",
            path: "/spec/schedulingGates",
            value: ((await on.cluster.pod("held"))?.spec?.schedulingGates ?? []).filter(
              ({ name }) => name !== "example.org/quota",
            ),
          },
        ],
      },
      asJsonPatch,
    );
    await on.pods.hasPhase("held", "Succeeded");
    for (const name of ["held", "free"]) await on.pods.remove(name);
    await on.pods.noneLeft();
  });

  test("events of a pod tell its whole way", async () => {
    await on.pods.make("told", [exampleContainer("main", ["/usr/bin/vectoradd"], share(25))]);
    await on.pods.hasPhase("told", "Succeeded");
    const { items } = await on.cluster.core.listNamespacedEvent({ namespace });
    const reasons = items
      .filter((event: CoreV1Event) => event.involvedObject.name === "told")
      .map(({ reason }) => reason);
    for (const reason of ["MillpondBound", "Scheduled", "Started"]) expect(reasons).toContain(reason);
    await on.pods.remove("told");
    await on.pods.noneLeft();
  });
});
