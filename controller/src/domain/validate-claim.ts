// SPDX-License-Identifier: Apache-2.0

import {
  checkLabels,
  type Claim,
  maxMemoryBytes,
  millpondError,
  minMemoryBytes,
  parseName,
  parseNodeName,
  quote,
  serviceClassWords,
} from "@millpond/api";
import { type ClaimSpec, defaultGraceSeconds, defaultQueueName, defaultTenantName } from "./claim-spec.ts";

/** The longest display text that is stored, in characters. */
const maxTextLength = 256;

const maxGpus = 64;
const defaultLeaseSeconds = 15;
const minLeaseSeconds = 5;
const maxLeaseSeconds = 7 * 86_400;
export const maxPriority = 1000;
const maxModels = 16;
const maxGangSize = 256;
const maxLimitSeconds = 365 * 86_400;
const maxGraceSeconds = 3600;

// In the order of the API's numbers, the default first.
const placements = ["least-fragmentation", "binpack", "spread"] as const;
const localities = ["prefer-local", "local-only", "any"] as const;
const nodeLosses = ["keep", "requeue", "fail"] as const;

/**
 * Validates a claim.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkClaim(claim: Claim | undefined): ClaimSpec {
  if (claim === undefined) {
    throw millpondError("MILLPOND_E_INVALID", 'the request has no "claim"');
  }
  const { gpus, memoryBytes, memoryPercent, computePercent } = checkSizes(claim);
  const isPartial = memoryBytes !== 0n || memoryPercent !== 0 || computePercent !== 0;
  if (claim.exclusive && isPartial) {
    throw millpondError("MILLPOND_E_INVALID", "exclusive and a share of memory or compute are both given");
  }
  const stated = checkChoice("serviceClass", claim.serviceClass, serviceClassWords);
  // A request for memory alone sets no compute limit: the share that follows from the memory is a minimum.
  const isByMemory = computePercent === 0 && (memoryBytes !== 0n || memoryPercent !== 0);
  const serviceClass = stated === "guaranteed" && isByMemory ? "burstable" : stated;
  if (serviceClass === "best-effort" && computePercent !== 0) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `computePercent is ${computePercent}, but a best-effort claim gets what others leave of the compute, and has no share`,
    );
  }
  return {
    name: claim.name === "" ? "" : parseName(claim.name, "claim name"),
    gpus: gpus === 0 ? 1 : gpus,
    memoryBytes,
    memoryPercent,
    computePercent,
    owner: cleanText(claim.owner),
    leaseSeconds: checkRange(
      claim.leaseSeconds === 0 ? defaultLeaseSeconds : claim.leaseSeconds,
      "leaseSeconds",
      minLeaseSeconds,
      maxLeaseSeconds,
    ),
    isSessionBound: claim.sessionBound,
    ...checkLazy(claim),
    isExclusive: claim.exclusive,
    ...checkWhere(claim),
    ...checkGang(claim),
    tenant: claim.tenant === "" ? defaultTenantName : parseName(claim.tenant, "tenant"),
    queue: claim.queue === "" ? defaultQueueName : parseName(claim.queue, "queue"),
    priority: checkRange(claim.priority, "priority", -maxPriority, maxPriority),
    isPreemptible: claim.preemptible,
    timeLimitSeconds: checkRange(claim.timeLimitSeconds, "timeLimitSeconds", 0, maxLimitSeconds),
    idleLimitSeconds: checkRange(claim.idleLimitSeconds, "idleLimitSeconds", 0, maxLimitSeconds),
    serviceClass,
    nodeLoss: checkChoice("nodeLoss", claim.nodeLoss, nodeLosses),
    graceSeconds: checkRange(
      claim.graceSeconds === 0 ? defaultGraceSeconds : claim.graceSeconds,
      "graceSeconds",
      0,
      maxGraceSeconds,
    ),
    toldModels: [],
    toldHost: "",
    isNoticeFinal: false,
    user: "",
    program: "",
  };
}

/**
 * Validates the devices that a program reports to have seen.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkTold({
  toldModels,
  toldHost,
}: Pick<ClaimSpec, "toldModels" | "toldHost">): Pick<ClaimSpec, "toldModels" | "toldHost"> {
  if (
    toldModels.length > maxGpus ||
    [...toldModels, toldHost].some((text) => text.length > 256) ||
    toldModels.includes("")
  ) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `toldModels has more than ${maxGpus} names, or a name in it or toldHost has more than 256 characters`,
    );
  }
  return { toldModels: toldModels.map(cleanText), toldHost: cleanText(toldHost) };
}

/**
 * Validates sizes; 0 is a default.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkSizes({
  gpus,
  memoryBytes,
  memoryPercent,
  computePercent,
}: Pick<Claim, "gpus" | "memoryBytes" | "memoryPercent" | "computePercent">) {
  if (memoryBytes !== 0n && memoryPercent !== 0) {
    throw millpondError("MILLPOND_E_INVALID", "memoryBytes and memoryPercent are both given");
  }
  if (memoryBytes !== 0n && (memoryBytes < minMemoryBytes || memoryBytes > maxMemoryBytes)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `memoryBytes is ${memoryBytes}, not 0 (the whole device) or within ${minMemoryBytes} (1 MiB) and ${maxMemoryBytes} (1 PiB)`,
    );
  }
  return {
    gpus: gpus === 0 ? 0 : checkRange(gpus, "gpus", 1, maxGpus),
    memoryBytes,
    memoryPercent: memoryPercent === 0 ? 0 : checkRange(memoryPercent, "memoryPercent", 1, 100),
    computePercent: computePercent === 0 ? 0 : checkRange(computePercent, "computePercent", 1, 100),
  };
}

/** Validates the placement constraints. */
function checkWhere(claim: Claim) {
  if (claim.models.length > maxModels || claim.models.some((model) => model === "" || model.length > 64)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `models is not a list of up to ${maxModels} strings of 1 to 64 characters`,
    );
  }
  const capability = claim.minComputeCapability;
  if (capability !== "" && !/^\d{1,2}\.\d{1,2}$/.test(capability)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `minComputeCapability is ${quote(capability)}, not of the form 9.0`,
    );
  }
  if (
    claim.onlyDevices.length > maxGpus ||
    claim.onlyDevices.some((uuid) => uuid === "" || uuid.length > 64)
  ) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `onlyDevices is not a list of up to ${maxGpus} UUIDs of 1 to 64 characters`,
    );
  }
  const locality = checkChoice("locality", claim.locality, localities);
  const clientHost = cleanText(claim.clientHost);
  if (locality === "local-only" && clientHost === "") {
    throw millpondError("MILLPOND_E_INVALID", "the locality is local-only, but clientHost is empty");
  }
  return {
    models: claim.models.map(cleanText),
    minComputeCapability: capability,
    pool: claim.pool === "" ? "" : parseName(claim.pool, "pool"),
    placement: checkChoice("placement", claim.placement, placements),
    locality,
    clientHost,
    labels: checkLabels(claim.labels),
    nodeLabels: checkLabels(claim.nodeLabels),
    onlyDevices: claim.onlyDevices.map(cleanText),
    onlyNode: claim.onlyNode === "" ? "" : parseNodeName(claim.onlyNode),
    affinity: checkLabels(claim.affinity),
    antiAffinity: checkLabels(claim.antiAffinity),
  };
}

