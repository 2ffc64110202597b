// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type Decision, Placer, scan } from "./placer.ts";
import { scoredPolicies, scorerFor } from "./policies.ts";
import {
  anyModel,
  fitsCapacity,
  type FreeCapacity,
  freeCapacityOf,
  type Shape,
  wholeMilli,
} from "./free-capacity.ts";
import { workloadOf } from "./workload.ts";

const shapes = fc.record({
  cpuMilli: fc.constantFrom(0, 3000, 8000, 32_000),
  memoryMiB: fc.constantFrom(0, 4096, 65_536),
  kind: fc.constantFrom(
    [0, 0],
    [1, 160],
    [1, 320],
    [1, 470],
    [1, 810],
    [1, 1000],
    [2, 1000],
    [4, 1000],
    [2, 500],
  ),
  models: fc.constantFrom(anyModel, anyModel, 0b01, 0b10),
});

type Asked = typeof shapes extends fc.Arbitrary<infer T> ? T : never;

const nodes = fc.record({
  cpuMilli: fc.constantFrom(16_000, 64_000, 96_000, Number.POSITIVE_INFINITY),
  memoryMiB: fc.constantFrom(32_768, 262_144),
  model: fc.constantFrom(0, 1),
  gpus: fc.integer({ min: 1, max: 8 }),
});

interface Node {
  readonly cpuMilli: number;
  readonly memoryMiB: number;
  readonly model: number;
  readonly gpus: number;
}

const steps = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: shapes.map((asked) => ({ type: "place", asked }) as const) },
    { weight: 2, arbitrary: fc.nat().map((which) => ({ type: "release", which }) as const) },
    { weight: 1, arbitrary: fc.nat().map((which) => ({ type: "rollBack", which }) as const) },
  ),
  { minLength: 1, maxLength: 120 },
);

const largest = { cpuMilli: 96_000, gpus: 8 };

function toShape({ kind: [gpus = 0, gpuMilli = 0], models, cpuMilli, memoryMiB }: Asked): Shape {
  return { cpuMilli, memoryMiB, gpus, gpuMilli, models: gpus === 0 ? anyModel : models };
}

function toRooms(list: readonly Node[]): FreeCapacity[] {
  return list.map(({ cpuMilli, memoryMiB, model, gpus }) =>
    freeCapacityOf(
      cpuMilli,
      memoryMiB,
      model,
      Array.from({ length: gpus }, () => wholeMilli),
    ),
  );
}

test("the placer finds what a scan of all rooms finds, after any history", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...scoredPolicies),
      fc.array(nodes, { minLength: 1, maxLength: 12 }),
      fc.array(shapes, { minLength: 1, maxLength: 8 }),
      steps,
      fc.constantFrom(undefined, 2),
      (policy, list, known, history, mostShapes) => {
        const workload = workloadOf(
          known.map((asked, position) => ({ shape: toShape(asked), weight: position + 1 })),
        );
        const rooms = toRooms(list);
        const placer = new Placer(rooms, scorerFor(policy, workload, largest), mostShapes);
        const reference = scorerFor(policy, workload, largest);
        const held: Decision[] = [];
        for (const step of history) {
          if (step.type === "place") {
            const shape = toShape(step.asked);
            const expected = scan(rooms, reference, shape);
            const decision = placer.place(shape);
            expect(decision).toEqual(expected);
            if (decision !== undefined) {
              held.push(decision);
            }
          } else if (held.length > 0 && step.type === "release") {
            const [ended] = held.splice(step.which % held.length, 1);
            placer.release(ended as Decision);
          } else if (step.type === "rollBack") {
            const mark = step.which % (held.length + 1);
            placer.rollBack(mark);
            held.length = mark;
          }
        }
        expect(placer.since(0)).toEqual(held);
      },
    ),
    { numRuns: 500 },
  );
});

test("more changes than are kept do not matter", () => {
  const asked = { cpuMilli: 1000, memoryMiB: 0, gpus: 1, gpuMilli: 160, models: anyModel };
  const rare: Shape = { ...asked, gpuMilli: 470 };
  const rooms = toRooms(
    Array.from({ length: 4 }, () => ({ cpuMilli: 96_000, memoryMiB: 1, model: 0, gpus: 4 })),
  );
  const workload = workloadOf([{ shape: asked, weight: 1 }]);
  const placer = new Placer(rooms, scorerFor("least-fragmentation", workload, largest));
  const reference = scorerFor("least-fragmentation", workload, largest);
  placer.place(rare);
  for (let turn = 0; turn < 2000; turn++) {
    const decision = placer.place(asked);
    placer.release(decision as Decision);
  }
  placer.place(asked);
  expect(scan(rooms, reference, rare)).toEqual(placer.place(rare));
});

test("nothing is ever given twice, and rolling back is as if nothing had been", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...scoredPolicies),
      fc.array(nodes, { minLength: 1, maxLength: 6 }),
      fc.array(shapes, { maxLength: 60 }),
      (policy, list, asked) => {
        const rooms = toRooms(list);
        const untouched = structuredClone(rooms);
        const workload = workloadOf([
          { shape: { ...toShape(asked[0] ?? never), gpus: 1, gpuMilli: 470 }, weight: 1 },
        ]);
        const placer = new Placer(rooms, scorerFor(policy, workload, largest));
        for (const each of asked) {
          placer.place(toShape(each));
          for (const room of rooms) {
            expect(Math.min(0, room.cpuMilli, room.memoryMiB, ...room.freeMilli)).toBe(0);
            expect(room.idleMilli).toBe(room.freeMilli.reduce((sum, free) => sum + free, 0));
            expect(room.wholeGpus).toBe(room.freeMilli.filter((free) => free === wholeMilli).length);
          }
        }
        const replayed = toRooms(list);
        const other = new Placer(replayed, scorerFor(policy, workload, largest));
        for (const decision of placer.since(0)) {
          other.carryOut(decision);
        }
        expect(replayed).toEqual(rooms);
        placer.rollBack(0);
        expect(rooms).toEqual(untouched);
      },
    ),
  );
});

const never: Asked = { cpuMilli: 0, memoryMiB: 0, kind: [1, 470], models: anyModel };

test("a decision that does not fit is refused and changes nothing", () => {
  const rooms = toRooms([{ cpuMilli: 16_000, memoryMiB: 1024, model: 0, gpus: 2 }]);
  const placer = new Placer(rooms, scorerFor("binpack", workloadOf([]), largest));
  const shape: Shape = { cpuMilli: 0, memoryMiB: 0, gpus: 1, gpuMilli: 600, models: anyModel };
  placer.carryOut({ shape, room: 0, gpus: [1] });
  const before = structuredClone(rooms);
  for (const decision of [
    { shape, room: 0, gpus: [1] },
    { shape, room: 1, gpus: [0] },
    { shape, room: 0, gpus: [] },
    { shape, room: 0, gpus: [7] },
    { shape: { ...shape, gpus: 2, gpuMilli: 100 }, room: 0, gpus: [0, 0] },
    { shape: { ...shape, cpuMilli: 17_000 }, room: 0, gpus: [0] },
  ]) {
    expect(() => placer.carryOut(decision)).toThrow(RangeError);
  }
  expect(rooms).toEqual(before);
  expect(fitsCapacity(rooms[0] as FreeCapacity, shape)).toBe(true);
});
