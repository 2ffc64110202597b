// SPDX-License-Identifier: Apache-2.0
// Bugs that were mended, each as the edit of today's source that brings it back: whether the model test finds them says what it is
// worth. docs/model-test.md has the outcome.
import { readFile, writeFile } from "node:fs/promises";
import { ScriptError } from "../command.ts";
import { inRoot } from "../paths.ts";
import type { Way } from "./model-place.ts";
import { runAll, titleOf, type Settings } from "./model-runs.ts";

export interface Mutant {
  /** Name of the bug, as in docs/model-test.md. */
  readonly bug: string;
  readonly file: string;
  /** Text that occurs once in the file. */
  readonly from: string;
  readonly to: string;
  /** The ways on which the bug shows. */
  readonly ways: readonly Way[];
}

const way = (transport: Way["transport"], isGated = false): Way => ({ transport, isGated, hasCuts: false });
const shm = way("shm");
const tcp = way("tcp");

export const mutants: readonly Mutant[] = [
  {
    bug: "stale-bounce",
    file: "native/client/calls/memory/copies.cpp",
    from: "  const bool hasLandings = call.remote().landings.any();\n",
    to: "  const bool hasLandings = call.remote().landings.any() && bytes == SIZE_MAX;\n",
    ways: [tcp],
  },
  {
    bug: "full-queue",
    file: "native/client/session/queue_bound.cpp",
    from: "      if (take(key, inQueue)) return CUDA_SUCCESS;\n",
    to: "      if (take(key, inQueue) || inQueue != SIZE_MAX) return CUDA_SUCCESS;\n",
    ways: [shm, tcp],
  },
  {
    bug: "full-ring",
    file: "native/worker/commands/copies/uploads.cpp",
    from: "  if ((isLong || isHeldUp) && buffers_.take(data.size(), aside) == CUDA_SUCCESS)\n",
    to: "  if ((isLong || isHeldUp) && data.empty() && buffers_.take(data.size(), aside) == CUDA_SUCCESS)\n",
    ways: [shm, tcp],
  },
  {
    bug: "held-calls",
    file: "native/worker/session/executor.cpp",
    from: "session_.current().request != 0 && mayWaitInside(op, frame.head())) {\n",
    to: "session_.current().request != 0 &&\n      (mayWaitInside(op, frame.head()) || op == cmd::Op::kMemAlloc || op == cmd::Op::kStreamQuery)) {\n",
    ways: [shm, tcp],
  },
  {
    bug: "waiting-landing",
    file: "native/client/calls/memory/copies.cpp",
    from: "  const bool canLand = pinned && pinned->kind == MemoryKind::kPinnedLocal;\n",
    to: "  const bool canLand = pinned && pinned->kind == MemoryKind::kPinnedLocal && call.session().graceSeconds() != 0;\n",
    ways: [shm],
  },
  {
    bug: "unreached-pointers",
    file: "native/client/memory/mapped_memory.cpp",
    from: "  memory_.eachLocalAddress(address, bytes, [&](uint64_t each) { addPlaces(found, each); });\n  return found.empty() ? CUDA_SUCCESS : reachEach(call, std::move(found));\n",
    to: "  memory_.eachLocalAddress(address, bytes, [](uint64_t) {});\n  return found.empty() ? CUDA_SUCCESS : reachEach(call, std::move(found));\n",
    ways: [tcp],
  },
  {
    bug: "unreached-parameters",
    file: "native/client/memory/named_places.cpp",
    from: "    if (layout.tailUses[i] == cmd::TailUse::kWords) found.words(tails[i]);\n",
    to: "",
    ways: [tcp],
  },
  {
    bug: "graph-stages",
    file: "native/worker/commands/graphs/graph_stages.cpp",
    from: "  if (CUresult rc = buffers_.view(stage->address, stage->bytes, view)) return rc;\n  stage->memory = view.at(stage->address);\n",
    to: "  const uint64_t apart = stage->address + (toDevice ? uint64_t{1} << 50 : 0);\n  if (CUresult rc = buffers_.view(apart, stage->bytes, view)) return rc;\n  stage->memory = view.at(apart);\n",
    ways: [tcp],
  },
  {
    bug: "held-callbacks",
    file: "native/worker/session/executor.cpp",
    from: "        if (held_.empty() ? !take(frame) : !overtakes(frame)) held_.push_back(frame);\n",
    to: "        if (!held_.empty() || !take(frame)) held_.push_back(frame);\n",
    ways: [way("shm", true), way("tcp", true)],
  },
];

/** The source with the bug inserted. */
export function mutated(source: string, { bug, file, from, to }: Mutant): string {
  const parts = source.split(from);
  if (parts.length !== 2)
    throw new ScriptError(`mutant ${bug}: its text occurs ${parts.length - 1} times in ${file}, not once`);
  return parts.join(to);
}

export interface MutantTrial extends Omit<Settings, "endMs"> {
  readonly secondsOfWay: number;
  /** Builds the program that runs the model's programs. */
  readonly build: (title: string) => Promise<void>;
}

async function tryMutant(mutant: Mutant, trial: MutantTrial): Promise<string> {
  const path = inRoot(mutant.file);
  const source = await readFile(path, "utf8");
  const bugged = mutated(source, mutant);
  try {
    await writeFile(path, bugged);
    await trial.build(`mutant ${mutant.bug}`);
    const outcomes: string[] = [];
    for (const each of mutant.ways) {
      const endMs = performance.now() + trial.secondsOfWay * 1000;
      const { ran, failures } = await runAll(each, { ...trial, failures: 1, endMs });
      const first = failures[0];
      outcomes.push(
        first === undefined
          ? `${titleOf(each)}: not found by ${ran} programs`
          : `${titleOf(each)}: found by program ${first.program}, ${first.status === 3 ? "which hangs" : "which differs"}`,
      );
    }
    return `| ${mutant.bug} | ${outcomes.join("; ")} |`;
  } finally {
    await writeFile(path, source);
  }
}

/**
 * Tries the given bugs, or all, for `secondsOfWay` on each of their ways; returns a table. It restores the source, but the
 * build is that of the last mutant.
 */
export async function tryMutants(trial: MutantTrial, bugs: readonly string[]): Promise<string> {
  const strange = bugs.find((bug) => mutants.every((each) => each.bug !== bug));
  if (strange !== undefined)
    throw new ScriptError(
      `there is no mutant ${strange}: there are ${mutants.map(({ bug }) => bug).join(", ")}`,
    );
  const rows: string[] = [];
  for (const mutant of mutants) {
    if (bugs.length > 0 && !bugs.includes(mutant.bug)) continue;
    rows.push(await tryMutant(mutant, trial));
    console.log(rows.at(-1));
  }
  return ["| bug | outcome |", "|---|---|", ...rows].join("\n");
}
