// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect, resolveEndpoint } from "./connection.ts";
import {
  changeContexts,
  type ContextFile,
  contextFilePath,
  enterContext,
  leaveContext,
  localContextName,
  readContexts,
  writeContexts,
} from "./context.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "millpond-context-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

const production = { controller: "https://pool.example", token: "production-token" };
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
    '{"kind": "Config", "contexts": {"a": {"controller": "http://x", "tokn": "t"}}}',
    '{"kind": "Config", "contexts": {"A b": {"controller": "http://x"}}}',
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

  test("written by hand needs no more than a controller", () => {
    const path = join(directory, "config.json");
    writeFileSync(path, '{"kind": "Config", "contexts": {"a": {"controller": "http://x"}}}');
    expect(readContexts(path)).toEqual({
      currentContext: "",
      contexts: { a: { controller: "http://x", token: "" } },
    });
  });

  test("that cannot be written is said to be so", () => {
    expect(() => changeContexts("/dev/null/config.json", (file) => file)).toThrow(
      /cannot be written: .*\. Set MILLPOND_CONFIG .*\[MILLPOND_E_INVALID\]/,
    );
  });

  test("local pools have names of their own, and the same ones again", () => {
    const usual = "/home/u/.local/state/millpond";
    let file: ContextFile = { currentContext: "", contexts: { "local-st2": production } };
    const up = (state: string): string => {
      const name = localContextName(file, state, usual);
      file = enterContext(file, name, { ...local, state });
      return name;
    };
    const names = [usual, "/tmp/st1", "/tmp/st2", "/var/tmp/st1", "/tmp/Überdruck 7/", "/"].map(up);
    expect(names).toEqual([
      "local",
      "local-st1",
      "local-st2-2",
      "local-st1-2",
      "local-berdruck-7",
      "local-2",
    ]);
    expect(up("/tmp/st1")).toBe("local-st1");
  });

  test("pools that begin and end in any order: the current one is the latest that runs, then the one before all", () => {
    const states = ["/a", "/b", "/c", "/d"];
    const steps = fc.array(fc.record({ state: fc.constantFrom(...states), restart: fc.boolean() }), {
      maxLength: 30,
    });
    fc.assert(
      fc.property(steps, (all) => {
        let file: ContextFile = { currentContext: "production", contexts: { production } };
        let port = 1;
        let running: { state: string; name: string; controller: string }[] = [];
        const end = (state: string): void => {
          const pool = running.find((each) => each.state === state);
          if (pool === undefined) return;
          running = running.filter((each) => each !== pool);
          file = leaveContext(file, pool.name, pool.controller);
        };
        for (const { state, restart } of all) {
          const isRunning = running.some((each) => each.state === state);
          if (isRunning) end(state);
          if (!isRunning || restart) {
            const name = localContextName(file, state, "/a");
            const controller = `http://127.0.0.1:${(port += 1)}`;
            file = enterContext(file, name, { controller, token: "t", state });
            running.push({ state, name, controller });
          }
          expect(file.contexts[file.currentContext]?.controller).toBe(
            running.at(-1)?.controller ?? production.controller,
          );
          expect(Object.keys(file.contexts)).toHaveLength(running.length + 1);
        }
        for (const { state } of running.slice()) end(state);
        expect(file).toEqual({ currentContext: "production", contexts: { production } });
      }),
    );
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

  test("is the context's that is asked for, and one that is not there is refused with those that are", () => {
    const environment = { MILLPOND_CONFIG: join(directory, "config.json") };
    writeContexts(environment.MILLPOND_CONFIG, { currentContext: "", contexts: { production, local } });
    const asked = { controller: undefined, token: undefined };
    expect(resolveEndpoint({ ...asked, context: "local" }, environment)).toMatchObject(local);
    expect(() => resolveEndpoint({ ...asked, context: "prod" }, environment)).toThrow(
      /there is no context "prod"\. Choose one of production, local: /,
    );
    expect(() => resolveEndpoint(asked, environment)).toThrow(/no context is selected\. Choose one/);
  });

  test("that is no controller is said to be none", async () => {
    const { pool } = connect({ controller: "http://127.0.0.1:1", token: "", source: "the test" });
    await expect(pool.getVersion({})).rejects.toThrow(
      /there is no controller at http:\/\/127\.0\.0\.1:1 \(the test\): .*\[MILLPOND_E_UNREACHABLE\]$/,
    );
  });
});
