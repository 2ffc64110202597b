// SPDX-License-Identifier: Apache-2.0
// npm run test:bare-hosts: a pool by the documented commands, on hosts with nothing but a bare Debian 12 and the package that
// `npm run package:debian` made: a controller, two GPU hosts with software GPUs, and a client that runs a program. Needs root and
// debootstrap; the Debian is fetched once, from MILLPOND_DEBIAN_MIRROR or the mirror that apt has.
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import manifest from "../package.json" with { type: "json" };
import { must, ScriptError, script } from "./lib/command.ts";
import { BareHost, connect } from "./lib/package/bare-host.ts";
import { inRoot, root } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

const packageFile = inRoot("build", "package", `millpond_${manifest.version}_amd64.deb`);
const base = inRoot("build", "bare-hosts", "debian-12");
/** Written when the Debian is complete. */
const complete = `${base}.complete`;

const addresses = {
  controller: "10.99.0.1",
  "node-7": "10.99.0.7",
  "node-8": "10.99.0.8",
  client: "10.99.0.9",
};
type HostName = keyof typeof addresses;
const names = Object.keys(addresses) as readonly HostName[];

const readyMs = 120_000;
const pollMs = 500;

async function makeBase(): Promise<void> {
  if (existsSync(complete)) return;
  await rm(base, { recursive: true, force: true });
  await mkdir(base, { recursive: true });
  await must("debootstrap", ["--variant=minbase", "bookworm", base, await findMirror()]);
  await writeFile(complete, "");
}

async function findMirror(): Promise<string> {
  const given = process.env["MILLPOND_DEBIAN_MIRROR"] ?? "";
  if (given !== "") return given;
  const text = await must("apt-get", [
    "indextargets",
    "--format",
    "$(SITE) $(RELEASE)",
    "Created-By: Packages",
  ]);
  const [, site] = /^(\S*debian\/?) bookworm$/m.exec(text) ?? [];
  return site ?? "http://deb.debian.org/debian";
}

/** The commands of docs/install.md, without what is behind them. */
async function documentedCommands(): Promise<readonly string[]> {
  const page = await readFile(inRoot("docs", "install.md"), "utf8");
  const [, block = ""] = /## A pool in five commands\n\n```\n([^`]*)```/.exec(page) ?? [];
  const commands = block
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.replace(/ {2,}.*$/, ""));
  if (commands.length !== 5)
    throw new ScriptError(`docs/install.md has ${commands.length} commands, and not five`);
  return commands;
}

/** @param hosts whose services' logs say why it is not so */
async function until(what: string, hosts: readonly BareHost[], isSo: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + readyMs;
  while (!(await isSo())) {
    if (Date.now() > deadline) {
      const logs = await Promise.all(
        hosts.map(async (host) => `${host.name}:\n${await host.shell("tail -n 20 /run/*.log")}`),
      );
      throw new ScriptError(`${what}: not within ${readyMs / 1000} s\n${logs.join("\n")}`);
    }
    await delay(pollMs);
  }
}

async function testHosts(hosts: Readonly<Record<HostName, BareHost>>): Promise<void> {
  const [install = "", configure = "", enable = "", create = "", join_ = ""] = await documentedCommands();
  const { controller, client } = hosts;
  const began = performance.now();
  await step(`${install}, on every host`, async () => {
    for (const host of Object.values(hosts)) {
      await host.give(packageFile);
      // A host has systemd, which the package recommends; here a script is in its place.
      await host.writeFile("/etc/apt/apt.conf.d/90-bare", 'APT::Install-Recommends "false";\n');
      await host.shell(install);
      await host.giveServiceManager();
    }
  });
  await step(configure, () => controller.shell(configure));
  await step(enable, () => controller.shell(enable));
  await step("the controller serves", () =>
    until("the controller serves", [controller], async () => {
      try {
        await controller.shell("millpond get nodes");
        return true;
      } catch {
        return false; // Not yet; the last error is told by the time limit.
      }
    }),
  );
  for (const name of ["node-7", "node-8"] as const) {
    const output = await step(create.replaceAll("node-7", name), () =>
      controller.shell(create.replaceAll("node-7", name)),
    );
    const token = /^mp-agent-\S+$/m.exec(output)?.[0] ?? "";
    const printed = /millpond join \S+.*--fingerprint (\S+)/.exec(output);
    if (token === "" || printed === null) throw new ScriptError(`millpond token create says:\n${output}`);
    const line = join_.replace(/sha256:…/, printed[1] ?? "");
    await step(`${line}, on ${name}`, () =>
      hosts[name].shell(`echo '${token}' | ${line} --driver soft --labels host=${name} --token-file -`),
    );
  }
  await step("both nodes are ready", () =>
    until(
      "two ready nodes",
      [controller, hosts["node-7"], hosts["node-8"]],
      async () => (await controller.shell("millpond get nodes")).split(" Ready ").length === 3,
    ),
  );
  const user = await controller.shell("millpond token create ann");
  const token = /^mp-user-\S+$/m.exec(user)?.[0] ?? "";
  const fingerprint = /sha256:[0-9a-f]{64}/.exec(
    await controller.shell("millpond token create other --role agent"),
  )?.[0];
  await step("millpond login, and a program on two nodes, on the client", async () => {
    await client.shell(
      `echo '${token}' | millpond login https://controller:7170 --token-file - --fingerprint ${fingerprint}`,
    );
    for (const node of ["node-7", "node-8"]) {
      const said = await client.shell(
        `millpond run -v -m 256Mi --node-labels host=${node} -- /usr/lib/millpond/examples/bin/vectoradd`,
      );
      if (!said.includes("vectoradd: OK") || !said.includes(` has ${node}/0 `))
        throw new ScriptError(`vectoradd on ${node} says:\n${said}`);
    }
  });
  console.log(
    `a pool of two nodes and a program on each: ${((performance.now() - began) / 1000).toFixed(0)} s`,
  );
}

export async function main(): Promise<void> {
  await script(async () => {
    if (process.getuid?.() !== 0)
      throw new ScriptError("this needs root: hosts have roots and networks of their own");
    if (!existsSync(packageFile))
      throw new ScriptError(`${relative(root, packageFile)} is missing: npm run package:debian makes it`);
    await step("a bare Debian 12", makeBase);
    const directory = await mkdtemp(join(tmpdir(), "millpond-bare-hosts-"));
    await using stack = new AsyncDisposableStack();
    stack.defer(() => rm(directory, { recursive: true, force: true }));
    const entries: (readonly [HostName, BareHost])[] = [];
    for (const name of names) {
      const host = stack.use(await BareHost.start(name, base, join(directory, name)));
      entries.push([name, host]);
    }
    await connect(entries.map(([name, host]) => ({ host, address: addresses[name] })));
    const known = names.map((name) => `${addresses[name]} ${name}\n`).join("");
    for (const [, host] of entries) await host.writeFile("/etc/hosts", `127.0.0.1 localhost\n${known}`);
    await testHosts(Object.fromEntries(entries) as Record<HostName, BareHost>);
    console.log(`${basename(packageFile)}: the documented commands make a pool`);
  });
}
