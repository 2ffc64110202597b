// SPDX-License-Identifier: Apache-2.0
// Which file may import which: no cycles (types included), layers that point one way, and workspaces that are entered by
// their index only and declared as dependencies.
import { dirname, join, normalize, relative } from "node:path";

/** A source file, reduced to its imports. Paths are relative to the root, with `/`. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

export interface Workspace {
  /** Folder at the root. */
  readonly folder: string;
  readonly name: string;
  /** Names of the workspaces that its package.json declares. */
  readonly dependencies: readonly string[];
}

export interface ImportRules {
  /**
   * By folder: its subfolders, each with those that it may import in addition to itself. Files directly in the folder may
   * import all.
   */
  readonly layers: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
  /** Relative imports between root folders that are allowed: `from → to`, with the reason. */
  readonly shared: Readonly<Record<string, string>>;
}

const importStatement =
  /^(?:import|export)\b[^;'"]*?\bfrom\s+"([^"]+)"|^import\s+"([^"]+)"|\bimport\("([^"]+)"\)/gm;

/** Specifiers of all imports of a module, types included. */
export function importsOf(text: string): string[] {
  return [...text.matchAll(importStatement)].map(([, from, bare, dynamic]) => from ?? bare ?? dynamic ?? "");
}

/** @returns violations of the rules, one line each; empty: there are none */
export function findImportFaults(
  files: readonly SourceFile[],
  workspaces: readonly Workspace[],
  rules: ImportRules,
): string[] {
  const graph = new Map<string, string[]>();
  const faults: string[] = [];
  for (const { path, text } of files) {
    const targets: string[] = [];
    for (const specifier of importsOf(text)) {
      if (specifier.startsWith(".")) {
        const target = normalize(join(dirname(path), specifier));
        targets.push(target);
        const fault = faultOfPath(path, target, rules);
        if (fault !== undefined) faults.push(fault);
      } else {
        const fault = faultOfPackage(path, specifier, workspaces);
        if (fault !== undefined) faults.push(fault);
      }
    }
    graph.set(path, targets);
  }
  return [
    ...faults,
    ...findCycles(graph).map((cycle) => `import cycle: ${closedPath(cycle, graph).join(" → ")}`),
  ];
}

function faultOfPath(from: string, to: string, { layers, shared }: ImportRules): string | undefined {
  const [ownRoot, otherRoot] = [rootFolder(from), rootFolder(to)];
  if (ownRoot !== otherRoot) {
    return shared[`${ownRoot} → ${otherRoot}`] === undefined && to.endsWith(".ts")
      ? `${from} imports ${to}: another workspace is imported by its name, not by a path`
      : undefined;
  }
  for (const [folder, allowed] of Object.entries(layers)) {
    const [own, other] = [layerOf(from, folder), layerOf(to, folder)];
    if (own === undefined || other === undefined || own === other || from.endsWith(".test.ts")) continue;
    const mayImport = allowed[own];
    if (mayImport === undefined) {
      if (own !== "") return `${from}: ${folder}/${own} is no layer of scripts/lib/checks/layers.ts`;
    } else if (!mayImport.includes(other)) {
      return `${from} imports ${to}: ${folder}/${own} may import ${mayImport.map((each) => each || "the folder itself").join(", ") || "nothing else"}`;
    }
  }
  return undefined;
}

/** Subfolder of a layered folder that contains a file; empty: the folder itself; undefined: it is elsewhere. */
function layerOf(path: string, folder: string): string | undefined {
  const inside = relative(folder, path);
  if (inside.startsWith("..")) return undefined;
  return inside.includes("/") ? inside.slice(0, inside.indexOf("/")) : "";
}

function faultOfPackage(
  from: string,
  specifier: string,
  workspaces: readonly Workspace[],
): string | undefined {
  const imported = workspaces.find(({ name }) => specifier === name || specifier.startsWith(`${name}/`));
  const own = workspaces.find(({ folder }) => rootFolder(from) === folder);
  return imported === undefined || own === undefined || own.dependencies.includes(imported.name)
    ? undefined
    : `${from} imports ${specifier}: ${own.folder}/package.json does not declare ${imported.name}`;
}

function rootFolder(path: string): string {
  return path.slice(0, Math.max(0, path.indexOf("/")));
}

/** The strongly connected components of more than one file, by Tarjan's algorithm. */
export function findCycles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (file: string): void => {
    const number = order.size;
    order.set(file, number);
    lowest.set(file, number);
    stack.push(file);
    for (const target of graph.get(file) ?? []) {
      if (!order.has(target)) visit(target);
      if (stack.includes(target)) {
        lowest.set(file, Math.min(lowest.get(file) ?? 0, lowest.get(target) ?? 0));
      }
    }
    if (lowest.get(file) !== number) return;
    const component = stack.splice(stack.indexOf(file));
    if (component.length > 1 || (graph.get(file) ?? []).includes(file)) {
      cycles.push(component);
    }
  };
  for (const file of graph.keys()) {
    if (!order.has(file)) visit(file);
  }
  return cycles;
}

/** A shortest path from the first file of a component back to itself. */
export function closedPath(
  component: readonly string[],
  graph: ReadonlyMap<string, readonly string[]>,
): string[] {
  const [start = ""] = component;
  const cameFrom = new Map<string, string>();
  const queue = [start];
  for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
    for (const target of graph.get(file) ?? []) {
      if (target === start) {
        const path = [start];
        for (let each = file; each !== start; each = cameFrom.get(each) ?? start) path.unshift(each);
        return [start, ...path];
      }
      if (component.includes(target) && !cameFrom.has(target)) {
        cameFrom.set(target, file);
        queue.push(target);
      }
    }
  }
  return [...component];
}
