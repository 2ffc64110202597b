// SPDX-License-Identifier: Apache-2.0

import { anyModel, type Shape } from "@millpond/scheduler";
import { expect, test } from "vitest";
import { arrivalsOf } from "./arrivals.ts";
import type { Trace } from "./trace.ts";

const pod = (gpus: number, gpuMilli: number): Shape => ({
  cpuMilli: 1000,
  memoryMiB: 1024,
  gpus,
  gpuMilli,
  models: anyModel,
});
const kinds = [pod(1, 300), pod(1, 1000), pod(4, 1000), pod(0, 0)];

/** 25 nodes of 4 GPUs, and `each` pods of each kind. */
function traceOf(each: number): Trace {
  return {
    name: "made up",
    models: ["G2"],
    nodes: Array.from({ length: 25 }, (_, node) => ({
      cpuMilli: 1000 + node,
      memoryMiB: 1,
      gpus: 4,
      model: 0,
    })),
    cpuNodes: [],
    pods: kinds.flatMap((kind) => Array.from({ length: each }, () => kind)),
  };
}

const askedOf = (shapes: readonly Shape[]): number =>
  shapes.reduce((sum, { gpus, gpuMilli }) => sum + gpus * gpuMilli, 0) / 1000;

const countsOf = (shapes: readonly Shape[]): number[] =>
  kinds.map((kind) => shapes.filter((shape) => shape === kind).length);

test("what is asked for is filled up with clones until the last load", () => {
  const trace = traceOf(5);
  const { shapes } = arrivalsOf(trace, 42, 130);
  expect(countsOf(shapes.slice(0, trace.pods.length))).toEqual(countsOf(trace.pods));
  expect(shapes.length).toBeGreaterThan(trace.pods.length);
  expect(askedOf(shapes)).toBeGreaterThan(126);
  expect(askedOf(shapes)).toBeLessThan(134);
});

test("of a trace that asks for more, pods of every kind are left out, in the order of the rest", () => {
  const trace = traceOf(100);
  const { shapes } = arrivalsOf(trace, 42, 130);
  expect(askedOf(shapes)).toBeLessThanOrEqual(130);
  expect(askedOf(shapes)).toBeGreaterThan(126);
  for (const count of countsOf(shapes)) {
    expect(count).toBeGreaterThan(10);
    expect(count).toBeLessThan(50);
  }
});

test("a trace that asks for ten thousand times the pool is thinned, too", () => {
  const { shapes } = arrivalsOf(traceOf(75_000), 42, 130);
  expect(askedOf(shapes)).toBeLessThanOrEqual(130);
  expect(askedOf(shapes)).toBeGreaterThan(126);
});

test("a seed decides the order of nodes and pods, and every node is there once", () => {
  const trace = traceOf(5);
  const first = arrivalsOf(trace, 7, 130);
  expect(arrivalsOf(trace, 7, 130)).toEqual(first);
  const other = arrivalsOf(trace, 8, 130);
  expect(other.shapes).not.toEqual(first.shapes);
  expect(other.nodes).not.toEqual(first.nodes);
  expect(new Set(first.nodes)).toEqual(new Set(trace.nodes));
});
