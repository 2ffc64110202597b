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

/** Commands in the code blocks of a page, without prompts, variables, redirections and remarks. */
function commandsOf(page: string): string[] {
  const text = readFileSync(`${root}/${page}`, "utf8");
  return [...text.matchAll(/^```.*\n([^]*?)^```$/gm)]
    .flatMap(([, block = ""]) => block.replaceAll(/\\\n\s*/g, "").split("\n"))
    .flatMap((line) => /^(?:\$ )?(?:\w+=\S* )*(?:npx )?millpond ([a-z][^]*)$/.exec(line.trim())?.[1] ?? [])
    .filter((command) => /^[a-z-]+(?:\s|$)/.test(command))
    .map((command) => command.replace(/(?:\s{2,}|\s(?:#|<<|[|>]))[^]*$/, "").trim());
}

/**
 * Words of a command as a shell would pass them; an ellipsis that is not an option's value stands for further
 * options.
 */
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
