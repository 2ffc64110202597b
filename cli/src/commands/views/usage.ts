// SPDX-License-Identifier: Apache-2.0

import {
  formatTime,
  type GetUsageResponse,
  millpondError,
  parseDuration,
  quote,
  type Usage,
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
  const report = await queues.getUsage({
    from: BigInt(values.since === undefined ? 0 : parseMoment(values.since, now, "--since")),
    to: BigInt(values.until === undefined ? 0 : parseMoment(values.until, now, "--until")),
  });
  process.stdout.write(render(report, values.output ?? "table"));
  return exitStatus.ok;
}

/**
 * Reads a moment: a duration before now, `7d`, or a date, `2026-11-20` or `2026-11-20T12:00:00+01:00`. A date without a
 * zone is in UTC, like all times in outputs.
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
  // The parser turns the 30th of February into the 2nd of March.
  return new Date(midnight).toISOString().startsWith(day) ? Math.floor(moment / 1000) : undefined;
}

const hours = (seconds: number): string => (seconds / 3600).toFixed(2);

const columns: readonly Column<Usage>[] = [
  { title: "TENANT", cell: (usage) => usage.tenant },
  { title: "QUEUE", cell: (usage) => usage.queue },
  { title: "CLAIMS", cell: (usage) => String(usage.claims), align: "right" },
  { title: "GPU-HOURS ASKED", cell: (usage) => hours(usage.askedGpuSeconds), align: "right" },
  { title: "GRANTED", cell: (usage) => hours(usage.grantedGpuSeconds), align: "right" },
  { title: "USED", cell: (usage) => hours(usage.usedGpuSeconds), align: "right" },
  { title: "WASTED", cell: (usage) => hours(usage.wastedGpuSeconds), align: "right" },
  { title: "HOURS WAITED", cell: (usage) => hours(usage.waitedSeconds), align: "right" },
];

function render({ usage, from, to }: GetUsageResponse, format: "table" | "csv" | "json"): string {
  switch (format) {
    case "json":
      return renderObject("UsageList", {
        from: formatTime(from),
        to: formatTime(to),
        items: usage.map(toJson),
      });
    case "csv": {
      const rows = usage.map(toJson).map((row) => Object.values(row).join(","));
      const titles =
        "tenant,queue,claims,askedGpuHours,grantedGpuHours,usedGpuHours,wastedGpuHours,waitedHours";
      return `${[titles, ...rows].join("\n")}\n`;
    }
    case "table":
      return `${layOut(columns, usage, { headers: true }).lines.join("\n")}\n`;
  }
}

/** Names of tenants and queues are DNS labels, so they need no quotes in CSV. */
function toJson(usage: Usage) {
  const round = (seconds: number) => Number((seconds / 3600).toFixed(6));
  return {
    tenant: usage.tenant,
    queue: usage.queue,
    claims: usage.claims,
    askedGpuHours: round(usage.askedGpuSeconds),
    grantedGpuHours: round(usage.grantedGpuSeconds),
    usedGpuHours: round(usage.usedGpuSeconds),
    wastedGpuHours: round(usage.wastedGpuSeconds),
    waitedHours: round(usage.waitedSeconds),
  };
}
