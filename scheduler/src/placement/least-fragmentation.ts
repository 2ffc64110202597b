// SPDX-License-Identifier: Apache-2.0

import { type LargestNode, leftOver } from "./classic-scorers.ts";
import { type SharePrices, sharePrices } from "./cutting-stock.ts";
import { FragmentMeasure } from "./fragmentation.ts";
import { gpusFor, type FreeCapacity, type Shape, wholeMilli } from "./free-capacity.ts";
import type { ChoiceScorer } from "./scorer.ts";
import type { Workload } from "./workload.ts";

// Weights of the terms, in GPUs of loss; scheduler/NOTES.md derives the terms and their weights. The exact values are not
// critical: halving or doubling any of them changes the results by less than their spread.
/** For a GPU for which no CPU is left. */
const strandedWeight = 2;
/** For the part of a GPU that shares leave unfilled. */
const unfilledWeight = 10;
/** For a room left wholly free, relative to the largest node. */
const leftOverWeight = 0.1;

/**
 * Minimizes the capacity that the workload can no longer use: the FGD fragmentation measure, GPUs without enough CPU, and
 * gaps on shared GPUs priced by the shares that could fill them (Gilmore–Gomory), each by how much the placement adds; ties
 * go to the tightest room. Differences of a hundredth of a GPU count, unlike in the published FGD policy.
 */
export class LeastFragmentationScorer implements ChoiceScorer {
  gpu = -1;
  readonly #measure: FragmentMeasure;
  readonly #prices: SharePrices;
  readonly #gpusPerCpuMilli: number;
  readonly #largest: LargestNode;

  constructor(workload: Workload, largest: LargestNode) {
    this.#measure = new FragmentMeasure(workload.target);
    this.#prices = sharePrices(workload.all);
    this.#gpusPerCpuMilli =
      workload.cpuMilliPerGpu === 0 ? Number.POSITIVE_INFINITY : 1 / workload.cpuMilliPerGpu;
    this.#largest = largest;
  }

  valueOf(room: FreeCapacity): number {
    return this.#measure.of(room) / wholeMilli + this.#stranded(room.idleMilli, room.cpuMilli);
  }

  score(room: FreeCapacity, shape: Shape, value: number): number {
    const { gpus, gpuMilli } = shape;
    const cpuMilli = room.cpuMilli - shape.cpuMilli;
    const stranded = this.#stranded(room.idleMilli - gpus * gpuMilli, cpuMilli);
    const fixed = value - stranded - leftOverWeight * leftOver(room, shape, this.#largest);
    if (gpus === 0 || gpuMilli === wholeMilli) {
      return fixed - this.#measure.ofWhole(room, cpuMilli, gpus) / wholeMilli;
    }
    if (gpus > 1) {
      const chosen = gpusFor(room, shape, -1);
      return (
        fixed -
        this.#lossOfShares(
          room,
          cpuMilli,
          chosen,
          chosen.map(() => gpuMilli),
        )
      );
    }
    const { freeMilli } = room;
    const { worth } = this.#prices;
    const price = this.#prices.priceOf(gpuMilli);
    let best = Number.NEGATIVE_INFINITY;
    for (let gpu = 0; gpu < freeMilli.length; gpu++) {
      const free = freeMilli[gpu] as number;
      if (free < gpuMilli || this.#isSeen(freeMilli, gpu)) {
        continue;
      }
      const unfilled = (worth[free] as number) - (worth[free - gpuMilli] as number) - price;
      const loss =
        this.#measure.ofShare(room, cpuMilli, gpu, gpuMilli) / wholeMilli + unfilledWeight * unfilled;
      if (-loss > best) {
        best = -loss;
        this.gpu = gpu;
      }
    }
    return fixed + best;
  }

  scoreChoice(
    room: FreeCapacity,
    gpus: readonly number[],
    takenMilli: readonly number[],
    value: number,
  ): number {
    const taken = takenMilli.reduce((sum, each) => sum + each, 0);
    const stranded = this.#stranded(room.idleMilli - taken, room.cpuMilli);
    const shape = { cpuMilli: 0, gpus: 1, gpuMilli: taken };
    const fixed = value - stranded - leftOverWeight * leftOver(room, shape, this.#largest);
    return fixed - this.#lossOfShares(room, room.cpuMilli, gpus, takenMilli);
  }

  /** Fragmentation after the placement, and the gaps that the placement adds. */
  #lossOfShares(
    room: FreeCapacity,
    cpuMilli: number,
    gpus: readonly number[],
    takenMilli: readonly number[],
  ): number {
    const { worth, priceOf } = this.#prices;
    let unfilled = 0;
    gpus.forEach((gpu, position) => {
      const free = room.freeMilli[gpu] as number;
      const taken = takenMilli[position] as number;
      if (taken < wholeMilli) {
        unfilled += (worth[free] as number) - (worth[free - taken] as number) - priceOf(taken);
      }
    });
    return this.#measure.ofShares(room, cpuMilli, gpus, takenMilli) / wholeMilli + unfilledWeight * unfilled;
  }

  #stranded(idleMilli: number, cpuMilli: number): number {
    if (this.#gpusPerCpuMilli === Number.POSITIVE_INFINITY) {
      return 0;
    }
    return strandedWeight * Math.max(0, idleMilli / wholeMilli - cpuMilli * this.#gpusPerCpuMilli);
  }

  #isSeen(freeMilli: Int32Array, gpu: number): boolean {
    for (let earlier = 0; earlier < gpu; earlier++) {
      if (freeMilli[earlier] === freeMilli[gpu]) {
        return true;
      }
    }
    return false;
  }
}
