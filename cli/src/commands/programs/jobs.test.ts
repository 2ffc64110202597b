// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PoolFixture, type Result } from "../../../test/fixture.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start();
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

const small = ["-m", "256Mi", "-c", "5"];
const little = { gpus: 1, memoryBytes: 256n << 20n, computePercent: 5 };

async function stateOf(name: string): Promise<string | undefined> {
  const { stdout } = await pool.home.millpond(["jobs", "-o", "json"]);
  const { items } = JSON.parse(stdout) as { items: { name: string; state: string }[] };
  return items.find((job) => job.name === name)?.state;
}

function liveClaims() {
  return pool.connection.claims.listClaims({}).then(({ claims }) => claims.map(({ name }) => name).sort());
}

describe("a detached program", () => {
  test("goes on without its command, writes into its log, and ends with its status", async () => {
    const gate = join(pool.home.directory, "gate");
    const script = `echo out; echo err >&2; cat; while [ ! -e ${gate} ]; do sleep 0.05; done; echo "$MILLPOND_CLAIM|$MILLPOND_JOB"; exit 7`;
    const started = await pool.home.millpond([
      "run",
      "-d",
      "--name",
      "train",
      ...small,
      "--",
      "sh",
      "-c",
      script,
    ]);
    expect(started).toEqual({ code: 0, signal: null, stdout: "train\n", stderr: "" });
    expect(await liveClaims()).toEqual(["train"]);

    const following = pool.home.start(["logs", "-f", "train"]);
    await following.says("stdout", /out\nerr\n/);
    expect(await stateOf("train")).toBe("running");
    const again = await pool.home.millpond(["run", "--detach", "--name", "train", ...small, "--", "true"]);
    expect(again).toMatchObject({ code: 125, stdout: "" });
    expect(again.stderr).toContain("the job train already exists");

    const attached = pool.home.start(["attach", "train"]);
    await attached.says("stdout", /err\n/);
    writeFileSync(gate, "");
    expect(await attached.finished).toMatchObject({ code: 7, stdout: "out\nerr\ntrain|\n", stderr: "" });
    expect(await following.finished).toMatchObject({ code: 0, stdout: "out\nerr\ntrain|\n" });
    expect(await stateOf("train")).toBe("ended");
    expect(await liveClaims()).toEqual([]);
    expect(await pool.home.millpond(["logs", "--tail", "1", "train"])).toMatchObject({ stdout: "train|\n" });
    expect(await pool.home.millpond(["attach", "--tail", "0", "train"])).toMatchObject({
      code: 7,
      stdout: "",
    });
  });

  test("gets the signals of attach", async () => {
    const script = 'trap "echo caught; exit 3" INT; echo up; while :; do sleep 0.05; done';
    await pool.home.millpond(["run", "-d", "--name", "loop", ...small, "--", "sh", "-c", script]);
    const attached = pool.home.start(["attach", "loop"]);
    await attached.says("stdout", /up\n/);
    attached.child.kill("SIGINT");
    expect(await attached.finished).toMatchObject({ code: 3, stdout: "up\ncaught\n" });
  });

  test("that cannot be started leaves no job, and says why at once", async () => {
    const cases: [string[], Partial<Result>, RegExp][] = [
      [["-m", "900Gi", "--", "true"], { code: 122 }, /MILLPOND_E_IMPOSSIBLE/],
      [["--", "no-such-program"], { code: 127 }, /is not found in PATH/],
      [["-q", "nowhere", "--", "true"], { code: 121 }, /there is no queue/],
    ];
    for (const [args, expected, message] of cases) {
      const result = await pool.home.millpond(["run", "--detach", "--name", "wrong", ...args]);
      expect(result).toMatchObject({ ...expected, stdout: "" });
      expect(result.stderr).toMatch(message);
      expect(await stateOf("wrong")).toBeUndefined();
    }
  });

  test("is lost when its runner is killed, and its name can be used again", async () => {
    await pool.home.millpond(["run", "-d", "--name", "gone", ...small, "--", "sleep", "1000"]);
    const { stdout } = await pool.home.millpond(["jobs", "-o", "json"]);
    const { items } = JSON.parse(stdout) as { items: { name: string; pid: number; state: string }[] };
    const { pid = 0 } = items.find(({ name }) => name === "gone") ?? {};
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
    process.kill(pid, "SIGKILL");
    for (const child of children.filter((each) => each !== "")) process.kill(Number(child), "SIGKILL");
    while ((await stateOf("gone")) !== "lost");
    const attached = await pool.home.millpond(["attach", "gone"]);
    expect(attached).toMatchObject({ code: 125 });
    expect(attached.stderr).toContain("the job gone is lost");
    await pool.connection.claims.releaseClaim({ name: "gone" });
    expect(await pool.home.millpond(["run", "-d", "--name", "gone", ...small, "--", "true"])).toMatchObject({
      code: 0,
    });
    expect(await pool.home.millpond(["attach", "gone"])).toMatchObject({ code: 0 });
  });

  test("unknown names, names that are paths and broken records are errors of one line", async () => {
    for (const name of ["nothing", "../../etc", "ärger"]) {
      const result = await pool.home.millpond(["logs", name]);
      expect(result.code).toBe(121);
      expect(result.stderr).toMatch(/^error: there is no job .*\[MILLPOND_E_NOT_FOUND\]\n$/s);
    }
    const folder = join(pool.home.state, "millpond", "jobs", "broken");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "job.json"), "{}");
    const result = await pool.home.millpond(["logs", "broken"]);
    expect(result.stderr).toContain("is not the record of a job");
    rmSync(folder, { recursive: true });
  });
});

