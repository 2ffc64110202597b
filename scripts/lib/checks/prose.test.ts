// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { commentBlocks, markersIn, messageBlocks, pageBlocks } from "./prose.ts";

test("comments are read in blocks, without their marks and without code", () => {
  const source = [
    "// SPDX-License-Identifier: Apache-2.0",
    "// One thing.",
    "// Its second line.",
    "const who = 1;",
    "/**",
    " * A docstring.",
    " *",
    " * @returns nothing",
    " */",
    "/// C++.",
  ].join("\n");
  expect(commentBlocks(source)).toEqual([
    "One thing. Its second line.",
    "A docstring.",
    "@returns nothing",
    "C++.",
  ]);
});

test("pages are read in paragraphs, items and rows, without code", () => {
  const page =
    "# Title\n\nOne\nparagraph.\n\n- first `who`\n- second\n\n| a | b |\n|---|---|\n\n```sh\nwho\n```\n";
  expect(pageBlocks(page)).toEqual(["# Title", "One paragraph.", "- first x", "- second", "| a | b |"]);
});

test("messages are read from string literals, without comments, imports and short texts", () => {
  const source = [
    'import { who } from "a file that nobody has";',
    '// "a comment that nobody reads"',
    'log("no level", "nobody reads the pipe any more");',
    "throw refused(`the claim ${name} is told nothing`);",
  ].join("\n");
  expect(messageBlocks(source)).toEqual(["nobody reads the pipe any more", "the claim x is told nothing"]);
});

test("constructions against the style are found, and their likes are not", () => {
  expect(markersIn("Whoever asks is told for so long.")).toEqual([
    "a person for a part",
    "is told",
    "bare so long, so many",
  ]);
  expect(markersIn("Of the change.")).toEqual(["fragment that begins with Of"]);
  expect(markersIn("Waits as long as the lease is renewed, so that nothing is lost.")).toEqual([]);
  expect(markersIn("Of course the controller knows what to do.")).toEqual([]);
});

test("literal translations are found, and their correct likes are not", () => {
  expect(markersIn("Returns what lies there.")).toEqual(["past event with what as a noun"]);
  expect(markersIn("The frame is no frame of ours.")).toEqual(["is no for is not a"]);
  expect(markersIn("The session goes on.")).toEqual(["goes on for continue"]);
  expect(markersIn("From here on the file counts.")).toEqual(["from here on for from now on"]);
  expect(markersIn("The session is made again.")).toEqual(["made again for restored"]);
  expect(markersIn("It stays in the books.")).toEqual(["books for accounting"]);
  expect(markersIn("As that, for a graph.")).toEqual(["as that for same"]);
  expect(
    markersIn("There is no room, and the lease is no longer valid; the loop goes on to the next node."),
  ).toEqual([]);
  expect(markersIn("The same, for a graph; the change was made twice, and is accounted for.")).toEqual([]);
});

test("frequent misspellings are found, and the right spellings are not", () => {
  expect(markersIn("The recieved lenght was transfered untill it occured.")).toEqual(["misspelt"]);
  expect(
    markersIn("The received length was transferred until it occurred; a separate, guaranteed address."),
  ).toEqual([]);
});
