// SPDX-License-Identifier: Apache-2.0

/**
 * The table of all fields of a claim. The options of `millpond run`, the environment variables of a program, the members of
 * a claim file and docs/reference/claims.md come from it.
 *
 * It imports nothing, so that the command line's help is instant.
 */

/** The type of a field's value, which determines its parser: see claim-values.ts. */
export type ClaimFieldType =
  /** A whole number, 1 to 64. */
  | "count"
  /** A whole number, -1000 to 1000. */
  | "integer"
  /** A whole number, 2 to 256. */
  | "members"
  /** Memory of a vGPU: a size or a share. */
  | "memory"
  /** A share of a device. */
  | "percent"
  /** Yes or no. */
  | "flag"
  /** A DNS label. */
  | "name"
  /** Texts separated by commas. */
  | "list"
  /** `major.minor`. */
  | "version"
  /** `key=value`, separated by commas. */
  | "labels"
  /** Seconds. */
  | "duration"
  /** Seconds, 1 or more. */
  | "period"
  | "choice";

export interface ClaimField {
  /** Option of the command line; the long name in camel case is the key in the table and in a claim file. */
  readonly flags: string;
  readonly env: string;
  readonly type: ClaimFieldType;
  readonly description: string;
  /** For the type `choice`. */
  readonly choices?: readonly string[];
  /** The default, as text or as a value. For display only. */
  readonly defaultText?: string;
}

