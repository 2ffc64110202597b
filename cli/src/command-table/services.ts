// SPDX-License-Identifier: Apache-2.0

import type { CommandSpec } from "./spec.ts";

/** Commands for shells and for service managers. */
export const serviceCommands = {
  completion: {
    summary: "Print the completions of a shell",
    examples: [
      {
        command: "source <(millpond completion bash)",
        what: "bash and zsh; put it into ~/.bashrc or ~/.zshrc",
      },
      { command: "millpond completion fish | source", what: "fish" },
    ],
    arguments: [{ name: "shell", description: "The shell", choices: ["bash", "zsh", "fish"] }],
    options: {},
    group: "Operate",
  },
  controller: {
    summary: "Run a controller",
    examples: [],
    arguments: [],
    options: {},
    isRaw: true,
  },
  agent: {
    summary: "Run the agent of a node",
    examples: [],
    arguments: [],
    options: {},
    isRaw: true,
  },
} as const satisfies Record<string, CommandSpec>;
