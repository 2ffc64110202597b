// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import type { Readable } from "node:stream";
import { text as readAll } from "node:stream/consumers";
import { formatBytes, millpondError, type Node, shellQuote } from "@millpond/api";
import { makeFolders, userStateDirectory } from "@millpond/platform";
import { ExitError } from "../../command-line/errors.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import {
  changeContexts,
  contextFilePath,
  enterContext,
  leaveContext,
  localContextName,
  readContexts,
} from "../../connection/context.ts";
import { makeConsoleLink } from "../../connection/console-link.ts";
import { findDriver } from "../../host/driver-search.ts";
import { LocalPool } from "../../node/local-pool.ts";
import { findNativeFiles, type NativeFiles } from "../../host/native-files.ts";
import { detachedLogPath, PoolDirectory } from "../../node/pool-directory.ts";
import { checkSoftDevices, type SoftDevices } from "../../node/soft-node.ts";
import { programVersion } from "../../command-line/version.ts";
import { WaitingDisplay } from "../../claim/waiting-display.ts";

/** The devices that the pool offers. */
interface Hardware {
  readonly driver: string;
  /** Absent: real devices. */
  readonly soft: SoftDevices | undefined;
  /** Why the devices are software GPUs although the user did not request them; empty: they are not, or the user did. */
  readonly remark: string;
}

/** Variable by which an `up` knows that `up --detach` started it. Parts of the pool do not get it. */
const detachedVariable = "MILLPOND_UP_DETACHED";
/** File descriptor on which it reports that the pool is ready, with the text for the terminal. */
const reportDescriptor = 3;

export async function run(values: Values<"up">): Promise<number> {
  const isDetached = process.env[detachedVariable] === "1";
  delete process.env[detachedVariable];
  if (values.detach && !isDetached) return await detach(values);
  outliveReaders();
  const stop = stopSignal();
  try {
    return await runPool(values, stop, isDetached);
  } catch (error) {
    if (!stop.aborted) throw error;
    return exitStatus.ok;
  }
}

/** Starts this command again without a terminal. Resolves when its pool is ready, or has failed. */
async function detach(values: Values<"up">): Promise<number> {
  const path = values.state ?? userStateDirectory(process.env);
  makeFolders(resolve(path), 0o700);
  const logPath = detachedLogPath(path);
  const log = openSync(logPath, "w", 0o600);
  const runner = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    detached: true,
    stdio: ["ignore", log, log, "pipe"],
    env: { ...process.env, [detachedVariable]: "1" },
  });
  closeSync(log);
  const ended = once(runner, "exit").then(([code]: unknown[]) =>
    typeof code === "number" ? code : exitStatus.failed,
  );
  const stop = (): void => void runner.kill("SIGTERM");
  process.on("SIGINT", stop).on("SIGTERM", stop).on("SIGHUP", stop);
  // The fourth stream, after the three standard ones, is for its report.
  const report = await readAll(runner.stdio[reportDescriptor] as Readable);
  if (report !== "") {
    runner.unref();
    process.stdout.write(report);
    return exitStatus.ok;
  }
  const status = await ended;
  process.stderr.write(readFileSync(logPath));
  throw new ExitError(status);
}

/** Lets the pool continue when the reader of its output has gone. */
function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.removeAllListeners("error");
    stream.on("error", () => undefined);
  }
}

async function runPool(values: Values<"up">, stop: AbortSignal, isDetached: boolean): Promise<number> {
  const soft = softDevices(values);
  const native = findNativeFiles(process.env);
  const contextPath = contextFilePath(process.env);
  // Fails for a file that cannot be read or written, before anything is started.
  changeContexts(contextPath, (file) => file);

  using directory = PoolDirectory.open(values.state ?? userStateDirectory(process.env));
  using display = new WaitingDisplay();
  display.show("looking for GPUs");
  const hardware = await chooseHardware(values, soft, native);
  display.show("starting the controller and the agents");
  await directory.recover();
  await using pool = await LocalPool.start({
    directory,
    native,
    listen: values.listen,
    store: values.store,
    nodes: nodeNames(values.nodes ?? 1),
    driver: hardware.driver,
    soft: hardware.soft,
    warm: values.warm ?? 1,
    isEncrypted: values.encrypt,
    onEvent: (text) => process.stderr.write(`millpond: ${text}\n`),
    signal: stop,
  });
  display[Symbol.dispose]();
  const connection = pool.connect();
  const { nodes } = await connection.pool.listNodes({});
  const { link } = await makeConsoleLink(connection);
  const usualState = userStateDirectory(process.env);
  const before = readContexts(contextPath).currentContext;
  let name = "";
  changeContexts(contextPath, (file) => {
    name = localContextName(file, directory.path, usualState);
    return enterContext(file, name, {
      controller: pool.controllerUrl,
      token: pool.userToken,
      ca: pool.ca,
      state: directory.path,
    });
  });
  try {
    const context = { name, before: before === name ? "" : before };
    const said = summary(hardware, nodes, {
      controller: pool.controllerUrl,
      console: link,
      state: directory.path,
      context,
      isDetached,
    });
    // The link logs in once, so it goes to the terminal and not to the log.
    if (isDetached) tellStarter(said);
    else process.stdout.write(said);
    await Promise.race([stop.aborted ? undefined : once(stop, "abort"), pool.failed]);
    process.stdout.write("stopping: sessions end with the pool\n");
  } finally {
    const { currentContext } = changeContexts(contextPath, (file) =>
      leaveContext(file, name, pool.controllerUrl),
    );
    if (currentContext !== "") process.stdout.write(`the current context is ${currentContext}\n`);
  }
  return exitStatus.ok;
}

