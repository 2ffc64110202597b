// SPDX-License-Identifier: Apache-2.0

// Pods that request nothing of the pool. MILLPOND_KUBERNETES_PLAIN_PODS sets their number.

import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { asMergePatch } from "./cluster/cluster.ts";
import { findKubernetes, withKubernetes } from "./testing/control-plane.ts";
import { OperatorProcess } from "./testing/operator-process.ts";
import { TestCluster } from "./testing/test-cluster.ts";

const podCount = Number(process.env["MILLPOND_KUBERNETES_PLAIN_PODS"] ?? 200);
const rounds = 2;
/** Concurrent calls: few enough that the time of a call is not spent waiting for others. */
const atOnce = 2;

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test(
    `${podCount} pods that ask for nothing cost the webhooks nothing, and the operator no time`,
    async ({ skip }) => {
      await using cluster = await TestCluster.start({ "gpu-a": [16n << 30n] });
      skip(cluster.minor < 28, "webhooks have no match conditions");
      /**
       * Creates pods that no scheduler handles.
       *
       * @returns Median time of a call in milliseconds
       */
      const make = async (prefix: string): Promise<number> => {
        const times: number[] = [];
        const pending = Array.from({ length: podCount }, (_, index) => `${prefix}-${index}`);
        const work = async () => {
          for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
            const begunMs = performance.now();
            await cluster.createPod(name, {}, { spec: { schedulingGates: [{ name: "example.org/none" }] } });
            times.push(performance.now() - begunMs);
          }
        };
        await Promise.all(Array.from({ length: atOnce }, work));
        return times.sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;
      };
      await make("warm-up");
      // The machine does other work too, so the best of several rounds of each counts.
      const times: Record<"with" | "without", number[]> = { with: [], without: [] };
      let cpuMs = 0;
      for (let round = 0; round < rounds; round += 1) {
        times.without.push(await make(`without-${round}`));
        await using operator = await OperatorProcess.start(cluster, `operator-${round}`);
        await delay(3000);
        const idle = { cpuMs: operator.cpuMs, atMs: performance.now() };
        await delay(3000);
        const idleRate = (operator.cpuMs - idle.cpuMs) / (performance.now() - idle.atMs);
        const reviews = await operator.metric("millpond_operator_reviews");
        const busy = { cpuMs: operator.cpuMs, atMs: performance.now() };
        times.with.push(await make(`with-${round}`));
        cpuMs += operator.cpuMs - busy.cpuMs - idleRate * (performance.now() - busy.atMs);
        expect(await operator.metric("millpond_operator_reviews")).toBe(reviews);
        expect(await operator.metric("millpond_operator_pods")).toBe(0);
        await operator.kill();
        const { admission } = cluster.plane.cluster;
        const none = { name: "millpond", body: { webhooks: [] } };
        await admission.patchMutatingWebhookConfiguration(none, asMergePatch);
        await admission.patchValidatingWebhookConfiguration(none, asMergePatch);
        await delay(2000);
      }
      const cpuEach = cpuMs / (rounds * podCount);
      console.log(
        `${podCount} pods that ask for nothing: ${Math.min(...times.with).toFixed(1)} ms each with the webhooks, ` +
          `${Math.min(...times.without).toFixed(1)} ms without; ${cpuEach.toFixed(2)} ms of the operator's CPU each`,
      );
      // With few pods, chance and the 10 ms resolution of process times weigh too much.
      if (podCount >= 1000) expect(cpuEach).toBeLessThan(0.5);
    },
    240_000 + podCount * 200,
  );
});
