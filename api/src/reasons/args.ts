// SPDX-License-Identifier: Apache-2.0

// Reasons in structured form: the closed table of their codes with the kinds of their arguments. Their English text is in
// `english.ts`; `docs/reference/reasons.md` documents all of them.

type Labels = Readonly<Record<string, string>>;

/**
 * A claim or a gang that a reason names. Redaction depends on this kind of argument, so its name must never be put into a
 * text argument.
 */
export interface HolderRef {
  readonly kind: "claim" | "gang";
  /** Empty: hidden from the reader. */
  readonly name: string;
  /** Tenant of its claims. Empty: unknown, or hidden from the reader. */
  readonly tenant: string;
}

/** A bound that an amount exceeds. */
export interface Excess {
  readonly resource: "gpuMilli" | "computePercent" | "memoryBytes";
  readonly amount: number;
  readonly limit: number;
}

/** Bounds of an amount; an absent one is not set. */
export interface QuotaBounds {
  readonly gpuMilli?: number;
  readonly computePercent?: number;
  readonly memoryBytes?: bigint;
}

interface Kinds {
  /** A fixed word, or a text from outside that names neither claims nor gangs. */
  text: string;
  /** A text of an earlier release, which may contain any name. */
  unsafeText: string;
  texts: readonly string[];
  /** Name of a node, a device (`node/index`), a queue, a tenant, or of the claim that the reason is about. */
  name: string;
  flag: boolean;
  count: number;
  percent: number;
  seconds: number;
  /** Thousandths of a device. */
  gpuMilli: number;
  bytes: bigint;
  labels: Labels;
  quota: QuotaBounds;
  excess: Excess;
  holder: HolderRef;
  holders: readonly HolderRef[];
  reason: Reason;
}

export type Kind = keyof Kinds;

const memory = { memoryBytes: "bytes?", memoryPercent: "percent?" } as const;
const closed = {
  lostNodes: "count",
  cordonedNodes: "count",
  cordonedDevices: "count",
  unhealthyDevices: "count",
} as const;
const keeper = { keeper: "holder", waitedSeconds: "seconds" } as const;

