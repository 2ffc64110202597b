// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession } from "../test/fixture.ts";

test("metrics tell of workers, devices and sessions, to those who have the agent token", async () => {
  await using node = await NodeFixture.create();
  const agent = await node.startKnownAgent({ labels: { zone: "b" } });
  node.controller.allocate("claim-1", "node-a", [firstDevice], "burstable");
  const ticket = node.controller.ticket("claim-1");
  const { unixPath, session } = await openSession(agent, ticket);
  using _client = await attach({ path: unixPath }, ticket);
  const report = await node.controller.report(({ sessions }) => (sessions[0]?.commands ?? 0n) > 0n);
  expect(report.labels).toEqual({ zone: "b" });

  const url = `${agent.url}/metrics`;
  expect((await fetch(url)).status).toBe(401);
  const answer = await fetch(url, { headers: { authorization: `Bearer ${node.controller.token}` } });
  expect(answer.status).toBe(200);
  const text = await answer.text();
  for (const line of [
    'millpond_agent_workers{phase="connected"} 1',
    `millpond_agent_device_healthy{uuid="${firstDevice}"} 1`,
    `millpond_agent_session_launches_total{claim="claim-1",session="${session}"} 3`,
    `millpond_agent_session_memory_used_bytes{claim="claim-1",session="${session}",uuid="${firstDevice}"} 1048576`,
    `millpond_agent_session_compute_seconds_total{claim="claim-1",session="${session}",uuid="${firstDevice}"} 0.5`,
    `millpond_agent_session_compute_share{claim="claim-1",session="${session}",uuid="${firstDevice}",class="burstable"} 0.5`,
  ]) {
    expect(text).toContain(`${line}\n`);
  }
  expect(Number(/^millpond_agent_last_sync_timestamp_seconds (\d+)$/m.exec(text)?.[1])).toBeGreaterThan(0);
});

test("a further token reads the metrics, and nothing else", async () => {
  await using node = await NodeFixture.create();
  const metricsToken = "prometheus-0123456789abcdef";
  const agent = await node.startKnownAgent({ metricsToken });
  const authorization = `Bearer ${metricsToken}`;
  const status = async (token: string) =>
    (await fetch(`${agent.url}/metrics`, { headers: { authorization: `Bearer ${token}` } })).status;
  expect([await status(metricsToken), await status(node.controller.token)]).toEqual([200, 200]);
  expect([await status(`${metricsToken}0`), await status("")]).toEqual([401, 401]);
  await expect(node.startKnownAgent({ metricsToken: "short" })).rejects.toThrow(/at least 16 printable/);
  const call = await fetch(`${agent.url}/millpond.v1.NodeService/GetNodeStatus`, {
    method: "POST",
    headers: { authorization, "content-type": "application/json" },
    body: "{}",
  });
  expect(call.status).toBe(401);
});
