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
