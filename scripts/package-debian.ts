// SPDX-License-Identifier: Apache-2.0
// npm run package:debian: build/package/millpond_<version>_amd64.deb, from what `npm run package` has staged, and a test of
// it: unpacked, its services are started as its units start them.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { createInterface } from "node:readline";
import manifest from "../package.json" with { type: "json" };
import { must, ScriptError, script } from "./lib/command.ts";
import { buildDebianPackage } from "./lib/package/debian-package.ts";
import { inRoot, root } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

const folder = inRoot("build", "package");
const archive = join(folder, `millpond-${manifest.version}-linux-x64`);
const output = join(folder, `millpond_${manifest.version}_amd64.deb`);

/** How long a service may take to become ready. */
const readyMs = 60_000;

/** The part of the archive's description that is used. */
async function neededGlibc(): Promise<string> {
  const found = /glibc (\d+\.\d+)/.exec(await readFile(join(archive, "README.md"), "utf8"))?.[1];
  if (found === undefined)
    throw new ScriptError("the README of the archive does not say which glibc it needs");
  return found;
}

/** The command line of a unit, in a tree that is not installed. */
async function startLine(tree: string, unit: string): Promise<readonly string[]> {
  const text = await readFile(join(tree, "lib", "systemd", "system", unit), "utf8");
  const [program = "", ...args] = /^ExecStart=(.*)$/m.exec(text)?.[1]?.split(" ") ?? [];
  return [join(tree, program), ...args];
}

/** Starts a service and resolves with the line of its log that matches. */
async function startService(
  [program = "", ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
  pattern: RegExp,
): Promise<{ readonly child: ChildProcess; readonly match: RegExpExecArray }> {
  const child = spawn(program, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  const timer = setTimeout(() => child.kill("SIGKILL"), readyMs);
  const said: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const match = pattern.exec(line);
    if (match === null) continue;
    clearTimeout(timer);
    child.stderr.resume();
    return { child, match };
  }
  throw new ScriptError(`${program} ${args.join(" ")} did not start:\n${said.join("\n")}`);
}

async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

/** Unpacks the package, starts its services with their units' command lines on a software GPU, and runs a program there. */
async function testPackage(): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "millpond-debian-"));
  try {
    const tree = join(directory, "tree");
    await must("dpkg-deb", ["-x", output, tree]);
    const state = join(directory, "state");
    const base = { PATH: "/usr/bin:/bin", HOME: directory };
    await mkdir(state);
    const controller = await startService(
      await startLine(tree, "millpond-controller.service"),
      {
        ...base,
        MILLPOND_STATE: state,
        MILLPOND_LISTEN: "127.0.0.1:0",
        MILLPOND_SERVICE_CONFIG: join(tree, "etc", "millpond", "controller.yaml"),
      },
      /listens at (http:\/\/[^"]+)"/,
    );
    try {
      const [, url = ""] = controller.match;
      const config = join(directory, "agent.yaml");
      await writeFile(
        config,
        `controller: ${url}\ntokenFile: ${join(state, "agent.token")}\ndriver: soft\nrun: ${join(directory, "run")}\ndrain: all\n`,
      );
      const agent = await startService(
        await startLine(tree, "millpond-agent.service"),
        { ...base, MILLPOND_SERVICE_CONFIG: config },
        /the agent serves/,
      );
      try {
        const token = (await readFile(join(state, "user.token"), "utf8")).trim();
        const env = { ...base, MILLPOND_CONTROLLER: url, MILLPOND_TOKEN: token };
        const millpond = join(tree, "usr", "bin", "millpond");
        const example = join(tree, "usr", "lib", "millpond", "examples", "bin", "vectoradd");
        const said = await must(millpond, ["run", "-m", "256Mi", "--", example], { env });
        if (!said.includes("vectoradd: OK")) throw new ScriptError(`vectoradd says:\n${said}`);
        const backup = await must(millpond, ["backup"], { env });
        if (!backup.includes(state)) throw new ScriptError(`millpond backup says:\n${backup}`);
      } finally {
        await end(agent.child);
      }
    } finally {
      await end(controller.child);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export async function main(): Promise<void> {
  await script(async () => {
    if (!existsSync(join(archive, "millpond")))
      throw new ScriptError(`${relative(root, archive)} is missing: npm run package makes it`);
    const options = { archive, output, version: manifest.version, stage: join(folder, "debian") };
    await step("Debian package", async () => {
      await buildDebianPackage({ ...options, glibc: await neededGlibc() });
    });
    await rm(options.stage, { recursive: true });
    await step("test of the package, by its units", testPackage);
    const { size } = await stat(output);
    console.log(`${relative(root, output)}: ${(size / 1e6).toFixed(1)} MB`);
  });
}
