// SPDX-License-Identifier: Apache-2.0
// The contents of a support bundle.

import { spawnSync } from "node:child_process";
import { closeSync, existsSync, fstatSync, openSync, readdirSync, readFileSync, readSync } from "node:fs";
import { arch, cpus, freemem, hostname, loadavg, release, totalmem, uptime } from "node:os";
import { join } from "node:path";
import type { CommandName } from "../command-table/command-table.ts";
import { commandSpecs } from "../command-table/command-table.ts";
import { errorParts } from "../command-line/errors.ts";
import { programVersion } from "../command-line/version.ts";
import type { Connection } from "../connection/connection.ts";
import { contextFilePath, readContexts } from "../connection/context.ts";
import type { Finding } from "../doctor/check.ts";
import { PoolDirectory } from "../node/pool-directory.ts";
import {
  claimKind,
  deviceKind,
  eventKind,
  type Kind,
  nodeKind,
  queueKind,
  sessionKind,
  tenantKind,
} from "../output/kinds.ts";
import { renderObject } from "../output/resources.ts";
import { configPath, readServiceFile, type ServiceName } from "../service/service-options.ts";
import { knownSecrets } from "./known-secrets.ts";
import { Redaction, shownLog, shownSettings } from "./redaction.ts";
import type { ArchivedFile } from "./tar.ts";

/** How much of the end of each log is included. */
const mostLogBytes = 1 << 20;
const mostJournalLines = 5000;
const commandTimeoutMs = 10_000;

export interface BundleOptions {
  readonly environment: NodeJS.ProcessEnv;
  /** Undefined: no controller is configured. */
  readonly connection: Connection | undefined;
  readonly findings: readonly Finding[];
  /** State directory of `millpond up`. */
  readonly state: string;
  /** Configuration files of the services. Default: those of the packages. */
  readonly configurations?: Readonly<Record<ServiceName, string>>;
}

/** Returns the files of a bundle, without the secrets of this host and of the pool. */
export async function collectBundle(options: BundleOptions): Promise<readonly ArchivedFile[]> {
  const { environment, connection, findings, state } = options;
  const paths = options.configurations ?? {
    controller: configPath("controller"),
    agent: configPath("agent"),
  };
  const settings = { controller: readSettings("controller", paths), agent: readSettings("agent", paths) };
  const given = (service: ServiceName, key: string, fallback: string): string =>
    settings[service].texts[key] ?? environment[variableOf(service, key)] ?? fallback;
  const directories = [
    given("controller", "state", "/var/lib/millpond/controller"),
    given("agent", "run", "/var/lib/millpond/agent"),
    join(state, "controller"),
    ...PoolDirectory.runDirectories(state),
  ];
  const redaction = new Redaction(
    knownSecrets({
      environment,
      directories,
      secretFiles: [
        given("agent", "tokenFile", "/etc/millpond/agent.token"),
        given("controller", "keyFile", ""),
        given("controller", "tlsKey", ""),
      ].filter((path) => path !== ""),
      jsonFiles: [given("controller", "webhooks", ""), given("controller", "oidc", "")].filter(
        (path) => path !== "",
      ),
      urls: [given("controller", "store", "")],
    }),
  );
  const files = [
    { path: "host.json", content: renderObject("Host", describeHost()) },
    { path: "doctor.json", content: renderObject("Diagnosis", { checks: findings }) },
    { path: "environment.json", content: renderObject("Environment", shownEnvironment(environment)) },
    { path: "contexts.json", content: renderObject("ContextList", { items: shownContexts(environment) }) },
    ...(["controller", "agent"] as const).flatMap((service) => settings[service].files),
    ...(await describePool(connection)),
    ...collectLogs(state, directories),
  ];
  return files.map(({ path, content }) => ({ path, content: redaction.clean(content) }));
}

function variableOf(service: ServiceName, key: string): string {
  const options: Readonly<Record<string, { readonly env?: string }>> = commandSpecs[service].options;
  return options[key]?.env ?? "";
}

function readSettings(
  service: ServiceName,
  paths: Readonly<Record<ServiceName, string>>,
): { readonly texts: Readonly<Record<string, string>>; readonly files: readonly ArchivedFile[] } {
  const file = paths[service];
  if (!existsSync(file)) return { texts: {}, files: [] };
  const path = `config/${service}.json`;
  try {
    const texts = readServiceFile(service, file);
    return {
      texts,
      files: [{ path, content: renderObject("Settings", { file, options: shownSettings(service, texts) }) }],
    };
  } catch (error) {
    return {
      texts: {},
      files: [{ path, content: renderObject("Settings", { file, problem: errorText(error) }) }],
    };
  }
}

function describeHost() {
  const [processor] = cpus();
  return {
    millpond: programVersion,
    nodeVersion: process.versions.node,
    host: hostname(),
    system: firstLine("/etc/os-release", /^PRETTY_NAME="?([^"\n]*)/m),
    kernel: release(),
    architecture: arch(),
    processors: cpus().length,
    processor: processor?.model ?? "",
    memoryBytes: totalmem(),
    freeMemoryBytes: freemem(),
    load: loadavg(),
    uptimeSeconds: Math.round(uptime()),
    driver: firstLine("/proc/driver/nvidia/version", /^(.*)$/m),
    time: new Date().toISOString(),
    user: process.getuid?.() ?? -1,
  };
}

