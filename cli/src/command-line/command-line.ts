// SPDX-License-Identifier: Apache-2.0

import { Command, CommanderError } from "commander";
import {
  type CommandName,
  type CommandSpec,
  commandNames,
  commandSpecs,
  exitStatus,
} from "../command-table/command-table.ts";
import { helpWidth, renderCommandHelp, renderHelp } from "../help/help.ts";
import { programVersion } from "./version.ts";

/** A parsed command line whose option values have not been read yet. */
export interface Invocation {
  readonly command: CommandName;
  readonly options: Readonly<Record<string, string | boolean | undefined>>;
  readonly args: readonly string[];
}

/** A command line that cannot be parsed. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  readonly remedy: string;

  constructor(what: string, remedy: string) {
    super(what);
    this.remedy = remedy;
  }
}

/**
 * Reads a command line, `argv` without the program's name. Returns help and version texts for the caller to print.
 *
 * @throws UsageError
 */
export function parseCommandLine(argv: readonly string[]): Invocation | { readonly text: string } {
  if (argv.length === 0) return { text: renderHelp(ownWidth()) };
  let invocation: Invocation | undefined;
  let text = "";
  let failedCommand: CommandName | undefined;
  const program = new Command("millpond")
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ writeOut: (chunk) => (text += chunk), writeErr: () => undefined })
    .version(programVersion, "-V, --version");
  program.helpInformation = () => renderHelp(ownWidth());
  for (const name of commandNames) {
    const spec = commandSpecs[name];
    const command = declare(program.command(name), name, spec);
    command.exitOverride((error) => {
      failedCommand = name;
      throw error;
    });
    command.action(() => {
      // A variadic argument is a nested list.
      const args = (command.processedArgs as (string | string[] | undefined)[])
        .flat()
        .filter((argument) => argument !== undefined);
      invocation = { command: name, options: command.opts(), args };
    });
  }
  try {
    program.parse([...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === exitStatus.ok || error.code === "commander.help") return { text };
    const [, given] = argv;
    if (error.code === "commander.missingArgument" && failedCommand !== undefined && given !== undefined) {
      // An error about the first argument is more helpful than a message that the second one is missing.
      withChoices({ command: failedCommand, options: {}, args: given.startsWith("-") ? [] : [given] });
    }
    throw usageError(error, failedCommand);
  }
  if (invocation === undefined) return { text: renderHelp(ownWidth()) };
  return withChoices(invocation);
}

function ownWidth(): number {
  return helpWidth(process.stdout.columns, process.env);
}

function declare(command: Command, name: CommandName, spec: CommandSpec): Command {
  command.helpInformation = () => renderCommandHelp(name, ownWidth());
  for (const { name: argument, isOptional, isProgram, isFiles } of spec.arguments) {
    if (isProgram) command.argument(`<${argument}...>`).passThroughOptions();
    else if (isFiles) command.argument(`<${argument}...>`);
    else command.argument(isOptional ? `[${argument}]` : `<${argument}>`);
  }
  for (const option of Object.values(spec.options)) command.option(option.flags, option.description);
  return command;
}

/** Commands of other tools, and their equivalents here. */
const elsewhere: Readonly<Record<string, string>> = {
  cancel: "Release a claim with `millpond release`; end a program of `millpond run` with Ctrl-C.",
  scancel: "Release a claim with `millpond release`; end a program of `millpond run` with Ctrl-C.",
  kill: "Release a claim with `millpond release`; end a program of `millpond run` with Ctrl-C.",
  exec: "Run a program in an existing claim with `millpond run --claim NAME -- PROGRAM`.",
  submit: "Run a program with `millpond run -- PROGRAM`, or without a terminal with `millpond run --detach`.",
  sbatch: "Run a program with `millpond run -- PROGRAM`, or without a terminal with `millpond run --detach`.",
  srun: "Run a program with `millpond run -- PROGRAM`.",
  squeue: "List waiting claims with `millpond get claims`; `millpond why` explains one claim.",
  delete: "Release a claim with `millpond release`, a queue with `millpond queue delete`.",
  sinfo: "List nodes with `millpond get nodes`, and queues with `millpond get queues`.",
  ls: "List the pool with `millpond get claims`, `get nodes`, `get devices` and others: `millpond get --help`.",
  list: "List the pool with `millpond get claims`, `get nodes`, `get devices` and others: `millpond get --help`.",
  ps: "List running programs with `millpond get sessions`, or watch them with `millpond top`.",
  status: "Show the pool with `millpond smi`, and check it with `millpond doctor`.",
};

function usageError(error: CommanderError, command: CommandName | undefined): UsageError {
  const [first = "", ...more] = error.message.split("\n");
  const help = `See \`millpond ${command === undefined ? "" : `${command} `}--help\`.`;
  const unknown = /unknown command '([^']*)'/.exec(first)?.[1] ?? "";
  const known = elsewhere[unknown];
  if (known !== undefined) return new UsageError(first.replace(/^error: /, ""), known);
  const suggestion = /\(Did you mean (.*)\?\)/.exec(more.join(" "))?.[1];
  return new UsageError(
    first.replace(/^error: /, "").replace(/\.$/, ""),
    suggestion === undefined ? help : `Did you mean ${suggestion}? ${help}`,
  );
}

/**
 * Returns the invocation with its arguments as the command knows them: a kind may be named in the singular or plural.
 *
 * @throws UsageError for an argument outside its choices
 */
function withChoices(invocation: Invocation): Invocation {
  const { command, args } = invocation;
  const taken = [...args];
  for (const [position, { name, choices }] of commandSpecs[command].arguments.entries()) {
    const given = args[position];
    if (choices === undefined || given === undefined) continue;
    const same = choices.find(
      (choice) => choice === given || choice === `${given}s` || `${choice}s` === given,
    );
    if (same !== undefined) {
      taken[position] = same;
      continue;
    }
    const near = choices.find((choice) => choice.startsWith(given.slice(0, 3)));
    throw new UsageError(
      `${name}: ${JSON.stringify(given)} is not one of ${choices.join(", ")}`,
      near === undefined ? `See \`millpond ${command} --help\`.` : `Did you mean ${near}?`,
    );
  }
  return { ...invocation, args: taken };
}
