// SPDX-License-Identifier: Apache-2.0

import type { ChildProcess } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { testLog } from "../testing/test-pool.ts";
import { keepRunning } from "./keep.ts";
import { publishRelease } from "./publish.ts";
import { ReleaseDirectory } from "./release-directory.ts";

/**
 * Agents that append their release and process id to a file when they start, and then act as their release
 * defines.
 */
class Node {
  readonly directory = mkdtempSync(join(tmpdir(), "mp-keep-"));
  readonly releases = new ReleaseDirectory(join(this.directory, "releases"));
  readonly #starts = join(this.directory, "starts");
  readonly stop = new AbortController();
  readonly children: ChildProcess[] = [];

  constructor() {
    writeFileSync(this.#starts, "");
    onTestFinished(() => {
      this.stop.abort();
      for (const child of this.children) child.kill("SIGKILL");
      rmSync(this.directory, { recursive: true, force: true });
    });
  }

  /**
   * Publishes a release whose agent exits with status 7 when it is terminated, and runs `script` after it has recorded
   * its start.
   */
  publish(name: string, script: string, environment: Record<string, string> = {}): string {
    const source = join(this.directory, `image-${name}`);
    mkdirSync(source, { recursive: true });
    const note = `import { appendFileSync } from "node:fs";
process.on("SIGTERM", () => process.exit(7));
appendFileSync(${JSON.stringify(this.#starts)}, ${JSON.stringify(`${name} `)} + process.pid + " " + process.argv[2] + "\\n");
`;
    writeFileSync(join(source, "agent.mjs"), note + script);
    const command = [process.execPath, join(source, "agent.mjs"), `--worker=${join(source, "worker")}`];
    return this.releases.publish(source, { command, environment });
  }

  keep(goodStartMs: number): Promise<number> {
    const { releases } = this;
    const { signal } = this.stop;
    return keepRunning({ releases, signal, log: testLog, goodStartMs, pauseMs: 1, checkMs: 5, stopMs: 5000 });
  }

  get starts(): { readonly name: string; readonly pid: number; readonly argument: string }[] {
    return readFileSync(this.#starts, "utf8")
      .split("\n")
      .filter(Boolean)
      .map((line) => {
        const [name = "", pid, argument = ""] = line.split(" ");
        return { name, pid: Number(pid), argument };
      });
  }

  get names(): string {
    return this.starts.map(({ name }) => name).join(" ");
  }
}

/** Starts a process that outlives its agent, as a worker does, and notes its id in `${agent}.worker`, once. */
const withWorker = `
import { existsSync } from "node:fs";
import { spawn } from "node:child_process";
if (!existsSync(process.argv[1] + ".worker")) {
  const worker = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)", process.argv[1]], { detached: true, stdio: "ignore" });
  appendFileSync(process.argv[1] + ".worker", String(worker.pid));
}
`;

const lasting = `setInterval(() => {}, 1000);
appendFileSync(process.argv[1] + ".ready", "x");`;

async function until(what: string, isSo: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`${what}: not within a minute`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.[0] !== "Z";
  } catch {
    return false;
  }
}

test("an agent that is killed is started again, and ends when it is asked to", async () => {
  const node = new Node();
  const id = node.publish("a", lasting);
  const kept = node.keep(0);
  const agent = join(node.directory, "releases", id, "agent.mjs");
  const ready = () =>
    readdirSync(join(node.directory, "releases", id)).includes("agent.mjs.ready")
      ? readFileSync(`${agent}.ready`, "utf8").length
      : 0;
  for (const times of [1, 2, 3]) {
    await until(`start ${times}`, () => ready() === times);
    expect(node.releases.running).toBe(id);
    if (times < 3) process.kill(node.starts.at(-1)?.pid ?? 0, "SIGKILL");
  }
  expect(node.names).toBe("a a a");
  expect(node.starts[0]?.argument).toBe(`--worker=${join(node.directory, "releases", id, "worker")}`);
  node.stop.abort();
  await expect(kept).resolves.toBe(7);
  expect(node.releases.running).toBeUndefined();
});

test("an agent that never starts properly is left to Kubernetes, with its status", async () => {
  const node = new Node();
  node.publish("a", "process.exit(3)");
  await expect(node.keep(60_000)).resolves.toBe(3);
  expect(node.names).toBe("a");
  const empty = join(node.directory, "empty");
  mkdirSync(empty);
  node.releases.publish(empty, { command: ["/nowhere/program"], environment: {} });
  await expect(node.keep(60_000)).resolves.toBe(127);
});

const failing = "process.exit(3);";
test.each([
  { what: "is killed before it counts as started", script: lasting, goodStartMs: 60_000, kills: Infinity },
  { what: "fails at each start", script: failing, goodStartMs: 60_000, kills: 0 },
  {
    what: "fails at each start after a good one",
    script: `if (existsSync(process.argv[1] + ".ready")) ${failing}\n${lasting}`,
    goodStartMs: 3000,
    kills: 1,
  },
])(
  "an agent that $what is started again for as long as a worker of it lives",
  async ({ script, goodStartMs, kills }) => {
    const node = new Node();
    const id = node.publish("a", withWorker + script);
    const kept = node.keep(goodStartMs);
    const workerFile = join(node.directory, "releases", id, "agent.mjs.worker");
    const killed = new Set<number>();
    /** Kills the last agent once, while fewer than `kills` have been: the others end by themselves. */
    const killLast = async () => {
      const { pid = 0 } = node.starts.at(-1) ?? {};
      if (killed.size === kills || pid === 0 || !existsSync(workerFile) || killed.has(pid)) return;
      if (kills === 1) await delay(1.5 * goodStartMs);
      killed.add(pid);
      process.kill(pid, "SIGKILL");
    };
    while (node.starts.length < 6) {
      await killLast();
      await delay(10);
    }
    const worker = Number(readFileSync(workerFile, "utf8"));
    onTestFinished(() => {
      if (isAlive(worker)) process.kill(worker, "SIGKILL");
    });
    expect(isAlive(worker)).toBe(true);
    process.kill(worker, "SIGKILL");
    await until("the worker has gone", () => !isAlive(worker));
    // The container's end loses nothing any more, so Kubernetes may report the failure.
    await killLast();
    await expect(kept).resolves.toBe(kills === Infinity ? 137 : 3);
    expect(killed.size).toBe(kills === Infinity ? node.starts.length : kills);
  },
);

test("the next release's agent follows without an end of what the last one has left", async () => {
  const node = new Node();
  const first = node.publish("a", `${withWorker}${lasting}`);
  const kept = node.keep(0);
  const workerFile = join(node.directory, "releases", first, "agent.mjs.worker");
  let worker = 0;
  await until("a worker", () => {
    try {
      worker = Number(readFileSync(workerFile, "utf8"));
    } catch {
      return false;
    }
    return worker > 0;
  });
  onTestFinished(() => {
    if (isAlive(worker)) process.kill(worker, "SIGKILL");
  });
  const second = node.publish("b", lasting, { MILLPOND_LOG: "debug" });
  await until("the second release runs", () => node.releases.running === second && node.names === "a b");
  expect(isAlive(worker)).toBe(true);
  const ids = () =>
    readdirSync(join(node.directory, "releases")).filter((name) => /^[0-9a-f]{16}$/.test(name));
  // The files of the worker's release stay for as long as it runs, and are removed when a later release is published.
  expect(ids()).toContain(first);
  process.kill(worker, "SIGKILL");
  await until("the worker has gone", () => !isAlive(worker));
  const third = node.publish("c", lasting);
  await until("the third release runs", () => node.releases.running === third && node.names === "a b c");
  expect(ids()).not.toContain(first);
  node.stop.abort();
  await expect(kept).resolves.toBe(7);
});

test("a release that does not start leaves the one of before running, until another is published", async () => {
  const node = new Node();
  const goodStartMs = 20;
  const first = node.publish("a", lasting);
  const kept = node.keep(goodStartMs);
  await until("the first release runs", () => node.names === "a");
  const runsMs = performance.now();
  await until("that was a good start", () => performance.now() - runsMs > 10 * goodStartMs);
  const empty = join(node.directory, "empty");
  mkdirSync(empty);
  node.releases.publish(empty, { command: ["/nowhere/program"], environment: {} });
  await until("the first release is back", () => node.names === "a a" && node.releases.running === first);
  // An incomplete release is ignored.
  const half = node.publish("half", lasting);
  writeFileSync(join(node.directory, "releases", half, "start.json"), "{");
  const next = node.publish("b", lasting);
  await until("the next release runs", () => node.releases.running === next && node.names.endsWith("b"));
  expect(node.names).not.toContain("half");
  node.stop.abort();
  await expect(kept).resolves.toBe(7);
});

test("a pod that publishes is ready when its release runs", async () => {
  const node = new Node();
  const source = join(node.directory, "image");
  mkdirSync(source);
  const start = { command: [process.execPath, "-e", "setInterval(() => {}, 1000)"], environment: {} };
  const publisher = await publishRelease({
    releases: node.releases,
    source,
    start,
    listen: { host: "127.0.0.1", port: 0 },
    log: testLog,
  });
  await using _publisher = publisher;
  const status = async (path: string) => (await fetch(`http://127.0.0.1:${publisher.port}${path}`)).status;
  expect([await status("/readyz"), await status("/")]).toEqual([503, 404]);
  const kept = node.keep(0);
  await until("it runs", () => node.releases.running === publisher.id);
  expect(await status("/readyz")).toBe(200);
  node.stop.abort();
  await expect(kept).resolves.toBe(143);
  expect(await status("/readyz")).toBe(503);
  node.releases.remove();
  expect(readdirSync(join(node.directory, "releases"))).toEqual([]);
});
