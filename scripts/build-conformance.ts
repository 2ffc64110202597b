// SPDX-License-Identifier: Apache-2.0
// Builds conformance/programs/ into build/conformance/bin/: one binary for each form, with all of its programs. Without nvcc
// only the C programs are built. `--kernels` rebuilds the checked-in images of their kernels.
import { existsSync } from "node:fs";
import { copyFile, mkdir, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { must, ScriptError, script } from "./lib/command.ts";
import { findNvcc, isStale, runAll } from "./lib/build/nvcc.ts";
import { inRoot, nativeDir } from "./lib/paths.ts";
import { type Progress, step } from "./lib/steps.ts";

const source = inRoot("conformance", "programs");
const target = inRoot("build", "conformance");
const bin = join(target, "bin");
const images = join(source, "driver", "images");

/** PTX for one old virtual architecture, which every later device compiles itself. */
const ptx = ["-gencode", "arch=compute_75,code=compute_75"];
/** PTX for features that only newer devices have, for files with such a name. */
const newerPtx = ["-gencode", "arch=compute_90,code=compute_90"];
const nvccOptions = ["-O2", "-std=c++17", "-I", source, "-Xcompiler", "-Wall,-Wextra,-pthread"];
/** Minimal hosts have no libstdc++. */
const linkOptions = ["-Xcompiler", "-static-libstdc++,-static-libgcc,-pthread", "-ldl"];

interface CudaForm {
  name: string;
  /** Folders below conformance/programs with its sources. */
  folders: string[];
  /** Additional files from other folders. */
  also?: string[];
  compile: string[];
  link: string[];
}

/** Programs of the static variant that are also linked with the shared runtime. */
const sharedToo = [
  "vectors",
  "streams-legacy",
  "events",
  "symbols",
  "error-codes",
  "printf",
  "graph-capture",
];

const cudaForms: CudaForm[] = [
  { name: "runtime", folders: ["runtime"], compile: [], link: ["-cudart", "static"] },
  // Kept apart from the others, so that a binary can be loaded as a whole on devices without these features.
  { name: "newer", folders: ["newer"], compile: [], link: ["-cudart", "static"] },
  {
    name: "shared",
    folders: ["shared"],
    also: sharedToo.map((name) => join(source, "runtime", `${name}.cu`)),
    compile: [],
    link: ["-cudart", "shared", "-Xlinker", "-rpath,$ORIGIN"],
  },
  {
    name: "per-thread",
    folders: ["per-thread"],
    compile: ["--default-stream", "per-thread"],
    link: ["-cudart", "static"],
  },
  { name: "rdc", folders: ["rdc"], compile: ["-rdc=true"], link: ["-rdc=true", ...ptx, "-cudart", "static"] },
];

async function sourcesOf(form: CudaForm): Promise<string[]> {
  const files = form.folders.map(async (folder) => {
    const names = (await readdir(join(source, folder))).toSorted();
    return names.filter((name) => name.endsWith(".cu")).map((name) => join(source, folder, name));
  });
  return [...(await Promise.all(files)).flat(), ...(form.also ?? []).filter((file) => existsSync(file))];
}

/** Object files are placed by the folder of their source, so a file of two variants is compiled once. */
function objectOf(file: string): string {
  return join(target, "objects", basename(dirname(file)), `${basename(file, ".cu")}.o`);
}

async function headers(): Promise<string[]> {
  const names = await readdir(source, { recursive: true });
  return names.filter((name) => name.endsWith(".h")).map((name) => join(source, name));
}

/** Links or compiles into a temporary file that replaces the output, so that a partial output never exists. */
async function make(output: string, command: (to: string) => Promise<unknown>): Promise<void> {
  const part = `${output}.part`;
  await command(part);
  await rename(part, output);
}

async function buildCuda(nvcc: string, progress: Progress): Promise<void> {
  const shared = await headers();
  const compile: (() => Promise<void>)[] = [];
  const link: (() => Promise<void>)[] = [];
  for (const form of cudaForms) {
    const files = await sourcesOf(form);
    for (const folder of form.folders) await mkdir(join(target, "objects", folder), { recursive: true });
    for (const file of files) {
      if (form.also?.includes(file) || !(await isStale(objectOf(file), [file, ...shared]))) continue;
      const architecture = basename(file).endsWith("-sm90.cu") ? newerPtx : ptx;
      const options = [...nvccOptions, ...architecture, ...form.compile];
      compile.push(() =>
        make(objectOf(file), (to) => must(nvcc, [...options, "-x", "cu", "-c", file, "-o", to])),
      );
    }
    const program = join(bin, form.name);
    link.push(async () => {
      const objects = files.map(objectOf);
      if (!(await isStale(program, objects))) return;
      await make(program, async (to) => {
        await must(nvcc, [...objects, ...form.link, ...linkOptions, "-o", to]);
        await must("strip", [to]);
      });
    });
  }
  await runAll(compile, progress);
  await runAll(link, progress);
  await copySharedRuntime(nvcc);
}

/** The shared runtime is copied to the folder of the programs, which search for it there. */
async function copySharedRuntime(nvcc: string): Promise<void> {
  const name = "libcudart.so.13";
  // nvcc may be a link or a script, but it reports the location of its toolkit itself.
  const said = await must(nvcc, ["--dryrun", "-x", "cu", "-c", "/dev/null"], { cwd: target });
  const toolkit = /^#\$ TOP=(.+)$/m.exec(said)?.[1];
  if (toolkit === undefined) throw new ScriptError(`${nvcc} --dryrun does not say where its toolkit is`);
  const places = ["lib64", "targets/x86_64-linux/lib", "lib"].map((place) => join(toolkit, place, name));
  const library = places.find((place) => existsSync(place));
  if (library === undefined) throw new ScriptError(`${name} is in none of ${places.join(", ")}`);
  const copy = join(bin, name);
  if (await isStale(copy, [library])) {
    await rm(copy, { force: true });
    await copyFile(library, copy);
  }
}

/** The C programs are linked directly with the client library, which has the driver's name. */
export async function buildDriverForm(): Promise<void> {
  await mkdir(bin, { recursive: true });
  const directory = join(source, "driver");
  const files = (await readdir(directory)).toSorted().filter((name) => name.endsWith(".c"));
  const sources = files.map((name) => join(directory, name));
  const kernels = (await readdir(images)).map((name) => join(images, name));
  const program = join(bin, "driver");
  if (!(await isStale(program, [...sources, ...kernels, ...(await headers())]))) return;
  const client = join(nativeDir("release"), "client");
  if (!existsSync(join(client, "libcuda.so.1")))
    throw new ScriptError("build/native/release/client/libcuda.so.1 is missing: run npm run build");
  const options = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O2",
    "-Wall",
    "-Wextra",
    "-pthread",
    "-I",
    inRoot("native", "cuda", "gen"),
  ];
  // -I also for the assembler, because images are included as binary data.
  options.push("-I", source, `-Wa,-I${images}`);
  await make(program, async (to) => {
    await must("cc", [...options, ...sources, "-L", client, "-l:libcuda.so.1", "-ldl", "-lm", "-o", to]);
    await must("strip", [to]);
  });
}

