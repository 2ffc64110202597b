// SPDX-License-Identifier: Apache-2.0
/**
 * The generator's output for the sample description. After an intended change: `npx vitest run codegen -u`, then review the
 * diff.
 */
import { expect, test } from "vitest";
import { sampleAbi, sampleCommands, sampleGroups, sampleParts } from "../test/sample.ts";
import { emitApiHeader, emitExports, emitStubs } from "./emit-client.ts";
import { emitApiHash, emitCommands, emitHandleKinds } from "./emit-commands.ts";
import { emitCoverage, emitJson } from "./emit-docs.ts";
import { emitLeft } from "./emit-left.ts";
import { emitResolver } from "./emit-resolver.ts";
import { emitTraceTables } from "./emit-trace.ts";
import { emitTypes } from "./emit-types.ts";
import { emitCommandParts, emitDispatch, emitDriverTable, emitDriverTableHeader } from "./emit-worker.ts";
import { makePlan } from "./plan/planner.ts";

const plan = makePlan({ abi: sampleAbi, driver: sampleGroups, commands: sampleCommands });
const stubs = emitStubs(plan).map(([path, content]): [string, string] => [path.replace(/.*\//, ""), content]);

test.each([
  ["cuda_api.h", emitTypes(sampleAbi)],
  ["commands.h", emitCommands(plan.commands)],
  ["command_left.h", emitLeft(plan.commands)],
  ["api_hash.h", emitApiHash(plan.commands)],
  ["handle_kind.h", emitHandleKinds()],
  ["api.h", emitApiHeader(plan)],
  ["exports.cpp", emitExports(plan)],
  ...stubs,
  ["trace_tables.cpp", emitTraceTables(plan)],
  ["resolver.cpp", emitResolver(sampleAbi)],
  ["driver_table.h", emitDriverTableHeader(plan, ["cuWatch"])],
  ["driver_table.cpp", emitDriverTable(plan, ["cuWatch"])],
  ["command_parts.h", emitCommandParts(sampleParts)],
  ["dispatch.cpp", emitDispatch(plan, sampleParts)],
  ["coverage.md", emitCoverage(plan)],
  ["cuda.json", emitJson(plan)],
])("golden %s", async (name, content) => {
  await expect(content).toMatchFileSnapshot(`../test/golden/${name}`);
});

test("the hash changes with every field, and not with the docs", () => {
  const hash = emitApiHash(sampleCommands);
  const [first, ...rest] = sampleCommands;
  if (!first) throw new Error("the sample has commands");
  expect(emitApiHash([{ ...first, doc: "Other words." }, ...rest])).toBe(hash);
  expect(emitApiHash([{ ...first, fields: first.fields.toReversed() }, ...rest])).not.toBe(hash);
  expect(emitApiHash([{ ...first, tails: ["image", "name"] }, ...rest])).not.toBe(hash);
  expect(emitApiHash([{ ...first, left: "trace" }, ...rest])).not.toBe(hash);
  expect(emitApiHash([...rest, first])).not.toBe(hash);
});

test("the worker's list of symbols must name real ones, once", () => {
  expect(() => emitDriverTable(plan, ["cuNothing"])).toThrow("worker symbol cuNothing: there is none");
  expect(() => emitDriverTable(plan, ["cuWatch", "cuWatch"])).toThrow("worker symbol cuWatch: listed twice");
});

test("every command that is written by hand has one part of the worker", () => {
  const [session, ...others] = sampleParts;
  if (!session) throw new Error("the sample has parts");
  const withCommands = (...names: string[]): string =>
    emitDispatch(plan, [
      { ...session, commands: names },
      ...others.map((part) => ({ ...part, commands: [] })),
    ]);
  expect(() => withCommands("Load")).toThrow("no worker part executes SyncStream");
  expect(() => withCommands("Load", "SyncStream", "Load")).toThrow("both have Load");
  expect(() => withCommands("Load", "SyncStream", "Copy")).toThrow("Copy is no command written by hand");
  expect(() => emitDispatch(plan, others)).toThrow("there is no worker part session");
});
