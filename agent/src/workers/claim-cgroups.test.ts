// SPDX-License-Identifier: Apache-2.0
// On the kernel itself, where this process may make control groups.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { ClaimCgroups, countedHostBytes, limitsOf } from "./claim-cgroups.ts";

const name = `test-${process.pid}`;
const open = () => ClaimCgroups.open({ name });
const isOffered = (() => {
  const cgroups = open();
  cgroups.close();
  return cgroups.gaps.length === 0;
})();

const isMounted = (controller: string): boolean => existsSync(join("/sys/fs/cgroup", controller));

const mebi = 2 ** 20;
const limits = { ...limitsOf(128 * mebi, 1), processes: 64 };

/** Starts a process that allocates the number of MiB that it reads, and prints a line afterwards. */
function startEater() {
  const program = `process.stdin.on("data", (text) => { Buffer.alloc(Number(text) * ${mebi}, 1); console.log("full"); });
    setInterval(() => {}, 1000); console.log("ready");`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["pipe", "pipe", "ignore"] });
  return {
    pid: child.pid ?? 0,
    ready: once(child.stdout, "data"),
    exit: once(child, "exit"),
    eat: async (mebibytes: number) => {
      child.stdin.write(`${mebibytes}\n`);
      await once(child.stdout, "data");
    },
    fill: (mebibytes: number) => child.stdin.write(`${mebibytes}\n`),
    [Symbol.dispose]: () => void child.kill("SIGKILL"),
  };
}

test.skipIf(!isOffered)(
  "a claim that takes more host memory than it may loses a worker, and no other claim does",
  async () => {
    const cgroups = open();
    using greedy = startEater();
    using neighbour = startEater();
    await Promise.all([greedy.ready, neighbour.ready]);
    cgroups.place(greedy.pid, "claim-a", limits);
    cgroups.place(neighbour.pid, "claim-b", limits);
    await neighbour.eat(16);
    greedy.fill(1024);
    expect(await greedy.exit).toEqual([null, "SIGKILL"]);
    await neighbour.eat(16);
    neighbour[Symbol.dispose]();
    await neighbour.exit;
    cgroups.close();
  },
);

test.skipIf(!isOffered)(
  "processes of one allocation share its limits, and groups go when they are empty",
  async () => {
    const cgroups = open();
    using one = startEater();
    using two = startEater();
    await Promise.all([one.ready, two.ready]);
    for (const { pid } of [one, two]) cgroups.place(pid, "claim-a", limits);
    const groupOf = (pid: number) =>
      readFileSync(`/proc/${pid}/cgroup`, "utf8")
        .split("\n")
        .filter((line) => line.includes(name));
    expect(groupOf(one.pid).length).toBeGreaterThan(0);
    expect(groupOf(two.pid)).toEqual(groupOf(one.pid));
    await one.eat(48);
    two.fill(512);
    const [code, signal] = (await Promise.race([one.exit, two.exit])) as [number | null, string | null];
    expect([code, signal]).toEqual([null, "SIGKILL"]);
    for (const each of [one, two]) each[Symbol.dispose]();
    await Promise.all([one.exit, two.exit]);
    expect(cgroups.place(one.pid, "claim-a", limits), "it has ended").toBe(false);
    cgroups.keepOnly(new Set());
    using later = startEater();
    await later.ready;
    cgroups.place(later.pid, "claim-a", limits);
    expect(groupOf(later.pid).length).toBeGreaterThan(0);
    later[Symbol.dispose]();
    await later.exit;
    cgroups.close();
  },
);

test.skipIf(!isOffered)(
  "groups that somebody else has removed are made again for the next worker",
  async () => {
    const cgroups = open();
    using first = startEater();
    await first.ready;
    cgroups.place(first.pid, "claim-a", limits);
    const bases = readFileSync(`/proc/${first.pid}/cgroup`, "utf8")
      .split("\n")
      .filter((line) => line.includes(name))
      .map((line) => {
        const [, controllers = "", path = ""] = line.split(":");
        return dirname(join("/sys/fs/cgroup", controllers.split(",").find(isMounted) ?? "", path));
      });
    first[Symbol.dispose]();
    await first.exit;
    for (const base of bases) {
      rmdirSync(join(base, "claim-a"));
      rmdirSync(base);
    }
    cgroups.keepOnly(new Set());
    using second = startEater();
    await second.ready;
    expect(cgroups.place(second.pid, "claim-a", limits)).toBe(true);
    second.fill(1024);
    expect(await second.exit).toEqual([null, "SIGKILL"]);
    cgroups.close();
  },
);

test("a host without control groups is named as one, and workers start all the same", () => {
  const root = mkdtempSync(join(tmpdir(), "millpond-cgroup-"));
  const cgroups = ClaimCgroups.open({ name: "agent", root, own: "0::/\n" });
  expect(cgroups.gaps).toEqual([
    expect.stringMatching(/^claims have no control group .*host memory, number of threads, processor time/),
  ]);
  cgroups.place(process.pid, "claim-a", limits);
  cgroups.close();
  rmSync(root, { recursive: true });
});

test("workers count less than what the kernel allows them, so that they refuse before it kills", () => {
  expect(countedHostBytes(3 * 2 ** 30)).toBe(2 * 2 ** 30);
  expect(countedHostBytes(2 ** 50 + 1)).toBeLessThan(2 ** 50);
});
