// SPDX-License-Identifier: Apache-2.0

import { changing } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that change queues and tenants. */
export const queueCommands = {
  queue: {
    summary: "Create, change or delete a queue",
    description: `Queues share the pool by weighted fair share. A queue gets its guarantee before others get more than theirs; it may borrow
idle capacity of others, up to its limit. Omitted options keep their values.`,
    examples: [
      {
        command: "millpond queue create research --weight 3 --guaranteed gpus=8",
        what: "8 GPUs guaranteed, and three times the share of a queue of weight 1",
      },
      { command: "millpond queue create vision --parent research", what: "a child queue" },
      { command: "millpond queue change research --limit gpus=32,memory=4Ti", what: "with an upper bound" },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "change", "delete"] },
      { name: "name", description: "Name of the queue", names: "queues" },
    ],
    options: {
      parent: {
        flags: "--parent <name>",
        type: "name",
        description: "Parent queue; `none`: a root queue",
        defaultText: "none",
      },
      weight: {
        flags: "--weight <number>",
        type: "weight",
        description: "Weight among its siblings for capacity beyond the guarantees, 1 to 10000",
        defaultText: "1",
      },
      guaranteed: {
        flags: "--guaranteed <quota>",
        type: "quota",
        description:
          "Capacity that it gets before others get more than theirs: gpus=8,compute=800%,memory=1Ti, or none",
        defaultText: "none",
      },
      limit: {
        flags: "--limit <quota>",
        type: "quota",
        description: "Upper bound of all its claims together",
        defaultText: "none",
      },
      borrowing: {
        flags: "--borrowing <who>",
        type: "choice",
        choices: ["any", "preemptible", "none"],
        description: "Which claims may use idle capacity beyond the guarantee",
        defaultText: "any",
      },
      ...changing,
    },
    group: "Operate",
  },
  tenant: {
    summary: "Create, change or delete a tenant",
    description: `A user of a tenant is the name of a token: its limit holds for all claims that were created with the token. Options that are
not given stay as they are.`,
    examples: [
      {
        command: "millpond tenant create team-a --limit gpus=16",
        what: "for all of its claims together, in all queues",
      },
      { command: "millpond tenant change team-a --user-limit gpus=2", what: "each of its users" },
      { command: "millpond tenant change team-a --user ann --user-limit gpus=4", what: "one user" },
      {
        command: "millpond tenant change team-a --forget-user ann",
        what: "ann has the limit of the others again",
      },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "change", "delete"] },
      { name: "name", description: "Name of the tenant", names: "tenants" },
    ],
    options: {
      limit: {
        flags: "--limit <quota>",
        type: "quota",
        description: "Upper bound of all its claims together: gpus=8,compute=800%,memory=1Ti, or none",
        defaultText: "none",
      },
      userLimit: {
        flags: "--user-limit <quota>",
        type: "quota",
        description: "Upper bound for each user without an own limit; with --user, that user's own limit",
        defaultText: "none",
      },
      user: {
        flags: "--user <token>",
        type: "text",
        description: "Name of the token of the user that --user-limit is for",
        defaultText: "each user",
      },
      forgetUser: {
        flags: "--forget-user <token>",
        type: "text",
        description: "Remove a user's own limit; the limit for each user applies again",
      },
      ...changing,
    },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
