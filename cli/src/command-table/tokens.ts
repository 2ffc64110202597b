// SPDX-License-Identifier: Apache-2.0

import { changing, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** The commands for tokens and for the keys that they are derived from. */
export const tokenCommands = {
  token: {
    summary: "Make, list or revoke tokens",
    description: `A user makes claims of one tenant and sees nothing of others; a tenant-admin makes tokens of that tenant too; an agent
reports the one node of its token; an admin does all but that. \`create\` prints the secret, which is not stored; \`list\` shows
the tokens that exist.`,
    examples: [
      {
        command: "millpond token create ann --tenant team-a --expires 90d",
        what: "then, for Ann: MILLPOND_TOKEN=<its output>",
      },
      { command: "millpond token create node-7 --role agent --node node-7", what: "for a new node" },
      { command: 'millpond token revoke ann --reason "left the team"', what: "effective immediately" },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["create", "list", "revoke"] },
      { name: "name", description: "Name of the token; not for list", names: "tokens", isOptional: true },
    ],
    options: {
      role: {
        flags: "--role <role>",
        type: "choice",
        choices: ["user", "tenant-admin", "agent", "admin"],
        description: "Role of the token",
        defaultText: "user",
      },
      tenant: {
        flags: "--tenant <name>",
        type: "name",
        description: "Tenant of a user or a tenant-admin",
        defaultText: "your own, or default",
      },
      node: {
        flags: "--node <name>",
        type: "node-name",
        description: "Node that an agent's token may report; no other",
        defaultText: "the first that joins with it",
      },
      expires: {
        flags: "--expires <duration>",
        type: "period",
        description: "Lifetime: 12h, 90d",
        defaultText: "forever",
      },
      ...jsonOutput,
      ...changing,
    },
    group: "Operate",
  },
  key: {
    summary: "List or rotate the keys that tickets are signed with",
    description: `\`rotate\` makes a new key: within a minute all tickets are signed with it, and two minutes later tickets of the earlier one
are refused. Running programs notice nothing: their tokens remain valid while their claims live. With --revoke, for a key that
was disclosed, nothing of earlier keys is accepted any longer: sessions continue, but programs that run cannot open new ones
until they are started again, and logins of the console end.`,
    examples: [
      { command: "millpond key list", what: "with the state of each" },
      { command: 'millpond key rotate --reason "every quarter"', what: "programs continue" },
      {
        command: 'millpond key rotate --revoke --reason "a laptop was stolen"',
        what: "effective within 2 s",
      },
    ],
    arguments: [{ name: "action", description: "What to do", choices: ["list", "rotate"] }],
    options: {
      revoke: {
        flags: "--revoke",
        type: "flag",
        description: "With rotate: accept nothing of the earlier keys any longer",
      },
      ...jsonOutput,
      ...changing,
    },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
