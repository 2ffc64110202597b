// SPDX-License-Identifier: Apache-2.0
// Which native file may include which: every quoted include leads to a file, components include only those below them,
// and no units form a cycle, a header and its source being one unit.
import { dirname, join, normalize } from "node:path";
import { closedPath, findCycles, type SourceFile } from "./import-rules.ts";

export interface IncludeRules {
  /** By component: those that its product code may include beside itself. */
  readonly components: Readonly<Record<string, readonly string[]>>;
  /**
   * By component, its folders as layers: those that the product code of a folder may include beside itself. "" are the
   * files directly in the component.
   */
  readonly layers?: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
  /** Components that only tests and benchmarks consist of: they may include all. */
  readonly testing: readonly string[];
  /** Units of cycles that are left; a new cycle, or a further unit in one of these, is a fault. */
  readonly knownCycles: readonly (readonly string[])[];
}

const includeDirective = /^[ \t]*#[ \t]*include[ \t]+"([^"]+)"/gm;
const testPath = /(^|\/)(testing|tests|attacks)\/|_(test|fuzz)\.cpp$/;

/** @param files with paths relative to the include root. @returns faults, one line each */
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
      const fault = faultOfComponents(path, target, rules);
      if (fault !== undefined) faults.push(fault);
      if (unitOf(path) !== unitOf(target)) graph.get(unitOf(path))?.push(unitOf(target));
    }
  }
  return [...faults, ...faultsOfCycles(graph, rules)];
}

function faultOfComponents(from: string, to: string, rules: IncludeRules): string | undefined {
  const [own, other] = [componentOf(from), componentOf(to)];
  if (testPath.test(from) || rules.testing.includes(own)) return undefined;
  if (own === other) return faultOfLayers(from, to, rules);
  const mayInclude = rules.components[own];
  if (mayInclude === undefined) return `${from}: ${own} is no component of scripts/lib/checks/layers.ts`;
  return mayInclude.includes(other)
    ? undefined
    : `${from} includes ${to}: ${own} may include ${mayInclude.join(", ") || "nothing else"}`;
}

function faultOfLayers(from: string, to: string, rules: IncludeRules): string | undefined {
  const layers = rules.layers?.[componentOf(from)];
  const [own, other] = [layerOf(from), layerOf(to)];
  if (layers === undefined || own === other) return undefined;
  const mayInclude = layers[own];
  if (mayInclude === undefined) return `${from}: ${own} is no layer of scripts/lib/checks/layers.ts`;
  const named = mayInclude.map((layer) => (layer === "" ? componentOf(from) : layer));
  return mayInclude.includes(other)
    ? undefined
    : `${from} includes ${to}: ${own} may include ${named.join(", ") || "nothing else"}`;
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

/** The folder inside the component; "" for files that lie directly in it. */
function layerOf(path: string): string {
  const [, folder = "", file] = path.split("/");
  return file === undefined ? "" : folder;
}

function componentOf(path: string): string {
  return path.slice(0, Math.max(0, path.indexOf("/")));
}
