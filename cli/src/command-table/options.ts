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
    defaultText: "the current context, which `millpond up` writes",
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
    description: "Why, for the audit and whoever looks",
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
    type: "percent",
    description:
      "Memory and compute of each vGPU as a fraction of its device: 0.5; --memory and --compute win",
  },
  timeout: {
    flags: "--timeout <duration>",
    type: "duration",
    description: "Give up when the pool has had no room for so long: 90s, 10m; 0 waits for ever",
    env: "MILLPOND_WAIT_TIMEOUT",
    defaultText: "0",
  },
  wait: {
    flags: "--no-wait",
    type: "flag",
    description: "Fail at once when the pool has no room",
  },
  name: {
    flags: "--name <name>",
    type: "name",
    description: "Name of the claim",
    defaultText: "made up",
  },
} as const satisfies Record<string, OptionSpec>;

export const output = {
  output: {
    flags: "-o, --output <format>",
    type: "choice",
    choices: ["table", "wide", "name", "json"],
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
