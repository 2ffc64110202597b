// SPDX-License-Identifier: Apache-2.0
// Looks for constructions that docs/style.md advises against, in comments, pages and messages. It matches words, not meaning: a marker
// may be legitimate, so each folder has a count that may fall and not rise.
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { must, ScriptError } from "../command.ts";
import { inRoot } from "../paths.ts";

interface Marker {
  readonly name: string;
  readonly pattern: RegExp;
}

/** Frequent misspellings. A dictionary would have to know every name of CUDA's API. */
const misspelt =
  /\b(accomodat\w*|acknowlegement|adress\w*|allways|apparantly|arbitary|availab(?:el|lity)|beggin\w*|calender|catagor\w*|commited|concurent\w*|consistant\w*|definat\w*|dependan(?:t|cy)|detatch\w*|existan\w*|explicitely|guarrant\w*|garantee\w*|heirarch\w*|immediat(?:ly|elly)|independan\w*|initalis\w*|initaliz\w*|intial\w*|langauge|lenght\w*|maintenence|neccessar\w*|necesar\w*|occured|occurence|occuring|paralell?\w*|paramter\w*|permanant\w*|persistan\w*|posses(?:es|ing)|prefered|priviledge\w*|propogat\w*|recieve\w*|refered|refering|relevent|retreiv\w*|schedul(?:ler|ling)|seperat\w*|sucess\w*|succesful\w*|supercede\w*|synchron(?:isiz|iz+is)\w*|teh|threshhold|transfered|transfering|truely|untill|usefull|wich|writen)\b/i;

