// SPDX-License-Identifier: Apache-2.0

// A real node whose kubelet, node plugin or machine restarts while pods are prepared or run.

import { expect, test } from "vitest";
import { describeOnRealNode } from "../testing/on-real-node.ts";
import { exampleContainer } from "../testing/real-cluster.ts";
import { endlessCommand, share } from "../testing/real-pods.ts";

const namespace = "default";
const patienceMs = 180_000;
const vectoradd = ["/usr/bin/vectoradd"];

describeOnRealNode("restarts of a real node", { subnet: 10 }, (on) => {
  const makeJob = (name: string, completions: number) =>
    on.batch.createNamespacedJob({
      namespace,
      body: {
        metadata: { name },
        spec: {
          parallelism: 4,
          completions,
          backoffLimit: 100,
          template: {
            spec: {
              restartPolicy: "Never",
              terminationGracePeriodSeconds: 0,
              containers: [exampleContainer("main", vectoradd, share(25))],
            },
          },
        },
      },
    });
  const doneOf = async (name: string) =>
    (await on.batch.readNamespacedJob({ namespace, name })).status?.succeeded ?? 0;
  const removeJob = (name: string) =>
    on.batch.deleteNamespacedJob({ namespace, name, propagationPolicy: "Background" });

  test("pods run on while the node plugin is replaced, and others start after it", async () => {
    await on.pods.make("before", [exampleContainer("main", endlessCommand, share(25))]);
    await on.pods.hasPhase("before", "Running");
    await on.real.replacePlugin();
    // Without its device plugin a kubelet refuses pods, and their Job makes others.
    await makeJob("after", 1);
    await on.cluster.until("it is done", async () => (await doneOf("after")) === 1, patienceMs);
    const { status } = (await on.cluster.pod("before")) ?? {};
    expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
    await removeJob("after");
  });

  test("a Job is done although its node's kubelet is killed again and again while its pods are prepared", async () => {
    const completions = 12;
    await makeJob("amid", completions);
    for (let kills = 1; kills <= 3; kills += 1) {
      await on.cluster.until(
        `it goes on after ${kills - 1} kills`,
        async () => (await doneOf("amid")) >= 3 * kills - 2,
        patienceMs,
      );
      on.real.node.killKubelet();
    }
    await on.cluster.until("it is done", async () => (await doneOf("amid")) === completions, patienceMs);
    await on.pods.noneLeft();
    await removeJob("amid");
  });

  test("a Deployment computes again after its machine has lost power, each pod with its claim", async () => {
    await on.apps.createNamespacedDeployment({
      namespace,
      body: {
        metadata: { name: "web" },
        spec: {
          replicas: 2,
          selector: { matchLabels: { app: "web" } },
          template: {
            metadata: { labels: { app: "web" } },
            spec: {
              terminationGracePeriodSeconds: 0,
              containers: [exampleContainer("main", endlessCommand, share(40))],
            },
          },
        },
      },
    });
    const started = async () => {
      const { items } = await on.cluster.core.listNamespacedPod({ namespace, labelSelector: "app=web" });
      return items
        .flatMap(({ status }) => status?.containerStatuses ?? [])
        .flatMap(({ ready, containerID, state }) => (ready && state?.running ? [containerID ?? ""] : []));
    };
    await on.cluster.until("both run", async () => (await started()).length === 2, patienceMs);
    const before = await started();
    await on.real.node.reboot();
    await on.real.replacePlugin();
    await on.cluster.until(
      "two others run",
      async () => {
        const now = await started();
        return now.length === 2 && now.every((id) => !before.includes(id));
      },
      patienceMs,
    );
    await on.cluster.until(
      "each has a claim, and computes",
      async () => {
        const claims = await on.pods.liveClaims();
        return claims.length === 2 && claims.every(({ openSessions }) => openSessions > 0);
      },
      patienceMs,
    );
    const { items } = await on.cluster.core.listNamespacedPod({ namespace, labelSelector: "app=web" });
    const live = items.filter(({ status }) => status?.phase === "Running");
    for (const pod of live) expect(await on.pods.claimOf(pod)).toBeDefined();
    await on.apps.deleteNamespacedDeployment({ namespace, name: "web" });
  });
});
