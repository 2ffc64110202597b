// SPDX-License-Identifier: Apache-2.0

// Many pods, with operators killed in between, on a simulated API server with a scheduler that binds immediately:
// `many-pods.test.ts` does the same with a real control plane. MILLPOND_KUBERNETES_PODS and MILLPOND_KUBERNETES_KILLS
// extend the test.

import { setTimeout as delay } from "node:timers/promises";
import { ClaimState } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { podOfClaim } from "../request/pod-claims.ts";
import { OperatorProcess } from "../testing/operator-process.ts";
import { PlayedCluster } from "../testing/played/played-cluster.ts";

const GiB = 1n << 30n;
const podCount = Number(process.env["MILLPOND_KUBERNETES_PODS"] ?? 60);
const killCount = Number(process.env["MILLPOND_KUBERNETES_KILLS"] ?? 6);
const timeout = 240_000 + (podCount + 30 * killCount) * 500;
const namespace = "default";

async function start(): Promise<PlayedCluster> {
  const nodes = Array.from({ length: 20 }, (_, index) => [`gpu-${index}`, [16n * GiB, 16n * GiB]] as const);
  const cluster = await PlayedCluster.start(Object.fromEntries(nodes));
  onTestFinished(() => cluster[Symbol.asyncDispose]());
  cluster.server.schedule("worker-1");
  return cluster;
}

/** How pods and claims disagree; empty: they agree. */
async function disagreements(cluster: PlayedCluster): Promise<string[]> {
  const { items } = await cluster.core.listNamespacedPod({ namespace });
  const { claims } = await cluster.pool.connect().claims.listClaims({});
  const uids = new Set(items.map(({ metadata }) => metadata?.uid));
  const states = new Map(claims.map(({ name, state }) => [name, state]));
  const isLive = (state: ClaimState) => state !== ClaimState.RELEASED && state !== ClaimState.FAILED;
  return [
    ...claims
      .filter(({ name, state }) => isLive(state) && !uids.has(podOfClaim(name)?.uid))
      .map(({ name }) => `${name} has no pod`),
    ...items.flatMap(({ metadata, spec }) => {
      const state = states.get(`pod-${metadata?.uid}`);
      const isPlaced = spec?.nodeName !== undefined;
      if (state === undefined) return [`${metadata?.name} has no claim`];
      return isPlaced === (state === ClaimState.BOUND)
        ? []
        : [`${metadata?.name} is placed: ${isPlaced}, its claim ${state}`];
    }),
  ];
}

test(`${podCount} pods that ask at once are placed, or wait with the pool's reason, for little of the operator's time`, {
  timeout,
}, async () => {
  const cluster = await start();
  await using operator = await OperatorProcess.start(cluster, "operator-0");
  await cluster.createPod("first", { "millpond.dev/compute": "1", "millpond.dev/memory": "1Mi" });
  await expect.poll(() => cluster.bound("first"), { timeout }).toBe("True Bound");
  const cpuMs = operator.cpuMs;
  // Three fifths of the pods fit.
  const compute = String(Math.min(100, Math.max(1, Math.floor((40 * 100) / (podCount * 0.6)))));
  const limits = { "millpond.dev/compute": compute, "millpond.dev/memory": "1Mi" };
  const begun = performance.now();
  await Promise.all(Array.from({ length: podCount }, (_, index) => cluster.createPod(`p-${index}`, limits)));
  const unsettled = async () => {
    const { items } = await cluster.core.listNamespacedPod({ namespace });
    return items.filter(({ spec, status }) => {
      const found = status?.conditions?.find(({ type }) => type === "millpond.dev/Bound");
      const waits = found?.reason === "Waiting" && /no device has .*\d/.test(found.message ?? "");
      return spec?.nodeName === undefined && !waits;
    }).length;
  };
  await expect.poll(unsettled, { timeout, interval: 250 }).toBe(0);
  const perPod = (operator.cpuMs - cpuMs) / podCount;
  const seconds = (performance.now() - begun) / 1000;
  console.log(
    `${podCount} pods: after ${seconds.toFixed(1)} s, ${perPod.toFixed(1)} ms of the operator's CPU for each`,
  );
  await expect.poll(() => disagreements(cluster), { timeout, interval: 500 }).toEqual([]);
  // With fewer pods, the time in which the operator only waits and the time of its start are too large a part.
  if (podCount >= 500) expect(perPod).toBeLessThan(20);
});

test(`${killCount} kills of operators, API server and controller leave no pod without claim and no claim without pod`, {
  timeout,
}, async () => {
  const cluster = await start();
  const operators = [
    await OperatorProcess.start(cluster, "operator-0"),
    await OperatorProcess.start(cluster, "operator-1"),
  ];
  onTestFinished(async () => {
    for (const each of operators) await each.kill();
  });
  let random = 20_261_125;
  const next = (below: number): number => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((random / 2 ** 32) * below);
  };
  let tried = 0;
  let made = 0;
  const alive: string[] = [];
  /** Creates a pod, and deletes another one now and then; an API server or a webhook that is restarting may refuse either. */
  const churn = async (): Promise<void> => {
    // A pod may be there although its answer was lost with the API server: no name is tried twice.
    const name = `c-${tried}`;
    tried += 1;
    await cluster.createPod(name, { "millpond.dev/compute": "20", "millpond.dev/memory": "1Gi" });
    made += 1;
    alive.push(name);
    if (next(3) !== 0 && alive.length < 200) return;
    const [victim = name] = alive.splice(next(alive.length), 1);
    await cluster.core.deleteNamespacedPod({ namespace, name: victim, gracePeriodSeconds: 0 });
  };
  const stop = new AbortController();
  let refusals = 0;
  const churning = (async () => {
    while (!stop.signal.aborted) {
      await churn().catch(() => (refusals += 1));
      await delay(30);
    }
  })();
  for (let kill = 0; kill < killCount; kill += 1) {
    await delay(200 + next(800));
    const what = next(4);
    if (what < 2) {
      await operators[what]?.kill();
      operators[what] = await OperatorProcess.start(cluster, `operator-${what}-${kill}`);
    } else if (what === 2) await cluster.server.restart();
    else await cluster.pool.restartController();
  }
  stop.abort();
  await churning;
  await expect.poll(() => disagreements(cluster), { timeout: 120_000, interval: 500 }).toEqual([]);
  console.log(`${killCount} kills, ${made} pods made, ${refusals} refused meanwhile`);
  expect(made).toBeGreaterThan(killCount);
  const { nodes } = await cluster.pool.connect().pool.listNodes({});
  for (const { allocatedComputePercent } of nodes.flatMap(({ devices }) => devices))
    expect(allocatedComputePercent).toBeLessThanOrEqual(100);
});
