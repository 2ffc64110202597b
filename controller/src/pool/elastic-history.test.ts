// SPDX-License-Identifier: Apache-2.0

// For any history of parking, waking, resizing, opened and ended sessions, restarts and delayed agents: workers never
// allow more than is accounted for, and no device is accounted for beyond its capacity.

import { generateKeyPairSync } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { DeviceReportSchema, SessionReportSchema, SessionState, SyncRequestSchema } from "@millpond/api";
import * as fc from "fast-check";
import { pino } from "pino";
import { expect, test } from "vitest";
import { type DesiredState, sync } from "../operations/agent-sync.ts";
import { createClaim, resizeClaim, waitClaim } from "../operations/claims.ts";
import { createTicket } from "../operations/tickets.ts";
import { Pool } from "./pool.ts";
import { checkReport } from "../agents/parse-report.ts";
import { areWithin, usableSizes } from "../domain/session-sizes.ts";
import { defaultClaimSpec } from "../domain/claim-spec.ts";
import { SqliteStore } from "../store/sqlite-store.ts";
import type { AllocationRecord, VirtualGpuRecord } from "../domain/records.ts";
import { fakeDevice } from "../testing/fake-agent.ts";
import { ManualClock } from "../testing/manual-clock.ts";
import { GiB, makeTestDirectory } from "../testing/test-pool.ts";

const deviceMemory = 8n * GiB;
const log = pino({ level: "silent" });
const { privateKey } = generateKeyPairSync("ed25519");

const names = fc.constantFrom("a", "b", "c");
const gigabytes = fc.integer({ min: 1, max: 8 });

