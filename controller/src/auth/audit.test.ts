// SPDX-License-Identifier: Apache-2.0

// The audit records of calls, over real sockets.

import { expect, test } from "vitest";
import { reasonHeader } from "./change-reason.ts";
import { as, refusal, startTenants } from "../testing/tenants.ts";

test("the audit says who changed what, why, and with what result", async () => {
  const { pool, admin, ann, chief } = await startTenants();
  const headers = { [reasonHeader]: encodeURIComponent("fan replaced – on Monday") };
  await admin.pool.cordonNode({ name: "node-a", cordoned: true }, { headers });
  await refusal(ann.pool.drainNode({ name: "node-a" }));
  await refusal(ann.claims.releaseClaim({ name: "nobody" }));
  const { claim } = await ann.claims.createClaim({ claim: {} });
  await ann.claims.listClaims({});
  const { records } = await admin.access.listAudit({});
  const shown = records.map(({ who, role, tenant, what, subject, why, result }) =>
    [who, role, tenant, what, subject, why, result].join("|"),
  );
  expect(shown.slice(-4)).toEqual([
    "file:user|admin||PoolService/CordonNode|node/node-a|fan replaced – on Monday|ok",
    "ann|user|team-a|PoolService/DrainNode|||MILLPOND_E_FORBIDDEN",
    "ann|user|team-a|ClaimService/ReleaseClaim|claim/nobody||MILLPOND_E_NOT_FOUND",
    `ann|user|team-a|ClaimService/CreateClaim|claim/${claim?.name}||ok`,
  ]);
  expect(shown.slice(0, 2)).toEqual([
    "file:agent|agent||AgentService/Sync|node/node-a|joins at http://127.0.0.1:7171/node-a with GPU-0, GPU-1|ok",
    "file:user|admin||QueueService/PutTenant|tenant/team-a||ok",
  ]);
  expect((await chief.access.listAudit({})).records.map(({ who }) => who)).toEqual(["ann", "ann", "ann"]);
  const last = records.at(-2)?.id ?? 0n;
  expect((await admin.access.listAudit({ after: last })).records).toHaveLength(1);
  await pool.restart();
  const again = await as(pool, pool.controller.userToken).access.listAudit({});
  expect(again.records).toEqual(records);
});

test("a call that has nothing to change is recorded too, and a reason that cannot be read refuses it", async () => {
  const { admin, ann } = await startTenants();
  const { claim } = await ann.claims.createClaim({ claim: { name: "mine" } });
  await ann.claims.releaseClaim({ name: claim?.name ?? "" });
  await ann.claims.releaseClaim({ name: claim?.name ?? "" });
  for (const reason of ["%zz", "x".repeat(257)]) {
    const headers = { [reasonHeader]: reason };
    expect((await refusal(ann.claims.releaseClaim({ name: "mine" }, { headers }))).code).toBe(
      "MILLPOND_E_INVALID",
    );
  }
  const { records } = await admin.access.listAudit({});
  expect(records.slice(-3).map(({ what }) => what)).toEqual([
    "ClaimService/CreateClaim",
    "ClaimService/ReleaseClaim",
    "ClaimService/ReleaseClaim",
  ]);
});

test("what follows later from a change is not laid to the charge of its caller", async () => {
  const { pool, admin, ann } = await startTenants();
  await ann.claims.createClaim({ claim: { name: "left", leaseSeconds: 5 } });
  const { records } = await admin.access.listAudit({});
  await pool.passTime(30);
  expect((await admin.claims.getClaim({ name: "left" })).claim?.reason).toContain("lease");
  expect((await admin.access.listAudit({})).records).toEqual(records);
});

test("a flood of calls that change nothing is counted in the audit, and leaves what others did there", async () => {
  const { pool, admin, ann } = await startTenants();
  const count = async () => (await admin.access.listAudit({ limit: 1000 })).records.length;
  const before = await count();
  for (let round = 0; round < 10; round++) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        await refusal(ann.pool.drainNode({ name: "node-a" }));
        await refusal(ann.claims.releaseClaim({ name: `nobody-${index}` }));
      }),
    );
  }
  expect((await count()) - before).toBe(40);
  pool.clock.advance(61_000);
  await pool.settle();
  const { records } = await admin.access.listAudit({ limit: 1000 });
  expect(
    records.slice(before + 40).map(({ who, what, why, result }) => [who, what, why, result].join("|")),
  ).toEqual([
    "ann|PoolService/DrainNode|and 480 more of these calls within 60 s|MILLPOND_E_FORBIDDEN",
    "ann|ClaimService/ReleaseClaim|and 480 more of these calls within 60 s|MILLPOND_E_NOT_FOUND",
  ]);
});
