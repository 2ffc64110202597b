// SPDX-License-Identifier: Apache-2.0
// Programs with known errors, and without any, under `millpond sanitize`, which needs no pool.
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { nativeDir } from "../scripts/lib/paths.ts";
import { examples } from "./support/pool.ts";

const programs = join(nativeDir("release"), "driver_programs");

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "millpond-sanitize-test-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Output {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function sanitize(...args: readonly string[]): Promise<Output> {
  try {
    return { status: 0, ...(await promisify(execFile)(process.execPath, [entry, "sanitize", ...args])) };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { status: code, stdout, stderr };
  }
}

interface Report {
  readonly kind: string;
  readonly program: readonly string[];
  readonly exitStatus: number;
  readonly findings: readonly Finding[];
}
interface Finding {
  readonly kind: string;
  readonly kernel?: string;
  readonly by?: { readonly fileLine: number };
  readonly against?: { readonly fileLine: number };
}

it("every error is found with its thread, its line and the memory next to it, in whatever process it is", async () => {
  const bugs = ["bug-behind", "bug-freed", "bug-null", "bug-race", "bug-leak", "bug-left"];
  const log = join(folder, "report.json");
  const options = ["--leak-check", "--log", log, "-o", "json"];
  const script = bugs.map((bug) => `"$0" ${bug}`).join(" && ");
  const { status, stdout } = await sanitize(...options, "--", "sh", "-c", script, programs);
  // The programs print the same as without checks, including errors of the driver.
  expect({ status, stdout }).toEqual({ status: 1, stdout: bugs.map((bug) => `${bug}: OK\n`).join("") });
  const report = JSON.parse(readFileSync(log, "utf8")) as Report;
  expect(report).toMatchObject({ kind: "SanitizeReport", exitStatus: 0, tools: ["memcheck", "racecheck"] });
  const fill = { kernel: "fill(unsigned int*)", kind: "access", space: "global", block: [0, 0, 0] };
  const line12 = {
    access: "write",
    line: 15,
    function: "fill(unsigned int*)",
    file: "bugs.cu",
    fileLine: 12,
  };
  const [behind, freed, none, ...others] = report.findings;
  expect(behind).toMatchObject({
    ...fill,
    what: "out of bounds",
    count: 16,
    bytes: 4,
    isFatal: false,
    by: { ...line12, thread: [48, 0, 0] },
    nearest: { bytes: 4000, number: 1, by: "cuMemAlloc" },
  });
  expect(freed).toMatchObject({
    ...fill,
    what: "use after free",
    count: 64,
    by: { ...line12, thread: [0, 0, 0] },
    nearest: { bytes: 4000, number: 2, by: "cuMemAlloc", freedBy: "cuMemFree" },
  });
  expect(none).toMatchObject({ ...fill, what: "illegal address", count: 64, isFatal: true, address: "0x0" });
  const races = others.filter(({ kind }) => kind === "race");
  expect(races.length).toBeGreaterThan(0);
  for (const race of races) {
    expect(race).toMatchObject({ kernel: "racing", space: "shared", variable: "tile", bytes: 4 });
    const lines = [race.by?.fileLine ?? 0, race.against?.fileLine ?? 0];
    expect(lines.toSorted((x, y) => x - y)).toEqual([20, 22]);
  }
  const leak = (bytes: number): object => ({
    kind: "leak",
    what: "device memory was not freed",
    count: 1,
    nearest: expect.objectContaining({ bytes, by: "cuMemAlloc" }) as unknown,
  });
  // Leaks: memory that is left at exit, and memory that was destroyed with its context.
  expect(others.filter(({ kind }) => kind !== "race")).toEqual([leak(256), leak(512)]);
});

it("where there is no error it says what was checked", async () => {
  const script = '"$0" bug-none && "$1" vectoradd 1000 >&2 && "$1" reduction && "$1" histogram';
  const output = await sanitize("--", "sh", "-c", `(${script}) 2>&1 | grep -c OK`, programs, examples);
  expect(output).toMatchObject({ status: 0, stdout: "4\n" });
  expect(output.stderr).toMatch(/^millpond sanitize: no finding in \d+ launches of \d+ kernels\n$/);
});

it("the report is for people, and the exit status what was asked for", async () => {
  const options = ["--tool", "racecheck", "--error-exitcode", "9"];
  const { status, stderr } = await sanitize(...options, "--", programs, "bug-race");
  expect(status).toBe(9);
  expect(stderr).toContain("race in shared memory");
  expect(stderr).toMatch(/write by thread \(\d+, 0, 0\) at bugs\.cu:20, PTX line \d+ of racing/);
  expect(stderr).toMatch(/read by thread \(\d+, 0, 0\) at bugs\.cu:22, PTX line \d+ of racing/);
});

it("a check that was not asked for is not made", async () => {
  const output = await sanitize("--tool", "memcheck", "--", programs, "bug-race");
  expect(output).toMatchObject({ status: 0, stdout: "bug-race: OK\n" });
  expect(output.stderr).toMatch(/^millpond sanitize: no finding in \d+ launch(es)? of 1 kernel\n$/);
});

