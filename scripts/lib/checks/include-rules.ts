// SPDX-License-Identifier: Apache-2.0
// Which native file may include which: every quoted include leads to a file, a layer includes only those that it names in
// CMake, and no units form a cycle, a header and its source being one unit.
import { dirname, join, normalize } from "node:path";
import { closedPath, findCycles, type SourceFile } from "./import-rules.ts";
import { findLayer, type NativeLayer } from "./native-layers.ts";

export interface IncludeRules {
  /** From the lowest up: each uses only those before it. */
  readonly layers: readonly NativeLayer[];
  /** Components that consist only of tests and benchmarks: they may include everything. */
  readonly testing: readonly string[];
  /** Known units of cycles; a new cycle, or another unit in one of these, is a fault. */
  readonly knownCycles: readonly (readonly string[])[];
}

const includeDirective = /^[ \t]*#[ \t]*include[ \t]+"([^"]+)"/gm;
const testPath = /(^|\/)(testing|tests|attacks)\/|_(test|fuzz)\.cpp$/;

/**
 * @param files with paths relative to the include root.
 * @returns faults, one line each
 */
export function findIncludeFaults(files: readonly SourceFile[], rules: IncludeRules): string[] {
  const faults: string[] = [];
  const paths = new Set(files.map(({ path }) => path));
  const graph = new Map<string, string[]>(files.map(({ path }) => [unitOf(path), []]));
  for (const { path, text } of files) {
    for (const [, included = ""] of text.matchAll(includeDirective)) {
      const beside = normalize(join(dirname(path), included));
      const target = paths.has(included) ? included : beside;
      if (!paths.has(target)) {
        faults.push(`${path} includes "${included}", which does not exist`);
        continue;
      }
      const fault = faultOfLayers(path, target, rules);
      if (fault !== undefined) faults.push(fault);
      if (unitOf(path) !== unitOf(target)) graph.get(unitOf(path))?.push(unitOf(target));
    }
  }
  return [...faults, ...faultsOfCycles(graph, rules)];
}

function faultOfLayers(from: string, to: string, { layers, testing }: IncludeRules): string | undefined {
  const isProgram = layers.some(({ without }) => without.includes(from));
  if (testPath.test(from) || isProgram || testing.includes(componentOf(from))) return undefined;
  const other = findLayer(to, layers);
  const own = findLayer(from, layers);
  if (own === undefined) return `${from} belongs to no layer: name its folder in a millpond_layer of CMake`;
  if (other?.name === own.name || (other !== undefined && own.uses.includes(other.name))) return undefined;
  return `${from} includes ${to}: ${own.name} uses ${own.uses.join(", ") || "no other layer"}`;
}

function faultsOfCycles(graph: ReadonlyMap<string, readonly string[]>, rules: IncludeRules): string[] {
  const cycles = findCycles(graph);
  const faults: string[] = [];
  for (const cycle of cycles) {
    const known = rules.knownCycles.find((units) => units.some((unit) => cycle.includes(unit)));
    const added = cycle.filter((unit) => known?.includes(unit) !== true);
    if (known === undefined) faults.push(`include cycle: ${closedPath(cycle, graph).join(" → ")}`);
    else if (added.length > 0) faults.push(`a known include cycle has grown by ${added.join(", ")}`);
  }
  const cyclic = new Set(cycles.flat());
  const gone = rules.knownCycles.flat().filter((unit) => !cyclic.has(unit));
  if (gone.length > 0) {
    faults.push(`no longer in a cycle, to be removed from scripts/lib/checks/layers.ts: ${gone.join(", ")}`);
  }
  return faults;
}

/** A header and its source, without the suffix. */
function unitOf(path: string): string {
  return path.replace(/\.(h|cpp|c)$/, "");
}

function componentOf(path: string): string {
  return path.slice(0, Math.max(0, path.indexOf("/")));
}
