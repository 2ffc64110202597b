// SPDX-License-Identifier: Apache-2.0
// Parts of a busy pool are killed at random moments. A program that was not killed and whose worker was not killed does
// not notice, one that lost its worker gets an error, and no resources leak. MILLPOND_CHAOS_SEED and
// MILLPOND_CHAOS_KILLS replay a run or make a longer one.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { examples, Pool, until } from "./support/pool.ts";
import { type Program, type Result, startProgram } from "./support/program.ts";
import { Random } from "./support/random.ts";

const seed = Number(process.env["MILLPOND_CHAOS_SEED"] ?? 20260801);
const kills = Number(process.env["MILLPOND_CHAOS_KILLS"] ?? 25);
const lanes = 6;
const devices = 4;
/** Time between two kills, in milliseconds. */
const pauseMs = [100, 1500] as const;

const programs = [
  ["vectoradd", "1000", "--repeat", "300"],
  ["vectoradd", "200000"],
  ["reduction", "100000"],
  ["histogram", "100000"],
  ["matmul", "64"],
  ["streams", "100000"],
] as const;
const victims = ["program", "worker", "agent", "controller"] as const;

/** One program that was run, and what happened to it. */
interface Outcome {
  readonly what: string;
  /** The pid of the program, or of the `millpond run` that started it. It is part of the name of the claim's owner. */
  readonly pid: number;
  readonly startedMs: number;
  isKilled: boolean;
  result: Result | undefined;
  endedMs: number;
}

interface Running {
  readonly program: Program;
  readonly isRun: boolean;
  readonly outcome: Outcome;
}

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "2", "--devices", "2", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Keeps programs running until it is stopped. */
class Load {
  readonly outcomes: Outcome[] = [];
  readonly #running = new Set<Running>();
  readonly #lanes: readonly Promise<void>[];
  #isOver = false;

  constructor(random: Random) {
    this.#lanes = Array.from({ length: lanes }, (_, lane) => this.#drive(random.fork(lane)));
  }

  /** The programs that run now. */
  get running(): readonly Running[] {
    return [...this.#running];
  }

  /** Resolves when the last program has ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
  }

  async #drive(random: Random): Promise<void> {
    while (!this.#isOver) {
      const isRun = random.chance(0.6);
      const lazy = isRun && random.chance(0.5) ? ["--lazy"] : [];
      const transport = random.pick(["shm", "tcp"]);
      const args = random.pick(programs);
      const asked = ["-m", "192Mi", "--service-class", random.pick(["guaranteed", "burstable"])];
      const program = isRun
        ? pool.start(["run", ...lazy, ...asked, "--transport", transport, "--", examples, ...args])
        : startProgram(
            examples,
            args,
            pool.containerEnvironment({ MILLPOND_MEMORY: "192Mi", MILLPOND_TRANSPORT: transport }),
          );
      program.endInput();
      const outcome: Outcome = {
        what: `${isRun ? ["run", ...lazy].join(" ") : "environment"}, ${transport}: ${args.join(" ")}`,
        pid: program.pid,
        startedMs: performance.now(),
        isKilled: false,
        result: undefined,
        endedMs: 0,
      };
      this.outcomes.push(outcome);
      const running = { program, isRun, outcome };
      this.#running.add(running);
      outcome.result = await program.finished;
      outcome.endedMs = performance.now();
      this.#running.delete(running);
    }
  }
}

/** Resizes the claims of running programs until it is stopped. */
class Resizer {
  /** How often each answer occurred. */
  readonly answers = new Map<string, number>();
  readonly #work: Promise<void>;
  #isOver = false;

  constructor(random: Random) {
    this.#work = this.#run(random);
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#work;
  }

  async #run(random: Random): Promise<void> {
    while (!this.#isOver) {
      await sleep(random.between(...pauseMs));
      const answer = await this.#resizeOne(random).catch((error: unknown) => nameOf(error));
      this.answers.set(answer, (this.answers.get(answer) ?? 0) + 1);
    }
  }

  async #resizeOne(random: Random): Promise<string> {
    const { claims } = await pool.usage();
    if (claims.length === 0) return "nobody there";
    const [name, mebibytes] = [random.pick(claims), random.pick([96, 192, 256])];
    await pool.resize(name, mebibytes * 2 ** 20);
    return "resized";
  }
}

/** The error code of a refused resize while claims are created and ended, or "unreachable" when the controller was killed. */
function nameOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return /\[(MILLPOND_E_[A-Z_]+)\]/.exec(text)?.[1] ?? (error instanceof TypeError ? "unreachable" : text);
}

