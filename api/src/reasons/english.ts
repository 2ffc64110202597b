// SPDX-License-Identifier: Apache-2.0

// The English text of reasons: one sentence each, with current numbers, without a full stop.

import { formatLabels } from "../labels.ts";
import { countOf, formatBytes, formatDuration, formatNeed } from "../units.ts";
import type { Excess, Kind, QuotaBounds, ReasonArgs, reasonArgs, ReasonCode } from "./args.ts";

/** Arguments of a sentence: claims, gangs and nested reasons are already rendered for the reader. */
type Shown<K> = K extends `${infer Base extends Kind}?`
  ? ShownKinds[Base] | undefined
  : K extends Kind
    ? ShownKinds[K]
    : never;

interface ShownKinds {
  text: string;
  unsafeText: string;
  texts: readonly string[];
  name: string;
  flag: boolean;
  count: number;
  percent: number;
  seconds: number;
  gpuMilli: number;
  bytes: bigint;
  labels: Readonly<Record<string, string>>;
  quota: QuotaBounds;
  excess: Excess;
  /** `claim a`, `gang g`, or `a claim of another tenant`. */
  holder: string;
  holders: readonly string[];
  reason: string;
}

export type ShownArgs<C extends ReasonCode> = {
  readonly [A in keyof (typeof reasonArgs)[C]]: Shown<(typeof reasonArgs)[C][A]>;
};

export type Sentences = { readonly [C in ReasonCode]: (args: ShownArgs<C>) => string };

