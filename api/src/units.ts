// SPDX-License-Identifier: Apache-2.0

// Sizes, percentages and durations in their textual forms. The grammar is part of docs/reference/interfaces.md, because the
// client library parses MILLPOND_MEMORY by the same rules.

import { millpondError, quote } from "./errors.ts";

export const bytesPerMiB = 1n << 20n;

/** The least memory of a vGPU. */
export const minMemoryBytes = bytesPerMiB;

/** The most memory that a vGPU or a device can have: 1 PiB, so that every sum in the pool is exact. */
export const maxMemoryBytes = 1n << 50n;

const unitBytes: Readonly<Record<string, bigint>> = {
  "": 1n,
  k: 1000n,
  m: 1000n ** 2n,
  g: 1000n ** 3n,
  t: 1000n ** 4n,
  ki: 1n << 10n,
  mi: 1n << 20n,
  gi: 1n << 30n,
  ti: 1n << 40n,
};

const sizePattern = /^(\d{1,16})(?:\.(\d{1,9}))?(?:([kmgt]i?)?(b)?)$/i;

/**
 * Parses a size: `512Mi`, `8G`, `1.5Gi`, `1048576B`; a whole number without a unit counts MiB. `Ki Mi Gi Ti` are powers of
 * 1024, `K M G T` of 1000, as in Kubernetes; a `B` may follow; case does not matter. Fractions of a byte are cut off.
 *
 * @throws MILLPOND_E_INVALID when malformed or not between 1 MiB and 1 PiB
 */
export function parseSize(text: string): bigint {
  const match = sizePattern.exec(text);
  const [, whole = "", decimals = "", unit = "", suffix = ""] = match ?? [];
  const isBare = unit === "" && suffix === "";
  if (match === null || (isBare && decimals !== "")) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a size such as 512Mi, 8G or 8192 (a number without a unit counts MiB)`,
    );
  }
  const factor = isBare ? bytesPerMiB : (unitBytes[unit.toLowerCase()] ?? 1n);
  const bytes = (BigInt(whole + decimals) * factor) / 10n ** BigInt(decimals.length);
  if (bytes < minMemoryBytes || bytes > maxMemoryBytes) {
    throw millpondError("MILLPOND_E_INVALID", `the size ${quote(text)} is not between 1 MiB and 1 PiB`);
  }
  return bytes;
}

/** Writes a size exactly, in the largest unit that divides it, so that `parseSize` reads it back: `512Mi`, `8G`. */
export function formatSize(bytes: bigint): string {
  for (const unit of ["Ti", "Gi", "Mi", "T", "G", "M", "Ki", "K"]) {
    const factor = unitBytes[unit.toLowerCase()] ?? 1n;
    if (bytes >= factor && bytes % factor === 0n) {
      return `${bytes / factor}${unit}`;
    }
  }
  return `${bytes}B`;
}

/** Writes a number of things: `1 GPU`, `0 GPUs`, `0.5 GPUs`. */
export function countOf(count: number | bigint | string, noun: string, plural = `${noun}s`): string {
  return `${count} ${String(count) === "1" ? noun : plural}`;
}

/**
 * Formats a size for display, with at most one decimal, rounded down, so that displayed free memory is really free: `31.2
 * GiB`, `512 MiB`, `0 MiB`.
 */
export function formatBytes(bytes: bigint): string {
  return formatTenths(bytes, 0n);
}

/**
 * Formats a requested or used size for display, with at most one decimal, rounded up, so that it never looks equal to a
 * smaller free size: `1.1 GiB` of 1100 MiB.
 */
export function formatNeed(bytes: bigint): string {
  return formatTenths(bytes, 1n);
}

/** @param rest value of a fraction of a tenth, in tenths */
function formatTenths(bytes: bigint, rest: 0n | 1n): string {
  const [unit, factor] =
    bytes >= 1n << 40n
      ? (["TiB", 1n << 40n] as const)
      : bytes >= 1n << 30n
        ? (["GiB", 1n << 30n] as const)
        : bytes >= bytesPerMiB || bytes === 0n
          ? (["MiB", bytesPerMiB] as const)
          : (["B", 1n] as const);
  const isCut = (bytes * 10n) % factor !== 0n;
  const tenths = (bytes * 10n) / factor + (isCut ? rest : 0n);
  return tenths % 10n === 0n ? `${tenths / 10n} ${unit}` : `${tenths / 10n}.${tenths % 10n} ${unit}`;
}

/** Requested memory of a vGPU. */
export type MemoryRequest =
  | { readonly kind: "bytes"; readonly bytes: bigint }
  | { readonly kind: "percent"; readonly percent: number };

/**
 * Reads the memory of a vGPU: a size as `parseSize`, a share of the device as `50%`, or as a fraction with a decimal
 * point as `0.5`.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseMemory(text: string): MemoryRequest {
  return /%$|^\d*\.\d*$/.test(text)
    ? { kind: "percent", percent: parsePercent(text) }
    : { kind: "bytes", bytes: parseSize(text) };
}

/** Writes what `parseMemory` reads back: `512Mi`, `50%`. */
export function formatMemory(memory: MemoryRequest): string {
  return memory.kind === "percent" ? formatPercent(memory.percent) : formatSize(memory.bytes);
}

/**
 * Parses a share: `50%`, `50`, or a fraction with a decimal point, `0.5`, in steps of one percent. A bare `1` is refused,
 * because it may mean everything or one percent.
 *
 * @returns a whole number from 1 to 100
 * @throws MILLPOND_E_INVALID
 */
export function parsePercent(text: string): number {
  if (text === "1") throw ambiguousShare(text);
  const whole = /^(\d{1,3})%?$/.exec(text)?.[1];
  const fraction = /^([01])\.(\d{1,9})$/.exec(text);
  let percent: number | undefined;
  if (whole !== undefined) {
    percent = Number(whole);
  } else if (fraction !== null) {
    const decimals = (fraction[2] ?? "").padEnd(9, "0");
    if (/^0*$/.test(decimals.slice(2))) {
      percent = Number(fraction[1]) * 100 + Number(decimals.slice(0, 2));
    }
  }
  if (percent === undefined || percent < 1 || percent > 100) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a share from 1% to 100% in steps of 1%, such as 50% or 0.5`,
    );
  }
  return percent;
}

