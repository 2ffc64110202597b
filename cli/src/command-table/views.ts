// SPDX-License-Identifier: Apache-2.0

import { changing, connection, jsonOutput, output } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that show the pool, and one that applies files to it. */
export const viewCommands = {
  smi: {
    summary: "Show devices, their allocations and their sessions",
    description: `With --query-gpu it prints a CSV. The names of the fields are those of nvidia-smi: index, name, uuid, pci.bus_id,
driver_version, compute_cap, memory.total, memory.used, memory.free, utilization.gpu. The pool adds node, node.state, health,
cordoned, vgpus, sessions, memory.granted, compute.granted.`,
    examples: [
      { command: "millpond smi", what: "like nvidia-smi, for the whole pool" },
      { command: "millpond smi -L", what: "one line for each device, with its UUID" },
      {
        command: "millpond smi --query-gpu=node,index,utilization.gpu,memory.used --format=csv,noheader -l 5",
        what: "for a script, every five seconds",
      },
    ],
    arguments: [],
    options: {
      list: { flags: "-L, --list", type: "flag", description: "Only list the devices and their UUIDs" },
      ...jsonOutput,
      queryGpu: {
        flags: "--query-gpu <fields>",
        type: "list",
        description: "Only these fields of each device, as CSV",
      },
      format: {
        flags: "--format <words>",
        type: "list",
        description: "Format of --query-gpu: csv, noheader, nounits, separated by commas",
        defaultText: "csv",
      },
      loop: {
        flags: "-l, --loop <period>",
        type: "period",
        description: "Print again after each period, until Ctrl-C",
        defaultText: "once",
      },
      ...connection,
    },
    group: "View the pool",
  },
  top: {
    summary: "Watch devices, claims, sessions and queues as they change",
    description: `Shows the allocated and the measured use of each device. The last line names the keys that sort and filter. If standard
output is not a terminal, or with --once, it prints one screen and exits.`,
    examples: [
      { command: "millpond top", what: "press ? for the keys, q to end" },
      { command: "millpond top claims --filter train", what: "claims whose line contains a text" },
      { command: "millpond top --once | head", what: "the busiest devices" },
    ],
    arguments: [
      {
        name: "view",
        description: "The first view",
        choices: ["devices", "claims", "sessions", "queues"],
        isOptional: true,
      },
    ],
    options: {
      filter: { flags: "--filter <text>", type: "text", description: "Only lines that contain this text" },
      delay: {
        flags: "-d, --delay <duration>",
        type: "duration",
        description: "Refresh interval, 1s to 10m",
        defaultText: "2s",
      },
      once: { flags: "--once", type: "flag", description: "Print one screen and exit" },
      ...connection,
    },
    group: "View the pool",
  },
  console: {
    summary: "Print the address of the web console, with a link that logs in once",
    description: `The link is valid for ten minutes and for one browser, which then has the rights of this command's token for twelve hours.
Do not pass it on.`,
    examples: [{ command: "millpond console", what: "open the second line in a browser" }],
    arguments: [],
    options: { ...jsonOutput, ...connection },
    group: "View the pool",
  },
  get: {
    summary: "List nodes, devices, claims, queues, tenants, sessions, events, tokens, logins or the audit",
    examples: [
      { command: "millpond get devices", what: "the GPUs of the pool" },
      { command: "millpond get claims -w", what: "claims and their changes" },
      { command: "millpond get sessions -o json", what: "for scripts" },
      {
        command: "millpond get claims --where state=pending,gpus>=4 --sort-by -priority",
        what: "selected and sorted",
      },
      { command: "millpond get claims -o jsonpath='{.items[*].name}'", what: "only the names" },
      {
        command: "millpond get audit -w --after 4711",
        what: "changes with author and reason, after a known record",
      },
    ],
    arguments: [
      {
        name: "kind",
        description: "What to list",
        choices: [
          "nodes",
          "devices",
          "claims",
          "queues",
          "tenants",
          "sessions",
          "events",
          "tokens",
          "logins",
          "audit",
        ],
      },
      { name: "name", description: "Only the object of this name", isOptional: true, names: "of-kind" },
    ],
    options: {
      ...output,
      selector: {
        flags: "-l, --selector <labels>",
        type: "text",
        description: "Only objects with these labels: zone=b, zone!=b, zone, !zone, separated by commas",
      },
      where: {
        flags: "--where <conditions>",
        type: "text",
        description:
          "Only objects whose members, named as in -o json, meet all conditions: state=bound,allocation.node=node-a,priority>=10",
      },
      sortBy: {
        flags: "--sort-by <member>",
        type: "text",
        description: "Sort by a member, named as in -o json; a leading - sorts in descending order",
      },
      absolute: { flags: "--absolute", type: "flag", description: "Dates instead of ages, in UTC" },
      after: {
        flags: "--after <id>",
        type: "text",
        description: "Only events or audit records after this id",
        defaultText: "the newest 100",
      },
      watch: {
        flags: "-w, --watch",
        type: "flag",
        description:
          "Watch for changes, also while controllers restart; an object that ends is shown once more",
      },
      all: { flags: "-a, --all", type: "flag", description: "Also claims that have ended" },
      headers: { flags: "--no-headers", type: "flag", description: "Omit the column headings" },
      ...connection,
    },
    group: "View the pool",
  },
  describe: {
    summary: "Show all details of one node, device, claim, queue, tenant or session",
    examples: [
      { command: "millpond describe node node-a", what: "by name" },
      { command: "millpond describe device node-a/0", what: "by node and ordinal, or by UUID" },
      { command: "millpond describe claim claim-7f", what: "by a unique prefix of its name" },
    ],
    arguments: [
      {
        name: "kind",
        description: "Kind of the object",
        choices: ["node", "device", "claim", "queue", "tenant", "session"],
      },
      { name: "name", description: "Its name, or a unique prefix of it", names: "of-kind" },
    ],
    options: { ...jsonOutput, ...connection },
    group: "View the pool",
  },
  apply: {
    summary: "Create claims, queues and tenants from a file",
    description: `Reads YAML or JSON: one or more documents with \`kind: Claim\`, \`Queue\` or \`Tenant\`. A claim has the members of
docs/reference/claims.md, a name and a lease: it exists until it is released, or until the lease expires without renewal. An
existing claim with the same request is unchanged; queues and tenants are changed to match the file. The whole file is checked
first. Documents are applied in order, up to the first that the pool refuses; those before it remain.`,
    examples: [
      {
        command: "millpond apply -f claim.yaml",
        what: "then: millpond run --claim <name> -- ./program",
      },
      { command: "millpond apply -f -", what: "from standard input" },
      { command: "millpond apply -f team.yaml --dry-run", what: "what would change" },
      { command: "millpond apply -f team.yaml --delete", what: "release and delete what it describes" },
    ],
    arguments: [],
    options: {
      file: { flags: "-f, --file <path>", type: "text", description: "The file; - is standard input" },
      dryRun: {
        flags: "--dry-run",
        type: "flag",
        description: "Print the changes, and make none",
      },
      delete: {
        flags: "--delete",
        type: "flag",
        description: "Release the claims and delete the queues and tenants of the file, the last one first",
      },
      ...changing,
    },
    group: "Run programs",
  },
  explain: {
    summary: "Explain the members of a claim, queue or tenant in a file",
    examples: [
      { command: "millpond explain claim", what: "all members, with their defaults" },
      { command: "millpond explain claim placement", what: "one, with its option and variable" },
    ],
    arguments: [
      { name: "kind", description: "Kind of the document", choices: ["claim", "queue", "tenant"] },
      { name: "member", description: "A member of it", isOptional: true },
    ],
    options: {},
    group: "View the pool",
  },
  why: {
    summary: "Explain why a claim waits: for what, behind which claims, and until when",
    examples: [
      { command: "millpond why", what: "all that waits, by queue, in order" },
      { command: "millpond why train", what: "one claim, with current numbers" },
    ],
    arguments: [
      {
        name: "claim",
        description: "Name of the claim, or a unique prefix of it; without it, a line for each waiting claim",
        names: "claims",
        isOptional: true,
      },
    ],
    options: { ...jsonOutput, ...connection },
    group: "View the pool",
  },
  prometheus: {
    summary: "Write the files by which Prometheus finds and trusts the agents of the pool",
    description: `Writes agents.json, the list of agents for file_sd_configs; agents-ca.crt, the authorities of all agents; and controller-ca.crt,
the authority that this command trusts for the controller, if it is not one of the machine's. Each agent's authority is taken
from the agent itself and compared with the fingerprint that the controller knows. Repeat the command when nodes join, or run
it from a timer: files that would not change are left alone. An agent that does not answer keeps its authority of the last
time, and is reported with exit status 1.`,
    examples: [
      {
        command: "millpond prometheus --directory /etc/prometheus/millpond",
        what: "for the configuration in docs/reference/metrics.md",
      },
    ],
    arguments: [],
    options: {
      directory: {
        flags: "--directory <dir>",
        type: "text",
        description: "Existing folder for the files",
        defaultText: "the current folder",
      },
      ...connection,
    },
    group: "Operate",
  },
  usage: {
    summary: "Sum up the GPU-hours requested, granted, used and wasted, by queue, user, claim or model",
    description: `A vGPU counts as the greater of its shares of memory and compute. Asked (requested): while a claim waited or was bound; granted: while
it was bound; used: while its programs made calls; wasted: granted and not used.`,
    examples: [
      { command: "millpond usage --since 7d", what: "the last seven days" },
      {
        command: "millpond usage --since 2026-10-01 --until 2026-11-01 -o csv",
        what: "a month, for a spreadsheet",
      },
      { command: "millpond usage --since 7d --by user", what: "which users of which tenants" },
    ],
    arguments: [],
    options: {
      since: {
        flags: "--since <moment>",
        type: "text",
        description:
          "Start of the period: a duration before now, 7d, or a date, 2026-11-20 or 2026-11-20T12:00+01:00 (without a zone: UTC)",
        defaultText: "the earliest on record",
      },
      until: {
        flags: "--until <moment>",
        type: "text",
        description: "End of the period",
        defaultText: "now",
      },
      by: {
        flags: "--by <what>",
        type: "choice",
        choices: ["queue", "user", "claim", "model"],
        description:
          "Sum up, for each tenant, by queue, by user (the name of a token), by claim, or by model of GPU",
        defaultText: "queue",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "csv", "json"],
        description: "Output format",
        defaultText: "table",
      },
      ...connection,
    },
    group: "View the pool",
  },
} as const satisfies Record<string, CommandSpec>;
