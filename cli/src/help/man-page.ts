// SPDX-License-Identifier: Apache-2.0

// The manual: one page for millpond and one for each command, generated from the command table.

import {
  type CommandName,
  commandNames,
  commandSpecs,
  type OptionSpec,
} from "../command-table/command-table.ts";
import { describeOption, durationText, hasDurations, usageOf } from "./help.ts";

export interface ManPage {
  /** `millpond-run.1`. */
  readonly file: string;
  readonly text: string;
}

/** @param version version of the package */
export function renderManPages(version: string): readonly ManPage[] {
  return [
    { file: "millpond.1", text: renderOverview(version) },
    ...commandNames.map((name) => ({ file: `millpond-${name}.1`, text: renderCommand(name, version) })),
  ];
}

function renderOverview(version: string): string {
  const commands = commandNames.flatMap((name) => [
    ".TP",
    `.B millpond\\-${escapeText(name)}(1)`,
    escapeText(`${commandSpecs[name].summary}.`),
  ]);
  return page([
    header("MILLPOND", version),
    ".SH NAME",
    "millpond \\- run CUDA programs on virtual GPUs from a pool",
    ".SH SYNOPSIS",
    ".B millpond",
    ".I command",
    "[options]",
    ".SH DESCRIPTION",
    "Runs unmodified CUDA programs on vGPUs from a pool of all GPUs of a data centre, and manages that pool.",
    ".SH COMMANDS",
    ...commands,
    ...files,
    ".SH ENVIRONMENT",
    "Each option of a command that can be given by a variable says so.",
    ".SH EXIT STATUS",
    "0: success. 1:",
    ".B millpond doctor",
    "found something. 118: a wrong command line. 119: the controller is not reached. 120: the token lacks the right. 121: what is named does not exist. 122: no node could hold the claim. 123: there is no room now. 124: no room within the timeout. 125: any other error.",
    ".B millpond run",
    "exits with the status of its program; 75 if the claim was preempted.",
  ]);
}

const files = [
  ".SH FILES",
  ".TP",
  ".I ~/.config/millpond/config.json",
  "Known pools, written by millpond\\-login(1) and millpond\\-up(1).",
  ".TP",
  ".I /etc/millpond/controller.yaml, /etc/millpond/agent.yaml",
  "Options of the services.",
  ".TP",
  ".I /var/lib/millpond",
  "State of the controller and of the agent.",
] as const;

function renderCommand(name: CommandName, version: string): string {
  const { summary, description, examples, arguments: args, options } = commandSpecs[name];
  const named = args.filter(({ isProgram }) => !isProgram);
  return page([
    header(`MILLPOND-${name.toUpperCase()}`, version),
    ".SH NAME",
    `millpond\\-${escapeText(name)} \\- ${escapeText(summary.charAt(0).toLowerCase() + summary.slice(1))}`,
    ".SH SYNOPSIS",
    `.B ${escapeText(usageOf(name))}`,
    ".SH DESCRIPTION",
    ...paragraphs(description ?? `${summary}.`),
    ...(named.length === 0 ? [] : [".SH ARGUMENTS"]),
    ...named.flatMap(({ name: argument, description: what, choices }) => [
      ".TP",
      `.I ${escapeText(argument)}`,
      escapeText(choices === undefined ? what : `${what}: ${choices.join(", ")}`),
    ]),
    ".SH OPTIONS",
    ...Object.values<OptionSpec>(options).flatMap((option) => [
      ".TP",
      `.B ${escapeText(option.flags)}`,
      escapeText(describeOption(option)),
    ]),
    ".TP",
    ".B \\-h, \\-\\-help",
    "Show a short help",
    ...(hasDurations(name) ? [".PP", escapeText(durationText)] : []),
    ...(examples.length === 0 ? [] : [".SH EXAMPLES"]),
    ...examples.flatMap(({ command, what }) => [".TP", escapeText(what), `.B ${escapeText(command)}`]),
    ".SH SEE ALSO",
    ".BR millpond (1)",
  ]);
}

function header(title: string, version: string): string {
  return `.TH ${escapeText(title)} 1 "" "Millpond ${escapeText(version)}" "Millpond Manual"`;
}

function paragraphs(text: string): string[] {
  return text
    .split("\n\n")
    .flatMap((paragraph, position) => [
      ...(position === 0 ? [] : [".PP"]),
      ...paragraph.split("\n").map((line) => escapeText(line)),
    ]);
}

/** Escapes text that roff would read as a request, an escape, or another kind of hyphen. */
function escapeText(text: string): string {
  return text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll("`", "")
    .replaceAll(/^([.'])/gm, "\\&$1");
}

function page(lines: readonly string[]): string {
  return `.\\" Made from the command table.\n${lines.join("\n")}\n`;
}
