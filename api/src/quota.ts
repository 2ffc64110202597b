// SPDX-License-Identifier: Apache-2.0

// Quotas in textual form: in options, documents and forms.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { millpondError, quote } from "./errors.ts";
import { Borrowing, type Quota, type QueueSchema } from "./gen/millpond/v1/queue_pb.ts";
import { formatSize, parseSize } from "./units.ts";

/** A quota, or an amount, with all bounds set. */
export type Bounds = Pick<Partial<Quota>, "gpuMilli" | "computePercent" | "memoryBytes">;

type QuotaInit = NonNullable<MessageInitShape<typeof QueueSchema>["limit"]>;

const borrowings = {
  any: Borrowing.ANY,
  preemptible: Borrowing.PREEMPTIBLE,
  none: Borrowing.NONE,
} as const;

/** @throws MILLPOND_E_INVALID */
export function parseBorrowing(text: string): Borrowing {
  for (const [word, value] of Object.entries(borrowings)) {
    if (word === text) return value;
  }
  throw millpondError("MILLPOND_E_INVALID", `borrowing: ${quote(text)} is not one of any, preemptible, none`);
}

export function borrowingWord(borrowing: Borrowing): string {
  return Object.entries(borrowings).find(([, value]) => value === borrowing)?.[0] ?? "unknown";
}

/**
 * Reads `gpus=8,compute=800%,memory=1Ti`; `none` sets no bound.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseQuota(text: string): QuotaInit {
  if (text === "none") return {};
  const members: Record<string, string> = {};
  for (const part of text.split(",")) {
    const [key = "", value, ...more] = part.trim().split("=");
    if (value === undefined || more.length > 0 || Object.hasOwn(members, key)) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${quote(text)} is not a quota such as gpus=8,memory=1Ti, or none`,
      );
    }
    members[key] = value;
  }
  return parseQuotaMembers(members);
}

/**
 * Reads the bounds of a quota: `gpus` in steps of 0.001, `compute` in percent of a device, `memory` as a size.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseQuotaMembers(members: Readonly<Record<string, string>>): QuotaInit {
  const quota: { gpuMilli?: bigint; computePercent?: bigint; memoryBytes?: bigint } = {};
  for (const [key, text] of Object.entries(members)) {
    switch (key) {
      case "gpus":
        quota.gpuMilli = parseGpus(text);
        break;
      case "compute":
        quota.computePercent = parseCompute(text);
        break;
      case "memory":
        quota.memoryBytes = parseSize(text);
        break;
      default:
        throw millpondError("MILLPOND_E_INVALID", `${quote(key)} is not one of gpus, compute, memory`);
    }
  }
  return quota;
}

/** Formats a quota as `parseQuota` reads it. */
export function quotaText(quota: Bounds | undefined): string {
  const { gpuMilli, computePercent, memoryBytes } = quota ?? {};
  const parts = [
    ...(gpuMilli === undefined ? [] : [`gpus=${formatGpuMilli(gpuMilli)}`]),
    ...(computePercent === undefined ? [] : [`compute=${computePercent}%`]),
    ...(memoryBytes === undefined ? [] : [`memory=${formatSize(memoryBytes)}`]),
  ];
  return parts.length === 0 ? "none" : parts.join(",");
}

/** Formats thousandths of GPUs: `1.5`. */
export function formatGpuMilli(gpuMilli: bigint): string {
  return String(Number(gpuMilli) / 1000);
}

function parseGpus(text: string): bigint {
  const match = /^(\d{1,6})(?:\.(\d{1,3}))?$/.exec(text);
  if (match === null) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `gpus: ${quote(text)} is not a number of GPUs such as 8 or 0.5`,
    );
  }
  return BigInt(match[1] ?? 0) * 1000n + BigInt((match[2] ?? "").padEnd(3, "0"));
}

function parseCompute(text: string): bigint {
  const match = /^(\d{1,9})%?$/.exec(text);
  if (match === null) {
    throw millpondError("MILLPOND_E_INVALID", `compute: ${quote(text)} is not a percentage such as 800%`);
  }
  return BigInt(match[1] ?? 0);
}
