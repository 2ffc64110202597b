// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import {
  changeContexts,
  type Context,
  type ContextFile,
  contextFilePath,
  readContexts,
  removeContext,
  requireContext,
} from "../../connection/context.ts";
import { renderObject } from "../../output/resources.ts";
import { type Column, layOut } from "../../output/table.ts";

export async function run(
  values: Values<"context">,
  [action = "", name = ""]: readonly string[],
): Promise<number> {
  const path = contextFilePath(process.env);
  if (action === "list") {
    process.stdout.write(render(readContexts(path), values.output ?? "table"));
    return exitStatus.ok;
  }
  if (name === "") {
    throw millpondError("MILLPOND_E_INVALID", `\`millpond context ${action}\` needs the name of a context`);
  }
  changeContexts(path, (file) => {
    requireContext(file, name);
    return action === "use" ? { ...file, currentContext: name } : removeContext(file, name);
  });
  process.stdout.write(action === "use" ? `the current context is ${name}\n` : `context/${name} deleted\n`);
  return exitStatus.ok;
}

type Row = readonly [string, Context];

function render({ currentContext, contexts }: ContextFile, format: "table" | "name" | "json"): string {
  const rows: readonly Row[] = Object.entries(contexts).sort(([one], [other]) => (one < other ? -1 : 1));
  if (format === "name") return rows.map(([name]) => `${name}\n`).join("");
  if (format === "json") {
    const items = rows.map(([name, { controller }]) => ({
      name,
      controller,
      current: name === currentContext,
    }));
    return renderObject("ContextList", { items });
  }
  const columns: readonly Column<Row>[] = [
    { title: "CURRENT", cell: ([name]) => (name === currentContext ? "*" : "") },
    { title: "NAME", cell: ([name]) => name },
    { title: "CONTROLLER", cell: ([, { controller }]) => controller },
    { title: "MADE-BY", cell: ([, { state }]) => (state === undefined ? "login" : `up --state ${state}`) },
  ];
  return `${layOut(columns, rows, { headers: true, widths: undefined }).lines.join("\n")}\n`;
}
