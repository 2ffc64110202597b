// SPDX-License-Identifier: Apache-2.0

import { countOf, millpondError } from "@millpond/api";
import { type ConsolidationGoal, type ConsolidationStep, planConsolidation } from "@millpond/scheduler";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { renderObject } from "../../output/resources.ts";
import { layOut } from "../../output/table.ts";
import { boundRequests, readPool, toSnapshot } from "../../output/pool-picture.ts";

/** Default limit of a plan's moves. */
const usualMoves = 16;

export async function run(values: Values<"defrag">): Promise<number> {
  if (!values.dryRun) {
    throw millpondError("MILLPOND_E_INVALID", "running sessions cannot be moved yet", {
      remedy: "Print the plan with --dry-run, then end and recreate the claims in its order.",
    });
  }
  const goal = values.goal ?? "device";
  const picture = await readPool(openConnection(values));
  const steps = planConsolidation(toSnapshot(picture), boundRequests(picture), {
    goal,
    maxMoves: values.maxMoves ?? usualMoves,
  });
  process.stdout.write(values.output === "json" ? toJson(goal, steps) : planText(goal, steps));
  return exitStatus.ok;
}

function toJson(goal: string, steps: readonly ConsolidationStep[]): string {
  return renderObject("DefragPlan", {
    goal,
    steps: steps.map(({ node, devices, moves }) => ({
      frees: { node, devices },
      moves: moves.map(({ from, to }) => ({
        claim: to.claim,
        from: { node: from.node, devices: from.devices.map(({ index }) => index) },
        to: { node: to.node, devices: to.devices.map(({ index }) => index) },
        memoryBytes: Number(from.devices.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n)),
      })),
    })),
  });
}

/** The plan as text, with its total. */
export function planText(goal: ConsolidationGoal, steps: readonly ConsolidationStep[]): string {
  if (steps.length === 0) {
    return "nothing to gain: no move of claims would free a device or a node\n";
  }
  const where = (node: string, devices: readonly { readonly index: number }[]): string =>
    devices.map(({ index }) => `${node}/${index}`).join(",");
  const rows = steps.flatMap(({ node, devices, moves }) =>
    moves.map(({ from, to }, position) => ({
      frees:
        position > 0
          ? ""
          : goal === "node"
            ? node
            : where(
                node,
                devices.map((index) => ({ index })),
              ),
      claim: to.claim,
      from: where(from.node, from.devices),
      to: where(to.node, to.devices),
    })),
  );
  const { lines } = layOut(
    [
      { title: "FREES", cell: ({ frees }) => frees },
      { title: "CLAIM", cell: ({ claim }) => claim },
      { title: "FROM", cell: ({ from }) => from },
      { title: "TO", cell: ({ to }) => to },
    ],
    rows,
    { headers: true },
  );
  return `${lines.join("\n")}\n${totalOf(goal, steps)}\n`;
}

/** `2 moves free 2 devices; nothing has been moved`. */
function totalOf(goal: ConsolidationGoal, steps: readonly ConsolidationStep[]): string {
  const moves = steps.reduce((sum, step) => sum + step.moves.length, 0);
  const devices = steps.reduce((sum, step) => sum + step.devices.length, 0);
  const freed = goal === "node" ? countOf(steps.length, "node") : countOf(devices, "device");
  return `${countOf(moves, "move")} ${moves === 1 ? "frees" : "free"} ${freed}; nothing has been moved`;
}
