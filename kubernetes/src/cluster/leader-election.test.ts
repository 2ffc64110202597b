// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { readManifests } from "../testing/manifests.ts";
import { PlayedApiServer } from "../testing/played/api-server.ts";
import { testLog } from "../testing/test-pool.ts";
import { asMergePatch } from "./cluster.ts";
import { LeaderElection } from "./leader-election.ts";

test("an instance that comes back with its identity leads at once, another one when the Lease has expired", async () => {
  const server = await PlayedApiServer.start(readManifests("base"));
  onTestFinished(() => server[Symbol.asyncDispose]());
  const { cluster } = server;
  const at = { namespace: "millpond-system", name: "lead" };
  const terms: string[] = [];
  const start = (identity: string) => {
    const stop = new AbortController();
    const election = new LeaderElection({ cluster, identity, ...at, retryMs: 100, log: testLog });
    const done = election.run(stop.signal, async (signal) => {
      terms.push(identity);
      await delay(1e9, undefined, { signal }).catch(() => undefined);
    });
    return async () => {
      stop.abort();
      await done;
    };
  };
  const stop = start("pod-a");
  await expect.poll(() => terms).toEqual(["pod-a"]);
  await stop();
  // A killed instance leaves its Lease as it is.
  const killed = {
    holderIdentity: "pod-a",
    leaseDurationSeconds: 2,
    renewTime: "2026-11-27T12:00:00.000000Z",
  };
  const leave = () =>
    cluster.coordination.patchNamespacedLease({ ...at, body: { spec: killed } }, asMergePatch);
  await leave();
  const begun = performance.now();
  const stopAgain = start("pod-a");
  await expect.poll(() => terms).toEqual(["pod-a", "pod-a"]);
  expect(performance.now() - begun).toBeLessThan(1900);
  await stopAgain();
  await leave();
  const left = performance.now();
  const stopOther = start("pod-b");
  await expect.poll(() => terms.at(-1), { timeout: 30_000 }).toBe("pod-b");
  expect(performance.now() - left).toBeGreaterThan(1900);
  await stopOther();
});

test("a leader whose API server does not answer any more stops before its Lease expires", async () => {
  const server = await PlayedApiServer.start(readManifests("base"));
  onTestFinished(() => server[Symbol.asyncDispose]());
  const { coordination } = server.cluster;
  let isHung = false;
  const never = new Promise<never>(() => undefined);
  const hanging = Object.assign(Object.create(coordination) as typeof coordination, {
    readNamespacedLease: (...of: Parameters<typeof coordination.readNamespacedLease>) =>
      isHung ? never : coordination.readNamespacedLease(...of),
  });
  const stop = new AbortController();
  let stoppedAtMs = 0;
  const election = new LeaderElection({
    cluster: { ...server.cluster, coordination: hanging },
    namespace: "millpond-system",
    name: "lead",
    identity: "pod-a",
    leaseSeconds: 3,
    retryMs: 100,
    log: testLog,
  });
  const done = election.run(stop.signal, async (signal) => {
    await delay(1e9, undefined, { signal }).catch(() => undefined);
    stoppedAtMs = performance.now();
  });
  await expect.poll(() => election.leads).toBe(true);
  isHung = true;
  const hungAtMs = performance.now();
  await expect.poll(() => stoppedAtMs, { timeout: 30_000 }).toBeGreaterThan(0);
  expect(stoppedAtMs - hungAtMs).toBeLessThan(2900);
  isHung = false;
  stop.abort();
  void done;
});
