// SPDX-License-Identifier: Apache-2.0
/**
 * Captures the driver API of an installed CUDA toolkit into `abi/cuda-<version>.json`.
 *
 *     node cuda/tools/capture.ts [include directory] [output file]
 *
 * Names, versions and layouts come from the headers, through the C preprocessor: needs `cc` and a toolkit. The output
 * is committed, so that neither is needed elsewhere.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import type { Abi, FunctionVariant, VariantFlavour } from "../src/abi.ts";
import { CParser, type Declarations, type Prototype } from "./c-parser.ts";

const headers = ["cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU"] as const;

/** The few foreign types of the interop headers, as the basic types that they are on 64-bit Linux. */
const foreign: Readonly<Record<string, string>> = {
  "GL/gl.h": "#define GLuint unsigned int\n#define GLenum unsigned int\n",
  "EGL/egl.h": "#define EGLint int\n",
  "EGL/eglext.h": "#define EGLImageKHR void*\n#define EGLStreamKHR void*\n#define EGLSyncKHR void*\n",
  "vdpau/vdpau.h":
    "#define VdpDevice unsigned int\n#define VdpVideoSurface unsigned int\n#define VdpOutputSurface unsigned int\n#define VdpGetProcAddress void\n",
};

function preprocess(include: string, flags: readonly string[]): string {
  const scratch = mkdtempSync(join(tmpdir(), "millpond-capture-"));
  try {
    for (const [path, text] of Object.entries(foreign)) {
      mkdirSync(join(scratch, path, ".."), { recursive: true });
      writeFileSync(join(scratch, path), text);
    }
    const names = [...Object.keys(foreign), ...headers.flatMap((h) => [`${h}.h`, `${h}Typedefs.h`])];
    writeFileSync(join(scratch, "all.c"), names.map((name) => `#include <${name}>\n`).join(""));
    // The first macro shows every version of a function, the second keeps enums to their public values.
    const macros = ["-D__CUDA_API_VERSION_INTERNAL", "-D__CUDA_API_VERSION_INTERNAL_ODR"];
    const args = ["-E", ...flags, ...macros, `-I${scratch}`, `-I${include}`, join(scratch, "all.c")];
    return execFileSync("cc", args, { encoding: "utf8", maxBuffer: 64 << 20 });
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** The lines of the preprocessor's output that come from a file whose name passes. */
function* linesOf(output: string, wanted: (file: string) => boolean): Generator<string> {
  let isWanted = false;
  for (const line of output.split("\n")) {
    const marker = /^# \d+ "([^"]*)"/.exec(line);
    if (marker) isWanted = wanted(basename(marker[1] ?? ""));
    else if (isWanted) yield line;
  }
}

const isOurs = (file: string): boolean => /^cuda[A-Za-z]*\.h$/.test(file);

function captureConstants(include: string): [string, string][] {
  const constants = new Map<string, string>();
  for (const line of linesOf(preprocess(include, ["-dD"]), isOurs)) {
    const define = /^#define ((?:CU|CUDA)_[A-Z0-9_]+) (.+)$/.exec(line);
    const [, name, value] = define ?? [];
    if (!name || !value || name.endsWith("_HAS_BEEN_DEFINED")) continue;
    constants.set(name, value.trim());
  }
  return [...constants];
}

/** `PFN_cuMemcpyHtoD_v7000_ptds` → its parts. */
function splitPointerName(name: string): { base: string; version: number; flavour: VariantFlavour } {
  const match = /^PFN_(\w+?)_v(\d{4,5})(?:_(ptds|ptsz))?$/.exec(name);
  if (!match) throw new Error(`${name}: not a versioned function pointer`);
  const [, base = "", version, suffix] = match;
  return {
    base,
    version: Number(version),
    flavour: suffix === "ptds" || suffix === "ptsz" ? suffix : "none",
  };
}

/** `cuMemcpyHtoD_v2_ptds` with base `cuMemcpyHtoD` → 2; 0 if the symbol has another base or variant. */
function revisionOf(symbol: string, base: string, flavour: VariantFlavour): number {
  const suffix = flavour === "none" ? "" : `_${flavour}`;
  if (!symbol.startsWith(base) || !symbol.endsWith(suffix)) return 0;
  const middle = symbol.slice(base.length, symbol.length - suffix.length);
  if (middle === "") return 1;
  const match = /^_v(\d)$/.exec(middle);
  return match ? Number(match[1]) : 0;
}

/**
 * Joins the versions, which only the pointer typedefs know, with the symbols, which only the prototypes know: the n-th
 * version of a name in one flavour is its n-th symbol.
 */
function joinVariants(perHeader: ReadonlyMap<string, Declarations>): FunctionVariant[] {
  const functions: FunctionVariant[] = [];
  const symbols = new Map<string, Prototype & { header: string }>();
  for (const [header, { prototypes }] of perHeader) {
    for (const prototype of prototypes) symbols.set(prototype.name, { ...prototype, header });
  }
  const groups = new Map<string, ReturnType<typeof splitPointerName>[]>();
  for (const { pointers } of perHeader.values()) {
    for (const pointer of pointers) {
      const parts = splitPointerName(pointer.name);
      const key = `${parts.base} ${parts.flavour}`;
      groups.set(key, [...(groups.get(key) ?? []), parts]);
    }
  }
  const used = new Set<string>();
  for (const variants of groups.values()) {
    variants.sort((a, b) => a.version - b.version);
    const { base, flavour } = variants[0] ?? { base: "", flavour: "none" };
    const candidates = [...symbols.values()]
      .map((prototype) => ({ prototype, revision: revisionOf(prototype.name, base, flavour) }))
      .filter(({ revision }) => revision > 0)
      .sort((a, b) => a.revision - b.revision);
    if (candidates.length !== variants.length) {
      const left = variants.map((v) => v.version).join(", ");
      throw new Error(
        `${base} (${flavour}): versions ${left} but symbols ${candidates.map((c) => c.prototype.name).join(", ")}`,
      );
    }
    variants.forEach((variant, index) => {
      const prototype = candidates[index]?.prototype;
      if (!prototype) return;
      used.add(prototype.name);
      const { name: symbol, returns, parameters, header } = prototype;
      functions.push({ base, symbol, version: variant.version, flavour, returns, parameters, header });
    });
  }
  const unused = [...symbols.keys()].filter((name) => !used.has(name));
  if (unused.length > 0) throw new Error(`prototypes without a version: ${unused.join(", ")}`);
  const order: Readonly<Record<VariantFlavour, number>> = { none: 0, ptds: 1, ptsz: 2 };
  const byName = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
  return functions.sort(
    (a, b) => byName(a.base, b.base) || a.version - b.version || order[a.flavour] - order[b.flavour],
  );
}

function capture(include: string): Abi {
  const output = preprocess(include, []);
  // All headers are parsed together, because later ones use types of the first; a second pass finds the header that declares
  // each symbol.
  const all = new CParser([...linesOf(output, isOurs)].join("\n")).parse();
  const perHeader = new Map<string, Declarations>();
  for (const header of headers) {
    const text = [...linesOf(output, (file) => file === `${header}.h`)].join("\n");
    const own = new Set([...text.matchAll(/\b(cu[A-Z]\w*)\s*\(/g)].map((m) => m[1]));
    const empty: Declarations = {
      types: [],
      prototypes: [],
      pointers: header === "cuda" ? all.pointers : [],
    };
    perHeader.set(header, { ...empty, prototypes: all.prototypes.filter((p) => own.has(p.name)) });
  }
  const constants = captureConstants(include);
  const version = Number(constants.find(([name]) => name === "CUDA_VERSION")?.[1]);
  return { cudaVersion: version, constants, types: all.types, functions: joinVariants(perHeader) };
}

/** JSON with one declaration per line, so that a diff between two releases is readable. */
function format(abi: Abi): string {
  const rows = (items: readonly unknown[]): string =>
    items.map((item) => `    ${JSON.stringify(item)}`).join(",\n");
  return (
    `{\n  "cudaVersion": ${abi.cudaVersion},\n` +
    `  "constants": [\n${rows(abi.constants)}\n  ],\n` +
    `  "types": [\n${rows(abi.types)}\n  ],\n` +
    `  "functions": [\n${rows(abi.functions)}\n  ]\n}\n`
  );
}

const include = resolve(process.argv[2] ?? "/usr/local/cuda/include");
const abi = capture(include);
const release = `${Math.floor(abi.cudaVersion / 1000)}.${(abi.cudaVersion % 1000) / 10}`;
const target = resolve(process.argv[3] ?? join(import.meta.dirname, "..", "abi", `cuda-${release}.json`));
writeFileSync(target, format(abi));
const bases = new Set(abi.functions.map((f) => f.base)).size;
console.log(
  `${target}: ${bases} names, ${abi.functions.length} variants, ${abi.types.length} types, ${abi.constants.length} constants`,
);
