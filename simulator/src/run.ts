// SPDX-License-Identifier: Apache-2.0

// One run of the benchmark "openb-130": claims arrive one after the other, none leaves, and claims that fit nowhere are
// dropped.

import { performance } from "node:perf_hooks";
import {
  chooseRandomly,
  FragmentMeasure,
  gpusFor,
  type LargestNode,
  Placer,
  Random,
  type FreeCapacity,
  freeCapacityOf,
  type ScoredPolicy,
  type Scorer,
  type Shape,
  scoredPolicies,
  scorerFor,
  take,
  wholeMilli,
  type Workload,
  workloadOf,
} from "@millpond/scheduler";
import { arrivalsOf } from "./arrivals.ts";
import { capacityOf, type Trace, type TraceNode } from "./trace.ts";

/** Every policy that can be simulated. */
export const policies = [...scoredPolicies, "random"] as const;
export type Policy = ScoredPolicy | "random";

/** Arrivals end when this many GPUs have been requested, in percent of the pool. */
export const lastLoad = 130;

export interface RunOptions {
  readonly policy: Policy;
  readonly seed: number;
  /** Schedules CPU and GPUs separately: the CPU of a claim may be on any node, its GPUs on any node with GPUs. */
  readonly isPooled: boolean;
}

/** Results of a run by load: index 0 to 130, requested GPUs so far in percent of the pool. */
export interface RunResult {
  /** Allocated GPUs in percent of all; NaN where no claim arrived at that load. */
  readonly allocation: Float64Array;
  /** Idle GPU capacity that is a fragment, in percent of the idle capacity. */
  readonly fragmentation: Float64Array;
  readonly decisions: number;
  readonly seconds: number;
}

export function run(trace: Trace, options: RunOptions): RunResult {
  const { nodes, shapes } = arrivalsOf(trace, options.seed, lastLoad);
  const capacity = capacityOf(trace);
  const workload = workloadOf(trace.pods.map((shape) => ({ shape, weight: 1 })));
  // Separate random numbers, so that every policy sees the same arrivals, whatever it draws itself.
  const chance = new Random(~options.seed);
  const pool = options.isPooled
    ? new PooledPool(nodes, trace.cpuNodes, options.policy, workload, chance)
    : new LocalPool(nodes, options.policy, workload, chance);

  const measure = new FragmentMeasure(workload.target);
  const fragments = Float64Array.from(pool.gpuRooms, (room) => measure.of(room));
  let fragmentMilli = fragments.reduce((sum, each) => sum + each, 0);
  const sums = { allocation: new Float64Array(lastLoad + 1), fragmentation: new Float64Array(lastLoad + 1) };
  const counts = new Float64Array(lastLoad + 1);
  let arrivedMilli = 0;
  let allocatedMilli = 0;
  let milliseconds = 0;
  let decisions = 0;
  for (const shape of shapes) {
    const askedMilli = shape.gpus * shape.gpuMilli;
    arrivedMilli += askedMilli;
    const load = Math.round((100 * arrivedMilli) / wholeMilli / capacity);
    if (load > lastLoad) {
      break;
    }
    const started = performance.now();
    const where = pool.place(shape);
    milliseconds += performance.now() - started;
    decisions++;
    if (where >= 0) {
      allocatedMilli += askedMilli;
      const after = measure.of(pool.gpuRooms[where] as FreeCapacity);
      fragmentMilli += after - (fragments[where] as number);
      fragments[where] = after;
    } else if (where === placed) {
      allocatedMilli += askedMilli;
    }
    const idleMilli = capacity * wholeMilli - allocatedMilli;
    (counts[load] as number) += 1;
    (sums.allocation[load] as number) += (100 * allocatedMilli) / wholeMilli / capacity;
    (sums.fragmentation[load] as number) += idleMilli === 0 ? 0 : (100 * fragmentMilli) / idleMilli;
  }
  return {
    allocation: sums.allocation.map((sum, load) => sum / (counts[load] as number)),
    fragmentation: sums.fragmentation.map((sum, load) => sum / (counts[load] as number)),
    decisions,
    seconds: milliseconds / 1000,
  };
}

