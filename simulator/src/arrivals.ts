// SPDX-License-Identifier: Apache-2.0

import { type Shape, wholeMilli } from "@millpond/scheduler";
import { GoRandom } from "./go-random.ts";
import { capacityOf, type Trace, type TraceNode } from "./trace.ts";

/** Everything that a seed determines: the order of nodes, which breaks ties, and the order of arrivals. */
export interface Arrivals {
  readonly nodes: readonly TraceNode[];
  readonly shapes: readonly Shape[];
}

/**
 * The trace in random order, extended with clones of its pods or reduced by removing pods, so that it requests `lastLoad`
 * percent of the GPUs. For the seeds 42 to 51 and the traces of the benchmark these are, pod by pod and node by node, the
 * arrivals of the published runs (kubernetes-scheduler-simulator of HKUST and Alibaba, 2023): numbers are drawn in the same
 * order.
 *
 * @param seed see `GoRandom`
 */
export function arrivalsOf(trace: Trace, seed: number, lastLoad: number): Arrivals {
  const random = new GoRandom(seed);
  // The original draws one number for a log.
  random.next();
  const pods = [...trace.pods];
  random.shuffle(pods);
  const endMilli = (lastLoad / 100) * capacityOf(trace) * wholeMilli;
  const askedMilli = pods.reduce((sum, shape) => sum + gpuMilliOf(shape), 0);
  const shapes =
    askedMilli > endMilli
      ? thinned(pods, askedMilli - endMilli, random)
      : [...pods, ...clones(trace.pods, endMilli - askedMilli, random)];
  // The original draws ten numbers for the start of Kubernetes informers.
  for (let number = 0; number < 10; number++) {
    random.next();
  }
  const nodes: TraceNode[] = [];
  random.permutation(trace.nodes.length).forEach((position, index) => {
    nodes[position] = trace.nodes[index] as TraceNode;
  });
  return { nodes, shapes };
}

const gpuMilliOf = ({ gpus, gpuMilli }: Shape): number => gpus * gpuMilli;

function clones(pods: readonly Shape[], roomMilli: number, random: GoRandom): Shape[] {
  const drawn: Shape[] = [];
  let leftMilli = roomMilli;
  for (;;) {
    const clone = pods[random.below(pods.length)] as Shape;
    // The original counts only one GPU of a multi-GPU pod, so the last clone may exceed the limit by the other GPUs.
    if (clone.gpuMilli > leftMilli) {
      return drawn;
    }
    leftMilli -= gpuMilliOf(clone);
    drawn.push(clone);
  }
}

/** Removes randomly drawn pods until the remaining requests have decreased by the given amount. */
function thinned(pods: readonly Shape[], excessMilli: number, random: GoRandom): Shape[] {
  const remaining = new Remaining(pods.length);
  const isGone = new Set<number>();
  for (let leftMilli = excessMilli; leftMilli > 0; ) {
    const index = remaining.take(random.below(pods.length - isGone.size));
    isGone.add(index);
    leftMilli -= gpuMilliOf(pods[index] as Shape);
  }
  return pods.filter((_, index) => !isGone.has(index));
}

/** The remaining indices of a list; finds the n-th of them with a Fenwick tree. */
class Remaining {
  /** At i, counted from 1: how many of the (i & -i) indices up to it remain. */
  readonly #counts: Int32Array;

  constructor(length: number) {
    this.#counts = Int32Array.from({ length: length + 1 }, (_, index) => index & -index);
  }

  /** Removes the index that follows `before` others. */
  take(before: number): number {
    const end = this.#counts.length;
    let index = 0;
    let skipped = 0;
    for (let step = 2 ** Math.floor(Math.log2(end)); step >= 1; step /= 2) {
      const count = this.#counts[index + step];
      if (count !== undefined && skipped + count <= before) {
        skipped += count;
        index += step;
      }
    }
    for (let above = index + 1; above < end; above += above & -above) {
      (this.#counts[above] as number) -= 1;
    }
    return index;
  }
}