it("a program of which nothing was checked has not passed", async () => {
  const idle = await sanitize("--", "true");
  expect(idle).toMatchObject({ status: 1, stdout: "" });
  expect(idle.stderr).toMatch(
    /^millpond sanitize: nothing was checked: no kernel of the program was launched\n$/,
  );
  expect((await sanitize("--error-exitcode", "0", "--", "true")).status).toBe(0);
  expect((await sanitize("--", "sh", "-c", "exit 7")).status).toBe(7);
  const machineCode = await sanitize("--", programs, "bug-unreadable");
  expect(machineCode).toMatchObject({ status: 1, stdout: "bug-unreadable: OK\n" });
  expect(machineCode.stderr).toMatch(
    /2 findings; nothing was checked[^]*1\. an image could not be loaded, .*: [^]*2\. cuModuleLoadData returned /,
  );
});

it("unwritten memory, divided barriers, failed calls and copies out of bounds are found with the program's calls", async () => {
  const log = join(folder, "calls.json");
  const bugs = ["bug-unwritten", "bug-barrier", "bug-twice", "bug-copy"];
  const script = bugs.map((bug) => `"$0" ${bug}`).join(" && ");
  const options = ["--tool", "memcheck,initcheck,synccheck", "--log", log, "-o", "json"];
  const { status } = await sanitize(...options, "--", "sh", "-c", script, programs);
  expect(status).toBe(1);
  const { findings } = JSON.parse(readFileSync(log, "utf8")) as {
    readonly findings: readonly {
      readonly kind: string;
      readonly launchedBy?: { readonly text: string; readonly stack: readonly string[] };
      readonly calledBy?: { readonly text: string };
      readonly nearest?: { readonly allocatedBy?: { readonly text: string } };
    }[];
  };
  const of = (kind: string) => findings.filter((each) => each.kind === kind);
  // The last eight words, once: the second launch reads what the first one has written.
  const unwritten = of("uninitialised");
  expect(unwritten).toMatchObject([{ kernel: "summing", count: 8, by: { fileLine: 30 } }]);
  expect(unwritten[0]?.launchedBy?.text).toMatch(/^cuLaunchKernel\(.*"summing"/);
  expect(unwritten[0]?.launchedBy?.stack.length).toBeGreaterThan(1);
  expect(unwritten[0]?.nearest?.allocatedBy?.text).toMatch(/^cuMemAlloc_v2\(/);
  expect(of("barrier")).toMatchObject([
    { kernel: "parting", what: "threads wait at the same barrier at different instructions" },
  ]);
  expect(of("call")).toMatchObject([
    { what: "cuMemFree_v2", result: "CUDA_ERROR_INVALID_VALUE" },
    { what: "cuMemcpyHtoD_v2", result: "CUDA_ERROR_INVALID_VALUE" },
  ]);
  expect(of("call")[1]?.calledBy?.text).toMatch(/^cuMemcpyHtoD_v2\(.*ByteCount=260\)/);
});

it("on a card, calls and copies are checked, and it is said that accesses of kernels are not", async () => {
  // The worker treats the software GPU's driver as any other.
  const card = ["--driver", join(nativeDir("release"), "softgpu", "libcuda.so.1")];
  const script = '"$0" bug-twice && "$0" bug-copy && "$0" bug-null';
  const { status, stderr } = await sanitize(...card, "--", "sh", "-c", script, programs);
  expect(status).toBe(1);
  expect(stderr).toMatch(
    /millpond sanitize: 3 findings in \d+ calls of CUDA\nAccesses of kernels are not checked on a card/,
  );
  expect(stderr).toMatch(/\. cuMemFree_v2 returned CUDA_ERROR_INVALID_VALUE\n +called by .*\n +.*bugTwice/);
  expect(stderr).toMatch(
    /\. cuMemcpyHtoD_v2 returned CUDA_ERROR_INVALID_VALUE\n +called by .*ByteCount=260\)\n +.*bugCopy/,
  );
  expect(stderr).toMatch(/\. cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS\n/);
  const clean = await sanitize(...card, "--", programs, "bug-none");
  expect(clean).toMatchObject({
    status: 0,
    stderr: expect.stringMatching(/no finding in \d+ calls of CUDA\nAccesses of kernels/) as string,
  });
  const idle = await sanitize(...card, "--", "true");
  expect(idle).toMatchObject({ status: 1, stderr: expect.stringMatching(/made no call of CUDA/) as string });
  const refused = await sanitize(...card, "--tool", "racecheck", "--", programs, "bug-race");
  expect(refused).toMatchObject({
    status: 118,
    stderr: expect.stringMatching(/--tool needs a software GPU/) as string,
  });
});

it("a program that is not there, and a check that there is not, are told at once", async () => {
  expect((await sanitize("--", "./no-such-program")).status).toBe(127);
  const { status, stderr } = await sanitize("--tool", "leakcheck", "--", "true");
  expect(status).toBe(118);
  expect(stderr).toContain('--tool: "leakcheck" is not one of memcheck, racecheck, initcheck, synccheck');
});
