// SPDX-License-Identifier: Apache-2.0
// Builds examples/ into build/examples/: one program for each example, and millpond-examples, which holds them all. Without
// nvcc the CUDA ones are links to the checked-in examples/prebuilt/millpond-examples, which runs the example that it is
// called as. `--prebuilt` rebuilds that binary.
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { must, ScriptError, script } from "./lib/command.ts";
import { findNvcc, isStale, runAll } from "./lib/build/nvcc.ts";
import { inRoot } from "./lib/paths.ts";
import { type Progress, step } from "./lib/steps.ts";

const source = inRoot("examples");
const target = inRoot("build", "examples");
const prebuilt = inRoot("examples", "prebuilt", "millpond-examples");
/** Size limit of the checked-in binary, in bytes. */
const prebuiltLimit = 1_500_000;
const all = "millpond-examples";

/** Options of every nvcc call: PTX for one old virtual architecture, which every later device compiles itself. */
const nvccOptions = ["-O2", "-std=c++17", "-gencode", "arch=compute_75,code=compute_75", "-cudart", "static"];

async function buildFromSource(nvcc: string, files: string[], progress: Progress): Promise<void> {
  const headers = files.filter((file) => file.endsWith(".h")).map((file) => join(source, file));
  const cudaFiles = files.filter((file) => file.endsWith(".cu")).map((file) => join(source, file));
  const objectOf = (file: string): string => join(target, "objects", `${basename(file, ".cu")}.o`);
  await mkdir(join(target, "objects"), { recursive: true });

  const compile: (() => Promise<void>)[] = [];
  for (const file of cudaFiles) {
    if (!(await isStale(objectOf(file), [file, ...headers]))) continue;
    compile.push(async () => {
      await must(nvcc, [...nvccOptions, "-c", file, "-o", objectOf(file)]);
    });
  }
  await runAll(compile, progress);

  const link: (() => Promise<void>)[] = [];
  const programs = cudaFiles.map((file) => ({
    program: join(target, basename(file, ".cu")),
    objects: [objectOf(file)],
  }));
  programs.push({ program: join(target, all), objects: cudaFiles.map(objectOf) });
  for (const { program, objects } of programs) {
    if (!(await isStale(program, objects))) continue;
    link.push(async () => {
      await rm(program, { force: true });
      await must(nvcc, [...nvccOptions, ...objects, "-o", program]);
      await must("strip", [program]);
    });
  }
  await runAll(link, progress);
}

async function linkPrebuilt(files: string[]): Promise<void> {
  const names = files.filter((file) => file.endsWith(".cu")).map((file) => basename(file, ".cu"));
  for (const name of [...names, all]) {
    const path = join(target, name);
    await rm(path, { force: true });
    await symlink(relative(target, prebuilt), path);
  }
}

/** Builds all examples; returns the source of the CUDA ones. */
export async function buildExamples(progress: Progress): Promise<"nvcc" | "prebuilt"> {
  const files = (await readdir(source)).toSorted();
  await mkdir(target, { recursive: true });

  const driverSource = join(source, "driver-vectoradd.c");
  const driverProgram = join(target, "driver-vectoradd");
  if (await isStale(driverProgram, [driverSource])) {
    await must("cc", ["-std=c11", "-O2", "-Wall", "-Wextra", driverSource, "-ldl", "-o", driverProgram]);
  }
  const nvcc = await findNvcc();
  if (nvcc === undefined) {
    await linkPrebuilt(files);
    return "prebuilt";
  }
  await buildFromSource(nvcc, files, progress);
  return "nvcc";
}

/** Text of examples/prebuilt/README.md. */
function prebuiltReadme(hash: string, bytes: number, compiler: string): string {
  return `# The checked-in example binary

Most machines have no CUDA compiler, so \`millpond-examples\` holds all programs of this folder, built and stripped:
\`millpond-examples vectoradd 1000\`, or a link named \`vectoradd\` to it. It carries PTX for \`compute_75\`, which the
driver (or the software GPU) compiles for the device at hand, and the CUDA runtime, linked statically.

| | |
|---|---|
| made by | \`node scripts/start.mjs build-examples --prebuilt\` |
| which runs, in \`examples/\` | \`nvcc ${nvccOptions.join(" ")} *.cu -o prebuilt/millpond-examples && strip prebuilt/millpond-examples\` |
| compiler | ${compiler} |
| size | ${bytes} bytes |
| SHA-256 | \`${hash}\` |

The same compiler makes the same bytes again. \`npm run check\` compares the file with this page.
Where nvcc is found, \`npm run build\` builds the examples from source and does not use this file.
`;
}

async function makePrebuilt(): Promise<void> {
  const nvcc = await findNvcc();
  if (nvcc === undefined)
    throw new ScriptError("no nvcc found: set NVCC or add it to PATH (CUDA toolkit 13.0)");
  const files = (await readdir(source)).filter((file) => file.endsWith(".cu")).toSorted();
  const made = join(target, "objects", all);
  await mkdir(join(target, "objects"), { recursive: true });
  await must(nvcc, [...nvccOptions, ...files, "-o", made], { cwd: source });
  await must("strip", [made]);
  const bytes = await readFile(made);
  if (bytes.length > prebuiltLimit) {
    throw new ScriptError(
      `the binary has ${bytes.length} bytes, more than the ${prebuiltLimit} that may be checked in`,
    );
  }
  const version = /release [^\n]*/.exec(await must(nvcc, ["--version"]))?.[0] ?? "unknown";
  const hash = createHash("sha256").update(bytes).digest("hex");
  await mkdir(join(source, "prebuilt"), { recursive: true });
  await copyFile(made, prebuilt);
  await writeFile(
    join(source, "prebuilt", "README.md"),
    prebuiltReadme(hash, bytes.length, `nvcc, ${version}`),
  );
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({ args, options: { prebuilt: { type: "boolean", default: false } } });
    if (values.prebuilt) await step("examples/prebuilt/millpond-examples", makePrebuilt);
    else await step("examples", buildExamples);
  });
}
