// SPDX-License-Identifier: Apache-2.0

// Resizes claims. A reduction while programs run is sent to their sessions first, and is accounted for once the node's
// agent has confirmed that none of them may use more; growth is accounted for before they are notified. So the workers
// never allow more than is accounted for, whichever process fails in between.

import { countOf, millpondError, type Reason, reason, refusal } from "@millpond/api";
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
import {
  countedMs,
  enforcesRevision,
  isNodeReady,
  mayBeInUse,
  sessionsOf,
} from "../domain/observed-state.ts";
import type { ReconcileContext } from "./reconcile-context.ts";
import { areWithin, combineSizes, fitOf } from "../domain/session-sizes.ts";
import { recordHeld } from "./claim-lifecycle.ts";
import { toStatement } from "../domain/to-scheduler-holding.ts";
import type { AllocationRecord, ClaimRecord, ResizingRecord, VirtualGpuRecord } from "../domain/records.ts";
import { toWaiting } from "../domain/to-scheduler-claim.ts";
import type { Transaction } from "../state/transaction.ts";

/** Seconds after which the controller stops waiting for an agent to report whether its sessions fit. */
const resizeWithinSeconds = 10;

/** The requested sizes; 0: unchanged. */
export interface AskedSizes {
  readonly gpus: number;
  readonly memoryBytes: bigint;
  readonly memoryPercent: number;
  readonly computePercent: number;
}

type Sizes = Pick<ClaimRecord, "gpus"> & ResizingRecord["asked"];

export interface ResizeOptions {
  /** If the claim must be placed again and there is no room, release the allocation and wait. */
  readonly wait: boolean;
}

/**
 * Begins to resize a claim, and completes the resize if no session has to confirm it.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_IN_USE, MILLPOND_E_NO_CAPACITY, MILLPOND_E_NODE_NOT_READY,
 *   MILLPOND_E_DEVICE_UNHEALTHY
 */
export function beginResize(
  transaction: Transaction,
  context: ReconcileContext,
  claim: ClaimRecord,
  asked: AskedSizes,
  options: ResizeOptions,
): void {
  refuseUnfit(claim, asked);
  if (claim.preemptAt !== null) {
    const why = claim.reason ?? reason("not-planned-yet");
    throw refusal("MILLPOND_E_IN_USE", reason("claim-gives-back", { claim: claim.name, reason: why }), {
      remedy: claim.isNoticeFinal ? "It ends then: create another." : "Try again when it is bound again.",
    });
  }
  const sizes = sizesOf(claim, asked);
  const allocation = transaction.allocation(claim.name);
  if (allocation === undefined) {
    transaction.putClaim({ ...claim, ...sizes });
    transaction.addEvent("ClaimResized", `claim/${claim.name}`, sizesReason(sizes));
  } else if (mayBeInUse(context.observed, allocation) || claim.timeLimitSeconds > 0) {
    // Another place would restart the time limit, and the time limit may be why the claim has its present place.
    resizeInPlace(transaction, context, { claim, allocation, sizes });
  } else {
    resizeElsewhere(transaction, context, { claim, allocation, sizes }, options);
  }
}

/** Concludes a resize with a known outcome: applies it completely, or not at all. */
export function concludeResize(
  transaction: Transaction,
  context: ReconcileContext,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): void {
  const { observed } = context;
  const { resizing, epoch, node, sizeRevision } = allocation;
  if (resizing === null) {
    return;
  }
  const isAsked = observed.ticketed.has(epoch);
  const isHeard = enforcesRevision(observed, node, sizeRevision);
  const fit = isHeard ? fitOf(sessionsOf(observed, allocation), allocation) : ({ kind: "unknown" } as const);
  if (!isAsked || fit.kind === "fits") {
    const { asked, to } = resizing;
    setSizes(transaction, context, { claim, allocation, to });
    transaction.putClaim({ ...claim, ...asked });
    transaction.addEvent("ClaimResized", `claim/${claim.name}`, sizesReason({ ...claim, ...asked }));
  } else if (fit.kind === "refused" || transaction.now >= resizing.until) {
    const { revision } = transaction;
    transaction.putAllocation({
      ...allocation,
      devices: resizing.from,
      resizing: null,
      sizeRevision: revision,
    });
    transaction.putClaim(claim);
    const [kind, why] =
      fit.kind === "refused"
        ? ([resizeEvents.refused, fit.reason] as const)
        : ([
            resizeEvents.unanswered,
            reason("agent-unanswered", { node, seconds: resizeWithinSeconds }),
          ] as const);
    transaction.addEvent(kind, `claim/${claim.name}`, why);
  }
}

/** Kinds of the events that report why a resize was abandoned. */
export const resizeEvents = { refused: "ResizeRefused", unanswered: "ResizeUnanswered" } as const;

/** Whether the claim already requests these sizes. */
export function hasSizes(claim: ClaimRecord, asked: AskedSizes): boolean {
  const sizes = sizesOf(claim, asked);
  return sizes.gpus === claim.gpus && isSame(sizes, claim);
}

