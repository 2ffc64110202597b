// SPDX-License-Identifier: Apache-2.0

import { existsSync, readFileSync } from "node:fs";
import type { CallPlace, CallRecord, RecordedCall } from "./call-record.ts";
import type { Symbols } from "./symbols.ts";

type Place = readonly [x: number, y: number, z: number];

/** The access of a thread, and its place in the code. */
export interface Access {
  /** Absent if the finding is not about an access. */
  readonly access?: "read" | "write" | "atomic";
  readonly thread: Place;
  readonly function: string;
  /** Line of the PTX text. */
  readonly line: number;
  /** Source file, if the PTX names it: nvcc's -lineinfo. */
  readonly file?: string;
  readonly fileLine?: number;
}

/** Device memory that the program allocated, or that belongs to the driver. */
export interface Allocation {
  readonly address: string;
  readonly bytes: number;
  /** Its number among the program's allocations, from 1; 0: it is not one of them. */
  readonly number: number;
  readonly by?: string;
  readonly freedBy?: string;
  readonly call?: CallPlace;
  /** The call of the program that allocated it. */
  readonly allocatedBy?: HostCall;
}

/** A call of the program and its call stack: a text for each frame, innermost first. */
export interface HostCall {
  readonly text: string;
  readonly stack: readonly string[];
}

/** One kind of error at one place of the code. */
export interface Finding {
  readonly kind:
    | "access"
    | "race"
    | "fault"
    | "leak"
    | "unchecked"
    | "uninitialised"
    | "barrier"
    /** A copy or fill by the program touches memory that it does not own. */
    | "transfer"
    /** A call failed. */
    | "call";
  readonly what: string;
  /** Number of times it was found. */
  readonly count: number;
  readonly kernel?: string;
  readonly block?: Place;
  readonly space?: string;
  /** The address when first found; in shared and local memory an offset from the beginning. */
  readonly address?: string;
  readonly bytes?: number;
  readonly by?: Access;
  /** The other side of a race, which came first. */
  readonly against?: Access;
  /** Whether the GPU also detects it, and ends the kernel. */
  readonly isFatal?: boolean;
  /** Variable of shared memory, and the offset in it. */
  readonly variable?: string;
  readonly offset?: number;
  readonly nearest?: Allocation;
  readonly detail?: string;
  /** How a transfer uses the memory. */
  readonly access?: "read" | "write";
  /** How many threads have not reached a barrier. */
  readonly threads?: number;
  /** The result of a call. */
  readonly result?: string | number;
  /** The call that launched the kernel, or that is itself the finding. */
  readonly launch?: CallPlace;
  readonly call?: CallPlace;
  readonly launchedBy?: HostCall;
  readonly calledBy?: HostCall;
}

/** Checked launches of a kernel, with a count like that of a finding. */
type Launch = Pick<Finding, "what" | "count" | "kernel"> & { readonly kind: "launch" };

/** A line of the driver: a finding, launches of a kernel, or an updated count of either. */
type Line = { readonly id: string } & Partial<Finding | Launch>;

/** The result of the checks. */
export interface Outcome {
  /** In the order in which they were found. */
  readonly findings: readonly Finding[];
  /** The number of launches whose accesses were checked. */
  readonly launches: number;
  /** The number of different kernels in these launches. */
  readonly kernels: number;
  /** The number of calls that were checked, where the accesses of kernels could not be: on a card. */
  readonly calls?: number;
}

function parseLine(text: string): Line | undefined {
  const line: unknown = JSON.parse(text);
  const isLine = (value: unknown): value is Line =>
    typeof value === "object" && value !== null && "id" in value && typeof value.id === "string";
  return isLine(line) ? line : undefined;
}

function isComplete(line: Partial<Finding | Launch>): line is Finding | Launch {
  return line.kind !== undefined && line.what !== undefined;
}

