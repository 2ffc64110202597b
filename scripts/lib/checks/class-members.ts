// SPDX-License-Identifier: Apache-2.0
// How many public members a hand-written class may have. Reads the layout that the formatters of both languages write, which is
// checked as well: a member begins at the indentation of its class and two spaces more, and nothing else does but closing lines.
import type { SourceFile } from "./import-rules.ts";

export interface MemberRules {
  readonly maxPublic: number;
  /** Classes that have more members, with the number that they must not exceed, by path and name: `path: Name`. */
  readonly largeClasses: Readonly<Record<string, number>>;
}

export interface SizedClass {
  readonly path: string;
  readonly name: string;
  readonly publicMembers: number;
}

interface OpenClass {
  readonly name: string;
  readonly indent: number;
  isPublic: boolean;
  count: number;
}

const cppHead = /^( *)(?:template <.*> )?(class|struct) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: : .*)? \{$/;
const cppWrappedHead = /^( *)(class|struct) (\w+)(?: final)?$/;
const tsHead = /^( *)(?:export )?(?:abstract )?class (\w+)(?:<.*)?(?: .*)?$/;
const accessLabel = /^( *)(public|protected|private):$/;
/** Lines that continue a member, and lines that declare none. */
const cppNoMember = /^(?:[})\]{:;,&|?+]|\/\/|#|template <|friend |static_assert|using |\w.* = delete;|~)/;
const tsNoMember =
  /^(?:extends |implements |[})\]|&?:]|\/\/|\/\*|\*|private |protected |#|static \{|constructor\(|\[Symbol)/;

/** The classes of a C++ or TypeScript file with their public members: functions and values, and in C++ nested types. */
export function classesOf({ path, text }: SourceFile): SizedClass[] {
  const isCpp = /\.(h|cpp)$/.test(path);
  const classes: SizedClass[] = [];
  const open: OpenClass[] = [];
  const close = (indent: number): void => {
    while (open.length > 0 && (open.at(-1)?.indent ?? 0) >= indent) {
      const ended = open.pop();
      if (ended !== undefined) classes.push({ path, name: ended.name, publicMembers: ended.count });
    }
  };
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const indent = line.length - line.trimStart().length;
    const bare = line.trimStart();
    const current = open.at(-1);
    if (current !== undefined && indent === current.indent && bare.startsWith("}")) {
      close(indent);
      continue;
    }
    const label = isCpp ? accessLabel.exec(line) : null;
    if (label !== null && current !== undefined && indent === current.indent + 1) {
      current.isPublic = label[2] === "public";
      continue;
    }
    const isMember =
      current !== undefined &&
      indent === current.indent + 2 &&
      current.isPublic &&
      !(isCpp ? cppNoMember : tsNoMember).test(bare);
    if (isMember) current.count += isCpp ? declaratorsIn(bare) : 1;
    const head = isCpp ? (cppHead.exec(line) ?? cppWrappedHead.exec(line)) : tsHead.exec(line);
    if (head !== null) {
      const name = (isCpp ? head[3] : head[2]) ?? "";
      open.push({ name, indent, isPublic: !isCpp || head[2] === "struct", count: 0 });
    }
  }
  close(0);
  return classes;
}

/** How many values a line declares: `int a, b;` two, everything else one. */
function declaratorsIn(line: string): number {
  if (!/^[^(){}]*;/.test(line)) return 1;
  const flat = line.replace(/\/\/.*$/, "").replace(/<[^;=]*>/g, "");
  return flat.split(",").length;
}

/** @returns faults, one line each */
export function findLargeClasses(files: readonly SourceFile[], rules: MemberRules): string[] {
  const faults: string[] = [];
  const seen = new Map<string, number>();
  for (const { path, name, publicMembers } of files.flatMap(classesOf)) {
    const key = `${path}: ${name}`;
    seen.set(key, publicMembers);
    const most = Math.max(rules.maxPublic, rules.largeClasses[key] ?? 0);
    if (publicMembers > most) faults.push(`${key} has ${publicMembers} public members, and may have ${most}`);
  }
  for (const key of Object.keys(rules.largeClasses)) {
    const count = seen.get(key) ?? 0;
    if (count <= rules.maxPublic)
      faults.push(`${key} has ${count} public members: remove it from the exceptions`);
  }
  return faults;
}
