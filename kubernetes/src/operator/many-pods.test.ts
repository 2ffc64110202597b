// SPDX-License-Identifier: Apache-2.0

// Many pods at once, with processes killed in between. MILLPOND_KUBERNETES_PODS and MILLPOND_KUBERNETES_KILLS extend
// the test.

import { ClaimState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { podOfClaim } from "../request/pod-claims.ts";
import { findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { OperatorProcess } from "../testing/operator-process.ts";
import { TestCluster } from "../testing/test-cluster.ts";

const GiB = 1n << 30n;
const podCount = Number(process.env["MILLPOND_KUBERNETES_PODS"] ?? 60);
const killCount = Number(process.env["MILLPOND_KUBERNETES_KILLS"] ?? 6);

/** Pods run longer when many processes are killed; a kill and its consequences take seconds. */
const timeoutMs = 240_000 + (podCount + 30 * killCount) * 500;

/** 20 nodes of two devices: room for three fifths of the pods. */
async function startCluster(): Promise<TestCluster> {
  const nodes = Object.fromEntries(
    Array.from({ length: 20 }, (_, index) => [`gpu-${index}`, [16n * GiB, 16n * GiB]]),
  );
  const cluster = await TestCluster.start(nodes);
  for (const name of ["worker-1", "worker-2"]) await cluster.addNode(name);
  return cluster;
}

const share = (count: number) => String(Math.min(100, Math.max(1, Math.floor((40 * 100) / (count * 0.6)))));

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test(
    `${podCount} pods that ask at once are bound, or wait with the pool's reason`,
    async () => {
      await using cluster = await startCluster();
      await using operator = await OperatorProcess.start(cluster, "operator-0");
      if (!cluster.isGated) await cluster.useExtender(operator);
      // The pool has been published, so later events concern pods.
      await cluster.createPod("first", { "millpond.dev/compute": "1", "millpond.dev/memory": "1Mi" });
      await cluster.until(
        "the first is bound",
        async () => (await cluster.pod("first"))?.spec?.nodeName !== undefined,
      );
      const cpuBefore = operator.cpuMs;
      const limits = { "millpond.dev/compute": share(podCount), "millpond.dev/memory": "1Mi" };
      const start = performance.now();
      const pending = Array.from({ length: podCount }, (_, index) => index);
      const create = async () => {
        for (let index = pending.pop(); index !== undefined; index = pending.pop())
          await cluster.createPod(`p-${index}`, limits);
      };
      await Promise.all(Array.from({ length: 16 }, create));
      const created = performance.now();
      let bound = 0;
      let waiting = 0;
      await cluster.until(
        "all are bound or wait",
        async () => {
          const { items } = await cluster.core.listNamespacedPod({ namespace: "default" });
          bound = items.filter(({ spec }) => spec?.nodeName !== undefined).length;
          waiting = items.filter(
            ({ spec, status }) =>
              spec?.nodeName === undefined &&
              status?.conditions?.some(
                ({ type, reason, message }) =>
                  type === "millpond.dev/Bound" &&
                  reason === "Waiting" &&
                  /no device has .*\d/.test(message ?? ""),
              ),
          ).length;
          return bound + waiting === podCount + 1;
        },
        240_000,
      );
      const settledMs = performance.now() - start;
      const cpuEach = (operator.cpuMs - cpuBefore) / podCount;
      const seconds = (ms: number) => (ms / 1000).toFixed(1);
      console.log(
        `${podCount} pods: created in ${seconds(created - start)} s, all bound (${bound}) or waiting (${waiting}) after ${seconds(settledMs)} s; ` +
          `operator ${cpuEach.toFixed(1)} ms of CPU per pod`,
      );
      const { claims } = await cluster.pool.connect().claims.listClaims({});
      expect(claims.filter(({ state }) => state === ClaimState.BOUND)).toHaveLength(bound);
      expect(waiting).toBeGreaterThan(0);
      // With fewer pods the time in which the operator only waits, and that of its start, are too large a part.
      if (podCount < 500) return;
      expect(settledMs).toBeLessThan(60_000);
      expect(cpuEach).toBeLessThan(20);
    },
    timeoutMs,
  );

  test(
    `${killCount} kills of operators, API server and controller leave no pod without claim and no claim without pod`,
    async ({ skip }) => {
      await using cluster = await startCluster();
      skip(!cluster.isGated, "the scheduler asks one operator, and no other if that is killed");
      const operators = [
        await OperatorProcess.start(cluster, "operator-0"),
        await OperatorProcess.start(cluster, "operator-1"),
      ];
      await using cleanup = new AsyncDisposableStack();
      cleanup.defer(async () => {
        for (const each of operators) await each.kill();
      });
      // Pods are created and deleted all the while.
      let random = 20_261_123;
      const next = (below: number): number => {
        random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
        return Math.floor((random / 2 ** 32) * below);
      };
      let tried = 0;
      let made = 0;
      const alive: string[] = [];
      const churn = new AbortController();
      const churning = (async () => {
        while (!churn.signal.aborted) {
          // A pod may be there although its answer was lost with the API server: no name is tried twice.
          const name = `c-${tried}`;
          tried += 1;
          try {
            await cluster.createPod(name, { "millpond.dev/compute": "20", "millpond.dev/memory": "1Gi" });
            made += 1;
            alive.push(name);
            // No more than the pool allows to wait.
            if (next(3) === 0 || alive.length > 200) {
              const [victim = name] = alive.splice(next(alive.length), 1);
              await cluster.core.deleteNamespacedPod({
                name: victim,
                namespace: "default",
                gracePeriodSeconds: 0,
              });
            }
          } catch {
            // An API server or webhook that is restarting refuses calls; the next pod is tried.
          }
          await new Promise((resolve) => setTimeout(resolve, 30));
        }
      })();
      for (let kill = 0; kill < killCount; kill += 1) {
        await new Promise((resolve) => setTimeout(resolve, 200 + next(800)));
        const what = next(4);
        if (what < 2) {
          await operators[what]?.kill();
          operators[what] = await OperatorProcess.start(cluster, `operator-${what}-${kill}`);
        } else if (what === 2) await cluster.plane.restartApiServer();
        else await cluster.pool.restartController();
      }
      churn.abort();
      await churning;
      const { minor } = cluster;
      await cluster.until(
        "books and pods agree",
        async () => {
          const { items } = await cluster.core.listNamespacedPod({ namespace: "default" });
          const { claims } = await cluster.pool.connect().claims.listClaims({});
          const pods = new Map(items.map((pod) => [pod.metadata?.uid ?? "", pod]));
          const orphans = claims.filter(({ name }) => !pods.has(podOfClaim(name)?.uid ?? ""));
          const bound = new Set(
            claims.filter(({ state }) => state === ClaimState.BOUND).map(({ name }) => name),
          );
          const unbacked = items.filter(
            ({ metadata, spec }) => spec?.nodeName !== undefined && !bound.has(`pod-${metadata?.uid}`),
          );
          const unbound = items.filter(
            ({ metadata, spec }) => spec?.nodeName === undefined && bound.has(`pod-${metadata?.uid}`),
          );
          const claimless = items.filter(
            ({ metadata }) => !claims.some(({ name }) => name === `pod-${metadata?.uid}`),
          );
          if (orphans.length + unbacked.length + unbound.length + claimless.length === 0) return true;
          throw new Error(
            `${orphans.length} claims without pod, ${unbacked.length} pods run without claim, ${unbound.length} bound and not scheduled, ${claimless.length} pods without claim`,
          );
        },
        60_000,
      );
      console.log(`${killCount} kills, ${made} pods made, ${tried - made} refused meanwhile`);
      expect(made).toBeGreaterThan(killCount);
      // Nothing was granted twice: the parts of each device that pods hold do not exceed it, in both records.
      const { nodes } = await cluster.pool.connect().pool.listNodes({});
      for (const { devices } of nodes) {
        for (const { allocatedComputePercent } of devices)
          expect(allocatedComputePercent).toBeLessThanOrEqual(100);
      }
      if (minor < 34) return;
      const used = new Map<string, number>();
      const { items } = await cluster.plane.cluster.resource.listNamespacedResourceClaim({
        namespace: "default",
      });
      for (const { status } of items) {
        for (const { pool, device, consumedCapacity } of status?.allocation?.devices?.results ?? []) {
          const key = `${pool}/${device}`;
          used.set(key, (used.get(key) ?? 0) + Number(consumedCapacity?.["cores"] ?? 0));
        }
      }
      for (const [device, percent] of used) expect(percent, device).toBeLessThanOrEqual(100);
    },
    timeoutMs,
  );
});
