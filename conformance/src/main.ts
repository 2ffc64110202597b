// SPDX-License-Identifier: Apache-2.0

// npm run conformance [-- options] [NAME…]: runs CUDA programs on a driver itself and through Millpond; see --help.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { binaryDirectory, choose, readCatalogue } from "./catalogue.ts";
import { type Finding, failureText, makeReport, summary, tableHead, tableRow } from "./report.ts";
import { Session, type SessionOptions } from "./session.ts";
import { isFailure, type Refusal, type Transport, transports } from "./verdict.ts";

const help = `usage: npm run conformance -- [options] [NAME…]

Runs each program on the driver itself and through Millpond, and compares what it prints and its exit status.
NAME is a program, a form (runtime, newer, shared, per-thread, rdc, driver) or form/program; default: all.

  --transport NAME    shm, tcp or none (natively only); may be given twice; default: shm and tcp
  --encrypt           TCP connections are encrypted with TLS, as they are between hosts
  --driver LIB        driver library; default: the software GPU
  --gpus N            devices that each program sees, 1 to 8; default: 1
  --jobs N            programs at the same time, 1 to 16; default: 2
  --timeout N         seconds that a run may take; default: 60
  --preload LIB       library that every program loads first, such as the runtime of a sanitizer
  --json FILE         also writes the result as JSON
  --record            keeps what programs print natively on a real card in conformance/expected
  --list              names the programs and what they look at
`;

/** The repository's root, or the unpacked archive's. */
const root = join(import.meta.dirname, "..", "..");

function toTransports(names: readonly string[]): readonly Transport[] {
  if (names.includes("none") && names.length > 1)
    throw new UsageError("--transport: none goes with no other");
  if (names[0] === "none") return [];
  const unknown = names.find((name) => !transports.some((known) => known === name));
  if (unknown !== undefined)
    throw new UsageError(`--transport: ${unknown} is not one of ${transports.join(", ")}, none`);
  return transports.filter((known) => names.includes(known));
}

async function readRefusals(): Promise<Record<string, Refusal>> {
  const text = await readFile(join(root, "conformance", "softgpu-skips.json"), "utf8");
  return JSON.parse(text) as Record<string, Refusal>;
}

interface Options extends SessionOptions {
  readonly names: readonly string[];
  readonly json: string | undefined;
  readonly isList: boolean;
}

/** Undefined if only help is requested. */
async function readOptions(args: string[]): Promise<Options | undefined> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      transport: { type: "string", multiple: true, default: [...transports] },
      driver: { type: "string" },
      encrypt: { type: "boolean", default: false },
      gpus: { type: "string", default: "1" },
      jobs: { type: "string", default: "2" },
      timeout: { type: "string", default: "60" },
      preload: { type: "string" },
      json: { type: "string" },
      record: { type: "boolean", default: false },
      list: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  return {
    root,
    driver: values.driver,
    isEncrypted: values.encrypt,
    gpus: toCount("gpus", values.gpus, 1, 8),
    jobs: toCount("jobs", values.jobs, 1, 16),
    transports: toTransports(values.transport),
    timeoutMs: toCount("timeout", values.timeout, 1, 3600) * 1000,
    preload: values.preload,
    softRefusals: await readRefusals(),
    isRecording: values.record,
    names: positionals,
    json: values.json,
    isList: values.list,
  };
}

async function run(options: Options): Promise<void> {
  await using session = await Session.start(options.isList ? { ...options, transports: [] } : options);
  const { programs, absent } = await readCatalogue(
    binaryDirectory(root),
    session.driverDirectory,
    options.preload,
  );
  const unknown = Object.keys(options.softRefusals).filter(
    (name) => absent.length === 0 && !programs.some((program) => program.name === name),
  );
  if (unknown.length > 0) throw new Error(`softgpu-skips.json lists ${unknown.join(", ")}: there is none`);
  const chosen = choose(programs, options.names);
  const nameWidth = Math.max(...chosen.map(({ name }) => name.length)) + 2;
  if (options.isList) {
    for (const { name, summary: about } of chosen) console.log(`${name.padEnd(nameWidth)}${about}`);
    return;
  }
  console.log(`${session.hardware}, ${session.driver}\n\n${tableHead(nameWidth)}`);
  const findings = await session.findAll(chosen, (finding) => console.log(tableRow(finding, nameWidth)));
  await finish(options, session, absent, findings);
}

async function finish(
  options: Options,
  session: Session,
  absent: Awaited<ReturnType<typeof readCatalogue>>["absent"],
  findings: readonly Finding[],
): Promise<void> {
  const failures = failureText(findings);
  if (failures !== "") console.log(`\n${failures}`);
  if (absent.length > 0) console.log(`\nnot built, for want of nvcc, and so skipped: ${absent.join(", ")}`);
  console.log(`\n${summary(findings)}`);
  if (options.json !== undefined) {
    const report = makeReport(
      { driver: session.driver, hardware: session.hardware, absent },
      new Date(),
      findings,
    );
    await mkdir(dirname(options.json), { recursive: true });
    await writeFile(options.json, `${JSON.stringify(report, undefined, 2)}\n`);
  }
  if (findings.some(({ outcome }) => isFailure(outcome))) process.exitCode = 1;
}

await runTool({ help, readOptions, run });