/**
 * Parses a share that is written as a fraction with a decimal point, `0.5`, or with a percent sign, `50%`.
 *
 * @returns a whole number from 1 to 100
 * @throws MILLPOND_E_INVALID
 */
export function parseFraction(text: string): number {
  if (/^\d+$/.test(text)) throw ambiguousShare(text);
  return parsePercent(text);
}

function ambiguousShare(text: string) {
  const spellings = text === "1" ? "1.0 for all of it or 1% for a hundredth" : `0.5 for a half, or ${text}%`;
  return millpondError(
    "MILLPOND_E_INVALID",
    `${quote(text)} is neither a fraction, which has a decimal point, nor a percentage, which has a percent sign`,
    { remedy: `Write ${spellings}.` },
  );
}

/** Writes a share: `50%`. */
export function formatPercent(percent: number): string {
  return `${percent}%`;
}

const durationUnits = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
  ["s", 1],
] as const;

/** The longest accepted duration: 365 days. */
const maxDurationSeconds = 365 * 86_400;

/**
 * Parses a duration: `90s`, `10m`, `1h30m`, `2d`; a number without a unit counts seconds.
 *
 * @returns whole seconds, 0 to 365 days
 * @throws MILLPOND_E_INVALID
 */
export function parseDuration(text: string): number {
  const match = /^(?:(\d{1,9})|(?=\d)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?)$/.exec(
    text,
  );
  if (match === null) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a duration such as 90s, 10m or 1h30m (a number without a unit counts seconds)`,
    );
  }
  const [, bare, ...parts] = match;
  let seconds = Number(bare ?? 0);
  for (const [position, [, factor]] of durationUnits.entries()) {
    seconds += Number(parts[position] ?? 0) * factor;
  }
  if (seconds > maxDurationSeconds) {
    throw millpondError("MILLPOND_E_INVALID", `the duration ${quote(text)} is longer than 365 days`);
  }
  return seconds;
}

/** A Unix time in ISO 8601, in UTC: "2026-11-23T03:00:00Z". */
export function formatTime(seconds: number | bigint): string {
  return new Date(Number(seconds) * 1000).toISOString().replace(".000Z", "Z");
}

/** Writes whole seconds exactly, so that `parseDuration` reads them back: `1h30m`, `0s`. */
export function formatDuration(seconds: number): string {
  let rest = Math.max(0, Math.floor(seconds));
  let text = "";
  for (const [unit, factor] of durationUnits) {
    const count = Math.floor(rest / factor);
    rest -= count * factor;
    text += count > 0 ? `${count}${unit}` : "";
  }
  return text === "" ? "0s" : text;
}

/** Formats an age for display by its two largest units: `3d4h`, `12m5s`, `0s`. */
export function formatAge(seconds: number): string {
  const parts = formatDuration(seconds).match(/\d+[dhms]/g) ?? [];
  return parts.slice(0, 2).join("");
}
