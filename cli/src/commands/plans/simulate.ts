// SPDX-License-Identifier: Apache-2.0

import { setImmediate as breathe } from "node:timers/promises";
import { countOf, millpondError, quote } from "@millpond/api";
import {
  type Curve,
  curveOf,
  listTraces,
  type Policy,
  policies,
  type ResultFormat,
  renderResults,
  resultFormatOf,
  resultFormats,
  type RunResult,
  readTrace,
  repeated,
  run as runTrace,
  type Summary,
  summarize,
  type Trace,
} from "@millpond/simulator";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { checkOutputFile, writeOutputFile } from "../../command-line/output-file.ts";
import { renderObject } from "../../output/resources.ts";
import { type Column, layOut } from "../../output/table.ts";

/** The number of the first seed; the others follow. */
const firstSeed = 42;

export async function run(values: Values<"simulate">): Promise<number> {
  const { data } = values;
  if (data === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--data is missing: the folder with the traces");
  }
  const chosen = choosePolicies(values.policy);
  const files = (values.out ?? "")
    .split(",")
    .filter((path) => path !== "")
    .map(checkResultFile);
  const names = values.trace?.split(",") ?? (await listTraces(data));
  if (names.length === 0) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `no trace in ${quote(data)}`, {
      remedy: "See `millpond simulate --help` for the contents of a folder with traces.",
    });
  }
  // All traces are read first, so that an invalid file does not fail the command after an hour.
  const traces: Trace[] = [];
  for (const name of names) {
    traces.push(repeated(await readTrace(data, name), values.repeat ?? 1));
  }
  const summaries: Summary[] = [];
  const curves: Curve[] = [];
  for (const trace of traces) {
    for (const policy of chosen) {
      const results = await runSeeds(trace, policy, values);
      const about = { trace: trace.name, policy, pooled: values.pooled };
      summaries.push(summarize(about, results));
      curves.push(curveOf(about, results));
    }
  }
  // The table comes first, so that a full disk does not lose it.
  process.stdout.write(
    values.output === "json"
      ? renderObject("Simulation", { repeat: values.repeat ?? 1, results: summaries })
      : `${layOut(columns, summaries, { headers: true }).lines.join("\n")}\n`,
  );
  const title = `${names.join(", ")}: ${values.pooled ? "CPU and GPUs apart" : "CPU and GPUs on one node"}`;
  for (const { path, format } of files) {
    writeOutputFile(path, await renderResults(format, { title, summaries, curves }), "--out");
  }
  return exitStatus.ok;
}

/**
 * Checks, before anything is computed, that a result can be written to a file.
 *
 * @throws MILLPOND_E_INVALID
 */
function checkResultFile(path: string): { readonly path: string; readonly format: ResultFormat } {
  const format = resultFormatOf(path);
  if (format === undefined) {
    const endings = resultFormats.map((each) => `.${each}`).join(", ");
    throw millpondError("MILLPOND_E_INVALID", `--out: ${quote(path)} ends in none of ${endings}`, {
      remedy: "Name the file after its format; programs such as rsvg-convert make other pictures of .svg.",
    });
  }
  checkOutputFile(path, "--out");
  return { path, format };
}

/** @throws MILLPOND_E_INVALID listing the policies */
function choosePolicies(text: string | undefined): Policy[] {
  return (text ?? "least-fragmentation").split(",").map((name) => {
    const policy = policies.find((each) => plain(each) === plain(name));
    if (policy === undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `--policy: ${quote(name)} is not one of ${policies.join(", ")}`,
      );
    }
    return policy;
  });
}

/** Normalizes a policy's name: `FGD` and `bestFit` are accepted too. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[^a-z]/g, "");
}

async function runSeeds(trace: Trace, policy: Policy, values: Values<"simulate">): Promise<RunResult[]> {
  const seeds = values.seeds ?? 10;
  const results: RunResult[] = [];
  for (let position = 0; position < seeds; position++) {
    // In a log, one line per policy for all seeds.
    if (process.stderr.isTTY || position === 0) {
      const which = process.stderr.isTTY ? `seed ${position + 1} of ${seeds}` : countOf(seeds, "seed");
      showProgress(`${trace.name} ${policy}: ${which}`);
    }
    results.push(runTrace(trace, { policy, seed: firstSeed + position, isPooled: values.pooled }));
    // Lets the event loop handle Ctrl-C.
    await breathe();
  }
  showProgress("");
  return results;
}

/** Shows progress: on a terminal in one line that is overwritten, otherwise as lines. */
function showProgress(text: string): void {
  if (process.stderr.isTTY) {
    process.stderr.write(`\r\u001B[K${text}`);
  } else if (text !== "") {
    process.stderr.write(`${text}\n`);
  }
}

const columns: readonly Column<Summary>[] = [
  { title: "TRACE", cell: ({ trace }) => trace },
  { title: "POLICY", cell: ({ policy }) => policy },
  { title: "CLAIM", cell: ({ pooled }) => (pooled ? "pooled" : "node") },
  number("ALLOC@130", ({ mean }) => mean, 2),
  number("SD", ({ sd }) => sd, 2),
  number("MIN", ({ min }) => min, 2),
  number("FRAG@80", ({ fragmentation80 }) => fragmentation80, 1),
  number("FRAG@90", ({ fragmentation90 }) => fragmentation90, 1),
  number("DECISIONS/S", ({ decisionsPerSecond }) => decisionsPerSecond, 0),
];

function number(title: string, of: (summary: Summary) => number, digits: number): Column<Summary> {
  return { title, cell: (summary) => of(summary).toFixed(digits), align: "right" };
}
