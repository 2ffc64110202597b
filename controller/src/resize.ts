// SPDX-License-Identifier: Apache-2.0

// How claims get other sizes. What shrinks while programs run on it is asked of them first and comes off the books when
// the node's agent has confirmed that none of them may use more; what grows is in the books before they are told. So
// whoever dies in between, the books never have less than the workers allow.

import { formatNeed, millpondError } from "@millpond/api";
import {
  type ClaimRequest,
  explainImpossible,
  placeAnew,
  refuseGrowth,
  shareOf,
  type Statement,
  type WaitingClaim,
} from "@millpond/scheduler";
import { bind } from "./binding.ts";
import type { Facts } from "./settle.ts";
import { areWithin, combineSizes, fitOf } from "./session-sizes.ts";
import { recordHeld } from "./endings.ts";
import { toStatement } from "./picture.ts";
import { toQueueSnapshot } from "./queue-snapshot.ts";
import { toWaiting } from "./standing.ts";
import type { AllocationRecord, ClaimRecord, ResizingRecord, VirtualGpuRecord } from "./store/store.ts";
import type { Transaction } from "./transaction.ts";

/** An agent that has not said within so long whether its sessions fit is not waited for. */
const resizeWithinSeconds = 10;

/** What is asked: 0 stays as it is. */
export interface AskedSizes {
  readonly gpus: number;
  readonly memoryBytes: bigint;
  readonly memoryPercent: number;
  readonly computePercent: number;
}

type Sizes = Pick<ClaimRecord, "gpus"> & ResizingRecord["asked"];

export interface ResizeOptions {
  /** Where it has to be placed anew and there is no room, it gives up what it has, and waits. */
  readonly wait: boolean;
  /** Leaves out of a reason what whoever asks may not know. */
  readonly hide: (reason: string) => string;
}

/**
 * Begins to resize a claim, and ends it where nobody has to be asked.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_IN_USE, MILLPOND_E_NO_CAPACITY, MILLPOND_E_NODE_NOT_READY,
 *   MILLPOND_E_DEVICE_UNHEALTHY
 */
export function beginResize(
  transaction: Transaction,
  facts: Facts,
  claim: ClaimRecord,
  asked: AskedSizes,
  options: ResizeOptions,
): void {
  refuseUnfit(claim, asked);
  if (claim.preemptAt !== null) {
    throw millpondError(
      "MILLPOND_E_IN_USE",
      `the claim ${claim.name} is to give back what it has: ${claim.reason}`,
      { remedy: claim.isNoticeFinal ? "It ends then: make another." : "Try again when it is bound again." },
    );
  }
  const sizes = sizesOf(claim, asked);
  const allocation = transaction.allocation(claim.name);
  if (allocation === undefined) {
    transaction.putClaim({ ...claim, ...sizes });
    transaction.addEvent("ClaimResized", `claim/${claim.name}`, describeSizes(sizes));
  } else if (facts.mayBeInUse(allocation) || claim.timeLimitSeconds > 0) {
    // A limited time would begin anew with another place, and it may be why the claim has its place.
    resizeInPlace(transaction, facts, { claim, allocation, sizes }, options);
  } else {
    resizeElsewhere(transaction, facts, { claim, allocation, sizes }, options);
  }
}

/** Ends a resize of which the outcome is known: all of it, or none of it. */
export function concludeResize(
  transaction: Transaction,
  facts: Facts,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): void {
  const { resizing, epoch, node, sizeRevision } = allocation;
  if (resizing === null) {
    return;
  }
  const isAsked = facts.mayHaveSessions(epoch);
  const isHeard = facts.isNodeReady(node) && facts.enforcesRelease(allocation, sizeRevision);
  const fit = isHeard ? fitOf(facts.sessions(allocation), allocation) : ({ kind: "unknown" } as const);
  if (!isAsked || fit.kind === "fits") {
    const { asked, to } = resizing;
    setSizes(transaction, facts, { claim, allocation, to });
    transaction.putClaim({ ...claim, ...asked });
    transaction.addEvent("ClaimResized", `claim/${claim.name}`, describeSizes({ ...claim, ...asked }));
  } else if (fit.kind === "refused" || transaction.now >= resizing.until) {
    const { revision } = transaction;
    transaction.putAllocation({
      ...allocation,
      devices: resizing.from,
      resizing: null,
      sizeRevision: revision,
    });
    transaction.putClaim(claim);
    const [kind, reason] =
      fit.kind === "refused"
        ? ([resizeEvents.refused, fit.reason] as const)
        : ([
            resizeEvents.unanswered,
            `the agent of node ${node} has not confirmed it within ${resizeWithinSeconds} s`,
          ] as const);
    transaction.addEvent(kind, `claim/${claim.name}`, reason);
  }
}

/** Kinds of the events that say why a resize was given up. */
export const resizeEvents = { refused: "ResizeRefused", unanswered: "ResizeUnanswered" } as const;

