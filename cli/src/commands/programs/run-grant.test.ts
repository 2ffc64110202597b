// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { entry } from "../../../test/entry.ts";
import { childrenOf, fakeClient, PoolFixture, Running } from "../../../test/fixture.ts";

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

test("in a terminal, a key's signal reaches the program once, and so does one that was sent to run alone", async () => {
  const counts = `n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'echo $n in all; exit 9' USR1; echo runs under $PPID`;
  const script = `${counts}; while :; do sleep 0.05; done`;
  const millpond = `'${process.execPath}' '${entry}'`;
  const running = new Running(
    spawn("script", ["-qec", `exec ${millpond} run -m 1Gi -- sh -c "$PROGRAM"`, "/dev/null"], {
      env: { ...pool.home.environment, SHELL: "/bin/sh", PROGRAM: script },
      stdio: ["pipe", "pipe", "pipe"],
    }),
  );
  await running.says("stdout", /runs under \d+/);
  const pid = Number(/runs under (\d+)/.exec(running.stdout)?.[1]);
  process.kill(pid, "SIGINT");
  await running.says("stdout", /got 1/);
  const before = childrenOf(pid);
  running.child.stdin?.write("\x03");
  await running.says("stdout", /got 2/);
  // By then it is decided whether the program gets the signal of the key from run, too.
  await pool.until(async () => childrenOf(pid) !== before);
  process.kill(pid, "SIGUSR1");
  await running.says("stdout", /2 in all/);
  expect(await running.finished).toMatchObject({ code: 9 });
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
});
