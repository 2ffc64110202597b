// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { existsSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { formatLabels } from "@millpond/api";
import { makeFolders } from "@millpond/platform";
import { stringify } from "yaml";
import { findAuthority } from "../../connection/authority.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { checkUrls } from "../../connection/connection.ts";
import { checkAgentToken, checkClock, checkDrivers, checkPort } from "../../node/join-checks.ts";
import { defaultNodeName } from "../../node/node-defaults.ts";
import { markOf } from "../../output/marks.ts";
import { readTokenInput } from "../../command-line/token-input.ts";
import { configDirectory } from "../../service/service-options.ts";

const service = "millpond-agent.service";

/** `millpond join`: writes nothing until all local checks pass. */
export async function run(values: Values<"join">, [address = ""]: readonly string[]): Promise<number> {
  const controller = checkUrls(address, "the controller");
  const say = (text: string): boolean => process.stdout.write(`${markOf("ok")} ${text}\n`);
  say(await checkDrivers(values.driver ?? "auto", process.env));
  const listen = values.listen;
  say(await checkPort(listen, controller, isAgentHere()));
  const ca = await findAuthority(controller, values);
  say(
    ca === undefined
      ? `${controller} needs no authority of its own`
      : `the authority of ${controller} is trusted`,
  );
  say(await checkClock(controller, ca));
  const token = await readTokenInput(values);
  say(await checkAgentToken(controller, { token, ca }));

  const directory = values.directory ?? configDirectory;
  const name = values.name ?? defaultNodeName();
  const files = { ca: join(directory, "ca.crt"), token: join(directory, "agent.token") };
  makeFolders(directory, 0o755);
  writeWhole(files.token, `${token}\n`, 0o600);
  if (ca !== undefined) writeWhole(files.ca, ca, 0o644);
  const config = {
    controller,
    tokenFile: files.token,
    ...(ca === undefined ? {} : { ca: files.ca }),
    name,
    ...(values.driver === undefined ? {} : { driver: values.driver }),
    ...(listen === undefined ? {} : { listen }),
    ...(values.labels === undefined ? {} : { labels: formatLabels(values.labels) }),
  };
  const path = join(directory, "agent.yaml");
  writeWhole(
    path,
    `# Written by \`millpond join\`; see docs/reference/configuration.md.\n${stringify(config)}`,
    0o644,
  );
  say(`${path} makes this host the node ${name}`);
  process.stdout.write(start(values.start && directory === configDirectory, path));
  return exitStatus.ok;
}

/** Whether the service is already running, and therefore holds its port. */
function isAgentHere(): boolean {
  return hasService() && spawnSync("systemctl", ["is-active", "--quiet", service]).status === 0;
}

function hasService(): boolean {
  return existsSync("/run/systemd/system") && spawnSync("systemctl", ["cat", service]).status === 0;
}

/** Starts the service if possible; otherwise prints the steps to do so. */
function start(isAsked: boolean, config: string): string {
  const command =
    config === join(configDirectory, "agent.yaml") ? "millpond agent" : `millpond agent --config ${config}`;
  if (!isAsked || !hasService()) return `Start the agent: ${command}\n`;
  for (const args of [
    ["enable", service],
    ["restart", service],
  ]) {
    const { status, stderr } = spawnSync("systemctl", args, { encoding: "utf8" });
    if (status !== 0) {
      return `! systemctl ${args.join(" ")} failed: ${stderr.trim()}\nLook with \`journalctl -u ${service}\`.\n`;
    }
  }
  return `${markOf("ok")} ${service} runs, and starts with the machine\n`;
}

function writeWhole(path: string, content: string, mode: number): void {
  const draft = `${path}.new`;
  writeFileSync(draft, content, { mode, flush: true });
  renameSync(draft, path);
}