export const sentences: Sentences = {
  "too-few-devices": ({ gpus, isRestricted, node, most, inPool }) =>
    `no node has ${countOf(gpus, "device")}${usable(isRestricted)}: the largest, ${node}, has ${most}${spanning(inPool, gpus)}`,
  "devices-too-small": ({ isRestricted, needBytes, device, deviceBytes }) =>
    `no device${usable(isRestricted)} has ${formatNeed(needBytes)}: the largest, ${device}, has ${formatBytes(deviceBytes)}`,
  "too-few-large-devices": ({ gpus, isRestricted, most, node, inPool, ...asked }) =>
    `no node has ${countOf(gpus, "device")}${usable(isRestricted)} of ${memoryOf(asked)}: the most is ${most} on ${node}${spanning(inPool, gpus)}`,
  "no-node-with-labels": ({ labels }) => `no node has the labels ${formatLabels(labels)}`,
  "no-node-of-host": () => "no node is on the machine of the program",
  "no-device-of-model": ({ models, ...there }) =>
    `no device has the model ${models.join(" or ")}; available: ${modelsOf(there)}`,
  "no-device-of-told-model": ({ models, ...there }) =>
    `no device has the model that its program has seen, ${models.join(" or ")}; available: ${modelsOf(there)}`,
  "no-device-of-capability": ({ capability }) => `no device has compute capability ${capability}`,
  "constraints-unmet": () => "no device meets all of its constraints together",

  "no-nodes": () => "no node has joined the pool yet",
  "none-open": ({ isRestricted, ...closed }) =>
    `no device ${isRestricted ? "that it may use" : "of the pool"} takes claims now: ${closedOf(closed).join(", ")}`,
  "affinity-excludes": ({ nodes }) =>
    `its affinity excludes ${countOf(nodes, "node")} that would otherwise do`,
  "room-short": ({ shortage, taken, devices, repellingNodes, forbiddenDevices, ...closed }) => {
    const left = [
      ...closedOf(closed),
      ...(repellingNodes > 0 ? [`${countOf(repellingNodes, "node")} that its affinity excludes`] : []),
      ...(forbiddenDevices > 0 ? [`${countOf(forbiddenDevices, "device")} that it may not use`] : []),
    ];
    const notCounted = left.length === 0 ? "" : `; not counted: ${left.join(", ")}`;
    return `${shortage}; ${taken} of ${countOf(devices, "device")} ${taken === 1 ? "is" : "are"} taken${notCounted}`;
  },
  "few-devices-free": ({ gpus, computePercent, most, node, inPool, ...asked }) => {
    const compute = computePercent === 0 ? "" : ` and ${computePercent} % of compute`;
    return `no node has ${countOf(gpus, "device")} with ${memoryOf(asked)}${compute} free: the most is ${most} on ${node}${spanning(inPool, gpus)}`;
  },
  "compute-taken": ({ computePercent, device, freePercent, ...asked }) =>
    `no device has ${memoryOf(asked)} and ${computePercent} % of its compute free: of the devices with enough memory ${device} has the most compute free, ${freePercent} %`,
  "share-taken": ({ memoryPercent, device, freePercent }) => {
    const most =
      device === undefined || freePercent === 0 ? "" : `: the most is ${freePercent} % on ${device}`;
    return `no device has ${memoryOf({ memoryBytes: undefined, memoryPercent })} free${most}`;
  },
  "memory-taken": ({ memoryBytes, device, freeBytes }) => {
    const most =
      device === undefined || freeBytes === undefined || freeBytes === 0n
        ? ""
        : `: largest free is ${formatBytes(freeBytes)} on ${device}`;
    return `no device has ${formatNeed(memoryBytes)} free${most}`;
  },
  "no-room": () => "there is no room",
  "gang-incomplete": ({ gang, present, size }) => `${gang} has ${present} of its ${countOf(size, "claim")}`,
  "gang-in-part": ({ unit, placed, members, reason }) =>
    `room for ${placed} of ${countOf(members, "claim")} of ${unit}; ${reason}`,
  "gang-needs-one-node": ({ unit }) => `no single node has room for all of ${unit}`,

  "kept-for": (kept) => `free capacity is reserved for ${keeperOf(kept)}`,
  "reserved-ahead": ({ reason }) => `${reason}; capacity that becomes free is reserved for it`,
  "being-given-back": ({ seconds }) => givenBack(seconds),
  "quota-being-given-back": ({ reason, seconds }) => `${reason}; ${givenBack(seconds)}`,
  preempting: ({ victims }) =>
    `${victims.join(", ")} ${victims.length === 1 ? "is" : "are"} preempted for it`,

  "queue-at-limit": ({ queue, excess }) =>
    `queue ${queue} is at its limit: this would bring it to ${formatExcess(excess)}`,
  "queue-does-not-borrow": ({ queue, excess }) =>
    `queue ${queue} does not borrow: this would bring it to ${formatExcess(excess)}`,
  "queue-borrows-preemptible": ({ queue, excess }) =>
    `queue ${queue} borrows for preemptible claims only: this would bring the others to ${formatExcess(excess)}`,
  "tenant-at-limit": ({ tenant, excess }) =>
    `tenant ${tenant} is at its limit: this would bring it to ${formatExcess(excess)}`,
  "user-at-limit": ({ user, tenant, excess }) =>
    `user ${user} of tenant ${tenant} is at its limit: this would bring it to ${formatExcess(excess)}`,
  "quota-kept-for": ({ scope, name, ...kept }) =>
    `the remaining quota of ${scope} ${name} is reserved for ${keeperOf(kept)}`,

  "device-memory-left": ({ asksBytes, moreBytes, device, leftBytes }) =>
    `${formatNeed(asksBytes)} is ${formatNeed(moreBytes)} more than the claim has on ${device}, where ${formatBytes(leftBytes)} is left`,
  "device-compute-left": ({ asksPercent, morePercent, device, leftPercent }) =>
    `${asksPercent}% compute is ${morePercent}% more than the claim has on ${device}, where ${leftPercent}% is left`,
  "rest-kept-for": ({ reason, ...kept }) => `${reason}; the rest is reserved for ${keeperOf(kept)}`,

  "preempted-for": ({ beneficiary, because }) => `preempted for ${beneficiary}: ${because}`,
  "is-best-effort": () => "it is best-effort",
  "lower-priority": ({ priority, than }) => `its priority ${priority} is lower than ${than}`,
  "borrowed-guarantee": ({ queue, owner }) =>
    `queue ${queue} has borrowed capacity guaranteed to queue ${owner}`,

  "not-called-yet": () => "none of its programs has called its devices yet",
  "program-gone": () => "no program waits for its devices any more",
  "devices-unused": () => "none of its programs uses its devices",
  "lease-expired-pending": ({ leaseSeconds }) =>
    `its lease of ${leaseSeconds} s was not renewed while it waited`,
  "lease-expired-dormant": ({ leaseSeconds }) =>
    `its lease of ${leaseSeconds} s was not renewed while it was dormant`,
  "lease-expired-unused": ({ leaseSeconds }) =>
    `its lease of ${leaseSeconds} s was not renewed, and it has no open session`,
  "session-ended": () => "its session has ended",
  "node-lost": ({ node, seconds }) =>
    `its node ${node} was lost: its agent has not reported for ${seconds} s`,
  "device-lost": ({ node, seconds }) =>
    `one of its devices on node ${node} was lost: unhealthy for ${seconds} s`,
  "granted-to-others": ({ device }) => `${device} was granted to others after the restored backup was made`,
  "node-removed": ({ node }) => `its node ${node} was removed from the pool`,
  "node-drained": ({ node, note }) => `node ${node} is drained${colon(note)}`,
  "time-limit-over": ({ limitSeconds }) => `it has reached its time limit of ${formatDuration(limitSeconds)}`,
  "time-limit-ends": ({ limitSeconds }) =>
    `it is about to reach its time limit of ${formatDuration(limitSeconds)}`,
  "idle-limit": ({ limitSeconds }) =>
    `its devices were idle for ${formatDuration(limitSeconds)}, its idle limit`,
  "released-by-owner": ({ note }) => `released by its owner${colon(note)}`,
  "released-by-administrator": ({ note }) => `released by an administrator${colon(note)}`,

  "not-planned-yet": () => "it has not been considered yet",
  "not-planned-since-start": () => "it has not been considered since the controller started",
  "leader-knows": () => "the leader knows the reason",
  recorded: ({ text }) => text,

  "claim-ended": ({ claim, reason }) => `the claim ${claim} has ended: ${reason}`,
  "claim-dormant": ({ claim, reason }) => `the claim ${claim} is dormant: ${reason}`,
  "claim-waits": ({ claim, reason }) => `the claim ${claim} waits: ${reason}`,
  "claim-gives-back": ({ claim, reason }) => `the claim ${claim} has been given notice: ${reason}`,
  "claim-keeps-size": ({ claim, reason }) => `the claim ${claim} keeps its size: ${reason}`,
  "keeps-what-it-has": ({ reason }) => `${reason}; it keeps its allocation`,
  "worker-refused": ({ text }) => text,
  "agent-unanswered": ({ node, seconds }) =>
    `the agent of node ${node} has not confirmed it within ${seconds} s`,
  "taken-back-meanwhile": () => "it was preempted before its programs had answered",

  sizes: ({ gpus, memoryBytes, memoryPercent, computePercent, owner }) => {
    const memory =
      memoryBytes !== undefined
        ? formatNeed(memoryBytes)
        : memoryPercent !== undefined
          ? `${memoryPercent} % of the memory`
          : "whole devices";
    const compute = computePercent > 0 ? `, ${computePercent} % of the compute` : "";
    return `${countOf(gpus, "vGPU")}, ${memory}${compute}${owner === undefined ? "" : `, for ${owner}`}`;
  },
  priority: ({ from, to }) => `priority ${to} instead of ${from}`,
  "program-calls": () => "one of its programs calls its devices",
  adopted: ({ devices }) =>
    `its programs run on ${devices.join(", ")}, which the restored state did not contain: it is bound there again`,
  "not-adopted": ({ session, text }) =>
    `its session ${session} is older than the restored state and ends: ${text}`,
  "bound-to": ({ devices }) => `bound to ${devices.join(", ")}`,
  notice: ({ isFinal, seconds, reason }) =>
    `${isFinal ? "it ends" : "it is preempted"} in ${formatDuration(seconds)}: ${reason}`,

  "node-silent": ({ seconds }) => `its agent has not reported for ${seconds} s`,
  "node-silent-since-start": () => "its agent has not reported since the controller started",
  "agent-stopped": () => "its agent was stopped",
  "node-joined": ({ devices, url }) => `joined with ${countOf(devices, "device")} at ${url}`,
  "node-ready": ({ url }) => `its agent is connected at ${url}`,
  "node-waits-for-sessions": ({ sessions }) =>
    `cannot join until its ${countOf(sessions, "session")}, unknown to this pool, ${sessions === 1 ? "has" : "have"} ended`,
  "removed-from-pool": () => "removed from the pool",
  labelled: ({ labels }) => formatLabels(labels) || "no labels",
  cordoned: ({ note }) => `takes no new claims${colon(note)}`,
  uncordoned: () => "takes new claims again",
  healthy: () => "is healthy again",
  unhealthy: ({ text }) => text,
  "queue-settings": ({ parent, weight, borrowing, guaranteed, limit }) =>
    `${parent === undefined ? "" : `part of ${parent}, `}weight ${weight}, borrowing ${borrowing}, guaranteed ${formatQuota(guaranteed)}, limit ${formatQuota(limit)}`,
  "tenant-settings": ({ limit, userLimit, ownLimits = 0 }) => {
    const ofUsers = userLimit === undefined ? "" : `, limit for each user ${formatQuota(userLimit)}`;
    const own = ownLimits === 0 ? "" : `, with separate limits for ${countOf(ownLimits, "user")}`;
    return `limit ${formatQuota(limit)}${ofUsers}${own}`;
  },
  deleted: () => "deleted",
  "signing-key-rotated": ({ id }) => `tickets are signed with the new key ${id}`,
  "controller-leads": ({ url, term }) => `the controller at ${url} is the leader, term ${term}`,

  "in-use": ({ gpuMilli, guaranteedGpuMilli, limitGpuMilli }) =>
    [
      `${countOf(formatGpus(gpuMilli), "GPU")} in use`,
      ...(guaranteedGpuMilli === undefined ? [] : [`${formatGpus(guaranteedGpuMilli)} guaranteed`]),
      ...(limitGpuMilli === undefined ? [] : [`${formatGpus(limitGpuMilli)} at most`]),
    ].join(", "),
  "not-parked": ({ program, why }) => `${program} is not parked, because ${why}`,
  "node-silent-claim-keeps": ({ seconds }) =>
    `its agent has not reported for ${seconds} s; the claim waits for it`,
  "node-silent-claim-requeues": ({ seconds, afterSeconds }) =>
    `its agent has not reported for ${seconds} s; after ${afterSeconds} s the claim goes back to its queue`,
  "node-silent-claim-fails": ({ seconds, afterSeconds }) =>
    `its agent has not reported for ${seconds} s; after ${afterSeconds} s the claim ends`,
};

