// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, get } from "node:https";
import { join } from "node:path";
import { startAgent } from "@millpond/agent";
import { NodeState } from "@millpond/api";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";
import { testLog } from "@millpond/agent/testing/fixture";
import { expect, onTestFinished, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

interface Target {
  readonly targets: readonly [string];
  readonly labels: { readonly node: string };
}

/** Scrapes an agent as Prometheus does, which trusts only the given authorities. */
function scrape(host: string, ca: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: "Bearer only-reads-metrics" };
    get(`https://${host}/metrics`, { ca, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).once("error", reject);
  });
}

test("Prometheus finds and trusts the agents by the files, whose authorities come from the agents that the controller knows", async () => {
  const pool = await PoolFixture.start({ tls: true });
  onTestFinished(() => pool[Symbol.asyncDispose]());
  const { home, connection } = pool;
  const tokenFile = join(home.directory, "metrics.token");
  writeFileSync(tokenFile, "only-reads-metrics\n", { mode: 0o600 });
  const agent = await startAgent({
    name: "node-b",
    controller: connection.controller,
    ca: connection.ca,
    token: readFileSync(join(home.directory, "controller", "agent.token"), "utf8").trim(),
    metricsToken: "only-reads-metrics",
    drivers: [home.softgpu],
    worker: join(home.native, "millpond-worker"),
    run: join(home.directory, "run-b"),
    encrypt: true,
    closeTimeoutMs: 500,
    log: testLog,
  });
  let isStopped = false;
  const stop = async (): Promise<void> => {
    if (!isStopped) await agent.stop({ drain: "all" });
    isStopped = true;
  };
  onTestFinished(stop);
  await pool.until(async ({ pool: { listNodes } }) => {
    const { nodes } = await listNodes({});
    return nodes.filter(({ state }) => state === NodeState.READY).length === 2;
  });

  const folder = join(home.directory, "prometheus");
  mkdirSync(folder);
  const write = () => home.millpond(["prometheus", "--directory", folder]);
  const read = (name: string): string => readFileSync(join(folder, name), "utf8");
  expect(await write()).toMatchObject({
    code: 0,
    stdout: `2 agents and 1 authority are in ${folder}\n`,
    stderr: "",
  });
  expect(read("controller-ca.crt")).toBe(connection.ca);
  const targets = JSON.parse(read("agents.json")) as readonly Target[];
  expect(targets.map(({ labels }) => labels.node)).toEqual(["node-a", "node-b"]);
  const host = targets[1]?.targets[0] ?? "";
  const bundle = read("agents-ca.crt");
  expect(await scrape(host, bundle)).toBe(200);
  await expect(scrape(host, read("controller-ca.crt"))).rejects.toThrow("certificate");

  const at = statSync(join(folder, "agents-ca.crt")).mtimeMs;
  expect(await write()).toMatchObject({ code: 0 });
  expect(statSync(join(folder, "agents-ca.crt")).mtimeMs).toBe(at);

  // Another server at its address, which cannot make Prometheus trust it.
  await stop();
  const validity = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 3_600_000) };
  const authority = makeAuthority("Another", validity);
  const { certificate, key } = makeServerCertificate(authority, ["127.0.0.1"], validity);
  const server = createServer({ cert: certificate + authority.certificate, key });
  await new Promise<void>((resolve) =>
    server.listen(Number(new URL(`https://${host}`).port), "127.0.0.1", resolve),
  );
  const refused = await write();
  expect(refused).toMatchObject({ code: 1, stdout: `2 agents and 1 authority are in ${folder}\n` });
  expect(refused.stderr).toMatch(
    /^millpond: node-b: the agent at https:\S+ is not trusted: .*; its authority of the last time is kept\n$/,
  );
  expect(read("agents-ca.crt")).toBe(bundle);
  await new Promise((resolve) => server.close(resolve));
  expect((await write()).stderr).toMatch(
    /^millpond: node-b: there is no agent at .*; its authority .* is kept\n$/,
  );
  expect(read("agents-ca.crt")).toBe(bundle);

  const missing = await home.millpond(["prometheus", "--directory", join(folder, "missing")]);
  expect(missing).toMatchObject({ code: 118, stdout: "" });
  expect(missing.stderr).toMatch(/^error: --directory: .* cannot be written: ENOENT/);
});
