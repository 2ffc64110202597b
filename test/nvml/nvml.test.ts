// SPDX-License-Identifier: Apache-2.0
// What nvidia-smi, nvtop and callers of NVML see of the claim that they run in.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../../scripts/lib/paths.ts";
import { type Unpacked, unpackDebian } from "../support/debian-packages.ts";
import { Pool, type SessionView, until } from "../support/pool.ts";
import { type Program, type Result, startProgram } from "../support/program.ts";

const mebibyte = 2 ** 20;
const limit = 256;

let pool: Pool;
/** Two claims on one device, each with a running program. */
let programs: readonly Program[];
let tenants: readonly { readonly claim: string; readonly pid: number; readonly usedMebibytes: number }[];

beforeAll(async () => {
  pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
  programs = ["shm", "tcp"].map((transport) =>
    pool.startEndless(["-m", `${limit}Mi`, "--compute", "30", "--transport", transport]),
  );
  const sessions = await until(
    "two sessions with memory",
    () => pool.connected(2),
    (all) => all.every((session) => usedBytes(session) > 0),
  );
  tenants = sessions.map((session) => ({
    claim: session.claim,
    pid: session.clientPid,
    usedMebibytes: Math.floor(usedBytes(session) / mebibyte),
  }));
});
afterAll(async () => {
  for (const program of programs) program.signal("SIGINT");
  for (const program of programs) await program.finished;
  await pool[Symbol.asyncDispose]();
});

function usedBytes({ devices }: SessionView): number {
  return devices.reduce((sum, { memoryUsedBytes }) => sum + memoryUsedBytes, 0);
}

/** Runs a program in an existing claim. */
function inClaim(claim: string, program: string, args: readonly string[]): Promise<Result> {
  const environment = pool.containerEnvironment({ MILLPOND_CLAIM: claim });
  return startProgram(program, args, { ...environment, TERM: "dumb" }).finished;
}

const python = spawnSync("python3", ["--version"]).status === 0 ? undefined : "no python3 here";

describe.each(["bookworm", "trixie"] as const)("nvidia-smi of %s", (suite) => {
  const { folder = "", missing } = { folder: undefined, ...unpackDebian({ name: "nvidia-smi", suite }) };
  const smi = join(folder, "usr", "lib", "nvidia", "current", "nvidia-smi");
  const note = missing === undefined ? "" : ` (not run: ${missing})`;
  const ask = async (...args: string[]): Promise<readonly Result[]> => {
    const answers = [];
    for (const { claim } of tenants) answers.push(await inClaim(claim, smi, args));
    for (const { status, stdout, stderr } of answers) expect([status, stderr], stdout).toEqual([0, ""]);
    return answers;
  };
  /** Each tenant sees its own program and never the other's. */
  const expectOwnProcesses = (answers: readonly Result[]): void => {
    for (const [index, { stdout }] of answers.entries()) {
      expect(stdout).toMatch(new RegExp(`\\b${tenants[index]?.pid}\\b`));
      expect(stdout).not.toMatch(new RegExp(`\\b${tenants[1 - index]?.pid}\\b`));
    }
  };

  it.skipIf(missing !== undefined)(
    `shows the limit, the use and the programs of its claim alone${note}`,
    async () => {
      const answers = await ask();
      expectOwnProcesses(answers);
      for (const [index, { stdout }] of answers.entries()) {
        expect(stdout).toMatch(new RegExp(`\\b(0|${tenants[index]?.usedMebibytes})MiB / +${limit}MiB`));
        expect(stdout).toMatch(/Software GPU .* On /);
        expect(stdout).toMatch(/\d+% +Default/);
        expect(stdout).toContain("millpond-exampl");
      }
    },
  );

  it.skipIf(missing !== undefined)(`answers queries with the claim's numbers or N/A${note}`, async () => {
    expectOwnProcesses(await ask("--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"));
    const asked = "name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,clocks.sm";
    const [{ stdout } = { stdout: "" }] = await ask(`--query-gpu=${asked}`, "--format=csv,noheader,nounits");
    const [device, total, used, utilization, ...ofCard] = stdout.trim().split(", ");
    expect([device, total]).toEqual(["Software GPU", String(limit)]);
    // The program gives its memory back between two rounds.
    expect([0, tenants[0]?.usedMebibytes]).toContain(Number(used));
    expect(Number(utilization)).toBeGreaterThanOrEqual(0);
    expect(Number(utilization)).toBeLessThanOrEqual(100);
    expect(new Set(ofCard)).toEqual(new Set(["[N/A]"]));
    const [list = { stdout: "" }] = await ask("-L");
    expect(list.stdout).toMatch(/^GPU 0: Software GPU \(UUID: GPU-[0-9a-f-]{36}\)\n$/);
  });

  it.skipIf(missing !== undefined)(`answers every field that it knows${note}`, async () => {
    const [help = { stdout: "" }] = await ask("--help-query-gpu");
    const fields = [...help.stdout.matchAll(/^"([\w.]+)"/gm)].map(([, field = ""]) => field);
    expect(fields.length).toBeGreaterThan(100);
    for (const { stdout } of await ask(`--query-gpu=${fields.join(",")}`, "--format=csv,noheader")) {
      const values = stdout.trim().split(", ");
      expect(values).toHaveLength(fields.length);
      const odd = values.filter((value) => /^\[(?!N\/A\])|error|unknown|invalid/i.test(value));
      expect(odd).toEqual([]);
    }
  });

  it.skipIf(missing !== undefined || python !== undefined)(
    `prints all there is as valid XML${note}`,
    async () => {
      expectOwnProcesses(await ask("-q"));
      const answers = await ask("-q", "-x");
      expectOwnProcesses(answers);
      for (const { stdout } of answers) {
        const read = "import sys, xml.dom.minidom as dom; dom.parseString(sys.stdin.read())";
        const { status, stderr } = spawnSync("python3", ["-c", read], { input: stdout, encoding: "utf8" });
        expect([status, stderr]).toEqual([0, ""]);
        expect(stdout).toContain(`<total>${limit} MiB</total>`);
      }
    },
  );

  it.skipIf(missing !== undefined)(
    `monitors devices and processes, and draws the topology${note}`,
    async () => {
      const [devices = { stdout: "" }] = await ask("dmon", "-c", "1");
      expect(devices.stdout).toMatch(/^ +0 +- +- +- +\d+/m);
      expectOwnProcesses(await ask("pmon", "-c", "1"));
      const [topology = { stdout: "" }] = await ask("topo", "-m");
      expect(topology.stdout).toMatch(/^GPU0\t X /m);
    },
  );
});

