// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const hasPromtool = spawnSync("promtool", ["--version"]).status === 0;

/** Usage of one device by a program in a pod, for each of two tenants. */
async function startPods() {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const as = (token: string) => {
    const transport = makeTransport(pool.controller.url, token);
    return {
      access: createClient(AccessService, transport),
      claims: createClient(ClaimService, transport),
      queues: createClient(QueueService, transport),
    };
  };
  const admin = as(pool.controller.userToken);
  const tokens = new Map<string, string>();
  const agent = pool.agent("node-a");
  for (const [tenant, share] of [
    ["team-a", 30],
    ["team-b", undefined],
  ] as const) {
    await admin.queues.putTenant({ tenant: { name: tenant } });
    const { secret } = await admin.access.createToken({ name: `of-${tenant}`, role: "user", tenant });
    tokens.set(tenant, secret);
    const { claims } = as(secret);
    const labels: Record<string, string> =
      tenant === "team-a" ? { "kubernetes/namespace": "ml", "kubernetes/pod": "train-0" } : {};
    const claim = {
      name: `claim-${tenant}`,
      tenant,
      memoryBytes: GiB,
      computePercent: 40,
      leaseSeconds: 3600,
    };
    // As Millpond's operator for Kubernetes does.
    await admin.claims.createClaim({ claim: { ...claim, labels } });
    const opened = await claims.createTicket({
      claim: `claim-${tenant}`,
      program: 'py"thon',
      clientPid: 4711,
      clientHost: "laptop",
    });
    const id = await agent.openSession(opened.ticket);
    const session = agent.sessions.get(id);
    if (session === undefined) throw new Error("no session");
    session.memoryUsed = GiB / 4n;
    session.computeUsed = share;
    await agent.settle();
  }
  const read = async (token: string): Promise<string> => {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await fetch(`${pool.controller.url}/metrics/dcgm`, { headers });
    expect(answer.status).toBe(200);
    return await answer.text();
  };
  return { pool, tokens, read };
}

test("claims and programs have metrics under the names of DCGM, with their pods", async () => {
  const { pool, read } = await startPods();
  const text = await read(pool.controller.userToken);
  const of = (name: string, claim: string): string =>
    text.split("\n").find((line) => line.startsWith(`${name}{`) && line.includes(`claim="${claim}"`)) ?? "";
  expect(of("DCGM_FI_DEV_FB_TOTAL", "claim-team-a")).toMatch(
    /^DCGM_FI_DEV_FB_TOTAL\{gpu="0",UUID="[^"]+",.*device="nvidia0",modelName="Software GPU",Hostname="host",.*namespace="ml",pod="train-0"\} 1024$/,
  );
  expect(of("DCGM_FI_DEV_FB_FREE", "claim-team-a")).toMatch(/ 768$/);
  expect(of("DCGM_FI_DEV_FB_USED", "claim-team-a")).toMatch(
    /pod="train-0",session="[^"]+",pid="4711",program="py\\"thon",client_host="laptop"\} 256$/,
  );
  expect(of("DCGM_FI_DEV_GPU_UTIL", "claim-team-a")).toMatch(/ 30$/);
  expect(of("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "claim-team-a")).toMatch(/ 0\.3$/);
  // A share that is not measured is absent, not 0. A claim without a pod lacks the pod labels.
  expect(of("DCGM_FI_DEV_GPU_UTIL", "claim-team-b")).toBe("");
  expect(of("DCGM_FI_DEV_FB_USED", "claim-team-b")).not.toContain("pod=");
  if (hasPromtool) {
    const { status, stderr } = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" });
    // promtool objects to NVIDIA's names but reads all of it: status 1 would mean that it could not be parsed.
    expect([0, 3], stderr).toContain(status);
  }
});

test("a token sees its own tenant there, and an agent's none", async () => {
  const { pool, tokens, read } = await startPods();
  const tenantsIn = async (token: string) => [
    ...new Set(Array.from((await read(token)).matchAll(/tenant="([^"]*)"/g), ([, tenant = ""]) => tenant)),
  ];
  expect(await tenantsIn(tokens.get("team-a") ?? "")).toEqual(["team-a"]);
  expect(await tenantsIn(tokens.get("team-b") ?? "")).toEqual(["team-b"]);
  expect(await tenantsIn(pool.controller.agentToken)).toEqual([]);
  expect((await tenantsIn(pool.controller.userToken)).toSorted()).toEqual(["team-a", "team-b"]);
  expect((await fetch(`${pool.controller.url}/metrics/dcgm`)).status).toBe(401);
});
