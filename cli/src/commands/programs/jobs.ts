// SPDX-License-Identifier: Apache-2.0

import { formatAge, shellQuote } from "@millpond/api";
import type { Values } from "../../command-line/command-values.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import { type JobRecord, jobsDirectory, jobState, listJobs } from "../../job/job.ts";
import { userStateDirectory } from "@millpond/platform";
import { renderObject } from "../../output/resources.ts";
import { type Column, layOut } from "../../output/table.ts";

export async function run(values: Values<"jobs">): Promise<number> {
  const jobs = listJobs(jobsDirectory(userStateDirectory(process.env)));
  process.stdout.write(render(jobs, values.output ?? "table"));
  return exitStatus.ok;
}

function render(jobs: readonly JobRecord[], format: "table" | "name" | "json"): string {
  if (format === "name") return jobs.map(({ name }) => `${name}\n`).join("");
  if (format === "json") return renderObject("JobList", { items: jobs.map(jobToJson) });
  const now = Math.floor(Date.now() / 1000);
  const columns: readonly Column<JobRecord>[] = [
    { title: "NAME", cell: ({ name }) => name },
    { title: "STATE", cell: (job) => jobState(job).replace(/^./, (letter) => letter.toUpperCase()) },
    { title: "STATUS", cell: ({ status }) => (status === null ? "-" : String(status)), align: "right" },
    { title: "AGE", cell: ({ startedAt }) => formatAge(Math.max(0, now - startedAt)) },
    {
      title: "RAN",
      cell: ({ beganAt, endedAt }) => (beganAt === null ? "-" : formatAge((endedAt ?? now) - beganAt)),
    },
    { title: "COMMAND", cell: ({ command }) => command.map(shellQuote).join(" ") },
  ];
  return `${layOut(columns, jobs, { headers: true }).lines.join("\n")}\n`;
}

function jobToJson(job: JobRecord): object {
  const { runner, ...record } = job;
  return { ...record, state: jobState(job), pid: runner.pid };
}