const resizeAnswers: ReadonlySet<string> = new Set([
  "resized",
  "nobody there",
  "unreachable",
  // The program has more in use, the device has no more, the claim has ended, or its agent was killed.
  "MILLPOND_E_IN_USE",
  "MILLPOND_E_NO_CAPACITY",
  "MILLPOND_E_CLAIM_ENDED",
  "MILLPOND_E_NOT_FOUND",
  "MILLPOND_E_NODE_NOT_READY",
  "MILLPOND_E_SHUTTING_DOWN",
]);

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** The program itself: the child, if `millpond run` started it. Undefined if it does not exist. */
function programPid({ program, isRun }: Running): number | undefined {
  if (!isRun) return program.pid;
  try {
    const children = readFileSync(`/proc/${program.pid}/task/${program.pid}/children`, "utf8").trim();
    return children === "" ? undefined : Number(children.split(" ")[0]);
  } catch {
    return undefined; // It has ended.
  }
}

/** Directories of all workers of the pool. */
function workerDirectories(): string[] {
  const nodes = join(pool.directory, "state", "nodes");
  return readdirSync(nodes).flatMap((node) => {
    const workers = join(nodes, node, "run", "workers");
    return readdirSync(workers).map((id) => join(workers, id));
  });
}

interface WorkerNote {
  readonly process: { readonly pid: number };
  readonly session: { readonly claim: string } | null;
}

/** The agent's record of a worker; undefined if it does not exist, or not yet. */
function readNote(directory: string): WorkerNote | undefined {
  try {
    const record = join(directory, "..", "..", "records", `${basename(directory)}.json`);
    return JSON.parse(readFileSync(record, "utf8")) as WorkerNote;
  } catch {
    return undefined;
  }
}

/** Kills parts of the pool, and records which programs a kill affects. */
class Killer {
  readonly #random: Random;
  readonly #load: Load;
  /** Claims whose worker was killed. */
  readonly hurtClaims = new Set<string>();
  /** The kills with their times, for display. */
  readonly log: string[] = [];
  readonly count = new Map<string, number>();

  constructor(random: Random, load: Load) {
    this.#random = random;
    this.#load = load;
  }

  async kill(): Promise<void> {
    const kind = this.#random.pick(victims);
    const said = await until(
      `a ${kind} to kill`,
      () => this.#killOne(kind),
      (done) => done !== undefined,
    );
    this.log.push(`${Math.round(performance.now())} ms: ${kind} ${said}`);
    this.count.set(kind, (this.count.get(kind) ?? 0) + 1);
  }

  /** The killed process; undefined if none of that kind exists now. */
  async #killOne(kind: (typeof victims)[number]): Promise<string | undefined> {
    switch (kind) {
      case "program":
        return this.#killProgram();
      case "worker":
        return this.#killWorker();
      case "agent":
        return this.#killPart(/ agent .*--name=/);
      case "controller":
        return this.#killPart(/ controller .*--state/);
    }
  }

  #killProgram(): string | undefined {
    const started = this.#load.running.flatMap((running) => {
      const pid = programPid(running);
      return pid === undefined ? [] : [{ pid, outcome: running.outcome }];
    });
    if (started.length === 0) return undefined;
    const { pid, outcome } = this.#random.pick(started);
    if (!signal(pid, "SIGKILL")) return undefined;
    outcome.isKilled = true;
    return `${pid}`;
  }

  #killWorker(): string | undefined {
    const all = workerDirectories();
    if (all.length === 0) return undefined;
    // Workers with a session are the interesting ones.
    const serving = all.filter((directory) => readNote(directory)?.session);
    const directory = this.#random.pick(serving.length > 0 && this.#random.chance(0.8) ? serving : all);
    const before = readNote(directory);
    // The record is read while the worker is suspended: an assignment that comes later does not reach it.
    if (before === undefined || !signal(before.process.pid, "SIGSTOP")) return undefined;
    const claim = readNote(directory)?.session?.claim;
    signal(before.process.pid, "SIGKILL");
    if (claim !== undefined) this.hurtClaims.add(claim);
    return `${before.process.pid} of ${claim ?? "nobody"}`;
  }

  async #killPart(pattern: RegExp): Promise<string | undefined> {
    const pids = await pool.processes(pattern);
    if (pids.length === 0) return undefined;
    const pid = this.#random.pick(pids);
    return signal(pid, "SIGKILL") ? `${pid}` : undefined;
  }
}