/** Reads findings and counts of checks; empty if no file was written. A last line without its end is ignored. */
export function readOutcome(path: string): Outcome {
  if (!existsSync(path)) return { findings: [], launches: 0, kernels: 0 };
  const entries = new Map<string, Finding | Launch>();
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  for (const text of lines) {
    const line = parseLine(text);
    if (line === undefined) continue;
    const { id, ...rest } = line;
    const known = entries.get(id);
    if (known !== undefined) entries.set(id, { ...known, count: Math.max(known.count, line.count ?? 1) });
    else if (isComplete(rest)) entries.set(id, { ...rest, count: rest.count ?? 1 });
  }
  const all = [...entries.values()];
  const launches = all.filter((entry) => entry.kind === "launch");
  const findings = all
    .filter((entry) => entry.kind !== "launch")
    .map((finding): Finding => ({ ...finding, what: nameOf(finding) }));
  return {
    findings: merged(findings),
    launches: launches.reduce((sum, { count }) => sum + count, 0),
    kernels: new Set(launches.map(({ kernel }) => kernel)).size,
  };
}

/** Results of every call in a context in which a kernel has failed: consequences of a finding, not findings themselves. */
const lasting: ReadonlySet<unknown> = new Set([700, 702, 709, 710, 714, 715, 716, 717, 718, 719]);

/** The places of all calls that an outcome refers to. */
export function placesOf({ findings }: Outcome): CallPlace[] {
  return findings
    .flatMap(({ launch, call, nearest }) => [launch, call, nearest?.call])
    .filter((place) => place !== undefined);
}

function withoutCall({ address, bytes, number, by, freedBy }: Allocation): Allocation {
  return {
    address,
    bytes,
    number,
    ...(by !== undefined && { by }),
    ...(freedBy !== undefined && { freedBy }),
  };
}

/** Returns the outcome with the calls of the program in place of their positions, and with the failed calls added. */
export function withCalls(outcome: Outcome, record: CallRecord, symbols: Symbols): Outcome {
  const hostCall = ({ text, stack }: RecordedCall): HostCall => ({ text, stack: symbols.describe(stack) });
  const at = (place: CallPlace | undefined): HostCall | undefined => {
    const found = place && record.at(place);
    return found && hostCall(found);
  };
  const resolved = outcome.findings
    .filter(({ kind, result }) => kind !== "call" || !lasting.has(result))
    .map(({ launch, call, nearest, ...finding }): Finding => {
      const [launchedBy, calledBy, allocatedBy] = [at(launch), at(call), at(nearest?.call)];
      return {
        ...finding,
        ...(nearest && { nearest: { ...withoutCall(nearest), ...(allocatedBy && { allocatedBy }) } }),
        ...(launchedBy && { launchedBy }),
        ...(calledBy && { calledBy }),
      };
    });
  const failed = record.failed.map(
    ({ call, count }): Finding => ({
      kind: "call",
      what: call.text.replace(/\(.*/, ""),
      count,
      result: call.result,
      calledBy: hostCall(call),
    }),
  );
  return { ...outcome, findings: [...resolved, ...failed] };
}

/** The outcome on a card, whose kernels run unchecked: the failed calls, and those that returned the failure of a kernel. */
export function outcomeOnCard(record: CallRecord, symbols: Symbols): Outcome {
  const failed = [...record.faulted, ...record.failed];
  const { findings } = withCalls({ findings: [], launches: 0, kernels: 0 }, { ...record, failed }, symbols);
  return { findings, launches: 0, kernels: 0, calls: record.calls };
}

/** Names the kind of an illegal address by the allocation at or near it. */
function nameOf(finding: Finding): string {
  const { what, nearest, address } = finding;
  if (what !== "illegal address" || nearest === undefined || address === undefined) return what;
  const at = BigInt(address) - BigInt(nearest.address);
  const isInside = at >= 0n && at < BigInt(nearest.bytes);
  if (isInside && nearest.freedBy !== undefined) return "use after free";
  return isInside && at + BigInt(finding.bytes ?? 0) <= BigInt(nearest.bytes) ? what : "out of bounds";
}

/** Merges findings at the same place: each process of a program reports its own. */
function merged(findings: readonly Finding[]): Finding[] {
  const byPlace = new Map<string, Finding>();
  for (const finding of findings) {
    const { kind, what, kernel, by, against, nearest, detail } = finding;
    const place = JSON.stringify(
      kind === "leak" || kind === "transfer" || kind === "call"
        ? [kind, what, nearest, finding.call]
        : kind === "unchecked"
          ? [kind, detail]
          : [kind, what, kernel, by?.function, by?.line, against?.function, against?.line],
    );
    const known = byPlace.get(place);
    byPlace.set(place, known === undefined ? finding : { ...known, count: known.count + finding.count });
  }
  return [...byPlace.values()];
}
