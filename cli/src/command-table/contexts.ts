// SPDX-License-Identifier: Apache-2.0

import { changing, connection, jsonOutput } from "./options.ts";
import type { CommandSpec, OptionSpec } from "./spec.ts";

/** Options by which the user establishes trust in a controller at first contact. */
export const trust = {
  ca: {
    flags: "--ca <file>",
    type: "text",
    description: "Certificate authority to trust, PEM: a file, or the certificate itself",
    env: "MILLPOND_CA",
    defaultText:
      "the machine's authorities, else the one that the controller shows, when its fingerprint is right",
  },
  fingerprint: {
    flags: "--fingerprint <sha256>",
    type: "text",
    description:
      "SHA-256 of the authority's certificate, as `millpond token create` and the controller's log show it",
    defaultText: "prompts on a terminal",
  },
} as const satisfies Record<string, OptionSpec>;

/** The token is read from a file, because other users of the machine can read command lines. */
export const tokenFile = {
  tokenFile: {
    flags: "--token-file <file>",
    type: "text",
    description: "File with the token; - is standard input",
    defaultText: "none",
  },
} as const satisfies Record<string, OptionSpec>;

/** Commands for the pools with which the user works. */
export const contextCommands = {
  login: {
    summary: "Store a pool with its token, and make it current",
    description: `Verifies the token with the controller, and stores both in a context, which all later commands use. If no authority of this
machine has signed the controller's certificate, the command shows the fingerprint of the authority, which must be
confirmed or given with --fingerprint; then only that authority is trusted.

With --oidc, a browser logs in at the pool's OpenID provider (docs/oidc.md), and the command stores the token of that login, which is
valid for twelve hours.`,
    examples: [
      { command: "millpond login https://controller:7170", what: "asks for the token" },
      {
        command: "millpond login https://controller:7170 --token-file - --fingerprint sha256:… < token",
        what: "in a script",
      },
      { command: "millpond login https://controller:7170 --oidc", what: "with an account, in a browser" },
    ],
    arguments: [
      { name: "controller", description: "Base URL of the controller; of several, separated by commas" },
    ],
    options: {
      token: {
        flags: "--token <token>",
        type: "text",
        description: "The token",
        env: "MILLPOND_TOKEN",
        defaultText: "prompts on a terminal",
      },
      ...tokenFile,
      oidc: {
        flags: "--oidc",
        type: "flag",
        description: "Log in at the pool's OpenID provider instead of with a token",
      },
      browser: {
        flags: "--no-browser",
        type: "flag",
        description: "With --oidc: only show the address, and open no browser",
      },
      ...trust,
      name: {
        flags: "--name <name>",
        type: "name",
        description: "Name of the context",
        defaultText: "the first part of the controller's host name",
      },
    },
    group: "Your pools",
  },
  logout: {
    summary: "Forget a pool and its token, or end a login elsewhere",
    description: `A login of \`login --oidc\` is ended at the controller, too. Other tokens stay valid: \`millpond token revoke\` ends them.

With --id, ends a login of \`millpond get logins\`, of a browser or a command line, without forgetting a pool: your own or, as
an administrator, another user's.`,
    examples: [
      { command: "millpond logout", what: "the current one" },
      {
        command: 'millpond logout --id 0f3a9c5d7e1b2468 --reason "laptop lost"',
        what: "a login of another machine",
      },
    ],
    arguments: [{ name: "name", description: "Name of the context", isOptional: true, names: "contexts" }],
    options: {
      id: { flags: "--id <id>", type: "text", description: "End this login instead" },
      ...changing,
    },
    group: "Your pools",
  },
  whoami: {
    summary: "Show the identity, role, tenant and expiry of your token",
    description: "Asks the controller, and shows which controller that is and where its address comes from.",
    examples: [
      { command: "millpond whoami", what: "with the current context" },
      { command: "millpond whoami --context prod -o json", what: "for scripts" },
    ],
    arguments: [],
    options: { ...jsonOutput, ...connection },
    group: "Your pools",
  },
  context: {
    summary: "List known pools, choose the current one, or delete one",
    examples: [
      { command: "millpond context list", what: "an asterisk marks the current one" },
      { command: "millpond context use prod", what: "used by all later commands" },
      { command: "millpond get nodes --context prod", what: "one command only" },
    ],
    arguments: [
      { name: "action", description: "What to do", choices: ["list", "use", "delete"] },
      { name: "name", description: "Name of the context; not for list", isOptional: true, names: "contexts" },
    ],
    options: {
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "name", "json"],
        description: "Output format; never includes tokens",
        defaultText: "table",
      },
    },
    group: "Your pools",
  },
} as const satisfies Record<string, CommandSpec>;
