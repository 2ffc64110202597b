// SPDX-License-Identifier: Apache-2.0

import { existsSync, readFileSync } from "node:fs";

type Place = readonly [x: number, y: number, z: number];

/** Who did it, and where in the code. */
export interface Access {
  /** Absent where the finding is no access. */
  readonly access?: "read" | "write" | "atomic";
  readonly thread: Place;
  readonly function: string;
  /** Of the PTX text. */
  readonly line: number;
  /** Of the source, where the PTX names it: nvcc's -lineinfo. */
  readonly file?: string;
  readonly fileLine?: number;
}

/** Device memory that was given to the program, or is the driver's. */
export interface Allocation {
  readonly address: string;
  readonly bytes: number;
  /** The how many-th of the program's it was; 0 for what is none. */
  readonly number: number;
  readonly by?: string;
  readonly freedBy?: string;
}

/** One kind of error at one place of the code. */
export interface Finding {
  readonly kind: "access" | "race" | "fault" | "leak";
  readonly what: string;
  /** How often it was found. */
  readonly count: number;
  readonly kernel?: string;
  readonly block?: Place;
  readonly space?: string;
  /** Of the first time; in shared and local memory: from its beginning. */
  readonly address?: string;
  readonly bytes?: number;
  readonly by?: Access;
  /** The other side of a race, which came first. */
  readonly against?: Access;
  /** Whether the GPU notices it too, and ends the kernel. */
  readonly isFatal?: boolean;
  /** Variable of shared memory, and how far in it. */
  readonly variable?: string;
  readonly offset?: number;
  readonly nearest?: Allocation;
  readonly detail?: string;
}

/** A line of the driver: a finding, or how often one was found by now. */
type Line = { readonly id: string } & Partial<Finding>;

function parseLine(text: string): Line | undefined {
  const line: unknown = JSON.parse(text);
  const isLine = (value: unknown): value is Line =>
    typeof value === "object" && value !== null && "id" in value && typeof value.id === "string";
  return isLine(line) ? line : undefined;
}

function isFinding(line: Partial<Finding>): line is Finding {
  return line.kind !== undefined && line.what !== undefined;
}

/** Findings in the order in which they were found; nothing where no file was written. A line without end is none. */
export function readFindings(path: string): Finding[] {
  if (!existsSync(path)) return [];
  const findings = new Map<string, Finding>();
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  for (const text of lines) {
    const line = parseLine(text);
    if (line === undefined) continue;
    const { id, ...rest } = line;
    const known = findings.get(id);
    if (known !== undefined) findings.set(id, { ...known, count: Math.max(known.count, line.count ?? 1) });
    else if (isFinding(rest)) findings.set(id, { ...rest, count: rest.count ?? 1, what: nameOf(rest) });
  }
  return merged([...findings.values()]);
}

/** What an illegal address is can be told by what lies there. */
function nameOf(finding: Finding): string {
  const { what, nearest, address } = finding;
  if (what !== "illegal address" || nearest === undefined || address === undefined) return what;
  const at = BigInt(address) - BigInt(nearest.address);
  const isInside = at >= 0n && at < BigInt(nearest.bytes);
  if (isInside && nearest.freedBy !== undefined) return "use after free";
  return isInside && at + BigInt(finding.bytes ?? 0) <= BigInt(nearest.bytes) ? what : "out of bounds";
}

/** Each process of a program tells for itself. */
function merged(findings: readonly Finding[]): Finding[] {
  const byPlace = new Map<string, Finding>();
  for (const finding of findings) {
    const { kind, what, kernel, by, against, nearest } = finding;
    const place = JSON.stringify(
      kind === "leak"
        ? [kind, nearest]
        : [kind, what, kernel, by?.function, by?.line, against?.function, against?.line],
    );
    const known = byPlace.get(place);
    byPlace.set(place, known === undefined ? finding : { ...known, count: known.count + finding.count });
  }
  return [...byPlace.values()];
}
