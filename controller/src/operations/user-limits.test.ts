// SPDX-License-Identifier: Apache-2.0

// Limits of users within a tenant hold against every call, and usage is summed up by user.

import { createClient } from "@connectrpc/connect";
import {
  AccessService,
  ClaimService,
  ClaimState,
  errorCodeOf,
  QueueService,
  type Tenant,
  UsageBy,
} from "@millpond/api";
import { describe, expect, test } from "vitest";
import { makeRandom } from "../testing/crash-clients.ts";
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

const lasting = { leaseSeconds: 36_000 };
const half = { memoryBytes: GiB / 2n, computePercent: 50, ...lasting };

/** Six GPUs; each user of team-a may have two of them; carl has no limit. */
async function start() {
  const pool = await TestPool.start({ a: Array.from({ length: 6 }, () => GiB) });
  const admin = as(pool, pool.controller.userToken);
  const userLimits = { each: { gpuMilli: 2000n }, users: [{ user: "carl", limit: {} }] };
  await admin.queues.putTenant({ tenant: { name: "team-a", userLimits } });
  await admin.queues.putTenant({ tenant: { name: "team-b", userLimits: { each: { gpuMilli: 1000n } } } });
  const make = async (name: string, tenant = "team-a") =>
    as(pool, (await admin.access.createToken({ name, role: "user", tenant })).secret);
  const users = { ann: await make("ann"), bob: await make("bob"), carl: await make("carl") };
  const tenant = async (name = "team-a"): Promise<Tenant> => {
    const found = (await admin.queues.listTenants({})).tenants.find((each) => each.name === name);
    if (found === undefined) {
      throw new Error(`there is no tenant ${name}`);
    }
    return found;
  };
  const held = async (user: string) =>
    Number((await tenant()).users.find((each) => each.user === user)?.used?.gpuMilli ?? 0n);
  return { pool, admin, ...users, make, tenant, held };
}

const atLimit = "user ann of tenant team-a is at its limit: this would bring it to 3 of 2 GPUs";

