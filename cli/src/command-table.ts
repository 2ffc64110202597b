// SPDX-License-Identifier: Apache-2.0

/**
 * Every command, argument and option of `millpond`, as data. The parser, the help texts, the shell completions and
 * docs/reference/cli.md all come from this table; command-modules.ts says which code runs a command.
 *
 * Nothing but tables may be imported here: `--help` and completion have to be instant.
 */

import { claimFields } from "@millpond/api/claim-fields";

/** What an option's value is, and so how it is read: see option-values.ts. */
export type ValueType =
  | "flag"
  | "text"
  /** A whole number, 1 to 64. */
  | "count"
  /** A whole number, 0 to 64. */
  | "number"
  /** Memory of a vGPU: a size or a share. */
  | "memory"
  /** A size in bytes. */
  | "size"
  /** A share of a device. */
  | "percent"
  /** Seconds. */
  | "duration"
  /** A DNS label. */
  | "name"
  /** A whole number, -1000 to 1000. */
  | "integer"
  /** A whole number, 2 to 256. */
  | "members"
  /** Texts separated by commas. */
  | "list"
  /** `major.minor`. */
  | "version"
  /** `key=value`, separated by commas. */
  | "labels"
  /** Bounds: `gpus=8,memory=1Ti`. */
  | "quota"
  /** A whole number, 1 to 10000. */
  | "weight"
  | "choice";

export interface OptionSpec {
  /** As in commander: `-n, --gpus <count>`. The long name in camel case is the key in the table. */
  readonly flags: string;
  readonly type: ValueType;
  readonly description: string;
  /** For the type `choice`. */
  readonly choices?: readonly string[];
  /** What applies when the option is not given, in words or as a value. Shown only. */
  readonly defaultText?: string;
  /** Environment variable that stands in for an option that is not given. */
  readonly env?: string;
  /** Another spelling of the option `aliasOf`, for people who come from elsewhere. */
  readonly aliasOf?: string;
}

export interface ArgumentSpec {
  readonly name: string;
  readonly description: string;
  readonly choices?: readonly string[];
  readonly isOptional?: boolean;
  /** Takes all that follow, options of the program included. */
  readonly isProgram?: boolean;
  /** One or more files. */
  readonly isFiles?: boolean;
}

export interface CommandSpec {
  readonly summary: string;
  /** More about it, paragraphs. */
  readonly description?: string;
  readonly examples: readonly { readonly command: string; readonly what: string }[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: Readonly<Record<string, OptionSpec>>;
  /** Heading in the list of commands; absent: not listed. */
  readonly group?: "Run programs" | "See the pool" | "Operate";
  /** The command reads its own arguments. */
  readonly isRaw?: boolean;
}

const connection = {
  controller: {
    flags: "--controller <url>",
    type: "text",
    description: "Base URL of the controller; of several, separated by commas",
    env: "MILLPOND_CONTROLLER",
    defaultText: "the current context, which `millpond up` writes",
  },
  token: {
    flags: "--token <token>",
    type: "text",
    description: "Token for the controller",
    env: "MILLPOND_TOKEN",
    defaultText: "the current context's",
  },
} as const satisfies Record<string, OptionSpec>;

const changing = {
  reason: {
    flags: "--reason <text>",
    type: "text",
    description: "Why, for the audit and whoever looks",
    env: "MILLPOND_REASON",
    defaultText: "none",
  },
  ...connection,
} as const satisfies Record<string, OptionSpec>;

const request = {
  ...claimFields,
  gpuMemory: {
    flags: "--gpu-memory <size>",
    type: "memory",
    description: "The same as --memory",
    aliasOf: "memory",
  },
  partial: {
    flags: "-p, --partial <fraction>",
    type: "percent",
    description:
      "Memory and compute of each vGPU as a fraction of its device: 0.5; --memory and --compute win",
  },
  timeout: {
    flags: "--timeout <duration>",
    type: "duration",
    description: "Give up when the pool has had no room for so long: 90s, 10m; 0 waits for ever",
    env: "MILLPOND_WAIT_TIMEOUT",
    defaultText: "0",
  },
  wait: {
    flags: "--no-wait",
    type: "flag",
    description: "Fail at once when the pool has no room",
  },
  name: {
    flags: "--name <name>",
    type: "name",
    description: "Name of the claim",
    defaultText: "made up",
  },
} as const satisfies Record<string, OptionSpec>;

const output = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["table", "wide", "name", "json"],
    description: "Form of the answer; json is for scripts and does not change within v1",
    defaultText: "table",
  },
} as const satisfies Record<string, OptionSpec>;

