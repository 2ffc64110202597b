// SPDX-License-Identifier: Apache-2.0

// Files that start Millpond in other environments use commands and options that this version has.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { parseCommandLine } from "../command-line/command-line.ts";

function read(path: string): unknown {
  return parse(readFileSync(new URL(`../../../packaging/${path}`, import.meta.url), "utf8"));
}

test("the services of the Compose file start with options that there are", () => {
  const { services } = read("compose/compose.yaml") as { services: Record<string, { command: string[] }> };
  const commands = Object.values(services).map(({ command }) => parseCommandLine(command));
  expect(commands.map((asked) => ("text" in asked ? asked : asked.command))).toEqual([
    "controller",
    "agent",
    "get",
  ]);
});

test("the Ansible role joins with options that there are", () => {
  const tasks = read("ansible/roles/millpond/tasks/main.yml") as Record<string, unknown>[];
  const [join] = tasks.flatMap((task) => {
    const command = task["ansible.builtin.command"] as { argv: string[]; stdin: string } | undefined;
    return command === undefined ? [] : [command.argv];
  });
  expect(join?.[0]).toBe("millpond");
  expect(parseCommandLine(join?.slice(1) ?? [])).toMatchObject({ command: "join" });
  const handlers = read("ansible/roles/millpond/handlers/main.yml") as { name: string }[];
  const notified = tasks.flatMap(({ notify }) => (notify === undefined ? [] : [notify]));
  expect(handlers.map(({ name }) => name)).toEqual(expect.arrayContaining(notified));
});
