// SPDX-License-Identifier: Apache-2.0

// Published and common policies, for comparison.

import { FragmentMeasure } from "./fragmentation.ts";
import { fitsCapacity, gpusFor, type FreeCapacity, type Shape, wholeMilli } from "./free-capacity.ts";
import { type ChoiceScorer, type Scorer, tightestGpu } from "./scorer.ts";
import type { Workload } from "./workload.ts";

/** The largest node of a pool, the unit in which free CPU and GPUs are compared. */
export interface LargestNode {
  /** 0: CPU is not counted. */
  readonly cpuMilli: number;
  /** At least 1. */
  readonly gpus: number;
}

/** Free CPU and GPUs relative to the largest node, averaged: 0 (nothing) to 1. */
export function leftOver(
  room: FreeCapacity,
  shape: Pick<Shape, "cpuMilli" | "gpus" | "gpuMilli">,
  { cpuMilli, gpus }: LargestNode,
): number {
  const cpu =
    cpuMilli === 0 || room.cpuMilli === Number.POSITIVE_INFINITY
      ? 0
      : (room.cpuMilli - shape.cpuMilli) / cpuMilli;
  return cpu * 0.5 + ((room.idleMilli - shape.gpus * shape.gpuMilli) / (gpus * wholeMilli)) * 0.5;
}

abstract class StatelessScorer implements Scorer {
  gpu = -1;

  valueOf(): number {
    return 0;
  }

  abstract score(room: FreeCapacity, shape: Shape): number;
}

/** Best fit: prefers the room with the least CPU and GPU left over, in steps of a hundredth. */
export class BestFitScorer extends StatelessScorer {
  readonly #largest: LargestNode;

  constructor(largest: LargestNode) {
    super();
    this.#largest = largest;
  }

  score(room: FreeCapacity, shape: Shape): number {
    this.gpu = tightestGpu(room, shape.gpuMilli);
    return Math.trunc((1 - leftOver(room, shape, this.#largest)) * 100);
  }
}

/** Like best fit, but with fine steps and GPUs before CPU: fills a node before it uses another. */
export class BinpackScorer extends StatelessScorer implements ChoiceScorer {
  readonly #largest: LargestNode;

  constructor(largest: LargestNode) {
    super();
    this.#largest = largest;
  }

  score(room: FreeCapacity, shape: Shape): number {
    this.gpu = tightestGpu(room, shape.gpuMilli);
    return -room.idleMilli - leftOver(room, shape, this.#largest);
  }

  scoreChoice(room: FreeCapacity): number {
    return -room.idleMilli;
  }
}

/**
 * Prefers the room with the most free GPU: claims disturb each other least, and the loss of a node affects the fewest of
 * them.
 */
export class SpreadScorer extends StatelessScorer implements ChoiceScorer {
  score(room: FreeCapacity, shape: Shape): number {
    const { freeMilli } = room;
    if (shape.gpus === 0) {
      return room.cpuMilli;
    }
    let loosest = -1;
    for (let gpu = 0; gpu < freeMilli.length; gpu++) {
      if (loosest < 0 || (freeMilli[gpu] as number) > (freeMilli[loosest] as number)) {
        loosest = gpu;
      }
    }
    this.gpu = loosest;
    return room.idleMilli / freeMilli.length;
  }

  scoreChoice(room: FreeCapacity): number {
    return room.idleMilli / room.freeMilli.length;
  }
}

/** Prefers GPUs in use, then free GPUs of nodes in use, then nodes that are wholly free. */
export class PackingScorer extends StatelessScorer {
  score(room: FreeCapacity, shape: Shape): number {
    if (shape.gpus === 0) {
      return 0;
    }
    const { freeMilli, wholeGpus } = room;
    this.gpu = tightestGpu(room, shape.gpuMilli);
    if (wholeGpus === freeMilli.length) {
      return Math.max(33 - wholeGpus, wholeGpus);
    }
    let wholes = 0;
    let percentInUse = 0;
    for (const gpu of gpusFor(room, shape, this.gpu)) {
      const free = freeMilli[gpu] as number;
      wholes += free === wholeMilli ? 1 : 0;
      percentInUse += Math.trunc(free / 10);
    }
    return wholes > 0 ? Math.max(50 - wholes, 33) : Math.max(100 - Math.trunc(percentInUse / 10), 50);
  }
}

/**
 * Fragmentation gradient descent (FGD) as published at USENIX ATC '23: prefers the smallest growth of the fragmentation
 * measure, in a hundred steps.
 */
export class FgdScorer implements Scorer {
  gpu = -1;
  readonly #measure: FragmentMeasure;

  constructor(workload: Workload) {
    this.#measure = new FragmentMeasure(workload.target);
  }

  valueOf(room: FreeCapacity): number {
    return this.#measure.of(room);
  }

  score(room: FreeCapacity, shape: Shape, value: number): number {
    const cpuMilli = room.cpuMilli - shape.cpuMilli;
    if (shape.gpus === 0 || shape.gpuMilli === wholeMilli) {
      return steps(value - this.#measure.ofWhole(room, cpuMilli, shape.gpus));
    }
    if (shape.gpus > 1) {
      const gpus = gpusFor(room, shape, -1);
      const taken = gpus.map(() => shape.gpuMilli);
      return steps(value - this.#measure.ofShares(room, cpuMilli, gpus, taken));
    }
    let best = -1;
    for (let gpu = 0; gpu < room.freeMilli.length; gpu++) {
      if ((room.freeMilli[gpu] as number) >= shape.gpuMilli) {
        const score = steps(value - this.#measure.ofShare(room, cpuMilli, gpu, shape.gpuMilli));
        if (score > best) {
          best = score;
          this.gpu = gpu;
        }
      }
    }
    return best;
  }
}

function steps(gainMilli: number): number {
  return Math.trunc(100 / (1 + Math.exp(-gainMilli / wholeMilli)));
}

/** A uniformly random room among those that fit the shape, and random GPUs of it; undefined: it fits nowhere. */
export function chooseRandomly(
  rooms: readonly FreeCapacity[],
  shape: Shape,
  below: (count: number) => number,
): { readonly node: number; readonly gpu: number } | undefined {
  const fitting: number[] = [];
  rooms.forEach((room, node) => {
    if (fitsCapacity(room, shape)) {
      fitting.push(node);
    }
  });
  const node = fitting[fitting.length === 0 ? 0 : below(fitting.length)];
  const room = node === undefined ? undefined : rooms[node];
  if (node === undefined || room === undefined) {
    return undefined;
  }
  const gpus: number[] = [];
  room.freeMilli.forEach((free, gpu) => {
    if (free >= shape.gpuMilli) {
      gpus.push(gpu);
    }
  });
  return { node, gpu: shape.gpus === 0 ? -1 : (gpus[below(gpus.length)] ?? -1) };
}
