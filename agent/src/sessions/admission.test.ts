// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { formatTicketPublicKey, SyncResponseSchema, signTicket, ticketKeyId } from "@millpond/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Admission } from "./admission.ts";
import { RunDirectory } from "../run-directory/run-directory.ts";

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const start = 1_790_000_000;
const controller = "11111111-0000-4000-8000-000000000000";
const claims = ["claim-a", "claim-b"] as const;

/**
 * An event of a claim: the controller allocates it again or revokes its allocation, a ticket arrives, the agent
 * restarts, another controller becomes the leader, or the deposed leader, which has not noticed, answers.
 */
const step = fc.record({
  what: fc.constantFrom("allocate", "withdraw", "sync", "ticket", "replay", "restart", "lead", "deposed"),
  claim: fc.constantFrom(...claims),
});

test("whatever happens, no ticket of an allocation that the agent knows to be gone is accepted, and none twice", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const directory = mkdtempSync(join(tmpdir(), "millpond-admission-"));
      let run = RunDirectory.open(directory);
      try {
        let admission = new Admission({ node: "node-a", run });
        const allocated = new Map<string, number>();
        /** Epochs that the agent has received and that were replaced or withdrawn since; a restart must not lose them. */
        const gone = new Map<string, number>();
        let told = new Map<string, number>();
        const used: string[] = [];
        let epoch = 0;
        let now = start;
        let term = 1;
        let order = 0;
        const place = () => ({ term, order: (order += 1) });
        const sync = (): void => {
          admission.learn(
            create(SyncResponseSchema, {
              controller,
              ticketPublicKey: formatTicketPublicKey(publicKey),
              term: BigInt(term),
              order: BigInt(place().order),
              allocations: [...allocated].map(([claim, of]) => ({
                claim,
                node: "node-a",
                epoch: BigInt(of),
              })),
            }),
            now,
          );
          for (const [claim, before] of told) if (allocated.get(claim) !== before) gone.set(claim, before);
          told = new Map(allocated);
        };
        /**
         * Checks that messages of a deposed leader, which does not know that its term is over, are refused at any time.
         */
        const checkDeposed = (claim: string): void => {
          const before = { term: term - 1, order: 1_000_000 };
          const answer = create(SyncResponseSchema, {
            controller,
            ticketPublicKey: formatTicketPublicKey(publicKey),
            term: BigInt(before.term),
            order: BigInt(before.order),
          });
          expect(() => admission.learn(answer, now)).toThrow("[MILLPOND_E_NOT_LEADER]");
          const devices = [{ uuid: "GPU-1", memoryBytes: 2 ** 20, computePercent: 1 }];
          const members = { claim, node: "node-a", devices, ...before, issued: now, expires: now + 60 };
          const ticket = signTicket({ ...members, session: randomUUID(), epoch: epoch + 1 }, privateKey);
          expect(() => admission.admit(ticket, now)).toThrow("[MILLPOND_E_TICKET_STALE]");
        };
        sync();
        for (const { what, claim } of steps) {
          now += 1;
          if (what === "allocate") allocated.set(claim, (epoch += 1));
          else if (what === "withdraw") allocated.delete(claim);
          else if (what === "sync") sync();
          else if (what === "lead") {
            term += 1;
            order = 0;
            sync();
          } else if (what === "deposed") checkDeposed(claim);
          else if (what === "restart") {
            run[Symbol.dispose]();
            run = RunDirectory.open(directory);
            admission = new Admission({ node: "node-a", run });
            told = new Map();
            sync();
          } else if (what === "replay") {
            for (const ticket of used)
              expect(() => admission.admit(ticket, now)).toThrow(/MILLPOND_E_TICKET_/);
          } else {
            const current = allocated.get(claim);
            const old = gone.get(claim);
            const devices = [{ uuid: "GPU-1", memoryBytes: 2 ** 20, computePercent: 1 }];
            const members = { claim, node: "node-a", devices, ...place(), issued: now, expires: now + 60 };
            if (old !== undefined) {
              const stale = signTicket({ ...members, session: randomUUID(), epoch: old }, privateKey);
              expect(() => admission.admit(stale, now)).toThrow("[MILLPOND_E_TICKET_STALE]");
            }
            if (current !== undefined) {
              const good = signTicket({ ...members, session: randomUUID(), epoch: current }, privateKey);
              expect(admission.admit(good, now)).toMatchObject({ claim, epoch: current });
              used.push(good);
            }
          }
        }
      } finally {
        run[Symbol.dispose]();
        rmSync(directory, { recursive: true });
      }
    }),
    { numRuns: 60 },
  );
});

