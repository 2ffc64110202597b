// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ClaimState } from "@millpond/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { entry } from "../../../test/entry.ts";
import { PoolFixture } from "../../../test/fixture.ts";

const scripts = fileURLToPath(new URL("../../../../packaging/slurm", import.meta.url));

let pool: PoolFixture;
beforeAll(async () => {
  // With TLS, so that there is an authority to pass on.
  pool = await PoolFixture.start({ tls: true });
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

function runFolder(): string {
  return join(pool.home.directory, "slurm");
}

/**
 * Runs a script as slurmd does, for a job whose description by scontrol contains `asked`. The task prolog runs without the
 * configuration, which only root can read.
 */
async function slurm(script: string, asked: string, comment = ""): Promise<string> {
  const isRoot = script !== "task-prolog.sh";
  const bin = join(pool.home.directory, "bin");
  mkdirSync(bin, { recursive: true });
  const program = (name: string, line: string): void => {
    writeFileSync(join(bin, name), `#!/bin/sh\n${line}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  program("scontrol", `echo "JobId=7 JobName=a ${asked} Comment=x"`);
  program("millpond", `exec ${process.execPath} ${entry} "$@"`);
  const { controller, token } = pool.connection;
  const configuration = join(pool.home.directory, "slurm.env");
  const authority = join(pool.home.directory, "ca.crt");
  writeFileSync(
    configuration,
    `MILLPOND_CONTROLLER=${controller}\nMILLPOND_TOKEN=${token}\nMILLPOND_CA=${authority}\n`,
  );
  const { stdout } = await promisify(execFile)(join(scripts, script), {
    env: {
      ...pool.home.environment,
      PATH: `${bin}:${process.env["PATH"]}`,
      MILLPOND_CONFIG: join(pool.home.directory, "none.json"),
      SLURM_MILLPOND_ENV: isRoot ? configuration : join(pool.home.directory, "unreadable.env"),
      SLURM_MILLPOND_RUN: runFolder(),
      SLURM_JOB_ID: "7",
      SLURM_JOB_COMMENT: comment,
      SLURM_JOB_USER: "ann",
    },
  });
  return stdout;
}

test("a job's claim is made before it, found by its tasks, and given back after it", async () => {
  const asked = "TresPerNode=gres/vgpu:1";
  await slurm("prolog.sh", asked, 'memory=1Gi compute=25% queue=x memory=$(touch /tmp/x) model="');
  const { claim } = await pool.connection.claims.getClaim({ name: "slurm-7" });
  expect(claim).toMatchObject({
    state: ClaimState.BOUND,
    gpus: 1,
    memoryBytes: 1n << 30n,
    computePercent: 25,
  });
  // On the job's second node the claim already exists.
  await slurm("prolog.sh", asked, "memory=1Gi compute=25%");
  const lines = (await slurm("task-prolog.sh", asked)).trim().split("\n");
  expect(statSync(join(runFolder(), "7")).mode & 0o777).toBe(0o600);
  expect(lines.filter((line) => !/^export [A-Z_]+=[^'"]+$/.test(line))).toEqual([]);
  expect(lines).toContain("export MILLPOND_CLAIM=slurm-7");
  expect(lines).toContain(`export MILLPOND_CA=${join(pool.home.directory, "ca.crt")}`);
  expect(lines.join("\n")).not.toContain(pool.connection.token);
  await slurm("epilog.sh", asked);
  expect((await pool.connection.claims.listClaims({})).claims).toEqual([]);
  expect(readdirSync(runFolder())).toEqual([]);
  await slurm("epilog.sh", asked);
});

test("a job that asks for no vGPU has no claim", async () => {
  expect(await slurm("prolog.sh", "TresPerNode=gres/gpu:2")).toBe("");
  expect(await slurm("task-prolog.sh", "TresPerNode=(null)")).toBe("");
  expect((await pool.connection.claims.listClaims({})).claims).toEqual([]);
  expect(existsSync(join(runFolder(), "7"))).toBe(false);
});

test("tasks of a job that the pool cannot hold end with the reason, and the prolog does not fail", async () => {
  const asked = "TresPerNode=gres:vgpu:40";
  // Slurm drains a node whose prolog fails.
  await slurm("prolog.sh", asked);
  await expect(slurm("task-prolog.sh", asked)).rejects.toMatchObject({
    code: 1,
    stdout: expect.stringMatching(
      /^print millpond: error: claim\/slurm-7: .*\n(print .*\n)*print .*MILLPOND_E_IMPOSSIBLE/,
    ) as string,
  });
  expect((await pool.connection.claims.listClaims({})).claims).toEqual([]);
  await slurm("epilog.sh", asked);
  expect(readdirSync(runFolder())).toEqual([]);
});
