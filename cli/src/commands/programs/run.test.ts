// SPDX-License-Identifier: Apache-2.0

import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ClaimState, errorCodeOf, SessionState } from "@millpond/api";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { entry } from "../../../test/entry.ts";
import { childrenOf, fakeClient, PoolFixture } from "../../../test/fixture.ts";
import { connect } from "../../connection/connection.ts";
import { LossyProxy } from "../../../test/lossy-proxy.ts";
import { identifyProcess } from "@millpond/agent";

const gibibyte = 2n ** 30n;

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start();
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Occupies memory of the only device until it is released. */
async function occupy(memoryBytes: bigint): Promise<AsyncDisposable> {
  const { claim } = await pool.connection.claims.createClaim({
    claim: { memoryBytes, computePercent: 1, leaseSeconds: 600 },
  });
  const name = claim?.name ?? "";
  return {
    [Symbol.asyncDispose]: async () => {
      await pool.connection.claims.releaseClaim({ name });
    },
  };
}

describe("a program under millpond run", () => {
  test("has its standard streams to itself, and its exit status is passed on", async () => {
    const script = "tr a-z A-Z; echo to-stderr >&2; exit 7";
    const result = await pool.home.millpond(["run", "-m", "1Gi", "--", "sh", "-c", script], {
      input: "hello\n",
    });
    expect(result).toEqual({ code: 7, signal: null, stdout: "HELLO\n", stderr: "to-stderr\n" });
    await pool.expectNoClaims();
  });

  test("finds the client library first and its claim in the environment", async () => {
    const show =
      'echo "$LD_LIBRARY_PATH|$MILLPOND_CONTROLLER|$MILLPOND_CLAIM|$MILLPOND_TRANSPORT|$MILLPOND_WORKER|$0"';
    const result = await pool.home.millpond(
      ["run", "-m", "25%", "--name", "job-1", "--transport", "tcp", "sh", "-c", show],
      { environment: { LD_LIBRARY_PATH: "/opt/lib", MILLPOND_WORKER: "unix:/elsewhere" } },
    );
    const library = join(pool.home.native, "client");
    expect(result.stdout).toBe(`${library}:/opt/lib|${pool.connection.controller}|job-1|tcp||sh\n`);
    await pool.expectNoClaims();
  });

  test("has a token of its claim alone: it cannot list, open or release another claim", async () => {
    await pool.connection.claims.createClaim({
      claim: { name: "other", memoryBytes: 1n << 30n, leaseSeconds: 600 },
    });
    const show = 'printf %s "$MILLPOND_TOKEN"';
    const running = pool.home.start([
      "run",
      "-m",
      "1Gi",
      "--name",
      "own",
      "--",
      "sh",
      "-c",
      `${show}; read end`,
    ]);
    await running.says("stdout", /mp-claim-own\.[\w.-]+$/);
    const token = running.stdout;
    expect(token).not.toContain(pool.connection.token);
    const { claims } = connect({ controller: pool.connection.controller, token, source: "the test" });
    const codes = await Promise.all(
      [
        claims.createClaim({ claim: { memoryBytes: 1n << 20n } }),
        claims.releaseClaim({ name: "other" }),
        claims.createTicket({ claim: "other" }),
        claims.getClaim({ name: "other" }),
        claims.createClaimToken({ name: "other" }),
      ].map(async (call) => await call.then(() => "done", errorCodeOf)),
    );
    const forbidden = Array.from({ length: 2 }, () => "MILLPOND_E_FORBIDDEN");
    expect(codes).toEqual([...forbidden, ...Array.from({ length: 3 }, () => "MILLPOND_E_NOT_FOUND")]);
    expect((await claims.listClaims({})).claims.map(({ name }) => name)).toEqual(["own"]);
    running.child.stdin?.end();
    await running.finished;
    expect((await pool.connection.claims.getClaim({ name: "other" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.connection.claims.releaseClaim({ name: "other" });
    await pool.expectNoClaims();
  });

  test("reads of its own claim with the commands of millpond, and of no other", async () => {
    await pool.connection.claims.createClaim({
      claim: { name: "other", memoryBytes: 1n << 30n, leaseSeconds: 600 },
    });
    const millpond = `"${process.execPath}" "${entry}"`;
    const commands = ["why own", "describe claim own", "get claims", "get events", "get sessions"];
    const script = commands.map((command) => `${millpond} ${command} || exit $?`).join("; ");
    const result = await pool.home.millpond(["run", "-m", "1Gi", "--name", "own", "--", "sh", "-c", script]);
    expect(result).toMatchObject({ code: 0, stderr: "no sessions\n" });
    expect(result.stdout).toContain("claim/own");
    expect(result.stdout).not.toContain("other");
    const refused = await pool.home.millpond(["run", "-m", "1Gi", "--", "sh", "-c", `${millpond} why other`]);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain("MILLPOND_E_NOT_FOUND");
    await pool.connection.claims.releaseClaim({ name: "other" });
    await pool.expectNoClaims();
  });

  test("of an environment has a token for claims of its own, or of the one that is there already", async () => {
    const tokenOf = ({ stdout }: { readonly stdout: string }) =>
      /^export MILLPOND_TOKEN=(\S+)$/m.exec(stdout)?.[1] ?? "";
    const token = tokenOf(await pool.home.millpond(["env", "-m", "1Gi"]));
    expect(token).toMatch(/^mp-program-/);
    const { claims } = connect({ controller: pool.connection.controller, token, source: "the test" });
    await claims.createClaim({ claim: { name: "own", memoryBytes: 1n << 20n, sessionBound: true } });
    expect(tokenOf(await pool.home.millpond(["env", "--claim", "own"]))).toMatch(/^mp-claim-own\./);
    await claims.releaseClaim({ name: "own" });
    await pool.expectNoClaims();
  });

  test("writes its calls where --trace says, and keeps the level of its messages", async () => {
    const show = 'echo "$MILLPOND_LOG"';
    const file = join(pool.home.directory, "calls");
    writeFileSync(file, "of an earlier run\n");
    const run = (name: string, environment: Record<string, string> = {}) =>
      pool.home.millpond(["run", "-m", "1Gi", "--trace", name, "--", "sh", "-c", show], { environment });
    expect((await run(file)).stdout).toBe(`${file}\n`);
    expect(readFileSync(file, "utf8")).toBe("");
    const each = join(pool.home.directory, "calls.%p");
    expect((await run(each, { MILLPOND_LOG: "info,/elsewhere" })).stdout).toBe(`info,${each}\n`);
    const result = await run("/no/such/folder/calls");
    expect(result.code).toBe(118);
    expect(result.stderr).toContain('--trace "/no/such/folder/calls" cannot be written: ENOENT');
    await pool.expectNoClaims();
  });

  test("reaches its worker over either transport, and is seen by smi and get", async () => {
    for (const transport of ["shm", "tcp"]) {
      const options = ["-m", "512Mi", "--compute", "50", "--transport", transport];
      const running = pool.home.start(["run", ...options, "--", ...fakeClient]);
      await running.says("stdout", new RegExp(`attached over ${transport}`));
      await pool.until(async ({ pool: service }) => {
        const { sessions } = await service.listSessions({});
        return sessions.some(({ state, commands }) => state === SessionState.CONNECTED && commands > 0n);
      });
      const { stdout } = await pool.home.millpond(["smi"]);
      expect(stdout).toMatch(/node-a\/0 \| Fake GPU .* 1 MiB \/ 512 MiB \/ 4 GiB \| OK/);
      expect(stdout).toMatch(
        new RegExp(`fake-client \\| claim-[0-9a-f]+ \\| ${transport} +\\| +50% \\| +1 MiB / 512 MiB`),
      );
      running.child.stdin?.end();
      expect(await running.finished).toMatchObject({ code: 0, stderr: "" });
      await pool.expectNoClaims();
    }
  });

  test.for(["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT"] as const)("gets %s", async (signal) => {
    const script = `trap 'echo got it; exit 9' ${signal.slice(3)}; echo ready; while :; do sleep 0.05; done`;
    const running = pool.home.start(["run", "-m", "1Gi", "--", "sh", "-c", script]);
    await running.says("stdout", /ready/);
    running.child.kill(signal);
    expect(await running.finished).toMatchObject({ code: 9, stdout: "ready\ngot it\n", stderr: "" });
    await pool.expectNoClaims();
  });

  test("that a signal kills makes the status 128 and the signal's number", async () => {
    const result = await pool.home.millpond(["run", "-m", "1Gi", "--", "sh", "-c", "kill -KILL $$"]);
    expect(result).toMatchObject({ code: 137, stderr: "" });
    await pool.expectNoClaims();
  });

  test("that is not there is 127, that cannot be run is 126, and nothing is claimed", async () => {
    const text = join(pool.home.directory, "a-text");
    const broken = join(pool.home.directory, "broken");
    writeFileSync(text, "no program\n");
    writeFileSync(broken, "#!/nowhere/interpreter\n");
    chmodSync(broken, 0o755);
    const before = (await pool.connection.claims.listClaims({ includeEnded: true })).claims.length;
    for (const [program, code] of [
      ["no-such-program", 127],
      ["/no/such/program", 127],
      [text, 126],
      [pool.home.directory, 126],
    ] as const) {
      const result = await pool.home.millpond(["run", "--", program]);
      expect(result, program).toMatchObject({ code, stdout: "" });
      expect(result.stderr, program).toMatch(/^error: .*\n {2}.*\n {2}\[MILLPOND_E_PROGRAM\]\n$/);
    }
    expect((await pool.connection.claims.listClaims({ includeEnded: true })).claims.length).toBe(before);
    expect(await pool.home.millpond(["run", "-m", "1Gi", "--", broken])).toMatchObject({
      code: 126,
      stdout: "",
    });
    await pool.expectNoClaims();
  });

  test("has its lease renewed, and gets notice when its claim is taken away", async () => {
    const running = pool.home.start(["run", "-m", "1Gi", "--name", "kept", "--", ...fakeClient]);
    await running.says("stdout", /attached/);
    const renewed = async (): Promise<bigint> =>
      (await pool.connection.claims.getClaim({ name: "kept" })).claim?.leaseExpiresAt ?? 0n;
    const first = await renewed();
    await pool.until(async () => (await renewed()) > first);
    expect(await pool.home.millpond(["release", "kept"])).toMatchObject({
      code: 0,
      stdout: "claim/kept released\n",
    });
    const result = await running.finished;
    expect(result.code).toBe(75);
    expect(result.stderr).toMatch(
      /millpond: the program loses its vGPUs and gets SIGTERM: claim kept has ended: released by its owner\n/,
    );
  });

  test("whose claim an administrator releases gets a message with the reason", async () => {
    const program = ["sh", "-c", "trap 'echo saved; exit 3' TERM; echo runs; while :; do sleep 0.05; done"];
    const running = pool.home.start(["run", "-m", "1Gi", "--name", "kick", "--", ...program]);
    await running.says("stdout", /runs/);
    const { secret } = await pool.connection.access.createToken({ name: "ops", role: "admin" });
    await pool.home.millpond(["release", "kick", "--reason", "abuse"], {
      environment: { MILLPOND_TOKEN: secret },
    });
    const result = await running.finished;
    expect(result).toMatchObject({ code: 75, stdout: "runs\nsaved\n" });
    expect(result.stderr).toMatch(/claim kick has ended: released by an administrator: abuse\n/);
  });

  test("in a claim that is there already, by option or variable, leaves it there", async () => {
    const { claims } = pool.connection;
    await claims.createClaim({ claim: { name: "shared", memoryBytes: 1n << 30n, leaseSeconds: 600 } });
    const show = ["sh", "-c", "echo $MILLPOND_CLAIM"];
    const byOption = await pool.home.millpond(["run", "--claim", "shared", "--", ...fakeClient]);
    expect(byOption).toMatchObject({ code: 0, stdout: "attached over shm\n", stderr: "" });
    const environment = { MILLPOND_CLAIM: "shared" };
    expect((await pool.home.millpond(["run", "--", ...show], { environment })).stdout).toBe("shared\n");
    expect((await pool.home.millpond(["env"], { environment })).stdout).toContain(
      "export MILLPOND_CLAIM=shared\n",
    );
    // Options on the command line take precedence over the environment.
    expect((await pool.home.millpond(["run", "-m", "1Gi", "--", ...show], { environment })).stdout).toMatch(
      /^claim-/,
    );
    const both = await pool.home.millpond(["run", "--claim", "shared", "-n", "2", "--", ...show]);
    expect(both).toMatchObject({ code: 118, stdout: "" });
    expect(both.stderr).toMatch(/--claim shared names an existing claim, and --gpus would change it/);
    expect((await claims.getClaim({ name: "shared" })).claim?.state).toBe(ClaimState.BOUND);
    await claims.releaseClaim({ name: "shared" });
    const ended = await pool.home.millpond(["run", "--claim", "shared", "--", ...show]);
    expect(ended.stderr).toMatch(/claim shared has ended[^]*\[MILLPOND_E_CLAIM_ENDED\]/);
  });

  test("-p asks for a fraction of memory and compute", async () => {
    const result = await pool.home.millpond(["run", "-v", "-p", "0.25", "--", "true"]);
    expect(result.stderr).toMatch(/\(1 GiB, 25% compute\)/);
  });
});

describe("without room", () => {
  test("run waits, says why on standard error, and goes on when there is room", async () => {
    const occupation = await occupy(3n * gibibyte);
    const running = pool.home.start(["run", "-m", "2Gi", "--", "echo", "ran"]);
    await running.says("stderr", /waiting for 1 vGPU of 2 GiB: .*\n/);
    expect(running.stdout).toBe("");
    await occupation[Symbol.asyncDispose]();
    const result = await running.finished;
    expect(result).toMatchObject({ code: 0, stdout: "ran\n" });
    expect(result.stderr).toMatch(
      /^millpond: claim claim-\w+ is waiting .*\nmillpond: claim claim-\w+ is bound after \d+s\n$/,
    );
    await pool.expectNoClaims();
  });

  test.for([
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)("%s while waiting cancels the claim", async ([signal, code]) => {
    await using _occupation = await occupy(4n * gibibyte);
    const running = pool.home.start(["run", "-m", "1Gi", "--name", `waiting-${code}`, "--", "echo", "ran"]);
    await running.says("stderr", /waiting/);
    running.child.kill(signal);
    const result = await running.finished;
    expect(result).toMatchObject({ code, stdout: "" });
    expect(result.stderr).toMatch(/millpond: cancelled, claim waiting-\d+ is released\n$/);
    const { claim } = await pool.connection.claims.getClaim({ name: `waiting-${code}` });
    expect(claim?.state).toBe(ClaimState.RELEASED);
  });

  test("--no-wait and --timeout give up with the reason, and claim nothing", async () => {
    await using occupation = await occupy(4n * gibibyte);
    const now = await pool.home.millpond(["run", "-m", "1Gi", "--no-wait", "--", "echo", "ran"]);
    expect(now).toMatchObject({ code: 123, stdout: "" });
    expect(now.stderr).toMatch(/^error: .*\n {2}.*\n {2}\[MILLPOND_E_NO_CAPACITY\]\n$/);
    const later = await pool.home.millpond(["run", "-m", "1Gi", "--timeout", "1s", "--", "echo", "ran"]);
    expect(later).toMatchObject({ code: 124, stdout: "" });
    expect(later.stderr).toMatch(
      /error: no room for 1 vGPU of 1 GiB within 1s: .*\n {2}.*\n {2}\[MILLPOND_E_WAIT_TIMEOUT\]\n$/,
    );
    await occupation[Symbol.asyncDispose]();
    await pool.expectNoClaims();
  });

  test("what no node could ever hold is refused at once", async () => {
    for (const options of [
      ["-m", "5Gi"],
      ["-n", "2", "-m", "1Gi"],
    ]) {
      const result = await pool.home.millpond(["run", ...options, "--", "true"]);
      expect(result).toMatchObject({ code: 122, stdout: "" });
      expect(result.stderr).toMatch(/\[MILLPOND_E_IMPOSSIBLE\]\n$/);
    }
    await pool.expectNoClaims();
  });
});

describe("without a controller", () => {
  test("commands say so and how to start one, status 119", async () => {
    for (const args of [["run", "--no-wait", "--", "true"], ["smi"], ["get", "nodes"], ["release", "x"]]) {
      const result = await pool.home.millpond(args, {
        environment: { MILLPOND_CONTROLLER: "http://127.0.0.1:1" },
      });
      expect(result).toMatchObject({ code: 119, stdout: "" });
      expect(result.stderr).toMatch(
        /no controller at http:\/\/127\.0\.0\.1:1 .*\n {2}Start a pool with `millpond up`/,
      );
    }
  });

  test("run waits for one, says so, and gives up", async () => {
    const result = await pool.home.millpond(["run", "--timeout", "3s", "--", "true"], {
      environment: { MILLPOND_CONTROLLER: "http://127.0.0.1:1" },
    });
    expect(result).toMatchObject({ code: 119, stdout: "" });
    expect(result.stderr).toMatch(
      /^millpond: waiting for the controller at http:\/\/127\.0\.0\.1:1, which does not answer\nerror: .*\n.*\n {2}\[MILLPOND_E_UNREACHABLE\]\n$/,
    );
  });

  test("run finds the one that is being started again, at its beginning and at its end", async () => {
    await using other = await PoolFixture.start();
    await other.stopController();
    const running = other.home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
    await running.says("stderr", /waiting for the controller at /);
    await other.startController();
    await running.says("stdout", /attached/);
    // Between the two it may print that it waits for the node, which returns after the controller.
    expect(running.stderr).toMatch(
      /does not answer\n(.*\n)*millpond: claim claim-\w+ is bound after \d+s\n$/,
    );
    await other.stopController();
    running.child.stdin?.end();
    // The program has ended, and no controller is running to which the claim could be released.
    await vi.waitUntil(() => childrenOf(running.child.pid) === "", { timeout: 120_000 });
    await other.startController();
    expect(await running.finished).toMatchObject({ code: 0 });
    expect(running.stderr).not.toContain("could not be released");
    expect((await other.connection.claims.listClaims({})).claims).toEqual([]);
  });

  test("a claim whose making was not answered is made once", async () => {
    await using lossy = await LossyProxy.to(pool.connection.controller);
    const result = await pool.home.millpond(["run", "-m", "1Gi", "--", "true"], {
      environment: { MILLPOND_CONTROLLER: lossy.url, MILLPOND_TOKEN: pool.connection.token },
    });
    expect(lossy.lost).toBe(1);
    expect(result).toMatchObject({ code: 0, stdout: "" });
    await pool.expectNoClaims();
  });

  test("with a wrong token the controller's own words come through", async () => {
    const result = await pool.home.millpond(["smi"], {
      environment: { MILLPOND_TOKEN: "wrong-token-wrong" },
    });
    expect(result.code).toBe(120);
    expect(result.stderr).toMatch(/\[MILLPOND_E_UNAUTHENTICATED\]\n$/);
  });

  test("a program that runs goes on, and its end is passed on", async () => {
    await using other = await PoolFixture.start();
    const running = other.home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
    await running.says("stdout", /attached/);
    await other.stopController();
    const client = running.child.pid;
    expect(client === undefined ? undefined : identifyProcess(client)).toBeDefined();
    running.child.stdin?.end();
    const result = await running.finished;
    expect(result).toMatchObject({ code: 0, stdout: "attached over shm\n" });
    expect(result.stderr).toMatch(
      /^millpond: claim claim-\w+ could not be released and expires within 30 s: .*\n$/,
    );
  });
});

describe("vGPUs that are taken back", () => {
  /** Prints that it runs and, when it gets the signal, that it saves its state. */
  const program = (signal: string) => [
    "sh",
    "-c",
    `trap 'echo saved; exit 3' ${signal}; echo runs; while :; do sleep 0.05; done`,
  ];
  const urgent = { name: "urgent", priority: 9, leaseSeconds: 600 };

  test("the program gets notice, and the exit status says that it is worth to start it again", async () => {
    const running = pool.home.start(["run", "--preemptible", "--grace", "5m", "--", ...program("TERM")]);
    await running.says("stdout", /runs/);
    const { claim } = await pool.connection.claims.createClaim({ claim: urgent });
    expect(claim?.state).toBe(ClaimState.PENDING);
    const result = await running.finished;
    expect(result).toMatchObject({ code: 75, stdout: "runs\nsaved\n" });
    expect(result.stderr).toMatch(
      /the program loses its vGPUs in (5m|4m5\ds) and gets SIGTERM: preempted for claim urgent: its priority 0 is lower than 9/,
    );
    await pool.until(async ({ claims }) => {
      const found = await claims.getClaim({ name: "urgent" });
      return found.claim?.state === ClaimState.BOUND;
    });
    await pool.connection.claims.releaseClaim({ name: "urgent" });
    await pool.expectNoClaims();
  });

  test("the program is started again when there is room", async () => {
    const options = ["--preemptible", "--requeue", "--notice-signal", "SIGUSR1", "--name", "again"];
    const running = pool.home.start(["run", ...options, "--", ...program("USR1 TERM")]);
    await running.says("stdout", /runs/);
    await pool.connection.claims.createClaim({ claim: { ...urgent, name: "urgent-2" } });
    await running.says("stderr", /waiting for 1 vGPU/);
    expect((await pool.connection.claims.getClaim({ name: "again" })).claim).toMatchObject({
      state: ClaimState.PENDING,
      requeues: 1,
    });
    await pool.connection.claims.releaseClaim({ name: "urgent-2" });
    await running.says("stdout", /runs\nsaved\nruns/);
    running.child.kill("SIGTERM");
    expect(await running.finished).toMatchObject({ code: 3, stdout: "runs\nsaved\nruns\nsaved\n" });
    await pool.expectNoClaims();
  });

  test("time and idle limits are two more ways", async () => {
    // Long enough for the program to have started.
    const runWith = async (...options: string[]) =>
      await pool.home.millpond(["run", "-m", "1Mi", ...options, "--requeue", "--", ...program("TERM")]);
    const [timed, idle] = await Promise.all([
      runWith("--time-limit", "20s"),
      runWith("--idle-limit", "20s", "--grace", "5m"),
    ]);
    expect(timed).toMatchObject({ code: 75, stdout: "runs\nsaved\n" });
    expect(timed.stderr).toContain("it is about to reach its time limit of 20s");
    expect(idle).toMatchObject({ code: 75, stdout: "runs\nsaved\n" });
    expect(idle.stderr).toMatch(
      /the program loses its vGPUs in (5m|4m5\ds) and gets SIGTERM: its devices were idle for 20s, its idle limit/,
    );
    await pool.expectNoClaims();
  });
});