/** Notifies the command that waits for the pool, which may have ended by now. */
function tellStarter(said: string): void {
  try {
    writeSync(reportDescriptor, said);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EPIPE")) throw error;
  } finally {
    closeSync(reportDescriptor);
  }
}

/** Returns a signal that is aborted by SIGINT, SIGTERM or SIGHUP; further signals have no effect. */
function stopSignal(): AbortSignal {
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => stop.abort());
  return stop.signal;
}

function softDevices(values: Values<"up">): SoftDevices {
  return checkSoftDevices(
    { count: values.devices ?? 2, memoryBytes: values.deviceMemory ?? 4n << 30n },
    "--devices",
  );
}

async function chooseHardware(
  values: Values<"up">,
  soft: SoftDevices,
  native: NativeFiles,
): Promise<Hardware> {
  if (values.soft) return { driver: native.softgpu, soft, remark: "" };
  const { driver, rejected } = await findDriver(native);
  if (driver === undefined) {
    const [first] = rejected;
    const why = first === undefined ? "no NVIDIA driver found" : `${first.path}: ${first.reason}`;
    return {
      driver: native.softgpu,
      soft,
      remark: `no NVIDIA GPU here (${why}), so these are software GPUs`,
    };
  }
  const softOnly = [
    ["--nodes", (values.nodes ?? 1) > 1],
    ["--devices", values.devices !== undefined],
    ["--device-memory", values.deviceMemory !== undefined],
  ] as const;
  for (const [option, isGiven] of softOnly) {
    if (!isGiven) continue;
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${option} is for software GPUs, and this machine has real ones`,
      {
        remedy: "Add --soft, or omit the option.",
      },
    );
  }
  return { driver, soft: undefined, remark: "" };
}

/** node-a to node-z, then node-aa and so on. */
function nodeNames(count: number): string[] {
  const letters = "abcdefghijklmnopqrstuvwxyz";
  return Array.from({ length: count }, (_, index) => {
    const first = index < letters.length ? "" : letters.charAt(Math.floor(index / letters.length) - 1);
    return `node-${first}${letters.charAt(index % letters.length)}`;
  });
}

function summary(
  hardware: Hardware,
  nodes: readonly Node[],
  at: {
    readonly controller: string;
    readonly console: string;
    readonly state: string;
    readonly context: { readonly name: string; readonly before: string };
    readonly isDetached: boolean;
  },
): string {
  const { controller, state, context } = at;
  const stateOption =
    state === resolve(userStateDirectory(process.env)) ? "" : ` --state ${shellQuote(state)}`;
  const instead = context.before === "" ? "" : ` (it was ${context.before})`;
  const width = Math.max("controller".length, ...nodes.map(({ name }) => name.length));
  const line = (name: string, text: string): string => `  ${name.padEnd(width)}   ${text}`;
  const lines = nodes.map((node) => line(node.name, describeDevices(node)));
  const memory = nodes[0]?.devices[0]?.memoryBytes ?? 0n;
  const size = memory >= 2n << 30n ? "1Gi" : "50%";
  return `${[
    `millpond ${programVersion}: the pool is ready`,
    ...(hardware.remark === "" ? [] : [`  ${hardware.remark}`]),
    line("controller", controller),
    line("console", `${at.console} (once, within 10 minutes; another: millpond console)`),
    ...lines,
    line("state", `${state} (logs in ${state}/logs)`),
    line("context", `${context.name} is the current one${instead}`),
    "",
    at.isDetached ? "Now:" : "In another terminal:",
    `  millpond run -n 1 -m ${size} -- ./program`,
    "  millpond smi",
    "",
    at.isDetached ? `millpond down${stateOption} stops all of it.` : "Ctrl-C stops all of it.",
  ].join("\n")}\n`;
}

function describeDevices(node: Node): string {
  const counts = new Map<string, number>();
  for (const device of node.devices) {
    const kind = `${device.name}, ${formatBytes(device.memoryBytes)}`;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return [...counts].map(([kind, number]) => `${number} × ${kind}`).join("; ");
}
