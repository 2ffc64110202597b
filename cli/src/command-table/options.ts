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
    description: "The context to use in place of the current one",
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
    description: "The same as --memory",
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
    description: "Fail immediately when the pool has no room",
  },
  name: {
    flags: "--name <name>",
    type: "name",
    description: "Name of the claim",
    defaultText: "generated",
  },
} as const satisfies Record<string, OptionSpec>;

/** An existing claim, in place of one that is made for the program. */
export const existing = {
  claim: {
    flags: "--claim <name>",
    type: "name",
    description: "Run in this existing claim, which stays; not with options that describe a new claim",
    env: "MILLPOND_CLAIM",
    defaultText: "a claim of its own",
  },
} as const satisfies Record<string, OptionSpec>;

export const output = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["table", "wide", "name", "json", "yaml", "jsonpath=<path>"],
    description: "Form of the answer; json is for scripts and does not change within v1",
    defaultText: "table",
  },
} as const satisfies Record<string, OptionSpec>;

export const jsonOutput = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["text", "json"],
    description: "Form of the answer",
    defaultText: "text",
  },
} as const satisfies Record<string, OptionSpec>;
