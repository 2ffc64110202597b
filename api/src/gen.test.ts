// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const run = promisify(execFile);
const apiDirectory = fileURLToPath(new URL("..", import.meta.url));
const toolDirectory = fileURLToPath(new URL("../../node_modules/.bin", import.meta.url));

async function buf(...args: string[]): Promise<void> {
  const path = `${toolDirectory}:${process.env["PATH"] ?? ""}`;
  await run(join(toolDirectory, "buf"), args, { cwd: apiDirectory, env: { ...process.env, PATH: path } });
}

function readAll(directory: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(directory)
      .sort()
      .map((name) => [name, readFileSync(join(directory, name), "utf8")]),
  );
}

test("the protobuf files keep the rules of buf lint", async () => {
  await expect(buf("lint")).resolves.toBeUndefined();
});

test("nothing is broken for clients of the newest release", async () => {
  const newest = readdirSync(join(apiDirectory, "released"))
    .filter((name) => name.endsWith(".binpb"))
    .sort()
    .at(-1);
  await expect(buf("breaking", "proto", "--against", `released/${newest}`)).resolves.toBeUndefined();
});

test("src/gen is up to date (npm run generate -w api)", async () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-gen-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  await buf("generate", "--output", directory);

  const committed = join(apiDirectory, "src/gen/millpond/v1");
  const fresh = join(directory, "src/gen/millpond/v1");
  expect(readAll(committed)).toEqual(readAll(fresh));
});
