// SPDX-License-Identifier: Apache-2.0

// A PostgreSQL server from Debian's package for the duration of a test: its files are in a temporary directory, with a
// Unix socket to reach it.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { until } from "./until.ts";

const packageDirectory = "/usr/lib/postgresql";
const oldestVersion = 15;

/** The programs of the newest installed version. */
function programs(): string | undefined {
  const versions = existsSync(packageDirectory) ? readdirSync(packageDirectory).map(Number) : [];
  const usable = versions
    .filter((version) => version >= oldestVersion)
    .map((version) => join(packageDirectory, String(version), "bin"))
    .filter((path) => existsSync(join(path, "initdb")));
  return usable.at(-1);
}

/** Why there is no PostgreSQL on this machine; undefined: there is. */
export const missingPostgres =
  programs() === undefined
    ? "PostgreSQL 15 or later is not installed: apt-get install --no-install-recommends postgresql"
    : undefined;

/** PostgreSQL refuses to run as root: root uses the package's own user, other users their own. */
function serverUser(): { readonly uid?: number; readonly gid?: number } {
  if (process.getuid?.() !== 0) {
    return {};
  }
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((each) => each.startsWith("postgres:"));
  const [, , uid, gid] = line?.split(":") ?? [];
  if (uid === undefined || gid === undefined) {
    throw new Error("there is no user postgres to run the server as");
  }
  return { uid: Number(uid), gid: Number(gid) };
}

export class PostgresServer implements AsyncDisposable {
  readonly #bin: string;
  readonly #directory: string;
  readonly #user = serverUser();
  #child: ChildProcess | undefined;
  #databases = 0;

  private constructor(bin: string, directory: string) {
    this.#bin = bin;
    this.#directory = directory;
  }

  static async start(): Promise<PostgresServer> {
    const bin = programs();
    if (bin === undefined) {
      throw new Error(missingPostgres);
    }
    const server = new PostgresServer(bin, mkdtempSync(join(tmpdir(), "millpond-postgres-")));
    const { uid, gid } = server.#user;
    if (uid !== undefined && gid !== undefined) {
      chownSync(server.#directory, uid, gid);
    }
    chmodSync(server.#directory, 0o755);
    const options = ["--auth=trust", "--username=millpond", "--encoding=UTF8", "--locale=C", "--no-sync"];
    await promisify(execFile)(join(bin, "initdb"), [...options, "-D", server.#data], {
      ...server.#user,
      cwd: server.#directory,
    });
    await server.run();
    return server;
  }

  get #data(): string {
    return join(this.#directory, "data");
  }

  /** Runs the server; resolves when it accepts connections. */
  async run(): Promise<void> {
    const settings = {
      listen_addresses: "",
      unix_socket_directories: this.#directory,
      // A killed process loses nothing that it has written; only a failing machine would.
      fsync: "off",
      max_connections: "60",
      shared_buffers: "16MB",
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    await until("a database server", async () => {
      const said = await this.#tryToRun(args);
      // The processes of a killed server take a moment to notice.
      if (said !== undefined && !said.includes("still in use")) {
        throw new Error(`the server did not start: ${said}`);
      }
      return said === undefined ? true : undefined;
    });
  }

  /** @returns Its output if it did not start. */
  async #tryToRun(args: readonly string[]): Promise<string | undefined> {
    const child = spawn(join(this.#bin, "postgres"), ["-D", this.#data, ...args], {
      ...this.#user,
      cwd: this.#directory,
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#child = child;
    let said = "";
    child.stderr.on("data", (chunk: Buffer) => {
      said = (said + chunk.toString("utf8")).slice(-10_000);
    });
    const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
    const outcome = await until("a database server that takes connections or ends", async () =>
      (await this.#takesConnections()) ? "serves" : hasEnded() ? "ended" : undefined,
    );
    return outcome === "serves" ? undefined : `${said}, ended with ${child.exitCode ?? child.signalCode}`;
  }

  /** Stops the server: immediately, like a machine that fails, or in an orderly way. */
  async end(how: "killed" | "stopped"): Promise<void> {
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill(how === "killed" ? "SIGKILL" : "SIGINT");
      await exited;
    }
    this.#child = undefined;
  }

  /**
   * Creates a database.
   *
   * @returns Its URL.
   */
  async makeDatabase(): Promise<string> {
    this.#databases += 1;
    const name = `test${this.#databases}`;
    await this.query("postgres", `CREATE DATABASE ${name}`);
    return this.urlOf(name);
  }

  urlOf(database: string): string {
    return `postgres://millpond@localhost/${database}?host=${encodeURIComponent(this.#directory)}`;
  }

  /** @returns The rows of the last statement. */
  async query(database: string, sql: string): Promise<unknown[]> {
    const client = new pg.Client(this.urlOf(database));
    await client.connect();
    try {
      const results: unknown = await client.query(sql);
      const last: unknown = Array.isArray(results) ? results.at(-1) : results;
      return (last as pg.QueryResult<Record<string, unknown>>).rows;
    } finally {
      await client.end();
    }
  }

  async #takesConnections(): Promise<boolean> {
    try {
      await this.query("postgres", "SELECT 1");
      return true;
    } catch {
      return false;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end("killed");
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