/** The result of `place` for a claim without GPUs; a lower value: refused. */
const placed = -1;
const refused = -2;

interface Pool {
  /** Rooms with GPUs. */
  readonly gpuRooms: readonly FreeCapacity[];
  /** The room with GPUs where it was placed; otherwise `placed` or `refused`. */
  place(shape: Shape): number;
}

/** Places shapes into rooms by a policy. */
interface Chooser {
  place(shape: Shape): number;
}

function chooserFor(
  rooms: readonly FreeCapacity[],
  policy: Policy,
  workload: Workload,
  largest: LargestNode,
  random: Random,
): Chooser {
  if (policy !== "random") {
    const placer = new Placer(rooms, scorerFor(policy, workload, largest));
    return { place: (shape) => placer.place(shape)?.room ?? refused };
  }
  return {
    place: (shape) => {
      const choice = chooseRandomly(rooms, shape, (count) => random.below(count));
      const room = rooms[choice?.node ?? -1];
      if (choice === undefined || room === undefined) {
        return refused;
      }
      take(room, shape, gpusFor(room, shape, choice.gpu));
      return choice.node;
    },
  };
}

class LocalPool implements Pool {
  readonly gpuRooms: readonly FreeCapacity[];
  readonly #chooser: Chooser;

  constructor(nodes: readonly TraceNode[], policy: Policy, workload: Workload, random: Random) {
    this.gpuRooms = nodes.map((node) => emptyRoom(node, node.cpuMilli, node.memoryMiB));
    this.#chooser = chooserFor(this.gpuRooms, policy, workload, largestOf(nodes), random);
  }

  place(shape: Shape): number {
    return this.#chooser.place(shape);
  }
}

/** CPU and GPUs scheduled separately: CPU by best fit, GPUs by the policy. */
class PooledPool implements Pool {
  readonly gpuRooms: readonly FreeCapacity[];
  readonly #gpus: Chooser;
  readonly #cpus: Placer;
  readonly #parts = new Map<Shape, { readonly cpu: Shape; readonly gpu: Shape }>();

  constructor(
    nodes: readonly TraceNode[],
    cpuNodes: readonly TraceNode[],
    policy: Policy,
    workload: Workload,
    random: Random,
  ) {
    const unlimited = Number.POSITIVE_INFINITY;
    this.gpuRooms = nodes.map((node) => emptyRoom(node, unlimited, unlimited));
    const largest = { ...largestOf(nodes), cpuMilli: 0 };
    this.#gpus = chooserFor(this.gpuRooms, policy, workload, largest, random);
    const cpuRooms = [...nodes, ...cpuNodes].map((node) =>
      freeCapacityOf(node.cpuMilli, node.memoryMiB, -1, []),
    );
    this.#cpus = new Placer(cpuRooms, tightestCpu);
  }

  place(shape: Shape): number {
    let parts = this.#parts.get(shape);
    if (parts === undefined) {
      parts = {
        cpu: { ...shape, gpus: 0, gpuMilli: 0 },
        gpu: { ...shape, cpuMilli: 0, memoryMiB: 0 },
      };
      this.#parts.set(shape, parts);
    }
    const mark = this.#cpus.mark;
    if (this.#cpus.place(parts.cpu) === undefined) {
      return refused;
    }
    if (shape.gpus === 0) {
      return placed;
    }
    const room = this.#gpus.place(parts.gpu);
    if (room === refused) {
      this.#cpus.rollBack(mark);
    }
    return room;
  }
}

const tightestCpu: Scorer = {
  gpu: -1,
  valueOf: () => 0,
  score: (room) => -room.cpuMilli,
};

function emptyRoom(node: TraceNode, cpuMilli: number, memoryMiB: number): FreeCapacity {
  return freeCapacityOf(
    cpuMilli,
    memoryMiB,
    node.model,
    Array.from({ length: node.gpus }, () => wholeMilli),
  );
}

function largestOf(nodes: readonly TraceNode[]): LargestNode {
  const largest = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), 0);
  return {
    cpuMilli: largest(nodes.map(({ cpuMilli }) => cpuMilli)),
    gpus: Math.max(1, largest(nodes.map(({ gpus }) => gpus))),
  };
}
