// SPDX-License-Identifier: Apache-2.0

import fc from "fast-check";
import { describe, expect, test } from "vitest";
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
  return fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 200 }), async (steps) => {
      let running: (RunningSession & { phase: WorkerPhase })[] = [];
      const places = new SessionPlaces(() => running, 0);
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
          if (hasRoom) opening.set(session, { epoch, place: await take() });
          else await expect(take()).rejects.toThrow("[MILLPOND_E_TOO_MANY_SESSIONS]");
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

test("the refusal says how many there are and how many there may be", async () => {
  const places = new SessionPlaces(() => [], 0);
  const two = [...devices, ...devices];
  for (let n = 0; n < 2 * limit; n += 1) {
    await places.take({ session: `s-${n}`, claim: "claim-a", epoch: 1, devices: two });
  }
  await expect(places.take({ session: "s", claim: "claim-a", epoch: 1, devices: two })).rejects.toThrow(
    /the claim claim-a has 32 sessions; with 2 vGPUs it may have 32\. .*\[MILLPOND_E_TOO_MANY_SESSIONS\]$/,
  );
});

describe("when all places of an allocation are taken", () => {
  /** An allocation whose sessions all serve a client. */
  function fullAllocation(patienceMs?: number) {
    const running = Array.from({ length: limit }, (_, n): RunningSession & { phase: WorkerPhase } => ({
      phase: "connected",
      session: { session: `s-${n}`, epoch: 1 },
    }));
    const places = new SessionPlaces(() => running, patienceMs);
    const took: string[] = [];
    const take = async (
      session: string,
      { epoch = 1, signal }: { epoch?: number; signal?: AbortSignal } = {},
    ) => {
      const place = await places.take({ session, claim: "claim-a", epoch, devices }, signal);
      took.push(session);
      return place;
    };
    const end = (n: number): void => {
      const session = running[n];
      if (session !== undefined) session.phase = "closing";
      places.changed();
    };
    return { took, take, end };
  }

  test("programs wait for the end of others, and get their places in order of arrival", async () => {
    const { took, take, end } = fullAllocation();
    const first = take("first");
    const second = take("second");
    end(0);
    // The place is taken again before the one that waits has run: a newcomer does not overtake.
    const third = take("third");
    await first;
    expect(took).toEqual(["first"]);
    end(1);
    await second;
    end(2);
    await third;
    expect(took).toEqual(["first", "second", "third"]);
  });

  test("a session that fails to open leaves its place to the next", async () => {
    const { took, take, end } = fullAllocation();
    const first = take("first");
    const second = take("second");
    end(0);
    (await first)[Symbol.dispose]();
    await second;
    expect(took).toEqual(["first", "second"]);
  });

  test("other allocations do not wait", async () => {
    const { take } = fullAllocation();
    const controller = new AbortController();
    const waits = take("waits", { signal: controller.signal });
    await take("other", { epoch: 2 });
    controller.abort(new Error("the caller has gone"));
    await expect(waits).rejects.toThrow("the caller has gone");
  });

  test("a caller that has gone gets no place", async () => {
    const { took, take, end } = fullAllocation();
    const gone = new AbortController();
    const first = take("first", { signal: gone.signal });
    const second = take("second");
    gone.abort(new Error("the caller has gone"));
    await expect(first).rejects.toThrow("the caller has gone");
    end(0);
    await second;
    expect(took).toEqual(["second"]);
  });

  test("no more programs wait than may have sessions", async () => {
    const { take, end } = fullAllocation();
    const waiting = Array.from({ length: limit }, (_, n) => take(`waits-${n}`));
    await expect(take("too-many")).rejects.toThrow("[MILLPOND_E_TOO_MANY_SESSIONS]");
    for (let n = 0; n < limit; n += 1) end(n);
    await Promise.all(waiting);
  });

  test("the wait ends with the refusal", async () => {
    const { take, end } = fullAllocation(1);
    await expect(take("late")).rejects.toThrow("[MILLPOND_E_TOO_MANY_SESSIONS]");
    end(0);
    await take("in time");
  });
});
