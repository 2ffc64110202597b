// SPDX-License-Identifier: Apache-2.0
// The packages for Python and TypeScript, on a pool of software GPUs.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../../scripts/lib/paths.ts";
import { MillpondError, Pool as SdkPool } from "../../sdk/typescript/src/index.ts";
import { clientDirectory, examples, Pool, until } from "../support/pool.ts";
import { Program, type Result } from "../support/program.ts";

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

const python = spawnSync("python3", ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).status === 0;

describe.skipIf(!python)(`the package for Python${python ? "" : " (not run: no python3 here)"}`, () => {
  function start(script: string, wishes: Record<string, string> = {}): Program {
    const environment = pool.containerEnvironment({
      PYTHONPATH: inRoot("sdk", "python", "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      EXAMPLES: examples,
      ...wishes,
    });
    const text = `import ctypes, json, millpond, os, subprocess, sys, threading\n${script}`;
    const child = spawn("python3", ["-c", text], {
      cwd: pool.directory,
      env: environment,
      stdio: ["pipe", "pipe", "pipe"],
    });
    return new Program(child);
  }
  const run = (script: string, wishes: Record<string, string> = {}): Promise<Result> =>
    start(script, wishes).finished;
  const said = async (script: string, wishes: Record<string, string> = {}): Promise<unknown> => {
    const { status, stdout, stderr } = await run(script, wishes);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    return JSON.parse(stdout);
  };

  it("gives this process vGPUs, and its programs, and gives them back", async () => {
    const answer = await said(
      `
with millpond.claim(memory="128Mi", compute=50, labels={"app": "sdk"}, preemptible=True, time_limit="1h") as claim:
    claim.activate()
    cuda = ctypes.CDLL("libcuda.so.1")
    bytes, device = ctypes.c_size_t(), ctypes.c_int()
    results = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDeviceTotalMem_v2(ctypes.byref(bytes), device)]
    program = subprocess.run([os.environ["EXAMPLES"], "vectoradd", "1000"], env=claim.environment(), capture_output=True, text=True)
    state, html, name, devices = claim.state, claim._repr_html_(), claim.name, len(claim.devices)
    token = claim.environment()["MILLPOND_TOKEN"]
claim.release()
after = [each["name"] for each in millpond.Client(token=os.environ["CALLER"]).claims()]
print(json.dumps({"results": results, "bytes": bytes.value, "program": program.stdout, "state": state, "html": html,
                  "name": name, "after": after, "token": token, "devices": devices}))
`,
      { CALLER: String(pool.containerEnvironment({})["MILLPOND_TOKEN"]) },
    );
    expect(answer).toMatchObject({
      results: [0, 0, 0],
      bytes: 128 * 2 ** 20,
      program: expect.stringContaining("vectoradd: OK") as string,
      state: {
        state: "CLAIM_STATE_BOUND",
        computePercent: 50,
        labels: { app: "sdk" },
        preemptible: true,
        timeLimitSeconds: 3600,
      },
      after: [],
      token: expect.stringMatching(/^mp-claim-/) as string,
      devices: 1,
    });
    expect((answer as { html: string }).html).toContain("<td>0.1 GiB</td><td>50 %</td>");
  });

  it("waits for room and says why, and gives up in time or when it may not wait", async () => {
    const answer = await said(`
reasons, errors = [], []
with millpond.claim(memory="1000Mi") as first:
    try: millpond.claim(memory="500Mi", wait=False)
    except millpond.Error as error: errors.append(error.code)
    try: millpond.claim(memory="500Mi", timeout=0.5, on_waiting=reasons.append)
    except TimeoutError as error: errors.append(str(error))
    try: millpond.claim(memory="2Gi")
    except millpond.Error as error: errors.append(error.code)
    threading.Timer(0.5, first.release).start()
    with millpond.claim(memory="500Mi", on_waiting=reasons.append) as second:
        errors.append(second.is_bound)
print(json.dumps([errors, reasons]))
`);
    expect(answer).toEqual([
      [
        "MILLPOND_E_NO_CAPACITY",
        expect.stringMatching(/^no room for claim claim-\w+ within 0\.5 s: .+\[MILLPOND_E_WAIT_TIMEOUT\]$/),
        "MILLPOND_E_IMPOSSIBLE",
        true,
      ],
      expect.arrayContaining([expect.stringContaining("MiB")]),
    ]);
  });

  it("keeps a claim for as long as the process, and notices when it is gone", async () => {
    const program = start(`
claim = millpond.claim(memory="64Mi", name="kept", on_notice=lambda seconds, why: None)
print("held", flush=True)
while True:
    try: claim.check()
    except millpond.ClaimLost as error:
        print(error, flush=True)
        break
    threading.Event().wait(0.05)
`);
    await program.says("stdout", /held/);
    await pool.millpond(["release", "kept"]);
    const { status, stdout, stderr } = await program.finished;
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/claim kept has ended: .*\[MILLPOND_E_CLAIM_ENDED\]/);
    // A claim that is not released ends with its process.
    expect(await said(`print(json.dumps(millpond.claim(memory="64Mi").name))`)).toMatch(/^claim-/);
    await until(
      "no claims",
      () => pool.claims(),
      (all) => all.length === 0,
    );
  });

  it("refuses what is no claim before it asks, and a process that has a driver already", async () => {
    const answer = await said(`
errors = []
for fields in [{"memory": "8 GB!"}, {"memory": "1K"}, {"compute": 1}, {"compute": "0.505"}, {"compute": 101}, {"Queue": "x"}]:
    try: millpond.claim(**fields)
    except ValueError as error: errors.append(str(error))
try: millpond.claim(memory="64Mi", frobnicate=1)
except millpond.Error as error: errors.append(error.code)
with millpond.claim(memory="64Mi") as claim:
    os.makedirs("other", exist_ok=True)
    import shutil
    shutil.copy(os.path.join(os.environ["LD_LIBRARY_PATH"], "libcuda.so.1"), "other")
    ctypes.CDLL("other/libcuda.so.1")
    try: claim.activate()
    except RuntimeError as error: errors.append(str(error))
print(json.dumps(errors))
`);
    expect(answer).toEqual([
      expect.stringContaining("is not a size"),
      expect.stringContaining("not between 1 MiB and 1 PiB"),
      expect.stringContaining("everything or one percent"),
      expect.stringContaining("in steps of 1%"),
      expect.stringContaining("is not a share"),
      expect.stringContaining("is no field of a claim"),
      "MILLPOND_E_INVALID",
      expect.stringContaining("has loaded"),
    ]);
  });

  it("finds the pool in the user's contexts, and never sends a context's token elsewhere", async () => {
    const { MILLPOND_CONTROLLER: controller, MILLPOND_TOKEN: token } = pool.containerEnvironment({});
    const file = join(pool.directory, "sdk-config.json");
    writeFileSync(
      file,
      JSON.stringify({
        currentContext: "a",
        contexts: { a: { controller, token }, b: { controller: "http://127.0.0.1:1" } },
      }),
    );
    const answer = await said(
      `
del os.environ["MILLPOND_CONTROLLER"], os.environ["MILLPOND_TOKEN"]
found = millpond.Client()
other = millpond.Client(controller="http://127.0.0.1:1")
problems = []
for make in [lambda: millpond.Client(context="c"), lambda: millpond.Client(controller="ftp://x"), lambda: other.claims()]:
    try: make()
    except (ValueError, millpond.Error) as error: problems.append(str(error))
print(json.dumps([found.claims(), other.endpoint.token, repr(found.endpoint), problems]))
`,
      { MILLPOND_CONFIG: file },
    );
    expect(answer).toEqual([
      [],
      "",
      expect.not.stringContaining(String(token)),
      [
        expect.stringContaining("MILLPOND_E_NOT_CONFIGURED"),
        expect.stringContaining("is not an http or https URL"),
        expect.stringContaining("does not answer"),
      ],
    ]);
  });
});

