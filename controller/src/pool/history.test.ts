// SPDX-License-Identifier: Apache-2.0

// The state that the controller maintains in memory, change by change, equals the state read from its store.

import { create } from "@bufbuild/protobuf";
import { DeviceReportSchema, SyncRequestSchema } from "@millpond/api";
import type { Statement } from "@millpond/scheduler";
import * as fc from "fast-check";
import { pino } from "pino";
import { expect, test } from "vitest";
import { sync } from "../operations/agent-sync.ts";
import { createClaim, releaseClaim } from "../operations/claims.ts";
import { createTicket } from "../operations/tickets.ts";
import { generateKeyPairSync } from "node:crypto";
import { Ledger } from "../state/ledger.ts";
import { type Conclusion, Pool } from "./pool.ts";
import { removeNode } from "../operations/nodes.ts";
import { checkReport } from "../agents/parse-report.ts";
import type { ObservedState } from "../domain/observed-state.ts";
import type { Scope } from "../reconcile/reconcile.ts";
import { SchedulerView } from "../scheduling/scheduler-view.ts";
import { defaultClaimSpec } from "../domain/claim-spec.ts";
import { SqliteStore } from "../store/sqlite-store.ts";
import { fakeDevice } from "../testing/fake-agent.ts";
import { ManualClock } from "../testing/manual-clock.ts";
import { GiB, makeTestDirectory } from "../testing/test-pool.ts";

const names = fc.constantFrom("a", "b", "c", "d", "e", "f", "g", "h");

const steps = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("create" as const),
      spec: fc.record({
        name: names,
        gpus: fc.constantFrom(1, 1, 2),
        memoryPercent: fc.constantFrom(30, 60, 100),
        computePercent: fc.constantFrom(0, 20),
        gang: fc.constantFrom("", "", "gang"),
        priority: fc.constantFrom(0, 1),
        isPreemptible: fc.boolean(),
        timeLimitSeconds: fc.constantFrom(0, 40),
        labels: fc.constantFrom({}, { team: "x" }),
      }),
      noWait: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("release" as const), name: names }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("ticket" as const), name: names }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("report" as const),
      node: fc.constantFrom("node-a", "node-b"),
      memory: fc.constantFrom(8n * GiB, 16n * GiB),
      devices: fc.constantFrom(2, 2, 1),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("remove" as const),
      node: fc.constantFrom("node-a", "node-b"),
      isLost: fc.boolean(),
    }),
  },
);

type Step = typeof steps extends fc.Arbitrary<infer T> ? T : never;

/** Events that happen at the same time, and the seconds that pass after them. */
const turns = fc.array(
  fc.record({
    together: fc.array(steps, { minLength: 1, maxLength: 6 }),
    seconds: fc.constantFrom(0, 0, 1, 20, 45),
  }),
  { minLength: 1, maxLength: 12 },
);

const { privateKey } = generateKeyPairSync("ed25519");

/** Reports of agents about their nodes; the answers are not awaited. */
class Reports {
  #sequence = 0;
  readonly #stop = new AbortController();

  async send(
    pool: Pool,
    { node, memory, devices }: Extract<Step, { readonly kind: "report" }>,
  ): Promise<void> {
    this.#sequence += 1;
    const request = create(SyncRequestSchema, {
      node,
      run: "run",
      agentUrl: "http://127.0.0.1:7171",
      bootId: node,
      sequence: BigInt(this.#sequence),
      knownRevision: BigInt(pool.ledger.nodes.get(node)?.revision ?? 0),
      devices: Array.from({ length: devices }, (_, index) =>
        create(DeviceReportSchema, fakeDevice(index, memory)),
      ),
    });
    const ended = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, ended.signal]);
    // With a token created tomorrow, a node may join again whenever it was removed.
    const answer = sync(
      pool,
      checkReport(request),
      { name: "agents", madeAt: Number.POSITIVE_INFINITY },
      signal,
      noTicket,
    );
    await pool.ledger.read(() => ended.abort());
    await answer.catch(() => undefined);
  }
}

