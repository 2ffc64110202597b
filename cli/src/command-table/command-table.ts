// SPDX-License-Identifier: Apache-2.0

/**
 * Every command, argument and option of `millpond`, as data, by subject. The parser, the help texts, the shell completions
 * and docs/reference/cli.md all come from this table; command-modules.ts maps commands to their code.
 *
 * Import only tables here, because `--help` and completion must be instant.
 */

import { auditCommands } from "./audit.ts";
import { claimCommands } from "./claims.ts";
import { contextCommands } from "./contexts.ts";
import { nodeCommands } from "./nodes.ts";
import { planCommands } from "./plans.ts";
import { poolCommands } from "./pools.ts";
import { programCommands } from "./programs.ts";
import { queueCommands } from "./queues.ts";
import { serviceCommands } from "./services.ts";
import { tokenCommands } from "./tokens.ts";
import { viewCommands } from "./views.ts";
import type { CommandSpec } from "./spec.ts";

export type { ArgumentSpec, CommandSpec, OptionSpec, ValueType } from "./spec.ts";

/** In the order of the help. */
export const commandTable = {
  ...programCommands,
  ...viewCommands,
  ...claimCommands,
  ...contextCommands,
  ...nodeCommands,
  ...queueCommands,
  ...tokenCommands,
  ...auditCommands,
  ...poolCommands,
  ...planCommands,
  ...serviceCommands,
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof commandTable;

export const commandNames = Object.keys(commandTable) as readonly CommandName[];

/** The table without its literal types, for code that treats all commands alike. */
export const commandSpecs: Readonly<Record<CommandName, CommandSpec>> = commandTable;

/** Exit statuses of millpond itself. The exit status of a program that it ran is passed on. */
export const exitStatus = {
  ok: 0,
  /** Something is not as it should be, which the command was meant to detect. */
  finding: 1,
  /** The program's vGPUs were preempted: EX_TEMPFAIL of sysexits.h, try again. */
  preempted: 75,
  /** millpond failed. Most errors have a status of their own: exitStatuses in api/src/errors.ts. */
  failed: 125,
  /** The program exists but cannot be run. */
  cannotRun: 126,
  /** The program does not exist. */
  notFound: 127,
} as const;
