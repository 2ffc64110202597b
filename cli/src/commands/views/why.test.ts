// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

test("why and usage say what a platform team is asked", async () => {
  await using pool = await PoolFixture.start();
  const { claims } = pool.connection;
  await claims.createClaim({ claim: { name: "runs", leaseSeconds: 600, timeLimitSeconds: 3600 } });
  await claims.createClaim({ claim: { name: "waits", leaseSeconds: 600, priority: 3 } });

  const why = await pool.home.millpond(["why", "waits"]);
  expect(why.stdout).toMatch(/^claim waits has waited [\dms]+: no device has all of its memory free/);
  expect(why.stdout).toMatch(/position: +1 of 1 in queue default, priority 3/);
  expect(why.stdout).toMatch(/queue default: +1 GPU in use/);
  expect(why.stdout).toMatch(/waits for: +the end of runs/);
  // `describe` shows the same.
  const described = await pool.home.millpond(["describe", "claim", "waits"]);
  expect(described.stdout).toMatch(
    /\nWaiting: +for [\dms]+\n {2}position: +1 of 1 in queue default, priority 3\n[^]* {2}waits for: +the end of runs\n {2}expected: +within .*\n {2}next release: +claim runs, within/,
  );
  expect((await pool.home.millpond(["describe", "claim", "runs"])).stdout).toMatch(/\nWaiting: +no\n/);
  for (const name of ["waits", "runs"]) {
    const [asked, shown] = await Promise.all([
      pool.home.millpond(["why", name, "-o", "json"]),
      pool.home.millpond(["describe", "claim", name, "-o", "json"]),
    ]);
    const { kind, claim, ...explanation } = JSON.parse(asked.stdout);
    // The lease may have been renewed between the two calls.
    const whole = { ...claim, ...explanation, leaseExpiresAt: expect.any(String) };
    expect([kind, JSON.parse(shown.stdout)]).toEqual(["Explanation", { ...whole, kind: "Claim" }]);
  }
  const { access, queues: quotas } = pool.connection;
  await quotas.putTenant({ tenant: { name: "team-a" } });
  const { secret } = await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
  await claims.createClaim({ claim: { name: "hers", leaseSeconds: 600, tenant: "team-a" } });
  const hers = await pool.home.millpond(["why", "hers", "--token", secret]);
  // Users do not see owners and names of other tenants' claims.
  expect(hers.stdout).toMatch(/waits for: +the end of 2 claims of other tenants\n/);
  expect(hers.stdout).toMatch(/next release: +a claim of another tenant, within /);
  await claims.releaseClaim({ name: "hers" });
  expect(why.stdout).toMatch(/expected: +within (1h|5\dm(\d+s)?)/);
  expect(why.stdout).toMatch(/next release: +claim runs, within/);
  const json = JSON.parse((await pool.home.millpond(["why", "runs", "-o", "json"])).stdout);
  expect(json).toMatchObject({ kind: "Explanation", claim: { state: "bound" }, obstacle: "", waitsFor: [] });
  expect((await pool.home.millpond(["why", "runs"])).stdout).toMatch(
    /^claim runs is bound to node-a for [\dms]+\n/,
  );

  await pool.until(async ({ queues }) => {
    const { usage } = await queues.getUsage({});
    return (usage[0]?.grantedGpuSeconds ?? 0) > 0;
  });
  expect((await pool.home.millpond(["usage"])).stdout).toMatch(
    /^TENANT +QUEUE +CLAIMS +GPU-HOURS ASKED.*\ndefault +default +2 /,
  );
  const csv = await pool.home.millpond(["usage", "--since", "1h", "-o", "csv"]);
  expect(csv.stdout).toMatch(/^tenant,queue,claims,askedGpuHours,.*\ndefault,default,2,0\.\d+,0\.\d+,0,/);
  const items = JSON.parse(
    (await pool.home.millpond(["usage", "--since", "2026-01-01", "-o", "json"])).stdout,
  );
  expect(items).toMatchObject({
    kind: "UsageList",
    from: "2026-01-01T00:00:00Z",
    items: expect.arrayContaining([expect.objectContaining({ tenant: "default", claims: 2 })]),
  });
  const sinceOf = async (moment: string) => {
    const result = await pool.home.millpond(["usage", "--since", moment, "-o", "json"]);
    return result.code === 0
      ? (JSON.parse(result.stdout) as { from: string }).from
      : result.stderr.split("\n")[0];
  };
  // Independent of the time zone of this machine.
  expect(await sinceOf("2026-01-01T12:00")).toBe("2026-01-01T12:00:00Z");
  expect(await sinceOf("2026-01-01T12:00:30+01:00")).toBe("2026-01-01T11:00:30Z");
  expect(await sinceOf("2026-02-30")).toBe(
    'error: --since: "2026-02-30" is not a date such as 2026-11-20 or 2026-11-20T12:00Z',
  );
  expect(await sinceOf("yesterday")).toContain('--since: "yesterday" is not a duration');
});