async function play(pool: Pool, reports: Reports, step: Step): Promise<unknown> {
  switch (step.kind) {
    case "create": {
      const { gang } = step.spec;
      const spec = { ...defaultClaimSpec, ...step.spec, gangSize: gang === "" ? 0 : 2, leaseSeconds: 60 };
      return await createClaim(pool, spec, { noWait: step.noWait });
    }
    case "release":
      return await releaseClaim(pool, step.name);
    case "ticket":
      return await createTicket(pool, { signer: () => privateKey }, step.name, {
        client: { host: "", pid: 1, program: "" },
        signal: new AbortController().signal,
      });
    case "report":
      return await reports.send(pool, step);
    case "remove":
      return await removeNode(pool, step.node, step);
  }
}

function byClaim(a: { readonly statement: Statement }, b: { readonly statement: Statement }): number {
  return a.statement.claim < b.statement.claim ? -1 : 1;
}

/** Everything on which decisions are based, in an order that does not depend on how it came about. */
async function lookAt(ledger: Pool["ledger"], observed: ObservedState, scheduler: SchedulerView) {
  return await ledger.read((transaction) => {
    const snapshot = scheduler.queueSnapshot(transaction, observed);
    const { nodes } = snapshot.pool;
    return {
      nodes: nodes.map((node) => ({
        ...node,
        devices: node.devices.map((device) => ({
          ...device,
          grants: device.grants.toSorted((a, b) => (a.claim < b.claim ? -1 : 1)),
        })),
      })),
      totals: snapshot.totals,
      running: snapshot.running.toSorted(byClaim),
      leftovers: snapshot.leftovers.toSorted(byClaim),
      ofNodes: {
        running: nodes.flatMap(({ name }) => snapshot.holdings?.(name).running ?? []).sort(byClaim),
        leftovers: nodes.flatMap(({ name }) => snapshot.holdings?.(name).leftovers ?? []).sort(byClaim),
      },
      waiting: snapshot.waiting,
      ended: [...ledger.claimIndex.ended],
      gang: [...ledger.claimIndex.ofGang("gang")].toSorted(),
      claims: transaction.allClaims(),
    };
  });
}

test("after any history, what is kept in memory is what a fresh read of the store gives", async () => {
  let bound = 0;
  let ended = 0;
  let removed = 0;
  await fc.assert(
    fc.asyncProperty(turns, async (history) => {
      const clock = new ManualClock();
      const store = SqliteStore.open({ directory: makeTestDirectory() });
      const log = pino({ level: "silent" });
      const pool = new Pool({ store, state: await store.load(), clock, log });
      pool.lead((await store.campaign({ id: "", url: "" })).term);
      const reports = new Reports();
      for (const node of ["node-a", "node-b"] as const) {
        await reports.send(pool, { kind: "report", node, memory: 16n * GiB, devices: 2 });
      }
      for (const { together, seconds } of history) {
        await Promise.allSettled(together.map((step) => play(pool, reports, step)));
        clock.advance(seconds * 1000);
        await pool.ledger.settled();
        const observed = pool.observe();
        const fresh = new Ledger<Conclusion, Scope>(store, await store.load(), clock, {
          conclude: () => ({ decision: undefined }),
          onDone: () => undefined,
        });
        const kept = await lookAt(pool.ledger, observed, pool.scheduler);
        expect(kept).toEqual(await lookAt(fresh, observed, new SchedulerView()));
        const { running, leftovers } = kept;
        expect(kept.ofNodes).toEqual({ running, leftovers });
        expect([pool.ledger.revision, pool.ledger.epoch, pool.ledger.lastEvent]).toEqual([
          fresh.revision,
          fresh.epoch,
          fresh.lastEvent,
        ]);
        bound = Math.max(bound, kept.running.length);
        ended = Math.max(ended, kept.ended.length);
        expect(pool.ledger.removedNodes).toEqual(fresh.removedNodes);
        removed += 2 - pool.ledger.nodes.size;
      }
      await pool.close();
      await store.close();
    }),
    { numRuns: 60 },
  );
  // The histories cover every kind of event.
  expect(bound).toBeGreaterThan(2);
  expect(ended).toBeGreaterThan(2);
  expect(removed).toBeGreaterThan(10);
});

/** This test restores no state. */
function noTicket(): never {
  throw new Error("nobody needs to know what a ticket said");
}
