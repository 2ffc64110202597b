// SPDX-License-Identifier: Apache-2.0

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { countOf } from "@millpond/api";
import { parseAgentUrl } from "@millpond/platform";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { errorParts } from "../../command-line/errors.ts";
import { checkOutputFile, replaceOutputFile } from "../../command-line/output-file.ts";
import { agentAuthority } from "../../connection/authority.ts";
import { openConnection } from "../../connection/connection.ts";

/** Agents that are asked at a time. */
const atOnce = 16;

/** A line before each certificate, by which the next run finds it again. */
const nodeLine = /^# node (\S+)\n(-----BEGIN CERTIFICATE-----\n[^#]*?-----END CERTIFICATE-----\n)/gm;

export async function run(values: Values<"prometheus">): Promise<number> {
  const directory = values.directory ?? ".";
  const file = (name: string): string => join(directory, name);
  for (const name of ["agents.json", "agents-ca.crt"]) checkOutputFile(file(name), "--directory");
  const connection = openConnection(values);
  const { nodes } = await connection.pool.listNodes({});
  const agents = nodes
    .filter(({ agentUrl }) => agentUrl !== "")
    .map(({ name, agentUrl }) => ({ name, agentUrl }))
    .toSorted((one, other) => one.name.localeCompare(other.name, "en"));

  const known = readKnown(file("agents-ca.crt"));
  const failures: string[] = [];
  const authorities = new Map<string, string>();
  const look = async (begin: number): Promise<void> => {
    for (const { name, agentUrl } of agents.filter((_, index) => index % atOnce === begin)) {
      try {
        const found = await agentAuthority(agentUrl);
        if (found !== undefined) authorities.set(name, found);
      } catch (error) {
        const kept = known.get(name);
        if (kept !== undefined) authorities.set(name, kept);
        const about = kept === undefined ? "" : "; its authority of the last time is kept";
        failures.push(`${name}: ${errorParts(error).what}${about}`);
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, (_, begin) => look(begin)));

  const targets = agents.map(({ name, agentUrl }) => ({
    targets: [new URL(parseAgentUrl(agentUrl).baseUrl).host],
    labels: { node: name },
  }));
  const bundle = agents.map(({ name }) => {
    const authority = authorities.get(name);
    return authority === undefined ? "" : `# node ${name}\n${authority}`;
  });
  const option = "--directory";
  replaceOutputFile(file("agents.json"), `${JSON.stringify(targets, undefined, 2)}\n`, option);
  replaceOutputFile(file("agents-ca.crt"), bundle.join(""), option);
  if (connection.ca !== undefined) replaceOutputFile(file("controller-ca.crt"), connection.ca, option);
  process.stdout.write(
    `${countOf(agents.length, "agent")} and ${countOf(authorities.size, "authority", "authorities")} are in ${directory}\n`,
  );
  for (const failure of failures.toSorted()) process.stderr.write(`millpond: ${failure}\n`);
  return failures.length === 0 ? exitStatus.ok : exitStatus.finding;
}

/** The authorities of the last time, by node. */
function readKnown(path: string): ReadonlyMap<string, string> {
  const text = existsSync(path) ? readFileSync(path, "utf8") : "";
  return new Map([...text.matchAll(nodeLine)].map(([, name = "", authority = ""]) => [name, authority]));
}
