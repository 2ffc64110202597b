// SPDX-License-Identifier: Apache-2.0

import { connection, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** Commands that plan or simulate, and change nothing. */
export const planCommands = {
  defrag: {
    summary: "Show which claims to move to free whole devices or nodes",
    description: `Moves go only to devices in use (for whole nodes: to nodes in use), fewest claims and least memory first. The command only
prints the plan and moves nothing.`,
    examples: [
      { command: "millpond defrag --dry-run", what: "whole devices" },
      { command: "millpond defrag --dry-run --goal node -o json", what: "whole nodes, for scripts" },
    ],
    arguments: [],
    options: {
      dryRun: { flags: "--dry-run", type: "flag", description: "Only print the plan; required" },
      goal: {
        flags: "--goal <what>",
        type: "choice",
        choices: ["device", "node"],
        description: "What to free",
        defaultText: "device",
      },
      maxMoves: {
        flags: "--max-moves <count>",
        type: "count",
        description: "Most claims to move, 1 to 64",
        defaultText: "16",
      },
      ...jsonOutput,
      ...connection,
    },
    group: "Operate",
  },
  snapshot: {
    summary: "Export the pool and its claims to a file for `simulate`",
    examples: [
      {
        command: "millpond snapshot --file traces/monday.pool.json",
        what: "then: millpond simulate --data traces --trace monday",
      },
    ],
    arguments: [],
    options: {
      file: {
        flags: "--file <file>",
        type: "text",
        description: "Where to write it",
        defaultText: "standard output",
      },
      ...connection,
    },
    group: "Operate",
  },
  simulate: {
    summary: "Compare placement policies on a trace of a pool's requests",
    description: `Reads traces in the form of Alibaba's cluster-trace-gpu-v2023 (openb_pod_list_NAME.csv or another CSV file with its
columns, and the list of nodes beside it) or exports of a pool (NAME.pool.json) and places their requests, in random order,
until 130 % of the GPUs have been requested. Requests never end; requests that fit nowhere are dropped. The simulation uses the
controller's scheduling code.

ALLOC@130 is the percentage of GPU capacity allocated at the end: mean, standard deviation and minimum over the
seeds. FRAG is the share of idle GPU that the trace cannot use when 80 % or 90 % have been requested. Policies:
least-fragmentation, binpack, spread, best-fit, packing, fgd, random.`,
    examples: [
      {
        command: "millpond simulate --data openb --trace default --policy best-fit,fgd,least-fragmentation",
        what: "three policies side by side",
      },
      {
        command: "millpond simulate --data openb --trace default --pooled -o json",
        what: "CPU and GPUs of a claim on different nodes",
      },
    ],
    arguments: [],
    options: {
      data: { flags: "--data <folder>", type: "text", description: "Folder with the traces; required" },
      trace: {
        flags: "--trace <names>",
        type: "text",
        description: "Traces, separated by commas",
        defaultText: "all in the folder",
      },
      policy: {
        flags: "--policy <policies>",
        type: "text",
        description: "Policies, separated by commas",
        defaultText: "least-fragmentation",
      },
      seeds: { flags: "--seeds <count>", type: "count", description: "Runs of each", defaultText: "10" },
      pooled: {
        flags: "--pooled",
        type: "flag",
        description: "Allow a claim's CPU on a different node than its GPUs",
      },
      repeat: {
        flags: "--repeat <count>",
        type: "count",
        description: "Repeat nodes and trace this many times",
        defaultText: "1",
      },
      out: {
        flags: "--out <files>",
        type: "text",
        description:
          "Write files, separated by commas: .svg draws allocation and fragmentation over load, .csv has the curves, .json all, .md the table",
      },
      output: {
        flags: "-o, --output <format>",
        type: "choice",
        choices: ["table", "json"],
        description: "Output format",
        defaultText: "table",
      },
    },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
