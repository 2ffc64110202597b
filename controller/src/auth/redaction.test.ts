// SPDX-License-Identifier: Apache-2.0

import { ConnectError, createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, PoolService, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const GiB = 1n << 30n;

function as(pool: TestPool, token: string) {
  const transport = makeTransport(pool.controller.url, token);
  return {
    access: createClient(AccessService, transport),
    claims: createClient(ClaimService, transport),
    pool: createClient(PoolService, transport),
    queues: createClient(QueueService, transport),
  };
}

/** All text in an answer or an error. */
async function everythingIn(call: Promise<unknown>): Promise<string> {
  const answer = await call.catch((error: unknown) => error);
  const shown =
    answer instanceof Error
      ? { text: answer.message, details: answer instanceof ConnectError ? answer.details : [] }
      : answer;
  return JSON.stringify(shown, (_key, value: unknown) => (typeof value === "bigint" ? String(value) : value));
}

test("neither answers, nor refusals, nor events name a claim or a gang of another tenant, also when it is long gone", async () => {
  const pool = await TestPool.start({ "node-a": [GiB, GiB] });
  const admin = as(pool, pool.controller.userToken);
  const make = async (name: string, tenant: string) =>
    as(pool, (await admin.access.createToken({ name, role: "user", tenant })).secret);
  for (const name of ["team-a", "team-b"]) {
    await admin.queues.putTenant({ tenant: { name } });
  }
  const [ann, bob] = [await make("ann", "team-a"), await make("bob", "team-b")];
  const low = { preemptible: true, memoryBytes: GiB, gpus: 2, leaseSeconds: 3600 };
  await ann.claims.createClaim({ claim: { ...low, name: "ann-secret" } });
  // An immediate refusal does not disclose the victims' names either.
  const urgent = { priority: 9, memoryBytes: GiB, gpus: 2, leaseSeconds: 3600 };
  const refused = await everythingIn(
    bob.claims.createClaim({ claim: { ...urgent, name: "bob-tries" }, noWait: true }),
  );
  expect(refused).toContain("a claim of another tenant is preempted for it");
  expect(refused).not.toContain("ann-secret");
  await bob.claims.createClaim({ claim: { ...urgent, name: "bob-secret" } });
  const gang = { gang: "bob-gang", gangSize: 2, memoryBytes: GiB, leaseSeconds: 3600 };
  await bob.claims.createClaim({ claim: { ...gang, name: "bob-one" } });
  await bob.claims.createClaim({ claim: { ...gang, name: "bob-two" } });

  const ofAnn = async () => [
    await everythingIn(ann.claims.getClaim({ name: "ann-secret" })),
    await everythingIn(ann.claims.explainClaim({ name: "ann-secret" })),
    await everythingIn(ann.claims.listClaims({ includeEnded: true })),
    await everythingIn(ann.claims.resizeClaim({ name: "ann-secret", computePercent: 50 })),
    await everythingIn(ann.claims.createTicket({ claim: "ann-secret" })),
    await everythingIn(ann.pool.listEvents({})),
    await everythingIn(ann.claims.createClaim({ claim: { ...urgent, name: "ann-tries" }, noWait: true })),
  ];
  const ofBob = async () => [
    await everythingIn(bob.claims.getClaim({ name: "bob-secret" })),
    await everythingIn(bob.claims.explainClaim({ name: "bob-secret" })),
    await everythingIn(bob.claims.explainClaim({ name: "bob-one" })),
    await everythingIn(bob.claims.createTicket({ claim: "bob-secret" })),
    await everythingIn(bob.pool.listEvents({})),
  ];
  const seen = await ofAnn();
  expect(seen[0]).toContain("preempted for a claim of another tenant: its priority 0 is lower than 9");
  expect(seen[0]).toContain('"code":"preempted-for"');
  expect(seen.join("\n")).not.toMatch(/bob-(secret|gang|one|two)/);
  expect((await ofBob()).join("\n")).not.toContain("ann-secret");
  // An administrator reads every name.
  expect(await everythingIn(admin.claims.getClaim({ name: "ann-secret" }))).toContain(
    "preempted for claim bob-secret",
  );
  // Records of ended claims are redacted, too.
  for (const name of ["bob-secret", "bob-one", "bob-two"]) {
    await bob.claims.releaseClaim({ name });
  }
  await pool.passTime(60);
  expect((await ofAnn()).join("\n")).not.toMatch(/bob-(secret|gang|one|two)/);
});
