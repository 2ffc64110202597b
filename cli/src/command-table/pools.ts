// SPDX-License-Identifier: Apache-2.0

import { connection, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that start a pool, keep its state and look after it. */
export const poolCommands = {
  store: {
    summary: "Copy the state of a controller into a database",
    description: `Copies all of it, or nothing: claims, nodes, queues, tenants, tokens, events, usage and the audit. The controller must not
run meanwhile; sessions go on. The database must hold no state. Then start the controllers on the database, with the same
--state directory: its tokens and certificates are not in the database. The file stays as it is, and is no longer used.`,
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
  backup: {
    summary: "Back up the state of a controller",
    description: `Has the running controller write a backup of its state, while it goes on, into the folder backups of its state directory,
and prints where. With --state, backs up the state of a controller that does not run. The backup is one file: claims, nodes,
queues, tenants, tokens, usage, the audit, and the signing keys, the pool's authority and the token files sealed with the pool
key, which is not in it: keep a copy of pool.key of the state directory elsewhere. A state in PostgreSQL is backed up with its tools; see docs/backup.md.`,
    examples: [
      { command: "millpond backup", what: "of the running controller" },
      {
        command: "millpond backup --state /var/lib/millpond/controller --to /mnt/pool.backup",
        what: "of a controller that was stopped",
      },
    ],
    arguments: [],
    options: {
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "State directory of a controller that does not run",
        defaultText: "ask the controller",
      },
      to: {
        flags: "--to <file>",
        type: "text",
        description: "File to write, with --state; nothing is overwritten",
        defaultText: "one in the folder backups of the state directory, by the time",
      },
      ...connection,
    },
    group: "Operate",
  },
  restore: {
    summary: "Put the state of a controller back from a backup",
    description: `The controller must not run. The contents of its state directory are kept beside the restored state. Programs that run go
on: in the first 15 s after the start, the controller takes over the allocations that were made after the backup from the
agents, and grants nothing else. Tokens, queues and tenants are those of the backup.

With --store instead of a file: after PostgreSQL's own tools have restored the database, this command lets controllers and
agents recognize it.

The backup's secrets are sealed with the pool key: that of the state directory, or of --key-file. Where it is lost, --new-keys
leaves them out; the pool then gets new keys, token files and authority, and what trusted the old ones has to be told.`,
    examples: [
      {
        command: "millpond restore 20261123T031500Z.backup --state /var/lib/millpond/controller",
        what: "then start the controller",
      },
      {
        command: "millpond restore --store postgres://millpond@db/millpond",
        what: "after pg_restore, before the first controller is started",
      },
    ],
    arguments: [{ name: "backup", description: "The backup", isOptional: true }],
    options: {
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "State directory of the controller",
        defaultText: "~/.local/state/millpond/controller",
      },
      store: {
        flags: "--store <url>",
        type: "text",
        description: "The database that was put back: postgres://user@host:5432/database",
        defaultText: "the backup is of a state in a file",
      },
      keyFile: {
        flags: "--key-file <file>",
        type: "text",
        description: "Pool key with which the backup is sealed",
        defaultText: "pool.key in the state directory",
      },
      newKeys: {
        flags: "--new-keys",
        type: "flag",
        description: "The pool key is lost: leave out what is sealed with it",
      },
    },
    group: "Operate",
  },
  up: {
    summary: "Start a pool on this machine: a controller and an agent",
    description: `Offers this machine's NVIDIA GPUs; where there are none, or with --soft, software GPUs that run CUDA programs on the CPU.
Writes the context that the other commands use from then on. Everything ends with this command: press Ctrl-C.

Each start makes a new pool, which keeps only the token files and the certificates of the one before. Queues, tenants, tokens
and usage are kept by \`millpond controller\` and \`millpond agent\`, or here with --store.`,
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
        description: "State directory",
        defaultText: "~/.local/state/millpond",
      },
      listen: {
        flags: "--listen <address>",
        type: "text",
        description: "Address of the controller, and of the nodes; beyond loopback with TLS",
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
    summary: "Check this machine and the pool, and show how to repair problems",
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
} as const satisfies Record<string, CommandSpec>;
