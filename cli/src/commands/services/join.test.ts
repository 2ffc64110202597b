// SPDX-License-Identifier: Apache-2.0

import { readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { type Controller, startController } from "@millpond/controller";
import { afterAll, beforeAll, expect, test } from "vitest";
import { testLog } from "@millpond/agent/testing/fixture";
import { Home } from "../../../test/fixture.ts";

let home: Home;
let controller: Controller;
let url: string;
let fingerprint: string;

beforeAll(async () => {
  home = new Home();
  // The controller does not consider this address loopback, so it creates an authority of its own.
  controller = await startController({
    stateDirectory: join(home.directory, "controller"),
    listen: "0.0.0.0:0",
    log: testLog,
  });
  url = `https://127.0.0.1:${new URL(controller.url).port}`;
  const environment = {
    MILLPOND_CONTROLLER: url,
    MILLPOND_TOKEN: controller.userToken,
    MILLPOND_CA: join(home.directory, "controller", "tls", "ca.crt"),
  };
  const made = await home.millpond(["token", "create", "node-7", "--role", "agent"], { environment });
  const [, next = ""] = /millpond join (.*)\n/.exec(made.stderr) ?? [];
  fingerprint = /--fingerprint (\S+)/.exec(next)?.[1] ?? "";
  writeFileSync(join(home.directory, "token"), made.stdout);
});
afterAll(async () => {
  await controller[Symbol.asyncDispose]();
  home[Symbol.dispose]();
});

const options = (directory: string): string[] => [
  "--driver=soft",
  "--listen=127.0.0.1:0",
  `--directory=${join(home.directory, directory)}`,
  `--token-file=${join(home.directory, "token")}`,
  `--fingerprint=${fingerprint}`,
];

test("a host joins by one command, and its agent needs no other option than the file that this wrote", async () => {
  const joined = await home.millpond([
    "join",
    url,
    "--name",
    "node-7",
    "--labels",
    "zone=b",
    ...options("etc"),
  ]);
  expect(joined).toMatchObject({ code: 0, stderr: "" });
  const config = join(home.directory, "etc", "agent.yaml");
  expect(joined.stdout).toMatch(
    /GPUs? to offer: [^]*token as an agent's[^]*the node node-7\nStart the agent: millpond agent --config/,
  );
  expect(joined.stdout).toContain(config);
  expect(statSync(join(home.directory, "etc", "agent.token")).mode & 0o777).toBe(0o600);
  expect(joined.stdout).not.toContain(readFileSync(join(home.directory, "token"), "utf8").trim());
  const check = await home.millpond(["config", "check", "agent", config]);
  expect(check).toMatchObject({ code: 0, stderr: "" });
  expect(check.stdout).toContain("  labels: zone=b\n");
  const agent = home.start(["agent", "--config", config, "--run", join(home.directory, "run")]);
  try {
    await agent.says("stderr", /the agent serves/);
    const environment = {
      MILLPOND_CONTROLLER: url,
      MILLPOND_TOKEN: controller.userToken,
      MILLPOND_CA: join(home.directory, "controller", "tls", "ca.crt"),
    };
    await expect
      .poll(async () => (await home.millpond(["get", "nodes"], { environment })).stdout)
      .toMatch(/node-7 +Ready/);
  } finally {
    agent.child.kill("SIGTERM");
    await agent.finished;
  }
});

test("nothing is written before all is well", async () => {
  const of = (...args: string[]) => home.millpond(["join", url, ...options("etc2"), ...args]);
  const wrongRole = join(home.directory, "admin");
  writeFileSync(wrongRole, controller.userToken);
  expect((await of("--token-file", wrongRole)).stderr).toMatch(
    /the token is good, but not an agent's[^]*--role agent/,
  );
  const withoutFile = options("etc2").filter((option) => !option.startsWith("--token-file"));
  const environment = { MILLPOND_TOKEN: controller.userToken };
  expect((await home.millpond(["join", url, ...withoutFile], { environment })).stderr).toMatch(
    /the token is good, but not an agent's/,
  );
  expect((await of("--fingerprint", "sha256:12")).stderr).toMatch(/is not sha256: and 64/);
  expect((await of("--driver", "/nowhere/libcuda.so.1")).stderr).toMatch(/\[MILLPOND_E_DRIVER\]/);
  const byOtherName = await home.millpond([
    "join",
    url.replace("127.0.0.1", "127.0.0.2"),
    ...options("etc2"),
  ]);
  expect(byOtherName.stderr).toMatch(/127\.0\.0\.2:\d+ is not trusted: [^]*\[MILLPOND_E_TLS\]/);
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  expect((await of("--listen", `127.0.0.1:${port}`)).stderr).toMatch(
    /the agent cannot serve at .*EADDRINUSE/,
  );
  await new Promise((resolve) => server.close(resolve));
  expect(() => statSync(join(home.directory, "etc2"))).toThrow("ENOENT");
});

test("an agent without a controller or a token says how to join", async () => {
  const none = await home.millpond(["agent", "--config", "none"]);
  expect(none).toMatchObject({ code: 119, stdout: "" });
  expect(none.stderr).toMatch(/the agent has no controller\n {2}Join a pool with `millpond join`/);
});
