// SPDX-License-Identifier: Apache-2.0

// Where a claim goes in a snapshot of a live pool: the filter says which devices will do, the scorers of the simulator
// say which are best. A device is thousandths here too: of its memory or of its compute, whichever is scarcer.

import type { PlacementPolicy } from "../constraints.ts";
import { type Candidate, candidatesOn, takesClaims } from "../filter.ts";
import type { ClaimRequest, Share } from "../request.ts";
import { type DeviceState, deviceComputePercent, freeOf, type NodeState } from "../snapshot.ts";
import { closest, spanOf } from "../topology.ts";
import { BinpackScorer, SpreadScorer } from "./classic-scorers.ts";
import { LeastFragmentationScorer } from "./least-fragmentation.ts";
import { type BestOffer, isBetter, Ranking } from "./ranking.ts";
import { type Room, roomOf, wholeMilli } from "./room.ts";
import type { ChoiceScorer } from "./scorer.ts";
import type { Workload } from "./workload.ts";

/** The best a node has to offer a claim. */
export interface Offer {
  readonly taken: readonly Candidate[];
  /**
   * How good it is, what counts most first, the smaller the better: bytes of the largest device taken, where the claim
   * asks for bytes (a small claim leaves the large devices alone); how far apart the devices are; minus the score.
   */
  readonly ranks: readonly [number, number, number];
}

/** What is remembered of a node. A node that changes is another object, so nothing here goes stale. */
interface Memory {
  readonly room: Room;
  /** By policy, workload and what is asked; null: nothing will do. */
  readonly offers: Map<string, Offer | null>;
}

/** Claims that differ from each other, of which the offers of one node, or of a pool, are remembered. */
const maxRemembered = 64;

/** Fewer nodes are looked through faster than they are ranked, and mostly they are a part of a pool that is. */
const fewestRanked = 32;

/** The usual large node, by which free GPUs are made comparable. */
const usualNode = { cpuMilli: 0, gpus: 8 } as const;

/** Scores that differ by less are equal: they differ by rounding. */
const precision = 1e9;

const memories = new WeakMap<NodeState, Memory>();

interface Scorers {
  readonly id: number;
  readonly byPolicy: Map<PlacementPolicy, ChoiceScorer>;
  /** By what is asked. */
  readonly rankings: Map<string, Ranking>;
}

const scorersByWorkload = new WeakMap<Workload, Scorers>();
let workloads = 0;

/** The best that one of the nodes offers; undefined when none has a place now. */
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

/** What the node offers; undefined when it has no place now. */
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
  room: Room,
  scorer: ChoiceScorer,
  policy: PlacementPolicy,
): Offer | undefined {
  const isByBytes = request.memoryBytes > 0n && policy !== "spread";
  const value = scorer.valueOf(room);
  // Devices of which as much is free score alike.
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
      // Rounding may say a thousandth more than is free; the filter has compared exactly.
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
  // Without what only the ranking needed: offers are kept.
  const candidates = taken.map(({ device, free, share }) => ({ device, free, share }));
  return { taken: candidates, ranks: [largest, spanOf(taken), rounded(-score)] };
}

function roomOfNode(node: NodeState): Room {
  const free = node.devices.map((device) => (takesClaims(device) ? freeMilliOf(device) : 0));
  return roomOf(Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, -1, free);
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