describe("a program that waits for others", () => {
  const held = (gate: string, status: number) =>
    ["--", "sh", "-c", `while [ ! -e ${gate} ]; do sleep 0.05; done; exit ${status}`] as const;
  const detach = (name: string, ...args: readonly string[]) =>
    pool.home.millpond(["run", "-d", "--name", name, ...small, ...args]);

  test("starts when the job before it has succeeded, and not when it has failed", async () => {
    const gate = join(pool.home.directory, "prepared");
    await detach("prepare", ...held(gate, 0));
    await detach("broken-one", ...held(gate, 3));
    const good = await detach("good", "--after", "prepare:ok", "--", "sh", "-c", "echo ran");
    expect(good).toEqual({ code: 0, signal: null, stdout: "good\n", stderr: "" });
    await detach("bad", "--after", "prepare,broken-one:ok", "--", "sh", "-c", "echo ran");
    await detach("worse", "--after", "bad:ok", "--", "sh", "-c", "echo ran");
    await detach("anyway", "--after", "broken-one", "--", "sh", "-c", "echo ran");
    expect(await liveClaims()).toEqual(["broken-one", "prepare"]);
    expect(await stateOf("good")).toBe("waiting");

    writeFileSync(gate, "");
    const ends = await Promise.all(
      ["good", "bad", "worse", "anyway"].map((name) => pool.home.millpond(["attach", name])),
    );
    expect(ends.map(({ code }) => code)).toEqual([0, 3, 3, 0]);
    expect(ends[0]?.stdout).toBe("millpond: waiting for the end of the job prepare\nran\n");
    expect(ends[1]?.stdout).toContain("the job broken-one has ended with 3, so the program is not started\n");
    expect(ends[1]?.stdout).not.toContain("ran");
    expect(ends[3]?.stdout).toMatch(/\nran\n$/);
    expect(await liveClaims()).toEqual([]);
  });

  test("waits for a claim too, whose lease it does not renew", async () => {
    await pool.connection.claims.createClaim({ claim: { ...little, name: "theirs", leaseSeconds: 15 } });
    const result = await pool.home.millpond(["run", "--after", "theirs", ...small, "--", "echo", "ran"]);
    expect(result).toMatchObject({ code: 0, stdout: "ran\n" });
    expect(result.stderr).toContain("waiting for the end of the claim theirs");
  });

  test("is cancelled by its name, before it has a claim", async () => {
    const gate = join(pool.home.directory, "never");
    await detach("first", ...held(gate, 0));
    await detach("second", "--after", "first", "--", "true");
    expect(await pool.home.millpond(["release", "second"])).toMatchObject({
      stdout: "job/second cancelled\n",
    });
    expect(await pool.home.millpond(["attach", "second"])).toMatchObject({ code: 143 });
    await pool.home.millpond(["release", "first"]);
    writeFileSync(gate, "");
    await pool.home.millpond(["attach", "first"]);
  });

  test("is refused for names that nothing has, and for the success of what is no job", async () => {
    await pool.connection.claims.createClaim({ claim: { ...little, name: "plain", leaseSeconds: 600 } });
    const cases: [string, number, RegExp][] = [
      ["nothing", 121, /neither a job of this name on this machine nor a claim.*MILLPOND_E_NOT_FOUND/s],
      ["plain:ok", 118, /its exit status is not known here.*MILLPOND_E_INVALID/s],
      ["plain:later", 118, /is neither NAME, NAME:any nor NAME:ok.*MILLPOND_E_INVALID/s],
    ];
    for (const [after, code, message] of cases) {
      const result = await detach("wrong", "--after", after, "--", "true");
      expect(result).toMatchObject({ code, stdout: "" });
      expect(result.stderr).toMatch(message);
      expect(await stateOf("wrong")).toBeUndefined();
    }
    await pool.connection.claims.releaseClaim({ name: "plain" });
  });
});