/** Names of memfds and of shared memory that processes of the pool hold, except a worker's own standard output. */
function sharedMemoryOf(pids: readonly number[]): string[] {
  return pids.flatMap((pid) =>
    readdirSync(`/proc/${pid}/fd`)
      .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
      .filter((target) => /^\/memfd:(?!millpond-output)|^\/dev\/shm/.test(target)),
  );
}

it(`${kills} kills hurt nobody else and leave nothing, seed ${seed}`, {
  timeout: 120_000 + kills * 8_000,
}, async () => {
  const random = new Random(seed);
  const start = performance.now();
  const load = new Load(random.fork(1000));
  const resizer = new Resizer(random.fork(3000));
  const killer = new Killer(random.fork(2000), load);
  for (let number = 0; number < kills; number += 1) {
    await sleep(random.between(...pauseMs));
    await killer.kill();
  }
  await load.stop();
  await resizer.stop();
  const loadEnd = performance.now();

  // All parts are back, and nothing is held.
  await until(
    "a controller that answers",
    () => pool.usage().catch((error: unknown) => String(error)),
    (usage) => typeof usage === "object",
  );
  await until(
    "two ready nodes",
    () => pool.nodes(),
    (nodes) =>
      nodes.length === 2 && nodes.every(({ state, warmWorkers }) => state === "ready" && warmWorkers === 2),
  );
  // Claims of programs that were killed before they had a session, and claims that could not be released because there was no
  // controller, end with their leases of 15 s and 30 s.
  await until(
    "a pool that nobody uses",
    () => pool.usage(),
    (usage) => usage.claims.length + usage.sessions.length + usage.devices.length === 0,
  );
  const cleanEnd = performance.now();
  const workers = await until(
    "as many workers as are kept warm",
    () => pool.processes(/millpond-worker .*--control/),
    (all) => all.length === devices,
  );
  // Each worker has its own directory, and there are no others.
  const noted = workerDirectories().map((directory) => readNote(directory)?.process.pid);
  expect(noted).toHaveLength(devices);
  expect(new Set(noted)).toEqual(new Set(workers));
  expect(sharedMemoryOf(workers)).toEqual([]);

  // A killed worker served a claim, and a claim names the process that created it.
  const owners = new Map((await pool.allClaims()).map(({ name, owner }) => [name, owner]));
  const hurtPids = new Set(
    [...killer.hurtClaims].map((claim) => Number(/:(\d+) /.exec(owners.get(claim) ?? "")?.[1])),
  );
  const story = `\n${killer.log.join("\n")}\n${pool.complaints}`;
  const surprises: string[] = [];
  for (const { what, pid, isKilled, result, startedMs, endedMs } of load.outcomes) {
    if (result === undefined) throw new Error("a program has not ended");
    const { status, stdout, stderr } = result;
    const isRight = status === 0 && /^\w+: OK/m.test(stdout);
    const isTold = /the GPU of this process is gone|\[MILLPOND_E_[A-Z_]+\]\s*$/m.test(stderr);
    const isExcused = (isKilled && status === 137) || (hurtPids.has(pid) && isTold);
    if (isRight || isExcused) continue;
    surprises.push(
      `${what}, process ${pid}, ${Math.round(startedMs)} to ${Math.round(endedMs)} ms, ` +
        `${isKilled ? "killed, " : ""}${hurtPids.has(pid) ? "worker killed, " : ""}status ${status}\n${stdout}${stderr}`,
    );
  }
  const failed = load.outcomes.filter(({ result }) => result?.status !== 0).length;
  expect(load.outcomes.length - failed).toBeGreaterThan(kills / 2);
  expect([...resizer.answers.keys()].filter((answer) => !resizeAnswers.has(answer))).toEqual([]);
  expect(resizer.answers.get("resized") ?? 0).toBeGreaterThan(0);
  process.stderr.write(
    `chaos: ${load.outcomes.length} programs, ${failed} failed, kills ${JSON.stringify(Object.fromEntries(killer.count))}, ` +
      `resizes ${JSON.stringify(Object.fromEntries(resizer.answers))}, ` +
      `load ${Math.round(loadEnd - start)} ms, clean after ${Math.round(cleanEnd - loadEnd)} ms\n`,
  );
  expect(surprises.join("\n\n") + (surprises.length > 0 ? story : "")).toBe("");

  // All of the memory is really available.
  const whole = await Promise.all(Array.from({ length: devices }, () => pool.run(["-m", "1Gi"], ["memhog"])));
  for (const { stdout, status } of whole) {
    expect(stdout).toContain("memory: 1024 MiB, of which free 1024 MiB");
    expect(status).toBe(0);
  }
  await pool.isClean();
});
