// SPDX-License-Identifier: Apache-2.0

import { changing } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that change nodes and their devices. */
export const nodeCommands = {
  cordon: {
    summary: "Keep new claims off a node or a device",
    examples: [
      { command: "millpond cordon node-a", what: "what runs there goes on" },
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
    description: `For a device, it also declares the card healthy: faults that its driver has reported until now no longer count.`,
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
    summary: "Empty a node: cordon it, and take back the allocations on it, after notice",
    description: `Claims get the notice that they asked for (--grace), then wait for room elsewhere at their old place in the queue; claims
that programs made for themselves end. With --wait it returns when the node is empty.`,
    examples: [{ command: "millpond drain node-a --reason maintenance --wait", what: "then switch it off" }],
    arguments: [{ name: "node", description: "Name of the node", names: "nodes" }],
    options: {
      wait: { flags: "--wait", type: "flag", description: "Return when the node is empty" },
      ...changing,
    },
    group: "Operate",
  },
  remove: {
    summary: "Take a node out of the pool for good",
    description: `Drain it first and stop its agent: a node that holds allocations, or whose agent runs, is refused. The agent cannot join
again with its token: make a new one for that. Events, usage and the audit keep the node's history.`,
    examples: [
      {
        command:
          "millpond drain node-a --wait && ssh node-a systemctl stop millpond-agent && millpond remove node-a",
        what: "a host that is given away",
      },
      { command: "millpond remove node-a --lost", what: "a host that burnt down" },
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
      { command: "millpond label node-a --set zone=b,pool=training", what: "claims choose by them" },
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
