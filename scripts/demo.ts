// SPDX-License-Identifier: Apache-2.0
// npm run demo: the whole system at work in one terminal, on a machine without a GPU. Starts a pool of two nodes with
// two software GPUs each, runs an unmodified CUDA program on half a vGPU of the other node, and stops everything.
import { rm, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { styleText } from "node:util";
import { build } from "./build.ts";
import type { Background } from "./lib/background.ts";
import { ScriptError, script } from "./lib/command.ts";
import { TrialPool } from "./lib/millpond.ts";
import { inRoot, root, toolEnvironment } from "./lib/paths.ts";

const picture = inRoot("build", "mandelbrot.png");
const program = inRoot("build", "examples", "mandelbrot");
const programArgs = ["1024", "683", "--repeat", "8", "--out", relative(root, picture)];

/** How long to wait for the session's memory to appear, in milliseconds. */
const patienceMs = 1500;

/** The members of `millpond get sessions -o json` that are used. */
interface Sessions {
  items: { state: string; node: string; transport: string; devices: { memoryUsedBytes: number }[] }[];
}

let chapter = 0;

function announce(text: string): void {
  chapter += 1;
  console.log(`\n${styleText("bold", `${chapter}. ${text}`)}`);
}

function show(text: string, indent = "   "): void {
  for (const line of text.trimEnd().split("\n")) console.log(`${indent}${line}`);
}

function showCommand(args: string[]): void {
  console.log(styleText("dim", `   $ millpond ${args.join(" ")}`));
}

async function showResult(pool: TrialPool, args: string[]): Promise<void> {
  showCommand(args);
  show(await pool.must(args));
}

/**
 * Waits until the program's session is connected, and then until it uses memory, which workers report every second. Throws
 * when the program has ended and no session was seen.
 */
async function waitForSession(pool: TrialPool, running: Background): Promise<Sessions["items"][number]> {
  let end: number | undefined;
  void running.ended.then((status) => {
    end = status;
  });
  let seen: Sessions["items"][number] | undefined;
  let seenAt = Number.POSITIVE_INFINITY;
  while (end === undefined && performance.now() - seenAt < patienceMs) {
    const { items } = JSON.parse(await pool.must(["get", "sessions", "-o", "json"])) as Sessions;
    const session = items.find((item) => item.state === "connected");
    if (session !== undefined) {
      if (seen === undefined) seenAt = performance.now();
      seen = session;
      if (session.devices.some((device) => device.memoryUsedBytes > 0)) break;
    }
    await sleep(50);
  }
  if (seen !== undefined) return seen;
  throw new ScriptError(
    `the program ended with status ${end} and its session was never seen:\n${running.output}`,
  );
}

async function runProgram(pool: TrialPool): Promise<void> {
  const args = [
    "run",
    "--gpus",
    "1",
    "--compute",
    "50",
    "--memory",
    "512Mi",
    "--transport",
    "tcp",
    "--verbose",
    "--",
  ];
  args.push(relative(root, program), ...programArgs);
  announce("Run an unmodified CUDA program on half the compute and 512 MiB of one vGPU, over TCP");
  console.log("   nvcc made it, with the CUDA runtime linked statically; it knows nothing of Millpond.");
  showCommand(args);
  await rm(picture, { force: true });
  await using running = pool.start(args, (line) => console.log(`   ${styleText("cyan", "│")} ${line}`));
  const session = await waitForSession(pool, running);
  if (session.node !== "node-b") throw new ScriptError(`the session is on ${session.node}, not on node-b`);

  announce(`Meanwhile, the pool: its session is on ${session.node}, by ${session.transport}`);
  await showResult(pool, ["smi"]);

  announce("Wait for the program, which checks its result against the CPU");
  const status = await running.ended;
  if (status !== 0 || !/^mandelbrot: OK/m.test(running.output)) {
    throw new ScriptError(`the program ended with status ${status} and without "mandelbrot: OK"`);
  }
  const { size } = await stat(picture);
  console.log(`   The program says OK, and left a picture of ${size} bytes: ${relative(root, picture)}`);
}

async function demo(): Promise<void> {
  announce("Build the native parts and the examples");
  await build("release");

  announce("Start a controller and two nodes with two software GPUs each");
  const millpond = {
    command: [process.execPath, join("cli", "bin", "millpond.mjs")] as const,
    cwd: root,
    env: toolEnvironment(),
  };
  await using pool = await TrialPool.start(millpond, ["--soft", "--nodes", "2", "--devices", "2"]);
  show(pool.said.split("\n\n")[0] ?? "");
  await showResult(pool, ["get", "devices"]);

  announce("Close node-a, so that the vGPU has to come from the other node");
  await showResult(pool, ["cordon", "node-a"]);

  await runProgram(pool);
  announce("Stop the pool");
}

export async function main(): Promise<void> {
  await script(async () => {
    const start = performance.now();
    await demo();
    console.log(
      `   Nothing is left running. All of it took ${((performance.now() - start) / 1000).toFixed(0)} s.`,
    );
  });
}
