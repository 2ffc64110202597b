// SPDX-License-Identifier: Apache-2.0

import { formatAge, formatBytes, type Quota } from "@millpond/api/browser";
import { controllerNow } from "../state/clock.ts";
import { texts } from "../texts/texts.ts";

export function bytes(value: bigint | undefined): string {
  return value === undefined ? texts().unknown : formatBytes(value);
}

export function percent(value: number | undefined): string {
  return value === undefined ? texts().unknown : `${Math.round(value)} %`;
}

export function partOf(part: bigint, whole: bigint): number {
  return whole === 0n ? 0 : Number(part) / Number(whole);
}

/** A time from Unix seconds, in the browser's time zone and the page's language; 0: never. */
export function dateTime(seconds: bigint): string {
  return seconds === 0n
    ? texts().never
    : new Date(Number(seconds) * 1000).toLocaleString(document.documentElement.lang, {
        dateStyle: "medium",
        timeStyle: "medium",
      });
}

/** The time since, from seconds; undefined: never. */
export function secondsSince(seconds: bigint, now = controllerNow()): number | undefined {
  return seconds === 0n ? undefined : Math.max(0, Math.floor(now / 1000) - Number(seconds));
}

export function age(seconds: bigint): string {
  const since = secondsSince(seconds);
  return since === undefined ? texts().never : formatAge(since);
}

/** GPUs, from thousandths. */
export function gpus(milli: bigint): string {
  return (Number(milli) / 1000).toLocaleString(document.documentElement.lang, { maximumFractionDigits: 2 });
}

/** The limits that are set; empty: none. */
export function quota(of: Quota | undefined): string {
  const parts = [
    of?.gpuMilli === undefined ? undefined : `${gpus(of.gpuMilli)} GPU`,
    of?.computePercent === undefined ? undefined : `${of.computePercent} %`,
    of?.memoryBytes === undefined ? undefined : formatBytes(of.memoryBytes),
  ];
  return parts.filter((part) => part !== undefined).join(" · ");
}
