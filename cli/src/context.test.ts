// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect, resolveEndpoint } from "./connection.ts";
import {
  type ContextFile,
  contextFilePath,
  enterContext,
  leaveContext,
  readContexts,
  writeContexts,
} from "./context.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "millpond-context-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

const production = { controller: "https://pool.example", token: "production-token", previous: "" };
const local = { controller: "http://127.0.0.1:7170", token: "local-token" };

describe("the context file", () => {
  test("comes back as it was written, for its owner only", () => {
    const path = join(directory, "deep", "config.json");
    expect(readContexts(path)).toEqual({ currentContext: "", contexts: {} });
    const file: ContextFile = { currentContext: "production", contexts: { production } };
    writeContexts(path, file);
    expect(readContexts(path)).toEqual(file);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test("is where the environment says", () => {
    expect(contextFilePath({ MILLPOND_CONFIG: "/x/y" })).toBe("/x/y");
    expect(contextFilePath({ XDG_CONFIG_HOME: "/home/u/.cfg" })).toBe("/home/u/.cfg/millpond/config.json");
    expect(contextFilePath({})).toMatch(/\/\.config\/millpond\/config\.json$/);
  });

  test.for([
    "{",
    "[]",
    '{"kind": "Config"}',
    '{"kind": "Config", "currentContext": "", "contexts": {"a": {}}}',
  ])("that holds %s is refused", (text) => {
    const path = join(directory, "config.json");
    writeFileSync(path, text);
    expect(() => readContexts(path)).toThrow(/cannot be read: .*\[MILLPOND_E_INVALID\]/);
  });

  test("entering and leaving a context goes back to the one before", () => {
    const before: ContextFile = { currentContext: "production", contexts: { production } };
    const within = enterContext(enterContext(before, "local", local), "local", { ...local, token: "newer" });
    expect(within.currentContext).toBe("local");
    expect(leaveContext(within, "local", local.controller)).toEqual(before);
  });

  test("leaving a context that was replaced or is not current leaves the rest alone", () => {
    const within = enterContext({ currentContext: "", contexts: {} }, "local", local);
    expect(leaveContext(within, "local", "http://127.0.0.1:9")).toEqual(within);
    const elsewhere = { ...enterContext(within, "production", production) };
    expect(leaveContext(elsewhere, "local", local.controller).currentContext).toBe("production");
  });
});

describe("the endpoint", () => {
  test("is the option's, else the context's, and a context's token goes to its controller only", () => {
    const environment = { MILLPOND_CONFIG: join(directory, "config.json") };
    const none = { controller: undefined, token: undefined };
    expect(() => resolveEndpoint(none, environment)).toThrow("[MILLPOND_E_NOT_CONFIGURED]");
    writeContexts(
      environment.MILLPOND_CONFIG,
      enterContext({ currentContext: "", contexts: {} }, "local", local),
    );
    expect(resolveEndpoint(none, environment)).toMatchObject(local);
    expect(resolveEndpoint({ ...none, controller: "http://127.0.0.1:1" }, environment).token).toBe("");
    expect(resolveEndpoint({ ...none, controller: local.controller }, environment).token).toBe(local.token);
    expect(resolveEndpoint({ ...none, token: "given" }, environment).token).toBe("given");
    expect(() => resolveEndpoint({ ...none, controller: "ftp://x" }, environment)).toThrow(
      "[MILLPOND_E_INVALID]",
    );
  });

  test("that is no controller is said to be none", async () => {
    const { pool } = connect({ controller: "http://127.0.0.1:1", token: "", source: "the test" });
    await expect(pool.getVersion({})).rejects.toThrow(
      /there is no controller at http:\/\/127\.0\.0\.1:1 \(the test\): .*\[MILLPOND_E_UNREACHABLE\]$/,
    );
  });
});
