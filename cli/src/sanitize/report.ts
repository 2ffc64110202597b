// SPDX-License-Identifier: Apache-2.0

import { countOf } from "@millpond/api";
import type { Access, Allocation, Finding, HostCall, Outcome } from "./finding.ts";

/** Characters of a call that are shown. */
const mostCallLength = 160;

/** Renders the report for people: a summary line, then every finding in a few lines. */
export function renderReport(outcome: Outcome): string {
  const { findings } = outcome;
  const isEmpty = checksOf(outcome) === 0;
  const checked = checkedText(outcome);
  const onCard = outcome.calls === undefined ? "" : `${cardNotice}\n`;
  if (findings.length === 0) {
    return `millpond sanitize: ${isEmpty ? checked : `no finding ${checked}`}\n${onCard}`;
  }
  const parts = findings.map((finding, index) =>
    [`${index + 1}. ${headline(finding)}`, ...details(finding)].join("\n     "),
  );
  const separator = isEmpty ? "; " : " ";
  return `millpond sanitize: ${countOf(findings.length, "finding")}${separator}${checked}\n${onCard}\n${parts.join("\n\n")}\n`;
}

const cardNotice =
  "Accesses of kernels are not checked on a card: use a software GPU (without --driver), or NVIDIA's compute-sanitizer.";

/** How much was checked; 0: a run without findings has not passed. */
export function checksOf({ launches, calls }: Outcome): number {
  return calls ?? launches;
}

function checkedText({ launches, kernels, calls }: Outcome): string {
  if (calls !== undefined)
    return calls === 0
      ? "nothing was checked: the program made no call of CUDA"
      : `in ${countOf(calls, "call")} of CUDA`;
  return launches === 0
    ? "nothing was checked: no kernel of the program was launched"
    : `in ${countOf(launches, "launch", "launches")} of ${countOf(kernels, "kernel")}`;
}

function headline(finding: Finding): string {
  const { kind, what, nearest, space, count } = finding;
  const times = count === 1 ? "" : `, ${count} times`;
  switch (kind) {
    case "leak":
      return `leak: ${describeAllocation(nearest)}`;
    case "unchecked":
    case "fault":
      return `${what}${finding.detail === undefined || finding.detail === "" ? "" : `: ${finding.detail}`}${times}`;
    case "uninitialised":
      return `uninitialised memory: read of ${countOf(finding.bytes ?? 0, "byte")} at ${finding.address}, which nothing has written${times}`;
    case "barrier":
      return `${what}${finding.threads === undefined ? "" : `: ${countOf(finding.threads, "thread")} of it`}${times}`;
    case "transfer":
      return `${what}: a copy or fill would ${finding.access} ${countOf(finding.bytes ?? 0, "byte")} at ${finding.address}${times}`;
    case "call":
      return `${what} returned ${finding.result}${times}`;
    case "race":
      return `race in shared memory, ${what}: ${countOf(finding.bytes ?? 0, "byte")} at ${placeInShared(finding)}${times}`;
    case "access":
      return `${what}: ${finding.by?.access} of ${countOf(finding.bytes ?? 0, "byte")} at ${finding.address} of ${space} memory${times}`;
  }
}

function placeInShared({ variable, offset, address }: Finding): string {
  return variable === undefined ? `offset ${Number(address)}` : `${variable} + ${offset}`;
}

function details(finding: Finding): string[] {
  const { kernel, block, by, against, kind, nearest } = finding;
  const lines: string[] = [];
  if (kernel !== undefined && by !== undefined) {
    const describe = kind === "barrier" ? describePlace : describeAccess;
    lines.push(`in ${kernel}, block (${block?.join(", ")})`, describe(by));
    if (against !== undefined) lines.push(`${describe(against)}${kind === "race" ? ", before it" : ""}`);
  }
  const distance = kind === "leak" ? "" : distanceOf(finding);
  if (distance !== "") lines.push(distance);
  else if (kind === "access" && nearest === undefined && finding.space === "global")
    lines.push("no device memory is near it: it may be an address of the host, or not initialised");
  if (finding.isFatal === false && kind === "access") lines.push("a real GPU would not report this access");
  return [
    ...lines,
    ...describeCall(finding.calledBy, "called"),
    ...describeCall(finding.launchedBy, "launched"),
    ...describeCall(nearest?.allocatedBy, "allocated"),
  ];
}

function describeCall(call: HostCall | undefined, what: string): string[] {
  if (call === undefined) return [];
  const text = call.text.length > mostCallLength ? `${call.text.slice(0, mostCallLength)}…` : call.text;
  return [`${what} by ${text}`, ...call.stack.map((frame) => `  ${frame}`)];
}

function describeAccess(access: Access): string {
  return `${access.access === undefined ? "" : `${access.access} by `}${describePlace(access)}`;
}

function describePlace({ thread, function: name, line, file, fileLine }: Access): string {
  const source = file === undefined ? "" : `${file}:${fileLine}, `;
  return `thread (${thread.join(", ")}) at ${source}PTX line ${line} of ${name}`;
}

function describeAllocation(allocation: Allocation | undefined): string {
  if (allocation === undefined) return "";
  const { address, bytes, number, by, freedBy } = allocation;
  const which = number === 0 ? "" : `allocation ${number}, `;
  const calls = [by, freedBy === undefined ? undefined : `freed by ${freedBy}`].filter(
    (part) => part !== undefined,
  );
  return `${which}${countOf(bytes, "byte")} at ${address} (${calls.join(", ")})`;
}

/** Describes an address relative to the nearest memory. */
function distanceOf({ address, nearest, space }: Finding): string {
  if (nearest === undefined || address === undefined || space === "shared" || space === "local") return "";
  const at = BigInt(address) - BigInt(nearest.address);
  const end = BigInt(nearest.bytes);
  const place =
    at < 0n
      ? `${countOf(-at, "byte")} before`
      : at < end
        ? `${countOf(at, "byte")} into`
        : `${countOf(at - end, "byte")} behind`;
  return `${place} ${describeAllocation(nearest)}`;
}