test("why of a claim whose gang is incomplete says that it waits for the gang", async () => {
  await using pool = await PoolFixture.start();
  await pool.connection.claims.createClaim({
    claim: { name: "first", gang: "ddp", gangSize: 2, memoryPercent: 10, leaseSeconds: 600 },
  });
  const { stdout } = await pool.home.millpond(["why", "first"]);
  expect(stdout).toMatch(/waits for: +the rest of its gang\n/);
  expect(stdout).not.toContain("nothing known");
});

test("why without a claim lists what waits, by queue and place, each with its reason", async () => {
  await using pool = await PoolFixture.start();
  const { claims, queues } = pool.connection;
  expect((await pool.home.millpond(["why"])).stdout).toBe("no claim waits\n");
  await queues.putQueue({ queue: { name: "small", limit: { gpuMilli: 1000n } } });
  await claims.createClaim({ claim: { name: "runs", queue: "small", leaseSeconds: 600 } });
  await claims.createClaim({ claim: { name: "next", queue: "small", leaseSeconds: 600 } });
  await claims.createClaim({ claim: { name: "first", gang: "ddp", gangSize: 2, leaseSeconds: 600 } });
  expect((await pool.home.millpond(["why"])).stdout).toMatch(
    /^QUEUE +POSITION +CLAIM +WAITS +FOR\ndefault +1 +first +\d+s +gang ddp has 1 of its 2 claims\nsmall +1 +next +\d+s +.*\n$/,
  );
  const { stdout } = await pool.home.millpond(["why", "-o", "json"]);
  expect(JSON.parse(stdout)).toMatchObject({
    kind: "ClaimList",
    items: [{ name: "first" }, { name: "next", why: { code: expect.any(String) } }],
  });
});

test("why of a claim that waits for a quota names who holds it, or says that its limit is too small", async () => {
  await using pool = await PoolFixture.start();
  const { claims, queues } = pool.connection;
  await queues.putTenant({ tenant: { name: "default", limit: { gpuMilli: 500n } } });
  const half = { memoryPercent: 50, leaseSeconds: 600 };
  await claims.createClaim({ claim: { ...half, name: "holds" } });
  await claims.createClaim({ claim: { ...half, name: "next" } });
  const why = async (name: string) => (await pool.home.millpond(["why", name])).stdout;
  expect(await why("next")).toMatch(
    /tenant default is at its limit[^]*waits for: +the end of holds\n +expected: +not known: it waits until other claims release quota\n/,
  );
  await claims.releaseClaim({ name: "holds" });
  await claims.createClaim({ claim: { name: "large", leaseSeconds: 600 } });
  await claims.releaseClaim({ name: "next" });
  expect(await why("large")).toMatch(
    /waits for: +an administrator\n +expected: +never, unless that limit is raised: this claim alone exceeds it\n/,
  );
});
