// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { commandSpecs } from "../command-table/command-table.ts";
import { readOptions } from "../command-line/option-values.ts";
import { readServiceFile, toArguments, withFile } from "./service-options.ts";

let folder: string;
let path: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "millpond-options-"));
  path = join(folder, "agent.yaml");
});
afterAll(() => rmSync(folder, { recursive: true }));

const write = (text: string): void => writeFileSync(path, text);

test("the command line wins over the environment, that over the file, and the file over the default", () => {
  write(
    "controller: https://file:7170\nwarm: 3\nlabels: {zone: b, gpu: h200}\nencrypt: true\nreconnectGrace: 2m\n",
  );
  const environment = { MILLPOND_AGENT_WARM: "2" };
  const given = withFile("agent", { config: path, name: "node-7" }, environment);
  const values = readOptions(commandSpecs.agent.options, given, environment);
  expect(toArguments("agent", values)).toEqual([
    "--controller=https://file:7170",
    "--name=node-7",
    "--encrypt",
    "--labels=gpu=h200,zone=b",
    "--warm=2",
    "--reconnect-grace=120",
  ]);
  const over = withFile("agent", { config: path, warm: "1" }, environment);
  expect(over["warm"]).toBe("1");
  expect(withFile("agent", { config: "none" }, {})).toEqual({ config: "none" });
});

test.for([
  ["controler: x", /agent\.yaml: "controler" is not an option of millpond agent\. There are controller, /],
  ["token-file: x", /"token-file" is not an option of millpond agent\. Did you mean tokenFile\?/],
  ["warm: lots", /agent\.yaml: --warm: "lots" is not a whole number/],
  ["encrypt: 1", /encrypt: the value is neither true nor false/],
  ["name: Big_Node", /agent\.yaml: --name: the node name "Big_Node" is not/],
  ["config: other.yaml", /"config" is not an option/],
  ["- a\n- b", /it is not a map of options/],
  ["a: [", /agent\.yaml: /],
  ["warm: 1\nwarm: 2", /agent\.yaml: .*unique/],
] as const)("the file %j is refused", ([text, message]) => {
  write(text);
  expect(() => readServiceFile("agent", path)).toThrow(message);
  expect(() => readServiceFile("agent", path)).toThrow("[MILLPOND_E_INVALID]");
});

test("options of containment and of a session's overhead reach the agent from its file", () => {
  write(
    "workerUsers: 70000-79999\nclaimHostMemory: 64Gi\nsessionOverhead: 300Mi\ntrustPageableAccess: true\n",
  );
  const values = readOptions(commandSpecs.agent.options, withFile("agent", { config: path }, {}), {});
  const args = toArguments("agent", values);
  expect(args).toEqual([
    "--worker-users=70000-79999",
    "--claim-host-memory=64Gi",
    "--session-overhead=300Mi",
    "--trust-pageable-access",
  ]);
});

test("an empty file says nothing, and one that is named has to be there", () => {
  write("# nothing\n");
  expect(readServiceFile("controller", path)).toEqual({});
  write("{{{");
  expect(() => readServiceFile("controller", path)).toThrow(/ at line 1, column \d+\. /);
  expect(() => withFile("controller", { config: join(folder, "none.yaml") }, {})).toThrow(/cannot be read/);
});
