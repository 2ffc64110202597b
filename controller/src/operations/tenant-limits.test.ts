// SPDX-License-Identifier: Apache-2.0

// One tenant takes everything that it may, and another is not affected.

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, ClaimState, errorCodeOf, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { refuseTooManyTokens } from "./tokens.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

function as(pool: TestPool, token: string) {
  const transport = makeTransport(pool.controller.url, token);
  return {
    access: createClient(AccessService, transport),
    claims: createClient(ClaimService, transport),
    queues: createClient(QueueService, transport),
  };
}

async function startTenants(nodes: Readonly<Record<string, readonly bigint[]>> = {}) {
  const pool = await TestPool.start(nodes);
  const admin = as(pool, pool.controller.userToken);
  const make = async (name: string, role: string, tenant: string) =>
    as(pool, (await admin.access.createToken({ name, role, tenant })).secret);
  await admin.queues.putTenant({ tenant: { name: "team-a" } });
  await admin.queues.putTenant({ tenant: { name: "team-b" } });
  return {
    admin,
    ann: await make("ann", "user", "team-a"),
    annsChief: await make("anns-chief", "tenant-admin", "team-a"),
    mallory: await make("mallory", "user", "team-b"),
    mallorysChief: await make("mallorys-chief", "tenant-admin", "team-b"),
  };
}

/** Makes calls until one is refused. */
async function floodUntilRefused(most: number, call: (index: number) => Promise<unknown>) {
  for (let begin = 0; begin < most; begin += 50) {
    const outcomes = await Promise.allSettled(Array.from({ length: 50 }, (_, index) => call(begin + index)));
    const refused = outcomes.find((outcome) => outcome.status === "rejected");
    if (refused !== undefined) {
      const made = begin + outcomes.filter(({ status }) => status === "fulfilled").length;
      return { made, code: errorCodeOf(refused.reason), message: String(refused.reason) };
    }
  }
  throw new Error(`none of ${most} calls was refused`);
}

const waitsForEver = (index: number) => ({
  name: `flood-${index}`,
  memoryBytes: 1n << 20n,
  gang: `flood-${index}`,
  gangSize: 2,
  leaseSeconds: 604_800,
});

test("a tenant with as many waiting claims as may be keeps no other from claiming or from waiting", async () => {
  const { ann, mallory } = await startTenants({ "node-a": [GiB] });
  const flood = await floodUntilRefused(1200, (index) =>
    mallory.claims.createClaim({ claim: waitsForEver(index) }),
  );
  expect(flood).toMatchObject({ made: 1000, code: "MILLPOND_E_TOO_MANY_CLAIMS" });
  expect(flood.message).toContain("the tenant team-b has 1000 of the 1000 waiting claims");
  const { claim: bound } = await ann.claims.createClaim({ claim: { name: "fits", memoryBytes: 1n << 20n } });
  expect(bound?.state).toBe(ClaimState.BOUND);
  const { made } = await floodUntilRefused(600, (index) =>
    ann.claims.createClaim({ claim: { ...waitsForEver(index), name: `own-${index}`, gang: `own-${index}` } }),
  );
  expect(made).toBe(500);
});

test("lazy claims that nobody has called yet are bounded for each tenant", async () => {
  const { ann, mallory } = await startTenants({ "node-a": [GiB] });
  const lazy = (name: string) => ({
    claim: { name, memoryBytes: 1n << 20n, lazy: true, leaseSeconds: 604_800 },
  });
  const flood = await floodUntilRefused(2200, (index) => mallory.claims.createClaim(lazy(`flood-${index}`)));
  expect(flood).toMatchObject({ made: 2000, code: "MILLPOND_E_TOO_MANY_CLAIMS" });
  await ann.claims.createClaim(lazy("own"));
});

test("a tenant's administrator who makes all the tokens that it may have leaves room for those of others", async () => {
  const { admin, annsChief, mallorysChief } = await startTenants();
  const flood = await floodUntilRefused(1200, (index) =>
    mallorysChief.access.createToken({ name: `flood-${index}`, role: "user" }),
  );
  // There were two before.
  expect(flood).toMatchObject({ made: 998, code: "MILLPOND_E_TOO_MANY_TOKENS" });
  expect(flood.message).toContain("the tenant team-b has 1000 tokens");
  await annsChief.access.createToken({ name: "anns-own", role: "user" });
  await admin.access.createToken({ name: "node-7", role: "agent" });
});

test("tenants that have all the tokens of the pool keep no other tenant from its first ones", () => {
  const tokens = Array.from({ length: 9000 }, (_, index) => ({ tenant: `team-${index % 9}` }));
  const make = (tenant: string) => {
    try {
      refuseTooManyTokens(tokens, { role: "tenant-admin" }, tenant);
      tokens.push({ tenant });
      return "made";
    } catch (error) {
      return errorCodeOf(error);
    }
  };
  expect(make("team-1")).toBe("MILLPOND_E_TOO_MANY_TOKENS");
  expect(Array.from({ length: 101 }, () => make("team-new")).toSpliced(1, 99)).toEqual([
    "made",
    "MILLPOND_E_TOO_MANY_TOKENS",
  ]);
});
