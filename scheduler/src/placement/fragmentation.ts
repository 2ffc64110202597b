// SPDX-License-Identifier: Apache-2.0

import { matchesModel, type FreeCapacity, wholeMilli } from "./free-capacity.ts";
import type { WeightedShape } from "./workload.ts";

/** Sums over the target workload, for rooms that have the same model and enough CPU for the same shapes. */
interface Sums {
  /** At index r: r times the weight of the one-GPU shapes that need more than r thousandths. */
  readonly stranded: Float64Array;
  /** Weight of the shapes for which every idle GPU is a fragment, regardless of free capacity. */
  readonly never: number;
  /** At index n: weight of the shapes of several whole GPUs that need more than n. */
  readonly tooFew: Float64Array;
  /** Weight of all shapes of several whole GPUs. */
  readonly several: number;
  /** Shapes that request parts of several GPUs. */
  readonly parts: readonly WeightedShape[];
}

/**
 * How much of a room's idle GPU capacity the target workload cannot use, in thousandths of a GPU: the measure of FGD
 * (*Beware of Fragmentation*, USENIX ATC '23), the expectation over the workload's shapes. For a shape without GPU, of
 * another model, with more CPU than is free or more GPUs than have room for it, all idle capacity counts; otherwise the
 * capacity on GPUs with too little for it.
 */
export class FragmentMeasure {
  readonly #target: readonly WeightedShape[];
  /** The distinct CPU demands of shapes with GPUs, ascending. */
  readonly #cpuLevels: readonly number[];
  readonly #sums = new Map<number, Sums>();

  constructor(target: readonly WeightedShape[]) {
    this.#target = target;
    const demands = target.filter(({ shape }) => shape.gpus > 0).map(({ shape }) => shape.cpuMilli);
    this.#cpuLevels = [...new Set(demands)].sort((a, b) => a - b);
  }

  /** The measure of the room as it is, in thousandths of a GPU. */
  of(room: FreeCapacity): number {
    const { freeMilli, idleMilli } = room;
    const sums = this.#sumsFor(room.model, room.cpuMilli);
    const { stranded } = sums;
    let alone = 0;
    for (let gpu = 0; gpu < freeMilli.length; gpu++) {
      alone += stranded[freeMilli[gpu] as number] as number;
    }
    return alone + this.#rest(sums, freeMilli, idleMilli, room.wholeGpus);
  }

  /**
   * The measure of the room with `takenMilli` less on GPU `gpu` and `cpuMilli` of CPU left; equals `of` on that room.
   * @param takenMilli at most the free amount of the GPU
   */
  ofShare(room: FreeCapacity, cpuMilli: number, gpu: number, takenMilli: number): number {
    const { freeMilli } = room;
    const sums = this.#sumsFor(room.model, cpuMilli);
    const { stranded } = sums;
    const before = freeMilli[gpu] as number;
    freeMilli[gpu] = before - takenMilli;
    let alone = 0;
    for (let each = 0; each < freeMilli.length; each++) {
      alone += stranded[freeMilli[each] as number] as number;
    }
    const whole = room.wholeGpus - (before === wholeMilli && takenMilli > 0 ? 1 : 0);
    const result = alone + this.#rest(sums, freeMilli, room.idleMilli - takenMilli, whole);
    freeMilli[gpu] = before;
    return result;
  }

  /**
   * The measure of the room with `takenMilli` less on each of `gpus` and `cpuMilli` of CPU left; equals `of` on that room.
   */
  ofShares(
    room: FreeCapacity,
    cpuMilli: number,
    gpus: readonly number[],
    takenMilli: readonly number[],
  ): number {
    const free = room.freeMilli.slice();
    let { wholeGpus, idleMilli } = room;
    gpus.forEach((gpu, position) => {
      const taken = takenMilli[position] as number;
      wholeGpus -= free[gpu] === wholeMilli && taken > 0 ? 1 : 0;
      (free[gpu] as number) -= taken;
      idleMilli -= taken;
    });
    const after = { ...room, freeMilli: free, idleMilli, wholeGpus };
    return this.ofShare(after, cpuMilli, 0, 0);
  }

