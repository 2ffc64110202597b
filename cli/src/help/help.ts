// SPDX-License-Identifier: Apache-2.0

import {
  type CommandName,
  commandNames,
  commandSpecs,
  type OptionSpec,
} from "../command-table/command-table.ts";

const groups = ["Run programs", "View the pool", "Your pools", "Operate", "Serve"] as const;

/** The usage line of a command, without `Usage: `. */
export function usageOf(name: CommandName): string {
  const spec = commandSpecs[name];
  const words = spec.arguments.map((argument) => {
    if (argument.isProgram) return "[--] <program> [args...]";
    if (argument.isFiles) return `<${argument.name}...>`;
    const shown = argument.choices === undefined ? argument.name : argument.choices.join("|");
    return argument.isOptional ? `[${shown}]` : `<${shown}>`;
  });
  const options = Object.keys(spec.options).length > 0 ? ["[options]"] : [];
  return ["millpond", name, ...options, ...words].join(" ");
}

/** Returns an option's description with its choices, environment variable and default. */
export function describeOption(spec: OptionSpec): string {
  const choices = spec.choices === undefined ? "" : `: ${spec.choices.join(", ")}`;
  const notes = [
    ...(spec.env === undefined ? [] : [`env ${spec.env}`]),
    ...(spec.defaultText === undefined ? [] : [`default: ${spec.defaultText}`]),
  ];
  return `${spec.description}${choices}${notes.length === 0 ? "" : ` (${notes.join("; ")})`}`;
}

/** Text is never wider than this, however wide the terminal, nor narrower. */
const widest = 120;
const narrowest = 40;

/** The terminal width, in columns, for which the help is formatted. */
export function helpWidth(columns: number | undefined, environment: NodeJS.ProcessEnv): number {
  const given = Number(environment["COLUMNS"] ?? "") || columns || widest;
  return Math.min(widest, Math.max(narrowest, Math.floor(given)));
}

/** The help text of a command: examples before options. */
export function renderCommandHelp(name: CommandName, width: number): string {
  const spec = commandSpecs[name];
  const parts = [`Usage: ${usageOf(name)}`, ...paragraphs(`${spec.summary}.`, width)];
  if (spec.description !== undefined) parts.push(...paragraphs(spec.description, width));
  if (spec.examples.length > 0) {
    parts.push(
      section(
        "Examples",
        twoColumns(
          spec.examples.map(({ command, what }) => [command, what]),
          width,
        ),
      ),
    );
  }
  const named = spec.arguments.filter((argument) => !argument.isProgram);
  if (named.length > 0) {
    parts.push(
      section(
        "Arguments",
        twoColumns(
          named.map(({ name: argument, description, choices }) => [
            `<${argument}>`,
            choices === undefined ? description : `${description}: ${choices.join(", ")}`,
          ]),
          width,
        ),
      ),
    );
  }
  const options = Object.values(spec.options).map((option): [string, string] => [
    option.flags.startsWith("--") ? `    ${option.flags}` : option.flags,
    describeOption(option),
  ]);
  parts.push(section("Options", twoColumns([...options, ["-h, --help", "Show this help"]], width)));
  if (hasDurations(name)) parts.push(...paragraphs(durationText, width));
  return `${parts.join("\n\n")}\n`;
}

/** The notation of durations, for all options that take one. */
export const durationText =
  "Durations are written 90s, 15m, 1h30m or 2d. A number without a unit counts seconds: 5 is five seconds.";

export function hasDurations(name: CommandName): boolean {
  const options: readonly OptionSpec[] = Object.values(commandSpecs[name].options);
  return options.some(({ type }) => type === "duration" || type === "period");
}

/** The help text of `millpond` without a command. */
export function renderHelp(width: number): string {
  const parts = [
    "Usage: millpond <command> [options]",
    ...paragraphs("Runs unmodified CUDA programs on vGPUs from a pool of GPUs.", width),
    section(
      "Examples",
      twoColumns(
        [
          ["millpond up", "a pool on this machine, with software GPUs where there are no real ones"],
          ["millpond run -n 1 -m 1Gi -- ./program", "in another terminal: the program on a vGPU with 1 GiB"],
          ["millpond smi", "which programs use which GPUs"],
          ["millpond doctor", "what is wrong, and how to repair it"],
        ],
        width,
      ),
    ),
  ];
  for (const group of groups) {
    const rows = commandNames
      .filter((name) => commandSpecs[name].group === group)
      .map((name): [string, string] => [name, commandSpecs[name].summary]);
    parts.push(section(group, twoColumns(rows, width)));
  }
  parts.push(
    section(
      "Options",
      twoColumns(
        [
          ["-h, --help", "Show this help, or that of a command"],
          ["-V, --version", "Show the version"],
        ],
        width,
      ),
    ),
    ...paragraphs("Use `millpond <command> --help` for more about a command.", width),
  );
  return `${parts.join("\n\n")}\n`;
}

function section(title: string, body: string): string {
  return `${title}:\n${body}`;
}

/**
 * Aligns descriptions, except those next to the few left columns that are far longer than the rest, and wraps them at the
 * width.
 */
function twoColumns(rows: readonly (readonly [string, string])[], columns: number): string {
  const widthLimit = Math.min(44, Math.floor(columns / 2));
  const width = Math.max(...rows.map(([left]) => left.length).filter((length) => length <= widthLimit), 0);
  const margin = " ".repeat(width + 5);
  return rows
    .map(([left, right]) => {
      const lines = wrap(right, columns - margin.length);
      if (left.length > width) return [`  ${left}`, ...lines.map((line) => `${margin}${line}`)].join("\n");
      return lines
        .map((line, index) => `${index === 0 ? `  ${left.padEnd(width)}   ` : margin}${line}`)
        .join("\n");
    })
    .join("\n");
}

/** The paragraphs of a text, each wrapped at the width. */
function paragraphs(text: string, width: number): string[] {
  return text.split("\n\n").map((paragraph) => wrap(paragraph, width).join("\n"));
}

/** Wraps a text between words; a word that is too long gets a line of its own. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