/** Builds all programs; returns the names of the tools used. */
export async function buildConformance(progress: Progress): Promise<void> {
  await buildDriverForm();
  const nvcc = await findNvcc();
  if (nvcc === undefined) {
    for (const { name } of cudaForms) await rm(join(bin, name), { force: true });
    return;
  }
  await buildCuda(nvcc, progress);
}

/** PTX, cubins and fatbins of the kernels that the C programs load, all of which are checked in. */
async function makeImages(): Promise<void> {
  const nvcc = await findNvcc();
  if (nvcc === undefined) throw new ScriptError("needs nvcc: set NVCC or add it to PATH (CUDA toolkit 13.0)");
  const cwd = images;
  const options = ["-O2", "-std=c++17"];
  const real = ["-gencode", "arch=compute_90,code=sm_90"];
  await must(nvcc, [...options, "-ptx", "-arch=compute_75", "kernels.cu", "-o", "kernels.ptx"], { cwd });
  await must(nvcc, [...options, "-cubin", "-arch=sm_90", "kernels.cu", "-o", "kernels.sm_90.cubin"], { cwd });
  await must(nvcc, [...options, "-fatbin", ...ptx, ...real, "kernels.cu", "-o", "kernels.fatbin"], { cwd });
  await must(nvcc, [...options, "-fatbin", ...real, "kernels.cu", "-o", "binary-only.fatbin"], { cwd });
  for (const part of ["link-a", "link-b"]) {
    await must(
      nvcc,
      [...options, "-rdc=true", "-ptx", "-arch=compute_75", `${part}.cu`, "-o", `${part}.ptx`],
      { cwd },
    );
  }
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({ args, options: { kernels: { type: "boolean", default: false } } });
    if (values.kernels) await step("conformance/programs/driver/images", makeImages);
    else await step("conformance programs", buildConformance);
  });
}
