// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { readableNames } from "../../host/readable-names.ts";
import { renderObject } from "../../output/resources.ts";
import { renderPicture } from "../../trace/picture.ts";
import { readTraceFile } from "../../trace/read.ts";
import { type Summary, Summarizer } from "../../trace/summary.ts";

export async function run(values: Values<"trace">, files: readonly string[]): Promise<number> {
  const summarizer = new Summarizer();
  for (const file of files) await summarizer.addFile(file, readTraceFile(file));
  const summary = withReadableNames(summarizer.summary());
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

function withReadableNames(summary: Summary): Summary {
  const names = readableNames(
    summary.launches.map(({ kernel }) => kernel),
    process.env,
  );
  const launches = summary.launches.map((launch) => {
    const readable = names.get(launch.kernel);
    return readable === undefined || readable === launch.kernel ? launch : { ...launch, readable };
  });
  return { ...summary, launches };
}
