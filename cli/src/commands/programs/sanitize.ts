// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { ClaimHolder } from "../../claim/claim-holder.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import type { Connection } from "../../connection/connection.ts";
import { ExitError } from "../../command-line/errors.ts";
import { programLibraryPath } from "../../host/library-path.ts";
import { LocalPool } from "../../node/local-pool.ts";
import { findDriver } from "../../host/driver-search.ts";
import { findNativeFiles, type NativeFiles } from "../../host/native-files.ts";
import { renderObject } from "../../output/resources.ts";
import { PoolDirectory } from "../../node/pool-directory.ts";
import { findProgram, runProgram, SignalRelay } from "../../claim/program.ts";
import { readCalls } from "../../sanitize/call-record.ts";
import { type Outcome, outcomeOnCard, placesOf, readOutcome, withCalls } from "../../sanitize/finding.ts";
import { checksOf, renderReport } from "../../sanitize/report.ts";
import { Symbols } from "../../sanitize/symbols.ts";
import { checkSoftDevices, type SoftDevices } from "../../node/soft-node.ts";

/** In the order in which reports list them. */
const tools = ["memcheck", "racecheck", "initcheck", "synccheck"] as const;

/** Tools whose findings never concern a program that breaks no rule of CUDA. */
const defaultTools: readonly string[] = ["memcheck", "racecheck"];

export async function run(
  values: Values<"sanitize">,
  [name = "", ...args]: readonly string[],
): Promise<number> {
  const native = findNativeFiles(process.env);
  const hardware = values.driver === undefined ? undefined : await cardDriver(values.driver, values, native);
  const program = { name, path: findProgram(name, process.env), args };
  const chosen = hardware === undefined ? chooseTools(values.tool) : onCard;
  using place = new TemporaryFolder();
  const findings = join(place.path, "findings");
  const soft = checkSoftDevices({
    count: values.gpus ?? 1,
    memoryBytes: values.deviceMemory ?? 4n << 30n,
    checks: { tools: chosen, findings },
  });
  if (values.log !== undefined) writeReport("", values.log);
  const calls = join(place.path, "calls");
  const status = await runChecked(program, {
    native,
    driver: hardware ?? native.softgpu,
    soft: hardware === undefined ? soft : undefined,
    gpus: soft.count,
    state: join(place.path, "pool"),
    calls,
  });
  const outcome =
    hardware === undefined
      ? await outcomeOf({ findings, calls }, chosen)
      : outcomeOnCard(await readCalls(calls, []), new Symbols());
  const shown = outcome.findings.filter(({ kind }) => kind !== "leak" || values.leakCheck);
  report(
    values,
    { ...outcome, findings: shown },
    { program: [name, ...args], tools: chosen, exitStatus: status },
  );
  const whenFound = values.errorExitcode ?? exitStatus.finding;
  // A run in which nothing was checked has not passed; a program that failed has an exit status of its own.
  const hasPassed = shown.length === 0 && (checksOf(outcome) > 0 || status !== 0);
  return hasPassed || whenFound === 0 ? status : whenFound;
}

/** What is checked on a card. */
const onCard: readonly string[] = ["memcheck"];

/**
 * The driver library of this host's cards.
 *
 * @throws MILLPOND_E_INVALID for options that need a software GPU; MILLPOND_E_NOT_FOUND without a driver
 */
async function cardDriver(
  asked: string,
  { tool, leakCheck, deviceMemory }: Values<"sanitize">,
  native: NativeFiles,
): Promise<string> {
  const options = {
    "--tool": tool?.some((name) => name !== "memcheck") ?? false,
    "--leak-check": leakCheck,
    "--device-memory": deviceMemory !== undefined,
  };
  for (const [option, isGiven] of Object.entries(options)) {
    if (isGiven)
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${option} needs a software GPU, and --driver names a card's driver`,
        {
          remedy: "Omit one of the two: on a card, memcheck checks calls and copies.",
        },
      );
  }
  if (asked !== "auto") {
    if (existsSync(asked)) return resolve(asked);
    throw millpondError("MILLPOND_E_NOT_FOUND", `--driver: there is no file ${quote(asked)}`, {
      remedy: "Name the driver library, or `auto`.",
    });
  }
  const { driver, rejected } = await findDriver(native);
  if (driver !== undefined) return driver;
  const [first] = rejected;
  throw millpondError(
    "MILLPOND_E_NOT_FOUND",
    `--driver: ${first === undefined ? "no NVIDIA driver found" : `${first.path}: ${first.reason}`}`,
    { remedy: "Omit it: the software GPU needs no card." },
  );
}

/** @throws MILLPOND_E_INVALID for a tool that does not exist */
function chooseTools(asked: readonly string[] | undefined): readonly string[] {
  for (const tool of asked ?? []) {
    if (!tools.some((known) => known === tool)) {
      throw millpondError("MILLPOND_E_INVALID", `--tool: ${quote(tool)} is not one of ${tools.join(", ")}`);
    }
  }
  return asked === undefined ? defaultTools : tools.filter((tool) => asked.includes(tool));
}