/** The arguments and their kinds by code; `?` marks an argument that may be undefined. */
export const reasonArgs = {
  // Why no node could hold a claim even if it were empty.
  "too-few-devices": { gpus: "count", isRestricted: "flag", node: "name?", most: "count", inPool: "count" },
  "devices-too-small": { isRestricted: "flag", needBytes: "bytes", device: "name", deviceBytes: "bytes" },
  "too-few-large-devices": {
    gpus: "count",
    isRestricted: "flag",
    ...memory,
    most: "count",
    node: "name?",
    inPool: "count",
  },
  "no-node-with-labels": { labels: "labels" },
  "no-node-of-host": {},
  "no-device-of-model": { models: "texts", available: "texts", hasMore: "flag" },
  "no-device-of-told-model": { models: "texts", available: "texts", hasMore: "flag" },
  "no-device-of-capability": { capability: "text" },
  "constraints-unmet": {},

  // Why a claim waits for room.
  "no-nodes": {},
  "none-open": { isRestricted: "flag", ...closed },
  "affinity-excludes": { nodes: "count" },
  "room-short": {
    shortage: "reason",
    taken: "count",
    devices: "count",
    ...closed,
    repellingNodes: "count",
    forbiddenDevices: "count",
  },
  "few-devices-free": {
    gpus: "count",
    ...memory,
    computePercent: "percent",
    most: "count",
    node: "name?",
    inPool: "count",
  },
  "compute-taken": { ...memory, computePercent: "percent", device: "name", freePercent: "percent" },
  "share-taken": { memoryPercent: "percent?", device: "name?", freePercent: "percent?" },
  "memory-taken": { memoryBytes: "bytes", device: "name?", freeBytes: "bytes?" },
  "no-room": {},
  "gang-incomplete": { gang: "holder", present: "count", size: "count" },
  "gang-in-part": { unit: "holder", placed: "count", members: "count", reason: "reason" },
  "gang-needs-one-node": { unit: "holder" },

  // Why a claim waits for others.
  "kept-for": keeper,
  "reserved-ahead": { reason: "reason" },
  "being-given-back": { seconds: "seconds" },
  "quota-being-given-back": { reason: "reason", seconds: "seconds" },
  preempting: { victims: "holders" },

  // Quotas.
  "queue-at-limit": { queue: "name", excess: "excess" },
  "queue-does-not-borrow": { queue: "name", excess: "excess" },
  "queue-borrows-preemptible": { queue: "name", excess: "excess" },
  "tenant-at-limit": { tenant: "name", excess: "excess" },
  "user-at-limit": { user: "name", tenant: "name", excess: "excess" },
  "quota-kept-for": { scope: "text", name: "name", ...keeper },

  // Why a bound claim gets no more on its devices.
  "device-memory-left": { asksBytes: "bytes", moreBytes: "bytes", device: "name", leftBytes: "bytes" },
  "device-compute-left": {
    asksPercent: "percent",
    morePercent: "percent",
    device: "name",
    leftPercent: "percent",
  },
  "rest-kept-for": { reason: "reason", ...keeper },

  // Why a claim is preempted.
  "preempted-for": { beneficiary: "holder", because: "reason" },
  "is-best-effort": {},
  "lower-priority": { priority: "count", than: "count" },
  "borrowed-guarantee": { queue: "name", owner: "name" },

  // Why a claim is dormant, ends or is requeued.
  "not-called-yet": {},
  "program-gone": {},
  "devices-unused": {},
  "lease-expired-pending": { leaseSeconds: "seconds" },
  "lease-expired-dormant": { leaseSeconds: "seconds" },
  "lease-expired-unused": { leaseSeconds: "seconds" },
  "session-ended": {},
  "node-lost": { node: "name", seconds: "seconds" },
  "device-lost": { node: "name", seconds: "seconds" },
  "node-removed": { node: "name" },
  "granted-to-others": { device: "name" },
  "node-drained": { node: "name", note: "text?" },
  "time-limit-over": { limitSeconds: "seconds" },
  "time-limit-ends": { limitSeconds: "seconds" },
  "idle-limit": { limitSeconds: "seconds" },
  "released-by-owner": { note: "text?" },
  "released-by-administrator": { note: "text?" },

  // Used when nothing more specific is known.
  "not-planned-yet": {},
  "not-planned-since-start": {},
  "leader-knows": {},
  recorded: { text: "unsafeText" },

  // Why a call concerning a claim is refused.
  "claim-ended": { claim: "name", reason: "reason" },
  "claim-dormant": { claim: "name", reason: "reason" },
  "claim-waits": { claim: "name", reason: "reason" },
  "claim-gives-back": { claim: "name", reason: "reason" },
  "claim-keeps-size": { claim: "name", reason: "reason" },
  "keeps-what-it-has": { reason: "reason" },
  "worker-refused": { text: "text" },
  "agent-unanswered": { node: "name", seconds: "seconds" },
  "taken-back-meanwhile": {},

  // What happened to a claim.
  sizes: { gpus: "count", ...memory, computePercent: "percent", owner: "text?" },
  priority: { from: "count", to: "count" },
  "program-calls": {},
  "bound-to": { devices: "texts" },
  adopted: { devices: "texts" },
  "not-adopted": { session: "text", text: "text" },
  notice: { isFinal: "flag", seconds: "seconds", reason: "reason" },

  // What happened to nodes, devices, queues, tenants and controllers.
  "node-silent": { seconds: "seconds" },
  "node-silent-since-start": {},
  "agent-stopped": {},
  "node-joined": { devices: "count", url: "text" },
  "node-ready": { url: "text" },
  "node-waits-for-sessions": { sessions: "count" },
  "removed-from-pool": {},
  labelled: { labels: "labels" },
  cordoned: { note: "text?" },
  uncordoned: {},
  healthy: {},
  unhealthy: { text: "text" },
  "queue-settings": {
    parent: "name?",
    weight: "count",
    borrowing: "text",
    guaranteed: "quota",
    limit: "quota",
  },
  "tenant-settings": { limit: "quota", userLimit: "quota?", ownLimits: "count?" },
  deleted: {},
  "signing-key-rotated": { id: "text" },
  "controller-leads": { url: "text", term: "count" },

  // The numbers behind an explanation.
  "in-use": { gpuMilli: "gpuMilli", guaranteedGpuMilli: "gpuMilli?", limitGpuMilli: "gpuMilli?" },
  "not-parked": { program: "text", why: "text" },
  "node-silent-claim-keeps": { seconds: "seconds" },
  "node-silent-claim-requeues": { seconds: "seconds", afterSeconds: "seconds" },
  "node-silent-claim-fails": { seconds: "seconds", afterSeconds: "seconds" },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Kind | `${Kind}?`>>>>;

export type ReasonCode = keyof typeof reasonArgs;

type ValueOf<K> = K extends `${infer Base extends Kind}?`
  ? Kinds[Base] | undefined
  : K extends Kind
    ? Kinds[K]
    : never;

/** The arguments of a reason. */
export type ReasonArgs<C extends ReasonCode> = {
  readonly [A in keyof (typeof reasonArgs)[C]]: ValueOf<(typeof reasonArgs)[C][A]>;
};

/** A reason in structured form, one of a closed union. */
export type Reason = { readonly [C in ReasonCode]: ReasonOf<C> }[ReasonCode];

export interface ReasonOf<C extends ReasonCode> {
  readonly code: C;
  readonly args: ReasonArgs<C>;
}

/** Creates a reason: the arguments may be omitted if the code has none. */
export function reason<C extends ReasonCode>(
  code: C,
  ...rest: keyof (typeof reasonArgs)[C] extends never ? [] : [args: ReasonArgs<C>]
): Reason {
  // The tuple is empty only for codes without arguments.
  return { code, args: rest[0] ?? {} } as unknown as Reason;
}

export function isReasonCode(text: string): text is ReasonCode {
  return Object.hasOwn(reasonArgs, text);
}