describe("the package for TypeScript", () => {
  const connect = (): SdkPool => SdkPool.fromEnvironment(pool.containerEnvironment({}));

  it("gives programs vGPUs, and gives them back at the end of the block", async () => {
    const sdk = connect();
    let name: string;
    {
      await using claim = await sdk.claim({ gpus: 1, memoryBytes: 128 * 2 ** 20, computePercent: 50 });
      ({ name } = claim);
      expect(claim.state).toMatchObject({ state: "CLAIM_STATE_BOUND", computePercent: 50 });
      const environment = await claim.environment(clientDirectory);
      const child = spawn(examples, ["vectoradd", "1000"], {
        env: { PATH: process.env["PATH"], ...environment },
        stdio: ["pipe", "pipe", "pipe"],
      });
      const { status, stdout } = await new Program(child).finished;
      expect({ status, stdout }).toMatchObject({
        status: 0,
        stdout: expect.stringContaining("vectoradd: OK") as string,
      });
    }
    const { claim } = await sdk.call("ClaimService", "GetClaim", { name });
    expect(claim?.state).toBe("CLAIM_STATE_RELEASED");
  });

  it("waits for room, is stopped by a signal, and reports a claim that is gone", async () => {
    const sdk = connect();
    const lost: string[] = [];
    const first = await sdk.claim(
      { name: "first", memoryBytes: 1000 * 2 ** 20 },
      { onLost: (_seconds, why) => lost.push(why) },
    );
    await expect(sdk.claim({ memoryBytes: 500 * 2 ** 20 }, { noWait: true })).rejects.toMatchObject({
      name: "MillpondError",
      code: "MILLPOND_E_NO_CAPACITY",
    });
    const stop = new AbortController();
    const waiting = sdk.claim(
      { name: "second", memoryBytes: 500 * 2 ** 20 },
      { signal: stop.signal, onWaiting: () => stop.abort(new Error("enough")) },
    );
    await expect(waiting).rejects.toThrow("enough");
    expect((await pool.claims()).map((each) => each.name)).toEqual(["first"]);
    await pool.millpond(["release", "first"]);
    await until(
      "the end of the claim",
      () => Promise.resolve(lost),
      ({ length }) => length > 0,
    );
    await first.release();
  });

  it("says what is wrong with an address, a token and an answer", async () => {
    expect(() => new SdkPool({ controller: "ftp://x" })).toThrow("is not an http or https URL");
    expect(() => SdkPool.fromEnvironment({})).toThrow("MILLPOND_E_NOT_CONFIGURED");
    const { controller } = connect();
    const asStranger = new SdkPool({ controller, token: "nobody" }).call("ClaimService", "ListClaims", {});
    await expect(asStranger).rejects.toMatchObject({ code: "MILLPOND_E_UNAUTHENTICATED", status: 401 });
    const nowhere = new SdkPool({ controller: "http://127.0.0.1:1" }).call("ClaimService", "ListClaims", {});
    await expect(nowhere).rejects.toMatchObject({ code: "MILLPOND_E_UNREACHABLE", status: 0 });
    await expect(nowhere).rejects.toBeInstanceOf(MillpondError);
  });

  it("is made into JavaScript with types", () => {
    const out = mkdtempSync(join(tmpdir(), "millpond-sdk-"));
    try {
      const compiler = inRoot("node_modules", ".bin", "tsc");
      const { status, stdout } = spawnSync(compiler, ["-p", inRoot("sdk", "typescript"), "--outDir", out]);
      expect({ status, stdout: String(stdout) }).toEqual({ status: 0, stdout: "" });
      const script = `const { Pool } = await import(${JSON.stringify(join(out, "index.js"))}); console.log(new Pool({ controller: "http://x" }).controller)`;
      const node = spawnSync(process.execPath, ["--input-type=module", "-e", script]);
      expect(String(node.stdout)).toBe("http://x\n");
    } finally {
      rmSync(out, { recursive: true });
    }
  });
});
