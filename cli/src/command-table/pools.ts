// SPDX-License-Identifier: Apache-2.0

import { connection, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

const controllerState = {
  flags: "--state <dir>",
  type: "text",
  description: "State directory of the controller",
  defaultText: "~/.local/state/millpond/controller",
} as const;

/** Commands that start a pool and maintain its state. */
export const poolCommands = {
  store: {
    summary: "Copy the state of a controller into a database",
    description: `Copies everything or nothing: claims, nodes, queues, tenants, tokens, events, usage and the audit. The controller must not
run meanwhile; sessions continue. The database must not contain a state. Afterwards start the controllers on the database, with
the same --state directory, because tokens and certificates stay there. The file is left unchanged and no longer used.`,
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
    description: `Makes the running controller write a backup of its state into the folder backups of its state directory, and prints the path.
With --state, backs up the state of a stopped controller. The backup is one file: claims, nodes, queues, tenants, tokens, usage
and the audit, and, sealed with the pool key, the signing keys, the pool's certificate authority and the token files. The pool key
itself is not included: keep a copy of pool.key elsewhere. Back up a state in PostgreSQL with PostgreSQL's tools; see
docs/backup.md.`,
    examples: [
      { command: "millpond backup", what: "of a running controller" },
      {
        command: "millpond backup --state /var/lib/millpond/controller --to /mnt/pool.backup",
        what: "of a stopped controller",
      },
    ],
    arguments: [],
    options: {
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "State directory of a stopped controller",
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
    summary: "Restore the state of a controller from a backup",
    description: `The controller must not run. The previous contents of its state directory are kept beside the restored state. Running programs
continue: in the first 15 s after its start the controller adopts allocations made after the backup from the agents' reports, and
grants nothing else. Tokens, queues and tenants are those of the backup.

With --store instead of a file: run this after PostgreSQL's own tools have restored the database, so that controllers and agents
recognize the restore.

The backup's secrets are sealed with the pool key: that of the state directory, or of --key-file. If it is lost, --new-keys
omits them; the pool then gets new keys, token files and a new authority, and users and agents need the new ones.`,
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
      state: controllerState,
      store: {
        flags: "--store <url>",
        type: "text",
        description: "The restored database: postgres://user@host:5432/database",
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
        description: "The pool key is lost: omit the secrets sealed with it",
      },
    },
    group: "Operate",
  },
  downgrade: {
    summary: "Downgrade the state of a controller to the previous release",
    description: `Stop the controllers first; after this command, start those of the previous release. Claims with their GPUs, queues,
tenants, nodes and tokens stay, and running programs continue.

Lost is the state that the previous release does not know: the node of an agent's token, hashes of the audit, users in the usage, reasons of cordoned
devices, and all signing keys but the current one, so that tokens made by \`millpond env\` and \`millpond run\` end. The previous release
stores its signing key unsealed. A state directory is backed up into a file in it first; back up a database with its own tools.

After a restore, wait until all nodes are back before a downgrade.`,
    examples: [
      {
        command: "millpond downgrade --state /var/lib/millpond/controller",
        what: "then install the previous release, and start it",
      },
      {
        command:
          "millpond downgrade --store postgres://millpond@db/millpond --key-file /etc/millpond/pool.key",
        what: "of several controllers, all of which are stopped",
      },
    ],
    arguments: [],
    options: {
      state: controllerState,
      store: {
        flags: "--store <url>",
        type: "text",
        description: "Database of the controllers: postgres://user@host:5432/database",
        defaultText: "the state is in a file",
      },
      keyFile: {
        flags: "--key-file <file>",
        type: "text",
        description: "Pool key, with which the signing key in a database is sealed",
        defaultText: "pool.key in the state directory",
      },
    },
    group: "Operate",
  },
  up: {
    summary: "Start a pool on this machine: a controller and an agent",
    description: `Offers this machine's NVIDIA GPUs, or, if there are none or with --soft, software GPUs that run CUDA programs on the CPU.
Writes the context that other commands then use. Ctrl-C ends the whole pool, and so does \`millpond down\`.

Every start creates an empty pool and keeps only the token files and certificates of the previous one. To keep queues, tenants,
tokens and usage, use \`millpond controller\` and \`millpond agent\`, or --store here.`,
    examples: [
      { command: "millpond up", what: "then, in another terminal: millpond run -n 1 -m 1Gi -- ./program" },
      {
        command: "millpond up --soft --nodes 2 --devices 2",
        what: "a pool of two nodes with two software GPUs each",
      },
      { command: "millpond up -d; millpond down", what: "without a terminal, and its end" },
    ],
    arguments: [],
    options: {
      detach: {
        flags: "-d, --detach",
        type: "flag",
        description: "Return when the pool is ready, and keep it running until `millpond down`",
      },
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
      encrypt: {
        flags: "--encrypt",
        type: "flag",
        description: "Also encrypt connections between programs and nodes on loopback",
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
  down: {
    summary: "End the pool that `millpond up` runs on this machine",
    description: "Ends its sessions, its agents and its controller, and returns when all of them have ended.",
    examples: [{ command: "millpond down", what: "after millpond up -d" }],
    arguments: [],
    options: {
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "State directory of the pool",
        defaultText: "~/.local/state/millpond",
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
  "support-bundle": {
    summary: "Collect what a report of a problem needs in one archive, without secrets",
    description: `Writes a tar archive with the versions, the host, the findings of \`millpond doctor\`, the configuration of the services of
this host, the nodes, devices, claims, sessions, queues, tenants and newest events of the pool, and the last MiB of each log of
this host's services and workers. Run it as root on a controller or a GPU host, so that it can read their logs.

Only listed members of configurations and logs are taken. All texts are searched for the tokens, passwords and keys that this
host knows, and for whatever has the form of one. Names of users, hosts and programs remain: look through the archive before you
pass it on.`,
    examples: [
      { command: "millpond support-bundle", what: "into the current folder" },
      { command: "sudo millpond support-bundle --to /tmp/case-17.tar.gz", what: "into a given file" },
    ],
    arguments: [],
    options: {
      to: {
        flags: "--to <file>",
        type: "text",
        description: "File to write; nothing is overwritten",
        defaultText: "millpond-support-<host>-<time>.tar.gz",
      },
      state: {
        flags: "--state <dir>",
        type: "text",
        description: "State directory of `millpond up`, for its logs",
        defaultText: "~/.local/state/millpond",
      },
      ...connection,
    },
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
