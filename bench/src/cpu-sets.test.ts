// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { expect, onTestFinished, test } from "vitest";
import { divideCpus, ownCpus, pinned, pinProcess, readCpuList } from "./cpu-sets.ts";

test("client and worker get disjoint halves, and both everything where there is only one processor", () => {
  expect(readCpuList("0-3,8,10-11")).toEqual([0, 1, 2, 3, 8, 10, 11]);
  const divided = (cpus: number[], hasRelay = false) => divideCpus(cpus, { hasRelay });
  expect(divided([0, 1, 2, 3, 8])).toEqual({ client: "0,1", worker: "2,3,8", relay: "" });
  expect(divided([4, 5], true)).toEqual({ client: "4", worker: "5", relay: "" });
  expect(divided([7])).toEqual({ client: "", worker: "", relay: "" });
  expect(divided([0, 1, 2, 3, 4, 5, 6, 7], true)).toEqual({ client: "0,1,2", worker: "3,4,5", relay: "6,7" });
});

test("a process is started on its processors, and moved", async () => {
  const [first = 0] = await ownCpus();
  const [program, args] = pinned(String(first), "sleep", ["60"]);
  const child = spawn(program, args);
  onTestFinished(() => void child.kill());
  await once(child, "spawn");
  const { pid = 0 } = child;
  const allowed = async () =>
    /^Cpus_allowed_list:\s*(\S+)$/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1];
  await expect.poll(allowed).toBe(String(first));
  const all = (await ownCpus()).join(",");
  await pinProcess(pid, all);
  expect(readCpuList((await allowed()) ?? "").join(",")).toBe(all);
});
