// SPDX-License-Identifier: Apache-2.0

// Places a claim in a snapshot of a live pool: the filter selects the devices that fit, the scorers of the simulator rank
// them. Devices are counted in thousandths here too: of memory or of compute, whichever is scarcer.

import type { PlacementPolicy } from "../constraints.ts";
import { candidatesOn, takesClaims } from "../filter.ts";
import type { ClaimRequest, Share } from "../request.ts";
import { type DeviceState, deviceComputePercent, freeOf, type NodeState } from "../snapshot.ts";
import { closest, spanOf } from "../topology.ts";
import { BinpackScorer, SpreadScorer } from "./classic-scorers.ts";
import { LeastFragmentationScorer } from "./least-fragmentation.ts";
import { type BestOffer, isBetter, type Offer, Ranking } from "./ranking.ts";
import { type FreeCapacity, freeCapacityOf, wholeMilli } from "./free-capacity.ts";
import type { ChoiceScorer } from "./scorer.ts";
import type { Workload } from "./workload.ts";

/** Cached results for one node. A changed node is another object, so nothing here becomes stale. */
interface Memory {
  readonly room: FreeCapacity;
  /** By policy, workload and request; null: the node has no place. */
  readonly offers: Map<string, Offer | null>;
}

/** Upper bound on the distinct requests whose offers are cached for one node, or for a pool. */
const maxRemembered = 64;

/** Below this number of nodes a linear scan is faster than building a ranking. */
const fewestRanked = 32;

/** A typical large node, the unit in which free GPUs are compared. */
const usualNode = { cpuMilli: 0, gpus: 8 } as const;

/** Scores are rounded to 1/precision: smaller differences are rounding errors. */
const precision = 1e9;

const memories = new WeakMap<NodeState, Memory>();

interface Scorers {
  readonly id: number;
  readonly byPolicy: Map<PlacementPolicy, ChoiceScorer>;
  /** By request. */
  readonly rankings: Map<string, Ranking>;
}

const scorersByWorkload = new WeakMap<Workload, Scorers>();
let workloads = 0;

/** The best offer of all nodes; undefined when none has a place now. */
export function bestOffer(
  nodes: readonly NodeState[],
  request: ClaimRequest,
  workload: Workload,
): BestOffer | undefined {
  const asked = askedKey(request, workload);
  const look = (node: NodeState) => offerOf(node, request, workload, asked);
  if (nodes.length >= fewestRanked) {
    return rankingOf(asked, workload).best(nodes, look);
  }
  let best: BestOffer | undefined;
  for (const node of nodes) {
    const offer = look(node);
    if (offer !== undefined && (best === undefined || isBetter({ node, offer }, best))) {
      best = { node, offer };
    }
  }
  return best;
}

function rankingOf(asked: string, workload: Workload): Ranking {
  const { rankings } = scorersFor(workload);
  const ranking = rankings.get(asked) ?? new Ranking();
  if (rankings.size >= maxRemembered && !rankings.has(asked)) {
    rankings.clear();
  }
  rankings.set(asked, ranking);
  return ranking;
}

/** The offer of the node; undefined when it has no place now. */
function offerOf(
  node: NodeState,
  request: ClaimRequest,
  workload: Workload,
  /** `askedKey` of the request. */
  asked: string,
): Offer | undefined {
  let memory = memories.get(node);
  if (memory === undefined) {
    memory = { room: roomOfNode(node), offers: new Map() };
    memories.set(node, memory);
  }
  const known = memory.offers.get(asked);
  if (known !== undefined) {
    return known ?? undefined;
  }
  if (memory.offers.size >= maxRemembered) {
    memory.offers.clear();
  }
  const policy = request.policy ?? "least-fragmentation";
  const offer = makeOffer(node, request, memory.room, scorerOf(policy, workload), policy);
  memory.offers.set(asked, offer ?? null);
  return offer;
}

/** Requests with the same key get the same offers from the same nodes. */
function askedKey(request: ClaimRequest, workload: Workload): string {
  const { gpus, memoryBytes, memoryPercent, constraints, policy = "" } = request;
  const compute = request.isBestEffort === true ? "none" : request.computePercent;
  const where = constraints === undefined ? "" : JSON.stringify(constraints);
  return `${scorersFor(workload).id} ${gpus} ${memoryBytes} ${memoryPercent} ${compute} ${policy} ${where}`;
}

