// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";

/** Starts a process in its own group, prints the path of its folder, and then exits, is killed, or fails. */
const program = `
  import { spawn } from "node:child_process";
  import { writeFileSync } from "node:fs";
  import { takeTemporaryFolder } from ${JSON.stringify(join(import.meta.dirname, "temporary-folder.ts"))};
  const folder = takeTemporaryFolder("millpond-folder-test");
  writeFileSync(folder + "/file", "");
  const child = spawn("sleep", ["86400"], { stdio: "ignore", detached: true });
  console.log(JSON.stringify({ folder, pid: child.pid }));
  if (process.argv[1] === "exit") process.exit(0);
  if (process.argv[1] === "throw") throw new Error("on purpose");
  setInterval(() => {}, 1000);
`;

/** Zombies count as gone: only init remains to reap them. */
function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}/exe`);
}

test.each(["SIGKILL", "SIGTERM", "SIGINT", "exit", "throw"] as const)(
  "all that a process has started, and its folder, are gone after it: %s",
  async (how) => {
    const child = spawn(process.execPath, ["--input-type=module-typescript", "-e", program, how], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    const exited = once(child, "exit");
    const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
    const { folder, pid } = JSON.parse(line) as { folder: string; pid: number };
    expect(folder).toContain("millpond-folder-test-");
    if (how.startsWith("SIG")) child.kill(how as NodeJS.Signals);
    await exited;
    while (existsSync(folder)) await sleep(20);
    await expect.poll(() => isAlive(pid)).toBe(false);
  },
);
