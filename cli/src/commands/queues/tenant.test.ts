// SPDX-License-Identifier: Apache-2.0

// Limits of users: how they are set, and where they are shown.

import { expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

const file = `
kind: Tenant
name: team-a
limit: {gpus: 4}
userLimit: {gpus: 1}
users:
  ann: {gpus: 0.5}
`;

test("limits of users are set, changed and shown with what is used of them", async () => {
  await using pool = await PoolFixture.start();
  const millpond = async (...args: string[]) => await pool.home.millpond(args);
  expect(
    (await millpond("tenant", "create", "team-a", "--limit", "gpus=4", "--user-limit", "gpus=1")).stderr,
  ).toBe("");
  expect(
    (await millpond("tenant", "change", "team-a", "--user", "ann", "--user-limit", "gpus=0.5")).code,
  ).toBe(0);
  const token = ["token", "create", "ann", "--tenant", "team-a", "-o", "json"];
  const { secret } = JSON.parse((await millpond(...token)).stdout) as { secret: string };
  const hers = await millpond("apply", "-f", "-", "--token", secret);
  expect(hers.code).not.toBe(0);
  const claim =
    "kind: Claim\nname: part\ntenant: team-a\nmemory: 25%\n---\nkind: Claim\nname: more\ntenant: team-a\nmemory: 50%\n";
  const applied = await pool.home.millpond(["apply", "-f", "-", "--token", secret], { input: claim });
  expect(applied.stdout).toBe(
    "claim/part bound\nclaim/more waits: user ann of tenant team-a is at its limit: this would bring it to 0.75 of 0.5 GPUs\n",
  );
  const described = (await millpond("describe", "tenant", "team-a")).stdout;
  expect(described).toMatch(
    /\nEach user: +gpus=1\nUsers:\n +USER +LIMIT +GPUS +COMPUTE +MEMORY +BOUND +WAITING\n +ann +gpus=0\.5 +0\.25 /,
  );
  expect((await millpond("get", "tenants", "-o", "wide")).stdout).toMatch(
    /\nteam-a +gpus=4 .* gpus=1 +ann=0\.25\/0\.5\n/,
  );
  expect((await millpond("describe", "claim", "part")).stdout).toMatch(/\nUser: +ann\n/);
  expect(JSON.parse((await millpond("describe", "tenant", "team-a", "-o", "json")).stdout)).toMatchObject({
    userLimit: { gpuMilli: 1000 },
    users: [
      { user: "ann", limit: { gpuMilli: 500 }, used: { gpuMilli: 250 }, boundClaims: 1, waitingClaims: 1 },
    ],
  });

  // Settings that are not named stay unchanged; a file describes the complete settings.
  await millpond("tenant", "change", "team-a", "--limit", "gpus=5");
  expect((await pool.home.millpond(["apply", "-f", "-"], { input: file })).stdout).toBe(
    "tenant/team-a changed\n",
  );
  expect((await pool.home.millpond(["apply", "-f", "-"], { input: file })).stdout).toBe(
    "tenant/team-a unchanged\n",
  );
  await millpond("tenant", "change", "team-a", "--forget-user", "ann");
  expect((await millpond("describe", "tenant", "team-a")).stdout).toMatch(/\n +ann +gpus=1 +0\.75 /);
  expect((await millpond("tenant", "change", "team-a", "--forget-user", "ann")).stderr).toContain(
    "the user ann has no own limit",
  );
  expect((await millpond("tenant", "change", "team-a", "--user", "ann")).stderr).toContain(
    "--user ann is given without --user-limit",
  );

  await pool.until(async ({ queues }) => ((await queues.getUsage({})).usage[0]?.grantedGpuSeconds ?? 0) > 0);
  const by = async (what: string) => (await millpond("usage", "--by", what, "-o", "csv")).stdout.split("\n");
  expect((await by("user"))[0]).toMatch(/^tenant,user,claims,askedGpuHours,/);
  expect((await by("user"))[1]).toMatch(/^team-a,ann,2,/);
  expect((await by("claim")).slice(1, 3).map((row) => row.split(",").slice(0, 5).join())).toEqual([
    "team-a,default,ann,more,1",
    "team-a,default,ann,part,1",
  ]);
  // Waiting claims have no model, bound claims have one.
  // The second one is bound since the limit was forgotten, and usage is counted in whole seconds.
  await expect.poll(async () => (await by("model")).some((row) => /^team-a,[^,]+,2,/.test(row))).toBe(true);
  expect((await millpond("usage", "--by", "user")).stdout).toMatch(/^TENANT +USER +CLAIMS /);
});
