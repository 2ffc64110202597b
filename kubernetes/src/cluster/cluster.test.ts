// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import type { V1ConfigMap } from "@kubernetes/client-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ControlPlane, findKubernetes, withKubernetes } from "../testing/control-plane.ts";
import { testLog } from "../testing/test-pool.ts";
import { asMergePatch } from "./cluster.ts";
import { LeaderElection } from "./leader-election.ts";
import { Reflector } from "./reflector.ts";
import { WorkQueue } from "./work-queue.ts";

test("a work queue looks at each key once at a time, again when it was added meanwhile, and later when that failed", async () => {
  const seen: string[] = [];
  const underWay = new Set<string>();
  let failures = 2;
  const queue = new WorkQueue({
    work: async (key) => {
      expect(underWay.has(key)).toBe(false);
      underWay.add(key);
      await delay(5);
      underWay.delete(key);
      seen.push(key);
      if (key === "bad" && failures > 0) {
        failures -= 1;
        throw new Error("not yet");
      }
      return undefined;
    },
    concurrency: 2,
    retryMs: 5,
    log: testLog,
  });
  for (const key of ["a", "b", "a", "bad", "a"]) queue.add(key);
  await delay(1);
  queue.add("a");
  queue.addAfter("c", 20);
  queue.addAfter("c", 1);
  await expect.poll(() => seen.filter((key) => key === "bad").length).toBe(3);
  await expect.poll(() => seen.includes("c")).toBe(true);
  await queue.stop();
  expect(seen.filter((key) => key === "a")).toHaveLength(2);
  expect(seen.filter((key) => key === "c")).toHaveLength(1);
  queue.add("a");
  expect(queue.length).toBe(0);
});

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  let plane: ControlPlane;
  beforeAll(async () => {
    plane = await ControlPlane.start();
  });
  afterAll(async () => {
    await plane?.[Symbol.asyncDispose]();
  });

  test("a reflector pages, follows, and begins again when the server has forgotten where it was", async () => {
    const { core } = plane.cluster;
    const labels = { test: "reflector" };
    const make = (name: string) =>
      core.createNamespacedConfigMap({ namespace: "default", body: { metadata: { name, labels } } });
    for (let index = 0; index < 12; index += 1) await make(`m-${index}`);
    // The server keeps all events since its start.
    await plane.restartApiServer();
    let lists = 0;
    let pages = 0;
    const gone: string[] = [];
    const reflector = new Reflector<V1ConfigMap>({
      cluster: plane.cluster,
      path: "/api/v1/configmaps",
      labelSelector: "test=reflector",
      list: async (page) => {
        pages += 1;
        if (page._continue === undefined) lists += 1;
        const answer = await core.listConfigMapForAllNamespaces({ ...page, limit: 5 });
        // The first list reports a version as old as the cluster.
        const resourceVersion = lists === 1 ? "1" : (answer.metadata?.resourceVersion ?? "");
        return { items: answer.items, metadata: { ...answer.metadata, resourceVersion } };
      },
      onChange: ({ metadata }, isGone) => {
        if (isGone) gone.push(metadata?.name ?? "");
      },
      log: testLog,
      retryMs: 10,
    }).start();
    await reflector.synced;
    const names = () => [...reflector.objects.values()].map(({ metadata }) => metadata?.name ?? "").sort();
    await expect.poll(() => lists).toBe(2);
    await expect.poll(() => pages).toBe(6);
    await make("later");
    await expect.poll(names).toContain("later");
    await core.deleteNamespacedConfigMap({ name: "m-3", namespace: "default" });
    await expect.poll(() => gone).toEqual(["m-3"]);
    // Changes while the server is away are not missed.
    await plane.restartApiServer();
    await core.deleteNamespacedConfigMap({ name: "m-4", namespace: "default" });
    await core.patchNamespacedConfigMap(
      { name: "m-5", namespace: "default", body: { metadata: { labels: { test: "other" } } } },
      asMergePatch,
    );
    await make("last");
    await expect
      .poll(names)
      .toEqual(
        [...Array.from({ length: 12 }, (_, index) => `m-${index}`), "last", "later"]
          .filter((name) => !/^m-[345]$/.test(name))
          .sort(),
      );
    await reflector.stop();
  });

  test("of several candidates one leads at a time, and another when it gives up or is gone", async () => {
    let leading = 0;
    let most = 0;
    const terms: string[] = [];
    const start = (identity: string) => {
      const stop = new AbortController();
      const options = { namespace: "default", name: "lead", leaseSeconds: 3, retryMs: 200, log: testLog };
      const election = new LeaderElection({ cluster: plane.cluster, identity, ...options });
      const done = election.run(stop.signal, async (signal) => {
        leading += 1;
        most = Math.max(most, leading);
        terms.push(identity);
        await delay(1e9, undefined, { signal }).catch(() => undefined);
        leading -= 1;
      });
      return { stop, done };
    };
    const candidates = new Map(["a", "b", "c"].map((identity) => [identity, start(identity)]));
    for (let term = 1; term <= 3; term += 1) {
      await expect.poll(() => terms.length).toBe(term);
      const leader = candidates.get(terms.at(-1) ?? "");
      leader?.stop.abort();
      await leader?.done;
    }
    expect(new Set(terms).size).toBe(3);
    expect(most).toBe(1);
    // A killed instance leaves its Lease as it was: the next one waits until it expires.
    const lease = {
      holderIdentity: "killed",
      leaseDurationSeconds: 2,
      renewTime: new Date().toISOString().replace("Z", "000Z"),
    };
    await plane.cluster.coordination.patchNamespacedLease(
      { name: "lead", namespace: "default", body: { spec: lease } },
      asMergePatch,
    );
    const begun = performance.now();
    const last = start("d");
    await expect.poll(() => terms.at(-1)).toBe("d");
    expect(performance.now() - begun).toBeGreaterThan(1900);
    last.stop.abort();
    await last.done;
  });
});
