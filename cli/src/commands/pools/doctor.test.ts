// SPDX-License-Identifier: Apache-2.0

import { chmodSync } from "node:fs";
import { join } from "node:path";
import { testLog } from "@millpond/agent/testing/fixture";
import { startController } from "@millpond/controller";
import { expect, test } from "vitest";
import { Home, PoolFixture } from "../../../test/fixture.ts";
import type { Finding } from "../../doctor/check.ts";
import { checkEnvironment } from "../../doctor/machine.ts";

interface Diagnosis {
  readonly ok: boolean;
  readonly checks: readonly Finding[];
}

test("a good pool is found good; what is wrong with this machine is named with its repair", async () => {
  await using pool = await PoolFixture.start();
  chmodSync(pool.home.config, 0o644);
  const result = await pool.home.millpond(["doctor", "-o", "json"]);
  const { ok, checks } = JSON.parse(result.stdout) as Diagnosis;
  const statusOf = (name: string): string | undefined => checks.find((check) => check.name === name)?.status;
  expect(["Node", "worker", "controller", "token", "node node-a"].map(statusOf)).toEqual(Array(5).fill("ok"));
  expect(statusOf("configuration")).toBe("warning");
  // The fixture's client library is a text file.
  expect(statusOf("client library")).toBe("failure");
  expect(ok).toBe(false);
  expect(result.code).toBe(1);
  for (const { status, fix } of checks) {
    expect(fix !== "").toBe(status === "warning" || status === "failure");
  }
});

test("a controller that does not answer, or does not accept the token, is a finding", async () => {
  using home = new Home();
  const without = await home.millpond(["doctor"], {
    environment: { MILLPOND_CONTROLLER: "http://127.0.0.1:1" },
  });
  expect(without).toMatchObject({ code: 1, stderr: "" });
  expect(without.stdout).toMatch(
    /✘ controller: there is no controller at .*\n {4}fix: Start a pool with `millpond up`/,
  );
  await using pool = await PoolFixture.start();
  const refused = await pool.home.millpond(["doctor"], {
    environment: { MILLPOND_TOKEN: "wrong-token-wrong" },
  });
  expect(refused.stdout).toMatch(/✔ controller: .*\n✘ token: .*\n {4}fix: /);
});

test("a pool that no agent has joined is a finding, and its repair is not another pool", async () => {
  using home = new Home();
  await using controller = await startController({
    stateDirectory: join(home.directory, "controller"),
    listen: "127.0.0.1:0",
    log: testLog,
  });
  const { stdout } = await home.millpond(["doctor"], {
    environment: { MILLPOND_CONTROLLER: controller.url, MILLPOND_TOKEN: controller.userToken },
  });
  expect(stdout).toMatch(
    /✘ nodes: no agent has joined the pool\n {4}fix: .*`millpond token create NODE --role agent`/,
  );
});

test("a controller of several that does not answer is a finding", async () => {
  await using pool = await PoolFixture.start();
  const { controller } = pool.connection;
  const { stdout } = await pool.home.millpond(["doctor"], {
    environment: { MILLPOND_CONTROLLER: `${controller},http://127.0.0.1:1` },
  });
  expect(stdout).toMatch(/✔ controller: /);
  expect(stdout).toMatch(/! controller: one of 2 controllers does not answer.*http:\/\/127\.0\.0\.1:1/);
});

test("variables that get in the way are named", () => {
  using home = new Home();
  const native = { worker: "", client: join(home.native, "client", "libcuda.so.1"), softgpu: home.softgpu };
  const namesOf = (environment: NodeJS.ProcessEnv): string[] =>
    checkEnvironment(environment, native).map(({ status, name }) => `${status} ${name}`);
  expect(namesOf({ PATH: "/bin", MILLPOND_GPUS: "2", CUDA_VISIBLE_DEVICES: "0" })).toEqual([
    "ok environment",
  ]);
  expect(namesOf({ MILLPOND_GPU: "2" })).toEqual(["warning environment"]);
  expect(namesOf({ MILLPOND_MEMORY: "lots" })).toEqual(["failure environment"]);
  expect(namesOf({ MILLPOND_WORKER: "unix:/x" })).toEqual(["warning environment"]);
  expect(namesOf({ CUDA_VISIBLE_DEVICES: "3" })).toEqual(["warning CUDA_VISIBLE_DEVICES"]);
  expect(namesOf({ LD_LIBRARY_PATH: "/opt:" })).toEqual(["warning LD_LIBRARY_PATH"]);
  const [ours, other] = [join(home.native, "client"), join(home.native, "softgpu")];
  expect(namesOf({ LD_LIBRARY_PATH: `${ours}:${other}` })).toEqual(["ok environment"]);
  expect(namesOf({ LD_LIBRARY_PATH: `${other}:${ours}` })).toEqual(["failure LD_LIBRARY_PATH"]);
  expect(namesOf({ LD_PRELOAD: "/x/libcuda.so" })).toEqual(["warning LD_PRELOAD"]);
});