function makeOffer(
  node: NodeState,
  request: ClaimRequest,
  room: FreeCapacity,
  scorer: ChoiceScorer,
  policy: PlacementPolicy,
): Offer | undefined {
  const isByBytes = request.memoryBytes > 0n && policy !== "spread";
  const value = scorer.valueOf(room);
  // Devices with the same free amount have the same score.
  const scores = new Map<number, number>();
  const scoreOf = (gpu: number, free: number, milli: number) => {
    const key = free * (wholeMilli + 1) + milli;
    let score = scores.get(key);
    if (score === undefined) {
      score = rounded(scorer.scoreChoice(room, [gpu], [milli], value));
      scores.set(key, score);
    }
    return score;
  };
  const ranked = candidatesOn(node, request)
    .map((candidate) => {
      const { device, share } = candidate;
      const gpu = node.devices.indexOf(device);
      const free = room.freeMilli[gpu] ?? 0;
      // Rounding may give a thousandth more than is free; the filter has compared exactly.
      const milli = Math.min(free, milliOf(share, device));
      const score = request.gpus === 1 ? scoreOf(gpu, free, milli) : 0;
      const left = policy === "spread" ? milli - free : free - milli;
      return { ...candidate, topology: device.topology, gpu, milli, score, left };
    })
    .sort(
      (a, b) =>
        (isByBytes ? compare(a.device.memoryBytes, b.device.memoryBytes) : 0) ||
        b.score - a.score ||
        a.left - b.left ||
        a.device.index - b.device.index,
    );
  const taken = closest(ranked, request.gpus);
  if (taken === undefined) {
    return undefined;
  }
  const gpus = taken.map(({ gpu }) => gpu);
  const score = scorer.scoreChoice(
    room,
    gpus,
    taken.map(({ milli }) => milli),
    value,
  );
  const largest = isByBytes ? Math.max(...taken.map(({ device }) => Number(device.memoryBytes))) : 0;
  // Keeps only the result of the ranking, because offers are cached.
  const candidates = taken.map(({ device, free, share }) => ({ device, free, share }));
  return { taken: candidates, ranks: [largest, spanOf(taken), rounded(-score)] };
}

function roomOfNode(node: NodeState): FreeCapacity {
  const free = node.devices.map((device) => (takesClaims(device) ? freeMilliOf(device) : 0));
  return freeCapacityOf(Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, -1, free);
}

function freeMilliOf(device: DeviceState): number {
  const { memoryBytes, computePercent } = freeOf(device);
  const memory = Number((memoryBytes * BigInt(wholeMilli)) / device.memoryBytes);
  return Math.min(memory, (computePercent * wholeMilli) / deviceComputePercent);
}

function milliOf({ memoryBytes, computePercent }: Share, device: DeviceState): number {
  const memory = Number((memoryBytes * BigInt(wholeMilli) + device.memoryBytes - 1n) / device.memoryBytes);
  return Math.max(memory, (computePercent * wholeMilli) / deviceComputePercent);
}

function scorersFor(workload: Workload): Scorers {
  let scorers = scorersByWorkload.get(workload);
  if (scorers === undefined) {
    scorers = { id: workloads++, byPolicy: new Map(), rankings: new Map() };
    scorersByWorkload.set(workload, scorers);
  }
  return scorers;
}

function scorerOf(policy: PlacementPolicy, workload: Workload): ChoiceScorer {
  const { byPolicy } = scorersFor(workload);
  let scorer = byPolicy.get(policy);
  if (scorer === undefined) {
    scorer = makeScorer(policy, workload);
    byPolicy.set(policy, scorer);
  }
  return scorer;
}

function makeScorer(policy: PlacementPolicy, workload: Workload): ChoiceScorer {
  switch (policy) {
    case "least-fragmentation":
      return new LeastFragmentationScorer(workload, usualNode);
    case "binpack":
      return new BinpackScorer(usualNode);
    case "spread":
      return new SpreadScorer();
  }
}

function rounded(score: number): number {
  return Math.round(score * precision) / precision;
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
