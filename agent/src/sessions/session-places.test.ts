// SPDX-License-Identifier: Apache-2.0

import fc from "fast-check";
import { expect, test } from "vitest";
import { type RunningSession, SessionPlaces } from "./session-places.ts";
import type { WorkerPhase } from "../workers/worker.ts";

const devices = [{ uuid: "GPU-1", memoryBytes: 2 ** 20, computePercent: 1 }];
const limit = 16;

/** An event in the life of sessions of two allocations: opened, served, asked to end, gone. */
const step = fc.record({
  what: fc.constantFrom("open", "open", "open", "serve", "fail", "close", "exit"),
  epoch: fc.constantFrom(1, 2),
  which: fc.nat(),
});

test("whatever begins and ends, an allocation has no more sessions than it may, and a place that is free is given", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      let running: (RunningSession & { phase: WorkerPhase })[] = [];
      const places = new SessionPlaces(() => running);
      const opening = new Map<string, { readonly epoch: number; readonly place: Disposable }>();
      let last = 0;
      const countOf = (epoch: number, mayBeEnding: boolean) =>
        [...opening.values()].filter((each) => each.epoch === epoch).length +
        running.filter(
          ({ phase, session }) => session.epoch === epoch && (mayBeEnding || phase !== "closing"),
        ).length;
      for (const { what, epoch, which } of steps) {
        const [id, begun] = [...opening][which % Math.max(opening.size, 1)] ?? ["", undefined];
        const worker = running[which % Math.max(running.length, 1)];
        if (what === "open") {
          last += 1;
          const session = `s-${last}`;
          const hasRoom = countOf(epoch, false) < limit && countOf(epoch, true) < 2 * limit;
          const take = () => places.take({ session, claim: "claim-a", epoch, devices });
          if (hasRoom) opening.set(session, { epoch, place: take() });
          else expect(take).toThrow("[MILLPOND_E_TOO_MANY_SESSIONS]");
        } else if (begun !== undefined && (what === "serve" || what === "fail")) {
          // A session runs before its reservation is released, so it is counted exactly once at any time.
          if (what === "serve")
            running.push({ phase: "assigned", session: { session: id, epoch: begun.epoch } });
          begun.place[Symbol.dispose]();
          opening.delete(id);
        } else if (worker !== undefined && what === "close") {
          worker.phase = "closing";
        } else if (what === "exit") {
          running = running.filter((each) => each !== worker);
        }
        for (const of of [1, 2]) {
          expect(countOf(of, false)).toBeLessThanOrEqual(limit);
          expect(countOf(of, true)).toBeLessThanOrEqual(2 * limit);
        }
      }
    }),
  );
});

test("the refusal says how many there are and how many there may be", () => {
  const places = new SessionPlaces(() => []);
  const two = [...devices, ...devices];
  for (let n = 0; n < 2 * limit; n += 1) {
    places.take({ session: `s-${n}`, claim: "claim-a", epoch: 1, devices: two });
  }
  expect(() => places.take({ session: "s", claim: "claim-a", epoch: 1, devices: two })).toThrow(
    /the claim claim-a has 32 sessions; with 2 vGPUs it may have 32\. .*\[MILLPOND_E_TOO_MANY_SESSIONS\]$/,
  );
});
