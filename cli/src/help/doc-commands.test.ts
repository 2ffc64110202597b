// SPDX-License-Identifier: Apache-2.0
// Checks that this version understands every command in the pages: names, arguments, options and their choices.
// test/quickstart.test.ts also runs those of the quickstart.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { parseCommandLine } from "../command-line/command-line.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
/** Generated from the command table itself. */
const generated = "docs/reference/cli.md";

/** Commands in the code blocks of a page, without prompts, variables, redirections and comments. */
function commandsOf(page: string): string[] {
  const text = readFileSync(`${root}/${page}`, "utf8");
  return [...text.matchAll(/^```.*\n([^]*?)^```$/gm)]
    .flatMap(([, block = ""]) => block.replaceAll(/\\\n\s*/g, "").split("\n"))
    .flatMap((line) => /^(?:\$ )?(?:\w+=\S* )*(?:npx )?millpond ([a-z][^]*)$/.exec(line.trim())?.[1] ?? [])
    .filter((command) => /^[a-z-]+(?:\s|$)/.test(command))
    .map((command) => command.replace(/(?:\s{2,}|\s(?:#|<<|[|>]))[^]*$/, "").trim());
}

/** Commands within sentences, up to the first pipe. */
function inlineCommandsOf(page: string): string[] {
  const text = readFileSync(`${root}/${page}`, "utf8").replaceAll(/^```[^]*?^```$/gm, "");
  return [...text.matchAll(/`millpond ([a-z][^`]*)`/g)].flatMap(([, command = ""]) =>
    command.replaceAll(/\s+/g, " ").split(" | ").slice(0, 1),
  );
}

/** Commands that alerts recommend. */
function alertCommands(): string[] {
  const rules = readFileSync(`${root}/packaging/prometheus/millpond.rules.yml`, "utf8");
  return [...rules.matchAll(/\bmillpond ([a-z][^",]*)/g)].map(([, command = ""]) =>
    command.replaceAll(/\{\{[^}]*\}\}/g, "x").trim(),
  );
}

/** Words of a command as a shell would pass them; an ellipsis that is not an option's value stands for further options. */
function wordsOf(command: string): string[] {
  const words = [...command.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) =>
    word.replaceAll(/["']/g, ""),
  );
  return words.filter((word, at) => word !== "…" || (words[at - 1]?.startsWith("-") ?? false));
}

const pages = globSync(["*.md", "docs/*.md", "docs/reference/*.md"], { cwd: root }).filter(
  (page) => page !== generated && page !== "CHANGELOG.md",
);
const commands = pages.flatMap((page) => commandsOf(page).map((command) => ({ page, command })));

it("finds commands in many pages", () => {
  expect(new Set(commands.map(({ page }) => page)).size).toBeGreaterThan(8);
});

it.each(commands)("$page: millpond $command", ({ command }) => {
  expect(parseCommandLine(wordsOf(command))).toHaveProperty("command");
});

const alerted = alertCommands();

it.each(alerted)("an alert advises: millpond %s", (command) => {
  expect(parseCommandLine(wordsOf(command))).toHaveProperty("command");
});

const inline = pages.flatMap((page) => inlineCommandsOf(page).map((command) => ({ page, command })));

it.each(inline)("$page says: millpond $command", ({ command }) => {
  let problem = "";
  try {
    parseCommandLine(wordsOf(command));
  } catch (error) {
    problem = String(error);
  }
  // A sentence may name a command or an option without its arguments.
  expect(problem).toMatch(/^$|missing required argument|argument missing/);
});
