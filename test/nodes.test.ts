// SPDX-License-Identifier: Apache-2.0
// A node that joins a pool, is taken out of it for good while programs run there, and joins again.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { agentArguments } from "./support/agent.ts";
import { Pool, until } from "./support/pool.ts";
import type { Program } from "./support/program.ts";

/** `millpond agent` of a node with a software GPU, with a new token. */
async function startAgent(pool: Pool, name: string, token: string): Promise<Program> {
  const { stdout: secret } = await pool.millpond(["token", "create", token, "--role", "agent"]);
  const tokenFile = join(pool.directory, `${token}.token`);
  writeFileSync(tokenFile, secret, { mode: 0o600 });
  return startAgentWith(pool, name, tokenFile);
}

function startAgentWith(pool: Pool, name: string, tokenFile: string): Program {
  const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
  const run = join(pool.directory, `run-${name}`);
  const agent = pool.start(agentArguments({ name, controller, tokenFile, run }));
  onTestFinished(() => agent.signal("SIGKILL"));
  return agent;
}

test("a node that is removed ends what runs there, and joins again with a new token only", async () => {
  await using pool = await Pool.start("--devices", "1");
  const names = async () => (await pool.nodes()).map(({ name }) => name);
  const isReady = async (name: string) =>
    (await pool.nodes()).some((node) => node.name === name && node.state === "ready");
  const remove = (...options: string[]) => pool.millpond(["remove", "gpu-9", ...options]);
  const first = await startAgent(pool, "gpu-9", "gpu-9-first");
  await until("the node", () => isReady("gpu-9"), Boolean);
  for (const { name } of await pool.nodes()) {
    if (name !== "gpu-9") await pool.millpond(["cordon", name]);
  }
  const running = pool.startHolder(["-m", "1Gi", "--name", "runs"]);
  await pool.connected(1);
  const inUse = await remove();
  expect(inUse).toMatchObject({ status: 125, stdout: "" });
  expect(inUse.stderr).toMatch(
    /node gpu-9 holds 1 claim, and its agent called \d+ s ago\n.*millpond drain gpu-9 --wait.*\n.*MILLPOND_E_IN_USE/,
  );

  // Its worker keeps running, unknown to the pool.
  first.signal("SIGKILL");
  await first.finished;
  expect((await remove("--lost")).stderr).toMatch(/node gpu-9 is not lost: its agent called \d+ s ago/);
  const outcome = await until(
    "a lost node that is removed",
    () => remove("--lost", "--reason", "flooded"),
    ({ status }) => status === 0,
  );
  expect(outcome).toMatchObject({
    stdout: "node/gpu-9 removed\n",
    stderr: "claim/runs has lost its allocation there\n",
  });
  expect(await names()).not.toContain("gpu-9");
  expect(await remove()).toMatchObject({ status: 0 });
  expect((await pool.millpond(["get", "audit"])).stdout).toMatch(/RemoveNode +node\/gpu-9 .*flooded/);

  const old = startAgentWith(pool, "gpu-9", join(pool.directory, "gpu-9-first.token"));
  await old.says("stderr", /node gpu-9 was removed from the pool at .*MILLPOND_E_NODE_REMOVED/, 60_000);
  expect((await running.finished).status).not.toBe(0);
  expect(await names()).not.toContain("gpu-9");
  old.signal("SIGTERM");
  await old.finished;

  const again = await startAgent(pool, "gpu-9", "gpu-9-again");
  await until("the node again", () => isReady("gpu-9"), Boolean);
  expect(await pool.run(["-m", "1Gi"], ["vectoradd", "1000"])).toMatchObject({ status: 0 });
  again.signal("SIGTERM");
  await again.finished;
  const taken = await until(
    "a node without agent",
    () => remove(),
    ({ status }) => status === 0,
  );
  expect(taken.stdout).toBe("node/gpu-9 removed\n");
});
