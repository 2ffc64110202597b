// SPDX-License-Identifier: Apache-2.0
// Programs and agents are killed at random moments while sessions are parked and woken. Programs that were not killed
// lose nothing and have nothing executed twice, and the others leave nothing behind. MILLPOND_CHAOS_SEED and
// MILLPOND_CHAOS_KILLS replay a run or make a longer one.
import { EventEmitter, once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { nativeDir } from "../../scripts/lib/paths.ts";
import { Pool, until } from "../support/pool.ts";
import { childOf, type Program } from "../support/program.ts";
import { Random } from "../support/random.ts";

const seed = Number(process.env["MILLPOND_CHAOS_SEED"] ?? 20260802);
const kills = Number(process.env["MILLPOND_CHAOS_KILLS"] ?? 12);
const programs = join(nativeDir("release"), "driver_programs");
const transports = ["shm", "tcp", "shm"];

let pool: Pool;
beforeAll(async () => {
  // Two of the three fit at the same time.
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "128Mi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Reports each lane whose session is about to continue. */
const awakening = new EventEmitter<{ lane: [Lane] }>();

async function nextAwakening(lanes: readonly Lane[]): Promise<Lane> {
  const limitMs = 120_000;
  const [lane] = await once(awakening, "lane", { signal: AbortSignal.timeout(limitMs) }).catch(
    (cause: unknown) => {
      const seen = lanes.map(({ awakenings, counted, surprises }) => ({ awakenings, counted, surprises }));
      throw new Error(`no session was about to go on within ${limitMs} ms: ${JSON.stringify(seen)}`, {
        cause,
      });
    },
  );
  return lane;
}

/** Simulates a user at a shell: starts another program when one is killed. */
class Lane {
  readonly #random: Random;
  readonly #number: number;
  readonly #transport: string;
  #name = "";
  #shells = 0;
  #shell: Program | undefined;
  #isKilled = false;
  isOver = false;
  /** How often it continued after parking. */
  awakenings = 0;
  counted = 0;
  readonly surprises: string[] = [];

  constructor(random: Random, number: number, transport: string) {
    this.#random = random.fork(number);
    this.#number = number;
    this.#transport = transport;
  }

  async run(): Promise<void> {
    while (!this.isOver) {
      this.#shells += 1;
      this.#name = `shell-${this.#number}-${this.#shells}`;
      await this.#use(this.#start());
    }
  }

  #start(): Program {
    const options = ["--lazy", "--lazy-idle", "1s", "-m", "60Mi", "--name", this.#name];
    this.#isKilled = false;
    this.#shell = pool.start(["run", ...options, "--transport", this.#transport, "--", programs, "shell"]);
    return this.#shell;
  }

  async #use(shell: Program): Promise<void> {
    let hasEnded = false;
    const ended = shell.finished.then(() => {
      hasEnded = true;
    });
    let wasParked = false;
    for (let counted = 1; !this.isOver && !hasEnded; counted += 1) {
      if (wasParked) awakening.emit("lane", this);
      shell.type("count\n");
      const done = shell.says("stdout", new RegExp(`(done: count\\n){${counted}}`));
      await Promise.race([done, ended]);
      await done.catch(() => undefined);
      if (hasEnded) break;
      this.counted += 1;
      if (wasParked) this.awakenings += 1;
      wasParked = await this.#think(() => hasEnded);
    }
    shell.endInput();
    const { status, stdout, stderr } = await shell.finished;
    const isWell = this.#isKilled ? status === 137 : status === 0 && stdout.endsWith("shell: OK\n");
    if (!isWell) {
      const what = this.#isKilled ? ", killed," : "";
      this.surprises.push(`${this.#name}${what} ended with ${status}\n${stdout}${stderr}`);
    }
  }

  /**
   * Waits until the session is parked, but not indefinitely. Resolves with whether it is: a claim for which a killed agent
   * had a ticket stays awake for 70 s.
   */
  async #think(hasEnded: () => boolean): Promise<boolean> {
    if (this.#random.chance(0.2)) {
      await sleep(this.#random.between(0, 1200));
      return false;
    }
    for (
      const enough = performance.now() + 5000;
      !hasEnded() && performance.now() < enough;
      await sleep(100)
    ) {
      if ((await pool.claimState(this.#name)) === "CLAIM_STATE_DORMANT") return !hasEnded();
    }
    return false;
  }

  /** False: there is nothing to kill now. */
  kill(): boolean {
    try {
      process.kill(childOf(this.#shell?.pid ?? 0), "SIGKILL");
    } catch {
      return false; // It is starting or ending.
    }
    this.#isKilled = true;
    return true;
  }
}

async function killAgent(): Promise<boolean> {
  const [agent] = await pool.processes(/ agent .*--name=/);
  if (agent === undefined) return false;
  process.kill(agent, "SIGKILL");
  return true;
}

/** The shared memory that processes hold, except a worker's own output. */
function sharedMemoryOf(pids: readonly number[]): string[] {
  return pids.flatMap((pid) =>
    readdirSync(`/proc/${pid}/fd`)
      .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
      .filter((target) => /^\/memfd:(?!millpond-output)|^\/dev\/shm/.test(target)),
  );
}

it(`${kills} kills of programs and agents lose nothing and leave nothing, seed ${seed}`, {
  timeout: 240_000 + kills * 8000,
}, async () => {
  const random = new Random(seed);
  const lanes = transports.map((transport, number) => new Lane(random, number, transport));
  const running = Promise.all(lanes.map((lane) => lane.run()));
  const count = { agent: 0, program: 0 };
  for (let done = 0; done < kills; done += 1) {
    // Mostly while a session is being woken.
    const lane = random.chance(0.7) ? await nextAwakening(lanes) : random.pick(lanes);
    await sleep(random.between(0, 250));
    const victim = random.chance(0.5) ? "agent" : "program";
    await until(
      `a ${victim} to kill`,
      async () => (victim === "agent" ? killAgent() : lane.kill()),
      (isKilled) => isKilled,
    );
    count[victim] += 1;
  }
  // Each of them computes once more, now without any kills.
  const before = lanes.map((lane) => lane.counted);
  await until(
    "everybody to go on",
    async () => lanes.map((lane) => lane.counted),
    (now) => now.every((times, lane) => times > (before[lane] ?? 0)),
  );
  for (const lane of lanes) lane.isOver = true;
  await running;
  const awakenings = lanes.reduce((sum, lane) => sum + lane.awakenings, 0);
  process.stderr.write(`parking: kills ${JSON.stringify(count)}, gone on ${awakenings} times\n`);
  expect(awakenings).toBeGreaterThan(0);
  expect(lanes.flatMap((lane) => lane.surprises).join("\n\n")).toBe("");
  await pool.isClean();
  const workers = await until(
    "one warm worker",
    () => pool.processes(/millpond-worker .*--control/),
    (all) => all.length === 1,
  );
  expect(sharedMemoryOf(workers)).toEqual([]);
});
