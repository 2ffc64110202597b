// SPDX-License-Identifier: Apache-2.0

import { changing, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** The commands for tokens and for the keys that they are derived from. */
export const tokenCommands = {
  token: {
    summary: "Create, list or revoke tokens",
    description: `A user creates claims of one tenant and cannot see other tenants; a tenant-admin also creates tokens for that tenant; an agent
reports the one node of its token; an admin may do everything else. \`create\` prints the secret, which is not stored; \`list\`
shows existing tokens.`,
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
    summary: "List or rotate the signing keys of tickets",
    description: `\`rotate\` creates a new key: within a minute it signs all tickets, and two minutes later tickets of the previous key
are refused. Running programs are not affected: their tokens remain valid while their claims exist. Use --revoke for a disclosed
key: everything signed by earlier keys is rejected. Sessions continue, but running programs cannot open new ones
until they are restarted, and console logins end.`,
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
