// SPDX-License-Identifier: Apache-2.0
// Memory of a device that the driver takes and no program asks for. The software GPU takes it as a card's driver does, and
// the ledger of its processes shows the use of the device at every moment.
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { joinNode } from "../support/agent.ts";
import { Pool } from "../support/pool.ts";
import { startProgram } from "../support/program.ts";
import { Random } from "../support/random.ts";

const MiB = 2 ** 20;
const contextMiB = 48;
const claimMiB = 256;
const mostAtOnce = 8;

let pool: Pool;
afterEach(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Whether the kernel has reclaimed the memory of a process. */
function isGone(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return /^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return true;
  }
}

/** Bytes of all devices held by living processes: entries with a process, its start time, its namespace and its bytes. */
function bytesInUse(ledgers: string): number {
  let sum = 0;
  for (const name of readdirSync(ledgers).filter((each) => each.endsWith(".memory"))) {
    const entries = readFileSync(join(ledgers, name));
    for (let at = 0; at + 32 <= entries.length; at += 32) {
      const bytes = Number(entries.readBigUInt64LE(at + 24));
      if (bytes > 0 && !isGone(Number(entries.readBigUInt64LE(at)))) sum += bytes;
    }
  }
  return sum;
}

it("processes of a claim have no more of a device than the claim and one context, whatever makes the driver take it", {
  timeout: 600_000,
}, async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1");
  const ledgers = join(pool.directory, "ledgers");
  mkdirSync(ledgers, { mode: 0o700 });
  // Without warm workers every byte is charged to the claim.
  const agent = await joinNode(pool, "greedy", ["--warm", "0"], {
    MILLPOND_SOFTGPU_MEMORY: "2Gi",
    MILLPOND_SOFTGPU_STATE: ledgers,
    MILLPOND_SOFTGPU_OVERHEAD: `context=${contextMiB}Mi,printf=16Mi,malloc=24Mi`,
  });
  const sizes = ["-m", `${claimMiB}Mi`, "-c", "25"];
  const holder = pool.start(["run", "--name", "greedy", ...sizes, "--", "sh", "-c", "echo held; read line"]);
  await holder.says("stdout", /held/);
  let peak = 0;
  const look = setInterval(() => {
    peak = Math.max(peak, bytesInUse(ledgers));
  }, 2);
  const random = new Random(Number(process.env["MILLPOND_TEST_SEED"] ?? 13));
  const environment = pool.containerEnvironment({ MILLPOND_CLAIM: "greedy" });
  const statuses: number[] = [];
  const script = join(import.meta.dirname, "..", "support", "greedy.py");
  const runs = Array.from({ length: mostAtOnce }, async (_, place) => {
    const own = random.fork(place);
    for (let i = 0; i < 4; ++i) {
      const seed = String(Math.floor(own.between(1, 1e9)));
      const steps = String(Math.floor(own.between(10, 60)));
      const { status, stderr } = await startProgram("python3", [script, seed, steps], environment).finished;
      statuses.push(status);
      if (status === 3) expect(stderr).toContain("MILLPOND_E_TOO_MANY_SESSIONS");
      else expect([0, 137], stderr).toContain(status);
    }
  });
  try {
    await Promise.all(runs);
  } finally {
    clearInterval(look);
  }
  console.log(
    `${statuses.length} programs, ${statuses.filter((status) => status === 3).length} refused, ` +
      `${(peak / MiB).toFixed(1)} MiB at most of ${claimMiB} + ${contextMiB}`,
  );
  expect(peak).toBeLessThanOrEqual((claimMiB + contextMiB) * MiB);
  // The test was meaningful: programs had most of the claim, in addition to their first context.
  expect(peak).toBeGreaterThan((claimMiB / 2 + contextMiB) * MiB);
  expect(statuses.filter((status) => status !== 3).length).toBeGreaterThan(mostAtOnce);
  holder.endInput();
  await holder.finished;
  await pool.isClean();
  agent.signal("SIGTERM");
  await agent.finished;
});