function usable(isRestricted: boolean): string {
  return isRestricted ? " that it may use" : "";
}

/** A note for a pool that has enough devices, but spread over several nodes. */
function spanning(inPool: number, gpus: number): string {
  return inPool >= gpus ? ` (${inPool} in the whole pool, but one claim cannot span nodes yet)` : "";
}

function memoryOf({
  memoryBytes,
  memoryPercent,
}: Pick<ReasonArgs<"compute-taken">, "memoryBytes" | "memoryPercent">): string {
  if (memoryBytes !== undefined) {
    return formatNeed(memoryBytes);
  }
  return memoryPercent === undefined ? "all of its memory" : `${memoryPercent} % of its memory`;
}

function modelsOf({
  available,
  hasMore,
}: {
  readonly available: readonly string[];
  readonly hasMore: boolean;
}): string {
  return available.length === 0 ? "none" : `${available.join(", ")}${hasMore ? ", …" : ""}`;
}

function closedOf({
  lostNodes,
  cordonedNodes,
  cordonedDevices,
  unhealthyDevices,
}: Omit<ReasonArgs<"none-open">, "isRestricted">): string[] {
  return [
    ...(lostNodes > 0 ? [`${countOf(lostNodes, "node")} not ready`] : []),
    ...(cordonedNodes > 0 ? [`${countOf(cordonedNodes, "node")} cordoned`] : []),
    ...(cordonedDevices > 0 ? [`${countOf(cordonedDevices, "device")} cordoned`] : []),
    ...(unhealthyDevices > 0 ? [`${countOf(unhealthyDevices, "device")} unhealthy`] : []),
  ];
}

