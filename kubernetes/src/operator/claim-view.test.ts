// SPDX-License-Identifier: Apache-2.0

import { TestPool } from "@millpond/controller/testing/test-pool";
import { expect, test } from "vitest";
import { clusterLabel, leaseSeconds } from "../request/pod-claims.ts";
import { testLog } from "../testing/test-pool.ts";
import { ClaimView } from "./claim-view.ts";

test("leases are renewed although the pool's clock is an hour ahead, and not more often than is needed", async () => {
  const pool = await TestPool.start();
  pool.clock.set((Date.now() - pool.clock.unixMs()) / 1000 + 3600);
  const name = "pod-11111111-2222-3333-4444-555555555555";
  const makeView = () =>
    new ClaimView({ pool, cluster: "c1", onChange: () => undefined, log: testLog, pollMs: 10 });
  const leaseOf = async () => (await pool.claims.getClaim({ name })).claim?.leaseExpiresAt ?? 0n;

  const first = makeView();
  await first.create({ name, gpus: 1, leaseSeconds, labels: { [clusterLabel]: "c1" } });
  const begun = await leaseOf();
  pool.clock.advance(150_000);
  await first.renew(name);
  expect(await leaseOf()).toBe(begun);
  // The next operator does not know when the lease was renewed.
  const second = makeView();
  const stop = new AbortController();
  const running = second.run(stop.signal);
  await expect.poll(() => second.claims.has(name)).toBe(true);
  await second.renew(name);
  stop.abort();
  await running;
  expect(await leaseOf()).toBe(begun + 150n);
});

test("the rest of a notice is counted by the controller's clock, and none by a difference that cannot be measured", async () => {
  const pool = await TestPool.start();
  for (const [aheadMs, rest] of [
    [3_600_000, 60],
    [-7_200_000, 60],
    [1000, 61],
  ] as const) {
    const listClaims: typeof pool.claims.listClaims = (request, options) => {
      options?.onHeader?.(new Headers({ date: new Date(Date.now() + aheadMs).toUTCString() }));
      return pool.claims.listClaims(request);
    };
    const view = new ClaimView({
      pool: { ...pool, claims: { ...pool.claims, listClaims } },
      cluster: "c1",
      onChange: () => undefined,
      log: testLog,
    });
    const stop = new AbortController();
    const running = view.run(stop.signal);
    await expect.poll(() => view.isCompared).toBe(true);
    const at = BigInt(Math.floor((Date.now() + aheadMs) / 1000) + 60);
    expect(Math.abs(view.secondsUntil(at) - rest)).toBeLessThanOrEqual(1);
    stop.abort();
    await running;
  }
});

test("a claim that somebody has made in a pod's name is ended, and not the pod's", async () => {
  const pool = await TestPool.start();
  const name = "pod-11111111-2222-3333-4444-555555555555";
  const view = new ClaimView({ pool, cluster: "c1", onChange: () => undefined, log: testLog });
  await pool.claims.createClaim({ claim: { name, gpus: 1, leaseSeconds: 600 } });
  const wanted = { name, gpus: 1, leaseSeconds, labels: { [clusterLabel]: "c1" } };
  await expect(view.create(wanted)).rejects.toThrow("had taken the name");
  expect(view.claims.has(name)).toBe(false);
  expect(await view.create(wanted)).toMatchObject({ name, labels: wanted.labels });
  // Its own, of which it has not seen the answer.
  const next = new ClaimView({ pool, cluster: "c1", onChange: () => undefined, log: testLog });
  expect((await next.create(wanted)).name).toBe(name);
});