describe("nvtop", () => {
  const { folder = "", missing } = {
    folder: undefined,
    ...unpackDebian({ name: "nvtop", suite: "bookworm" }),
  };
  const absent =
    missing ?? (spawnSync("script", ["--version"]).status === 0 ? undefined : "no script(1) here");
  const note = absent === undefined ? "" : ` (not run: ${absent})`;
  it.skipIf(absent !== undefined)(`draws the claim and its program${note}`, async () => {
    const [own] = tenants;
    const environment = pool.containerEnvironment({ MILLPOND_CLAIM: own?.claim ?? "", TERM: "xterm" });
    const command = `stty rows 40 cols 120; exec ${join(folder, "usr", "bin", "nvtop")}`;
    const nvtop = startProgram(
      "script",
      ["-qec", command, "/dev/null"],
      { ...environment, SHELL: "/bin/sh", HOME: pool.directory },
      "pipe",
    );
    await nvtop.says("stdout", new RegExp(`${own?.pid}`));
    nvtop.type("q");
    const { status, stdout } = await nvtop.finished;
    expect(status).toBe(0);
    expect(stdout).toContain("Software GPU");
    expect(stdout).not.toMatch(new RegExp(`\\b${tenants[1]?.pid}\\b`));
  });
});

describe("monitors written in Python", () => {
  const unpacked: readonly Unpacked[] = [
    unpackDebian({ name: "nvitop", suite: "trixie", others: ["gpustat", "python3-pynvml"] }),
    // Their libraries are those of the installed Python.
    unpackDebian({
      name: "python3-psutil",
      suite: "bookworm",
      others: ["python3-blessed", "python3-six", "python3-wcwidth"],
    }),
  ];
  const path = unpacked.map((each) =>
    join(each.missing === undefined ? each.folder : "", "usr", "lib", "python3", "dist-packages"),
  );
  const imports = spawnSync("python3", ["-c", "import psutil, blessed, gpustat, nvitop, pynvml"], {
    env: { ...process.env, PYTHONPATH: path.join(":") },
    encoding: "utf8",
  });
  const absent =
    python ??
    unpacked.find(({ missing }) => missing !== undefined)?.missing ??
    (imports.status === 0 ? undefined : imports.stderr.trim().split("\n").at(-1));
  const note = absent === undefined ? "" : ` (not run: ${absent})`;
  const show = async (...args: string[]): Promise<readonly string[]> => {
    const shown = [];
    for (const { claim } of tenants) {
      const environment = { PYTHONPATH: path.join(":"), MILLPOND_CLAIM: claim, TERM: "dumb" };
      const { status, stdout, stderr } = await startProgram(
        "python3",
        args,
        pool.containerEnvironment(environment),
      ).finished;
      expect([status, stderr], stdout).toEqual([0, ""]);
      shown.push(stdout);
    }
    return shown;
  };

  it.skipIf(absent !== undefined)(`gpustat shows the claim and its programs${note}`, async () => {
    for (const [index, stdout] of (await show("-m", "gpustat", "--json")).entries()) {
      const { gpus } = JSON.parse(stdout) as {
        readonly gpus: readonly {
          readonly "memory.total": number;
          readonly "temperature.gpu": number | null;
          readonly processes: readonly { readonly pid: number }[];
        }[];
      };
      expect(gpus).toMatchObject([{ "memory.total": limit, "temperature.gpu": null }]);
      expect(gpus[0]?.processes.map(({ pid }) => pid)).toEqual([tenants[index]?.pid]);
    }
  });

  it.skipIf(absent !== undefined)(`nvitop shows the claim and its programs${note}`, async () => {
    for (const [index, stdout] of (await show("-m", "nvitop", "-1", "--ascii")).entries()) {
      expect(stdout).toMatch(new RegExp(`/ ${limit}\\.0MiB`));
      expect(stdout).toMatch(new RegExp(`\\b${tenants[index]?.pid}\\b`));
      expect(stdout).not.toMatch(new RegExp(`\\b${tenants[1 - index]?.pid}\\b`));
    }
  });

  it.skipIf(absent !== undefined)(`vLLM would choose CUDA, and knows the devices${note}`, async () => {
    const script = inRoot("bench", "frameworks", "inference_start.py");
    for (const stdout of await show(script, "--only", "platform")) {
      const device = {
        name: "Software GPU",
        uuid: expect.stringMatching(/^GPU-[0-9a-f-]{36}$/),
        capability: [7, 5],
        totalBytes: limit * mebibyte,
      };
      expect(JSON.parse(stdout)).toEqual({ platform: { devices: [device], fullyConnected: true } });
    }
  });
});

