// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { childrenOf, fakeClient, PoolFixture } from "../../../test/fixture.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start();
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

test("-v says what was granted", async () => {
  const result = await pool.home.millpond(["run", "-v", "-m", "1Gi", "--compute", "30", "--", "true"]);
  expect(result.stderr).toMatch(
    /^millpond: claim claim-\w+ has node-a\/0 \(1 GiB, 30% compute\), over shared memory\nmillpond: claim claim-\w+ released\n$/,
  );
  expect(result).toMatchObject({ code: 0, stdout: "" });
});

test("-v names the transport that was asked for, and the one that a program uses instead", async () => {
  const asked = await pool.home.millpond(["run", "-v", "-m", "1Gi", "--transport", "tcp", "--", "true"]);
  expect(asked.stderr).toMatch(/\(1 GiB, 25% compute\), over TCP\n/);
  const running = pool.home.start([
    "run",
    "-v",
    "-m",
    "1Gi",
    "--",
    "env",
    "MILLPOND_TRANSPORT=tcp",
    ...fakeClient,
  ]);
  await running.says("stderr", /over shared memory\nmillpond: \S+ \(\d+\) uses node-a\/0 over TCP\n/);
  running.child.kill("SIGTERM");
  await running.finished;
  await pool.expectNoClaims();
});

test("run keeps its claim while it is stopped, as by Ctrl-Z", async () => {
  const running = pool.home.start([
    "run",
    "-m",
    "1Gi",
    "--name",
    "napping",
    "--",
    "sh",
    "-c",
    "echo runs; read end",
  ]);
  await running.says("stdout", /runs/);
  const lease = async (): Promise<bigint> =>
    (await pool.connection.claims.getClaim({ name: "napping" })).claim?.leaseExpiresAt ?? 0n;
  const pid = running.child.pid;
  const before = childrenOf(pid);
  running.child.kill("SIGTSTP");
  await pool.until(async () => /^State:\tT/m.test(readFileSync(`/proc/${pid}/status`, "utf8")));
  const stopped = await lease();
  // Two renewals, because the first could be one that was already in progress.
  await pool.until(async () => (await lease()) > stopped);
  const renewed = await lease();
  await pool.until(async () => (await lease()) > renewed);
  running.child.kill("SIGCONT");
  await pool.until(async () => childrenOf(pid) === before);
  running.child.stdin?.end();
  expect(await running.finished).toMatchObject({ code: 1, stdout: "runs\n", stderr: "" });
  await pool.expectNoClaims();
}, 60_000);