describe("a user does not get more than its limit", () => {
  test("by several claims, and others of the tenant go on", async () => {
    const { ann, bob, carl, make, held, tenant } = await start();
    for (const name of ["a1", "a2", "a3"]) {
      await ann.claims.createClaim({ claim: { name, ...lasting } });
    }
    const { claim } = await ann.claims.getClaim({ name: "a3" });
    expect(claim).toMatchObject({ state: ClaimState.PENDING, reason: atLimit, user: "ann" });
    // A user of the same name in another tenant is not affected, nor are other users of the tenant, even behind the
    // claim that waits.
    const other = await make("ann-b", "team-b");
    expect((await other.claims.createClaim({ claim: { name: "o1", ...lasting } })).claim?.state).toBe(
      ClaimState.BOUND,
    );
    expect((await bob.claims.createClaim({ claim: { name: "b1", ...lasting } })).claim?.state).toBe(
      ClaimState.BOUND,
    );
    for (const name of ["c1", "c2"]) {
      expect((await carl.claims.createClaim({ claim: { name, ...lasting } })).claim?.state).toBe(
        ClaimState.BOUND,
      );
    }
    expect([await held("ann"), await held("bob"), await held("carl")]).toEqual([2000, 1000, 2000]);
    expect((await tenant()).users.map(({ user, limit }) => [user, limit?.gpuMilli])).toEqual([
      ["ann", 2000n],
      ["bob", 2000n],
      ["carl", undefined],
    ]);
    // The claim waits for its user's limit, and gets the capacity that the user releases.
    expect(
      (await ann.claims.explainClaim({ name: "a3" })).factDetails.map(({ subject }) => subject),
    ).toContain("user ann");
    await ann.claims.releaseClaim({ name: "a1" });
    expect((await ann.claims.getClaim({ name: "a3" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("by another name in the request, or by the token of a program", async () => {
    const { pool, ann, held } = await start();
    const { claim } = await ann.claims.createClaim({ claim: { name: "a1", user: "carl", ...lasting } });
    expect(claim?.user).toBe("ann");
    const program = as(pool, (await ann.claims.createProgramToken({})).secret);
    for (const name of ["p1", "p2"]) {
      const own = { name, sessionBound: true, ...lasting };
      expect((await program.claims.createClaim({ claim: own })).claim?.user).toBe("ann");
    }
    expect((await ann.claims.getClaim({ name: "p2" })).claim?.state).toBe(ClaimState.PENDING);
    expect(await held("ann")).toBe(2000);
  });

  test("by growing, whether programs run or not", async () => {
    const { pool, ann, held } = await start();
    await ann.claims.createClaim({ claim: { name: "whole", ...lasting } });
    await ann.claims.createClaim({ claim: { name: "h1", ...half, onlyDevices: ["GPU-3"] } });
    await ann.claims.createClaim({ claim: { name: "h2", ...half, onlyDevices: ["GPU-4"] } });
    const grow = () => ann.claims.resizeClaim({ name: "h1", computePercent: 75 });
    await expect(grow()).rejects.toThrow(/user ann of tenant team-a is at its limit: .* 2\.25 of 2 GPUs/);
    await pool.agent("a").openSession((await ann.claims.createTicket({ claim: "h1" })).ticket);
    await expect(grow()).rejects.toThrow(/2\.25 of 2 GPUs/);
    expect(await held("ann")).toBe(2000);
  });

  test("by gangs, its own or together with another user", async () => {
    const { ann, bob, held } = await start();
    await ann.claims.createClaim({ claim: { name: "a1", ...lasting } });
    for (const name of ["g1", "g2"]) {
      await ann.claims.createClaim({ claim: { name, gang: "g", gangSize: 2, ...lasting } });
    }
    expect((await ann.claims.getClaim({ name: "g1" })).claim).toMatchObject({
      state: ClaimState.PENDING,
      reason: atLimit,
    });
    await bob.claims.createClaim({ claim: { name: "m1", gang: "mixed", gangSize: 2, ...lasting } });
    await expect(
      ann.claims.createClaim({ claim: { name: "m2", gang: "mixed", gangSize: 2, ...lasting } }),
    ).rejects.toThrow(/user is ann, but bob for m1 of the same gang.*MILLPOND_E_INVALID/);
    expect([await held("ann"), await held("bob")]).toEqual([1000, 0]);
  });

  test("by lazy claims that wake together, by trying again, or by a controller that starts again", async () => {
    const { pool, ann, held } = await start();
    for (const name of ["l1", "l2", "l3"]) {
      await ann.claims.createClaim({ claim: { name, lazy: true, ...lasting } });
    }
    await Promise.all(
      ["l1", "l2", "l3"].map((name) => ann.claims.waitClaim({ name, wake: true, timeoutSeconds: 0 })),
    );
    expect(await held("ann")).toBe(2000);
    const tries = await Promise.allSettled(
      Array.from({ length: 20 }, () => ann.claims.createClaim({ claim: half, noWait: true })),
    );
    expect(tries.map((each) => (each.status === "rejected" ? errorCodeOf(each.reason) : "made"))).toEqual(
      Array.from({ length: 20 }, () => "MILLPOND_E_NO_CAPACITY"),
    );
    const { secret } = await as(pool, pool.controller.userToken).access.createToken({
      name: "ann-again",
      role: "user",
      tenant: "team-a",
    });
    await pool.restart();
    await pool.addAgent(
      "a",
      Array.from({ length: 6 }, () => GiB),
    );
    await pool.settle();
    const { tenants } = await as(pool, pool.controller.userToken).queues.listTenants({});
    expect(
      tenants.find(({ name }) => name === "team-a")?.users.map(({ user, used }) => [user, used?.gpuMilli]),
    ).toEqual([
      ["ann", 2000n],
      ["carl", 0n],
    ]);
    // Another token is another user. Only an administrator of the tenant can create one; a user cannot.
    const again = as(pool, secret);
    await expect(again.access.createToken({ name: "third", role: "user" })).rejects.toThrow("FORBIDDEN");
  });

  test("by any sequence of calls of several users", async () => {
    const { pool, ann, bob, tenant } = await start();
    const random = makeRandom(20_261_125);
    const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T;
    const names: string[] = [];
    const grown = new Set<number>();
    for (let step = 0; step < 250; step += 1) {
      const { claims } = pick([ann, bob]);
      const size = { memoryBytes: (GiB * BigInt(1 + Math.floor(random() * 4))) / 4n };
      const name = names.length === 0 ? "none" : pick(names);
      const calls = [
        () => {
          names.push(`c${step}`);
          const gang = random() < 0.3 ? { gang: `g${step % 7}`, gangSize: 2 } : {};
          const lazy = Object.keys(gang).length === 0 && random() < 0.4;
          return claims.createClaim({
            claim: { name: `c${step}`, ...size, ...gang, lazy, gpus: pick([1, 1, 2]), ...lasting },
          });
        },
        () => claims.resizeClaim({ name, ...size, gpus: pick([0, 1, 2]), wait: random() < 0.5 }),
        () => claims.waitClaim({ name, wake: true, timeoutSeconds: 0 }),
        () => claims.releaseClaim({ name }),
      ];
      const [outcome] = await Promise.allSettled([pick([...calls, calls[0] ?? calls[1]])?.()]);
      const code = outcome.status === "rejected" ? errorCodeOf(outcome.reason) : undefined;
      expect(["MILLPOND_E_INTERNAL", "MILLPOND_E_STATE_BROKEN"]).not.toContain(code);
      for (const { user, used } of (await tenant()).users) {
        expect([step, user, Number(used?.gpuMilli) <= 2000]).toEqual([step, user, true]);
        grown.add(Number(used?.gpuMilli));
      }
    }
    // The limit was reached, but never exceeded.
    expect(Math.max(...grown)).toBe(2000);
    await pool.settle();
  });
});

test("limits of users stay where a request does not name them, and are checked where it does", async () => {
  const { admin, tenant } = await start();
  await admin.queues.putTenant({ tenant: { name: "team-a", limit: { gpuMilli: 5000n } }, changeOnly: true });
  expect((await tenant()).userLimits).toMatchObject({
    each: { gpuMilli: 2000n },
    users: [{ user: "carl", limit: {} }],
  });
  const put = (users: { user: string; limit?: { gpuMilli: bigint } }[]) =>
    admin.queues.putTenant({ tenant: { name: "team-a", userLimits: { users } } });
  await expect(put([{ user: "Ann Bell" }])).rejects.toThrow(/"Ann Bell" is not the name of a token.*INVALID/);
  await expect(put([{ user: "ann" }, { user: "ann" }])).rejects.toThrow(/ann is given twice.*INVALID/);
  await expect(put(Array.from({ length: 1001 }, (_, n) => ({ user: `u${n}` })))).rejects.toThrow(
    /1001 users, more than 1000.*INVALID/,
  );
  await put([{ user: "constructor", limit: { gpuMilli: 1n } }]);
  expect((await tenant()).userLimits).toMatchObject({ users: [{ user: "constructor" }] });
  expect((await tenant()).userLimits?.each).toBeUndefined();
});

test("usage is summed up by user, claim and model, for a tenant its own", async () => {
  const { pool, admin, ann, bob, make } = await start();
  const other = await make("dora", "team-b");
  await ann.claims.createClaim({ claim: { name: "a1", ...lasting } });
  await ann.claims.createClaim({ claim: { name: "a2", ...half } });
  await bob.claims.createClaim({ claim: { name: "b1", ...half } });
  await other.claims.createClaim({ claim: { name: "d1", ...half } });
  pool.clock.advance(100_000);
  await ann.claims.releaseClaim({ name: "a1" });
  pool.clock.advance(100_000);
  const sums = async (by: UsageBy, queues = ann.queues) =>
    (await queues.getUsage({ by })).usage.map(({ user, claim, queue, model, grantedGpuSeconds, claims }) => [
      [user, claim, queue, model].filter((each) => each !== "").join(" "),
      grantedGpuSeconds,
      claims,
    ]);
  expect(await sums(UsageBy.USER)).toEqual([
    ["ann", 200, 2],
    ["bob", 100, 1],
  ]);
  expect(await sums(UsageBy.CLAIM)).toEqual([
    ["ann a1 default", 100, 1],
    ["ann a2 default", 100, 1],
    ["bob b1 default", 100, 1],
  ]);
  expect(await sums(UsageBy.MODEL)).toEqual([["Software GPU", 300, 3]]);
  expect(await sums(UsageBy.UNSPECIFIED)).toEqual([["default", 300, 3]]);
  expect(await sums(UsageBy.USER, admin.queues)).toContainEqual(["dora", 100, 1]);
});
