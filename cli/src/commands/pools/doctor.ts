// SPDX-License-Identifier: Apache-2.0

import { styleText } from "node:util";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import type { Finding } from "../../doctor/check.ts";
import { diagnose } from "../../doctor/diagnosis.ts";
import { markOf } from "../../output/marks.ts";
import { renderObject } from "../../output/resources.ts";

export async function run(values: Values<"doctor">): Promise<number> {
  const findings = await diagnose(values, process.env);
  const isWell = findings.every(({ status }) => status !== "failure");
  process.stdout.write(
    values.output === "json"
      ? renderObject("Diagnosis", { ok: isWell, checks: findings })
      : findings.map(renderFinding).join(""),
  );
  return isWell ? exitStatus.ok : exitStatus.finding;
}

const colours = { ok: "green", info: "gray", warning: "yellow", failure: "red" } as const;

function renderFinding({ status, name, detail, fix }: Finding): string {
  const shown = styleText(colours[status], markOf(status), { stream: process.stdout });
  const [first = "", ...more] = detail.split("\n");
  const lines = [`${shown} ${name}: ${first}`, ...more.map((line) => `    ${line}`)];
  if (fix !== "") lines.push(`    fix: ${fix}`);
  return `${lines.join("\n")}\n`;
}