function firstLine(path: string, pattern: RegExp): string {
  try {
    return pattern.exec(readFileSync(path, "utf8"))?.[1] ?? "";
  } catch {
    return ""; // No such file on this host.
  }
}

/** Variables by name; only values that name a choice, a number, a path or an address are shown. */
function shownEnvironment(environment: NodeJS.ProcessEnv): Record<string, string> {
  const shown = new Set(
    (Object.keys(commandSpecs) as CommandName[]).flatMap((command) =>
      Object.values<{ readonly env?: string; readonly type: string }>(commandSpecs[command].options)
        .filter(({ type }) => type !== "text")
        .map(({ env }) => env),
    ),
  );
  for (const name of ["MILLPOND_CONTROLLER", "MILLPOND_CONTEXT", "MILLPOND_LISTEN", "MILLPOND_STATE"]) {
    shown.add(name);
  }
  const others = new Set(["LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "CUDA_VISIBLE_DEVICES"]);
  const entries = Object.entries(environment).flatMap(([name, value = ""]) => {
    if (others.has(name)) return [[name, value]];
    if (!name.startsWith("MILLPOND_")) return [];
    return [[name, shown.has(name) ? value : "(given, not shown)"]];
  });
  return Object.fromEntries(entries) as Record<string, string>;
}

function shownContexts(environment: NodeJS.ProcessEnv): readonly object[] {
  try {
    const { contexts, currentContext } = readContexts(contextFilePath(environment));
    return Object.entries(contexts).map(([name, { controller, token, ca }]) => ({
      name,
      controller,
      isCurrent: name === currentContext,
      hasToken: token !== "",
      hasAuthority: ca !== undefined,
    }));
  } catch (error) {
    return [{ problem: errorText(error) }];
  }
}

/** A kind of object without the types of its items. */
interface AnyKind {
  readonly title: string;
  readonly items: (connection: Connection) => Promise<readonly object[]>;
}

function anyKind<T>(kind: Kind<T>): AnyKind {
  const items = async (connection: Connection): Promise<readonly object[]> =>
    (await kind.list(connection, { all: true, after: 0n })).map(kind.toJson);
  return { title: kind.title, items };
}

const poolKinds: Readonly<Record<string, AnyKind>> = {
  nodes: anyKind(nodeKind),
  devices: anyKind(deviceKind),
  claims: anyKind(claimKind),
  sessions: anyKind(sessionKind),
  queues: anyKind(queueKind),
  tenants: anyKind(tenantKind),
  events: anyKind(eventKind),
};

async function describePool(connection: Connection | undefined): Promise<readonly ArchivedFile[]> {
  if (connection === undefined) return [];
  const files: ArchivedFile[] = [];
  const add = async (name: string, title: string, ask: () => Promise<object>): Promise<void> => {
    const path = `pool/${name}.json`;
    try {
      files.push({ path, content: renderObject(title, await ask()) });
    } catch (error) {
      files.push({ path, content: renderObject(title, { problem: errorText(error) }) });
    }
  };
  await add("version", "ControllerVersion", async () => {
    const { version, api, controller, leads, leaderUrl } = await connection.pool.getVersion({});
    return { version, api, controller, leads, leaderUrl };
  });
  for (const [name, { title, items }] of Object.entries(poolKinds)) {
    await add(name, `${title}List`, async () => ({ items: await items(connection) }));
  }
  return files;
}

function collectLogs(state: string, directories: readonly string[]): readonly ArchivedFile[] {
  const logs: ArchivedFile[] = [];
  const take = (path: string, file: string): void => {
    const text = endOf(file);
    if (text !== undefined) logs.push({ path, content: shownLog(text) });
  };
  take("logs/up.log", join(state, "up.log"));
  for (const name of namesIn(join(state, "logs"))) take(`logs/up/${name}`, join(state, "logs", name));
  for (const [position, directory] of directories.entries()) {
    for (const worker of namesIn(join(directory, "workers")))
      take(`logs/workers/${position}/${worker}.log`, join(directory, "workers", worker, "worker.log"));
  }
  for (const unit of ["millpond-controller", "millpond-agent"]) {
    const { status, stdout } = spawnSync(
      "journalctl",
      ["-u", unit, "-n", String(mostJournalLines), "--no-pager", "-o", "cat"],
      { encoding: "utf8", timeout: commandTimeoutMs, maxBuffer: 64 * mostLogBytes },
    );
    if (status === 0 && stdout !== "") logs.push({ path: `logs/${unit}.log`, content: shownLog(stdout) });
  }
  return logs;
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return []; // The file does not exist on this host, or this user may not read it.
  }
}

/** The last lines of a file; undefined: it cannot be read. */
function endOf(path: string): string | undefined {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return undefined; // The same.
  }
  try {
    const { size } = fstatSync(file);
    const start = Math.max(0, size - mostLogBytes);
    const buffer = Buffer.alloc(size - start);
    const bytes = readSync(file, buffer, 0, buffer.length, start);
    const text = buffer.subarray(0, bytes).toString("utf8");
    return start === 0 ? text : text.slice(text.indexOf("\n") + 1);
  } finally {
    closeSync(file);
  }
}

function errorText(error: unknown): string {
  const { what, code } = errorParts(error);
  return `${what} [${code}]`;
}
