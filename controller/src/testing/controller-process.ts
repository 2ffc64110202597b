// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { within } from "./until.ts";

const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));

export interface ControllerProcessOptions {
  /** Default: a free port. */
  readonly listen?: string;
  /** URL of a database; default: a file. */
  readonly store?: string;
  /** File of the pool key; default: one of the directory. */
  readonly keyFile?: string;
  /** How far its wall clock is ahead of this machine's. Default 0. */
  readonly clockAheadSeconds?: number;
  /** Files of a certificate and its key, PEM; default: plain HTTP. */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /** A token beside the one in the directory. */
  readonly userToken?: string;
  readonly agentToken?: string;
  /** The program to run; default: that of this release. */
  readonly main?: string;
  /** Options of Node, such as `--cpu-prof`. */
  readonly nodeOptions?: readonly string[];
  /** Gives the state directory a disk of its own of this size, which disappears with the process. */
  readonly diskBytes?: number;
}

/** Runs a command in a mount namespace with a separate disk at a directory. */
const withDisk = ["--map-root-user", "--mount", "sh", "-c"];
const mountDisk = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && shift && exec "$@"';

/** Why a process cannot be given a disk of its own on this machine; undefined: it can. */
export const missingDisks: string | undefined = (() => {
  const { status, stderr, error } = spawnSync(
    "unshare",
    [...withDisk, mountDisk, "1048576", tmpdir(), "true"],
    {
      encoding: "utf8",
    },
  );
  return status === 0 ? undefined : `no disks of a process's own here: ${error?.message ?? stderr.trim()}`;
})();

/** A module that sets the wall clock of the process that loads it. */
function shiftedClock(seconds: number): string {
  const source = `const now = Date.now; Date.now = () => now() + ${seconds * 1000};`;
  return `data:text/javascript,${encodeURIComponent(source)}`;
}

/** The controller as a process of its own. */
export class ControllerProcess {
  readonly url: string;
  readonly userToken: string;
  readonly agentToken: string;
  /** The state directory as seen from outside of the mount namespace. */
  readonly directory: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;

  private constructor(child: ChildProcess, exited: Promise<unknown>, url: string, directory: string) {
    this.#child = child;
    this.#exited = exited;
    this.url = url;
    this.directory = directory;
    this.userToken = readFileSync(join(directory, "user.token"), "utf8").trim();
    this.agentToken = readFileSync(join(directory, "agent.token"), "utf8").trim();
  }

  /** @throws Error with the output of a process that fails to start */
  static async start(directory: string, options: ControllerProcessOptions = {}): Promise<ControllerProcess> {
    const {
      listen = "127.0.0.1:0",
      store = "",
      clockAheadSeconds = 0,
      userToken = "",
      agentToken = "",
      nodeOptions = [],
      keyFile = "",
      main = mainPath,
      tls,
      diskBytes,
    } = options;
    const clock = clockAheadSeconds === 0 ? [] : ["--import", shiftedClock(clockAheadSeconds)];
    const controller = [
      process.execPath,
      ...nodeOptions,
      ...clock,
      main,
      "--listen",
      listen,
      "--state",
      directory,
      ...(tls === undefined ? [] : ["--tls-cert", tls.certificate, "--tls-key", tls.key]),
    ];
    const [command = "", ...args] =
      diskBytes === undefined
        ? controller
        : ["unshare", ...withDisk, mountDisk, String(diskBytes), directory, ...controller];
    const child = spawn(command, args, {
      stdio: ["ignore", "ignore", "pipe"],
      env: {
        ...process.env,
        MILLPOND_STORE: store,
        MILLPOND_KEY_FILE: keyFile,
        MILLPOND_USER_TOKENS: userToken,
        MILLPOND_AGENT_TOKENS: agentToken,
      },
    });
    const exited = once(child, "exit");
    const said: string[] = [];
    const listening = async (): Promise<ControllerProcess> => {
      for await (const line of createInterface({ input: child.stderr })) {
        said.push(line);
        const url = /listens at (https?:\/\/[^"]+)"/.exec(line)?.[1];
        if (url !== undefined) {
          child.stderr.resume();
          const seen = diskBytes === undefined ? directory : `/proc/${child.pid}/root${directory}`;
          return new ControllerProcess(child, exited, url, seen);
        }
      }
      throw new Error(`the controller did not start: ${said.join("\n")}`);
    };
    try {
      return await within(listening(), () => `a controller that listens; it said: ${said.join("\n")}`);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Suspends it, resumes it, or makes it reload its certificate. */
  signal(signal: "SIGSTOP" | "SIGCONT" | "SIGHUP"): void {
    this.#child.kill(signal);
  }

  /**
   * Ends it.
   *
   * @returns The exit code, or the signal that ended it.
   */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | string | null> {
    this.#child.kill(signal);
    await this.#exited;
    return this.#child.exitCode ?? this.#child.signalCode;
  }
}