test("a ticket opens a session while its key is accepted, whatever answers come, and only at its own node's clock", () => {
  const keys = Array.from({ length: 4 }, () => generateKeyPairSync("ed25519"));
  const answer = fc.record({
    /** Until when each key is accepted; undefined: it is not listed. */
    until: fc.array(fc.option(fc.constantFrom(0, start + 10, start + 50), { nil: undefined }), {
      minLength: keys.length,
      maxLength: keys.length,
    }),
    later: fc.integer({ min: 0, max: 20 }),
  });
  fc.assert(
    fc.property(fc.array(answer, { minLength: 1, maxLength: 8 }), (answers) => {
      const directory = mkdtempSync(join(tmpdir(), "millpond-admission-"));
      const run = RunDirectory.open(directory);
      try {
        const admission = new Admission({ node: "node-a", run });
        let now = start;
        for (const { until, later } of answers) {
          const ticketKeys = keys.flatMap(({ publicKey: key }, index) => {
            const acceptedUntil = until[index];
            return acceptedUntil === undefined
              ? []
              : [
                  {
                    id: ticketKeyId(key),
                    publicKey: formatTicketPublicKey(key),
                    acceptedUntil: BigInt(acceptedUntil),
                  },
                ];
          });
          if (ticketKeys.length === 0) continue;
          const allocations = [{ claim: "claim-a", node: "node-a", epoch: 1n }];
          const said = create(SyncResponseSchema, {
            controller,
            ticketKeys,
            term: 1n,
            order: 1n,
            allocations,
          });
          admission.learn(said, now);
          expect(new Set(admission.ticketKeyIds)).toEqual(new Set(ticketKeys.map(({ id }) => id)));
          now += later;
          for (const [index, { privateKey: key }] of keys.entries()) {
            const devices = [{ uuid: "GPU-1", memoryBytes: 2 ** 20, computePercent: 1 }];
            const members = { claim: "claim-a", node: "node-a", epoch: 1, devices, term: 1, order: 1 };
            const ticket = signTicket(
              { ...members, session: randomUUID(), issued: now, expires: now + 60 },
              key,
            );
            const acceptedUntil = until[index];
            const isAccepted = acceptedUntil !== undefined && (acceptedUntil === 0 || now < acceptedUntil);
            if (isAccepted) expect(admission.admit(ticket, now)).toMatchObject({ kid: ticketKeyId(key) });
            else expect(() => admission.admit(ticket, now)).toThrow("[MILLPOND_E_TICKET_INVALID]");
          }
        }
      } finally {
        run[Symbol.dispose]();
        rmSync(directory, { recursive: true });
      }
    }),
    { numRuns: 60 },
  );
});

test("an answer whose key is not the one that it names is not taken over", () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-admission-"));
  const run = RunDirectory.open(directory);
  try {
    const admission = new Admission({ node: "node-a", run });
    const ticketKeys = [
      { id: "0".repeat(16), publicKey: formatTicketPublicKey(publicKey), acceptedUntil: 0n },
    ];
    const answer = create(SyncResponseSchema, { controller, ticketKeys, term: 1n, order: 1n });
    expect(() => admission.learn(answer, start)).toThrow("[MILLPOND_E_INVALID]");
    expect(admission.ticketKeyIds).toEqual([]);
  } finally {
    run[Symbol.dispose]();
    rmSync(directory, { recursive: true });
  }
});
