// SPDX-License-Identifier: Apache-2.0
// Runs commands, and finds tools.
import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { interruptedBy, interruptedStatus, onInterrupt, takeSignals } from "./interrupt.ts";
import { root, toolEnvironment } from "./paths.ts";

/** A failure whose message is complete for a user: no stack trace is needed. */
export class ScriptError extends Error {
  override name = "ScriptError";
}

export interface CommandOptions {
  /** Working directory; default: the repository's root. */
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** Called for every line of standard output and standard error. */
  onLine?: (line: string) => void;
  /** Lets the command use this process's standard output and standard error, which are then not collected. */
  stream?: true;
  /** Milliseconds after which the command is killed and counts as failed; default: none. */
  timeoutMs?: number;
}

export interface CommandResult {
  /** Exit status; 128 plus the signal's number if a signal ended it. */
  status: number;
  /** Standard output and standard error, in the order of their arrival. */
  output: string;
}

/** Runs a command to its end, whatever its exit status. Throws ScriptError when it cannot be started. */
export async function run(
  command: string,
  args: string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const interruption = interruptedBy();
  if (interruption !== undefined) throw new ScriptError(`interrupted by ${interruption}`);
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: options.cwd ?? root,
      env: options.env ?? toolEnvironment(),
      stdio: options.stream ? ["ignore", "inherit", "inherit"] : ["ignore", "pipe", "pipe"],
    });
    const forget = onInterrupt(() => child.kill("SIGTERM"));
    const timer =
      options.timeoutMs === undefined
        ? undefined
        : setTimeout(() => child.kill("SIGKILL"), options.timeoutMs);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      let rest = "";
      stream.setEncoding("utf8");
      stream.on("data", (text: string) => {
        output += text;
        if (!options.onLine) return;
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) options.onLine(line);
      });
      stream.on("end", () => {
        if (rest !== "") options.onLine?.(rest);
      });
    }
    child.on("error", (error) => {
      clearTimeout(timer);
      forget();
      reject(new ScriptError(`cannot run ${command}: ${error.message}`));
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      forget();
      resolve({ status: code ?? (signal === "SIGKILL" ? 137 : 143), output });
    });
  });
}

/** Runs a command that must succeed; throws ScriptError with the end of its output when it does not. */
export async function must(command: string, args: string[], options: CommandOptions = {}): Promise<string> {
  const { status, output } = await run(command, args, options);
  if (status !== 0) {
    const tail = output.trimEnd().split("\n").slice(-60).join("\n");
    throw new ScriptError(`${command} ${args.join(" ")}\nended with status ${status}:\n${tail}`);
  }
  return output;
}

/** The absolute path of a program in PATH or in one of `elsewhere`; undefined when there is none. */
export async function find(program: string, elsewhere: string[] = []): Promise<string | undefined> {
  for (const directory of [...(process.env["PATH"] ?? "").split(delimiter), ...elsewhere]) {
    if (directory === "") continue;
    const path = join(directory, program);
    try {
      await access(path, constants.X_OK);
      return path;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ENOTDIR" && code !== "EACCES") throw error;
    }
  }
  return undefined;
}

/**
 * Runs the body of a script and sets the exit status: 1 with its message for a ScriptError, 2 for an invalid command line,
 * 128 plus the signal's number for an interruption.
 */
export async function script(body: () => Promise<void>): Promise<void> {
  takeSignals();
  try {
    await body();
  } catch (error) {
    const badOption = ((error as NodeJS.ErrnoException).code ?? "").startsWith("ERR_PARSE_ARGS_");
    if (!(error instanceof ScriptError) && !badOption) throw error;
    const interruption = interruptedBy();
    console.error(
      interruption === undefined ? `error: ${(error as Error).message}` : `interrupted by ${interruption}`,
    );
    process.exitCode = interruption === undefined ? (badOption ? 2 : 1) : interruptedStatus();
  }
}
