// SPDX-License-Identifier: Apache-2.0

import { X509Certificate } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Controller, startController } from "@millpond/controller";
import { afterAll, beforeAll, expect, test } from "vitest";
import { testLog } from "@millpond/agent/testing/fixture";
import { Home } from "../../../test/fixture.ts";
import { fingerprintOf } from "../../connection/authority.ts";

let home: Home;
let controller: Controller;
let fingerprint: string;

beforeAll(async () => {
  home = new Home();
  const stateDirectory = join(home.directory, "controller");
  // The controller does not consider this address loopback, so it creates an authority of its own.
  controller = await startController({ stateDirectory, listen: "0.0.0.0:0", log: testLog });
  fingerprint = fingerprintOf(
    new X509Certificate(readFileSync(join(stateDirectory, "tls", "ca.crt"), "utf8")),
  );
});
afterAll(async () => {
  await controller[Symbol.asyncDispose]();
  home[Symbol.dispose]();
});

const url = (): string => `https://127.0.0.1:${new URL(controller.url).port}`;

test("login shows the fingerprint of an unknown authority, and asks where it can", async () => {
  const result = await home.millpond(["login", url()], {
    environment: { MILLPOND_TOKEN: controller.userToken },
  });
  expect(result).toMatchObject({ code: 125, stdout: "" });
  expect(result.stderr).toContain(fingerprint);
  expect(result.stderr).toMatch(/no terminal on which[^]*\[MILLPOND_E_TLS\]/);
});

test("login with the right fingerprint trusts that authority, and all commands use the pool", async () => {
  const args = ["login", url(), "--token-file", "-", "--fingerprint", fingerprint, "--name", "lab"];
  const result = await home.millpond(args, { input: `${controller.userToken}\n` });
  expect(result).toMatchObject({ code: 0, stderr: "" });
  expect((await home.millpond(["token", "list", "-o", "json"])).code).toBe(0);
  const listed = await home.millpond(["context", "list"]);
  expect(listed.stdout).toMatch(/\* +lab +https:.* +login\n/);
  expect(`${listed.stdout}${result.stdout}`).not.toContain(controller.userToken);
  expect((await home.millpond(["context", "use", "labb"])).stderr).toMatch(
    /no context "labb"\n {2}There is lab/,
  );
  expect((await home.millpond(["logout"])).stdout).toBe("logged out of lab\n");
  expect((await home.millpond(["get", "nodes"])).stderr).toContain("NOT_CONFIGURED");
});

test("another authority than the fingerprint says gets no token", async () => {
  const other = `sha256:${"0".repeat(64)}`;
  const args = ["login", url(), "--token", controller.userToken, "--fingerprint", other];
  const result = await home.millpond(args);
  expect(result.stderr).toMatch(
    /has the fingerprint sha256:[0-9a-f]+, not sha256:0+\n[^]*\[MILLPOND_E_TLS\]/,
  );
});

test("a token that the controller does not know is not kept", async () => {
  const ca = join(home.directory, "controller", "tls", "ca.crt");
  const result = await home.millpond(["login", url(), "--token", "nonsense-nonsense", "--ca", ca]);
  expect(result).toMatchObject({ code: 120 });
  expect(result.stderr).toContain("MILLPOND_E_UNAUTHENTICATED");
  expect((await home.millpond(["context", "list", "-o", "name"])).stdout).toBe("");
});

test("a token file that is empty or a controller that speaks HTTP is said to be so", async () => {
  const path = join(home.directory, "empty");
  writeFileSync(path, "\n");
  const empty = await home.millpond(["login", "http://127.0.0.1:1", "--token-file", path]);
  expect(empty.stderr).toMatch(/a token is one word/);
  const plain = await startController({
    stateDirectory: join(home.directory, "plain"),
    listen: "127.0.0.1:0",
    log: testLog,
  });
  try {
    const wrong = plain.url.replace("http:", "https:");
    const result = await home.millpond(["login", wrong, "--token", plain.userToken]);
    expect(result.stderr).toMatch(
      /there is no controller at https:\S+: the server does not speak TLS\n.*use http:\/\//,
    );
    const right = await home.millpond(["login", plain.url, "--token", plain.userToken]);
    expect(right).toMatchObject({ code: 0 });
    expect(right.stdout).toContain("the current context is 127-0-0-1");
  } finally {
    await plain[Symbol.asyncDispose]();
  }
});
