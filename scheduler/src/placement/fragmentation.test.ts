// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { FragmentMeasure } from "./fragmentation.ts";
import { anyModel, matchesModel, type FreeCapacity, freeCapacityOf, wholeMilli } from "./free-capacity.ts";
import type { WeightedShape } from "./workload.ts";

const milli = fc.constantFrom(0, 30, 160, 190, 470, 530, 810, 999, 1000);

const targets = fc.array(
  fc.record({
    weight: fc.integer({ min: 1, max: 9 }),
    shape: fc.record({
      cpuMilli: fc.integer({ min: 0, max: 5 }).map((cores) => cores * 8000),
      memoryMiB: fc.constant(0),
      gpus: fc.integer({ min: 0, max: 4 }),
      gpuMilli: fc.constantFrom(160, 470, 500, 810, 1000),
      models: fc.constantFrom(anyModel, 0b01, 0b10),
    }),
  }),
  { maxLength: 6 },
);

/** The definition of the paper, implemented literally. */
function fragments(room: FreeCapacity, target: readonly WeightedShape[]): number {
  const idle = room.freeMilli.reduce((sum, free) => sum + free, 0);
  return target.reduce((sum, { shape, weight }) => {
    const enough = room.freeMilli.filter((free) => free >= shape.gpuMilli);
    const isOutOfReach =
      shape.gpus === 0 ||
      !matchesModel(shape.models, room.model) ||
      room.cpuMilli < shape.cpuMilli ||
      enough.length < shape.gpus;
    return sum + weight * (isOutOfReach ? idle : idle - enough.reduce((all, free) => all + free, 0));
  }, 0);
}

test("the measure is that of the definition, for the room as it is and after a placement", () => {
  fc.assert(
    fc.property(
      targets,
      fc.integer({ min: 0, max: 48_000 }),
      fc.constantFrom(0, 1),
      fc.array(milli, { minLength: 1, maxLength: 8 }),
      fc.integer({ min: 0, max: 8000 }),
      (target, cpuMilli, model, free, cpuTaken) => {
        const measure = new FragmentMeasure(target);
        const room = freeCapacityOf(cpuMilli, 0, model, free);
        expect(measure.of(room)).toBeCloseTo(fragments(room, target), 6);

        const cpuLeft = Math.max(0, cpuMilli - cpuTaken);
        free.forEach((each, gpu) => {
          const rest = Array.from(free, (same, other) => (other === gpu ? each - Math.min(each, 160) : same));
          const after = freeCapacityOf(cpuLeft, 0, model, rest);
          expect(measure.ofShare(room, cpuLeft, gpu, Math.min(each, 160))).toBeCloseTo(
            fragments(after, target),
            6,
          );
        });
        const taken = free.map((each, gpu) => (gpu % 2 === 0 ? Math.min(each, 160) : 0));
        const everySecond = freeCapacityOf(
          cpuLeft,
          0,
          model,
          Array.from(free, (each, gpu) => each - (taken[gpu] ?? 0)),
        );
        expect(measure.ofShares(room, cpuLeft, [...free.keys()], taken)).toBeCloseTo(
          fragments(everySecond, target),
          6,
        );
        for (let whole = 0; whole <= room.wholeGpus; whole++) {
          let left = whole;
          const rest = free.map((each) => (each === wholeMilli && left-- > 0 ? 0 : each));
          const after = freeCapacityOf(cpuLeft, 0, model, rest);
          expect(measure.ofWhole(room, cpuLeft, whole)).toBeCloseTo(fragments(after, target), 6);
        }
        expect(room).toEqual(freeCapacityOf(cpuMilli, 0, model, free));
      },
    ),
  );
});
