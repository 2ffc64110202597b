// SPDX-License-Identifier: Apache-2.0
// The agent with the capabilities that its container has in a cluster, and no others.
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { inRoot, root } from "../scripts/lib/paths.ts";
import { agentArguments } from "./support/agent.ts";
import { Pool, until } from "./support/pool.ts";
import { Program } from "./support/program.ts";

interface Agent {
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly containers: readonly {
          readonly securityContext: {
            readonly capabilities: { readonly drop: readonly string[]; readonly add: readonly string[] };
          };
        }[];
      };
    };
  };
}

const manifest = parse(readFileSync(inRoot("kubernetes", "deploy", "pool", "agent.yaml"), "utf8")) as Agent;
const { drop, add } = manifest.spec.template.spec.containers[0]?.securityContext.capabilities ?? {
  drop: [],
  add: [],
};
const inContainer = [
  "setpriv",
  "--bounding-set",
  ["-all", ...add.map((each) => `+${each.toLowerCase()}`)].join(","),
  "--inh-caps=-all",
  "--no-new-privs",
];
const isPossible = process.getuid?.() === 0 && spawnSync("setpriv", ["--version"]).status === 0;

/** The users of the workers that run. */
function workerUsers(run: string): string[] {
  return readdirSync(join(run, "records"))
    .filter((name) => name.endsWith(".json"))
    .flatMap((name) => {
      try {
        const text = readFileSync(join(run, "records", name), "utf8");
        const { pid } = (JSON.parse(text) as { process: { pid: number } }).process;
        return /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? [];
      } catch {
        return []; // It ended meanwhile.
      }
    });
}

test.skipIf(!isPossible)(
  "an agent with the rights of its container starts workers as another user",
  async () => {
    expect(drop).toEqual(["ALL"]);
    await using pool = await Pool.start("--devices", "1");
    await using stack = new AsyncDisposableStack();
    // As /run/millpond: every user may pass.
    chmodSync(pool.directory, 0o755);
    const { stdout: token } = await pool.millpond(["token", "create", "contained", "--role", "agent"]);
    const tokenFile = join(pool.directory, "contained.token");
    writeFileSync(tokenFile, token, { mode: 0o600 });
    const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
    const run = join(pool.directory, "contained");
    // A name as many clusters give to their nodes.
    const name = "ip-10-0-0-1.example.internal";
    const [command = "", ...args] = [
      ...inContainer,
      process.execPath,
      join(root, "cli", "bin", "millpond.mjs"),
      ...agentArguments({ name, controller, tokenFile, run }),
    ];
    const agent = new Program(
      spawn(command, args, {
        cwd: pool.directory,
        env: {
          PATH: process.env["PATH"],
          HOME: pool.directory,
          MILLPOND_CONFIG: join(pool.directory, "config.json"),
          MILLPOND_SOFTGPU_DEVICES: "1",
          MILLPOND_SOFTGPU_SEED: name,
        },
        stdio: ["pipe", "pipe", "pipe"],
      }),
    );
    stack.defer(async () => {
      agent.signal("SIGTERM");
      await agent.finished;
    });
    const isReady = until(
      "the node",
      () => pool.nodes(),
      (nodes) => nodes.some((node) => node.name === name && node.state === "ready"),
    );
    const hasEnded = agent.finished.then(({ stderr }) => {
      throw new Error(`the agent has ended: ${stderr}`);
    });
    await Promise.race([isReady, hasEnded]);
    hasEnded.catch(() => undefined);
    for (const node of await pool.nodes()) if (node.name !== name) await pool.millpond(["cordon", node.name]);
    const { status, stdout, stderr } = await pool.run(["-m", "256Mi"], ["vectoradd", "1000"]);
    expect([status, stdout, stderr]).toEqual([
      0,
      expect.stringContaining("vectoradd: OK"),
      expect.anything(),
    ]);
    const users = await until(
      "a worker that waits for a session",
      () => Promise.resolve(workerUsers(run)),
      (found) => found.length > 0,
    );
    expect(new Set(users)).toEqual(new Set(["1900000000"]));
    // It can end them, and take away what was theirs.
    agent.signal("SIGTERM");
    expect(await agent.finished).toMatchObject({ status: 0 });
    expect(readdirSync(join(run, "workers"))).toEqual([]);
  },
);
