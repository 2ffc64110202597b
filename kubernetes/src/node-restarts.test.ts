// SPDX-License-Identifier: Apache-2.0

// A real node whose kubelet, node plugin or machine restarts while pods are prepared or run.

import { AppsV1Api, BatchV1Api } from "@kubernetes/client-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
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
const patienceMs = 180_000;
const vectoradd = ["/usr/bin/vectoradd"];

describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
  `restarts of a real node, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  (allocation) => {
    let real: RealCluster;
    let cluster: TestCluster;
    let pods: RealPods;
    beforeAll(async () => {
      const subnet = allocation === "dra" ? 10 : 11;
      real = await startRealCluster({ allocation, subnet, up: ["--devices", "2", "--device-memory", "4Gi"] });
      ({ cluster } = real);
      pods = new RealPods(real);
    });
    afterAll(async () => {
      await real?.[Symbol.asyncDispose]();
    });
    afterEach(async () => {
      await cluster.core.deleteCollectionNamespacedPod({ namespace, gracePeriodSeconds: 0 });
      await pods.noneLeft();
    });

    const batch = () => cluster.plane.cluster.config.makeApiClient(BatchV1Api);
    const makeJob = (name: string, completions: number) =>
      batch().createNamespacedJob({
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
      (await batch().readNamespacedJob({ namespace, name })).status?.succeeded ?? 0;
    const removeJob = (name: string) =>
      batch().deleteNamespacedJob({ namespace, name, propagationPolicy: "Background" });

    test("pods run on while the node plugin is replaced, and others start after it", async () => {
      await pods.make("before", [exampleContainer("main", endlessCommand, share(25))]);
      await pods.hasPhase("before", "Running");
      await real.replacePlugin();
      // Without its device plugin a kubelet refuses pods, and their Job makes others.
      await makeJob("after", 1);
      await cluster.until("it is done", async () => (await doneOf("after")) === 1, patienceMs);
      const { status } = (await cluster.pod("before")) ?? {};
      expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
      await removeJob("after");
    });

    test("a Job is done although its node's kubelet is killed again and again while its pods are prepared", async () => {
      const completions = 12;
      await makeJob("amid", completions);
      for (let kills = 1; kills <= 3; kills += 1) {
        await cluster.until(
          `it goes on after ${kills - 1} kills`,
          async () => (await doneOf("amid")) >= 3 * kills - 2,
          patienceMs,
        );
        real.node.killKubelet();
      }
      await cluster.until("it is done", async () => (await doneOf("amid")) === completions, patienceMs);
      await pods.noneLeft();
      await removeJob("amid");
    });

    test("a Deployment computes again after its machine has lost power, each pod with its claim", async () => {
      const apps = cluster.plane.cluster.config.makeApiClient(AppsV1Api);
      await apps.createNamespacedDeployment({
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
        const { items } = await cluster.core.listNamespacedPod({ namespace, labelSelector: "app=web" });
        return items
          .flatMap(({ status }) => status?.containerStatuses ?? [])
          .flatMap(({ ready, containerID, state }) => (ready && state?.running ? [containerID ?? ""] : []));
      };
      await cluster.until("both run", async () => (await started()).length === 2, patienceMs);
      const before = await started();
      await real.node.reboot();
      await real.replacePlugin();
      await cluster.until(
        "two others run",
        async () => {
          const now = await started();
          return now.length === 2 && now.every((id) => !before.includes(id));
        },
        patienceMs,
      );
      await cluster.until(
        "each has a claim, and computes",
        async () => {
          const claims = await pods.liveClaims();
          return claims.length === 2 && claims.every(({ openSessions }) => openSessions > 0);
        },
        patienceMs,
      );
      const { items } = await cluster.core.listNamespacedPod({ namespace, labelSelector: "app=web" });
      const live = items.filter(({ status }) => status?.phase === "Running");
      for (const pod of live) expect(await pods.claimOf(pod)).toBeDefined();
      await apps.deleteNamespacedDeployment({ namespace, name: "web" });
    });
  },
);
