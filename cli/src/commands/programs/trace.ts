// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { renderObject } from "../../output/resources.ts";
import { renderPicture } from "../../trace/picture.ts";
import { readTraceFile } from "../../trace/read.ts";
import { Summarizer } from "../../trace/summary.ts";

export async function run(values: Values<"trace">, files: readonly string[]): Promise<number> {
  const summarizer = new Summarizer();
  for (const file of files) await summarizer.addFile(file, readTraceFile(file));
  const summary = summarizer.summary();
  for (const { file, isCut } of summary.files) {
    if (!isCut) continue;
    process.stderr.write(
      `millpond: ${file}: the last line has no end: the program was killed, or is running\n`,
    );
  }
  process.stdout.write(
    values.output === "json" ? renderObject("TraceSummary", { ...summary }) : renderPicture(summary),
  );
  return exitStatus.ok;
}
