// SPDX-License-Identifier: Apache-2.0
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadAbi } from "@millpond/cuda";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { emitLayoutAssertions, emitTypes, prototypeText } from "./emit-types.ts";

const abi = loadAbi();
const ourHeader = emitTypes(abi);
const cudaInclude = join(process.env["CUDA_HOME"] ?? "/usr/local/cuda", "include");
/** Declarations of cuda.h and cudaProfiler.h; the interop headers need graphics headers that few machines have. */
const isCore = (header: string): boolean => header === "cuda" || header === "cudaProfiler";
const isInterop = (type: string): boolean => /^CU(egl|GL)/.test(type);

let scratch = "";
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "millpond-types-"));
  mkdirSync(join(scratch, "cuda/gen"), { recursive: true });
  writeFileSync(join(scratch, "cuda/gen/cuda_api.h"), ourHeader);
});
afterAll(() => rmSync(scratch, { recursive: true }));

function compile(compiler: string, standard: string, source: string, flags: readonly string[] = []): void {
  const file = join(scratch, `source.${compiler === "cc" ? "c" : "cpp"}`);
  writeFileSync(file, source);
  const args = [
    "-fsyntax-only",
    `-std=${standard}`,
    "-Wall",
    "-Wextra",
    "-Werror",
    ...flags,
    `-I${scratch}`,
    file,
  ];
  try {
    execFileSync(compiler, args, { encoding: "utf8", stdio: "pipe" });
  } catch (error) {
    const output = error instanceof Error && "stderr" in error ? String(error.stderr) : String(error);
    throw new Error(output.slice(0, 4000), { cause: error });
  }
}

describe("cuda_api.h", () => {
  test("compiles alone as C11 and as C++20, with every size, offset and value as computed", () => {
    const source = `#include "cuda/gen/cuda_api.h"\n${emitLayoutAssertions(abi)}`;
    compile("cc", "c11", source);
    compile(
      "c++",
      "c++20",
      source.replaceAll("_Static_assert", "static_assert").replaceAll("_Alignof", "alignof"),
    );
  });

  test("wrong layouts do not compile", () => {
    const wrong = emitLayoutAssertions(abi).replace(
      "sizeof(CUlaunchConfig) == 56",
      "sizeof(CUlaunchConfig) == 64",
    );
    expect(() => compile("cc", "c11", `#include "cuda/gen/cuda_api.h"\n${wrong}`)).toThrow(
      "sizeof CUlaunchConfig",
    );
  });

  test("declares all names of CUDA 13.0", () => {
    const core = abi.functions.filter((f) => f.header === "cuda");
    expect(new Set(core.map((f) => f.base)).size).toBe(447);
    expect(core).toHaveLength(634);
    expect(new Set(abi.functions.map((f) => f.symbol)).size).toBe(abi.functions.length);
    expect(core.filter((f) => f.flavour !== "none")).toHaveLength(97);
  });
});

const reason = existsSync(join(cudaInclude, "cuda.h")) ? "" : ` (skipped: no cuda.h in ${cudaInclude})`;
describe.skipIf(reason !== "")(`the real cuda.h${reason}`, () => {
  const flags = ["-D__CUDA_API_VERSION_INTERNAL", "-D__CUDA_API_VERSION_INTERNAL_ODR", `-I${cudaInclude}`];
  const head = "#include <cuda.h>\n#include <cudaProfiler.h>\n";
  const version = `#if CUDA_VERSION != ${abi.cudaVersion}\n#error "another release"\n#endif\n`;

  test("has the same layouts and enum values", () => {
    const assertions = emitLayoutAssertions(abi, (type) => !isInterop(type.name));
    compile("cc", "c11", head + version + assertions, flags);
  });

  test("has the same constants", () => {
    const checks = abi.constants
      .filter(([name]) => !name.startsWith("CUDA_EGL"))
      .map(([name, value]) => `_Static_assert((long long)(${name}) == (long long)(${value}), "${name}");`);
    compile("cc", "c11", head + checks.join("\n"), flags);
  });

  test("has the same prototypes, of every version", () => {
    const prototypes = abi.functions.filter((f) => isCore(f.header)).map(prototypeText);
    compile("cc", "c11", `${head}#define MILLPOND_CUDA_API\n${prototypes.join("\n")}\n`, flags);
  });
});
