// SPDX-License-Identifier: Apache-2.0

import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { findProcessesByArgument, isProcessAlive, signalProcess } from "@millpond/agent";
import { expect, test } from "vitest";
import { readContexts, writeContexts } from "../../connection/context.ts";
import { fakeClient, Home, type Running } from "../../../test/fixture.ts";

/** A home with at most one pool, whose processes must all be gone when the test ends. */
class UpFixture extends Home {
  #running: Running | undefined;

  async up(...options: string[]): Promise<Running> {
    const running = this.start(["up", "--soft", "--listen", "127.0.0.1:0", ...options]);
    this.#running = running;
    await running.says("stdout", /Ctrl-C stops all of it/);
    return running;
  }

  /** Processes of the pool except `up` itself, found by arguments that only they have. */
  processes() {
    const state = join(this.state, "millpond");
    const services = [`--state=${state}`, join(state, "controller")];
    const nodes = ["node-a", "node-b"].map((name) => `--run=${join(state, "nodes", name, "run")}`);
    return [...services, ...nodes, this.softgpu].flatMap(findProcessesByArgument);
  }

  workers() {
    const watchers = new Set(findProcessesByArgument("--health").map(({ pid }) => pid));
    return findProcessesByArgument(this.softgpu).filter(({ pid }) => !watchers.has(pid));
  }

  override [Symbol.dispose](): void {
    this.#running?.child.kill("SIGKILL");
    const left = this.processes();
    for (const identity of left) signalProcess(identity, "SIGKILL");
    super[Symbol.dispose]();
    if (left.length > 0) throw new Error(`${left.length} processes were left behind`);
  }
}

test("up starts a pool that other commands find, and takes everything with it", async () => {
  using home = new UpFixture();
  const up = await home.up("--nodes", "2", "--devices", "2");
  expect(up.stdout).toMatch(/node-a +2 × Fake GPU, 4 GiB\n +node-b +2 × Fake GPU, 4 GiB/);
  expect(statSync(home.config).mode & 0o777).toBe(0o600);
  expect(await home.millpond(["get", "devices", "-o", "name"])).toMatchObject({
    code: 0,
    stdout: "device/node-a/0\ndevice/node-a/1\ndevice/node-b/0\ndevice/node-b/1\n",
  });
  const devices = JSON.parse((await home.millpond(["get", "devices", "-o", "json"])).stdout) as {
    readonly items: readonly { readonly uuid: string }[];
  };
  expect(new Set(devices.items.map(({ uuid }) => uuid)).size).toBe(4);

  const client = home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
  await client.says("stdout", /attached/);
  up.child.kill("SIGINT");
  expect(await up.finished).toMatchObject({ code: 0 });
  expect(home.processes()).toEqual([]);
  expect((await client.finished).code).toBe(46);
  expect(JSON.parse(readFileSync(home.config, "utf8"))).toMatchObject({ currentContext: "", contexts: {} });
  expect((await home.millpond(["smi"])).stderr).toMatch(
    /no controller is configured\n {2}Start a pool with `millpond up`, use `millpond login`/,
  );
});

test("a second pool has a context of its own, and its end leaves the first one's alone", async () => {
  using home = new UpFixture();
  writeContexts(home.config, {
    currentContext: "prod",
    contexts: { prod: { controller: "http://127.0.0.1:1", token: "t" } },
  });
  const first = await home.up();
  expect(first.stdout).toMatch(/context +local is the current one \(it was prod\)/);
  const second = home.start([
    "up",
    "--soft",
    "--listen",
    "127.0.0.1:0",
    "--state",
    join(home.directory, "st2"),
  ]);
  await second.says("stdout", /context +local-st2 is the current one \(it was local\)[^]*Ctrl-C stops/);
  const labelled = await home.millpond(["label", "node-a", "--set", "a=b"]);
  expect(labelled.stderr).toMatch(/^millpond: in the pool local-st2 \(http:\/\/127.0.0.1:\d+\)\n$/);
  second.child.kill("SIGINT");
  expect(await second.finished).toMatchObject({ code: 0 });
  expect(second.stdout).toMatch(/the current context is local\n$/);
  expect(await home.millpond(["get", "nodes", "-o", "name"])).toMatchObject({ stdout: "node/node-a\n" });
  first.child.kill("SIGTERM");
  await first.finished;
  expect(first.stdout).toMatch(/the current context is prod\n$/);
  expect(readContexts(home.config)).toEqual({
    currentContext: "prod",
    contexts: { prod: { controller: "http://127.0.0.1:1", token: "t" } },
  });
});

