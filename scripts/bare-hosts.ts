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
const base = inRoot("build", "bare-hosts", "debian-12-systemd");
/** Written when the base system is complete. */
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
  await must("debootstrap", [
    "--variant=minbase",
    "--include=systemd,systemd-sysv",
    "bookworm",
    base,
    await findMirror(),
  ]);
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

/** The commands of docs/install.md, without their comments. */
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

/** @param hosts whose services' logs are printed if the condition does not hold */
async function until(what: string, hosts: readonly BareHost[], isSo: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + readyMs;
  while (!(await isSo())) {
    if (Date.now() > deadline) {
      const logs = await Promise.all(
        hosts.map(async (host) => `${host.name}:\n${await host.shell("journalctl --no-pager -n 20")}`),
      );
      throw new ScriptError(`${what}: not within ${readyMs / 1000} s\n${logs.join("\n")}`);
    }
    await delay(pollMs);
  }
}

type Hosts = Readonly<Record<HostName, BareHost>>;

/** Files outside of those that a running system changes, by path. */
const files = "find / -xdev -not -type d -not -path '/var/*' -not -path '/root/*' | sort";

/** @param older a package of an older version */
async function testHosts(hosts: Hosts, older: string): Promise<void> {
  const [install = "", configure = "", enable = "", create = "", join_ = ""] = await documentedCommands();
  const { controller, client } = hosts;
  const before = await client.shell(files);
  const began = performance.now();
  await step(`${install}, on every host`, async () => {
    for (const host of Object.values(hosts)) {
      await host.give(packageFile);
      await host.shell(install);
    }
  });
  await step(configure, () => controller.shell(configure));
  await step(enable, () => controller.shell(enable));
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
  await nodesAreReady(hosts);
  const user = await controller.shell("millpond token create ann");
  const token = /^mp-user-\S+$/m.exec(user)?.[0] ?? "";
  const fingerprint = /sha256:[0-9a-f]{64}/.exec(
    await controller.shell("millpond token create other --role agent"),
  )?.[0];
  await step("millpond login, and a program on two nodes, on the client", async () => {
    await client.shell(
      `echo '${token}' | millpond login https://controller:7170 --token-file - --fingerprint ${fingerprint}`,
    );
    for (const node of ["node-7", "node-8"]) await runOn(client, node);
  });
  console.log(
    `a pool of two nodes and a program on each: ${((performance.now() - began) / 1000).toFixed(0)} s`,
  );
  await testServices(hosts);
  await testUpgrade(hosts, install, older);
  await testRemoval(hosts, before);
}

async function nodesAreReady({ controller, ...others }: Hosts): Promise<void> {
  await step("both nodes are ready", () =>
    until(
      "two ready nodes",
      [controller, others["node-7"], others["node-8"]],
      async () => (await controller.shell("millpond get nodes || true")).split(" Ready ").length === 3,
    ),
  );
}

async function runOn(client: BareHost, node: string): Promise<void> {
  const said = await client.shell(
    `millpond run -v -m 256Mi --node-labels host=${node} -- /usr/lib/millpond/examples/bin/vectoradd`,
  );
  if (!said.includes("vectoradd: OK") || !said.includes(` has ${node}/0 `))
    throw new ScriptError(`vectoradd on ${node} says:\n${said}`);
}

/** What systemd does with the services besides starting them: watchdog, shutdown, new configuration. */
async function testServices(hosts: Hosts): Promise<void> {
  const units = { controller: "millpond-controller", "node-7": "millpond-agent" } as const;
  for (const [name, unit] of Object.entries(units) as [keyof typeof units, string][]) {
    const host = hosts[name];
    const restarts = async (): Promise<number> =>
      Number(await host.shell(`systemctl show -P NRestarts ${unit}`));
    await step(`systemctl reload ${unit}`, () => host.shell(`systemctl reload ${unit}`));
    // Simulates a service that hangs, with a shorter watchdog time than the unit's.
    await host.writeFile(
      `/run/systemd/system/${unit}.service.d/watchdog.conf`,
      "[Service]\nWatchdogSec=5s\n",
    );
    await host.shell(`systemctl daemon-reload && systemctl restart ${unit}`);
    for (const signal of ["STOP", "KILL"]) {
      const first = await restarts();
      await step(`systemd starts ${unit} again after SIG${signal}`, async () => {
        await host.shell(`kill -${signal} "$(systemctl show -P MainPID ${unit})"`);
        await until(`${unit} started again`, [host], async () => (await restarts()) > first);
      });
    }
  }
  await nodesAreReady(hosts);
  const failed = await hosts.controller.shell(
    "systemctl start millpond-backup && systemctl --failed --no-legend",
  );
  if (failed !== "") throw new ScriptError(`failed units of the controller's host:\n${failed}`);
}

