// SPDX-License-Identifier: Apache-2.0

/**
 * Everything that can be asked of the pool, as data. The options of `millpond run`, the environment variables of a
 * program, the members of a claim file and docs/reference/claims.md come from this table.
 *
 * Nothing may be imported here: the command line's help has to be instant.
 */

/** What a field's value is, and so how its text is read: see claim-values.ts. */
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
  /** What applies when it is not given, in words or as a value. Shown only. */
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
    description: "Compute share of each vGPU in percent of its device, 1 to 100",
    defaultText: "in proportion to the memory",
  },
  lazy: {
    flags: "--lazy",
    env: "MILLPOND_LAZY",
    type: "flag",
    description:
      "Hold nothing until a program of the claim calls CUDA, and give it back when the last one has ended",
  },
  lazyIdle: {
    flags: "--lazy-idle <duration>",
    env: "MILLPOND_LAZY_IDLE",
    type: "period",
    description:
      "Of a lazy claim: give it back also when its programs have been idle for so long and hold no device memory",
    defaultText: "5m",
  },
  exclusive: {
    flags: "--exclusive",
    env: "MILLPOND_EXCLUSIVE",
    type: "flag",
    description: "Whole devices with nobody else on them",
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
    description: "Who is charged",
    defaultText: "default",
  },
  queue: {
    flags: "-q, --queue <name>",
    env: "MILLPOND_QUEUE",
    type: "name",
    description: "Where the claim waits",
    defaultText: "default",
  },
  priority: {
    flags: "--priority <number>",
    env: "MILLPOND_PRIORITY",
    type: "integer",
    description: "Within its queue the greater goes first, -1000 to 1000",
    defaultText: "0",
  },
  preemptible: {
    flags: "--preemptible",
    env: "MILLPOND_PREEMPTIBLE",
    type: "flag",
    description: "May be taken back for others, after notice, and then waits again",
  },
  gang: {
    flags: "--gang <name>",
    env: "MILLPOND_GANG",
    type: "name",
    description:
      "Gang of which the claim is a member: all members are bound at once or none, on however many nodes",
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
    description: "How the vGPUs shall lie",
    defaultText: "least-fragmentation",
  },
  locality: {
    flags: "--locality <where>",
    env: "MILLPOND_LOCALITY",
    type: "choice",
    choices: ["prefer-local", "local-only", "any"],
    description: "Where the vGPUs shall lie as seen from the program's machine",
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
    description: "Only nodes that hold a claim with these labels; where no node does, any",
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
      "End the claim, after notice, when it has been bound for so long: 2h, 90m. Short ones find room sooner",
    defaultText: "none",
  },
  idleLimit: {
    flags: "--idle-limit <duration>",
    env: "MILLPOND_IDLE_LIMIT",
    type: "duration",
    description: "End the claim, after notice, when no call has been made to its devices for so long",
    defaultText: "none",
  },
  serviceClass: {
    flags: "--service-class <class>",
    env: "MILLPOND_SERVICE_CLASS",
    type: "choice",
    choices: ["guaranteed", "burstable", "best-effort"],
    description:
      "guaranteed: a hard share; burstable: at least the share; best-effort: only what is idle, no share, first to go",
    defaultText: "guaranteed; burstable where memory is asked for and no compute",
  },
  nodeLoss: {
    flags: "--node-loss <policy>",
    env: "MILLPOND_NODE_LOSS",
    type: "choice",
    choices: ["keep", "requeue", "fail"],
    description: "What becomes of the claim when its node or a device of it is lost",
    defaultText: "keep",
  },
  grace: {
    flags: "--grace <duration>",
    env: "MILLPOND_GRACE",
    type: "period",
    description: "Notice before what the claim holds is taken back, 1s to 1h",
    defaultText: "30s",
  },
} as const satisfies Record<string, ClaimField>;

export type ClaimFieldName = keyof typeof claimFields;

export const claimFieldNames = Object.keys(claimFields) as readonly ClaimFieldName[];

/** The table without its literal types, for what treats all fields alike. */
export const claimFieldSpecs: Readonly<Record<ClaimFieldName, ClaimField>> = claimFields;
