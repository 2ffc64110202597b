// SPDX-License-Identifier: Apache-2.0
// Sessions come and go by the thousand, and many at once: nothing of them stays.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { processesWith } from "../scripts/lib/background.ts";
import { examples, Pool, until } from "./support/pool.ts";
import { startProgram } from "./support/program.ts";

/** The documented figures are 10,000 and 200: MILLPOND_TEST_SESSIONS=10000 MILLPOND_TEST_CONCURRENT_SESSIONS=200. */
const sessions = Number(process.env["MILLPOND_TEST_SESSIONS"] ?? 150);
const concurrent = Number(process.env["MILLPOND_TEST_CONCURRENT_SESSIONS"] ?? 16);
const transports = ["shm", "tcp"];
const devices = 2;
/** The most by which all processes together may grow, however many sessions they have served: heaps settle at a size. */
const mayGrowBytes = 192 * 2 ** 20;
const withinMs = 120_000;

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", String(devices), "--device-memory", "16Gi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

interface Held {
  readonly processes: number;
  /** The number of open descriptors in all of them. */
  readonly files: number;
  /** Shared memory of this machine, by name. */
  readonly sharedMemory: number;
  /** Resident memory of all of them. */
  readonly bytes: number;
}

/**
 * The resources that the pool's processes hold. Connections that are kept open for a while are not counted: they end by
 * themselves.
 */
async function held(): Promise<Held> {
  const pids = (await processesWith(pool.directory)).map(({ pid }) => pid);
  const files = pids.flatMap((pid) =>
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`);
      } catch {
        return "closed meanwhile";
      }
    }),
  );
  const resident = (pid: number): number =>
    Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) * 1024;
  return {
    processes: pids.length,
    files: files.filter((file) => !file.startsWith("socket:") && file !== "closed meanwhile").length,
    sharedMemory: readdirSync("/dev/shm").filter((name) => name.includes("millpond")).length,
    bytes: pids.map(resident).reduce((sum, bytes) => sum + bytes, 0),
  };
}

async function nobodyUsesIt(): Promise<void> {
  await until(
    "a pool that nobody uses",
    () => pool.usage(),
    (usage) => usage.claims.length + usage.sessions.length + usage.devices.length === 0,
    withinMs,
  );
  await until(
    "a warm worker for each device, and no other",
    async () => [
      (await pool.nodes())[0]?.warmWorkers,
      (await pool.processes(/millpond-worker .*--control/)).length,
    ],
    (counts) => counts.every((count) => count === devices),
    withinMs,
  );
}

function start(index: number, ...args: string[]): ReturnType<typeof startProgram> {
  const env = pool.containerEnvironment({
    MILLPOND_MEMORY: "64Mi",
    MILLPOND_COMPUTE: "1%",
    MILLPOND_TRANSPORT: transports[index % transports.length] ?? "",
  });
  return startProgram(examples, ["vectoradd", "1000", ...args], env);
}

async function oneByOne(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) {
    const { status, stderr } = await start(n).finished;
    expect({ n, status, stderr }).toEqual({ n, status: 0, stderr: "" });
  }
  await nobodyUsesIt();
}

it(`${sessions} sessions one after the other`, { timeout: 240_000 + sessions * 1_000 }, async () => {
  await oneByOne(40);
  const before = await held();
  await oneByOne(sessions);
  const atOnce = await held();
  console.info(`before ${JSON.stringify(before)}, after ${JSON.stringify(atOnce)}`);
  expect({ ...atOnce, bytes: 0 }).toEqual({ ...before, bytes: 0 });
  // By then the heaps of the control plane are full of garbage, which is collected at some later time.
  const later = await until(
    "heaps as before",
    held,
    ({ bytes }) => bytes - before.bytes < mayGrowBytes,
    withinMs,
  );
  console.info(`later ${JSON.stringify(later)}`);
});

it(`${concurrent} sessions at once, of which half is killed`, {
  timeout: 240_000 + concurrent * 10_000,
}, async () => {
  const before = await held();
  const programs = Array.from({ length: concurrent }, (_, index) => start(index, "--repeat", "100000000"));
  const stopped = new Set<number>();
  await until(
    `${concurrent} connected sessions`,
    () => pool.sessions(),
    (all) => {
      // Two hundred programs that compute all the time would starve those that are still starting.
      for (const { state, clientPid } of all) {
        if (state === "connected" && !stopped.has(clientPid)) {
          process.kill(clientPid, "SIGSTOP");
          stopped.add(clientPid);
        }
      }
      return stopped.size === concurrent;
    },
    10 * withinMs,
  );
  expect((await pool.sessions()).filter(({ state }) => state === "connected")).toHaveLength(concurrent);
  programs.forEach((program, index) => {
    program.signal(index % 4 < 2 ? "SIGKILL" : "SIGTERM");
    program.signal("SIGCONT");
  });
  await Promise.all(programs.map(({ finished }) => finished));
  await nobodyUsesIt();
  const { bytes, ...after } = await held();
  console.info(`before ${JSON.stringify(before)}, after ${JSON.stringify({ ...after, bytes })}`);
  expect(after).toEqual({
    processes: before.processes,
    files: before.files,
    sharedMemory: before.sharedMemory,
  });
});