describe("callers of NVML", () => {
  const caller = inRoot("test", "support", "nvml_caller.py");
  const call = async (
    environment: NodeJS.ProcessEnv,
    ...args: string[]
  ): Promise<Record<string, unknown>> => {
    const { status, stdout, stderr } = await startProgram("python3", [caller, ...args], environment).finished;
    expect([status, stderr]).toEqual([0, ""]);
    return JSON.parse(stdout) as Record<string, unknown>;
  };

  it.skipIf(python !== undefined)(
    "get what the real library would answer, from any thread and child",
    async () => {
      const [own] = tenants;
      const answers = await call(pool.containerEnvironment({ MILLPOND_CLAIM: own?.claim ?? "" }));
      const total = limit * mebibyte;
      expect(answers).toMatchObject({
        uninitialized: [1, 0],
        count: [0, 1],
        beyond: 2,
        wrongHandle: 2,
        name: [0, "Software GPU"],
        short: 7,
        byUuid: [0, true],
        missingPointer: 2,
        memory: [0, total, expect.any(Number)],
        memoryV2: [0, total, expect.any(Number)],
        wrongVersion: 25,
        processes: [7, 0, [[own?.pid, expect.any(Number)]]],
        capability: [0, 7, 5],
        cuda: [0, 13_000],
        temperature: 3,
        fields: [0, [3, 3]],
        ecc: 3,
        p2pWithItself: [0, 0],
        set: 3,
        child: [0, 1],
        threads: [1600, [1]],
        shutdown: [0, 0, 1],
        stillOpen: 0,
        closed: 1,
      });
      expect(answers["children"]).toEqual(Array.from({ length: 20 }, () => [0, 1]));
    },
  );

  it.skipIf(python !== undefined)("find no driver where there is no pool", async () => {
    const { PATH, LD_LIBRARY_PATH } = pool.containerEnvironment({});
    expect(await call({ PATH, LD_LIBRARY_PATH })).toEqual({ uninitialized: [1, 0], init: [9, 9] });
  });

  it.skipIf(python !== undefined)(
    "see the claim that their process makes, before and after it is made",
    async () => {
      const wishes = { MILLPOND_MEMORY: "64Mi", MILLPOND_GPUS: "1", MILLPOND_COMPUTE: "10" };
      const answers = await call(pool.containerEnvironment(wishes), "--with-cuda");
      expect(answers).toMatchObject({
        count: [0, 1],
        name: [0, "Millpond vGPU (none yet)"],
        memory: [0, 64 * mebibyte, 0],
        capability: [3, 0, 0],
        processes: [0, 0, []],
        cuInit: 0,
      });
    },
  );

  it.skipIf(python !== undefined)("do not wake a lazy claim, and see what it asks for", async () => {
    const run = ["run", "--lazy", "-m", "64Mi", "--", "python3", caller];
    const { stdout, status } = await pool.millpond(run);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      count: [0, 1],
      name: [0, "Millpond vGPU (dormant)"],
      memory: [0, 64 * mebibyte, 0],
    });
    const { stdout: events } = await pool.millpond(["get", "events", "-o", "json"]);
    expect(events).not.toContain("ClaimWoken");
  });
});
