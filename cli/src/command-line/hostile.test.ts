// SPDX-License-Identifier: Apache-2.0

// Whatever a user types, and wherever: no stack trace, no internal error, and an error has one form.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import * as fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "../../test/entry.ts";
import { PoolFixture } from "../../test/fixture.ts";
import {
  escapeSequence,
  type HostileCommand,
  hostileCommands,
  makeFiles,
  startOddServers,
} from "../../test/hostile.ts";
import { type CommandName, commandNames } from "../command-table/command-table.ts";

const count = Number(process.env["MILLPOND_HOSTILE"] ?? 40);
const seed = Number(process.env["MILLPOND_HOSTILE_SEED"] ?? 1);
const names = (process.env["MILLPOND_HOSTILE_COMMANDS"]?.split(",") ??
  commandNames) as readonly CommandName[];

/** Root may write everywhere, and users are hardly ever root. */
const user = process.getuid?.() === 0 ? 65_534 : (process.getuid?.() ?? 0);

/** Why that user cannot run the command; empty: it can. */
const why =
  spawnSync(process.execPath, [entry, "--version"], { uid: user, gid: user }).status === 0
    ? ""
    : ` (user ${user} cannot read ${entry})`;

interface Outcome {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly isInterrupted: boolean;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line to its end. */
async function runHostile(home: string, base: NodeJS.ProcessEnv, command: HostileCommand): Promise<Outcome> {
  const redirect = { pipe: "", full: " > /dev/full", closed: " >&-" }[command.output];
  const child = spawn(
    "/bin/sh",
    [
      "-c",
      `${command.before === "" ? ":" : command.before}; exec "$@"${redirect}`,
      "sh",
      process.execPath,
      entry,
      ...command.args,
    ],
    { cwd: home, env: { ...base, ...command.environment }, uid: user, gid: user, detached: true },
  );
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  child.stdin.on("error", () => undefined).end(command.input);
  let isInterrupted = false;
  const ended = once(child, "close");
  const interrupt = async (): Promise<void> => {
    await delay(command.patienceMs, undefined, { ref: false });
    for (const signal of ["SIGINT", "SIGTERM", "SIGKILL"] as const) {
      if (child.exitCode !== null || child.signalCode !== null) return;
      isInterrupted = true;
      child.kill(signal);
      await Promise.race([ended, delay(20_000, undefined, { ref: false })]);
    }
  };
  void interrupt();
  const [code, signal] = (await ended) as [number | null, NodeJS.Signals | null];
  try {
    process.kill(-(child.pid ?? 0), "SIGKILL");
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe("ESRCH");
  }
  return { code, signal, isInterrupted, stdout, stderr };
}

/** Describes the fault of a command; undefined: it has none. */
function faultOf(
  command: HostileCommand,
  { code, signal, isInterrupted, stdout, stderr }: Outcome,
): string | undefined {
  if (/^\s+at .*(?:node:|file:|\.ts|\.mjs|<anonymous>)/m.test(stderr)) return "a stack trace";
  if (/Node\.js v\d|node:internal|UnhandledPromise|\(Use `node /.test(stderr)) return "a word of Node";
  if (stderr.includes("MILLPOND_E_INTERNAL")) return "an internal error";
  if (/\[object |\bundefined\b/.test(stderr)) return "a value that is no text";
  if (`${stdout}${stderr}`.includes(escapeSequence)) return "an escape sequence";
  if (signal !== null && !(isInterrupted && signal !== "SIGKILL")) return `the end by ${signal}`;
  const errors = stderr.match(/^error: /gm)?.length ?? 0;
  if (errors > 1) return "more than one error";
  if (errors === 1 && !/^error: .*\n(?: {2}.*\n)?(?: {2}\[MILLPOND_E_[A-Z_]+\]\n)/m.test(stderr))
    return "an error of another form";
  if (code === null || code === 0 || code === 141 || isInterrupted) return undefined;
  const [name = ""] = command.args;
  // Status of the program, or of findings.
  if (["run", "sanitize", "doctor"].includes(name) && [1, 126, 127].includes(code)) return undefined;
  if (errors === 0) return `status ${code} without an error`;
  return undefined;
}

test.skipIf(why !== "")(
  `${count} random command lines of seed ${seed} end with no stack trace, and at most one error${why}`,
  {
    timeout: 120_000 + count * 5_000,
  },
  async () => {
    const pool = await PoolFixture.start();
    onTestFinished(() => pool[Symbol.asyncDispose]());
    const odd = await startOddServers();
    onTestFinished(() => {
      for (const server of odd.servers) server.close();
    });
    const { home } = pool;
    const own = mkdtempSync(join(home.directory, "user-"));
    chownSync(own, user, user);
    chownSync(home.directory, user, user);
    const { contexts } = JSON.parse(readFileSync(home.config, "utf8")) as {
      readonly contexts: { readonly test: { readonly controller: string; readonly token: string } };
    };
    const { controller, token } = contexts.test;
    const commands = fc.sample(
      hostileCommands(
        { files: makeFiles(join(own, "files"), user), controllers: [controller, ...odd.urls], token },
        names,
      ),
      { numRuns: count, seed },
    );
    const faults: string[] = [];
    const config = readFileSync(home.config);
    const work = async (worker: number): Promise<void> => {
      const folder = join(own, `home-${worker}`);
      for (let index = worker; index < commands.length; index += 3) {
        const command = commands[index];
        if (command === undefined) return;
        mkdirSync(folder);
        chownSync(folder, user, user);
        writeFileSync(join(folder, "config.json"), config, { mode: 0o600 });
        chownSync(join(folder, "config.json"), user, user);
        const environment = {
          ...home.environment,
          HOME: folder,
          MILLPOND_CONFIG: join(folder, "config.json"),
          XDG_STATE_HOME: join(folder, "state"),
        };
        const outcome = await runHostile(folder, environment, command);
        const fault = faultOf(command, outcome);
        if (fault !== undefined) {
          faults.push(
            `${fault}\n${JSON.stringify({ ...command, input: command.input.slice(0, 99) }).replaceAll("x".repeat(1000), "")}\n${JSON.stringify(outcome)}\n${outcome.stderr.slice(0, 3000)}`,
          );
        }
        rmSync(folder, { recursive: true, force: true });
      }
    };
    await Promise.all([0, 1, 2].map(work));
    expect(faults.join("\n\n")).toBe("");
  },
);