const steps = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("create" as const),
      name: names,
      size: gigabytes,
      isLazy: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("wake" as const), name: names }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("ticket" as const), name: names }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("open" as const) }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("use" as const), name: names }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("close" as const), name: names }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("resize" as const),
      name: names,
      size: fc.integer({ min: 1, max: 4 }),
      gpus: fc.constantFrom(0, 0, 0, 1, 2),
      computePercent: fc.constantFrom(0, 10, 60, 100),
      wait: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("serve" as const), name: names }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("sync" as const) }) },
  { weight: 9, arbitrary: fc.record({ kind: fc.constant("hear" as const) }) },
  { weight: 7, arbitrary: fc.record({ kind: fc.constant("obey" as const) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("answer" as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("restart" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("pass" as const), seconds: fc.constantFrom(1, 5, 16) }),
  },
);

type Step = typeof steps extends fc.Arbitrary<infer T> ? T : never;

/** A ticket that has opened no session yet. */
interface Ticket {
  readonly session: string;
  readonly claim: string;
  readonly epoch: number;
  readonly term: number;
  readonly order: number;
  readonly expires: number;
  readonly devices: readonly {
    readonly uuid: string;
    readonly memoryBytes: number;
    readonly computePercent: number;
  }[];
}

interface Worker {
  readonly claim: string;
  readonly epoch: number;
  readonly order: number;
  readonly term: number;
  limits: readonly VirtualGpuRecord[];
  /** The last instruction that it has not executed yet. */
  wanted: AllocationRecord | undefined;
  used: bigint;
  answer: { readonly revision: number; readonly refusal: string };
}

/** Resolves when pending work is over, except for work that waits for the clock. */
async function quiet(pool: Pool): Promise<undefined> {
  for (let round = 0; round < 4; round++) {
    await setImmediate();
    await pool.ledger.settled();
  }
}

/** A node whose agent receives answers and executes the last one only when the test says so. */
class Node {
  readonly workers = new Map<string, Worker>();
  #heard: { readonly desired: DesiredState; readonly term: number } | undefined;
  #obeyed: DesiredState | undefined;
  #known: { readonly revision: number; readonly term: number; readonly order: number } | undefined;
  #sequence = 0;

  async hear(pool: Pool): Promise<void> {
    this.#sequence += 1;
    const request = create(SyncRequestSchema, {
      node: "node",
      run: "run",
      agentUrl: "http://127.0.0.1:7171",
      sequence: BigInt(this.#sequence),
      knownRevision: BigInt(this.#known?.revision ?? 0),
      devices: [0, 1].map((index) => create(DeviceReportSchema, fakeDevice(index, deviceMemory))),
      sessions: [...this.workers].map(([id, { claim, epoch, limits, answer }]) =>
        create(SessionReportSchema, {
          id,
          claim,
          epoch: BigInt(epoch),
          state: SessionState.CONNECTED,
          transport: "shm",
          devices: limits.map(({ uuid, memoryBytes, computePercent }) => ({
            uuid,
            memoryLimitBytes: memoryBytes,
            computePercent,
          })),
          sizeRevision: BigInt(answer.revision),
          sizeRefusal: answer.refusal,
        }),
      ),
    });
    const ended = new AbortController();
    const answer = sync(pool, checkReport(request), { name: "agents", madeAt: 0 }, ended.signal, noTicket);
    const desired = await Promise.race([answer, quiet(pool)]);
    ended.abort();
    await answer.catch(() => undefined);
    if (desired !== undefined) {
      this.#heard = { desired, term: pool.ledger.term };
    }
  }

  obey(): void {
    if (this.#heard === undefined) {
      return;
    }
    const { desired, term } = this.#heard;
    this.#obeyed = desired;
    this.#known = { revision: desired.revision, term, order: desired.order };
    for (const [id, worker] of this.workers) {
      const allocation = desired.allocations.find(({ epoch }) => epoch === worker.epoch);
      const isNewer = worker.term > term || (worker.term === term && worker.order > desired.order);
      if (allocation === undefined && !isNewer) {
        this.workers.delete(id);
      } else if (allocation !== undefined && !isNewer && allocation.sizeRevision > worker.answer.revision) {
        worker.wanted = allocation;
      }
    }
  }

  /** Workers execute the last instruction. */
  answer(): void {
    for (const worker of this.workers.values()) {
      const { wanted, used } = worker;
      if (wanted !== undefined) {
        const sizes = usableSizes(wanted);
        const fits = sizes.every(({ memoryBytes }) => memoryBytes >= used);
        worker.limits = fits ? sizes : worker.limits;
        worker.answer = { revision: wanted.sizeRevision, refusal: fits ? "" : "more is in use" };
        worker.wanted = undefined;
      }
    }
  }

  /** Opens a session if the agent knows that it may, with the sizes of the newer of its two sources. */
  open({ session, claim, epoch, term, order, expires, devices }: Ticket, nowSeconds: number): void {
    if (this.#known === undefined || this.#obeyed === undefined || expires < nowSeconds) {
      return;
    }
    const allocation = this.#obeyed.allocations.find((each) => each.epoch === epoch);
    const isNewer = term > this.#known.term || (term === this.#known.term && order > this.#known.order);
    if (allocation === undefined && !isNewer) {
      return;
    }
    const granted = devices.map((each) => ({ ...each, memoryBytes: BigInt(each.memoryBytes) }));
    const limits = allocation === undefined || isNewer ? granted : usableSizes(allocation);
    this.workers.set(session, {
      claim,
      epoch,
      order,
      term,
      limits,
      wanted: undefined,
      used: 0n,
      answer: { revision: 0, refusal: "" },
    });
  }
}

class History {
  readonly node = new Node();
  readonly clock = new ManualClock();
  readonly #directory = makeTestDirectory();
  store = SqliteStore.open({ directory: this.#directory });
  readonly ended = new AbortController();
  pool: Pool | undefined;
  readonly #tickets: Ticket[] = [];

  async start(): Promise<void> {
    const { clock, store } = this;
    this.pool = new Pool({ store, state: await store.load(), clock, log });
    this.pool.lead((await store.campaign({ id: "", url: "" })).term);
  }

  async play(pool: Pool, step: Step): Promise<void> {
    switch (step.kind) {
      case "create": {
        const { name, size, isLazy } = step;
        const memoryBytes = BigInt(size) * GiB;
        await createClaim(
          pool,
          { ...defaultClaimSpec, name, memoryBytes, isLazy, leaseSeconds: 3600 },
          { noWait: false },
        );
        return;
      }
      case "wake": {
        const options = { knownVersion: 0, timeoutMs: 0, wake: true, signal: this.ended.signal };
        await waitClaim(pool, step.name, options);
        return;
      }
      case "ticket": {
        const client = { host: "", pid: 1, program: "" };
        const { ticket } = await createTicket(pool, { signer: () => privateKey }, step.name, {
          client,
          signal: new AbortController().signal,
        });
        const payload = Buffer.from(ticket.split(".")[1] ?? "", "base64url").toString("utf8");
        this.#tickets.push(JSON.parse(payload) as Ticket);
        return;
      }
      case "open": {
        const ticket = this.#tickets.shift();
        if (ticket !== undefined) {
          this.node.open(ticket, this.clock.unixMs() / 1000);
        }
        return;
      }
      case "use":
        for (const worker of this.node.workers.values()) {
          worker.used = worker.claim === step.name ? (worker.limits[0]?.memoryBytes ?? 0n) : worker.used;
        }
        return;
      case "close": {
        const [id] = [...this.node.workers].find(([, { claim }]) => claim === step.name) ?? [""];
        this.node.workers.delete(id);
        return;
      }
      case "resize": {
        const { name, size, gpus, computePercent, wait } = step;
        const asked = { gpus, memoryBytes: BigInt(size) * GiB, memoryPercent: 0, computePercent };
        // The call is answered later, or never: its outcome shows in the accounting.
        resizeClaim(pool, name, asked, { wait, signal: this.ended.signal }).catch(() => undefined);
        await quiet(pool);
        return;
      }
      case "serve":
        // Everything that a program does, step by step, only when nothing prevents it.
        await this.play(pool, { kind: "ticket", name: step.name });
        await this.play(pool, { kind: "open" });
        await this.node.hear(pool);
        return await this.play(pool, { kind: "use", name: step.name });
      case "sync":
        await this.node.hear(pool);
        this.node.obey();
        this.node.answer();
        return await this.node.hear(pool);
      case "hear":
        return await this.node.hear(pool);
      case "obey":
        this.node.obey();
        return;
      case "answer":
        this.node.answer();
        return;
      case "restart":
        await pool.close();
        await this.store.close();
        this.store = SqliteStore.open({ directory: this.#directory });
        await this.start();
        return;
      case "pass":
        this.clock.advance(step.seconds * 1000);
        return;
    }
  }

  /** Violations. */
  broken(pool: Pool): string[] {
    const allocations = [...pool.ledger.allocations.byEpoch.values()];
    const crowded = [0, 1].flatMap((index) => {
      const parts = allocations.flatMap(({ devices }) =>
        devices.filter(({ uuid }) => uuid === `GPU-${index}`),
      );
      const memory = parts.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n);
      const compute = parts.reduce((sum, { computePercent }) => sum + computePercent, 0);
      return memory > deviceMemory || compute > 100 ? [`GPU-${index} is over-allocated`] : [];
    });
    const beyond = [...this.node.workers.values()].flatMap(({ epoch, claim, limits }) => {
      const allocation = pool.ledger.allocations.byEpoch.get(epoch);
      return allocation === undefined || !areWithin(limits, allocation.devices)
        ? [`a worker of ${claim} allows more than is in the books`]
        : [];
    });
    const holding = [...pool.ledger.claims.values()].flatMap(({ name, state }) =>
      (pool.ledger.allocations.ofClaim(name) === undefined) === (state === "bound")
        ? [`${name} is ${state}, and has ${state === "bound" ? "nothing" : "something"}`]
        : [],
    );
    return [...crowded, ...beyond, ...holding];
  }
}

/** One resize that is refused, one that succeeds, and a claim that goes back to sleep. */
const eventful: Step[] = [
  { kind: "create", name: "a", size: 4, isLazy: false },
  { kind: "serve", name: "a" },
  { kind: "resize", name: "a", size: 1, gpus: 0, computePercent: 0, wait: false },
  { kind: "sync" },
  { kind: "resize", name: "a", size: 4, gpus: 0, computePercent: 100, wait: false },
  { kind: "create", name: "b", size: 1, isLazy: true },
  { kind: "wake", name: "b" },
  { kind: "pass", seconds: 16 },
];

test("workers never allow more than is in the books, and in the end both agree", async () => {
  const seen = { resized: 0, refused: 0, slept: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { minLength: 50, maxLength: 60 }), async (history) => {
      const run = new History();
      await run.start();
      for (const step of [{ kind: "hear" }, { kind: "obey" }, ...history] as const) {
        const pool = run.pool as Pool;
        await run.play(pool, step).catch((error: unknown) => {
          expect(String(error)).toMatch(/MILLPOND_E_/);
          expect(String(error)).not.toMatch(/MILLPOND_E_INTERNAL/);
        });
        await pool.ledger.settled();
        expect(run.broken(run.pool as Pool)).toEqual([]);
      }
      const pool = run.pool as Pool;
      for (let round = 0; round < 20; round++) {
        run.clock.advance(1000);
        await pool.ledger.settled();
        await run.node.hear(pool);
        run.node.obey();
        run.node.answer();
      }
      expect(run.broken(pool)).toEqual([]);
      for (const { epoch, resizing, devices } of pool.ledger.allocations.byEpoch.values()) {
        expect(resizing).toBeNull();
        const own = [...run.node.workers.values()].filter((worker) => worker.epoch === epoch);
        expect(own.map(({ limits }) => limits)).toEqual(own.map(() => devices));
      }
      const events = await run.store.listEvents({ after: 0, subject: "", limit: 10_000, end: "oldest" });
      seen.resized += events.filter(({ kind }) => kind === "ClaimResized").length;
      seen.refused += events.filter(({ kind }) => kind === "ResizeRefused").length;
      seen.slept += events.filter(({ kind }) => kind === "ClaimDormant").length;
      run.ended.abort();
      await pool.close();
      await run.store.close();
    }),
    { numRuns: 40, examples: [[eventful]] },
  );
  // At least one of the histories covers every kind of event.
  expect(seen.resized).toBeGreaterThan(0);
  expect(seen.refused).toBeGreaterThan(0);
  expect(seen.slept).toBeGreaterThan(0);
});

/** This test restores no state. */
function noTicket(): never {
  throw new Error("nobody needs to know what a ticket said");
}