test("up -d returns when the pool is ready, and down ends it", async () => {
  using home = new UpFixture();
  expect(await home.millpond(["down"])).toMatchObject({
    code: 0,
    stdout: "",
    stderr: expect.stringMatching(/^millpond: no pool runs on .*\/millpond\n$/),
  });
  const up = await home.millpond(["up", "-d", "--soft", "--listen", "127.0.0.1:0"]);
  expect(up).toMatchObject({ code: 0, stderr: "" });
  expect(up.stdout).toMatch(/the pool is ready\n[^]*\nNow:\n[^]*\nmillpond down stops all of it\.\n$/);
  expect(await home.millpond(["get", "nodes", "-o", "name"])).toMatchObject({ stdout: "node/node-a\n" });
  // The console's link logs in once, so it is not stored.
  expect(readFileSync(join(home.state, "millpond", "up.log"), "utf8")).not.toContain("/login");
  const again = await home.millpond(["up", "-d", "--soft"]);
  expect(again).toMatchObject({ code: 125, stdout: "" });
  expect(again.stderr).toMatch(/a pool runs on .* already[^]*\[MILLPOND_E_STATE_LOCKED\]\n$/);
  expect(await home.millpond(["down"])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^the pool on .*\/millpond has ended\n$/),
  });
  expect(home.processes()).toEqual([]);
  expect(JSON.parse(readFileSync(home.config, "utf8"))).toMatchObject({ currentContext: "", contexts: {} });
});

test("a second up says that the first is running, and leaves it alone", async () => {
  using home = new UpFixture();
  const first = await home.up();
  const second = await home.millpond(["up", "--soft"]);
  expect(second).toMatchObject({ code: 125, stdout: "" });
  expect(second.stderr).toMatch(
    new RegExp(`a pool runs on .* already \\(process ${first.child.pid}, controller at http`),
  );
  expect(await home.millpond(["get", "nodes", "-o", "name"])).toMatchObject({ stdout: "node/node-a\n" });
  first.child.kill("SIGTERM");
  expect(await first.finished).toMatchObject({ code: 0 });
});

test("an up that was killed leaves no process, and the next one starts as if it had not been", async () => {
  using home = new UpFixture();
  const first = await home.up("--nodes", "2");
  first.child.kill("SIGKILL");
  await first.finished;
  await expect.poll(() => home.processes()).toEqual([]);
  const second = await home.up();
  expect(await home.millpond(["get", "nodes", "-o", "name"])).toMatchObject({ stdout: "node/node-a\n" });
  second.child.kill("SIGTERM");
  await second.finished;
});

test("workers that outlive all the rest of a pool are ended by the next up", async () => {
  using home = new UpFixture();
  const first = await home.up();
  await expect.poll(() => home.workers()).toHaveLength(2);
  const workers = home.workers();
  const parts = home.processes().filter(({ pid }) => workers.every((worker) => worker.pid !== pid));
  // As if simultaneously: all are stopped before any is killed, so none can shut the others down in an orderly way.
  for (const signal of ["SIGSTOP", "SIGKILL"] as const) {
    first.child.kill(signal);
    for (const part of parts) signalProcess(part, signal);
  }
  await first.finished;
  expect(home.workers()).toEqual(workers);
  const second = await home.up();
  expect(workers.filter(isProcessAlive)).toEqual([]);
  second.child.kill("SIGTERM");
  await second.finished;
});

test("a controller or an agent that dies is started again, and sessions go on without the controller", async () => {
  using home = new UpFixture();
  const up = await home.up();
  const client = home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
  await client.says("stdout", /attached/);
  const state = join(home.state, "millpond");
  for (const service of findProcessesByArgument(join(state, "controller"))) signalProcess(service, "SIGKILL");
  await up.says("stderr", /controller was killed by SIGKILL; starting it again\n(.*\n)*.*controller is back/);
  for (const service of findProcessesByArgument(`--run=${join(state, "nodes", "node-a", "run")}`)) {
    signalProcess(service, "SIGKILL");
  }
  await up.says("stderr", /node-a was killed by SIGKILL; starting it again\n(.*\n)*.*node-a is back/);
  // The agent reports to the controller when both have been restarted.
  await expect
    .poll(async () => (await home.millpond(["get", "sessions"])).stdout, { interval: 500 })
    .toMatch(/fake-client/);
  client.child.stdin?.end();
  expect(await client.finished).toMatchObject({ code: 0, stderr: "" });
  up.child.kill("SIGTERM");
  expect(await up.finished).toMatchObject({ code: 0 });
});

test("what cannot start says why, and nothing is left", async () => {
  using home = new UpFixture();
  const broken = join(home.directory, "nowhere");
  const result = await home.millpond(["up", "--soft"], { environment: { MILLPOND_NATIVE_DIR: broken } });
  expect(result).toMatchObject({ code: 125, stdout: "" });
  expect(result.stderr).toMatch(
    /native parts of Millpond are missing: .*nowhere.*\n.*npm run build.*\n.*NOT_INSTALLED/,
  );
});