export const claimFields = {
  gpus: {
    flags: "-n, --gpus <count>",
    env: "MILLPOND_GPUS",
    type: "count",
    description: "Number of vGPUs, 1 to 64",
    defaultText: "1",
  },
  memory: {
    flags: "-m, --memory <size>",
    env: "MILLPOND_MEMORY",
    type: "memory",
    description: "Memory of each vGPU: 512Mi, 8G, 8192 (MiB), 50% or 0.5 of the device",
    defaultText: "the whole device",
  },
  compute: {
    flags: "-c, --compute <percent>",
    env: "MILLPOND_COMPUTE",
    type: "percent",
    description: "Compute share of each vGPU of its device: 50, 50% or 0.5; 1% to 100%",
    defaultText: "in proportion to the memory",
  },
  lazy: {
    flags: "--lazy",
    env: "MILLPOND_LAZY",
    type: "flag",
    description:
      "Allocate only when a program of the claim calls CUDA, and release when the last one has ended",
  },
  lazyIdle: {
    flags: "--lazy-idle <duration>",
    env: "MILLPOND_LAZY_IDLE",
    type: "period",
    description:
      "Lazy claims only: also release after the programs have been idle this long without device memory",
    defaultText: "5m",
  },
  exclusive: {
    flags: "--exclusive",
    env: "MILLPOND_EXCLUSIVE",
    type: "flag",
    description: "Whole devices, shared with no other claim",
  },
  model: {
    flags: "--model <names>",
    env: "MILLPOND_MODEL",
    type: "list",
    description: "Only devices whose model name contains one of these: H200,A100",
    defaultText: "any",
  },
  minCapability: {
    flags: "--min-capability <version>",
    env: "MILLPOND_MIN_CAPABILITY",
    type: "version",
    description: "Only devices of at least this compute capability: 9.0",
    defaultText: "any",
  },
  pool: {
    flags: "--pool <name>",
    env: "MILLPOND_POOL",
    type: "name",
    description: "Only nodes whose label `pool` has this value",
    defaultText: "any",
  },
  tenant: {
    flags: "--tenant <name>",
    env: "MILLPOND_TENANT",
    type: "name",
    description: "Tenant that the usage is charged to",
    defaultText: "default",
  },
  queue: {
    flags: "-q, --queue <name>",
    env: "MILLPOND_QUEUE",
    type: "name",
    description: "Queue in which the claim waits",
    defaultText: "default",
  },
  priority: {
    flags: "--priority <number>",
    env: "MILLPOND_PRIORITY",
    type: "integer",
    description: "Priority within the queue, -1000 to 1000; higher is served first",
    defaultText: "0",
  },
  preemptible: {
    flags: "--preemptible",
    env: "MILLPOND_PREEMPTIBLE",
    type: "flag",
    description: "May be preempted, after notice, and then returns to its queue",
  },
  gang: {
    flags: "--gang <name>",
    env: "MILLPOND_GANG",
    type: "name",
    description: "Gang of the claim: all members are bound together or none is, on any number of nodes",
    defaultText: "none",
  },
  gangSize: {
    flags: "--gang-size <count>",
    env: "MILLPOND_GANG_SIZE",
    type: "members",
    description: "Number of claims in the gang, 2 to 256",
    defaultText: "none",
  },
  placement: {
    flags: "--placement <policy>",
    env: "MILLPOND_PLACEMENT",
    type: "choice",
    choices: ["least-fragmentation", "binpack", "spread"],
    description: "Placement policy",
    defaultText: "least-fragmentation",
  },
  locality: {
    flags: "--locality <where>",
    env: "MILLPOND_LOCALITY",
    type: "choice",
    choices: ["prefer-local", "local-only", "any"],
    description: "Preferred location of the vGPUs relative to the program's machine",
    defaultText: "prefer-local",
  },
  sameNode: {
    flags: "--same-node",
    env: "MILLPOND_SAME_NODE",
    type: "flag",
    description: "All members of the gang on one node",
  },
  labels: {
    flags: "--labels <labels>",
    env: "MILLPOND_LABELS",
    type: "labels",
    description: "Labels of the claim, for people and for the affinity of others: app=web,team=a",
    defaultText: "none",
  },
  nodeLabels: {
    flags: "--node-labels <labels>",
    env: "MILLPOND_NODE_LABELS",
    type: "labels",
    description: "Only nodes with these labels",
    defaultText: "any node",
  },
  affinity: {
    flags: "--affinity <labels>",
    env: "MILLPOND_AFFINITY",
    type: "labels",
    description: "Only nodes that hold a claim with these labels; any node if none does",
    defaultText: "any node",
  },
  antiAffinity: {
    flags: "--anti-affinity <labels>",
    env: "MILLPOND_ANTI_AFFINITY",
    type: "labels",
    description: "Only nodes that hold no claim with one of these labels",
    defaultText: "any node",
  },
  timeLimit: {
    flags: "--time-limit <duration>",
    env: "MILLPOND_TIME_LIMIT",
    type: "duration",
    description:
      "End the claim, after notice, when it has been bound this long: 2h, 90m; 0: no limit. Short claims are placed sooner",
    defaultText: "none",
  },
  idleLimit: {
    flags: "--idle-limit <duration>",
    env: "MILLPOND_IDLE_LIMIT",
    type: "duration",
    description: "End the claim, after notice, when its devices have been idle this long; 0: no limit",
    defaultText: "none",
  },
  serviceClass: {
    flags: "--service-class <class>",
    env: "MILLPOND_SERVICE_CLASS",
    type: "choice",
    choices: ["guaranteed", "burstable", "best-effort"],
    description:
      "guaranteed: exactly the share; burstable: at least the share; best-effort: idle time only, preempted first",
    defaultText: "guaranteed; burstable if memory is requested without compute",
  },
  nodeLoss: {
    flags: "--node-loss <policy>",
    env: "MILLPOND_NODE_LOSS",
    type: "choice",
    choices: ["keep", "requeue", "fail"],
    description: "Handling of the claim when its node or one of its devices is lost",
    defaultText: "keep",
  },
  grace: {
    flags: "--grace <duration>",
    env: "MILLPOND_GRACE",
    type: "period",
    description:
      "Notice before the claim is preempted or reaches a limit, 1s to 1h; at most half of --time-limit",
    defaultText: "30s",
  },
} as const satisfies Record<string, ClaimField>;

export type ClaimFieldName = keyof typeof claimFields;

export const claimFieldNames = Object.keys(claimFields) as readonly ClaimFieldName[];

/** The table without its literal types, for code that treats all fields alike. */
export const claimFieldSpecs: Readonly<Record<ClaimFieldName, ClaimField>> = claimFields;