function keeperOf({
  keeper,
  waitedSeconds,
}: {
  readonly keeper: string;
  readonly waitedSeconds: number;
}): string {
  return `${keeper}, which has waited ${formatDuration(waitedSeconds)}`;
}

function givenBack(seconds: number): string {
  return seconds === 0
    ? "the capacity it needs is being released"
    : `the capacity it needs is released within ${formatDuration(seconds)}`;
}

function colon(note: string | undefined): string {
  return note === undefined || note === "" ? "" : `: ${note}`;
}

/** Formats thousandths of GPUs: `1.5`. */
export function formatGpus(gpuMilli: number): string {
  return String(Number((gpuMilli / 1000).toFixed(3)));
}

/** `2 of 1 GPUs`: an amount and the bound that it would exceed. */
export function formatExcess({ resource, amount, limit }: Excess): string {
  switch (resource) {
    case "gpuMilli":
      return `${formatGpus(amount)} of ${countOf(formatGpus(limit), "GPU")}`;
    case "computePercent":
      return `${amount}% of ${limit}% compute`;
    case "memoryBytes":
      return `${formatNeed(BigInt(amount))} of ${formatBytes(BigInt(limit))} of memory`;
  }
}

/** The bounds that are set, or `none`. */
export function formatQuota({ gpuMilli, computePercent, memoryBytes }: QuotaBounds): string {
  const parts = [
    ...(gpuMilli === undefined ? [] : [countOf(formatGpus(gpuMilli), "GPU")]),
    ...(computePercent === undefined ? [] : [`${computePercent}% compute`]),
    ...(memoryBytes === undefined ? [] : [`${formatBytes(memoryBytes)} of memory`]),
  ];
  return parts.length === 0 ? "none" : parts.join(" and ");
}
