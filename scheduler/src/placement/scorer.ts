// SPDX-License-Identifier: Apache-2.0

import type { Room, Shape } from "./room.ts";

/** How well a shape lies in a room; the larger the better. Scores of one scorer and one shape can be compared. */
export interface Scorer {
  /**
   * What a score needs to know of the room as it is, whatever the shape. Worked out once for each change of the room.
   */
  valueOf(room: Room): number;
  /**
   * @param room one that the shape fits
   * @param value what `valueOf` says of the room
   */
  score(room: Room, shape: Shape, value: number): number;
  /** The GPU that the last score was for, where the shape is a share of one GPU. */
  readonly gpu: number;
}

/** A scorer that can also judge a choice of GPUs that was made elsewhere, of different parts of each. */
export interface ChoiceScorer extends Scorer {
  /**
   * @param gpus distinct, with at least what is taken of them free
   * @param takenMilli of each of them, in the same order
   * @param value what `valueOf` says of the room
   */
  scoreChoice(room: Room, gpus: readonly number[], takenMilli: readonly number[], value: number): number;
}

/** The lowest of the GPUs with least free among those with enough; -1: none. */
export function tightestGpu(room: Room, gpuMilli: number): number {
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
