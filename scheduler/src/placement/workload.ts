// SPDX-License-Identifier: Apache-2.0

import { type Shape, wholeMilli } from "./free-capacity.ts";

export interface WeightedShape {
  readonly shape: Shape;
  /** Relative frequency, in a unit of the caller's choice. */
  readonly weight: number;
}

/** The expected mix of requests, by which scores weight free capacity. */
export interface Workload {
  /** Every shape, most frequent first; weights sum to 1. */
  readonly all: readonly WeightedShape[];
  /** The most frequent shapes that make up 95 % of the claims, regardless of host memory; weights sum to 1. */
  readonly target: readonly WeightedShape[];
  /** CPU per requested GPU, in thousandths of a core; claims without a GPU count. 0: no CPU is requested. */
  readonly cpuMilliPerGpu: number;
}

const targetShare = 0.95;

/** The workload in which each shape is as frequent as in `seen`. Equal shapes are counted together. */
export function workloadOf(seen: Iterable<WeightedShape>): Workload {
  const exact = new Map<string, WeightedShape>();
  const targets = new Map<string, WeightedShape>();
  let total = 0;
  let cpuMilli = 0;
  let gpuMilli = 0;
  for (const { shape, weight } of seen) {
    add(exact, shape, weight);
    add(targets, { ...shape, memoryMiB: 0 }, weight);
    total += weight;
    cpuMilli += weight * shape.cpuMilli;
    gpuMilli += weight * shape.gpus * shape.gpuMilli;
  }
  const commonest: WeightedShape[] = [];
  let covered = 0;
  for (const each of byWeight(targets)) {
    if (covered >= targetShare * total) {
      break;
    }
    commonest.push(each);
    covered += each.weight;
  }
  return {
    all: scaled(byWeight(exact), total),
    target: scaled(commonest, covered),
    cpuMilliPerGpu: gpuMilli === 0 ? 0 : (cpuMilli / gpuMilli) * wholeMilli,
  };
}

/** The fraction of the claims in which two workloads differ, 0 to 1. */
export function differenceOf(a: Workload, b: Workload): number {
  const weights = new Map(a.all.map(({ shape, weight }) => [shapeKey(shape), weight]));
  for (const { shape, weight } of b.all) {
    const key = shapeKey(shape);
    weights.set(key, (weights.get(key) ?? 0) - weight);
  }
  // Each surplus of one workload is a deficit of the other, so every difference is counted twice.
  return [...weights.values()].reduce((sum, weight) => sum + Math.abs(weight), 0) / 2;
}

export function shapeKey({ cpuMilli, memoryMiB, gpus, gpuMilli, models }: Shape): string {
  return `${cpuMilli} ${memoryMiB} ${gpus} ${gpuMilli} ${models}`;
}

function add(shapes: Map<string, WeightedShape>, shape: Shape, weight: number): void {
  const key = shapeKey(shape);
  shapes.set(key, { shape, weight: (shapes.get(key)?.weight ?? 0) + weight });
}

function byWeight(shapes: Map<string, WeightedShape>): WeightedShape[] {
  return [...shapes.values()].sort((a, b) => b.weight - a.weight || order(a.shape, b.shape));
}

function order(a: Shape, b: Shape): number {
  return (
    a.cpuMilli - b.cpuMilli ||
    a.gpus - b.gpus ||
    a.gpuMilli - b.gpuMilli ||
    a.models - b.models ||
    a.memoryMiB - b.memoryMiB
  );
}

function scaled(shapes: readonly WeightedShape[], total: number): WeightedShape[] {
  return shapes.map(({ shape, weight }) => ({ shape, weight: weight / total }));
}