/** Reads the findings of the checks and links them to the calls of the program. Failed calls belong to memcheck. */
async function outcomeOf(
  files: { readonly findings: string; readonly calls: string },
  chosen: readonly string[],
): Promise<Outcome> {
  const found = readOutcome(files.findings);
  const record = await readCalls(files.calls, placesOf(found));
  return withCalls(found, chosen.includes("memcheck") ? record : { ...record, failed: [] }, new Symbols());
}

class TemporaryFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "millpond-sanitize-"));
  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

interface Program {
  readonly name: string;
  readonly path: string;
  readonly args: readonly string[];
}

/**
 * Runs the program in a pool of its own. When this resolves, the pool has ended, and with it all processes that write
 * findings.
 */
async function runChecked(
  program: Program,
  options: {
    readonly native: NativeFiles;
    readonly driver: string;
    readonly soft: SoftDevices | undefined;
    readonly gpus: number;
    readonly state: string;
    readonly calls: string;
  },
): Promise<number> {
  const { native, driver, soft } = options;
  using signals = new SignalRelay();
  using directory = PoolDirectory.open(options.state);
  await directory.recover();
  try {
    await using pool = await LocalPool.start({
      store: undefined,
      directory,
      native,
      listen: "127.0.0.1:0",
      nodes: ["sanitize"],
      driver,
      soft,
      warm: 1,
      isEncrypted: false,
      onEvent: (text) => process.stderr.write(`millpond: ${text}\n`),
      signal: signals.cancelled,
    });
    return await runInPool(program, pool.connect(), {
      native,
      gpus: options.gpus,
      signals,
      calls: options.calls,
    });
  } catch (error) {
    if (!signals.cancelled.aborted) throw error;
    throw new ExitError(signals.cancelStatus);
  }
}

async function runInPool(
  program: Program,
  connection: Connection,
  options: {
    readonly native: NativeFiles;
    readonly gpus: number;
    readonly signals: SignalRelay;
    readonly calls: string;
  },
): Promise<number> {
  const { native, gpus, signals } = options;
  const waiting = { timeoutSeconds: 0, signal: signals.cancelled, onWaiting: () => undefined };
  const holder = await ClaimHolder.create(
    connection,
    { gpus },
    { ...waiting, name: "sanitize", noWait: true, program: basename(program.name), rendezvous: "" },
  );
  const done = new AbortController();
  try {
    await holder.waitUntilBound(waiting);
    const kept = holder.keep(done.signal, () => undefined);
    const status = await runProgram(program.path, program.args, {
      name: program.name,
      environment: {
        ...environmentFor(connection, holder.claim.name, native),
        ...tracedTo(options.calls),
        MILLPOND_TOKEN: await holder.programToken(signals.cancelled),
      },
      signals,
      hasInput: true,
    });
    done.abort();
    await kept;
    return status;
  } finally {
    done.abort();
    await holder.release();
  }
}

/** Makes the program record its calls with their stacks, and print as many messages as it would otherwise. */
function tracedTo(file: string): NodeJS.ProcessEnv {
  const [level] = /^(?:off|error|warn|info|debug|trace)(?=,|$)/.exec(process.env["MILLPOND_LOG"] ?? "") ?? [];
  return { MILLPOND_LOG: level === undefined ? file : `${level},${file}`, MILLPOND_TRACE_STACKS: "1" };
}

/** The environment without variables that lead to another pool. */
function environmentFor(connection: Connection, claim: string, native: NativeFiles): NodeJS.ProcessEnv {
  const others = Object.entries(process.env).filter(
    ([name]) => !name.startsWith("MILLPOND_") || name === "MILLPOND_LOG",
  );
  return {
    ...Object.fromEntries(others),
    MILLPOND_CONTROLLER: connection.controller,
    MILLPOND_CLAIM: claim,
    LD_LIBRARY_PATH: programLibraryPath(process.env, dirname(native.client), process.execPath),
  };
}

function report(
  values: Values<"sanitize">,
  outcome: Outcome,
  about: {
    readonly program: readonly string[];
    readonly tools: readonly string[];
    readonly exitStatus: number;
  },
): void {
  const text =
    values.output === "json"
      ? renderObject("SanitizeReport", { ...about, ...outcome })
      : renderReport(outcome);
  writeReport(text, values.log);
}

/** @throws MILLPOND_E_INVALID for a file that cannot be written */
function writeReport(text: string, file: string | undefined): void {
  if (file === undefined) {
    process.stderr.write(text);
    return;
  }
  try {
    writeFileSync(file, text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw millpondError("MILLPOND_E_INVALID", `--log ${quote(file)} cannot be written: ${why}`);
  }
}