const jsonOutput = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["text", "json"],
    description: "Form of the answer",
    defaultText: "text",
  },
} as const satisfies Record<string, OptionSpec>;

export const commandTable = {
  run: {
    summary: "Run a program on vGPUs of the pool",
    description: `Claims vGPUs, waits until the pool has room, runs the program with them and gives them back when it ends. The program
is not changed in any way: it finds a CUDA driver library that reaches its vGPUs, wherever they are.

Standard input, signals and the exit status pass through; millpond itself writes nothing to standard output. Exit status:
the program's; 128 and the number of the signal that killed it; 75 when its vGPUs were taken back, so that it is worth to
start it again; 125 when millpond failed, 126 when the program cannot be
run, 127 when it is not found.`,
    examples: [
      { command: "millpond run -- python train.py", what: "one whole GPU" },
      {
        command: "millpond run -n 1 -m 8Gi -- ./program",
        what: "8 GiB of one GPU, and compute in proportion",
      },
      {
        command: "millpond run -n 2 -m 512Mi --compute 50 -- ./program",
        what: "half of the compute of two GPUs",
      },
      {
        command: "millpond run -q research --priority 10 --preemptible -- python train.py",
        what: "in a queue, before others, and given back when somebody with more right needs it",
      },
      { command: "millpond run --no-wait -p 0.5 -- ./program", what: "half a GPU, now or not at all" },
      {
        command: "millpond run --trace calls -- ./program",
        what: "with every call written down in the file calls",
      },
    ],
    arguments: [{ name: "program", description: "The program and its arguments", isProgram: true }],
    options: {
      ...request,
      transport: {
        flags: "--transport <how>",
        type: "choice",
        choices: ["auto", "shm", "tcp"],
        description: "How the program reaches its worker",
        env: "MILLPOND_TRANSPORT",
        defaultText: "auto: shared memory on the GPU's own machine, else TCP",
      },
      requeue: {
        flags: "--requeue",
        type: "flag",
        description: "When the vGPUs are taken back, wait for others and start the program again",
      },
      noticeSignal: {
        flags: "--notice-signal <signal>",
        type: "choice",
        choices: ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"],
        description: "What the program gets as notice that its vGPUs will be taken back",
        env: "MILLPOND_NOTICE_SIGNAL",
        defaultText: "SIGTERM",
      },
      trace: {
        flags: "--trace <file>",
        type: "text",
        description:
          "Write every call of the driver API into a file, for `millpond trace`; %p in its name is the process",
        defaultText: "none",
      },
      verbose: {
        flags: "-v, --verbose",
        type: "flag",
        description: "Say on standard error what was granted and when it is given back",
      },
      ...connection,
    },
    group: "Run programs",
  },
  env: {
    summary: "Print the environment in which a program finds vGPUs",
    description: `For programs that cannot be wrapped by \`millpond run\`. Each program started in that environment makes a claim of its own
and gives it back when it ends.`,
    examples: [
      {
        command: 'eval "$(millpond env -n 1 -m 1Gi)"',
        what: "from now on, programs of this shell run on vGPUs",
      },
    ],
    arguments: [],
    options: {
      ...claimFields,
      gpuMemory: request.gpuMemory,
      partial: request.partial,
      timeout: request.timeout,
      transport: {
        flags: "--transport <how>",
        type: "choice",
        choices: ["auto", "shm", "tcp"],
        description: "How programs reach their workers",
        env: "MILLPOND_TRANSPORT",
        defaultText: "auto",
      },
      ...connection,
    },
    group: "Run programs",
  },
  trace: {
    summary: "Sum up traces of programs: calls, waits, copies, launches, failures",
    description: `Reads what \`millpond run --trace\` or MILLPOND_LOG with a file has written: one line for each call of the driver API.
Shows for each call how often it was made, how long it took and how often it waited for the worker; the bytes that were
copied, by direction; the launches, by kernel; the calls that failed; and the time between calls, in the program itself.`,
    examples: [
      {
        command: "millpond run --trace calls -- ./program; millpond trace calls",
        what: "one run of a program",
      },
      { command: "millpond trace calls.* -o json", what: "the traces of several processes, for scripts" },
    ],
    arguments: [{ name: "file", description: "The traces", isFiles: true }],
    options: {
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "json"],
        description: "Form of the answer",
        defaultText: "table",
      },
    },
    group: "Run programs",
  },
  sanitize: {
    summary: "Run a program on a software GPU that checks every access of its kernels",
    description: `Finds accesses outside the memory that a kernel was given, of memory that was freed, and misaligned ones (memcheck),
and accesses of shared memory that no barrier orders (racecheck). Needs neither a GPU nor a pool: it starts a software GPU
of its own and ends it with the program, which is started unchanged. Compile kernels with PTX inside, as nvcc does unless told
otherwise (\`-gencode arch=compute_75,code=compute_75\` is sure to work), and with -lineinfo to see lines of the source.

The report comes when the program has ended: on standard error, or in a file. The exit status is the program's, or that of
--error-exitcode when there are findings; 125 when millpond failed, 126 when the program cannot be run, 127 when it
is not found.`,
    examples: [
      { command: "millpond sanitize -- ./program", what: "both checks" },
      {
        command: "millpond sanitize --tool memcheck --leak-check -- ./program 1000",
        what: "memory only, and what is not freed",
      },
      {
        command: "millpond sanitize --log report.json -o json -- ./program",
        what: "for scripts",
      },
    ],
    arguments: [{ name: "program", description: "The program and its arguments", isProgram: true }],
    options: {
      tool: {
        flags: "--tool <names>",
        type: "list",
        description: "What to check: memcheck, racecheck",
        defaultText: "memcheck,racecheck",
      },
      leakCheck: {
        flags: "--leak-check",
        type: "flag",
        description: "Device memory that the program has not freed when it ends is a finding, too",
      },
      log: {
        flags: "--log <file>",
        type: "text",
        description: "Write the report there",
        defaultText: "standard error",
      },
      errorExitcode: {
        flags: "--error-exitcode <status>",
        type: "number",
        description: "Exit status when there are findings; 0: the program's",
        defaultText: "1",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["text", "json"],
        description: "Form of the report",
        defaultText: "text, and nothing without findings",
      },
      gpus: {
        flags: "-n, --gpus <count>",
        type: "count",
        description: "Software GPUs that the program sees",
        defaultText: "1",
      },
      deviceMemory: {
        flags: "--device-memory <size>",
        type: "size",
        description: "Memory of each, 64Mi to 1Ti",
        defaultText: "4Gi",
      },
    },
    group: "Run programs",
  },
  smi: {
    summary: "Show devices, what is granted of them, and who uses them",
    examples: [{ command: "millpond smi", what: "a picture like that of nvidia-smi, of the whole pool" }],
    arguments: [],
    options: { ...connection },
    group: "See the pool",
  },
  get: {
    summary: "List nodes, devices, claims, queues, tenants, sessions, events, tokens or the audit",
    examples: [
      { command: "millpond get devices", what: "the GPUs of the pool" },
      { command: "millpond get claims -w", what: "claims, and each change of one as it comes" },
      { command: "millpond get sessions -o json", what: "for scripts" },
      { command: "millpond get audit -w", what: "who changes what, and why" },
    ],
    arguments: [
      {
        name: "kind",
        description: "What to list",
        choices: ["nodes", "devices", "claims", "queues", "tenants", "sessions", "events", "tokens", "audit"],
      },
    ],
    options: {
      ...output,
      watch: { flags: "-w, --watch", type: "flag", description: "Go on and print what changes" },
      all: { flags: "-a, --all", type: "flag", description: "Also claims that have ended" },
      headers: { flags: "--no-headers", type: "flag", description: "Leave out the line of column names" },
      ...connection,
    },
    group: "See the pool",
  },
  describe: {
    summary: "Show all there is to know of one node, device, claim, queue, tenant or session",
    examples: [
      { command: "millpond describe node node-a", what: "by name" },
      { command: "millpond describe device node-a/0", what: "by node and ordinal, or by UUID" },
      { command: "millpond describe claim claim-7f", what: "any beginning of a name that is unique will do" },
    ],
    arguments: [
      {
        name: "kind",
        description: "What it is",
        choices: ["node", "device", "claim", "queue", "tenant", "session"],
      },
      { name: "name", description: "Its name, or a unique beginning of it" },
    ],
    options: { ...jsonOutput, ...connection },
    group: "See the pool",
  },
  apply: {
    summary: "Make the claims, queues and tenants that a file describes",
    description: `Reads YAML or JSON: one or more documents with \`kind: Claim\`, \`Queue\` or \`Tenant\`. A claim has the members of
docs/reference/claims.md, a name and a lease: it lives until it is released, or until nobody has renewed it for so long. A
claim that is there and asks the same is left alone; queues and tenants are changed to what the file says.`,
    examples: [
      {
        command: "millpond apply -f claim.yaml",
        what: "then, with MILLPOND_CLAIM=<name>, programs attach to it",
      },
      { command: "millpond apply -f -", what: "from standard input" },
    ],
    arguments: [],
    options: {
      file: { flags: "-f, --file <path>", type: "text", description: "The file; - is standard input" },
      ...changing,
    },
    group: "Run programs",
  },
  why: {
    summary: "Explain why a claim waits: for what, behind whom, and until when",
    examples: [{ command: "millpond why train", what: "with the numbers of the moment" }],
    arguments: [{ name: "claim", description: "Name of the claim, or a unique beginning of it" }],
    options: { ...jsonOutput, ...connection },
    group: "See the pool",
  },
  usage: {
    summary: "Sum up the GPU-hours that tenants and queues asked for, were granted, used and wasted",
    description: `A vGPU counts as the greater of its shares of memory and compute. Asked: while a claim waited or was bound; granted: while
it was bound; used: while its programs made calls; wasted: granted and not used.`,
    examples: [
      { command: "millpond usage --since 7d", what: "the last seven days" },
      {
        command: "millpond usage --since 2026-10-01 --until 2026-11-01 -o csv",
        what: "a month, for a spreadsheet",
      },
    ],
    arguments: [],
    options: {
      since: {
        flags: "--since <moment>",
        type: "text",
        description: "Begin of the period: a duration before now, 7d, or a date, 2026-11-20",
        defaultText: "the first that is known",
      },
      until: {
        flags: "--until <moment>",
        type: "text",
        description: "End of the period",
        defaultText: "now",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "csv", "json"],
        description: "Form of the answer",
        defaultText: "table",
      },
      ...connection,
    },
    group: "See the pool",
  },
  resize: {
    summary: "Change what a claim asks and has",
    description: `Memory and compute change at once, also while programs of the claim run; memory not below what they have in use. The
number of vGPUs can change while no program of the claim uses them: then it is placed anew, and keeps what it has when
there is no room. What is not given stays as it is.`,
    examples: [
      { command: "millpond resize claim-7f3a -m 16Gi", what: "more memory for a program that runs" },
      { command: "millpond resize notebook -n 16", what: "16 vGPUs for the next program of the claim" },
    ],
    arguments: [{ name: "claim", description: "Name of the claim, or a unique beginning of it" }],
    options: {
      gpus: { flags: "-n, --gpus <count>", type: "count", description: "Number of vGPUs, 1 to 64" },
      memory: {
        flags: "-m, --memory <size>",
        type: "memory",
        description: "Memory of each vGPU: 512Mi, 8G, 8192 (MiB), 50% or 0.5 of the device",
      },
      compute: {
        flags: "-c, --compute <percent>",
        type: "percent",
        description: "Compute share of each vGPU in percent of its device, 1 to 100",
      },
      wait: {
        flags: "--wait",
        type: "flag",
        description: "Where it has to be placed anew and there is no room, give up what it has and wait",
      },
      ...changing,
    },
    group: "Operate",
  },
  release: {
    summary: "End a claim and its sessions",
    examples: [{ command: "millpond release claim-7f3a", what: "gives its vGPUs back at once" }],
    arguments: [{ name: "claim", description: "Name of the claim, or a unique beginning of it" }],
    options: { ...changing },
    group: "Operate",
  },
  cordon: {
    summary: "Keep new claims off a node or a device",
    examples: [
      { command: "millpond cordon node-a", what: "what runs there goes on" },
      { command: 'millpond cordon node-a/3 --reason "fan replaced on Monday"', what: "one device" },
    ],
    arguments: [{ name: "node", description: "Name of the node, or node/ordinal of a device" }],
    options: {
      ...changing,
    },
    group: "Operate",
  },
  uncordon: {
    summary: "Let new claims come to a node or a device again",
    examples: [{ command: "millpond uncordon node-a", what: "undoes cordon and drain" }],
    arguments: [{ name: "node", description: "Name of the node, or node/ordinal of a device" }],
    options: { ...changing },
    group: "Operate",
  },
  drain: {
    summary: "Empty a node: cordon it, and take back what claims hold there, after notice",
    description: `Claims get the notice that they asked for (--grace), then wait for room elsewhere at their old place in the queue; claims
that programs made for themselves end. With --wait it returns when the node holds nothing any more.`,
    examples: [{ command: "millpond drain node-a --reason maintenance --wait", what: "then switch it off" }],
    arguments: [{ name: "node", description: "Name of the node" }],
    options: {
      wait: { flags: "--wait", type: "flag", description: "Return when the node is empty" },
      ...changing,
    },
    group: "Operate",
  },
  label: {
    summary: "Set or remove labels of a node",
    examples: [
      { command: "millpond label node-a --set zone=b,pool=training", what: "claims choose by them" },
      { command: "millpond label node-a --remove zone", what: "by key" },
    ],
    arguments: [{ name: "node", description: "Name of the node" }],
    options: {
      set: {
        flags: "--set <labels>",
        type: "labels",
        description: "Labels to add or change: zone=b,pool=training",
      },
      remove: {
        flags: "--remove <keys>",
        type: "list",
        description: "Keys of labels to remove, separated by commas",
      },
      ...changing,
    },
    group: "Operate",
  },
  queue: {
    summary: "Create, change or delete a queue",
    description: `Queues take turns by weighted fair share. What a queue is guaranteed it gets before others get more than theirs; it may
borrow what others leave idle, up to its limit. Options that are not given stay as they are.`,
    examples: [
      {
        command: "millpond queue create research --weight 3 --guaranteed gpus=8",
        what: "8 GPUs for sure, and three times the share of a queue of weight 1",
      },
      { command: "millpond queue create vision --parent research", what: "a part of it" },
      { command: "millpond queue change research --limit gpus=32,memory=4Ti", what: "no more than that" },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "change", "delete"] },
      { name: "name", description: "Name of the queue" },
    ],
    options: {
      parent: {
        flags: "--parent <name>",
        type: "name",
        description: "The queue that it is a part of; `none`: it stands alone",
        defaultText: "none",
      },
      weight: {
        flags: "--weight <number>",
        type: "weight",
        description: "Share beside its siblings in what is beyond the guarantees, 1 to 10000",
        defaultText: "1",
      },
      guaranteed: {
        flags: "--guaranteed <quota>",
        type: "quota",
        description:
          "What it gets before others get more than theirs: gpus=8,compute=800,memory=1Ti, or none",
        defaultText: "none",
      },
      limit: {
        flags: "--limit <quota>",
        type: "quota",
        description: "What all its claims together may have at most",
        defaultText: "none",
      },
      borrowing: {
        flags: "--borrowing <who>",
        type: "choice",
        choices: ["any", "preemptible", "none"],
        description: "Whose claims may have more than is guaranteed while others leave it idle",
        defaultText: "any",
      },
      ...changing,
    },
    group: "Operate",
  },
  tenant: {
    summary: "Create, change or delete a tenant",
    examples: [
      {
        command: "millpond tenant create team-a --limit gpus=16",
        what: "all its claims together, in all queues",
      },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "change", "delete"] },
      { name: "name", description: "Name of the tenant" },
    ],
    options: {
      limit: {
        flags: "--limit <quota>",
        type: "quota",
        description: "What all its claims together may have at most: gpus=8,compute=800,memory=1Ti, or none",
        defaultText: "none",
      },
      ...changing,
    },
    group: "Operate",
  },
  token: {
    summary: "Make, list or revoke tokens",
    description: `A user makes claims of one tenant and sees nothing of others; a tenant-admin makes tokens of that tenant too; an agent
reports a node; an admin does all but that. \`create\` prints the secret, which is kept nowhere; \`list\` shows who has one.`,
    examples: [
      {
        command: "millpond token create ann --tenant team-a --expires 90d",
        what: "then, for Ann: MILLPOND_TOKEN=<what it printed>",
      },
      { command: "millpond token create node-7 --role agent", what: "for a new node" },
      { command: 'millpond token revoke ann --reason "left the team"', what: "at once" },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "list", "revoke"] },
      { name: "name", description: "Name of the token; not for list", isOptional: true },
    ],
    options: {
      role: {
        flags: "--role <role>",
        type: "choice",
        choices: ["user", "tenant-admin", "agent", "admin"],
        description: "What it is good for",
        defaultText: "user",
      },
      tenant: {
        flags: "--tenant <name>",
        type: "name",
        description: "Tenant of a user or a tenant-admin",
        defaultText: "your own, or default",
      },
      expires: {
        flags: "--expires <duration>",
        type: "duration",
        description: "How long it is good: 12h, 90d",
        defaultText: "for ever",
      },
      ...jsonOutput,
      ...changing,
    },
    group: "Operate",
  },
  store: {
    summary: "Take the state of a controller along into a database",
    description: `Copies all of it, or nothing: claims, nodes, queues, tenants, tokens, events, usage and the audit. The controller must not
run meanwhile; sessions go on. The database must hold no state. Then start the controllers on the database, with the same
--state directory: its tokens and certificates are not in the database. The file stays as it is, and is not used any more.`,
    examples: [
      {
        command:
          "millpond store copy --from ~/.local/state/millpond/controller --to postgres://millpond@db/millpond",
        what: "then: millpond controller --store postgres://millpond@db/millpond",
      },
    ],
    arguments: [{ name: "action", description: "What to do", choices: ["copy"] }],
    options: {
      from: {
        flags: "--from <dir>",
        type: "text",
        description: "State directory of the controller",
        defaultText: "~/.local/state/millpond/controller",
      },
      to: {
        flags: "--to <url>",
        type: "text",
        description:
          "The database: postgres://user@host:5432/database; in the environment a password is out of sight",
        env: "MILLPOND_STORE",
      },
    },
    group: "Operate",
  },
  up: {
    summary: "Start a pool on this machine: a controller and an agent",
    description: `Offers this machine's NVIDIA GPUs; where there are none, or with --soft, software GPUs that run CUDA programs on the CPU.
Writes the context that the other commands use from then on. Everything ends with this command: press Ctrl-C.`,
    examples: [
      { command: "millpond up", what: "then, in another terminal: millpond run -n 1 -m 1Gi -- ./program" },
      {
        command: "millpond up --soft --nodes 2 --devices 2",
        what: "a pool of two nodes with two software GPUs each",
      },
    ],
    arguments: [],
    options: {
      soft: { flags: "--soft", type: "flag", description: "Software GPUs, even where there are real ones" },
      nodes: {
        flags: "--nodes <count>",
        type: "count",
        description: "Nodes, each an agent process of its own; more than one only with software GPUs",
        defaultText: "1",
      },
      devices: {
        flags: "--devices <count>",
        type: "count",
        description: "Software GPUs of each node, 1 to 32",
        defaultText: "2",
      },
      deviceMemory: {
        flags: "--device-memory <size>",
        type: "size",
        description: "Memory of each software GPU, 64Mi to 1Ti",
        defaultText: "4Gi",
      },
      warm: {
        flags: "--warm <count>",
        type: "number",
        description: "Idle workers to keep ready for each device, 0 to 16",
        defaultText: "1",
      },
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "Directory for all that is kept",
        defaultText: "~/.local/state/millpond",
      },
      listen: {
        flags: "--listen <address>",
        type: "text",
        description: "Address of the controller; beyond loopback with TLS",
        defaultText: "127.0.0.1:7170, or a free port when that is taken",
      },
      store: {
        flags: "--store <url>",
        type: "text",
        description: "Keep the controller's state in PostgreSQL: postgres://user@host:5432/database",
        env: "MILLPOND_STORE",
        defaultText: "a file of the directory",
      },
    },
    group: "Operate",
  },
  doctor: {
    summary: "Check this machine and the pool, and say how to repair what is wrong",
    examples: [{ command: "millpond doctor", what: "exit status 1 when something is wrong" }],
    arguments: [],
    options: { ...jsonOutput, ...connection },
    group: "Operate",
  },
  version: {
    summary: "Show the versions of this program and of the controller",
    examples: [{ command: "millpond version -o json", what: "for scripts" }],
    arguments: [],
    options: { ...jsonOutput, ...connection },
    group: "Operate",
  },
  defrag: {
    summary: "Say which claims would have to move so that whole devices or nodes become free",
    description: `Moves go to devices in use only (for whole nodes: to nodes in use), fewest claims and least memory first. Nothing is
moved: this is advice.`,
    examples: [
      { command: "millpond defrag --dry-run", what: "whole devices" },
      { command: "millpond defrag --dry-run --goal node -o json", what: "whole nodes, for scripts" },
    ],
    arguments: [],
    options: {
      dryRun: { flags: "--dry-run", type: "flag", description: "Only say it; needed" },
      goal: {
        flags: "--goal <what>",
        type: "choice",
        choices: ["device", "node"],
        description: "What shall become free",
        defaultText: "device",
      },
      maxMoves: {
        flags: "--max-moves <count>",
        type: "count",
        description: "Most claims to move, 1 to 64",
        defaultText: "16",
      },
      ...jsonOutput,
      ...connection,
    },
    group: "Operate",
  },
  snapshot: {
    summary: "Export the pool and its claims to a file that `simulate` replays",
    examples: [
      {
        command: "millpond snapshot --file traces/monday.pool.json",
        what: "then: millpond simulate --data traces --trace monday",
      },
    ],
    arguments: [],
    options: {
      file: {
        flags: "--file <file>",
        type: "text",
        description: "Where to write it",
        defaultText: "standard output",
      },
      ...connection,
    },
    group: "Operate",
  },
  simulate: {
    summary: "Compare placement policies on a trace of what was asked of a pool",
    description: `Reads traces in the form of Alibaba's cluster-trace-gpu-v2023 (openb_pod_list_NAME.csv and the lists of nodes beside
it) or exports of a pool (NAME.pool.json) and places what was asked for, in random order, until 130 % of the GPUs have
been asked for. Nothing leaves, what fits nowhere is dropped. The code that decides is that of the controller.

ALLOC@130 is the share of the GPUs that is allocated at the end, in percent: mean, standard deviation and least over the
seeds. FRAG is the share of idle GPU that is of no use to the trace when 80 % or 90 % have been asked for. Policies:
least-fragmentation, binpack, spread, best-fit, packing, fgd, random.`,
    examples: [
      {
        command: "millpond simulate --data openb --trace default --policy best-fit,fgd,least-fragmentation",
        what: "three policies side by side",
      },
      {
        command: "millpond simulate --data openb --trace default --pooled -o json",
        what: "CPU and GPUs of a claim on different nodes",
      },
    ],
    arguments: [],
    options: {
      data: { flags: "--data <folder>", type: "text", description: "Folder with the traces; needed" },
      trace: {
        flags: "--trace <names>",
        type: "text",
        description: "Traces, separated by commas",
        defaultText: "all in the folder",
      },
      policy: {
        flags: "--policy <policies>",
        type: "text",
        description: "Policies, separated by commas",
        defaultText: "least-fragmentation",
      },
      seeds: { flags: "--seeds <count>", type: "count", description: "Runs of each", defaultText: "10" },
      pooled: {
        flags: "--pooled",
        type: "flag",
        description: "The CPU of a claim may lie on any node, its GPUs on any other",
      },
      repeat: {
        flags: "--repeat <count>",
        type: "count",
        description: "Nodes and trace so many times over",
        defaultText: "1",
      },
      plot: {
        flags: "--plot <file>",
        type: "text",
        description: "Draw allocation and fragmentation over load into an SVG file",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "json"],
        description: "Form of the answer",
        defaultText: "table",
      },
    },
    group: "Operate",
  },
  completion: {
    summary: "Print the completions of a shell",
    examples: [
      {
        command: "source <(millpond completion bash)",
        what: "bash and zsh; put it into ~/.bashrc or ~/.zshrc",
      },
      { command: "millpond completion fish | source", what: "fish" },
    ],
    arguments: [{ name: "shell", description: "The shell", choices: ["bash", "zsh", "fish"] }],
    options: {},
    group: "Operate",
  },
  controller: {
    summary: "Run a controller",
    examples: [],
    arguments: [],
    options: {},
    isRaw: true,
  },
  agent: {
    summary: "Run the agent of a node",
    examples: [],
    arguments: [],
    options: {},
    isRaw: true,
  },
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof commandTable;

export const commandNames = Object.keys(commandTable) as readonly CommandName[];

/** The table without its literal types, for what treats all commands alike. */
export const commandSpecs: Readonly<Record<CommandName, CommandSpec>> = commandTable;

/** Exit statuses of millpond itself; those of a program that it ran pass through. */
export const exitStatus = {
  ok: 0,
  /** Something is not as it should be, and finding that out was the task. */
  finding: 1,
  /** The program's vGPUs were taken back: EX_TEMPFAIL of sysexits.h, try again. */
  preempted: 75,
  /** millpond failed, or did not understand its command line. */
  failed: 125,
  /** The program is there and cannot be run. */
  cannotRun: 126,
  /** There is no such program. */
  notFound: 127,
} as const;
