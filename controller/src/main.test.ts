// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { PoolService } from "@millpond/api";
import { expect, test } from "vitest";
import { ControllerProcess } from "./testing/controller-process.ts";
import { makeTestDirectory } from "./testing/test-pool.ts";
import { makeTransport } from "./testing/transport.ts";

async function run(args: readonly string[], env: Record<string, string> = {}) {
  const mainPath = fileURLToPath(new URL("main.ts", import.meta.url));
  const child = spawn(process.execPath, [mainPath, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code: child.exitCode, stdout, stderr };
}

test("SIGTERM ends it with status 0", async () => {
  const controller = await ControllerProcess.start(makeTestDirectory());
  expect(controller.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  expect(await controller.end("SIGTERM")).toBe(0);
});

test("two processes do not share a state directory", async () => {
  const directory = makeTestDirectory();
  const first = await ControllerProcess.start(directory);
  const second = await run(["--listen", "127.0.0.1:0", "--state", directory]);
  expect(second).toMatchObject({ code: 1, stdout: "" });
  expect(second.stderr).toMatch(
    /^error: the state in .* another process holds it\. .*\[MILLPOND_E_STATE_LOCKED\]\n$/,
  );
  const transport = makeTransport(first.url, first.userToken);
  expect((await createClient(PoolService, transport).getVersion({})).api).toBe("v1");
  await first.end("SIGTERM");
});

test("two processes do not share an address", async () => {
  const first = await ControllerProcess.start(makeTestDirectory());
  const second = await run(["--listen", new URL(first.url).host, "--state", makeTestDirectory()]);
  expect(second.code).toBe(1);
  expect(second.stderr).toMatch(
    /^error: the controller cannot listen on 127\.0\.0\.1:\d+: .*\[MILLPOND_E_ADDRESS_IN_USE\]\n$/,
  );
  await first.end("SIGTERM");
});

test.each([
  ["a certificate without its key", ["--tls-cert", "x"], {}, "MILLPOND_E_INVALID"],
  ["a certificate that is not there", ["--tls-cert", "/x", "--tls-key", "/x"], {}, "MILLPOND_E_TLS"],
  ["an unknown option", ["--lisen", "x"], {}, "MILLPOND_E_INVALID"],
  ["a stray argument", ["start"], {}, "MILLPOND_E_INVALID"],
  ["a bad log level", ["--log-level", "loud"], {}, "MILLPOND_E_INVALID"],
  ["a bad token", [], { MILLPOND_USER_TOKENS: "short" }, "MILLPOND_E_INVALID"],
  ["a state directory that is a file", ["--state", "/dev/null/x"], {}, "MILLPOND_E_STATE_BROKEN"],
] as [string, string[], Record<string, string>, string][])(
  "%s is refused with one line and status 1",
  async (_what, args, env, code) => {
    const state = args.includes("--state") ? [] : ["--state", makeTestDirectory()];
    const outcome = await run([...args, ...state], env);
    expect(outcome).toMatchObject({ code: 1, stdout: "" });
    expect(outcome.stderr).toMatch(new RegExp(`^error: [^\\n]+ \\[${code}\\]\\n$`));
  },
);

test("--help explains the options", async () => {
  const { code, stdout, stderr } = await run(["--help"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(/--listen .*\n.*MILLPOND_LISTEN/);
});