/** @throws MILLPOND_E_IMPOSSIBLE */
export function refuseImpossible(
  transaction: Transaction,
  context: ReconcileContext,
  request: ClaimRequest,
): void {
  const snapshot = context.scheduler.snapshot(transaction, context.observed);
  if (!snapshot.nodes.some(({ isReady }) => isReady)) {
    return;
  }
  const why = explainImpossible(snapshot, request);
  if (why !== undefined) {
    throw refusal("MILLPOND_E_IMPOSSIBLE", why);
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
      `the claim ${claim.name} is placed with its gang ${claim.gang}, and keeps its ${countOf(claim.gpus, "vGPU")}`,
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
  context: ReconcileContext,
  { claim, allocation, sizes }: InPlace,
): void {
  const { name } = claim;
  const { gpus, ...asked } = sizes;
  if (gpus !== claim.gpus) {
    throw keepsItsNumber(
      claim,
      mayBeInUse(context.observed, allocation) ? sessionsOf(context.observed, allocation).length : undefined,
    );
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
  if (!isNodeReady(context.observed, node)) {
    throw millpondError("MILLPOND_E_NODE_NOT_READY", `node ${node} of claim ${name} does not answer`);
  }
  const from = allocation.devices;
  const to = newSizes(transaction, context, { claim, allocation, sizes });
  if (areWithin(from, to)) {
    setSizes(transaction, context, { claim, allocation, to });
    transaction.putClaim({ ...claim, ...asked });
    transaction.addEvent("ClaimResized", `claim/${name}`, sizesReason(sizes));
    return;
  }
  const resizing = { from, to, asked, until: transaction.now + resizeWithinSeconds };
  const { revision } = transaction;
  const devices = combineSizes(from, to, "greater");
  transaction.putAllocation({ ...allocation, devices, resizing, sizeRevision: revision });
  transaction.putClaim(claim);
}

/** @param open number of open sessions; undefined: none is open, and none may be opened */
function keepsItsNumber({ name, gpus }: ClaimRecord, open: number | undefined) {
  const why =
    open === undefined
      ? "a time limit"
      : open === 0
        ? "a session that is being opened"
        : countOf(open, "open session");
  const until = open === undefined ? "it ends" : "none is open";
  return millpondError(
    "MILLPOND_E_IN_USE",
    `the claim ${name} has ${why}, and keeps its number of vGPUs, ${gpus}, until ${until}`,
    { remedy: "End its programs first; memory and compute can change while they run." },
  );
}

/** No session has to confirm the resize, so the claim may move. */
function resizeElsewhere(
  transaction: Transaction,
  context: ReconcileContext,
  { claim, allocation, sizes }: InPlace,
  { wait }: ResizeOptions,
): void {
  const { name } = claim;
  const resized = { ...claim, ...sizes };
  const held = toStatement(allocation, transaction.nodes.get(allocation.node));
  const asking = asAskedNow(transaction, resized);
  const placed = placeAnew(
    context.scheduler.queueSnapshot(transaction, context.observed),
    besideItsGang(asking, claim, held),
    held,
  );
  if ("reason" in placed) {
    refuseImpossible(transaction, context, asking.request);
    if (!wait) {
      throw refusal("MILLPOND_E_NO_CAPACITY", reason("keeps-what-it-has", { reason: placed.reason }), {
        remedy: "Request less, or release its allocation and wait with --wait.",
      });
    }
  }
  recordHeld(transaction, context.observed, claim, allocation);
  transaction.removeAllocation(allocation);
  transaction.addEvent("ClaimResized", `claim/${name}`, sizesReason(sizes));
  if ("reason" in placed) {
    const { arrival, waitingSince } = asking;
    transaction.putClaim({ ...resized, state: "pending", reason: undefined, arrival, waitingSince });
  } else {
    transaction.putClaim(resized);
    bind(transaction, placed);
  }
}

/** A gang that must be on one node stays there. */
function besideItsGang(asking: WaitingClaim, claim: ClaimRecord, { node }: Statement): WaitingClaim {
  const { request } = asking;
  return claim.gang !== "" && claim.isSameNode
    ? { ...asking, request: { ...request, constraints: { ...request.constraints, onlyNodes: [node] } } }
    : asking;
}

/** The increase counts as a new request for the remaining time, behind the claims that already wait. */
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

/** Accounts for sizes that apply immediately. */
function setSizes(
  transaction: Transaction,
  context: ReconcileContext,
  {
    claim,
    allocation,
    to,
  }: Pick<InPlace, "claim" | "allocation"> & { readonly to: readonly VirtualGpuRecord[] },
): void {
  recordHeld(transaction, context.observed, claim, allocation);
  transaction.putAllocation({
    ...allocation,
    devices: to,
    resizing: null,
    grantedAt: transaction.now,
    activeSeconds: 0,
    countedMs: countedMs(context.observed, allocation.epoch),
    sizeRevision: transaction.revision,
  });
}

/** @throws when one of its devices, its queue or its tenant lacks the capacity */
function newSizes(
  transaction: Transaction,
  context: ReconcileContext,
  { claim, allocation, sizes }: InPlace,
): VirtualGpuRecord[] {
  const held = toStatement(allocation, transaction.nodes.get(allocation.node));
  const snapshot = context.scheduler.queueSnapshot(transaction, context.observed);
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
    const refused = refuseGrowth(snapshot, { claim: asking, held, to });
    if (refused !== undefined) {
      const remedy = "Request less, or end its programs and let it be placed again.";
      throw refusal("MILLPOND_E_NO_CAPACITY", refused.reason, refused.obstacle === "quota" ? {} : { remedy });
    }
  }
  return to.map(({ uuid, memoryBytes, computePercent }) => ({ uuid, memoryBytes, computePercent }));
}

/** @param owner for display; empty: no owner is named */
export function sizesReason({ gpus, memoryBytes, memoryPercent, computePercent }: Sizes, owner = ""): Reason {
  return reason("sizes", {
    gpus,
    memoryBytes: memoryBytes > 0n ? memoryBytes : undefined,
    memoryPercent: memoryBytes === 0n && memoryPercent > 0 ? memoryPercent : undefined,
    computePercent,
    owner: owner === "" ? undefined : owner,
  });
}
