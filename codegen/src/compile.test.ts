// SPDX-License-Identifier: Apache-2.0
/**
 * Generated code compiles without a warning and behaves as described: built with the sanitizers and run. The committed code of
 * client and worker is compiled with the same warnings by the build.
 */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { loadAbi } from "@millpond/cuda";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleAbi, sampleCommands, sampleGroups, sampleParts } from "../test/sample.ts";
import { emitApiHeader, emitExports, emitStubs } from "./emit-client.ts";
import { emitCommands, emitHandleKinds } from "./emit-commands.ts";
import { emitResolver, emitResolverHeader } from "./emit-resolver.ts";
import { emitTypes } from "./emit-types.ts";
import {
  emitDispatch,
  emitDispatchHeader,
  emitDriverTable,
  emitDriverTableHeader,
  emitCommandParts,
} from "./emit-worker.ts";
import { makePlan } from "./plan/planner.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..", "..");
const loopback = join(root, "codegen/test/loopback");
const native = join(root, "native");
const testMain = join(native, "testing/main.cpp");
const warnings = [
  "-std=c++20",
  "-Wall",
  "-Wextra",
  "-Wconversion",
  "-Wshadow",
  "-Werror",
  "-fno-strict-aliasing",
  "-fvisibility=hidden",
];
const sanitizers = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];

let scratch = "";
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "millpond-codegen-"));
});
afterAll(() => rmSync(scratch, { recursive: true }));

function write(path: string, content: string): string {
  const full = join(scratch, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, content);
  return full;
}

/** Runs a program; its output becomes the error when it fails. */
async function must(program: string, args: readonly string[]): Promise<string> {
  try {
    const { stdout, stderr } = await run(program, [...args], { maxBuffer: 16 << 20 });
    return stdout + stderr;
  } catch (error) {
    const output = error instanceof Error && "stderr" in error ? String(error.stderr) : String(error);
    throw new Error(output.slice(0, 6000), { cause: error });
  }
}

test("the sample's calls reach the driver and their answers come back", {
  // The compiler computes all the time, and on a busy machine takes many times what it takes alone.
  timeout: 600_000,
}, async () => {
  const plan = makePlan({ abi: sampleAbi, driver: sampleGroups, commands: sampleCommands });
  write("sample/cuda/gen/cuda_api.h", emitTypes(sampleAbi));
  write("sample/protocol/gen/commands.h", emitCommands(plan.commands));
  write("sample/protocol/gen/handle_kind.h", emitHandleKinds());
  write("sample/client/gen/api.h", emitApiHeader(plan));
  write("sample/client/gen/resolver.h", emitResolverHeader());
  write("sample/worker/device/gen/driver_table.h", emitDriverTableHeader(plan, []));
  write("sample/worker/session/gen/command_parts.h", emitCommandParts(sampleParts));
  write("sample/worker/session/gen/dispatch.h", emitDispatchHeader());
  const sources = [
    ...emitStubs(plan).map(([path, content]) => write(path.replace("native", "sample"), content)),
    write("sample/client/gen/exports.cpp", emitExports(plan)),
    write("sample/client/gen/resolver.cpp", emitResolver(sampleAbi)),
    write("sample/worker/device/gen/driver_table.cpp", emitDriverTable(plan, [])),
    write("sample/worker/session/gen/dispatch.cpp", emitDispatch(plan, sampleParts)),
    join(loopback, "sample_test.cpp"),
    testMain,
  ];
  // One translation unit: the headers are read once.
  const all = write("sample/all.cpp", sources.map((source) => `#include "${source}"\n`).join(""));
  const program = join(scratch, "sample_test");
  const include = [`-I${join(scratch, "sample")}`, `-I${loopback}`, `-I${native}`];
  await must("c++", [...warnings, ...sanitizers, ...include, all, "-rdynamic", "-ldl", "-o", program]);
  expect(await must(program, [])).toMatch(/\d+ cases passed/);
});

test("the committed files compile, and the resolver answers as the real driver did", async () => {
  const abi = loadAbi();
  // Every exported symbol, as an empty function.
  const symbols = abi.functions.map((f) => `int ${f.symbol}(void) { return 0; }`).join("\n");
  const symbolsObject = join(scratch, "symbols.o");
  await must("cc", ["-c", write("symbols.c", `${symbols}\n`), "-o", symbolsObject]);
  const requests = readFileSync(join(root, "codegen/test/driver-requests.tsv"), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split("\t"))
    .map(([name, version, flags]) => `  {"${name}", ${version}, ${flags}},`);
  expect(requests.length).toBeGreaterThan(400);
  write("requests.inc", `${requests.join("\n")}\n`);
  const resolver = join(scratch, "resolver_test");
  const sources = [
    join(loopback, "resolver_test.cpp"),
    testMain,
    join(native, "client/gen/resolver.cpp"),
    symbolsObject,
  ];
  await must("c++", [...warnings, `-I${scratch}`, `-I${native}`, ...sources, "-o", resolver]);
  expect(await must(resolver, [])).toMatch(/\d+ cases passed/);
});
