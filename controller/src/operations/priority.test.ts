// SPDX-License-Identifier: Apache-2.0

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, ClaimState, errorCodeOf, QueueService } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const whole = { exclusive: true, leaseSeconds: 3600 } as const;

/** The first of these claims has the only device; the others wait. */
async function fill(pool: TestPool, ...names: readonly string[]): Promise<void> {
  for (const name of names) {
    await pool.claims.createClaim({ claim: { name, ...whole, preemptible: true } });
  }
}

async function stateOf(pool: TestPool, name: string) {
  const { claim } = await pool.claims.getClaim({ name });
  return [claim?.state, claim?.priority, claim?.queuePosition];
}

describe("the priority of a claim", () => {
  test("orders its queue from now on, and is kept over a restart", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await fill(pool, "holder", "first", "second");
    const { claim } = await pool.claims.prioritizeClaim({ name: "holder", priority: 5 });
    expect([claim?.state, claim?.priority]).toEqual([ClaimState.BOUND, 5]);
    await pool.claims.prioritizeClaim({ name: "second", priority: 3 });
    expect(await stateOf(pool, "second")).toEqual([ClaimState.PENDING, 3, 1]);
    expect(await stateOf(pool, "first")).toEqual([ClaimState.PENDING, 0, 2]);
    await pool.restart();
    expect(await stateOf(pool, "second")).toEqual([ClaimState.PENDING, 3, 1]);
    await pool.addAgent("node-a", [4n * GiB]);
    await pool.claims.releaseClaim({ name: "holder" });
    // Only its agent can report that no session of the holder is open any longer.
    await pool.passTime(1);
    expect(await stateOf(pool, "second")).toEqual([ClaimState.BOUND, 3, 0]);
    const { events } = await pool.pool.listEvents({ after: 0n });
    expect(events.filter(({ kind }) => kind === "ClaimPrioritized").map(({ message }) => message)).toEqual([
      "priority 5 instead of 0",
      "priority 3 instead of 0",
    ]);
  });

  test("lets a waiting claim preempt a preemptible one that was bound before", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await fill(pool, "holder", "urgent");
    expect((await pool.claims.getClaim({ name: "holder" })).claim?.preemptAt).toBe(0n);
    // By then the pool has planned with the holder's old priority.
    await pool.claims.prioritizeClaim({ name: "holder", priority: -1 });
    const { claim } = await pool.claims.getClaim({ name: "holder" });
    expect(claim?.reason).toContain("its priority -1 is lower than 0");
    expect(claim?.preemptAt).not.toBe(0n);
  });

  test("is that of all members of its gang", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const member = { ...whole, gang: "train", gangSize: 3 };
    await pool.claims.createClaim({ claim: { name: "a", ...member } });
    await pool.claims.createClaim({ claim: { name: "b", ...member } });
    await pool.claims.prioritizeClaim({ name: "b", priority: 7 });
    expect((await stateOf(pool, "a"))[1]).toBe(7);
    await expect(pool.claims.createClaim({ claim: { name: "c", ...member } })).rejects.toThrow(
      /priority is 0, but 7 for a/,
    );
    await pool.claims.createClaim({ claim: { name: "c", ...member, priority: 7 } });
  });

  test("is changed by users of its tenant, within the range, while it lives, and is in the audit", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const admin = makeTransport(pool.controller.url, pool.controller.userToken);
    const access = createClient(AccessService, admin);
    const as = async (name: string, tenant: string) => {
      await createClient(QueueService, admin).putTenant({ tenant: { name: tenant } });
      const { secret } = await access.createToken({ name, role: "user", tenant });
      return createClient(ClaimService, makeTransport(pool.controller.url, secret));
    };
    const ann = await as("ann", "team-a");
    const bob = await as("bob", "team-b");
    await ann.createClaim({ claim: { name: "train", ...whole } });
    const { secret } = await ann.createClaimToken({ name: "train" });
    const program = createClient(ClaimService, makeTransport(pool.controller.url, secret));
    await ann.prioritizeClaim({ name: "train", priority: 1000 });
    const code = async (call: Promise<unknown>) => await call.then(() => "ok", errorCodeOf);
    expect(await code(ann.prioritizeClaim({ name: "train", priority: 1001 }))).toBe("MILLPOND_E_INVALID");
    expect(await code(bob.prioritizeClaim({ name: "train", priority: 1 }))).toBe("MILLPOND_E_NOT_FOUND");
    expect(await code(bob.prioritizeClaim({ name: "none", priority: 1 }))).toBe("MILLPOND_E_NOT_FOUND");
    expect(await code(program.prioritizeClaim({ name: "train", priority: 1 }))).toBe("MILLPOND_E_FORBIDDEN");
    expect((await stateOf(pool, "train"))[1]).toBe(1000);
    await ann.releaseClaim({ name: "train" });
    expect(await code(ann.prioritizeClaim({ name: "train", priority: 1 }))).toBe("MILLPOND_E_CLAIM_ENDED");
    const { records } = await access.listAudit({});
    const calls = records.filter(({ what }) => what === "ClaimService/PrioritizeClaim");
    expect(calls.map(({ who, subject, result }) => [who, subject, result])).toContainEqual([
      "ann",
      "claim/train",
      "ok",
    ]);
    expect(calls.map(({ who, result }) => [who, result])).toContainEqual(["bob", "MILLPOND_E_NOT_FOUND"]);
  });
});