describe("an array", () => {
  test("runs once for each index, each in a claim of its own, and ends with the worst status", async () => {
    const script =
      'echo "$MILLPOND_ARRAY_INDEX of $MILLPOND_ARRAY_COUNT in $MILLPOND_CLAIM"; exit $((MILLPOND_ARRAY_INDEX == 2 ? 5 : 0))';
    const result = await pool.home.millpond(
      ["run", "--array", "0-3%2", "--name", "sweep", ...small, "--", "sh", "-c", script],
      { input: "not for tasks" },
    );
    expect(result.stdout.trim().split("\n").sort()).toEqual(
      [0, 1, 2, 3].map((index) => `${index} of 4 in sweep-${index}`),
    );
    expect(result.code).toBe(5);
    expect(result.stderr).toBe("millpond: 3 of 4 tasks succeeded; 2 ended with 5\n");
    expect(await liveClaims()).toEqual([]);
  });

  test("says of each task what was wrong, and gives all claims back after a signal", async () => {
    const wrong = await pool.home.millpond(["run", "--array", "0-1", "-m", "900Gi", "--", "true"]);
    expect(wrong.code).toBe(122);
    expect(wrong.stderr.match(/^\[[01]\] error: /gm)).toHaveLength(2);

    const running = pool.home.start([
      "run",
      "--array",
      "0-9%2",
      ...small,
      "--",
      "sh",
      "-c",
      "echo up; exec sleep 1000",
    ]);
    await running.says("stdout", /up\nup\n/);
    running.child.kill("SIGTERM");
    const { code, stderr } = await running.finished;
    expect(code).toBe(143);
    expect(stderr).toContain(
      "0 of 10 tasks succeeded; 0 ended with 143, 1 ended with 143; 8 were not started",
    );
    expect(await liveClaims()).toEqual([]);
  });
});

describe("the members of a gang", () => {
  test("have ranks of their own, and agree on the first one's address", async () => {
    const show =
      'echo "$RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $MILLPOND_HOSTS $PET_NODE_RANK/$PET_NNODES $PET_NPROC_PER_NODE"';
    const members = await Promise.all(
      [1, 2, 3].map(() =>
        pool.home.millpond(["run", "--gang", "ddp", "--gang-size", "3", ...small, "--", "sh", "-c", show]),
      ),
    );
    const lines = members.map(({ stdout }) => stdout.trim()).sort();
    const [, port] = /^0\/3 127\.0\.0\.1:(\d+) /.exec(lines[0] ?? "") ?? [];
    expect(lines).toEqual(
      [0, 1, 2].map((rank) => `${rank}/3 127.0.0.1:${port} 127.0.0.1,127.0.0.1,127.0.0.1 ${rank}/3 1`),
    );
  });
});
