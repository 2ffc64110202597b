// SPDX-License-Identifier: Apache-2.0

import { changing } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that change nodes and their devices. */
export const nodeCommands = {
  cordon: {
    summary: "Keep new claims off a node or a device",
    examples: [
      { command: "millpond cordon node-a", what: "running programs continue" },
      { command: 'millpond cordon node-a/3 --reason "fan replaced on Monday"', what: "one device" },
    ],
    arguments: [
      { name: "node", description: "Name of the node, or node/ordinal of a device", names: "nodes" },
    ],
    options: {
      ...changing,
    },
    group: "Operate",
  },
  uncordon: {
    summary: "Allow new claims on a node or a device again",
    description: `For a device, it also declares the card healthy: faults reported by its driver so far are ignored.`,
    examples: [
      { command: "millpond uncordon node-a", what: "undoes cordon and drain" },
      { command: 'millpond uncordon node-a/3 --reason "was reset"', what: "one device, after an Xid" },
    ],
    arguments: [
      { name: "node", description: "Name of the node, or node/ordinal of a device", names: "nodes" },
    ],
    options: { ...changing },
    group: "Operate",
  },
  drain: {
    summary: "Empty a node: cordon it and preempt its claims, after notice",
    description: `Claims get their notice (--grace), then wait for capacity elsewhere at their old place in the queue; claims
that programs created for themselves end. With --wait the command returns when the node is empty.`,
    examples: [{ command: "millpond drain node-a --reason maintenance --wait", what: "then switch it off" }],
    arguments: [{ name: "node", description: "Name of the node", names: "nodes" }],
    options: {
      wait: { flags: "--wait", type: "flag", description: "Return when the node is empty" },
      ...changing,
    },
    group: "Operate",
  },
  remove: {
    summary: "Remove a node from the pool permanently",
    description: `Drain the node and stop its agent first: the command refuses a node that holds allocations, or whose agent runs. To join
again, the agent needs a new token. Events, usage and the audit keep the node's history.`,
    examples: [
      {
        command:
          "millpond drain node-a --wait && ssh node-a systemctl stop millpond-agent && millpond remove node-a",
        what: "a host that is decommissioned",
      },
      { command: "millpond remove node-a --lost", what: "a host that was destroyed" },
    ],
    arguments: [{ name: "node", description: "Name of the node", names: "nodes" }],
    options: {
      lost: {
        flags: "--lost",
        type: "flag",
        description:
          "Its host is gone with all that ran there: write off its allocations; from 30 s after its agent's last report",
      },
      ...changing,
    },
    group: "Operate",
  },
  label: {
    summary: "Set or remove labels of a node",
    examples: [
      { command: "millpond label node-a --set zone=b,pool=training", what: "claims select nodes by them" },
      { command: "millpond label node-a --remove zone", what: "by key" },
    ],
    arguments: [{ name: "node", description: "Name of the node", names: "nodes" }],
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
} as const satisfies Record<string, CommandSpec>;
