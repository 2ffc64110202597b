// SPDX-License-Identifier: Apache-2.0

import {
  csvField,
  formatTime,
  type GetUsageResponse,
  millpondError,
  parseDuration,
  quote,
  type Usage,
  UsageBy,
} from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { prefixError } from "../../command-line/errors.ts";
import { renderObject } from "../../output/resources.ts";
import { type Column, layOut } from "../../output/table.ts";

export async function run(values: Values<"usage">): Promise<number> {
  const now = Math.floor(Date.now() / 1000);
  const { queues } = openConnection(values);
  const by = values.by ?? "queue";
  const report = await queues.getUsage({
    by: numbers[by],
    from: BigInt(values.since === undefined ? 0 : parseMoment(values.since, now, "--since")),
    to: BigInt(values.until === undefined ? 0 : parseMoment(values.until, now, "--until")),
  });
  process.stdout.write(render(report, { by, format: values.output ?? "table" }));
  return exitStatus.ok;
}

/**
 * Reads a point in time: a duration before now, `7d`, or a date, `2026-11-20` or `2026-11-20T12:00:00+01:00`. A date without
 * a zone is in UTC, like all times in outputs.
 *
 * @returns Unix seconds
 * @throws MILLPOND_E_INVALID
 */
function parseMoment(text: string, nowSeconds: number, source: string): number {
  if (/^\d{4}-/.test(text)) {
    const seconds = parseDate(text);
    if (seconds !== undefined) return seconds;
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${source}: ${quote(text)} is not a date such as 2026-11-20 or 2026-11-20T12:00Z`,
    );
  }
  try {
    return Math.max(0, nowSeconds - parseDuration(text));
  } catch (error) {
    throw prefixError(error, source);
  }
}

function parseDate(text: string): number | undefined {
  const [, day = "", time = "T00:00", zone = "Z"] =
    /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2})?)?(Z|[+-]\d{2}:\d{2})?$/.exec(text) ?? [];
  const midnight = Date.parse(`${day}T00:00Z`);
  const moment = Date.parse(`${day}${time}${zone}`);
  if (Number.isNaN(midnight) || Number.isNaN(moment)) return undefined;
  // The parser turns 30 February into 2 March.
  return new Date(midnight).toISOString().startsWith(day) ? Math.floor(moment / 1000) : undefined;
}

const hours = (seconds: number): string => (seconds / 3600).toFixed(2);

/** The members of an answer that identify its subject, with the title of each. */
const keys = {
  queue: ["tenant", "queue"],
  user: ["tenant", "user"],
  claim: ["tenant", "queue", "user", "claim"],
  model: ["tenant", "model"],
} as const satisfies Record<string, readonly (keyof Usage)[]>;

type By = keyof typeof keys;

const numbers: Readonly<Record<By, UsageBy>> = {
  queue: UsageBy.QUEUE,
  user: UsageBy.USER,
  claim: UsageBy.CLAIM,
  model: UsageBy.MODEL,
};

const sums: readonly Column<Usage>[] = [
  { title: "CLAIMS", cell: (usage) => String(usage.claims), align: "right" },
  { title: "GPU-HOURS ASKED", cell: (usage) => hours(usage.askedGpuSeconds), align: "right" },
  { title: "GRANTED", cell: (usage) => hours(usage.grantedGpuSeconds), align: "right" },
  { title: "USED", cell: (usage) => hours(usage.usedGpuSeconds), align: "right" },
  { title: "WASTED", cell: (usage) => hours(usage.wastedGpuSeconds), align: "right" },
  { title: "HOURS WAITED", cell: (usage) => hours(usage.waitedSeconds), align: "right" },
];

function columnsOf(by: By): Column<Usage>[] {
  return [
    ...keys[by].map((key) => ({ title: key.toUpperCase(), cell: (usage: Usage) => usage[key] || "-" })),
    ...sums,
  ];
}

interface Rendering {
  readonly by: By;
  readonly format: "table" | "csv" | "json";
}

function render({ usage, from, to }: GetUsageResponse, { by, format }: Rendering): string {
  switch (format) {
    case "json":
      return renderObject("UsageList", {
        from: formatTime(from),
        to: formatTime(to),
        items: usage.map((each) => toJson(each, by)),
      });
    case "csv": {
      const rows = usage.map((each) =>
        Object.values(toJson(each, by))
          .map((cell) => csvField(cell))
          .join(","),
      );
      const titles = [...keys[by], "claims", ...Object.keys(hoursOf(undefined))];
      return `${[titles.join(","), ...rows].join("\n")}\n`;
    }
    case "table":
      return `${layOut(columnsOf(by), usage, { headers: true }).lines.join("\n")}\n`;
  }
}

function toJson(usage: Usage, by: By): Record<string, string | number> {
  const names = Object.fromEntries(keys[by].map((key) => [key, usage[key]]));
  return { ...names, claims: usage.claims, ...hoursOf(usage) };
}

function hoursOf(usage: Usage | undefined) {
  const round = (seconds = 0) => Number((seconds / 3600).toFixed(6));
  return {
    askedGpuHours: round(usage?.askedGpuSeconds),
    grantedGpuHours: round(usage?.grantedGpuSeconds),
    usedGpuHours: round(usage?.usedGpuSeconds),
    wastedGpuHours: round(usage?.wastedGpuSeconds),
    waitedHours: round(usage?.waitedSeconds),
  };
}