export const markers: readonly Marker[] = [
  { name: "a person for a part", pattern: /\b(whoever|whomever|somebody|someone|nobody|who)\b/i },
  { name: "he for a process", pattern: /\b(he|his|him)\b/i },
  { name: "is told", pattern: /\b(is|are|was|were|been|be) told\b/i },
  { name: "anew, for ever, shall", pattern: /\b(anew|for ever|shall)\b/i },
  { name: "bare so long, so many", pattern: /\bso (long|often|many|much)\b(?! (as|that)\b)/i },
  { name: "fragment that begins with Of", pattern: /^(Of|Who|Whose) (?!course\b)[a-z]/ },
  {
    name: "what as a noun",
    pattern:
      /\b(of|for|from|by|with|than|and|is|are|has|have|in|to|keeps|tells) what (is|was|has|it|they|a|the|are|were)\b/i,
  },
  {
    name: "clause with what as its subject",
    pattern: /^What [a-z' ]+ (is|are|was|were|has|have|goes|comes)\b/,
  },
  {
    name: "past event with what as a noun",
    pattern: /\bwhat (was|were|had|came|lies|lay|runs|waits) (?!going on\b)[a-z]/i,
  },
  {
    name: "is no for is not a",
    pattern:
      /(?<!\bthere )\b(is|are|was|were) no (?!longer\b|more\b|less\b|one\b|other\b|better\b|worse\b|room\b)[a-z]/i,
  },
  { name: "goes on for continue", pattern: /\b(goes|going|went|gone) on\b(?! (to|with)\b)/i },
  { name: "from here on for from now on", pattern: /\bfrom here on\b/i },
  { name: "made again for restored", pattern: /\b(is|are|was|were|be|been) made again\b/i },
  {
    name: "books for accounting",
    pattern: /\b(in|of|from|on|for) the books\b|\bkeeps? (the )?(same )?books\b/i,
  },
  { name: "as that for same", pattern: /^As (that|this)[,;]/ },
  { name: "misspelt", pattern: misspelt },
];

/** Comment blocks of a source file: adjacent lines of `//` or `*`, joined, without their markers. */
export function commentBlocks(source: string): string[] {
  const blocks: string[] = [];
  let current: string[] = [];
  const end = (): void => {
    if (current.length > 0) blocks.push(current.join(" "));
    current = [];
  };
  for (const line of source.split("\n")) {
    // A line that only ends a comment leaves a slash behind.
    const text = /^\s*(?:\/\/[/<!]*|\/\*\*?|\*)\s?(.*?)(?:\*\/)?\s*$/.exec(line)?.[1];
    if (text === undefined || text === "" || text === "/") end();
    else if (!text.startsWith("SPDX-")) current.push(text);
  }
  end();
  return blocks;
}

/** Paragraphs, list items and table rows of a page, without code. */
export function pageBlocks(markdown: string): string[] {
  const prose = markdown.replaceAll(/^```[^]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "x");
  return prose
    .split(/\n\s*\n|\n(?=\s*[-*|\d])/)
    .map((block) => block.replaceAll(/\s+/g, " ").trim())
    .filter((block) => /[a-z]/.test(block));
}

/** Sentences in the string literals of a source file: messages, help texts, log lines. Embedded values are an `x`. */
export function messageBlocks(source: string): string[] {
  const code = source.replaceAll(/^\s*(\/\/|\*|\/\*).*$/gm, "").replaceAll(/^(import|#include) .*$/gm, "");
  return [...code.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)]
    .map(([, plain, template]) => (plain ?? template ?? "").replaceAll(/\$\{[^}]*\}/g, "x"))
    .map((text) => text.replaceAll(/\s+/g, " ").trim())
    .filter((text) => /^[a-z ,;]/i.test(text) && text.split(" ").length >= 4);
}

/** Names of the markers in a block. */
export function markersIn(block: string): string[] {
  return markers.filter(({ pattern }) => pattern.test(block)).map(({ name }) => name);
}

interface Tally {
  blocks: number;
  marked: number;
}

const sourceFile = /\.(ts|mjs|c|cpp|h|cu|proto)$/;
const notOurProse = /(^|\/)(gen|golden|node_modules)\/|^docs\/(decisions|reference)\//;
/** Code that talks to users. known_error.cpp has NVIDIA's own texts. */
const hasMessages =
  /^(agent|api|cli|console|controller|kubernetes|native|platform|scheduler|sdk|simulator)\/.*\.(ts|tsx|cpp)$/;
const noMessages =
  /\.test\.tsx?$|_(test|fuzz)\.cpp$|\/(bench|test|tests|testing|attacks)\/|^native\/cuda\/known_error\.cpp$/;
const baselinePath = inRoot("scripts", "lib", "checks", "prose-baseline.json");

/** The folder to which a file's count belongs: `native/worker`, `docs`. */
function folderOf(name: string): string {
  const parts = name.split("/");
  return parts.length === 1 ? "." : parts.slice(0, parts[0] === "native" ? 2 : 1).join("/");
}

async function blocksByFile(): Promise<ReadonlyMap<string, readonly string[]>> {
  const names = (await must("git", ["ls-files", "-z"])).split("\0");
  const result = new Map<string, readonly string[]>();
  for (const name of names) {
    if (name === "" || notOurProse.test(name) || !existsSync(inRoot(name))) continue;
    const isMessages = hasMessages.test(name) && !noMessages.test(name);
    if (!isMessages && !sourceFile.test(name) && !name.endsWith(".md")) continue;
    const text = await readFile(inRoot(name), "utf8");
    if (name.endsWith(".md")) result.set(name, pageBlocks(text));
    else result.set(name, [...commentBlocks(text), ...(isMessages ? messageBlocks(text) : [])]);
  }
  return result;
}

async function tally(): Promise<Record<string, Tally>> {
  const tallies: Record<string, Tally> = {};
  for (const [name, blocks] of await blocksByFile()) {
    const counts = (tallies[folderOf(name)] ??= { blocks: 0, marked: 0 });
    counts.blocks += blocks.length;
    counts.marked += blocks.filter((block) => markersIn(block).length > 0).length;
  }
  return tallies;
}

/** No folder has more marked blocks than its baseline, which `node scripts/start.mjs prose --keep` rewrites. */
export async function checkProse(): Promise<void> {
  const baseline = JSON.parse(await readFile(baselinePath, "utf8")) as Record<string, number>;
  const worse = Object.entries(await tally())
    .filter(([folder, { marked }]) => marked > (baseline[folder] ?? 0))
    .map(([folder, { marked }]) => `${folder}: ${marked} blocks, ${baseline[folder] ?? 0} before`);
  if (worse.length > 0) {
    throw new ScriptError(`more prose against docs/style.md than before:
  ${worse.join("\n  ")}
See which: node scripts/start.mjs prose FOLDER`);
  }
}

/** Prints the share of marked blocks by folder. */
export async function reportProse(): Promise<void> {
  const all: Tally = { blocks: 0, marked: 0 };
  for (const [folder, counts] of byName(await tally())) {
    console.log(reportLine(folder, counts));
    all.blocks += counts.blocks;
    all.marked += counts.marked;
  }
  console.log(reportLine("all", all));
}

function reportLine(name: string, { blocks, marked }: Tally): string {
  const share = ((100 * marked) / Math.max(blocks, 1)).toFixed(1);
  return `${name.padEnd(24)} ${String(marked).padStart(5)} of ${String(blocks).padStart(5)}  ${share.padStart(5)} %`;
}

/** Entries in the order of their keys. */
function byName<T>(record: Readonly<Record<string, T>>): [string, T][] {
  return Object.entries(record).toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/** Prints the marked blocks below a folder. */
export async function listProse(folder: string): Promise<void> {
  for (const [name, blocks] of await blocksByFile()) {
    if (!name.startsWith(folder)) continue;
    for (const block of blocks) {
      const found = markersIn(block);
      if (found.length > 0) console.log(`${name}: [${found.join("; ")}] ${block}`);
    }
  }
}

/** Records the present counts as the baseline. */
export async function keepProse(): Promise<void> {
  const counts = byName(await tally()).map(([folder, { marked }]) => [folder, marked] as const);
  await writeFile(baselinePath, `${JSON.stringify(Object.fromEntries(counts), undefined, 2)}\n`);
}
