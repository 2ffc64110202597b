// SPDX-License-Identifier: Apache-2.0
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { CParser } from "./c-parser.ts";

const include = join(process.env["CUDA_HOME"] ?? "/usr/local/cuda", "include");
const header = join(include, "cuda.h");
const release = existsSync(header)
  ? /#define CUDA_VERSION (\d+)/.exec(readFileSync(header, "utf8"))?.[1]
  : undefined;
const reason = release === "13000" ? "" : ` (skipped: no CUDA 13.0 headers in ${include})`;

test.skipIf(reason !== "")(`a capture of the installed headers is what is committed${reason}`, () => {
  const scratch = mkdtempSync(join(tmpdir(), "millpond-capture-test-"));
  try {
    const output = join(scratch, "captured.json");
    execFileSync(process.execPath, [join(import.meta.dirname, "capture.ts"), include, output], {
      stdio: "pipe",
    });
    const committed = readFileSync(join(import.meta.dirname, "..", "abi", "cuda-13.0.json"), "utf8");
    expect(readFileSync(output, "utf8") === committed).toBe(true);
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

describe("the parser", () => {
  test("reads typedefs, enums, records and prototypes", () => {
    const { types, prototypes, pointers } = new CParser(`
      typedef struct CUctx_st *CUcontext;
      typedef unsigned long long CUdeviceptr;
      typedef enum CUflags_enum { CU_A, CU_B = 0x10, CU_C = (1 << 5) | CU_B, CU_D, CU_E = -2 } CUflags;
      typedef struct CUpair_st { int a[2][3]; const char *name; union { float f; CUflags e; }; struct inner_st { char c; } in; } CUpair;
      typedef size_t (*CUcallback)(int blockSize);
      typedef CUresult (*PFN_cuThing_v11020_ptsz)(void);
      CUresult cuThing(CUcontext ctx, const void * const *list, unsigned flags, int dims[3]);
    `).parse();
    expect(types).toEqual([
      { kind: "handle", name: "CUcontext", tag: "CUctx_st" },
      { kind: "alias", name: "CUdeviceptr", type: "unsigned long long" },
      {
        kind: "enum",
        name: "CUflags",
        values: [
          ["CU_A", 0],
          ["CU_B", 16],
          ["CU_C", 48],
          ["CU_D", 49],
          ["CU_E", -2],
        ],
      },
      {
        kind: "struct",
        name: "CUpair",
        tag: "CUpair_st",
        members: [
          { name: "a", type: "int", dimensions: [2, 3] },
          { name: "name", type: "const char*" },
          {
            record: {
              kind: "union",
              members: [
                { name: "f", type: "float" },
                { name: "e", type: "CUflags" },
              ],
            },
          },
          { name: "in", record: { kind: "struct", tag: "inner_st", members: [{ name: "c", type: "char" }] } },
        ],
      },
      {
        kind: "callback",
        name: "CUcallback",
        returns: "size_t",
        parameters: [{ type: "int", name: "blockSize" }],
      },
    ]);
    expect(prototypes).toEqual([
      {
        name: "cuThing",
        returns: "CUresult",
        parameters: [
          { type: "CUcontext", name: "ctx" },
          { type: "const void* const*", name: "list" },
          { type: "unsigned int", name: "flags" },
          { type: "int*", name: "dims" },
        ],
      },
    ]);
    expect(pointers).toEqual([{ name: "PFN_cuThing_v11020_ptsz", returns: "CUresult", parameters: [] }]);
  });

  test.each([
    ["typedef int (;", "a type is missing before ;"],
    ["typedef struct { int a } S;", "expected ; but found }"],
    ["int x;", "only functions are expected"],
    ["typedef enum { A = sizeof(CUnknown) } E;", "sizeof(CUnknown) is not known"],
    ["typedef enum { A = B } E;", "B is not a constant"],
    ["typedef struct { void (*f)(int); } S;", "function pointers need a typedef"],
    ["CUresult f(int a) @", "cannot read C near"],
  ])("refuses %s", (source, message) => {
    expect(() => new CParser(source).parse()).toThrow(message);
  });
});
