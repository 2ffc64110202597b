// SPDX-License-Identifier: Apache-2.0

import type { Access, Allocation, Finding, Outcome } from "./finding.ts";

/** Renders the report for people: a summary line, then every finding in a few lines. */
export function renderReport({ findings, launches, kernels }: Outcome): string {
  const checked =
    launches === 0
      ? "nothing was checked: no kernel of the program was launched"
      : `in ${counted(launches, "launch", "launches")} of ${counted(kernels, "kernel")}`;
  if (findings.length === 0) {
    return `millpond sanitize: ${launches === 0 ? checked : `no finding ${checked}`}\n`;
  }
  const parts = findings.map((finding, index) =>
    [`${index + 1}. ${headline(finding)}`, ...details(finding)].join("\n     "),
  );
  const separator = launches === 0 ? "; " : " ";
  return `millpond sanitize: ${counted(findings.length, "finding")}${separator}${checked}\n\n${parts.join("\n\n")}\n`;
}

function counted(count: number | bigint, noun: string, plural = `${noun}s`): string {
  return `${count} ${BigInt(count) === 1n ? noun : plural}`;
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
    case "race":
      return `race in shared memory, ${what}: ${counted(finding.bytes ?? 0, "byte")} at ${placeInShared(finding)}${times}`;
    case "access":
      return `${what}: ${finding.by?.access} of ${counted(finding.bytes ?? 0, "byte")} at ${finding.address} of ${space} memory${times}`;
  }
}

function placeInShared({ variable, offset, address }: Finding): string {
  return variable === undefined ? `offset ${Number(address)}` : `${variable} + ${offset}`;
}

function details(finding: Finding): string[] {
  const { kernel, block, by, against } = finding;
  if (kernel === undefined || by === undefined) return [];
  const where = `in ${kernel}, block (${block?.join(", ")})`;
  if (against !== undefined) return [where, describeAccess(by), `${describeAccess(against)}, before it`];
  const lines = [where, describeAccess(by)];
  const distance = distanceOf(finding);
  if (distance !== "") lines.push(distance);
  if (finding.isFatal === false) lines.push("a real GPU would not report this access");
  return lines;
}

function describeAccess({ access, thread, function: name, line, file, fileLine }: Access): string {
  const source = file === undefined ? "" : `${file}:${fileLine}, `;
  return `${access === undefined ? "" : `${access} by `}thread (${thread.join(", ")}) at ${source}PTX line ${line} of ${name}`;
}

function describeAllocation(allocation: Allocation | undefined): string {
  if (allocation === undefined) return "";
  const { address, bytes, number, by, freedBy } = allocation;
  const which = number === 0 ? "" : `allocation ${number}, `;
  const calls = [by, freedBy === undefined ? undefined : `freed by ${freedBy}`].filter(
    (part) => part !== undefined,
  );
  return `${which}${counted(bytes, "byte")} at ${address} (${calls.join(", ")})`;
}

/** Describes an address relative to the nearest memory. */
function distanceOf({ address, nearest, space }: Finding): string {
  if (nearest === undefined || address === undefined || space === "shared" || space === "local") return "";
  const at = BigInt(address) - BigInt(nearest.address);
  const end = BigInt(nearest.bytes);
  const place =
    at < 0n
      ? `${counted(-at, "byte")} before`
      : at < end
        ? `${counted(at, "byte")} into`
        : `${counted(at - end, "byte")} behind`;
  return `${place} ${describeAllocation(nearest)}`;
}
