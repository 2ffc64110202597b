// SPDX-License-Identifier: Apache-2.0

import type { FreeCapacity, Shape } from "./free-capacity.ts";

/** How well a shape fits into a room; higher is better. Scores of one scorer and one shape are comparable. */
export interface Scorer {
  /** The part of a score that depends on the room alone, computed once for each change of the room. */
  valueOf(room: FreeCapacity): number;
  /**
   * @param room one that the shape fits
   * @param value the result of `valueOf` for the room
   */
  score(room: FreeCapacity, shape: Shape, value: number): number;
  /** The GPU of the latest score, if the shape is a share of one GPU. */
  readonly gpu: number;
}

/** A scorer that can also judge a given choice of GPUs, with different amounts taken of each. */
export interface ChoiceScorer extends Scorer {
  /**
   * @param gpus distinct, each with at least the taken amount free
   * @param takenMilli amount taken of each of them, in the same order
   * @param value the result of `valueOf` for the room
   */
  scoreChoice(
    room: FreeCapacity,
    gpus: readonly number[],
    takenMilli: readonly number[],
    value: number,
  ): number;
}

/** The GPU with the least free capacity among those with enough, lowest index first; -1: none. */
export function tightestGpu(room: FreeCapacity, gpuMilli: number): number {
  const { freeMilli } = room;
  let best = -1;
  for (let gpu = 0; gpu < freeMilli.length; gpu++) {
    const free = freeMilli[gpu] as number;
    if (free >= gpuMilli && (best < 0 || free < (freeMilli[best] as number))) {
      best = gpu;
    }
  }
  return best;
}