/** Default idle time after which sessions of a lazy claim are parked. */
const defaultLazyIdleSeconds = 300;

/** A claim that belongs to a process was created by its first call, so it is needed. */
function checkLazy({ lazy, lazyIdleSeconds, sessionBound, gang }: Claim) {
  if (lazy && gang !== "") {
    throw millpondError("MILLPOND_E_INVALID", "lazy and gang are both given: a gang is bound all at once");
  }
  if (lazyIdleSeconds !== 0 && !lazy) {
    throw millpondError("MILLPOND_E_INVALID", "lazyIdleSeconds is given without lazy");
  }
  const idle = checkRange(lazyIdleSeconds, "lazyIdleSeconds", 0, maxLimitSeconds);
  const isLazy = lazy && !sessionBound;
  return { isLazy, lazyIdleSeconds: isLazy ? idle || defaultLazyIdleSeconds : 0 };
}

function checkGang({ gang, gangSize, sameNode, rendezvous }: Claim) {
  if (gang === "" && (gangSize !== 0 || sameNode)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${gangSize === 0 ? "sameNode" : "gangSize"} is given without gang`,
    );
  }
  if (gang !== "" && gangSize === 0) {
    throw millpondError("MILLPOND_E_INVALID", "gang is given without gangSize, the number of its claims");
  }
  // It is put into the environment of other programs.
  if (rendezvous.length > maxTextLength || !/^(?:(?:[\w.-]+|\[[\da-f:.]+\]):\d{1,5})?$/i.test(rendezvous)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `rendezvous is ${quote(rendezvous)}, not of the form host:port`,
    );
  }
  return {
    gang: gang === "" ? "" : parseName(gang, "gang"),
    gangSize: gang === "" ? 0 : checkRange(gangSize, "gangSize", 2, maxGangSize),
    gangRank: 0,
    rendezvous: gang === "" ? "" : rendezvous,
    isSameNode: sameNode,
  };
}

/** @throws MILLPOND_E_INVALID for an unknown value */
function checkChoice<T extends string>(what: string, value: number, words: readonly T[]): T {
  const word = words[Math.max(0, value - 1)];
  if (word === undefined) {
    throw millpondError("MILLPOND_E_INVALID", `${what} is ${value}, which is not known`);
  }
  return word;
}

/**
 * Validates an integer.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkRange(value: number, what: string, least: number, most: number): number {
  if (value < least || value > most) {
    throw millpondError("MILLPOND_E_INVALID", `${what} is ${value}, not between ${least} and ${most}`);
  }
  return value;
}

/** Makes a display text harmless: one line, at most 256 characters. */
export function cleanText(text: string): string {
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
  return line.length > maxTextLength ? `${line.slice(0, maxTextLength - 1)}…` : line;
}
