// SPDX-License-Identifier: Apache-2.0
// Every command of docs/quickstart.md does what the page says, in the page's order.
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { inRoot, root } from "../scripts/lib/paths.ts";
import { Pool } from "./support/pool.ts";
import { startProgram } from "./support/program.ts";

interface Block {
  readonly commands: string;
  /** The word after `sh` of the block: `background`, `fails`, or nothing. */
  readonly kind: string;
}

/** The blocks of shell commands of a page, in order. */
function blocksOf(page: string): readonly Block[] {
  const text = readFileSync(inRoot("docs", page), "utf8");
  return [...text.matchAll(/^```sh ?(\w*)\n([^]*?)^```$/gm)].map(([, kind = "", commands = ""]) => ({
    kind,
    commands: commands.trim(),
  }));
}

const blocks = blocksOf("quickstart.md");
let pool: Pool;
beforeAll(async () => {
  const up = blocks.find(({ kind }) => kind === "background");
  const options = up?.commands.replace(/^millpond up --soft /, "").split(" ") ?? [];
  pool = await Pool.start(...options);
  const wrapper = join(pool.directory, "millpond");
  writeFileSync(
    wrapper,
    `#!/bin/sh\nexec "${process.execPath}" "${join(root, "cli", "bin", "millpond.mjs")}" "$@"\n`,
  );
  chmodSync(wrapper, 0o755);
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

it("begins with a pool, and goes on with commands", () => {
  expect(blocks.map(({ kind }) => kind)).toContain("background");
  expect(blocks.length).toBeGreaterThan(5);
});

it.each(blocks.filter(({ kind }) => kind !== "background"))("$commands", async ({ commands, kind }) => {
  const program = startProgram("sh", ["-ec", commands], {
    PATH: `${pool.directory}:${process.env["PATH"] ?? ""}`,
    HOME: pool.directory,
    MILLPOND_CONFIG: join(pool.directory, "config.json"),
  });
  program.endInput();
  const { status, stdout, stderr } = await program.finished;
  if (kind === "fails") {
    expect(status).not.toBe(0);
    expect(stderr).toMatch(/MILLPOND_E_/);
  } else {
    expect(status, stderr).toBe(0);
    expect(stdout).not.toBe("");
  }
});