/** The version that counts as the older one: of this package, with the scripts and units of this release. */
const olderVersion = `${manifest.version}~older`;

/** Makes a package of the older version, which `apt` treats as another release. */
async function makeOlderPackage(directory: string): Promise<string> {
  const tree = join(directory, "older");
  await must("dpkg-deb", ["--raw-extract", packageFile, tree]);
  const control = join(tree, "DEBIAN", "control");
  const text = await readFile(control, "utf8");
  await writeFile(control, text.replace(/^Version: .*$/m, `Version: ${olderVersion}`));
  const file = join(directory, `millpond_${olderVersion}_amd64.deb`);
  await must("dpkg-deb", ["-Znone", "--root-owner-group", "--build", tree, file]);
  await rm(tree, { recursive: true });
  return file;
}

/** A program continues while the packages of its node's agent and of the controller go back by a version, and forward again. */
async function testUpgrade(hosts: Hosts, install: string, older: string): Promise<void> {
  const { client } = hosts;
  const program = "/usr/lib/millpond/examples/bin/vectoradd 1000 --repeat 100000000";
  await client.shell(`millpond run -d --name long -m 256Mi --node-labels host=node-7 -- ${program}`);
  const sessions = () =>
    client.shell("millpond get sessions --where state=connected -o jsonpath={.items[*].id}");
  await until("a session", [hosts["node-7"]], async () => (await sessions()).trim() !== "");
  const first = await sessions();
  const { controller } = hosts;
  const changed = [hosts["node-7"], controller];
  const versionIs = async (version: string): Promise<void> => {
    for (const host of changed) {
      const installed = await host.shell("dpkg-query -W -f '${Version}' millpond");
      if (installed.trim() !== version) throw new ScriptError(`${host.name} has version ${installed}`);
    }
    await nodesAreReady(hosts);
    await until("the session of before", [hosts["node-7"]], async () => (await sessions()) === first);
  };
  await step(`a program continues while its node and the controller go back to ${olderVersion}`, async () => {
    for (const host of changed) {
      await host.give(older);
      await host.shell(`apt-get install -y --allow-downgrades ./${basename(older)}`);
    }
    await versionIs(olderVersion);
    await runOn(client, "node-7");
  });
  await step("a program continues while its node and the controller are upgraded", async () => {
    for (const host of changed) await host.shell(install);
    await versionIs(manifest.version);
  });
  await client.shell("millpond release long");
  await runOn(client, "node-7");
}

/** Nothing remains of the package, neither files nor processes nor users. */
async function testRemoval(hosts: Hosts, before: string): Promise<void> {
  const { client, controller } = hosts;
  const node = hosts["node-8"];
  await client.shell(
    "millpond run -d --name last -m 256Mi --node-labels host=node-8 -- /usr/lib/millpond/examples/bin/vectoradd 1000 --repeat 100000000",
  );
  await until("a worker", [node], async () => (await processes(node)).includes("millpond-worker"));
  for (const host of [node, client, controller]) {
    if (host === client) {
      // Jobs of users are left to the users.
      await client.shell("millpond release last");
      await until(
        "the end of the job",
        [client],
        async () => !(await processes(client)).includes("vectoradd"),
      );
    }
    await step(`apt purge millpond, on ${host.name}`, async () => {
      await host.shell("apt-get purge -y millpond");
      const after = await host.shell(files);
      const left = after.split("\n").filter((file) => !before.split("\n").includes(file));
      const kept = left.filter(
        (file) => !/^\/(?:etc\/.*-|etc\/systemd\/.*\/null|run|dev|proc|sys|tmp)/.test(file),
      );
      const own = [
        ...kept,
        ...(await processes(host)).split("\n").filter((line) => line.includes("millpond")),
      ];
      const { length } = await host.shell(
        "getent passwd millpond || true; ls -d /var/lib/millpond /etc/millpond 2>/dev/null || true",
      );
      if (own.length > 0 || length > 0) throw new ScriptError(`${host.name} has still:\n${own.join("\n")}`);
    });
  }
}

function processes(host: BareHost): Promise<string> {
  return host.shell("cat /proc/[0-9]*/comm /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || true");
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
    const older = await step(`a package of version ${olderVersion}`, () => makeOlderPackage(directory));
    await testHosts(Object.fromEntries(entries) as Record<HostName, BareHost>, older);
    console.log(`${basename(packageFile)}: the documented commands make a pool`);
  });
}