  /** The measure of the room with `gpus` fewer wholly free GPUs and `cpuMilli` of CPU left; equals `of` on that room. */
  ofWhole(room: FreeCapacity, cpuMilli: number, gpus: number): number {
    const { freeMilli } = room;
    const sums = this.#sumsFor(room.model, cpuMilli);
    const { stranded } = sums;
    let alone = 0;
    let left = gpus;
    for (let each = 0; each < freeMilli.length; each++) {
      const free = freeMilli[each] as number;
      if (left > 0 && free === wholeMilli) {
        left--;
      } else {
        alone += stranded[free] as number;
      }
    }
    if (sums.parts.length > 0) {
      const after = freeMilli.slice();
      for (let each = 0, rest = gpus; each < after.length && rest > 0; each++) {
        if (after[each] === wholeMilli) {
          after[each] = 0;
          rest--;
        }
      }
      return alone + this.#rest(sums, after, room.idleMilli - gpus * wholeMilli, room.wholeGpus - gpus);
    }
    return alone + this.#rest(sums, freeMilli, room.idleMilli - gpus * wholeMilli, room.wholeGpus - gpus);
  }

  #rest(sums: Sums, freeMilli: Int32Array, idleMilli: number, wholeGpus: number): number {
    const tooFew = wholeGpus < sums.tooFew.length ? (sums.tooFew[wholeGpus] as number) : 0;
    let rest =
      idleMilli * (sums.never + tooFew) + (idleMilli - wholeMilli * wholeGpus) * (sums.several - tooFew);
    for (const { shape, weight } of sums.parts) {
      let count = 0;
      let less = 0;
      for (let gpu = 0; gpu < freeMilli.length; gpu++) {
        const free = freeMilli[gpu] as number;
        if (free >= shape.gpuMilli) {
          count++;
        } else {
          less += free;
        }
      }
      rest += weight * (count < shape.gpus ? idleMilli : less);
    }
    return rest;
  }

  #sumsFor(model: number, cpuMilli: number): Sums {
    const levels = this.#cpuLevels;
    let low = 0;
    let high = levels.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((levels[middle] as number) <= cpuMilli) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const key = (model + 1) * (levels.length + 1) + low;
    let sums = this.#sums.get(key);
    if (sums === undefined) {
      sums = sumsOf(this.#target, model, low === 0 ? -1 : (levels[low - 1] as number));
      this.#sums.set(key, sums);
    }
    return sums;
  }
}

function sumsOf(target: readonly WeightedShape[], model: number, cpuMilli: number): Sums {
  const tooSmall = new Float64Array(wholeMilli + 1);
  const wanted: WeightedShape[] = [];
  const parts: WeightedShape[] = [];
  let never = 0;
  let several = 0;
  for (const each of target) {
    const { shape, weight } = each;
    if (shape.gpus === 0 || shape.cpuMilli > cpuMilli || !matchesModel(shape.models, model)) {
      never += weight;
    } else if (shape.gpus === 1) {
      for (let free = 0; free < shape.gpuMilli; free++) {
        (tooSmall[free] as number) += weight;
      }
    } else if (shape.gpuMilli === wholeMilli) {
      wanted.push(each);
      several += weight;
    } else {
      parts.push(each);
    }
  }
  const most = wanted.reduce((max, { shape }) => Math.max(max, shape.gpus), 0);
  const tooFew = new Float64Array(most);
  for (const { shape, weight } of wanted) {
    for (let count = 0; count < shape.gpus; count++) {
      (tooFew[count] as number) += weight;
    }
  }
  return { stranded: tooSmall.map((weight, free) => weight * free), never, tooFew, several, parts };
}
