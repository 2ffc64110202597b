// SPDX-License-Identifier: Apache-2.0

/**
 * Long-running parts of Millpond as child processes, and their protocol: over Node's IPC channel they send
 * `{"type": "ready", "url"}` or `{"type": "failed", "message"}`, and they end when the channel does, so that nothing outlives
 * a parent that was killed.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { identifyProcess, type ProcessIdentity } from "@millpond/agent";
import { Code, ConnectError } from "@connectrpc/connect";
import { ServiceManager } from "./service-manager.ts";

/** A part that runs as a child of this process. */
export interface ServiceProcess {
  readonly name: string;
  readonly identity: ProcessIdentity;
  /** Base URL that it serves. */
  readonly url: string;
  /** Resolves when it has ended, with a text that describes how. */
  readonly ended: Promise<string>;
  /** Ends it with SIGTERM, and with SIGKILL if it has not ended in time. Resolves when it is gone. */
  stop(graceMs: number): Promise<void>;
}

export interface ServiceOptions {
  /** For display, and for the log file's name. */
  readonly name: string;
  /** Command line of `millpond`. */
  readonly args: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly logPath: string;
  /** Ends the part if it is not ready yet. */
  readonly signal: AbortSignal;
}

/**
 * In the child: runs a part, and reports to the parent when it fails before it serves.
 *
 * @param body calls its argument when it serves
 */
export async function runService(body: (onReady: () => void) => Promise<number>): Promise<number> {
  using manager = new ServiceManager(process.env);
  try {
    return await body(() => manager.ready());
  } catch (error) {
    const message = error instanceof ConnectError ? error.rawMessage : String(error);
    if (process.connected) {
      await new Promise<void>((resolve) => {
        process.send?.({ type: "failed", message }, () => resolve());
      });
    }
    throw error;
  } finally {
    if (process.connected) process.disconnect?.();
  }
}

/**
 * In the parent: starts a part as this same program with other arguments, in a process group of its own, so that signals of
 * the terminal reach only the parent. Resolves when the part serves; rejects with the part's error when it fails before.
 */
export async function startService(options: ServiceOptions): Promise<ServiceProcess> {
  const child = spawnSelf(options);
  const ended = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(`cannot be started: ${error.message}`));
    child.once("exit", (code, signal) => {
      resolve(signal === null ? `ended with status ${code}` : `was killed by ${signal}`);
    });
  });
  const identity = identifyProcess(child.pid ?? 0);
  const giveUp = (): boolean => child.kill("SIGTERM");
  options.signal.addEventListener("abort", giveUp);
  const url = await Promise.race([
    readyUrl(child),
    ended.then((how): never => {
      throw new Error(`${options.name} ${how}; its log is ${options.logPath}`);
    }),
  ]).finally(() => options.signal.removeEventListener("abort", giveUp));
  if (identity === undefined) throw new Error(`${options.name} is gone`);
  return {
    name: options.name,
    identity,
    url,
    ended,
    stop: async (graceMs) => {
      child.kill("SIGTERM");
      const timer = new AbortController();
      const isLate = await Promise.race([
        ended.then(() => false),
        delay(graceMs, true, { signal: timer.signal }).catch(() => false),
      ]);
      timer.abort();
      if (isLate) child.kill("SIGKILL");
      await ended;
    },
  };
}

function spawnSelf(options: ServiceOptions): ChildProcess {
  const [, entry = ""] = process.argv;
  const log = openSync(options.logPath, "a", 0o600);
  try {
    return spawn(process.execPath, [...process.execArgv, entry, ...options.args], {
      detached: true,
      env: options.environment,
      stdio: ["ignore", log, log, "ipc"],
    });
  } finally {
    closeSync(log);
  }
}

function readyUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.on("message", (message: unknown) => {
      if (typeof message !== "object" || message === null || !("type" in message)) return;
      if (message.type === "ready" && "url" in message && typeof message.url === "string") {
        resolve(message.url);
      } else if (message.type === "failed" && "message" in message) {
        // The message is already complete, including the code.
        reject(new ConnectError(String(message.message), Code.FailedPrecondition));
      }
    });
  });
}