/** Whether the claim asks for that. */
export function hasSizes(claim: ClaimRecord, asked: AskedSizes): boolean {
  const sizes = sizesOf(claim, asked);
  return sizes.gpus === claim.gpus && isSame(sizes, claim);
}

/** @throws MILLPOND_E_IMPOSSIBLE */
export function refuseImpossible(transaction: Transaction, facts: Facts, request: ClaimRequest): void {
  const snapshot = facts.picture.snapshot(transaction, (node) => facts.isNodeReady(node));
  if (!snapshot.nodes.some(({ isReady }) => isReady)) {
    return;
  }
  const reason = explainImpossible(snapshot, request);
  if (reason !== undefined) {
    throw millpondError("MILLPOND_E_IMPOSSIBLE", reason);
  }
}

function refuseUnfit(
  claim: ClaimRecord,
  { gpus, memoryBytes, memoryPercent, computePercent }: AskedSizes,
): void {
  const isSized = memoryBytes > 0n || memoryPercent > 0 || computePercent > 0;
  if (gpus === 0 && !isSized) {
    throw millpondError("MILLPOND_E_INVALID", "neither a number of vGPUs nor memory nor compute is given");
  }
  if (claim.isExclusive && isSized) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the claim ${claim.name} is exclusive: its vGPUs are whole devices, only their number can change`,
    );
  }
  if (claim.serviceClass === "best-effort" && computePercent > 0) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the claim ${claim.name} is best-effort: it gets what others leave of the compute, and has no share`,
    );
  }
  if (claim.gang !== "" && gpus > 0 && gpus !== claim.gpus) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the claim ${claim.name} is placed with its gang ${claim.gang}, and keeps its ${claim.gpus} vGPUs`,
    );
  }
}

function sizesOf(claim: ClaimRecord, asked: AskedSizes): Sizes {
  const { memoryBytes, memoryPercent } = asked.memoryBytes > 0n || asked.memoryPercent > 0 ? asked : claim;
  return {
    gpus: asked.gpus || claim.gpus,
    memoryBytes,
    memoryPercent,
    computePercent: asked.computePercent || claim.computePercent,
  };
}

interface InPlace {
  readonly claim: ClaimRecord;
  readonly allocation: AllocationRecord;
  readonly sizes: Sizes;
}

function resizeInPlace(
  transaction: Transaction,
  facts: Facts,
  { claim, allocation, sizes }: InPlace,
  options: ResizeOptions,
): void {
  const { name } = claim;
  const { gpus, ...asked } = sizes;
  if (gpus !== claim.gpus) {
    throw keepsItsNumber(claim, facts.mayBeInUse(allocation) ? facts.sessions(allocation).length : undefined);
  }
  if (allocation.resizing !== null) {
    if (isSame(allocation.resizing.asked, asked)) {
      return;
    }
    throw millpondError("MILLPOND_E_IN_USE", `the claim ${name} is being resized`, {
      remedy: "Try again when that is done.",
    });
  }
  const { node } = allocation;
  if (!facts.isNodeReady(node)) {
    throw millpondError("MILLPOND_E_NODE_NOT_READY", `node ${node} of claim ${name} does not answer`);
  }
  const from = allocation.devices;
  const to = newSizes(transaction, facts, { claim, allocation, sizes }, options);
  if (areWithin(from, to)) {
    setSizes(transaction, facts, { claim, allocation, to });
    transaction.putClaim({ ...claim, ...asked });
    transaction.addEvent("ClaimResized", `claim/${name}`, describeSizes(sizes));
    return;
  }
  const resizing = { from, to, asked, until: transaction.now + resizeWithinSeconds };
  const { revision } = transaction;
  const devices = combineSizes(from, to, "greater");
  transaction.putAllocation({ ...allocation, devices, resizing, sizeRevision: revision });
  transaction.putClaim(claim);
}

/** @param open Number of open sessions; undefined: none is, and none may be opened. */
function keepsItsNumber({ name, gpus }: ClaimRecord, open: number | undefined) {
  const why =
    open === undefined
      ? "a time limit"
      : open === 0
        ? "a session that is being opened"
        : `${open} open session${open === 1 ? "" : "s"}`;
  const until = open === undefined ? "it ends" : "none is open";
  return millpondError(
    "MILLPOND_E_IN_USE",
    `the claim ${name} has ${why}, and keeps its number of vGPUs, ${gpus}, until ${until}`,
    { remedy: "End its programs first; memory and compute can change while they run." },
  );
}

/** Nobody has to be asked, so it may go elsewhere. */
function resizeElsewhere(
  transaction: Transaction,
  facts: Facts,
  { claim, allocation, sizes }: InPlace,
  { wait, hide }: ResizeOptions,
): void {
  const { name } = claim;
  const resized = { ...claim, ...sizes };
  const held = toStatement(allocation, transaction.node(allocation.node));
  const asking = asAskedNow(transaction, resized);
  const placed = placeAnew(toQueueSnapshot(transaction, facts), besideItsGang(asking, claim, held), held);
  if ("reason" in placed) {
    refuseImpossible(transaction, facts, asking.request);
    if (!wait) {
      throw millpondError("MILLPOND_E_NO_CAPACITY", `${hide(placed.reason)}; it keeps what it has`, {
        remedy: "Ask for less, or give up what it has and wait for room with --wait.",
      });
    }
  }
  recordHeld(transaction, facts, claim, allocation);
  transaction.removeAllocation(allocation);
  transaction.addEvent("ClaimResized", `claim/${name}`, describeSizes(sizes));
  if ("reason" in placed) {
    const { arrival, waitingSince } = asking;
    transaction.putClaim({ ...resized, state: "pending", reason: "", arrival, waitingSince });
  } else {
    transaction.putClaim(resized);
    bind(transaction, placed);
  }
}

/** A gang that is on one node stays there. */
function besideItsGang(asking: WaitingClaim, claim: ClaimRecord, { node }: Statement): WaitingClaim {
  const { request } = asking;
  return claim.gang !== "" && claim.isSameNode
    ? { ...asking, request: { ...request, constraints: { ...request.constraints, onlyNodes: [node] } } }
    : asking;
}

/** What more it asks for it asks for now, behind those that wait already, and as long as it may go on. */
function asAskedNow(transaction: Transaction, claim: ClaimRecord): WaitingClaim {
  const { boundAt, timeLimitSeconds } = claim;
  const { now, revision: arrival } = transaction;
  const end = (boundAt ?? now) + timeLimitSeconds;
  const asking = toWaiting(claim);
  return {
    ...asking,
    gang: "",
    gangSize: 0,
    arrival,
    waitingSince: now,
    timeLimitSeconds: timeLimitSeconds === 0 ? 0 : Math.max(1, end - now),
  };
}

function isSame(a: ResizingRecord["asked"], b: ResizingRecord["asked"]): boolean {
  return (
    a.memoryBytes === b.memoryBytes &&
    a.memoryPercent === b.memoryPercent &&
    a.computePercent === b.computePercent
  );
}

/** Books sizes that everybody may have from now on. */
function setSizes(
  transaction: Transaction,
  facts: Facts,
  {
    claim,
    allocation,
    to,
  }: Pick<InPlace, "claim" | "allocation"> & { readonly to: readonly VirtualGpuRecord[] },
): void {
  recordHeld(transaction, facts, claim, allocation);
  transaction.putAllocation({
    ...allocation,
    devices: to,
    resizing: null,
    grantedAt: transaction.now,
    activeSeconds: 0,
    countedMs: facts.countedMs(allocation.epoch),
    sizeRevision: transaction.revision,
  });
}

/** @throws when one of its devices, its queue or its tenant has not so much left for it. */
function newSizes(
  transaction: Transaction,
  facts: Facts,
  { claim, allocation, sizes }: InPlace,
  { hide }: ResizeOptions,
): VirtualGpuRecord[] {
  const held = toStatement(allocation, transaction.node(allocation.node));
  const snapshot = toQueueSnapshot(transaction, facts);
  const state = snapshot.pool.nodes.find(({ name }) => name === allocation.node);
  const asking = asAskedNow(transaction, { ...claim, ...sizes });
  const to = held.devices.map((own) => {
    const device = state?.devices.find(({ uuid }) => uuid === own.uuid);
    if (device === undefined) {
      throw millpondError(
        "MILLPOND_E_DEVICE_UNHEALTHY",
        `node ${allocation.node} has no device ${own.uuid} any more`,
      );
    }
    return { ...own, ...shareOf(asking.request, device) };
  });
  if (!areWithin(to, allocation.devices)) {
    const refusal = refuseGrowth(snapshot, { claim: asking, held, to });
    if (refusal !== undefined) {
      const remedy = "Ask for less, or end its programs and let it be placed anew.";
      const { obstacle, reason } = refusal;
      throw millpondError("MILLPOND_E_NO_CAPACITY", hide(reason), obstacle === "quota" ? {} : { remedy });
    }
  }
  return to.map(({ uuid, memoryBytes, computePercent }) => ({ uuid, memoryBytes, computePercent }));
}

/** Sizes in words, for people. */
export function describeSizes({ gpus, memoryBytes, memoryPercent, computePercent }: Sizes): string {
  const memory =
    memoryBytes > 0n
      ? formatNeed(memoryBytes)
      : memoryPercent > 0
        ? `${memoryPercent} % of the memory`
        : "whole devices";
  const compute = computePercent > 0 ? `, ${computePercent} % of the compute` : "";
  return `${gpus} vGPU${gpus === 1 ? "" : "s"}, ${memory}${compute}`;
}
