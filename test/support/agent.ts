// SPDX-License-Identifier: Apache-2.0
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { nativeDir } from "../../scripts/lib/paths.ts";
import { type Pool, until } from "./pool.ts";
import type { Program } from "./program.ts";

/** Arguments of a `millpond agent` with a software GPU, which ends its workers when it is stopped. */
export function agentArguments(options: {
  readonly name: string;
  /** Separated by commas. */
  readonly controller: string;
  readonly tokenFile: string;
  readonly run: string;
}): readonly string[] {
  const { name, controller, tokenFile, run } = options;
  const driver = join(nativeDir("release"), "softgpu", "libcuda.so.1");
  const worker = join(nativeDir("release"), "worker", "millpond-worker");
  const of = ["--name", name, "--controller", controller, "--token-file", tokenFile];
  return ["agent", ...of, "--driver", driver, "--worker", worker, "--run", run, "--drain", "all"];
}

/** Joins a node with its own software GPU to a pool, whose other nodes get no more claims. */
export async function joinNode(
  pool: Pool,
  name: string,
  options: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): Promise<Program> {
  const { stdout: token } = await pool.millpond(["token", "create", name, "--role", "agent"]);
  const tokenFile = join(pool.directory, `${name}.token`);
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
  const of = agentArguments({ name, controller, tokenFile, run: join(pool.directory, name) });
  const agent = pool.start([...of, ...options], {
    MILLPOND_SOFTGPU_DEVICES: "1",
    MILLPOND_SOFTGPU_SEED: name,
    ...environment,
  });
  await until(
    "the node",
    () => pool.nodes(),
    (nodes) => nodes.some((node) => node.name === name && node.state === "ready"),
  );
  for (const node of await pool.nodes()) if (node.name !== name) await pool.millpond(["cordon", node.name]);
  return agent;
}
