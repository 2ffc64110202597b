// SPDX-License-Identifier: Apache-2.0

// Options that several commands have.

import { claimFields } from "@millpond/api/claim-fields";
import type { OptionSpec } from "./spec.ts";

export const connection = {
  controller: {
    flags: "--controller <url>",
    type: "text",
    description: "Base URL of the controller; of several, separated by commas",
    env: "MILLPOND_CONTROLLER",
    defaultText: "the current context's, which `millpond login` and `millpond up` write",
  },
  context: {
    flags: "--context <name>",
    type: "name",
    description: "Context to use instead of the current one",
    env: "MILLPOND_CONTEXT",
    defaultText: "see `millpond context list`",
  },
  token: {
    flags: "--token <token>",
    type: "text",
    description: "Token for the controller",
    env: "MILLPOND_TOKEN",
    defaultText: "the current context's",
  },
} as const satisfies Record<string, OptionSpec>;

export const changing = {
  reason: {
    flags: "--reason <text>",
    type: "text",
    description: "Reason, recorded in the audit log and shown by `describe`",
    env: "MILLPOND_REASON",
    defaultText: "none",
  },
  ...connection,
} as const satisfies Record<string, OptionSpec>;

export const request = {
  ...claimFields,
  gpuMemory: {
    flags: "--gpu-memory <size>",
    type: "memory",
    description: "Same as --memory",
    aliasOf: "memory",
  },
  partial: {
    flags: "-p, --partial <fraction>",
    type: "fraction",
    description:
      "Memory and compute of each vGPU as a fraction of its device: 0.5 or 50%, 1.0 is all; --memory, --compute override it",
  },
  timeout: {
    flags: "--timeout <duration>",
    type: "duration",
    description: "How long to wait for capacity: 90s, 10m; 0 waits indefinitely",
    env: "MILLPOND_WAIT_TIMEOUT",
    defaultText: "0",
  },
  wait: {
    flags: "--no-wait",
    type: "flag",
    description: "Fail immediately if the claim cannot be bound now",
  },
  name: {
    flags: "--name <name>",
    type: "name",
    description: "Name of the claim",
    defaultText: "generated",
  },
} as const satisfies Record<string, OptionSpec>;

/** Use an existing claim, in place of one that is created for the program. */
export const existing = {
  claim: {
    flags: "--claim <name>",
    type: "name",
    description: "Run in this existing claim and keep it; excludes options that describe a new claim",
    env: "MILLPOND_CLAIM",
    defaultText: "a new claim",
  },
} as const satisfies Record<string, OptionSpec>;

export const output = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["table", "wide", "name", "json", "yaml", "jsonpath=<path>"],
    description: "Output format; json is for scripts and stable within v1",
    defaultText: "table",
  },
} as const satisfies Record<string, OptionSpec>;

export const jsonOutput = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["text", "json"],
    description: "Output format",
    defaultText: "text",
  },
} as const satisfies Record<string, OptionSpec>;
