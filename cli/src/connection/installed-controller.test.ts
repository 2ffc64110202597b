// SPDX-License-Identifier: Apache-2.0

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { installedController } from "./installed-controller.ts";

function install(config: string, { token = "mp-admin-token" } = {}) {
  const directory = mkdtempSync(join(tmpdir(), "millpond-installed-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const state = join(directory, "state");
  mkdirSync(join(state, "tls"), { recursive: true });
  writeFileSync(join(directory, "controller.yaml"), config);
  if (token !== "") writeFileSync(join(state, "user.token"), `${token}\n`);
  writeFileSync(join(state, "tls", "ca.crt"), "the authority");
  return { config: join(directory, "controller.yaml"), state };
}

test.each([
  ["", "http://127.0.0.1:7170"],
  ["logLevel: info\n", "http://127.0.0.1:7170"],
  ["listen: 127.0.0.1:7999", "http://127.0.0.1:7999"],
  ["listen: 127.0.0.1:7999\ntlsCert: /c.pem", "https://127.0.0.1:7999"],
  ["listen: 0.0.0.0:7170", "https://127.0.0.1:7170"],
  ["listen: '[::]:7171'", "https://127.0.0.1:7171"],
  ["listen: 10.0.0.1", "https://10.0.0.1:7170"],
])("a controller with the file %j is reached at %s", (config, url) => {
  expect(installedController(install(config))).toMatchObject({
    controller: url,
    token: "mp-admin-token",
    ca: url.startsWith("https") ? "the authority" : undefined,
  });
});

test("there is none without its file, and none for users who may not read its token", () => {
  const paths = install("listen: 127.0.0.1:7170");
  expect(installedController({ ...paths, config: `${paths.config}.other` })).toBeUndefined();
  expect(installedController(install("listen: 127.0.0.1:7170", { token: "" }))).toBeUndefined();
  expect(installedController(install(`state: ${paths.state}`, { token: "" }))?.token).toBe("mp-admin-token");
  chmodSync(join(paths.state, "user.token"), 0);
  // Root can read it in any mode.
  expect(installedController(paths)?.token).toBe(process.getuid?.() === 0 ? "mp-admin-token" : undefined);
});
