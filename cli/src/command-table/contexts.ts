// SPDX-License-Identifier: Apache-2.0

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
    defaultText: "asked for on a terminal",
  },
} as const satisfies Record<string, OptionSpec>;

/** A token from a file: other users of the machine can read command lines. */
export const tokenFile = {
  tokenFile: {
    flags: "--token-file <file>",
    type: "text",
    description: "File with the token; - is standard input",
    defaultText: "none",
  },
} as const satisfies Record<string, OptionSpec>;

/** Commands for the pools that the user works with. */
export const contextCommands = {
  login: {
    summary: "Remember a pool and a token for it, and make it the current one",
    description: `Asks the controller whether the token is valid, and writes both into a context: all commands use the current one. If no
authority of this machine has signed the controller's certificate, the fingerprint of its authority is shown and must be
confirmed, or given with --fingerprint; from then on that authority is trusted, and no other.`,
    examples: [
      { command: "millpond login https://controller:7170", what: "asks for the token" },
      {
        command: "millpond login https://controller:7170 --token-file - --fingerprint sha256:… < token",
        what: "in a script",
      },
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
        defaultText: "asked for on a terminal",
      },
      ...tokenFile,
      ...trust,
      name: {
        flags: "--name <name>",
        type: "name",
        description: "Name of the context",
        defaultText: "the first part of the controller's host name",
      },
    },
    group: "Pools of yours",
  },
  logout: {
    summary: "Forget a pool and the token for it",
    description: "The token stays valid: `millpond token revoke` ends it.",
    examples: [{ command: "millpond logout", what: "the current one" }],
    arguments: [{ name: "name", description: "Name of the context", isOptional: true, names: "contexts" }],
    options: {},
    group: "Pools of yours",
  },
  context: {
    summary: "List the pools that are remembered, choose the current one, or delete one",
    examples: [
      { command: "millpond context list", what: "an asterisk marks the current one" },
      { command: "millpond context use prod", what: "all commands use it from now on" },
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
        description: "Form of the list; tokens are in none",
        defaultText: "table",
      },
    },
    group: "Pools of yours",
  },
} as const satisfies Record<string, CommandSpec>;
